"""Loading of rule files: what is built, what is left out and why, the digest, and the cached form."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.errors import RuleError, UnreadableInput
from kb.parsers.logs.registry import KINDS
from kb.rulebase.checks import STRUCTURES
from kb.rulebase.codec import decode, digest, encode
from kb.rulebase.rule import (
    Absent,
    All,
    Any,
    Condition,
    Count,
    Name,
    Not,
    Past,
    Ranks,
    RemediationStep,
    Rulebook,
    Sequence,
    Span,
)
from kb.rulebase.rulebook import load
from tests.support.paths import ROOT

FAULTS = """\
version: 1
faults:
  - {id: link_down, domain: network, title: Link down, explains: [slow_step], advice: wait}
  - {id: slow_step, domain: training, title: Slow, outlives: true, explains: [lost_peer]}
  - {id: lost_peer, domain: none, title: Peer lost, symptom: true, advice: none}
"""
ACTIONS = """\
version: 1
advice: {wait: Wait, fix_first: Fix, none: Nothing}
owners: {network: network, training: user, none: none}
actions:
  - {id: look, grade: look, title: Look}
  - {id: swap, grade: disruptive, title: Swap, scope: cluster}
"""
RULE = """\
format: 1
id: port-flaps
title: A port flaps
fault: link_down
role: root_cause
status: experimental
severity: high
summary: "Port {port} of {node} flaps {times|often}."
cause: >-
  A bad cable.
impact: >-
  Ranks wait.
match:
  flap:
    regex: 'port (?P<port>\\d+) went down'
  back:
    literal: port is back
  many:
    regex: 'flapped (?P<times>\\d+) times'
when: flap and not back
remediation:
  - {action: swap, text: 'Swap the cable of {port}.'}
  - {action: look, text: Look at it., grade: safe, scope: job}
references:
  - {url: 'https://example.org/ports', shows: ports}
"""


def files(**rules: str) -> dict[str, str]:
    """Rule files: the vocabularies, and each text as the rule of the folder of that name in the family "net"; "_" is written for "-"."""
    base = {"faults.yaml": FAULTS, "actions.yaml": ACTIONS, "VERSION": "1.2.0\n"}
    return base | {f"net/{name.replace('_', '-')}/rule.yaml": text for name, text in rules.items()}


def changed(old: str, new: str) -> str:
    """The sample rule with one part replaced."""
    assert RULE.count(old) == 1
    return RULE.replace(old, new)


def faults_of(text: str) -> list[str]:
    """Return the faults of one rule that is loaded together with a good one, which must load in any case."""
    other = RULE.replace("id: port-flaps", "id: other-rule")
    loaded = load(files(port_flaps=text, other_rule=other))
    assert "other-rule" in [rule.id for rule in loaded.rulebook.rules]
    assert ("port-flaps" in [rule.id for rule in loaded.rulebook.rules]) == (not loaded.faults)
    return [str(fault).removeprefix("net/port-flaps/rule.yaml:") for fault in loaded.faults]


def test_a_rule_is_built() -> None:
    """Every part of a rule file arrives in the rule; grades and scopes come from the vocabularies."""
    loaded = load(files(port_flaps=RULE))
    assert loaded.faults == ()
    (rule,) = loaded.rulebook.rules
    assert (rule.id, rule.family, rule.file) == ("port-flaps", "net", "net/port-flaps/rule.yaml")
    assert (rule.fault, rule.role, rule.severity, rule.owner) == ("link_down", "root_cause", "high", None)
    assert rule.cause == "A bad cable."
    assert [pattern.name for pattern in rule.patterns] == ["flap", "back", "many"]
    assert rule.patterns[1].literal == "port is back"
    assert rule.when == All((Name("flap"), Not(Name("back"))))
    assert rule.remediation == (
        RemediationStep("swap", "Swap the cable of {port}.", "disruptive", "cluster"),
        RemediationStep("look", "Look at it.", "safe", "job"),
    )
    assert loaded.rulebook.version == "1.2.0"
    assert loaded.positions.places["port-flaps"]["match.flap.regex"] == (15, 12)


def test_without_when_any_pattern_will_do() -> None:
    """A rule that gives no condition holds where any of its patterns is seen."""
    (rule,) = load(files(port_flaps=changed("when: flap and not back\n", ""))).rulebook.rules
    assert rule.when == Any((Name("flap"), Name("back"), Name("many")))


def test_faults_are_closed_over() -> None:
    """What a fault may bring about includes what that may bring about."""
    faults = load(files()).rulebook.faults
    assert faults["link_down"].explains == ("lost_peer", "slow_step")
    assert faults["slow_step"].outlives
    assert faults["slow_step"].advice == "fix_first"


def test_params_are_resolved() -> None:
    """A "$name" in a condition or a detector is the site parameter's value."""
    text = changed(
        "when: flap and not back",
        "params: {hits: 4, rise: 2.5}\nwhen: {all: [back, {count: flap, at_least: $hits}, spike]}",
    )
    text = text.replace(
        "  many:\n    regex: 'flapped (?P<times>\\d+) times'",
        "  spike: {detect: {name: loss_spike, params: {rise: $rise}}}",
    )
    loaded = load(files(port_flaps=text.replace("{times|often}", "{level|often}")))
    assert loaded.faults == ()
    (rule,) = loaded.rulebook.rules
    assert Count("flap", 4) in rule.when.parts
    assert rule.patterns[2].detect.params == {"rise": 2.5}


