"""Logs of successful runs, which no rule may match."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.authoring.selftest import evidence_of, read_streams, tests_of
from bot.rulebase.cache import code_version, read_cache, write_cache
from bot.rulebase.loader import Knowledge
from bot.runtime.paths import cache_dir
from kb.diagnosis.engine import answered
from kb.diagnosis.findings import find
from kb.errors import UnreadableInput
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.model import NOT_FAILED
from kb.scanning.matcher import Matcher

LARGEST = 8 << 20  # bytes read per log


def clean_logs(known: Knowledge, rules: Path, folders: Sequence[Path] = ()) -> dict[str, dict[str, bytes]]:
    """Return logs of runs without a failure: near misses of the base's rules on which no rule fires, and logs in given folders.

    In a folder, each file or subfolder is one run. A log in a rule's `silent/` counts only if the current rule base finds nothing
    in it and sees no failure; the others show a different fault.

    Raises:
        UnreadableInput: a folder cannot be read.
    """
    found = _near_misses(known, rules)
    for folder in folders:
        try:
            runs = sorted(folder.iterdir())
        except OSError as error:
            raise UnreadableInput(f"{folder}: cannot be read: {error.strerror}") from error
        found |= {str(run): streams for run in runs if (streams := _logs(run))}
    return found


def _near_misses(known: Knowledge, rules: Path) -> dict[str, dict[str, bytes]]:
    """Return the logs in rules' `silent/` that count; which ones do is cached, because judging all of them takes long."""
    tests = [
        (f"{test.rule}/silent/{test.path.name}", test.path)
        for test in tests_of(rules, known.rulebook.rules)
        if not test.speaks
    ]
    every = {name: _logs(path) for name, path in tests}
    cache = cache_dir() / f"clean-{_digest(known, every)}.bin"
    names = read_cache(cache, list[str])
    if names is None:
        matcher = known.matcher()
        names = [name for name, streams in every.items() if _is_clean(known, matcher, streams)]
        write_cache(cache, names)
    return {name: every[name] for name in names}


def _is_clean(known: Knowledge, matcher: Matcher, streams: Mapping[str, bytes]) -> bool:
    facts = Facts(evidence_of(known, matcher, streams))
    return answered(find(known.rulebook, facts, History()).findings, facts)[0] in NOT_FAILED


def _digest(known: Knowledge, logs: Mapping[str, Mapping[str, bytes]]) -> str:
    """Return a digest of whatever decides which logs count: rules, code and texts."""
    digest = hashlib.sha256(f"{known.rulebook.digest} {code_version()}".encode())
    for name, streams in sorted(logs.items()):
        for stream, text in sorted(streams.items()):
            digest.update(f"\0{name}\0{stream}\0{len(text)}\0".encode("utf-8", "surrogateescape") + text)
    return digest.hexdigest()[:32]


def _logs(path: Path) -> dict[str, bytes]:
    """Return the first bytes of each log of a run: a file, a folder of files, or the `logs/` of a bundle."""
    logs = path / "logs"
    place = logs if logs.is_dir() else path
    try:
        return {name: text[:LARGEST] for name, text in read_streams(place).items()}
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror}") from error
