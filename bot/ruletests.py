"""Runs the logs beside the rules: each rule must speak on its own `match/` and stay silent on its own `silent/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bot.rulefiles import Knowledge
from bot.scanning import scan_all
from connectors.files import BLOCK, discover, name_hints
from kb.evidence import Evidence, Facts, History
from kb.findings import Finding, find
from kb.matcher import Matcher
from kb.model import Gap, StreamRef
from kb.rule import Rule
from kb.scanner import scan
from kb.summary import StreamSummary


@dataclass(frozen=True, slots=True)
class RuleTest:
    """A test log, or a folder of them that make one job. `speaks`: the rule must find its fault in it."""

    rule: str
    path: Path
    speaks: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a test. `heard`: all rules that spoke."""

    test: RuleTest
    passed: bool
    heard: tuple[Finding, ...]


def tests_of(folder: Path, rules: Sequence[Rule]) -> list[RuleTest]:
    """All tests of the rules, in order."""
    found = []
    for rule in rules:
        home = (folder / rule.file).parent
        for name, speaks in (("match", True), ("silent", False)):
            if (home / name).is_dir():
                found += [RuleTest(rule.id, path, speaks) for path in sorted((home / name).iterdir())]
    return found


def names_of(tests: Sequence[RuleTest]) -> dict[str, list[str]]:
    """Rule id → the names of its tests, as lint wants them."""
    names: dict[str, list[str]] = {}
    for test in tests:
        names.setdefault(test.rule, []).append(f"{test.path.parent.name}/{test.path.name}")
    return names


def run(knowledge: Knowledge, matcher: Matcher, test: RuleTest) -> Outcome:
    """Try one test with the whole rule base."""
    heard = findings_on(knowledge, matcher, read_streams(test.path))
    spoke = any(finding.rule.id == test.rule for finding in heard)
    return Outcome(test, spoke == test.speaks, tuple(heard))


def empty(test: RuleTest) -> bool:
    """Whether a test is a file with nothing in it."""
    return test.path.is_file() and not test.path.read_bytes().strip()


def read_streams(path: Path) -> dict[str, bytes]:
    """A test's streams by name."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    root = path if path.is_dir() else path.parent
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def findings_on(knowledge: Knowledge, matcher: Matcher, streams: Mapping[str, bytes]) -> list[Finding]:
    """What the rules find in some streams, before ranking."""
    return findings_in(knowledge, evidence_of(knowledge, matcher, streams).streams)


def findings_in(knowledge: Knowledge, streams: Sequence[StreamSummary]) -> list[Finding]:
    """What the rules find in streams that were scanned."""
    evidence = Evidence(streams=tuple(streams))
    found, _ = find(knowledge.rulebook, Facts(evidence, knowledge.rulebook.rules), History())
    return found


def streams_at(knowledge: Knowledge, path: Path) -> tuple[tuple[StreamSummary, ...], tuple[Gap, ...]]:
    """The logs under a path, scanned, and what of them could not be read.

    Raises:
        UnreadableInput: there is no such path.
    """
    found = discover([path])
    summaries = scan_all(knowledge, found.streams)
    return summaries, (*found.gaps, *(gap for one in summaries for gap in one.gaps))


def pasted(knowledge: Knowledge, handle: IO[bytes]) -> tuple[tuple[StreamSummary, ...], tuple[Gap, ...]]:
    """What comes from a pipe or a terminal, read to its end in pieces and scanned."""
    blocks = iter(lambda: handle.read(BLOCK), b"")
    return (scan(knowledge.plan, knowledge.matcher(), StreamRef("standard input"), blocks),), ()


def evidence_of(knowledge: Knowledge, matcher: Matcher, streams: Mapping[str, bytes]) -> Evidence:
    """Evidence from texts in memory; names hint ranks and kinds as they do for files."""
    summaries = []
    for name, text in streams.items():
        ref = name_hints(StreamRef(name, size=len(text)), name)
        summaries.append(scan(knowledge.plan, matcher, ref, [text]))
    return Evidence(streams=tuple(summaries))