def test_a_table_rule() -> None:
    """Rows become values; a rule has no owner of its own unless its file names one."""
    table = "table:\n  key: port\n  rows:\n    7: {title: 'Seven', fault: slow_step, summary: 'Key {key}.'}\n    8: {ignore: true}\n    9 | 10: {title: 'More'}\n"
    loaded = load(files(port_flaps=RULE + table))
    assert loaded.faults == ()
    (rule,) = loaded.rulebook.rules
    assert rule.owner is None
    assert rule.table.rows["7"].fault == "slow_step"
    assert rule.table.rows["8"].ignore
    assert [(key, rule.table.rows[key].key, rule.table.rows[key].title) for key in ("9", "10")] == [
        ("9", "9", "More"),
        ("10", "10", "More"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("id: port-flaps", "id: port-flap", "2:5: id is 'port-flap', but the folder is named 'port-flaps'"),
        ("fault: link_down", "fault: link_dwon", "4:8: no fault 'link_dwon' (did you mean 'link_down'?)"),
        ("action: swap", "action: swop", "22:14: no action 'swop' (did you mean 'swap'?)"),
        ("{times|often}", "{time|often}", "8:10: nothing captures {time} (did you mean 'times'?)"),
        ("'Swap the cable of {port}.'", "'Swap {cable}.'", "22:26: nothing captures {cable}"),
        (
            "when: flap and not back",
            "when: flap and not bakc",
            "20:7: no pattern 'bakc' under match (did you mean 'back'?)",
        ),
        ("when: flap and not back", "when: {count: flap, at_least: $x}", "no parameter 'x' under params"),
        (
            "when: flap and not back",
            "when: {history: {fault: link_dow}}",
            "no fault 'link_dow' (did you mean 'link_down'?)",
        ),
        (
            "when: flap and not back",
            "when: {history: {rule: other-rul}}",
            "no rule 'other-rul' (did you mean 'other-rule'?)",
        ),
        ("when: flap and not back", "not_when: [{reason: r, if: flop}]", "20:28: no pattern 'flop'"),
        ("when: flap and not back", "explains: [slow_stp]", "no fault or rule 'slow_stp'"),
        ("when: flap and not back", "related: {see: other-rul}", "no rule 'other-rul'"),
        ("when: flap and not back", "owner: hardwear", "no owner 'hardwear' (did you mean 'hardware'?)"),
        (
            "when: flap and not back",
            "table: {key: prot, rows: {a: {title: T}}}",
            "no captured name 'prot' (did you mean 'port'?)",
        ),
        ("when: flap and not back", "table: {key: port, rows: {a: {title: T, fault: x}}}", "no fault 'x'"),
        (
            "when: flap and not back",
            "table: {key: port, rows: {a: {title: T, summary: '{b}'}}}",
            "nothing captures {b}",
        ),
        ("literal: port is back", "regex: 'port (is'", "pattern 'back': not a regular expression"),
        ("literal: port is back", "regex: 'port (?=is)'", "look-around is outside the safe subset"),
        ("literal: port is back", "regex: 'port(?:x*)*y'", "can take forever"),
        ("literal: port is back", "regex: 'port [[a]is'", "not a regular expression"),
        ("literal: port is back", "regex: '.*'", "matches the empty string"),
        (
            "literal: port is back",
            "{literal: a b, not_line: '(a'}".replace("{", "").replace("}", "").replace(", ", "\n    "),
            "not a regular",
        ),
        ("literal: port is back", "exception: {message: '(a'}", "pattern 'back': not a regular expression"),
        (
            "literal: port is back",
            "literal: port is back\n    not_line: '[\\u4e00-\\u9fa5]'",
            "not a regular expression for lines in UTF-8",
        ),
        ("literal: port is back", "structure: {kind: xidd}", "no kind of structure 'xidd' (did you mean 'xid'?)"),
        ("literal: port is back", "structure: {kind: xid, fields: {xids: 7}}", "no field 'xids' (did you mean 'xid'?)"),
        (
            "literal: port is back",
            "detect: {name: loss_spikes}",
            "no detector 'loss_spikes' (did you mean 'loss_spike'?)",
        ),
        ("literal: port is back", "detect: {name: loss_spike, params: {a: $b}}", "no parameter 'b' under params"),
        ("cause: >-\n", "cause: >-\n\t", "tab"),
        ("severity: high", "severity: high\nseverity: low", "8:1: key 'severity' is defined twice"),
        ("severity: high", "severity: [high]", "7:11: 'severity' is"),
        ("impact: >-\n", "impact: &x\n", "anchor"),
    ],
)
def test_a_bad_rule_is_left_out_and_reported(old: str, new: str, expected: str) -> None:
    """A mistake excludes its rule, is reported with position and hint, and does not affect the other rules."""
    assert expected in "\n".join(faults_of(changed(old, new)))


