"""Regexes that people write: the answers of Python's `re`, at a bounded cost."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest

from kb.regex.backtracking import STEPS, Budget, BudgetSpent, backtracker
from kb.regex.parser import _CATEGORIES, _counted, _members, encoded, parse
from kb.regex.pattern import SafePattern, compiled
from kb.regex.re_tree import parsed

PARTS = [
    *"abcksi 0",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    ".",
    "[ab]",
    "[^a]",
    "[a-c]",
    r"[^\w]",
    r"[\d_]",
    r"[^\s\d]",
]
FOLDED = ["\u0130", "\u0131", "\u017f", "\u212a"]  # they fold to i, i, s, k
LETTERS = [*"abcksix0 _.\n\t\x1cK", "é", "中", *FOLDED, "│", "\u0663", "\u2003"]


def spans(match, groups):
    """The spans of a match and its groups."""
    if match is None:
        return None
    return match.spans if hasattr(match, "spans") else tuple(match.span(number) for number in range(groups + 1))


def made(chance, depth, parts):
    """A random regex."""
    kind = chance.random()
    if depth == 0 or kind < 0.35:
        return chance.choice(parts)
    inner = made(chance, depth - 1, parts)
    if kind < 0.5:
        return inner + made(chance, depth - 1, parts)
    if kind < 0.7:
        return f"(?:{inner}|{made(chance, depth - 1, parts)})" if kind < 0.62 else f"({inner})"
    if kind < 0.86:
        return f"(?:{inner}){chance.choice(['*', '+', '?', '{2}', '{1,3}', '{0,2}', '{2,}', '*?', '+?', '??'])}"
    if kind < 0.94:
        return chance.choice(["^", "$", r"\b", r"\B", r"\A", r"\Z"]) + inner
    return (
        f"{chance.choice(['(?=', '(?!', '(?>', '(?<=a', '(?<!b'])}{'' if kind > 0.97 else inner})"
        if depth < 3
        else inner
    )


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
def test_answers_are_those_of_re(text: bool) -> None:
    """Random regexes on random texts: the same match, the same groups, in each engine that can run them."""
    chance = random.Random(16)
    engines = set()
    for _ in range(500):
        written = made(chance, 4, [*PARTS, "é", "[é中]"] if text else PARTS)
        written = chance.choice(["", "", "(?i)", "(?m)", "(?s)"]) + written
        try:
            regex = re.compile(written if text else written.encode())
        except re.error:
            continue
        safe = compiled(regex.pattern)
        stepwise = backtracker(parse(regex.pattern))
        engines.add(safe.engine)
        for _ in range(5):
            written_line = "".join(chance.choices(LETTERS if text else LETTERS[:15], k=chance.randint(0, 8)))
            line = written_line if text else written_line.encode()
            for whole in (False, True):
                truth = spans((regex.fullmatch if whole else regex.search)(line), regex.groups)
                found = spans((safe.fullmatch if whole else safe.search)(line), regex.groups)
                assert found == truth, (written, line, safe.engine)
                assert stepwise(line, 0, whole, Budget(10**6)) == truth, (written, line)
    assert engines == {"re", "re2", "steps"}


@pytest.mark.parametrize(
    ("written", "engine"),
    [
        ("OutOfMemoryError|MemoryError", "re"),
        (r"(?<!not )lost(?! and found)|gone", "re"),
        (r"rank (?P<rank>\d+) failed", "re2"),
        (r"\S+: .{0,80}refused$", "re2"),
        (r"(?:error)(?!s).*", "steps"),
        (r"(\d+) of \1", "steps"),
        (r"a++b", "steps"),
        (r"(?:a*)*b", "steps"),  # RE2 reads a loop over nothing otherwise
    ],
)
def test_what_runs_a_regex(written: str, engine: str) -> None:
    """`re` where nothing repeats, RE2 where it means the same, else a counted number of steps."""
    assert SafePattern(written).engine == engine


def test_a_regex_without_loops_but_with_many_ways_is_not_left_to_re() -> None:
    """Forty choices of the same two take `re` for ever, though nothing repeats."""
    safe = SafePattern("(?:a|a)" * 40 + "b")
    assert safe.engine == "re2"
    assert safe.search("a" * 40) is None


@pytest.mark.parametrize(
    "written", [r"(a+)+$", r"^(\w+\s?)*$", r"(.*)(.*)(.*)(.*)x", r"(?:a|aa)+b", r"a{0,400}a{0,400}b"]
)
def test_a_hostile_regex_is_linear(written: str) -> None:
    """A hundred kilobytes of what it hangs on elsewhere."""
    assert compiled(written).engine == "re2"
    assert compiled(written).search("a" * 100_000 + "!") is None
    assert not compiled(written.encode()).finds(b"a" * 100_000 + b"!", unknown=True)


def test_what_re2_cannot_run_stops_at_its_budget() -> None:
    """Look-around and back references: neither answer is claimed where the steps do not suffice."""
    hostile, line = compiled(r"(?=(a+)+b)\1"), "a" * 4000
    with pytest.raises(BudgetSpent):
        hostile.search(line)
    assert hostile.find(line) is None
    assert [hostile.finds(line, unknown=unknown) for unknown in (True, False)] == [True, False]
    shared = Budget(3 * STEPS)
    with pytest.raises(BudgetSpent):
        hostile.search(line, shared)
    assert shared.left == 0


def test_look_around_alone_tries_no_place_twice() -> None:
    """Without back references nested repeats take time linear in the line."""
    assert compiled(r"^(?!x)(?:a+)+$").search("a" * 1000 + "b") is None


def test_places_in_text_of_any_script_are_those_of_the_text() -> None:
    """Characters, not bytes; words have boundaries in every script."""
    found = compiled(r"(?P<what>磁盘|disk) \w+").search("错误: 磁盘 已满 │ 磁盘")
    assert (found.start(), found.end(), found.groupdict()) == (4, 9, {"what": "磁盘"})
    assert [hit.start() for hit in compiled(r"\brank\d*\b").finditer("rank1 é磁rank2 rank3")] == [0, 14]
    assert compiled(r"(?i)[k-l]elvin").finds("\u212aelvin", unknown=False)


def test_the_four_characters_that_fold_to_ascii_are_all_there_are() -> None:
    """Every other character of Unicode has a letter's kind and folds to none of ASCII."""
    folds = re.compile("[a-z]", re.IGNORECASE)
    other = [
        char for char in map(chr, range(128, 0x110000)) if unicodedata.category(char)[0] == "L" and folds.match(char)
    ]
    assert other == FOLDED
    assert encoded("aé中\u0663\u2003│", {}) == b"a\x82\x82\x80\x81\x83"


