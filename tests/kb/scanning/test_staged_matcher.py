"""Two stages find what one finds."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import pytest

from kb.rulebase.patterns import scan_form
from kb.scanning import staged_matcher
from kb.scanning.first_stage import LEAST, first_stage, gates_of, words_of
from kb.scanning.matcher import Hit, HyperscanMatcher, Re2Matcher, ScanPattern
from kb.scanning.staged_matcher import WAIT, StagedMatcher

PATTERNS = [
    ScanPattern(scan_form(regex).expression, ignore_case)
    for regex, ignore_case in (
        (r"Connection (?:reset|closed) by peer", False),
        (r"out of memory", True),
        (r"\bXid\b.{0,20}\b79\b", False),
        (r"(?:Segmentation fault|SIGSEGV|core dumped)", False),
        (r"worker [0-9]{1,4} was (?:lost|killed)", False),
        (r"[Ww]atchdog caught .* timeout", False),
    )
]
PATTERNS += [
    ScanPattern(scan_form("iteration [0-9]").expression, once=True),
    ScanPattern("forward", once=True),
    ScanPattern(scan_form("[Ll]oss is (?:nan|inf)").expression),  # found by gates only, like the two before
    ScanPattern(scan_form("(?i:dead letters?)").expression),
]
PIECES = [
    "Connection reset by peer", "connection closed by peer", "Out Of Memory", "Xid", " 79 ", "Xid (PCI:0): 79,", "SIGSEGV", "core dumped",
    "worker 12 was", " lost", "worker 7 was killed", "Watchdog caught collective", " timeout", "iteration 12", "iteration x", "step", "loss 2.1", "Loss is nan", "Loss is low", "forward", "DEAD letter", "\x1b[0m", "é",
]  # fmt: skip


@cache
def block(hit_lines: int, quiet: int, seed: int) -> bytes:
    """Lines of random pieces, each between so many lines without any; some lines are empty, the last has no end."""
    chance = random.Random(seed)
    lines: list[str] = []
    for _ in range(hit_lines):
        lines += ["nothing of note is printed here"] * chance.randint(0, quiet)
        lines.append(" ".join(chance.choices(PIECES, k=chance.randint(0, 4))))
    return "\n".join(lines).encode()


def by_line(text: bytes, hits: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pattern and line number of each hit of a pattern that reports all."""
    ends = _ends(text)
    return {(pattern, bisect_left(ends, at)) for pattern, at in hits if not PATTERNS[pattern].once}


@cache
def _ends(text: bytes) -> list[int]:
    return [at for at, byte in enumerate(text) if byte == 0x0A]


@cache
def of_one_stage(text: bytes) -> list[Hit]:
    """The hits of the engine with all patterns."""
    return _one_stage().hits(text)


@cache
def _one_stage() -> HyperscanMatcher:
    return HyperscanMatcher(PATTERNS)


@cache
def _compiled() -> bytes:
    return StagedMatcher(PATTERNS).dump()


