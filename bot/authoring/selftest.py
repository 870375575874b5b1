"""Run the rules' own tests: each rule must match its `match/` logs and stay silent on its `silent/` logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from bot.diagnosis.evidence import from_bundle
from bot.diagnosis.plugins import observe, with_plugins
from bot.diagnosis.scan_pool import scan_all
from bot.rulebase.loader import Knowledge, engine
from connectors.base.bundle_layout import PARTS
from connectors.base.filenames import name_hints
from connectors.bundles.streams import BLOCK, discover
from kb.diagnosis.findings import Finding, find
from kb.errors import Fault
from kb.facts.evidence import Evidence
from kb.facts.history import History, PastIncident
from kb.facts.job_facts import Facts
from kb.model import Gap, StreamRef
from kb.plugin import view, wanted
from kb.rulebase.rule import Rule
from kb.rulebase.rulebook import Positions
from kb.scanning.matcher import Matcher
from kb.scanning.plan_builder import plan
from kb.scanning.scanner import scan
from kb.scanning.summary import StreamSummary

UNSPOKEN = ("draft", "shadow")  # statuses in which a rule does not appear in answers


@dataclass(frozen=True, slots=True)
class RuleTest:
    """A test log, or a folder of logs of one job. `speaks`: the rule must match it."""

    rule: str
    path: Path
    speaks: bool


@dataclass(frozen=True, slots=True)
class RuleTestResult:
    """The outcome of a test. `heard`: all rules that matched."""

    test: RuleTest
    passed: bool
    heard: tuple[Finding, ...]


def spoken(knowledge: Knowledge) -> Knowledge:
    """Return the rule base with its draft and shadow rules activated, so that they can be tested before they are used."""
    book = knowledge.rulebook
    if not any(rule.status in UNSPOKEN for rule in book.rules):
        return knowledge
    rules = tuple(replace(rule, status="experimental") if rule.status in UNSPOKEN else rule for rule in book.rules)
    whole = plan(replace(book, rules=rules))
    compiled = engine()(whole.patterns).dump()
    return Knowledge(replace(book, rules=rules), whole, compiled, knowledge.faults)


def tests_of(folder: Path, rules: Sequence[Rule]) -> list[RuleTest]:
    """Return all tests of the rules, in order. A deprecated rule never matches and needs none."""
    found = []
    for rule in rules:
        if rule.status == "deprecated":
            continue
        home = (folder / rule.file).parent
        for name, speaks in (("match", True), ("silent", False)):
            if (home / name).is_dir():
                found += [RuleTest(rule.id, path, speaks) for path in sorted((home / name).iterdir())]
    return found


def names_of(tests: Sequence[RuleTest]) -> dict[str, list[str]]:
    """Return rule id → the names of its tests, as lint expects them."""
    names: dict[str, list[str]] = {}
    for test in tests:
        names.setdefault(test.rule, []).append(f"{test.path.parent.name}/{test.path.name}")
    return names


def run(knowledge: Knowledge, matcher: Matcher, test: RuleTest) -> RuleTestResult:
    """Run one test with the whole rule base."""
    evidence, history = evidence_at(knowledge, matcher, test.path)
    heard = list(find(knowledge.rulebook, Facts(evidence), history).findings)
    spoke = any(finding.rule.id == test.rule for finding in heard)
    return RuleTestResult(test, spoke == test.speaks, tuple(heard))


def detector_faults(knowledge: Knowledge, tests: Sequence[RuleTest], positions: Positions) -> list[Fault]:
    """Return the faults of users' detectors that rules need, as shown by the rules' own tests."""
    found = []
    matcher = knowledge.matcher()
    for rule in knowledge.rulebook.rules:
        used = wanted([rule])
        if not used:
            continue
        failures: dict[str, str] = {}
        for texts in [{}, *(read_streams(test.path) for test in tests if test.rule == rule.id)]:
            evidence = evidence_of(knowledge, matcher, texts)
            gave = observe(used, evidence.job, tuple(view(stream) for stream in evidence.streams))
            failures |= {used[key].name: item.failure for key, item in gave.items() if item.failure}
        for pattern in rule.patterns:
            if pattern.plugin is not None and (failure := failures.get(pattern.plugin.name)):
                message = f"detector {pattern.plugin.name!r}: {failure}"
                found.append(positions.fault(rule, f"match.{pattern.name}.plugin", message))
    return found


def empty(test: RuleTest) -> bool:
    """Whether a test is an empty file."""
    return test.path.is_file() and not test.path.read_bytes().strip()


def read_streams(path: Path) -> dict[str, bytes]:
    """Read a test's streams, by name."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    root = path if path.is_dir() else path.parent
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def evidence_at(knowledge: Knowledge, matcher: Matcher, path: Path) -> tuple[Evidence, History]:
    """Return the evidence and the history of a test: a log, a folder of logs, or a bundle with stacks, metrics, attempts."""
    if path.is_dir() and any((path / name).exists() for name in (*PARTS, "job.yaml")):
        evidence, history = from_bundle(knowledge, path, workers=1), History()
    else:
        earlier, streams = split_attempts(read_streams(path))
        past = [finding for texts in earlier for finding in findings_on(knowledge, matcher, texts)]
        evidence, history = evidence_of(knowledge, matcher, streams), remembered(past)
    return with_plugins(evidence, knowledge.rulebook), history


