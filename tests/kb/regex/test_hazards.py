"""What a backtracking engine takes exponential or polynomial time for, found from the regex alone."""

from __future__ import annotations

import pytest

from kb.regex.hazards import growth, hazards


@pytest.mark.parametrize(
    "regex",
    [
        r"(a+)+$",
        r"([a-zA-Z]+)*",
        r"(a|aa)+",
        r"(a|a?)+",
        r"(a*)*",
        r"(?:\w+\s*)+:",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"^(?:a|b|ab)*$",
        r"(?:ab?b?)*c",
        r"(?:(?:a?)*b)*c",
        r"(?:x+x+)+y",
        r"(.*a){20}",
        r"(?:a{0,30}){0,30}",
        r"^(a?){25}a{25}$",
        r"x(?!(?:b+)+c)",
    ],
)
def test_exponential(regex: str) -> None:
    """Overlapping alternatives, repeats in repeats, bounded or not, rounds of nothing."""
    assert growth(regex) is None
    [found] = hazards(regex)
    assert "two ways" in str(found)
    assert found.where in regex or "|" in found.where


@pytest.mark.parametrize(
    ("regex", "exponent"),
    [
        (r"CUDA out of memory", 1),
        (r"rank \d+ failed", 1),
        (r"^(?>a+)+b", 1),  # an atomic part is never split in another way
        (r'"(?>\\.|[^\\"]+)+"', 2),
        (r"^(?:a++,?)*b", 1),
        (r"^\s+$", 1),
        (r"\d{1,3}(?:\.\d{1,3}){3}", 1),
        (r"([0-9a-f]{2}:){5}[0-9a-f]{2}", 1),
        (r"(?:\\.|[^\\\"])*\"", 2),
        (r"\s+$", 2),
        (r"(?:[a-z]+ )+word", 2),
        (r"(?:foo|foobar)*z", 2),
        (r"foo.*bar", 2),
        (r"^foo.*bar", 1),
        (r"foo.*bar.*baz", 3),
        (r"a.*b.*c.*d", 4),
        (r"a*a*a*a*b", 5),
        (r"^.*,.*,.*,.*$", 4),
        (r"\s*,?\s*,?\s*x", 4),
        (r"a.{0,160}b.{0,160}c.{0,160}d", 2),
        (r"a.{0,99}b.{0,99}c.{0,99}d.{0,99}e.{0,99}f", 3),
        (r"a.{0,40}b.{0,40}c", 1),
    ],
)
def test_polynomial(regex: str, exponent: int) -> None:
    """Chains of repeats that can share a text, the search counted; a message only above the square."""
    assert growth(regex) == exponent
    assert [found.degree for found in hazards(regex)] == [exponent] * (exponent > 2)


def test_chains_of_options() -> None:
    """Written one after another they have as many ways as a repeat in a repeat."""
    [found] = hazards("a?" * 30 + "a" * 30)
    assert found.degree is None
    assert "optional parts in a row" in str(found)
    assert not hazards(
        r"(?:\[\d{1,3}\])? ?(?:\w{3} )?(?:\d\d? )?(?:\d\d:)?(?:\d\d:)?\d\d ?(?:AM|PM)? ?(?:UTC)?:? ?(?:x)?(?:y)?"
    )


def test_far_counts() -> None:
    """Even a linear engine follows each count; alternatives are not followed one after another."""
    [reported] = hazards(r"(?:a|b)*a(?:a|b){600}c")
    assert (reported.degree, "counts up to 600 characters, more than 500" in str(reported)) == (3, True)
    assert hazards(r"(.{1,300}a.{1,400}b){4}c")[0].degree is None
    assert not hazards(r"x.{0,400}y|z.{0,400}w")


def test_a_look_ahead_over_the_line_in_each_round() -> None:
    """Behind ^ it is tried once."""
    [found] = hazards(r"(?:(?=.*x)a)*y")
    assert "look once" in str(found)
    assert not hazards(r"^(?!.*retry)(?:ab)*y")
    assert not hazards(r"(?:(?!end).)*y")


def test_a_match_of_the_whole_text_has_no_search() -> None:
    """One exponent less."""
    assert (growth("a.*b.*c"), growth("a.*b.*c", whole=True)) == (3, 2)


def test_the_message_says_where_and_what_instead() -> None:
    """With the part as its author wrote it."""
    [nested] = hazards(r"step \d+: (?:loss[ =]*)*(?:[0-9.]+)+ done")
    assert str(nested).startswith(r"'(?:[0-9\\.]+)+' can read the same text in two ways")
    assert "drop one of the two repeats" in str(nested)
    [chain] = hazards(r"open .* for .* failed")
    assert "'.* … .*'" in str(chain)
    assert "length^3" in str(chain)
    assert "bound it" in str(chain)


def test_what_is_too_large_to_judge_is_a_hazard() -> None:
    """Nothing is let through because it takes long to look at."""
    [found] = hazards("(?:" + "|".join("[ab]{4}" * 4 for _ in range(250)) + "|(?:x|y)+)*z")
    assert "too large to be judged" in str(found)


@pytest.mark.parametrize(
    "regex",
    [
        "a*b*x", "a*b*c*x", ".*.*x", ".*.*.*x", r"(x+)\1y*z", "a{0,400}b{0,400}x", "[ab]{0,400}[bc]{0,400}x", "(?:a|b*)b*b*x",
        "(?:a?b*){2}b*x", "(?=.*x).*y", r"\d*\w*x", "^.*a.*b", "^.*a.*a.*b", "(?>a*)a*.*x", "a*+a*.*a*x",
    ],
)  # fmt: skip
def test_a_regex_whose_repeats_are_only_counted_is_judged_as_its_automaton_is(regex):
    """Few repeats, none within another, are never slower than a search; the rest is worked out."""
    slow = growth(regex)
    assert bool([found for found in hazards(regex) if "length^" in found.why]) == (slow is not None and slow > 2)