@pytest.mark.parametrize(
    ("pattern", "holes"),
    [
        ("exception: {type: E, message: 'port (?P<port>x)'}", "{type} {message} {last_frame} {port}"),
        ("structure: {kind: xid}", "{pci} {xid} {port|1}"),
        ("detect: {name: straggler_step}", "{pace} {level} {value} {port|1}"),
    ],
)
def test_holes_that_patterns_fill(pattern: str, holes: str) -> None:
    """Exceptions, structures and detectors each fill their own holes; rank, node and the like are always there."""
    text = changed("Port {port} of {node} flaps {times|often}.", f"{holes} {{rank}} {{iteration}} {{stage}} {{gpu}}")
    text = text.replace("literal: port is back", pattern)
    assert [line for line in faults_of(text) if "port" not in line] == []


def test_all_faults_of_a_rule_are_reported() -> None:
    """A wrong type, an unknown word and an invalid condition are reported together."""
    text = (
        changed("severity: high", "severity: hot\nextra: 1")
        .replace("fault: link_down", "fault: x")
        .replace("not back", "not bakc")
    )
    assert sorted(int(line.split(":")[0]) for line in faults_of(text)) == [4, 7, 8, 21]


def test_duplicate_ids_name_both() -> None:
    """Two rules of one id in two families: neither is used, and each fault names the other file."""
    loaded = load(files(port_flaps=RULE) | {"fabric/port-flaps/rule.yaml": RULE})
    assert loaded.rulebook.rules == ()
    assert [str(fault) for fault in loaded.faults] == [
        "fabric/port-flaps/rule.yaml:2:5: id 'port-flaps' is also used by net/port-flaps/rule.yaml",
        "net/port-flaps/rule.yaml:2:5: id 'port-flaps' is also used by fabric/port-flaps/rule.yaml",
    ]


def test_rules_may_speak_of_rules_that_are_broken() -> None:
    """A rule that another one names stays known even if it has faults."""
    text = RULE + "explains: [other-rule]\nrelated: {see: other-rule, renamed: an-old-id}\n"
    loaded = load(files(port_flaps=text, other_rule="format: 1\n"))
    assert [rule.id for rule in loaded.rulebook.rules] == ["port-flaps"]


def test_deprecated_rules() -> None:
    """A retired rule keeps its date, its reason and the rule that took its place."""
    text = changed(
        "status: experimental",
        "status: deprecated\ndeprecated: {date: 2026-10-01, reason: old, replaced_by: other-rule}",
    )
    assert faults_of(text) == []
    assert "no rule 'nobody'" in faults_of(text.replace("replaced_by: other-rule", "replaced_by: nobody"))[0]
    assert "key 'date' is missing" in faults_of(text.replace("date: 2026-10-01, ", ""))[0]


