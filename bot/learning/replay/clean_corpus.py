"""Logs of successful runs, which no rule may match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bot.authoring.selftest import evidence_of, read_streams, tests_of
from bot.rulebase.loader import Knowledge
from kb.diagnosis.engine import answered
from kb.diagnosis.findings import find
from kb.errors import UnreadableInput
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.model import NOT_FAILED

LARGEST = 8 << 20  # bytes read per log


def clean_logs(known: Knowledge, rules: Path, folders: Sequence[Path] = ()) -> dict[str, dict[str, bytes]]:
    """Return logs of runs without a failure: near misses of the base's rules on which no rule fires, and logs in given folders.

    In a folder, each file or subfolder is one run. A log in a rule's `silent/` counts only if the current rule base finds nothing
    in it and sees no failure; the others show a different fault.

    Raises:
        UnreadableInput: a folder cannot be read.
    """
    matcher = known.matcher()
    found: dict[str, dict[str, bytes]] = {}
    for test in tests_of(rules, known.rulebook.rules):
        if test.speaks:
            continue
        streams = _logs(test.path)
        facts = Facts(evidence_of(known, matcher, streams))
        judged = find(known.rulebook, facts, History()).findings
        if answered(judged, facts)[0] in NOT_FAILED:
            found[f"{test.rule}/silent/{test.path.name}"] = streams
    for folder in folders:
        try:
            runs = sorted(folder.iterdir())
        except OSError as error:
            raise UnreadableInput(f"{folder}: cannot be read: {error.strerror}") from error
        found |= {str(run): streams for run in runs if (streams := _logs(run))}
    return found


def _logs(path: Path) -> dict[str, bytes]:
    """Return the first bytes of each log of a run: a file, a folder of files, or the `logs/` of a bundle."""
    logs = path / "logs"
    place = logs if logs.is_dir() else path
    try:
        return {name: text[:LARGEST] for name, text in read_streams(place).items()}
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror}") from error
