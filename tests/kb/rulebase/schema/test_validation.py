"""The shape of rule files: what is refused, with which message and position."""

from __future__ import annotations

import jsonschema
import pytest

from kb.rulebase.schema.json_schema import rule_json_schema
from kb.rulebase.schema.rule_file import RuleFile
from kb.rulebase.schema.validation import check
from kb.rulebase.schema.vocabulary_files import ActionsFile, FaultsFile
from kb.rulebase.yaml_nodes import parse

RULE = """\
format: 1
id: spool-full
title: Spool is full
fault: disk_full
role: root_cause
status: experimental
severity: high
summary: "Spool {name} is full."
cause: Too much was written.
impact: Nothing more can be written.
match:
  full:
    regex: 'spool (?P<name>\\w+) is full'
  twin:
    exception: {type: SpoolError, message: full}
when: full or twin
remediation:
  - action: free_space
    text: Remove old files.
references:
  - url: https://example.org/spool
"""
MORE = """\
not_when:
  - {reason: a drill, if: full, expires: 2027-01-31}
table:
  key: name
  rows:
    a: {title: The first}
    b: {ignore: true}
params: {hits: 3}
applies_to: {framework: megatron, versions: '>=2'}
related: {renamed: old-name}
known_problems: [one]
owner: user
live: propose_pause
fallback: true
explains: [killed]
provenance: hand
"""


def faults_of(text: str, model: type = RuleFile) -> list[str]:
    """The faults of a text, without the file's name."""
    node, wrong = parse(text, "r.yaml")
    assert wrong == ()
    assert node is not None
    return [str(fault).removeprefix("r.yaml:") for fault in check(model, node)[1]]


def changed(old: str, new: str) -> str:
    """The sample rule with one part replaced."""
    assert RULE.count(old) == 1
    return RULE.replace(old, new)


def test_a_good_rule_has_no_faults() -> None:
    """The sample, small and full, is accepted and its values are there."""
    assert faults_of(RULE) == []
    node, _ = parse(RULE + MORE, "r.yaml")
    assert node is not None
    model, wrong = check(RuleFile, node)
    assert wrong == ()
    assert model.table.rows["b"].ignore
    assert model.not_when[0].if_ == "full"
    assert model.params == {"hits": 3.0}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("severity: high", "sevrity: high", "7:1: unknown key 'sevrity' (did you mean 'severity'?)"),
        ("severity: high", "severity: hihg", "7:11: 'severity' is 'hihg', which is not one of: 'critical', 'high', "),
        ("role: root_cause", "role: cause", "did you mean 'root_cause'?"),
        ("    regex: 'spool", "    regexp: 'spool", "13:5: unknown key 'regexp' (did you mean 'regex'?)"),
        (
            "{type: SpoolError, message: full}",
            "{typ: SpoolError, message: full}",
            "15:17: unknown key 'typ' (did you mean 'type'?)",
        ),
        ("title: Spool is full", "title: 404", "3:8: 'title' must be text (quote it to make it text)"),
        ("title: Spool is full", "title: ''", "3:8: 'title' must not be empty"),
        ("title: Spool is full", "title: [a]", "3:8: 'title' must be text"),
        ("title: Spool is full", "title: " + "x" * 500, "3:8: 'title' is longer than 400"),
        ("title: Spool is full\n", "", "1:1: key 'title' is missing"),
        ("format: 1", "format: 2", "1:9: 'format' is '2', which is not one of: 1"),
        ("id: spool-full", "id: Spool_Full", "2:5: 'id' has an invalid form: 'Spool_Full'"),
        ("id: spool-full", "id: -x", "has an invalid form"),
        ("fault: disk_full", "fault: Disk Full", "has an invalid form"),
        ("    text: Remove old files.", "    texts: Remove old files.", "18:5: key 'text' is missing"),
        ("  full:", "  4ull:", "12:3: key '4ull' has an invalid form"),
        (
            "{type: SpoolError, message: full}",
            "{not_message: full}",
            "needs type, message, frame, last_frame or classified",
        ),
        ("{type: SpoolError, message: full}", "SpoolError", "'match.twin.exception' must be a mapping"),
        ("status: experimental", "status: deprecated", "go together"),
        ("remediation:\n", "remediation: none\nextra:\n", "'remediation' must be a list"),
        ("  - url: https", "  - uri: https", "unknown key 'uri' (did you mean 'url'?)"),
    ],
)
def test_mistakes_are_reported_where_they_stand(old: str, new: str, expected: str) -> None:
    """Each mistake gives a fault with its place and a hint."""
    assert expected in "\n".join(faults_of(changed(old, new)))


@pytest.mark.parametrize(
    "pattern", ["{ignore_case: true}", "{literal: one, regex: two}", "{regex: a, detect: {name: loss_spike}}"]
)
def test_a_pattern_is_of_one_kind(pattern: str) -> None:
    """A pattern with no kind or two kinds is refused."""
    text = RULE.replace("  twin:\n    exception: {type: SpoolError, message: full}\n", f"  twin: {pattern}\n")
    assert faults_of(text) == [
        "14:9: a pattern needs exactly one of literal, regex, signal, exception, structure, detect, series, plugin"
    ]