def split_attempts(streams: Mapping[str, bytes]) -> tuple[list[dict[str, bytes]], dict[str, bytes]]:
    """Separate the streams of earlier attempts (`attempts/<n>/…`), oldest first, from those of the run itself."""
    earlier: dict[str, dict[str, bytes]] = {}
    own = {}
    for name, text in streams.items():
        head, _, rest = name.partition("/")
        number, _, inner = rest.partition("/")
        if head == "attempts" and inner:
            earlier.setdefault(number, {})[inner] = text
        else:
            own[name] = text
    return [earlier[number] for number in sorted(earlier)], own


def remembered(findings: Iterable[Finding]) -> History:
    """Return the findings of earlier attempts as history for the next one."""
    past = {
        PastIncident(finding.rule.id, finding.fault.id, 0.0, node=signal.resource.node, gpu=signal.captures.get("pci"))
        for finding in findings
        for signal in finding.signals
    }
    return History(tuple(sorted(past, key=repr)))


def findings_on(
    knowledge: Knowledge, matcher: Matcher, streams: Mapping[str, bytes], history: History | None = None
) -> list[Finding]:
    """Return the rules' findings in text streams, before ranking."""
    return findings_in(knowledge, evidence_of(knowledge, matcher, streams).streams, history)


def findings_in(
    knowledge: Knowledge, streams: Sequence[StreamSummary], history: History | None = None
) -> list[Finding]:
    """Return the rules' findings in scanned streams."""
    evidence = with_plugins(Evidence(streams=tuple(streams)), knowledge.rulebook)
    facts = Facts(evidence)
    return list(find(knowledge.rulebook, facts, history or History()).findings)


def streams_at(knowledge: Knowledge, path: Path) -> tuple[tuple[StreamSummary, ...], tuple[Gap, ...]]:
    """Scan the logs under a path. Also returns gaps for what could not be read.

    Raises:
        UnreadableInput: the path does not exist.
    """
    found = discover([path])
    summaries = scan_all(knowledge, found.streams)
    return summaries, (*found.gaps, *(gap for summary in summaries for gap in summary.gaps))


def pasted(knowledge: Knowledge, handle: IO[bytes]) -> tuple[tuple[StreamSummary, ...], tuple[Gap, ...]]:
    """Scan standard input to its end, in blocks."""
    blocks = iter(lambda: handle.read(BLOCK), b"")
    return (scan(knowledge.plan, knowledge.matcher(), StreamRef("standard input"), blocks),), ()


def evidence_of(knowledge: Knowledge, matcher: Matcher, streams: Mapping[str, bytes]) -> Evidence:
    """Return evidence from texts in memory. Names hint at ranks and kinds as file names do."""
    summaries = []
    for name, text in streams.items():
        ref = name_hints(StreamRef(name, size=len(text)), name)
        summaries.append(scan(knowledge.plan, matcher, ref, [text]))
    return Evidence(streams=tuple(summaries))