@pytest.mark.parametrize("written", ["(?:(?:(?:a?){900}){900}){900}", "(?=(?:(?:ab){999}){999})"])
def test_a_regex_too_large_to_run_is_refused(written: str) -> None:
    """As any that does not parse."""
    with pytest.raises(re.error, match="too large"):
        compiled(written)


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
@pytest.mark.parametrize("flags", [0, re.IGNORECASE, re.DOTALL, re.IGNORECASE | re.ASCII], ids=str)
def test_the_members_of_a_class_are_those_of_re(text: bool, flags: int) -> None:
    """Of each character, of what is not it, and of random classes; most without compiling anything."""
    chance = random.Random(3)
    if flags & re.ASCII and not text:
        flags &= ~re.ASCII
    last = 127 if text else 255
    sources = [".", *_CATEGORIES.values(), *(f"{no}\\x{code:02x}]" for code in range(last + 1) for no in ("[", "[^"))]
    for _ in range(200):
        parts = [f"\\x{chance.randint(0, last):02x}", "\\x41-\\x5a", "\\x20-\\x70", r"\d", r"\W", "k", "i", "b"]
        sources.append(f"[{chance.choice(['', '^'])}{''.join(chance.choices(parts, k=chance.randint(1, 3)))}]")
    arithmetic = 0
    for source in sources:
        ((op, argument),) = parsed(source if text else source.encode())
        found = _counted(op, argument, flags, text)
        arithmetic += found is not None
        assert found in {None, _members(source, flags, text)}, source
    assert arithmetic > 0.6 * len(sources)