@pytest.mark.parametrize(
    "path", ["rule.yaml", "port-flaps/rule.yaml", "a/b/c/rule.yaml", "Net/port-flaps/rule.yaml", "/x/rule.yaml"]
)
def test_rules_lie_in_family_and_id(path: str) -> None:
    """A rule file at another depth is reported, not read."""
    loaded = load(files() | {path: RULE})
    assert loaded.rulebook.rules == ()
    assert "<family>/<id>/rule.yaml" in "\n".join(map(str, loaded.faults))


def test_a_misnamed_rule_file_is_reported() -> None:
    """rule.yml would otherwise be ignored silently, so it is reported. Test files are not."""
    loaded = load(files() | {"net/a/rule.yml": RULE, "net/a/match/x.log": "x", "net/a/match/b/job.yaml": "id: 1"})
    assert [str(fault) for fault in loaded.faults] == [
        "net/a/rule.yml:1:1: this file is not read (name a rule's file rule.yaml)"
    ]


@pytest.mark.parametrize("name", ["faults.yaml", "actions.yaml"])
@pytest.mark.parametrize(
    "text", [None, "", "a: [", "version: 1\n", "version: 2\nfaults: []\nactions: []\n", "- x", "\0"]
)
def test_a_broken_vocabulary_is_an_error(name: str, text: str | None) -> None:
    """Without its vocabularies the rule base cannot be loaded."""
    given_files = files(port_flaps=RULE)
    del given_files[name]
    with pytest.raises(RuleError) as caught:
        load(given_files if text is None else given_files | {name: text})
    assert caught.value.faults
    assert all(fault.file == name for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("explains: [lost_peer]", "explains: [link_down]", "'link_down' explains itself through slow_step"),
        ("explains: [lost_peer]", "explains: [slow_step]", "'slow_step' explains itself"),
        ("explains: [lost_peer]", "explains: [lost_per]", "no fault 'lost_per' (did you mean 'lost_peer'?)"),
        ("id: slow_step", "id: link_down", "4:5: id 'link_down' is defined twice (first in line 3)"),
        ("advice: wait", "advice: requeue", "actions.yaml has no advice 'requeue'"),
        ("domain: training", "domain: software", "actions.yaml names no owner for domain 'software'"),
        ("domain: training", "domain: trainin", "did you mean 'training'?"),
    ],
)
def test_faults_of_the_fault_table(old: str, new: str, expected: str) -> None:
    """Cycles, unknown words and repeated ids in faults.yaml are reported."""
    assert FAULTS.count(old) == 1
    with pytest.raises(RuleError) as caught:
        load(files() | {"faults.yaml": FAULTS.replace(old, new)})
    assert expected in str(caught.value)


def test_version_is_a_word() -> None:
    """Without a VERSION it is 0; with text in it the rule base cannot be loaded."""
    bare = files()
    del bare["VERSION"]
    assert load(bare).rulebook.version == "0"
    with pytest.raises(RuleError, match="VERSION:1:1"):
        load(bare | {"VERSION": "one\ntwo"})


def test_digest_covers_meaning_only() -> None:
    """The digest changes with any part of a rule or vocabulary, and not with comments, order of files or key order."""
    first = load(files(port_flaps=RULE)).rulebook.digest
    lines = RULE.splitlines(keepends=True)
    moved = "".join(["# a comment\n", *lines[:2], *lines[3:7], lines[2], *lines[7:]])
    assert load(dict(reversed(files(port_flaps=moved).items()))).rulebook.digest == first
    others = {
        load(files(port_flaps=changed("severity: high", "severity: low"))).rulebook.digest,
        load(files(port_flaps=changed("not back", "not many"))).rulebook.digest,
        load(files(port_flaps=changed("port is back", "port is up"))).rulebook.digest,
        load(files(port_flaps=RULE) | {"faults.yaml": FAULTS.replace("advice: wait", "advice: none")}).rulebook.digest,
        load(files(port_flaps=RULE) | {"actions.yaml": ACTIONS.replace("title: Look", "title: Peek")}).rulebook.digest,
        first,
    }
    assert len(others) == 6
    assert len(first) == 64


