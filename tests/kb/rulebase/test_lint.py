"""What the linter sends back, and that it leaves good rules alone."""

from __future__ import annotations

import dataclasses
from typing import Any as AnyType

import pytest

from kb.rulebase.lint import lint, recommended
from kb.rulebase.rule import (
    ActionWord,
    Any,
    Deprecation,
    ExceptionTest,
    FaultClass,
    Name,
    Not,
    Pattern,
    Reference,
    RemediationStep,
    Rule,
    Rulebook,
    RuleException,
    StructureTest,
    Table,
    TableRow,
    Where,
)
from kb.rulebase.rulebook import Positions

RULE = Rule(
    id="fan-stopped",
    title="A fan stopped",
    fault="gpu_thermal_power",
    role="root_cause",
    status="stable",
    severity="high",
    summary="Fan {fan|of the node} stopped.",
    cause="Dust.",
    impact="Heat.",
    patterns=(Pattern("fan", regex=r"fan (?P<fan>\d+) stopped"),),
    when=Name("fan"),
    remediation=(RemediationStep("check_gpu", "Look.", "look"),),
    references=(Reference("https://example.org/fans?x=1#top", "fans"),),
    file="host/fan-stopped/rule.yaml",
    family="host",
)
TESTS = {"fan-stopped": ["match/a.log", "match/b.log", "silent/c.log"]}


def book(*rules: Rule) -> Rulebook:
    """A rulebook of these rules."""
    faults = {"gpu_thermal_power": FaultClass("gpu_thermal_power", "hardware", "Heat")}
    return Rulebook(
        "1", "d", rules, faults, {"check_gpu": ActionWord("check_gpu", "Look", "look")}, {"hardware": "hardware"}
    )


def messages_for(rule: Rule, tests: list[str] | None = None) -> list[str]:
    """What the linter says of one rule."""
    found = lint(book(rule), {rule.id: TESTS["fan-stopped"] if tests is None else tests})
    return [str(fault).removeprefix("host/fan-stopped/rule.yaml:1:1: ") for fault in found]


def with_pattern(**parts: AnyType) -> Rule:
    """The sample rule with one pattern made of these parts."""
    return dataclasses.replace(RULE, patterns=(Pattern("fan", **parts),))


def test_a_good_rule_is_left_alone() -> None:
    """A complete rule has no lint messages."""
    assert messages_for(RULE) == []


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([], ["0 of at least 2 tests under match/", "0 of at least 1 tests under silent/"]),
        (["match/a.log", "silent/b.log"], ["1 of at least 2 tests under match/"]),
        (["match/two/rank-0.log", "match/two/rank-1.log", "silent/b.log"], ["1 of at least 2 tests under match/"]),
        (["match/a.log", "match/two/rank-1.log"], ["0 of at least 1 tests under silent/"]),
        (
            ["match", "silent", "other/x.log"],
            ["0 of at least 2 tests under match/", "0 of at least 1 tests under silent/"],
        ),
    ],
)
def test_too_few_tests(tests: list[str], expected: list[str]) -> None:
    """Two match tests and one silent test are asked for; the files of a bundle are one test."""
    assert sorted(messages_for(RULE, tests)) == sorted(expected)


def test_empty_tests_are_named() -> None:
    """A test that holds no text proves nothing."""
    (fault,) = lint(book(RULE), TESTS, empty={"fan-stopped": ["match/a.log"]})
    assert fault.message == "test match/a.log is empty"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"regex": r"fan|(?:stop \d+)"}, "every alternative needs at least four letters or digits"),
        ({"regex": r"E\d+: \w+"}, "every alternative needs at least four letters or digits"),
        ({"literal": "ab: -"}, "every alternative needs at least four letters or digits"),
        ({"regex": "fans(?!up)"}, "look-around"),
        ({"regex": r"(fans)\1"}, "a back-reference"),
        ({"regex": "fans(?:x+)+y"}, "can take forever"),
        ({"regex": "(?:fans)?"}, "matches the empty string"),
        ({"regex": "fans("}, "not a regular expression"),
        ({"literal": "fans", "confirm": "(?:x+)+y"}, "can take forever"),
        ({"literal": "fans", "confirm": "x*"}, "it matches the empty string, so it tests nothing"),
        ({"literal": "fans", "not_line": "a|"}, "it matches the empty string"),
        ({"literal": "fans", "where": Where(last_frame="(")}, "not a regular expression"),
        ({"exception": ExceptionTest(message=".*")}, "it matches the empty string"),
        ({"exception": ExceptionTest(type="A", not_frame="(a*)*b")}, "can take forever"),
        ({"structure": StructureTest("xid", {"xid": "("})}, "not a regular expression"),
        ({"structure": StructureTest("xid", {}, {"xid": "(?:1+)+"})}, "can take forever"),
    ],
)
def test_weak_and_slow_patterns(parts: dict[str, object], expected: str) -> None:
    """Patterns that find too much, or that a hostile line can make slow, are sent back."""
    (line,) = messages_for(with_pattern(**parts))
    assert line.startswith("pattern 'fan': ")
    assert expected in line


