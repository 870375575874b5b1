"""Commands that run as they are pasted: the logs that they name get the folder that the report's sources leave out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.runtime.redaction import redact

if TYPE_CHECKING:
    from bot.diagnosis.diagnose import DiagnosisResult
    from kb.report import Diagnosis, RemedyStep, Report

_BEFORE_PROGRAM = re.compile(r"(?:^|[;|&(]|\b(?:sudo|xargs|env|exec|do|then))\s*$")


def runnable(answer: DiagnosisResult, *, anywhere: bool = False) -> Report:
    """Return the report of an answer with commands that name logs by a path from the current folder.

    `anywhere`: by their absolute path, for a reader in another folder. Logs that came by standard input have no path.
    """
    bundled = answer.evidence.bundle is not None
    folder = answer.root if bundled else Path()
    if folder is None or (answer.root is not None and not bundled):
        return answer.report
    folder = folder.absolute() if anywhere else folder
    return with_folder(answer.report, folder, (stream.ref.uri for stream in answer.evidence.streams))


def with_folder(report: Report, folder: Path, sources: Iterable[str]) -> Report:
    """Return the report with `folder` before each of the sources that a command names, quoted for a shell, if it is a file there."""
    steps = [step for diagnosis in report.diagnoses for step in diagnosis.remediation if step.command]
    text = "\n".join(step.command or "" for step in steps)
    paths = {word: folder / source for source in dict.fromkeys(sources) if (word := shlex.quote(source)) in text}
    known = {word: shlex.quote(_written(path)) for word, path in paths.items() if _is_usable(path)}
    if not known:
        return report
    named = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})(?![^\s;|&)])")

    def filled(step: RemedyStep) -> RemedyStep:
        command = step.command and named.sub(lambda hit: hit[0] if _runs(hit) else known[hit[0]], step.command)
        return replace(step, command=command)

    def walked(diagnosis: Diagnosis) -> Diagnosis:
        return replace(diagnosis, remediation=tuple(map(filled, diagnosis.remediation)))

    return replace(report, diagnoses=tuple(map(walked, report.diagnoses)))


def _runs(hit: re.Match[str]) -> bool:
    """Whether a word is the program of a command: a log may have the name of one, and must not be run."""
    return _BEFORE_PROGRAM.search(hit.string[: hit.start()]) is not None


def _written(path: Path) -> str:
    """Return a path as a command takes it: a name that begins with a dash would be an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _is_usable(path: Path) -> bool:
    """Whether a path is a file whose name shows no secret."""
    try:
        return path.is_file() and redact(str(path)) == str(path)
    except (OSError, ValueError):  # a source is a name from outside
        return False