CONDITIONS = [
    Name("flap"),
    All((Name("a"), Any((Name("b"), Not(Name("c"))))), "node", Span(600.0)),
    Sequence(("a", "b"), Span(lines=40), "rank"),
    Count("a", 3, None, Span(1.5), "gpu"),
    Absent("a", "around", "b", Span(60.0)),
    Ranks("a", fraction_at_most=0.5, first=True),
    Past("link_down", None, "job", 7.0, 2),
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_cached_form_gives_the_same_rulebook(condition: Condition) -> None:
    """Bytes and back: every kind of condition, tables, exceptions and all other parts."""
    table = "table: {key: port, rows: {a: {title: T, remediation: [{action: look, text: t}]}}, default: {title: D}}\n"
    text = RULE + table + "not_when: [{reason: r, if: {not: many}}]\napplies_to: {framework: any}\n"
    rulebook = load(files(port_flaps=text)).rulebook
    (rule,) = rulebook.rules
    rulebook = dataclasses.replace(rulebook, rules=(dataclasses.replace(rule, when=condition),))
    assert decode(encode(rulebook)) == rulebook
    assert digest(decode(encode(rulebook))) == digest(rulebook)
    assert encode(decode(encode(rulebook))) == encode(rulebook)


def test_bytes_that_are_no_rulebook() -> None:
    """For any content of a cache file, decode raises its own error."""
    data = encode(load(files(port_flaps=RULE)).rulebook)
    for bad in (
        b"",
        b"\x00",
        data[:-3],
        data + b"x",
        data.replace(b"rulebook/1", b"rulebook/9"),
        data.replace(b"\xa4name", b"\xa4nome"),
    ):
        with pytest.raises(UnreadableInput):
            decode(bad)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=4))
def test_damaged_bytes_never_crash(place: int, damage: bytes) -> None:
    """A damaged cache gives a rulebook or the one error, nothing else."""
    data = encode(load(files(port_flaps=RULE)).rulebook)
    place %= len(data)
    damaged = data[:place] + damage + data[place + len(damage) :]
    with contextlib.suppress(UnreadableInput):
        assert isinstance(decode(damaged), Rulebook)


def test_a_start_from_the_cache_is_light() -> None:
    """A cached rulebook is read without YAML or pydantic."""
    code = "import sys, kb.rulebase.codec; print([m for m in ('yaml', 'pydantic', 'rapidfuzz') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_structures_are_those_of_the_readers_and_the_manual() -> None:
    """The kinds that rules may name are those that readers give, with the fields that the manual lists."""
    assert set(STRUCTURES) == KINDS
    manual = (ROOT / "docs" / "structures.md").read_text()
    for line in manual.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].strip("`") in STRUCTURES:
            missing = {field for field in STRUCTURES[cells[1].strip("`")] if f"`{field}`" not in cells[3]}
            assert missing == set()


def test_the_shipped_vocabularies_load() -> None:
    """rules/faults.yaml and actions.yaml are good; every failure that ends a run explains a lost peer and a timeout."""
    shipped = {name: (ROOT / "rules" / name).read_text() for name in ("faults.yaml", "actions.yaml", "VERSION")}
    faults = load(shipped).rulebook.faults
    assert len(faults) == 58
    for fault in faults.values():
        if not (fault.symptom or fault.outlives or fault.id == "healthy"):
            assert {"peer_failure", "collective_timeout"} <= set(fault.explains), fault.id


@pytest.mark.parametrize(
    "text",
    [
        RULE.replace("literal: port is back", "regex: '" + "(" * 700 + "a" * 4 + ")" * 700 + "'"),
        RULE.replace("literal: port is back", "regex: 'a{1,99999999999999999999}'"),
        RULE.replace("literal: port is back", "regex: '" + "abcd|" * 20_000 + "'"),
        RULE.replace("port is back", "'" + "{a|" * 60_000 + "'"),
        RULE.replace("flap and not back", "'" + " " * 200_000 + "'"),
        RULE.replace("A port flaps", "'" + "{" * 100_000 + "'"),
        RULE + "x" * 300_000,
        RULE + "\0",
        "[" * 5000,
        "&a [*a, *a]",
        "42",
    ],
)
def test_hostile_rules_cost_little(text: str) -> None:
    """Pathological regexes, huge texts and broken files are reported in bounded time."""
    start = time.process_time()
    assert load(files(port_flaps=text)).faults
    assert time.process_time() - start < 10


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.text("abr/.uley", max_size=14), st.text(max_size=40), max_size=3),
    st.text(max_size=80),
    st.integers(0, len(RULE)),
    st.integers(0, 30),
)
def test_arbitrary_files_never_raise_anything_else(more: dict[str, str], text: str, place: int, cut: int) -> None:
    """Whatever the files hold, there is a rulebook or a RuleError."""
    damaged = RULE[:place] + text + RULE[place + cut :]
    loaded = load(more | files(port_flaps=damaged, other=text))
    assert all(rule.id == "port-flaps" for rule in loaded.rulebook.rules)
    with contextlib.suppress(RuleError):
        assert load(files(port_flaps=RULE) | {"faults.yaml": text, "VERSION": "1"}).rulebook.faults