@pytest.mark.parametrize(
    "parts",
    [
        {"literal": "fans", "confirm": "(?<!x)fans(?=y)"},
        {"structure": StructureTest("slurm_end", {"why": ""})},
        {"exception": ExceptionTest(type=r"\w*Error", message="full")},
    ],
)
def test_full_syntax_where_it_is_allowed(parts: dict[str, object]) -> None:
    """Look-around in confirm, and an empty field of a structure, are fine."""
    assert messages_for(with_pattern(**parts)) == []


def test_unused_patterns() -> None:
    """A pattern that neither `when` nor `not_when` speaks of is dead; one in `not_when` alone is not."""
    rule = dataclasses.replace(
        RULE, patterns=(*RULE.patterns, Pattern("drill", literal="drill"), Pattern("idle", literal="idling"))
    )
    rule = dataclasses.replace(rule, not_when=(RuleException("a drill", Any((Name("drill"), Not(Name("fan"))))),))
    assert messages_for(rule) == ["the condition in `when` does not use the pattern 'idle'"]


def test_texts() -> None:
    """Long titles, missing references and missing remediation are reported."""
    rule = dataclasses.replace(RULE, title="x" * 81, references=(), remediation=())
    assert sorted(messages_for(rule)) == [
        "no reference (add a public page that supports the rule)",
        "no remediation (add what a person can do now)",
        "the title has 81 characters, more than 80",
    ]


def test_holes_that_can_stay_open() -> None:
    """A captured name may be missing; it needs a default or a clause. The key of a table is always known."""
    step = RemediationStep(
        "check_gpu", "Replace fan {fan} of {node}[? in slot {slot}].", "look", command="fan {fan|<fan>}"
    )
    expected = ["{fan} may be unknown (give it a default, {name|default}, or a clause, [? of {name}])"]
    rule = dataclasses.replace(RULE, patterns=(Pattern("fan", regex=r"fan(?: (?P<fan>\d+))? stopped"),))
    assert messages_for(dataclasses.replace(rule, remediation=(step,))) == expected
    assert messages_for(dataclasses.replace(rule, summary="Fan {fan} stopped.")) == expected
    table = Table("fan", {"1": TableRow("1", "First fan", summary="Fan {fan} of {rack} stopped.")})
    assert messages_for(dataclasses.replace(rule, table=table)) == [expected[0].replace("fan", "rack")]


def test_what_every_line_captures_is_known() -> None:
    """A hole that a capture of each pattern always fills needs no default; with an absence it does."""
    told = dataclasses.replace(RULE, summary="Fan {fan} stopped.")
    assert messages_for(told) == []
    other = Pattern("other", regex=r"fan is (?P<state>off)")
    two = dataclasses.replace(told, patterns=(*told.patterns, other), when=Any((Name("fan"), Name("other"))))
    assert [message.split(" (")[0] for message in messages_for(two)] == ["{fan} may be unknown"]
    unless = dataclasses.replace(two, when=Not(Name("fan")), patterns=told.patterns)
    assert [message.split(" (")[0] for message in messages_for(unless)] == ["{fan} may be unknown"]


def test_rows_may_carry_the_remediation() -> None:
    """A table whose every row has a remedy needs no steps of its own; titles of rows are measured too."""
    row = TableRow("1", "One", remediation=RULE.remediation)
    rule = dataclasses.replace(
        RULE, remediation=(), table=Table("fan", {"1": row, "2": TableRow("2", "", ignore=True)})
    )
    assert messages_for(rule) == []
    rule = dataclasses.replace(rule, table=Table("fan", {"1": row, "2": TableRow("2", "y" * 90)}))
    assert sorted(messages_for(rule)) == [
        "no remediation (add what a person can do now)",
        "the title has 90 characters, more than 80",
    ]


