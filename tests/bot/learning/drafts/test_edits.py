"""A person's edits of a drafted rule go into its files; errors are reported by field."""

from __future__ import annotations

import pytest
import yaml

from bot.learning.drafts.edits import BY_HAND, edited, looks_for, regexes_of, wrong
from bot.learning.drafts.store import DraftEdits
from bot.rulebase.loader import default_folder

RULE = {
    "format": 1,
    "id": "fabric-lost",
    "title": "Fabric lost",
    "fault": "rdma_link",
    "role": "root_cause",
    "status": "draft",
    "severity": "high",
    "summary": "Fabric lost (rank {rank|unknown}).",
    "cause": "Not known.",
    "impact": "The run ends.",
    "match": {"line": {"regex": "fabricd: partition \\w+ lost"}, "after": {"regex": "backend gave up"}},
    "when": {"all": ["line", "after"]},
    "remediation": [{"action": "check_link", "text": "Look at the port.", "command": "ibstat"}],
}
PATH = "rdma/fabric-lost/rule.yaml"
FILES = {PATH: yaml.safe_dump(RULE, sort_keys=False).encode(), "rdma/fabric-lost/match/1.log": b"x\n"}


def rule(files):
    """The rule of some files."""
    return yaml.safe_load(files[PATH])


def test_nothing_changed_is_the_same_rule():
    """All that it says, and its logs."""
    same = edited(FILES, DraftEdits(title="Fabric lost", regexes=regexes_of(RULE), remediation=("Look at the port.",)))
    assert rule(same) == RULE
    assert same.keys() == FILES.keys()


def test_what_was_changed_is_in_the_file():
    """A step keeps its action and command, a new one has the first one's action; conditions stay with the number of patterns."""
    changed = edited(
        FILES,
        DraftEdits(
            "Fabric gone", "rdma_config", ("a+ gone", "gave up"), ("it is gone",), ("First.", "Then."), "network"
        ),
    )
    assert rule(changed) == {
        **RULE,
        "title": "Fabric gone",
        "fault": "rdma_config",
        "owner": "network",
        "match": {"line": {"regex": "a+ gone"}, "after": {"regex": "gave up"}},
        "remediation": [
            {"action": "check_link", "text": "First.", "command": "ibstat"},
            {"action": "check_link", "text": "Then."},
        ],
    }
    assert changed[f"rdma/fabric-lost/{BY_HAND}"] == b"it is gone\n"


def test_another_number_of_patterns_is_any_of_them():
    """A condition over names that are gone would be wrong."""
    changed = rule(edited(FILES, DraftEdits("t", regexes=("one long word",))))
    assert (changed["match"], "when" in changed) == ({"line": {"regex": "one long word"}}, False)


def test_texts_stay_texts():
    """Whatever YAML they look like."""
    text = "a: [b\n- !!python/object:os.system {}\n#"
    changed = edited(FILES, DraftEdits(text, regexes=("x'\": {y}",), remediation=(text,)))
    assert (rule(changed)["title"], rule(changed)["remediation"][0]["text"]) == (text, text)
    assert rule(changed)["match"]["line"]["regex"] == "x'\": {y}"


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        (DraftEdits("Fabric lost", regexes=("fabricd: (partition", "gave up")), "patterns"),
        (DraftEdits("Fabric lost", regexes=("(?<!x)fabricd partition",)), "patterns"),
        (DraftEdits("Fabric lost", regexes=("a",)), "patterns"),
        (DraftEdits("Fabric lost", fault="no_such_fault"), "other_fault"),
        (DraftEdits("Fabric lost", owner="Who Knows?!"), "owner"),
    ],
)
def test_what_is_wrong_is_reported_at_its_field(edits, field):
    """With the rule loader's errors, so that they appear while the form is open."""
    assert list(wrong(edited(FILES, edits), default_folder())) == [field]


def test_a_sound_rule_has_nothing_wrong():
    """Nor does what a person may well write."""
    assert wrong(edited(FILES, DraftEdits("Fabric lost", remediation=("Look: at {node}.",))), default_folder()) == {}


def test_what_is_more_than_lines_is_not_edited_as_lines():
    """Exceptions and structures stay as they were drafted."""
    assert regexes_of({"match": {"error": {"exception": {"type": "X"}}}}) is None
    assert regexes_of({"match": {"line": {"regex": "x", "where": {"stages": ["init"]}}}}) is None
    assert regexes_of({}) is None


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        (
            {"match": {"line": {"regex": "lease lost", "level": "error_if_stated", "recovered": False}}},
            ("a line that matches  lease lost, unless it states a level below error or it says that the program recovered",),
        ),
        (
            {
                "match": {
                    "line": {"exception": {"type": "OSError", "message": "lost", "frame": r"\bin read_map$"}},
                    "logged": {"regex": "lost", "level": "error"},
                }
            },
            (
                "a Python exception whose class is  OSError, whose message matches  lost, raised  in read_map",
                "or a line at error level that matches  lost",
            ),
        ),
        (
            {"match": {"line": {"regex": "a b", "not_line": "c d"}, "beside": {"regex": "e f"}}, "when": {"all": ["line", "beside"]}},
            ("a line that matches  a b", "  and does not match  c d", "a line that matches  e f", "when:", "  all:", "  - line", "  - beside"),
        ),
    ],
)  # fmt: skip
def test_what_a_rule_looks_for_is_told_in_lines(rule, lines):
    """A reviewer reads what each pattern is, without the parts that all learned rules share."""
    assert looks_for(rule) == lines


@pytest.mark.parametrize("regexes", [("fabricd: partition lost",), ("fabricd: (partition",)])
def test_texts_lose_the_holes_that_an_edited_pattern_no_longer_fills(regexes):
    """Their errors would stand at a field that the person did not touch and cannot fix."""
    told = RULE | {
        "match": {"line": {"regex": "fabricd: partition (?P<value_1>\\d+) lost after (?P<value_2>\\d+) s"}},
        "summary": "Partition {value_1|...} lost[? after {value_2} s] on {node|a node}.",
    }
    del told["when"]
    files = {PATH: yaml.safe_dump(told, sort_keys=False).encode()}
    changed = edited(files, DraftEdits(title="Fabric lost", regexes=regexes, remediation=("Look at the port.",)))
    assert rule(changed)["summary"] == "Partition ... lost on {node|a node}."
    assert set(wrong(changed, default_folder())) <= {"patterns"}


def test_the_role_follows_the_fault(known):
    """A draft that started with no known cause names one once a person has chosen it."""
    files = {"site/x/rule.yaml": b"id: x\ntitle: t\nfault: unknown\nrole: symptom\nmatch: {line: {regex: gate}}\n"}
    chosen = edited(files, DraftEdits(title="t", fault="rdma_link"), known.rulebook.faults)
    back = edited(chosen, DraftEdits(title="t", fault="unknown"), known.rulebook.faults)
    assert [yaml.safe_load(each["site/x/rule.yaml"])["role"] for each in (chosen, back)] == ["root_cause", "symptom"]