GENERIC = """, generic: {title: 'Network down[? at {rank}]', lies_in: a cable, remediation: [{action: look, text: Look at the port.}]}}"""


def _with_generic(text: str = GENERIC) -> str:
    return FAULTS.replace("advice: wait}", "advice: wait" + text)


def test_a_rule_without_steps_has_those_of_its_class() -> None:
    """Its own steps are used if it has some."""
    bare = RULE[: RULE.index("remediation:")] + RULE[RULE.index("references:") :]
    book = {"faults.yaml": _with_generic()}
    (rule,) = load(files(port_flaps=bare) | book).rulebook.rules
    assert [step.text for step in rule.remediation] == ["Look at the port."]
    (rule,) = load(files(port_flaps=RULE) | book).rulebook.rules
    assert [step.action for step in rule.remediation] == ["swap", "look"]


def test_a_table_of_classes_has_their_generic_rows() -> None:
    """A class has its generic row, behind the rule's own steps; a row of the rule itself is used instead."""
    table = "table: {key: times, classes: true, rows: {slow_step: {title: Own}}}\n"
    only = "\n  - {action: look, text: Not for it., only: {times: slow.*}}\n  - {action: swap"
    text = RULE.replace("\n  - {action: swap", only) + table
    book = {"faults.yaml": _with_generic()}
    (rule,) = load(files(port_flaps=text) | book).rulebook.rules
    assert rule.table is not None
    assert {key: (row.title, row.fault) for key, row in rule.table.rows.items()} == {
        "link_down": ("Network down[? at {rank}]", "link_down"),
        "slow_step": ("Own", None),
    }
    row = rule.table.rows["link_down"]
    assert [step.text for step in row.remediation] == ["Swap the cable of {port}.", "Look at it.", "Look at the port."]
    assert row.lies_in == "a cable"
    assert decode(encode(load(files(port_flaps=text) | book).rulebook)).rules == (rule,)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{rank}", "{cable}", "nothing captures {cable}"),
        ("action: look", "action: lok", "no action 'lok' (did you mean 'look'?)"),
        ("a cable", "'[if colour=red: a cable]'", "no capture or circumstance 'colour'"),
    ],
)
def test_faults_of_what_a_class_says(old: str, new: str, expected: str) -> None:
    """Unknown words in the generic texts of a class are reported."""
    with pytest.raises(RuleError) as caught:
        load(files() | {"faults.yaml": _with_generic(GENERIC.replace(old, new))})
    assert expected in str(caught.value)


def test_a_table_needs_rows_or_classes() -> None:
    """A table without either is refused."""
    assert "a table needs rows, or classes: true" in str(load(files(port_flaps=RULE + "table: {key: times}\n")).faults)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("signal: SIGSEG", "no signal 'SIGSEG'"),
        ("regex: 'went down', said_by: [shell]", "said_by requires signal"),
        ("signal: SIGSEGV, said_by: [shel]", "said_by"),
        ("structure: {kind: elastic_exit|launchr_exit}", "no kind of structure 'launchr_exit'"),
        ("structure: {kind: elastic_exit|launcher_exit, fields: {task: '1'}}", "no field 'task'"),
    ],
)
def test_faults_of_signals_and_kinds(pattern: str, expected: str) -> None:
    """An unknown signal, teller or kind, and a field that not every kind has, are reported."""
    text = RULE.replace("back:\n    literal: port is back", "back: {" + pattern + "}")
    loaded = load(files(port_flaps=text))
    assert expected in str(loaded.faults)