def test_a_row_without_a_reference_among_rows_with_one() -> None:
    """Either each row of a table names its source, or none does."""
    sourced = TableRow("1", "Fan 1 stopped", reference="manual")
    references = (Reference("https://example.org/fans", id="manual", checked="2026-11-23"),)
    rule = dataclasses.replace(
        RULE, references=references, table=Table("fan", {"1": sourced, "2": TableRow("2", "Fan 2 stopped")})
    )
    assert messages_for(rule) == ["no reference (other rows of this table have one)"]
    assert messages_for(dataclasses.replace(rule, table=Table("fan", {"1": sourced}))) == []


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/a", "example.org", "https://", "https://nodot/", "https://example.org/a b", "javascript:x"],
)
def test_links(url: str) -> None:
    """A reference is an http or https link to a host."""
    (line,) = messages_for(dataclasses.replace(RULE, references=(Reference(url),)))
    assert "is not a link" in line


@pytest.mark.parametrize(
    "kind", [{"literal": "fans stop"}, {"regex": "fans stop+"}, {"exception": ExceptionTest(message="fans")}]
)
def test_patterns_that_two_rules_share(kind: dict[str, AnyType]) -> None:
    """A text in two rules is reported at the second, naming the first; twice in one rule it is not."""
    first = dataclasses.replace(with_pattern(**kind), patterns=(Pattern("fan", **kind), Pattern("more", **kind)))
    first = dataclasses.replace(first, when=Any((Name("fan"), Name("more"))))
    second = dataclasses.replace(with_pattern(**kind), id="other", file="host/other/rule.yaml")
    (fault,) = lint(book(first, second), TESTS | {"other": TESTS["fan-stopped"]})
    assert fault.file == "host/other/rule.yaml"
    assert fault.message == "pattern 'fan' has the same text as one of fan-stopped"


def test_retired_rules_need_nothing_more() -> None:
    """Tests and references are not asked of a deprecated rule."""
    rule = dataclasses.replace(
        RULE, status="deprecated", deprecated=Deprecation("2026-01-01", "old"), references=(), remediation=()
    )
    assert messages_for(rule, []) == []


def test_faults_stand_where_the_part_stands() -> None:
    """With the loader's positions a fault names line and column, or those of the nearest part around it."""
    rule = dataclasses.replace(with_pattern(regex="fan"), references=())
    places = Positions({"fan-stopped": {"match.fan.regex": (14, 12), "match": (12, 3)}})
    found = [str(fault) for fault in lint(book(rule), TESTS, places)]
    assert found[0].startswith("host/fan-stopped/rule.yaml:1:1: no reference")
    assert found[1].startswith("host/fan-stopped/rule.yaml:14:12: pattern 'fan'")


def test_a_rule_of_a_site_needs_no_public_page_and_tests_are_advice() -> None:
    """It works as it is; what would make it better is told apart from what is wrong."""
    rule = dataclasses.replace(RULE, references=(), cause="Not known yet.")
    given = {rule.id: ["match/a.log"]}

    assert lint(book(rule), given, own={rule.id}) == ()
    told = [fault.message for fault in recommended(book(rule), given, Positions(), {rule.id})]
    assert told == [
        "0 of at least 1 tests under silent/",
        "1 of at least 2 tests under match/",
        "cause is still 'Not known yet.'",
    ]
    assert recommended(book(rule), given, Positions(), set()) == ()


def test_a_draft_of_a_site_is_told_that_it_never_fires() -> None:
    """Else its author waits for an answer that does not come."""
    draft = dataclasses.replace(RULE, status="draft")

    told = [fault.message for fault in recommended(book(draft), TESTS, Positions(), {draft.id})]
    assert told == ["a draft rule never fires"]


def test_an_active_rule_of_the_base_has_a_cause() -> None:
    """The scaffold's words are no cause; a draft may have them."""
    unwritten = dataclasses.replace(RULE, cause="Not known yet.")
    assert any("cause is still" in told for told in messages_for(unwritten))
    assert messages_for(dataclasses.replace(unwritten, status="draft")) == []
