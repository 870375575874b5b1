"""The rule base as a whole: its own logs, engines that agree on them, and healthy runs on which it is silent."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.authoring import selftest
from bot.authoring.accuracy import evaluate_cases
from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths
from bot.rulebase.loader import default_folder, knowledge
from kb.diagnosis.causal_order import explains
from kb.diagnosis.findings import Finding, find
from kb.diagnosis.ranking import rank
from kb.facts.job_facts import Facts
from kb.rulebase.patterns import check, scan_form
from kb.rulebase.rule import Rule
from kb.scanning import staged_matcher
from kb.scanning.matcher import Hit, HyperscanMatcher, Matcher, Re2Matcher
from kb.scanning.staged_matcher import StagedMatcher
from tests.support.paths import BUNDLES, DEMO, ROOT

BENCHMARK = ROOT.parent / "shared" / "benchmark"
KNOWN = knowledge()
FOLDER = default_folder()
TESTS = selftest.tests_of(FOLDER, KNOWN.rulebook.rules)
FAMILIES = sorted({test.path.relative_to(FOLDER).parts[0] for test in TESTS})


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The compiled rule base."""
    return KNOWN.matcher()


def test_no_rule_is_left_out() -> None:
    """Every rule file of the base is sound."""
    assert not KNOWN.faults


@dataclass(frozen=True)
class Evaluated:
    """One of the rules' own tests, evaluated with the whole base at work."""

    test: selftest.RuleTest
    rule: Rule
    facts: Facts
    found: tuple[Finding, ...]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, engine: Matcher) -> list[Evaluated]:
    """All tests of the rules in one folder."""
    rules = {rule.id: rule for rule in KNOWN.rulebook.rules}
    made = []
    for test in TESTS:
        if test.path.relative_to(FOLDER).parts[0] == request.param:
            evidence, history = selftest.evidence_at(KNOWN, engine, test.path)
            facts = Facts(evidence)
            made.append(Evaluated(test, rules[test.rule], facts, tuple(find(KNOWN.rulebook, facts, history).findings)))
    return made


def test_rules_speak_and_are_silent_where_their_logs_say(family: list[Evaluated]) -> None:
    """Each rule finds its fault in its match/ logs, with the whole base at work, and nothing in its silent/ logs."""
    wrong = [
        item.test.path
        for item in family
        if any(finding.rule.id == item.test.rule for finding in item.found) != item.test.speaks
    ]
    assert not wrong


def test_no_stranger_is_heard_first(family: list[Evaluated]) -> None:
    """On each rule's own logs, with the whole base at work, its fault comes first, or one that explains it."""
    strangers = []
    for item in family:
        own = [finding for finding in item.found if finding.rule.id == item.rule.id]
        if not item.test.speaks or all(finding.role == "context" for finding in own):
            continue
        best = rank(item.found, item.facts)[0].best
        if best.fault.id in {finding.fault.id for finding in own} or any(explains(best, finding) for finding in own):
            continue
        if item.rule.role == "root_cause" and not item.rule.fallback:
            strangers.append((str(item.test.path), best.rule.id))
    assert not strangers


def all_lines() -> bytes:
    """Every line of every test log, once."""
    return b"\n".join(dict.fromkeys(line for test in TESTS for line in _lines(test)))


def hits_by_line(matcher: Matcher | InBlocks, text: bytes, starts: list[int]) -> dict[int, set[int]]:
    """Pattern → numbers of the lines that an engine says it matches."""
    found: dict[int, set[int]] = defaultdict(set)
    for pattern, offset in matcher.hits(text):
        found[pattern].add(bisect_right(starts, offset) - 1)
    return found


@dataclass(frozen=True)
class InBlocks:
    """A matcher that is given a text as a log is: block by block, each of whole lines."""

    matcher: Matcher
    size: int

    def hits(self, text: bytes) -> Iterator[Hit]:
        """All hits."""
        start = 0
        while start < len(text):
            stop = text.find(b"\n", start + self.size) + 1 or len(text)
            yield from ((pattern, start + at) for pattern, at in self.matcher.hits(text[start:stop]))
            start = stop


def lines_by_rule() -> dict[str, set[bytes]]:
    """Rule → the lines of its own test logs."""
    found: dict[str, set[bytes]] = defaultdict(set)
    for test in TESTS:
        found[test.rule].update(_lines(test))
    return found


def _lines(test: selftest.RuleTest) -> Iterator[bytes]:
    files = [test.path] if test.path.is_file() else [path for path in test.path.rglob("*") if path.is_file()]
    for file in files:
        yield from filter(None, file.read_bytes().replace(b"\r", b"\n").split(b"\n"))