def test_all_faults_of_a_file_are_reported() -> None:
    """Three mistakes, three faults, in order of place."""
    text = (
        RULE.replace("severity: high", "severity: no-idea")
        .replace("role: root_cause", "role: x")
        .replace("format: 1", "format: 3")
    )
    assert [line.split(":")[0] for line in faults_of(text)] == ["1", "5", "7"]


def test_structure_fields_take_numbers_and_lists() -> None:
    """A bare number is read as its text; a list means any of its values, taken literally."""
    pattern = "structure: {kind: xid, fields: {xid: 79, pci: [a.b, 3]}, not_fields: {pid: ''}}"
    node, _ = parse(RULE.replace("exception: {type: SpoolError, message: full}", pattern), "r.yaml")
    assert node is not None
    model, wrong = check(RuleFile, node)
    assert wrong == ()
    assert model.match["twin"].structure.fields == {"xid": "79", "pci": r"a\.b|3"}


@pytest.mark.parametrize("value", ["true", "2.5", "[]", "{a: b}", "[[a]]"])
def test_structure_fields_take_nothing_else(value: str) -> None:
    """Booleans, fractions and nested values are not valid tests of a field."""
    text = RULE.replace(
        "exception: {type: SpoolError, message: full}", f"structure: {{kind: xid, fields: {{xid: {value}}}}}"
    )
    assert faults_of(text)


@pytest.mark.parametrize(
    "extra", ["params: {hits: many}", "params: {hits: true}", "params: {1x: 3}", "table: {key: a, rows: {}}"]
)
def test_wrong_types_in_optional_parts(extra: str) -> None:
    """Optional parts are checked as strictly as the others."""
    assert faults_of(RULE + extra + "\n")


def test_rows_want_a_title_unless_ignored() -> None:
    """A row of a table says what its key means, or that it is harmless."""
    assert "a row needs a title" in faults_of(RULE + "table: {key: name, rows: {a: {role: symptom}}}\n")[0]


def test_a_key_has_one_row() -> None:
    """A row for several keys counts for each of them; a bar without spaces is part of a key."""
    twice = "table: {key: name, rows: {a | b: {title: A}, b: {title: B}}}\n"
    assert "two rows have the key 'b'" in faults_of(RULE + twice)[0]
    assert faults_of(RULE + "table: {key: name, rows: {a | b: {title: A}, a|b: {title: B}}}\n") == []


def test_rows_refer_to_references_of_the_rule() -> None:
    """A row names one of them by its id, and no two share an id."""
    table = "table: {key: name, rows: {a: {title: A, reference: manual}}}\n"
    assert "reference 'manual' of row 'a' is not an id" in faults_of(RULE + table)[0]
    named = RULE.replace("  - url: https", "  - id: manual\n    checked: 2026-11-23\n    url: https")
    assert faults_of(named + table) == []
    twice = named + "  - {id: manual, url: https://example.org/b}\n"
    assert "two references have the same id" in faults_of(twice)[0]


@pytest.mark.parametrize("day", ["2027-02-30", "'31.1.2027'", "2027"])
def test_days_must_exist(day: str) -> None:
    """A day is written YYYY-MM-DD and exists in the calendar."""
    assert faults_of(RULE + f"not_when: [{{reason: r, if: full, expires: {day}}}]\n")


def test_a_file_that_is_no_mapping() -> None:
    """A list or a word at the top level is reported as such."""
    assert faults_of("- a\n")[0] == "1:1: 'the file' must be a mapping"


def test_vocabulary_files() -> None:
    """faults.yaml and actions.yaml have models of their own."""
    fault = "version: 1\nfaults:\n  - {id: a_b, domain: network, title: T, advise: wait}\n"
    assert faults_of(fault, FaultsFile) == ["3:42: unknown key 'advise' (did you mean 'advice'?)"]
    action = "version: 1\nadvice: {wait: W}\nowners: {network: network}\nactions:\n  - {id: a, title: T, grade: save}\n"
    assert "did you mean 'safe'?" in faults_of(action, ActionsFile)[0]


def test_json_schema_agrees_with_the_models() -> None:
    """The schema for editors is a valid schema, takes what the models take and refuses what they refuse."""
    schema = rule_json_schema({"disk_full"}, {"free_space"})
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = parse(RULE + MORE, "r")[0].plain()
    validator.validate(good)
    assert validator.is_valid({**good, "when": {"all": ["full", {"not": "twin"}], "within": "10m"}})
    for wrong in (
        {"format": 2},
        {"surprise": 1},
        {"fault": "disk_ful"},
        {"match": {}},
        {"when": {"count": "full", "sam": "x"}},
    ):
        assert not validator.is_valid({**good, **wrong})


def test_json_schema_describes_its_keys() -> None:
    """An editor can show what a key means."""
    schema = rule_json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert "folder" in schema["properties"]["id"]["description"]
    assert schema["properties"]["when"]["$ref"] == "#/$defs/Condition"