@pytest.mark.quick("0-0-0-0", "2-4000-4096-400", "2-0-64-0")
@pytest.mark.parametrize("quiet", [0, 3, 400])
@pytest.mark.parametrize("sparse", [0, 64, staged_matcher.SPARSE])
@pytest.mark.parametrize("few", [0, 4000, staged_matcher.FEW])
@pytest.mark.parametrize("alone", [0, 2, staged_matcher.MOST_ALONE])
def test_answers_are_those_of_one_stage(
    quiet: int, sparse: int, few: int, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether few or most lines have a hit, whichever way is taken."""
    monkeypatch.setattr(staged_matcher, "MOST_ALONE", alone)
    monkeypatch.setattr(staged_matcher, "SPARSE", sparse)
    monkeypatch.setattr(staged_matcher, "FEW", few)
    monkeypatch.setattr(staged_matcher, "MANY", few)
    two = StagedMatcher(PATTERNS, _compiled())
    for seed in range(6):
        text = block(60, quiet, seed)
        expected, found = of_one_stage(text), two.hits(text)
        assert by_line(text, found) == by_line(text, expected)
        assert {p for p, _ in found if PATTERNS[p].once} == {p for p, _ in expected if PATTERNS[p].once}


def test_a_compiled_matcher_gives_the_same_answers() -> None:
    """What was dumped and loaded finds the same."""
    text = block(60, 400, 1)
    first = StagedMatcher(PATTERNS)
    assert StagedMatcher(PATTERNS, first.dump()).hits(text) == first.hits(text) != []


def test_all_patterns_are_compiled_only_for_many_lines() -> None:
    """The lines of a small log are searched for the patterns of their words; a long one takes all patterns, once."""
    made: list[int] = []

    def make(patterns: Sequence[ScanPattern]) -> HyperscanMatcher:
        made.append(len(patterns))
        return HyperscanMatcher(patterns)

    matcher = StagedMatcher(PATTERNS, None, make)
    calm = b"nothing of note\n" * 40_000
    assert len(matcher.hits(b"out of memory\n" * 1000)) == 1000
    assert len(matcher.hits(calm + b"SIGSEGV\n")) == 1
    assert made == []
    for _ in range(3):
        assert len(matcher.hits(b"out of memory\n" * 20_000)) == 20_000
    assert made == [len(PATTERNS)]


def test_all_patterns_are_compiled_for_many_small_logs_with_new_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than that RE2 is built again with each word, as often as there are words."""
    built, made = [], []

    def few(patterns: Sequence[ScanPattern]) -> Re2Matcher:
        built.append(len(patterns))
        return Re2Matcher(patterns)

    def make(patterns: Sequence[ScanPattern]) -> HyperscanMatcher:
        made.append(len(patterns))
        return HyperscanMatcher(patterns)

    monkeypatch.setattr(staged_matcher, "Re2Matcher", few)
    patterns = [ScanPattern(f"unusual word {letter * 3}") for letter in "abcdefghijklmnopqrstuvwxyz"]
    matcher = StagedMatcher(patterns, None, make)
    for index, pattern in enumerate(patterns):
        found = matcher.hits(b"calm\n" * 4000 + pattern.expression.encode())
        assert [number for number, _ in found] == [index]
    assert sum(built) < (staged_matcher.MOST_BUILT + 1) * len(patterns)
    assert made == [len(patterns)]


def test_the_first_blocks_behind_gates_are_not_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small log is searched with RE2 for what its gates open, a longer one with Hyperscan, and both find all lines."""
    patterns = [ScanPattern("step:[0-9]+ of"), ScanPattern("forward [0-9]", once=True)]
    matcher = StagedMatcher(patterns)
    engines: list[int] = []

    def compiled(patterns: Sequence[ScanPattern]) -> HyperscanMatcher:
        engines.append(len(patterns))
        return HyperscanMatcher(patterns)

    monkeypatch.setattr(staged_matcher, "HyperscanMatcher", compiled)
    text = b"step:1 of\nforward 1\nstep:2\nforward 2\nstep:3 of\n"
    small = {(pattern, text.count(b"\n", 0, at)) for pattern, at in matcher.hits(text)}
    assert (small, engines) == ({(0, 0), (0, 4), (1, 1)}, [])
    matcher.hits(text * 5000)
    assert small == {(pattern, text.count(b"\n", 0, at)) for pattern, at in matcher.hits(text)}
    assert engines == [1, 1]


def test_a_word_stands_for_every_pattern_that_it_finds() -> None:
    """Also for patterns whose own word contains it."""
    patterns = [ScanPattern("lost heartbeat"), ScanPattern("peer lost heartbeats"), ScanPattern("HEARTBEATS", True)]
    stage = first_stage(patterns)
    assert len(stage.words) < len(patterns)
    assert {index for found in stage.stands_for for index in found} == {0, 1, 2}
    text = b"peer lost heartbeats\nlost heartbeat\nHeartBeats\n"
    assert set(StagedMatcher(patterns).hits(text)) == {(0, 0), (1, 0), (2, 0), (0, 21), (2, 36)}


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"out of memory", b"\n\nout of memory\n\n", b"x" * 200_000 + b" out of memory " + b"y" * 200_000],
)
def test_edges(text: bytes) -> None:
    """Empty blocks, lines at both ends, and a line without end."""
    assert by_line(text, StagedMatcher(PATTERNS).hits(text)) == by_line(text, HyperscanMatcher(PATTERNS).hits(text))


def test_the_word_that_sets_the_pace_of_the_engine_hits_nothing() -> None:
    """Where a log is damaged, its bytes may occur."""
    text = b"\xff\xfe Connection reset by peer\n\xff\xfe\n"
    assert by_line(text, StagedMatcher(PATTERNS).hits(text)) == {(0, 0)}
    compiled = StagedMatcher(PATTERNS).dump()
    assert by_line(text, StagedMatcher(PATTERNS, compiled).hits(text)) == {(0, 0)}


def test_a_dense_log_is_searched_by_kinds_of_line_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a block with hits on many lines only new kinds of line are searched, until few lines have hits."""
    scans: list[int] = []
    hits = HyperscanMatcher.hits

    def counted(engine: HyperscanMatcher, text: bytes) -> list[Hit]:
        scans[-1] += 1
        return hits(engine, text)

    monkeypatch.setattr(HyperscanMatcher, "hits", counted)
    monkeypatch.setattr(staged_matcher, "FEW", 0)
    matcher = StagedMatcher(PATTERNS)
    dense, calm = b"out of memory\n" * 1000, b"nothing of note\n" * 1000
    for text in (dense, *[dense] * WAIT, dense, calm, calm, dense, *[calm] * WAIT, calm):
        scans.append(0)
        matcher.hits(text)
    assert scans == [2, *[0] * WAIT, 0, 1, 2, 1, *[0] * WAIT, 2]


def test_words_are_long_and_unusual() -> None:
    """A pattern whose words are on every line of a healthy run has none; all that are chosen have some length."""
    assert words_of(ScanPattern("out of memory")) == {b"out of m"}, "the ends of lines on memory recur"
    assert words_of(ScanPattern("(?:SIGSEGV|core dumped)")) == {b"SIGSEGV", b"core dumpe"}, "as the end of `skipped`"
    assert words_of(ScanPattern("iteration")) is None
    assert words_of(ScanPattern("ab[0-9][0-9]+cd")) is None
    words = first_stage(PATTERNS).words
    assert min(len(word.expression) // 4 for word in words) >= LEAST


def test_a_word_ends_where_recurring_lines_have_other_letters() -> None:
    """The engine compares the ends of words; "loss" is on every iteration line, and so are the ends of "total" and "the"."""
    assert words_of(ScanPattern("walrus found in the total loss")) == {b"alrus found "}


def test_a_pattern_without_rare_words_has_gates() -> None:
    """Its words may be common, or be spelled from classes and choices. Those of most lines are searched for apart."""
    patterns = [ScanPattern("forward"), ScanPattern("it/s"), ScanPattern("step:[0-9]+ of"), ScanPattern("[RL]og")]
    assert [gates_of(pattern) for pattern in patterns] == [
        {b"forward"}, {b"it/s"}, {b"step:%d" % digit for digit in range(10)}, None,
    ]  # fmt: skip
    stage = first_stage(patterns)
    assert [word.expression for word in stage.common_gates.words] == [
        ScanPattern("".join(rf"\x{ord(c):02x}" for c in "forward")).expression
    ]
    assert stage.whole == (3,)


def test_a_gate_only_opens() -> None:
    """A block with the word of a pattern, but without the pattern, has no hit; one with both has all hits of the pattern."""
    patterns = [ScanPattern("step:[0-9]+ of"), ScanPattern("forward [0-9]", once=True), ScanPattern("peer was lost")]
    matcher = StagedMatcher(patterns)
    assert matcher.hits(b"step:1\nforward x\n" * 5) == []
    text = b"step:1 of\nforward x\n\nstep:2 of\nforward 1\nforward 2\npeer was lost\n"
    assert {(pattern, text.count(b"\n", 0, at)) for pattern, at in matcher.hits(text)} == {
        (0, 0),
        (0, 3),
        (1, 4),
        (2, 6),
    }