@pytest.mark.slow  # kb/rulebase/test_patterns.py, kb/scanning/test_staged_matcher.py
def test_engines_agree_on_all_test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hyperscan, in one and in two stages, and RE2 find the same lines, and miss none in which `re` finds the rule's own regex."""
    text = all_lines()
    lines = text.split(b"\n")
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    patterns = [item for item in KNOWN.plan.patterns if not item.once]
    engine = HyperscanMatcher(patterns)
    fast = hits_by_line(engine, text, starts)
    slow = hits_by_line(Re2Matcher(patterns), text, starts)
    assert fast == slow
    monkeypatch.setattr(staged_matcher, "SPARSE", 0)  # two stages, although each line has a hit
    monkeypatch.setattr(staged_matcher, "MANY", len(text) // 32)  # the second in RE2 at first, and then in Hyperscan
    staged = StagedMatcher(patterns, make_engine=lambda _: engine)
    assert hits_by_line(InBlocks(staged, len(text) // 32), text, starts) == fast
    where = {(pattern.expression, pattern.ignore_case): index for index, pattern in enumerate(patterns)}
    numbers = {line: number for number, line in enumerate(lines)}
    own = lines_by_rule()
    for place, wanted in enumerate(KNOWN.plan.lines):
        flags = re.IGNORECASE if wanted.ignore_case else 0
        search = re.compile(wanted.regex.encode(), flags).search
        # `re` takes 15 s for all of them and all lines: each regex sees the lines of its own rule and a sixteenth of the others
        seen = {numbers[line] for line in own[wanted.key.partition("#")[0]]} | {*range(place % 16, len(lines), 16)}
        truth = {number for number in seen if search(lines[number])}
        assert truth <= fast[where[scan_form(wanted.regex).expression, wanted.ignore_case]], wanted.key


def test_every_pattern_is_in_the_safe_subset() -> None:
    """No regex of the base is one that some engine would read otherwise."""
    faults = {line.key: check(line.regex, line.ignore_case) for line in KNOWN.plan.lines}
    literal = {f"{r.id}#{p.name}" for r in KNOWN.rulebook.rules for p in r.patterns if p.literal is not None}
    assert not {key: said for key, said in faults.items() if said and key not in literal}


def test_the_healthy_bundle_is_silent() -> None:
    """A real short run that ended well is called that."""
    report = diagnose_bundle(KNOWN, BUNDLES / "healthy").report
    assert (report.verdict, report.phase, report.diagnoses) == ("no_fault", "completed", ())


def test_the_killed_rank_is_named() -> None:
    """Of two launchers' failure blocks, the one that names the first failure decides."""
    report = diagnose_bundle(KNOWN, BUNDLES / "rank-killed").report
    best = report.diagnoses[0]
    assert (best.fault, best.suspects[0].rank, best.suspects[0].node) == ("killed", 3, "node-a")


def test_the_demo_names_the_rank_whose_shard_is_damaged() -> None:
    """Not the loudest line, nor the other launcher's victim: rank 5, its data, and what was lost."""
    report = diagnose_bundle(KNOWN, DEMO).report
    best = report.diagnoses[0]
    assert (best.fault, best.suspects[0].rank, best.suspects[0].node) == ("data_error", 5, "node-b")
    assert (report.decision.advice, report.decision.from_checkpoint, report.decision.steps_lost) == ("fix_first", 30, 6)
    assert {explained.fault for explained in best.explains} == {"peer_failure"}


@pytest.mark.benchmark
def test_no_fault_is_named_on_the_benchmarks_healthy_runs(tmp_path: Path) -> None:
    """On the cases labelled healthy and on their clean logs."""
    if not BENCHMARK.is_dir():
        pytest.skip(f"there is no benchmark at {BENCHMARK}")
    for case in sorted((BENCHMARK / "cases").iterdir()):
        if (case / "case.yaml").is_file() and "label: healthy" in (case / "case.yaml").read_text("utf-8"):
            (tmp_path / case.name).symlink_to(case)
    judged = evaluate_cases(KNOWN, tmp_path)
    assert judged
    assert not [scored_case.case for scored_case in judged if scored_case.false_alarm]
    clean = [path for path in sorted((BENCHMARK / "clean").iterdir()) if path.suffix == ".out"]
    assert not [path.name for path in clean if diagnose_paths(KNOWN, [path]).report.verdict in ("fault", "no_match")]
