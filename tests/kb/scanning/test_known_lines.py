"""A look at each kind of line finds what a search of all lines finds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kb.rulebase.patterns import scan_form, with_any_digits
from kb.scanning import known_lines
from kb.scanning.known_lines import KnownLines, depends_on_digits
from kb.scanning.line_access import add_owned, owned_lines
from kb.scanning.matcher import Hit, HyperscanMatcher, ScanPattern

REGEXES = (
    "Connection closed by peer", "out of memory", r"Xid [0-9]+", r"exit code 13[79]", r"code [1-9][0-9]*", r"[^0]0x", "rank [^3]:",
    "node[0-9]{2}", "late by [0-9a-f]{3,5}", r"error \b1\b", "(?i)warn[0-5]",
)  # fmt: skip
ONCE = ("iteration [0-9]", "step 1", "forward")
PATTERNS = [ScanPattern(scan_form(regex).expression) for regex in REGEXES]
PATTERNS += [ScanPattern(scan_form(regex).expression, once=True) for regex in ONCE]
ALL_ONCE = frozenset(range(len(REGEXES), len(PATTERNS)))
FORMS = (
    "Connection closed by peer", "OUT out of memory {}", "Xid {}", "exit code {}", "code {}", "{}x", "rank {}:", "node{}", "late by {}e", "error {}", "error {}", "WARN{}",
    "warn{}", "iteration {}", "step {}", "forward {}", "nothing {}", "", "{}", "é\x00{}",
)  # fmt: skip


def text(chance: random.Random, lines: int, words: int) -> bytes:
    """Lines of few forms with other numbers, some with one of so many words; the last has no end."""
    names = ["", *("".join(chance.choices("abcdefgh", k=5)) for _ in range(words))]
    numbers = (1, 9, 13, 99, 137, 139, 150, 10**6)
    return "\n".join(
        f"{chance.choice(FORMS).format(chance.randint(0, chance.choice(numbers)))} {chance.choice(names)}"
        for _ in range(lines)
    ).encode()


def lines_of(found: tuple[Sequence[tuple[int, int]], dict[int, list[int]]], block: bytes) -> object:
    """What a scan makes of an answer, for a part of the block."""
    low, high = len(block) // 7, len(block) * 6 // 7
    by_pattern, present = owned_lines(block, list(found[0]), low, high, ALL_ONCE)
    add_owned(by_pattern, present, found[1], low=low, high=high, once=ALL_ONCE)
    return by_pattern, present


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("piece", "longest", "most"), [(300, 1024, 512), (100_000, 9, 512), (2000, 1024, 40)])
def test_answers_are_those_of_a_search_of_all_lines(
    seed: int, piece: int, longest: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block after block, with few kinds of line or too many, some of them too long to be remembered."""
    monkeypatch.setattr(known_lines, "PIECE", piece)
    monkeypatch.setattr(known_lines, "LONGEST", longest)
    monkeypatch.setattr(known_lines, "MOST_NEW", most)
    chance = random.Random(seed)
    engine = HyperscanMatcher(PATTERNS)
    known = KnownLines(PATTERNS, engine)
    for _ in range(8):
        block = text(chance, chance.randint(1, 400), chance.choice((0, 0, 30, 2000)))
        assert lines_of(known.lines(block), block) == lines_of((engine.hits(block), {}), block)


def test_a_known_kind_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines with other digits are of the same kind, unless a pattern depends on the digits: then they are searched each time."""
    searched: list[bytes] = []
    hits = HyperscanMatcher.hits

    def noted(engine: HyperscanMatcher, data: bytes) -> list[Hit]:
        searched.append(data)
        return hits(engine, data)

    monkeypatch.setattr(HyperscanMatcher, "hits", noted)
    known = KnownLines(PATTERNS, HyperscanMatcher(PATTERNS))
    for number in (123, 137):
        block = b"Xid %d\nexit code %d" % (number, number)
        hit, starts = known.lines(block)
        assert starts[REGEXES.index("Xid [0-9]+")] == [0]
        assert [pattern for pattern, _ in hit if pattern == REGEXES.index("exit code 13[79]")] == (
            [3] if number == 137 else []
        )
    assert searched == [b"Xid 000\nexit code 000", b"exit code 123", b"exit code 137"]


def test_a_log_that_does_not_repeat_itself_is_searched_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its kinds of line are not looked for again at once."""
    monkeypatch.setattr(known_lines, "MOST_NEW", 10)
    known = KnownLines(PATTERNS, HyperscanMatcher(PATTERNS))
    many = b"\n".join(b"out of memory " + b"x" * size for size in range(20))
    same = b"out of memory\n" * 20
    found = [len(known.lines(block)[0]) for block in (many, same, same)]
    assert found == [20, 20, 0]


@pytest.mark.parametrize(
    ("expression", "depends"),
    [(r"(?:[\x30-\x39]){2,40} of", False), (r"code \x31", True), ("code 1", True), (r"[\x2f-\x3a]", False), (r"[\x00-\x35]", True), (r"\x2e\x41", False)],
)  # fmt: skip
def test_which_patterns_depend_on_digits(expression: str, depends: bool) -> None:
    """Those that match with one digit and not with another. Opened, none depends on them."""
    assert depends_on_digits(expression) == depends
    assert not depends_on_digits(with_any_digits(expression))
