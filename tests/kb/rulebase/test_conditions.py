"""Parsing of `when`: expressions, mappings, durations, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.rulebase.condition_parts import names
from kb.rulebase.conditions import ConditionParser, any_of, read_span
from kb.rulebase.rule import Absent, All, Any, Condition, Count, Name, Not, Past, Ranks, Sequence, Span
from kb.rulebase.yaml_nodes import Node, parse

NAMES = ("a", "b", "c", "d", "retry", "oom_kill")
A, B, C, D = Name("a"), Name("b"), Name("c"), Name("d")


def read(text: str) -> tuple[Condition | None, list[str]]:
    """The condition of a YAML text, and the faults."""
    node, wrong = parse(text, "r.yaml")
    assert wrong == ()
    assert node is not None
    parser = ConditionParser(NAMES, {"hits": 5.0, "share": 0.25, "half": 2.5})
    condition = parser.parse(node)
    return condition, [str(fault).removeprefix("r.yaml:") for fault in parser.faults]


def good(text: str) -> Condition:
    """The condition of a text without faults."""
    condition, wrong = read(text)
    assert wrong == []
    assert condition is not None
    return condition


def bad(text: str) -> str:
    """The faults of a text that gives no condition."""
    condition, wrong = read(text)
    assert condition is None
    return "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", A),
        ("a and b", All((A, B))),
        ("a or b and c", Any((A, All((B, C))))),
        ("(a or b) and c", All((Any((A, B)), C))),
        ("a and b and c", All((A, B, C))),
        ("not a", Not(A)),
        ("not not a", Not(Not(A))),
        ("a and not (b or c)", All((A, Not(Any((B, C)))))),
        ("'a  and(b)'", All((A, B))),
        ("{not: a or b}", Not(Any((A, B)))),
        ("{any: [a, {all: [b, c]}]}", Any((A, All((B, C))))),
        (
            "{all: [a, {any: [b, c]}, {not: d}], same: node, within: 10m}",
            All((A, Any((B, C)), Not(D)), "node", Span(600.0)),
        ),
        ("{sequence: [a, b], within: 5m, same: rank}", Sequence(("a", "b"), Span(300.0), "rank")),
        ("{count: a, at_least: 3, within: 40 lines, same: gpu}", Count("a", 3, None, Span(lines=40), "gpu")),
        ("{count: a, at_most: 0}", Count("a", None, 0)),
        ("{count: a, at_least: $hits}", Count("a", 5)),
        ("{absent: b, after: a, within: 2m}", Absent("b", "after", "a", Span(120.0))),
        ("{absent: b, around: a}", Absent("b", "around", "a")),
        ("{ranks: a, at_most: 1}", Ranks("a", at_most=1)),
        ("{ranks: a, fraction_at_least: $share, first: true}", Ranks("a", fraction_at_least=0.25, first=True)),
        ("{ranks: a, all_but: 2}", Ranks("a", all_but=2)),
        (
            "{history: {fault: disk_full, same: job, within_days: 7, at_least: 2}}",
            Past("disk_full", None, "job", 7.0, 2),
        ),
        ("{history: {rule: some-rule}}", Past(None, "some-rule")),
    ],
)
def test_reads(text: str, expected: object) -> None:
    """Each form gives its value; `and` binds closer than `or`."""
    assert good(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("''", "the expression ends where a pattern name is required"),
        ("a and", "the expression ends"),
        ("(a or b", "a bracket is not closed"),
        ("a b", "'b' is not allowed here"),
        ("a)", "')' is not allowed here"),
        ("'a & b'", "'&' is not allowed here"),
        ("and", "'and' is not a pattern name"),
        ("4a", "'4a' is not a pattern name"),
        ("rettry", "no pattern 'rettry' under match (did you mean 'retry'?)"),
        ("7", "a condition is an expression"),
        ("[a, b]", "a condition is an expression"),
        ("null", "a condition is an expression"),
        ("{al: [a]}", "a condition needs exactly one of"),
        ("{all: [a], any: [b]}", "a condition needs exactly one of"),
        ("{all: a}", "'all' needs a list of conditions"),
        ("{any: []}", "'any' needs a list of conditions"),
        ("{any: [a], same: node}", "unknown key 'same'"),
        ("{all: [a, b], sam: node}", "unknown key 'sam' (did you mean 'same'?)"),
        ("{all: [a, b], same: nodes}", "did you mean 'node'?"),
        ("{all: [a, b], within: soon}", "'within' must be a time or a number of lines"),
        ("{all: [a, b], within: 10}", "'within' must be a time or a number of lines"),
        ("{sequence: [a]}", "at least two pattern names"),
        ("{sequence: a}", "at least two pattern names"),
        ("{sequence: [a, [b]]}", "a pattern name is required here"),
        ("{sequence: [a, bb]}", "no pattern 'bb'"),
        ("{count: a}", "'count' needs at_least or at_most"),
        ("{count: a, at_least: 0}", "must be between"),
        ("{count: a, at_least: 2.5}", "must be a whole number"),
        ("{count: a, at_least: $half}", "must be a whole number"),
        ("{count: a, at_least: many}", "must be a number"),
        ("{count: a, at_least: true}", "must be a number"),
        ("{count: a, at_least: $hit}", "no parameter 'hit' under params (did you mean 'hits'?)"),
        ("{count: a, at_least: 3, at_most: 2}", "at_least is greater than at_most"),
        ("{count: a or b, at_least: 3}", "a pattern name is required here"),
        ("{absent: a}", "exactly one of after, before, around"),
        ("{absent: a, after: b, before: c}", "exactly one of after, before, around"),
        ("{ranks: a}", "'ranks' needs one of"),
        ("{ranks: a, fraction_at_least: 1.5}", "must be between 0 and 1"),
        ("{ranks: a, first: 1}", "'first' must be true or false"),
        ("{history: disk_full}", "'history' needs a mapping"),
        ("{history: {same: node}}", "needs a fault or a rule"),
        ("{history: {fault: disk_full, days: 3}}", "unknown key 'days'"),
        ("{history: {fault: 3}}", "'fault' must be text"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    """Each mistake has a helpful message."""
    assert message in bad(text)


def test_all_faults_are_reported() -> None:
    """One bad part does not hide the next."""
    assert len(bad("{all: [x1, {count: x2, at_least: 0}, {absent: x3, after: x4}]}").splitlines()) == 5


def test_faults_stand_where_the_part_stands() -> None:
    """The place of a fault is that of its part, not of the whole condition."""
    assert bad("all:\n  - a\n  - nobody\n").startswith("3:5: no pattern 'nobody'")


def test_size_is_bounded() -> None:
    """Deep, long and wide conditions are refused without a crash."""
    assert "deeper" in bad("'" + "(" * 90 + "a" + ")" * 90 + "'")
    assert "deeper" in bad("'" + "not " * 150 + "a'")
    assert "more than 200 words" in bad(" and ".join(["a"] * 150))
    assert "characters" in bad("'" + " " * 100_000 + "'")
    assert "parts" in bad("{any: [" + "a, " * 300 + "]}")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30s", Span(30.0)),
        ("1.5m", Span(90.0)),
        ("2h", Span(7200.0)),
        ("500ms", Span(0.5)),
        ("1 d", Span(86400.0)),
        ("40 lines", Span(lines=40)),
        ("1 line", Span(lines=1)),
        ("1.5 lines", None),
        ("-3s", None),
        ("3", None),
        ("3 weeks", None),
        ("", None),
    ],
)
def test_spans(text: str, span: Span | None) -> None:
    """A span is a number with a unit."""
    assert read_span(text) == span


def test_any_of_names() -> None:
    """A rule without `when` holds where any pattern is seen."""
    assert any_of(("a",)) == A
    assert any_of(("a", "b")) == Any((A, B))


def test_names_of_a_condition() -> None:
    """All patterns that a condition speaks of, at any depth."""
    condition = good(
        "{all: [{not: a}, {any: [{sequence: [b, c]}, {absent: d, after: retry}]}, {ranks: oom_kill, at_least: 1}]}"
    )
    assert names(condition) == set(NAMES)


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from(list("ab() $not_x9\"',\t")), max_size=40))
def test_any_expression_is_read_or_refused(text: str) -> None:
    """A parser gives a condition or at least one fault, never both and never an exception."""
    parser = ConditionParser(NAMES, {})
    condition = parser.parse(Node("r", 1, 1, text))
    assert (condition is None) == bool(parser.faults)
