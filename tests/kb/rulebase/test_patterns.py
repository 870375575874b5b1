"""The safe subset and the scan form."""

from __future__ import annotations

import random
import re

import pytest

from kb.rulebase.patterns import check, informative, portable, scan_form
from kb.scanning.matcher import HyperscanMatcher, Re2Matcher, ScanPattern, self_test
from kb.scanning.staged_matcher import StagedMatcher


@pytest.mark.parametrize(
    ("regex", "said"),
    [
        (r"before(?=after)", "look-around"),
        (r"(?<!x)before", "look-around"),
        (r"(word) \1", "back-reference"),
        (r"(?>abcd)e", "atomic"),
        (r"abcd++", "possessive"),
        (r"abcd{2000}", "more than 1000"),
        (r"(?:word)*", "empty string"),
        (r"(?s)abcd.*", "inline flags"),
        (r"(?:[a-z]+)+word", "'(?:[a-z]+)+' can read the same text in two ways"),
        (r"abc\d+", "four letters"),
        (r"error|\d+", "four letters"),
        (r"(unclosed", "not a regular expression"),
        ("line\nbreak", "newline"),
    ],
)
def test_what_is_outside_the_subset_is_named(regex: str, said: str) -> None:
    """Each construct that some engine would read otherwise is refused, in words."""
    assert said in " ".join(check(regex))


@pytest.mark.parametrize(
    "regex",
    [
        r"(?:[a-z]+ )+word",
        r"CUDA out of memory",
        r"(?:status=\w+|error) refused \d+",
        r"exit(?:ed)? with code \d+$",
        r"^Killed",
    ],
)
def test_what_is_inside_the_subset_passes(regex: str) -> None:
    """Ordinary patterns have no faults."""
    assert check(regex) == ()


def test_informative_counts_the_least_of_the_alternatives() -> None:
    """The shortest alternative decides: one bare word among others would match everywhere."""
    assert informative("longword|abc") == 3
    assert informative("(?:long)(?:word)") == 8
    assert informative("xy(?:longword)+z") == 8


def test_a_scan_form_says_where_it_finds_more_than_the_regex() -> None:
    """Dropped anchors are reported; trimmed ends change nothing."""
    assert not scan_form("^Fatal error").exact
    assert scan_form("^Fatal error").anchored
    assert scan_form(r"code \d+").exact
    assert not scan_form(r"code.{0,500}word").exact


WORDS = ["abcd", "refused", "Error", " ", "\t", ";", "rank 3", "12", "timed out", "CUDA", ":", "x"]
REGEXES = [
    r"Error[^;]*refused",
    r"Error\s+refused",
    r"CUDA\W+abcd",
    r"rank \d+.*timed out",
    r"(?:abcd|refused)\b.*Error",
    r"abcd\D{1,60}12",
    r"Error:?\S*\s*CUDA$",
    r"^abcd",
    r"timed? out|CUDA.+abcd",
    r"(?:rank .{1,200}|refused) timed out",
    r"(?:Error.*refused|CUDA abcd.*) 12",
    r"(?:Error|CUDA.{0,80}abcd): ?x",
    r"abcd.*refused.*Error",
    r"(?:refused (?:12|x.*) )?timed out",
]


@pytest.mark.parametrize("build", [HyperscanMatcher, StagedMatcher, Re2Matcher], ids=["hyperscan", "staged", "re2"])
def test_engines_find_every_line_that_re_finds(build: type) -> None:
    """On random lines no engine misses one, and exact scan forms find no other."""
    forms = [scan_form(regex) for regex in REGEXES]
    engine = build([ScanPattern(form.expression) for form in forms])
    chance = random.Random(7)
    lines = ["".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(3000)]
    text = "\n".join(lines).encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    hit: list[set[int]] = [set() for _ in REGEXES]
    for pattern, offset in engine.hits(text):
        hit[pattern].add(text.count(b"\n", 0, offset))
    for regex, form, found in zip(REGEXES, forms, hit, strict=True):
        truth = {number for number, line in enumerate(lines) if re.search(regex, line)}
        assert truth <= found, regex
        if form.exact:
            assert truth == found, regex


def test_the_portable_form_is_the_whole_regex() -> None:
    """For comparisons with other tools: nothing is left out but captures and anchors."""
    assert re.search(portable(r"^(?P<a>rank \d+).*timed out$"), "x rank 12 has timed out now")
    assert not re.search(portable(r"rank \d+.*timed out"), "rank has timed out")


def test_the_engines_pass_their_self_test() -> None:
    """The upstream cases of missed matches are found by the installed version."""
    self_test(HyperscanMatcher)
    self_test(StagedMatcher)
    self_test(Re2Matcher)
