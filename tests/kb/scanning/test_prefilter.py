"""The words that a log store is asked for: they find every line that anybody looks for, and few of a healthy run."""

from __future__ import annotations

import re

import pytest

from bot.rulebase.loader import Knowledge, prefilter_of
from kb.model import Prefilter
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.rulebase.patterns import scan_form
from kb.rulebase.recurring_lines import RECURRING
from kb.rulebase.rule import Rulebook
from kb.scanning.matcher import HyperscanMatcher, ScanPattern
from kb.scanning.plan import active
from kb.scanning.prefilter import Way, cover, prefilter, wanted, ways_of, words_of
from tests.support.paths import BUNDLES, ROOT

MOST_WORDS = 1010  # of the 1,024 clauses of a query, some name the job and its time; and queries have some kilobytes
LINE = re.compile(r"[^\r\n]+")


@pytest.fixture(scope="module")
def rulebook(known: Knowledge) -> Rulebook:
    """The rules as they are."""
    return known.rulebook


@pytest.fixture(scope="module")
def found(known: Knowledge) -> Prefilter:
    """Their words, as the first process computed and kept them."""
    return prefilter_of(known)


@pytest.fixture(scope="module")
def ways_by_regex(rulebook: Rulebook) -> dict[str, tuple[Way, ...]]:
    """The ways of every regex that is searched for."""
    return {regex: ways_of(regex) for regex in sorted(set(wanted(rulebook)))}


def has_word(found: Prefilter, line: str) -> bool:
    """Whether a log store would send the line."""
    return bool(with_word(found, {line.lower()}))


def with_word(found: Prefilter, texts: set[str]) -> set[str]:
    """Those of many texts that contain one of the words. Each word is looked for in all of them at once, which takes no time."""
    joined = "\0".join(("", *texts, ""))
    having = set()
    for word in found.words:
        at = joined.find(word)
        while at >= 0:
            end = joined.index("\0", at)
            having.add(joined[joined.rindex("\0", 0, at) + 1 : end])
            at = joined.find(word, end)
    return having


def ways(regex: str) -> set[frozenset[str]]:
    """The ways of a regex, as a set."""
    return set(ways_of(regex))


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("Out of Memory", [{"out of memory"}]),
        ("CUDA error: (?:an )?illegal", [{"cuda error: illegal"}, {"cuda error: an illegal"}]),
        (r"Xid \(\S+\): 79", [{"xid (", "): 79"}]),
        (r"[Tt]imed out|deadline", [{"timed out"}, {"deadline"}]),
        (r"fail(?:ed|ure)s?\b", [{"failed"}, {"faileds"}, {"failure"}, {"failures"}]),
        (r"a{3}bc", [{"a", "bc"}]),
        (r"x[0-9]+y|\d+", [{"x", "y"}, set()]),
        ("größe alt", [{"gr", "e alt"}]),
    ],
)
def test_ways(regex: str, expected: list[set[str]]) -> None:
    """A regex is what each of its matches must hold, by each way through its choices."""
    assert {frozenset(group) for group in expected} == ways(regex)


def test_every_way_is_covered(ways_by_regex: dict[str, tuple[Way, ...]], found: Prefilter) -> None:
    """By construction: each way that any word can find has one of the words within one of its runs."""
    runs = {run for ways in ways_by_regex.values() for way in ways for run in way}
    hit = with_word(found, runs)
    left = [
        (regex, way) for regex, ways in ways_by_regex.items() for way in ways if words_of(way) and hit.isdisjoint(way)
    ]
    assert left == []


def test_every_line_that_a_rule_wants_has_a_word(
    rulebook: Rulebook, ways_by_regex: dict[str, tuple[Way, ...]], found: Prefilter
) -> None:
    """Over the logs of all rules: each line that a pattern, a reader or a stage needs contains one of the words."""
    findable = [regex for regex, ways in ways_by_regex.items() if all(map(words_of, ways))]
    assert len(ways_by_regex) - len(findable) == found.uncovered
    folded = {all_reader.trigger for all_reader in ALL_READERS if all_reader.ignore_case} | {
        item.regex or "" for rule in rulebook.rules if active(rule) for item in rule.patterns if item.ignore_case
    }
    lines = {
        line
        for path in sorted((ROOT / "rules").glob("*/*/match/**/*.log"))
        for line in LINE.findall(path.read_text("utf-8", "replace"))
    }
    having = with_word(found, {line.lower() for line in lines})
    without = sorted(line for line in lines if line.lower() not in having)
    assert len(without) > 500
    block = "".join(f"{line}\n" for line in without).encode()
    engine = HyperscanMatcher([ScanPattern(scan_form(item).expression, item in folded) for item in findable])
    hits = {(findable[pattern], block.count(b"\n", 0, at)) for pattern, at in engine.hits(block)}
    sure = [
        (item, without[at]) for item, at in hits if re.search(item, without[at], re.IGNORECASE if item in folded else 0)
    ]
    assert sure == []


def test_few_words_and_none_of_every_step(found: Prefilter) -> None:
    """The words fit into a query, are lower case, do not contain each other, and do not occur on iteration lines."""
    assert 100 < len(found.words) < MOST_WORDS
    assert found.uncovered <= 5
    assert [word for word in found.words if word != word.lower() or word in RECURRING] == []
    assert [word for word in found.words if any(other in word for other in found.words if other != word)] == []


def test_little_of_a_healthy_run_passes(found: Prefilter) -> None:
    """Of a healthy run's log, its start among it, one line in five at most passes."""
    lines = [
        line
        for path in sorted((BUNDLES / "healthy" / "logs").iterdir())
        for line in LINE.findall(path.read_text("utf-8", "replace"))
    ]
    assert sum(1 for line in lines if has_word(found, line)) < len(lines) / 5


def test_words_are_shared_and_common_ones_shunned() -> None:
    """One word covers two alternatives where possible; of two words, the more specific one is chosen."""
    both = [frozenset({"cuda error: illegal memory access"}), frozenset({"illegal instruction"})]
    assert cover(both) == ("illegal",)
    assert cover([frozenset({"rank 7 failed", "segfault in it"})])[0].startswith("segfault")
    assert cover([]) == ()


@pytest.mark.slow  # test_every_way_is_covered
def test_the_same_rules_give_the_same_words(rulebook: Rulebook, found: Prefilter) -> None:
    """Byte for byte, with the digest of the rules."""
    assert prefilter(rulebook) == found
    assert len(found.digest) == 64


def test_stages_are_found(rulebook: Rulebook, found: Prefilter) -> None:
    """Marks of stages count as lines that are wanted."""
    assert has_word(found, "Saving checkpoint to /x")
    assert {regex for _, regex in STAGES} <= set(wanted(rulebook))
