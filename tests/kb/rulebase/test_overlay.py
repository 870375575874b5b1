"""A site's overlay: exceptions, parameters and rules of its own, and the messages about invalid ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.findings import RuleResults, find
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.model import Job, Resource, StreamRef
from kb.rulebase.codec import decode, encode
from kb.rulebase.rule import SiteFiles
from kb.rulebase.rulebook import Loaded, load
from kb.scanning.summary import PatternHits, Place, RankTally, StreamSummary

BASE = {
    "VERSION": "1.0",
    "faults.yaml": "version: 1\nfaults:\n  - {id: moon_fault, domain: software, title: Moon}\n",
    "actions.yaml": (
        "version: 1\nadvice: {requeue: a, requeue_without: b, restart_in_place: c, resubmit: d, fix_first: e, wait: f, none: g}\n"
        "owners: {hardware: hardware, network: network, platform: platform, software: user, training: user, none: none}\n"
        "actions:\n  - {id: look_at_logs, grade: look, title: Look}\n"
    ),
}


def rule(name: str = "moon-set", extra: str = "") -> str:
    """A rule file that looks for one line."""
    return (
        f"format: 1\nid: {name}\ntitle: The moon set\nfault: moon_fault\nrole: root_cause\nstatus: experimental\n"
        "severity: high\nsummary: It set.\ncause: c\nimpact: i\n"
        f"match:\n  line: {{literal: 'the moon has set'}}\n{extra}"
    )


def laid(site: str | None = None, today: str | None = "2026-11-20", base: str = "", **own: str) -> Loaded:
    """The base of one rule with a site.yaml and own rules over it."""
    files = BASE | {"sky/moon-set/rule.yaml": rule(extra=base)}
    over = {f"rules/sky/{name.replace('_', '-')}/rule.yaml": text for name, text in own.items()}
    if site is not None:
        over["site.yaml"] = site
    return load(files, SiteFiles("/site", over), today)


def seen(loaded: Loaded, *nodes: str, line: str = "the moon has set", job: str = "tide") -> RuleResults:
    """What is found where each of these nodes wrote the line once."""
    streams = []
    for node in nodes:
        place = Place(0, line, Resource(node=node))
        hits = {"moon-set#line": PatternHits(1, (place,), (), (RankTally(None, 1, 0),))}
        streams.append(StreamSummary(StreamRef(f"{node}.log", Resource(node=node)), size=99, hits=hits))
    evidence = Evidence(Job(name=job), streams=tuple(streams))
    return find(loaded.rulebook, Facts(evidence), History())


EXCEPTION = "version: 1\nexceptions:\n  - {{rule: moon-set, reason: a drill, expires: 2027-01-31, {}}}\n"


@pytest.mark.parametrize(
    ("where", "nodes", "left"),
    [
        ("nodes: 'soak-[0-9]+'", ("soak-1", "node-2"), ["node-2"]),
        ("nodes: 'soak-[0-9]+'", ("soak-1-b",), ["soak-1-b"]),
        ("lines: 'has set'", ("node-1",), []),
        ("lines: 'has risen'", ("node-1",), ["node-1"]),
        ("jobs: 'tide|ebb'", ("node-1",), []),
        ("jobs: 'tid'", ("node-1",), ["node-1"]),
        ("jobs: 'tide', nodes: 'node-1'", ("node-1", "node-2"), ["node-2"]),
        ("if: line", ("node-1",), []),
        ("match: {calm: {literal: 'calm sea today'}}, if: calm", ("node-1",), ["node-1"]),
        ("always: true", ("node-1", "node-2"), []),
    ],
)
def test_an_exception_takes_out_the_signals_that_all_its_parts_fit(
    where: str, nodes: tuple[str, ...], left: list[str]
) -> None:
    """Nodes and jobs by their whole name, lines by their content, a condition over the patterns of the rule and the exception."""
    loaded = laid(EXCEPTION.format(where))
    assert loaded.faults == ()
    judged = seen(loaded, *nodes)
    assert [signal.resource.node for finding in judged.findings for signal in finding.signals] == left
    assert bool(judged.excepted) == (len(left) < len(nodes))
    for gap in judged.excepted:
        assert (gap.code, gap.source, gap.rules_out) == ("rule_excepted", "moon-set", "The moon set")
        assert "a drill" in gap.reason
        assert "2027-01-31" in gap.reason


def test_an_exception_holds_until_its_day_and_is_reported_after_it() -> None:
    """On its last day it holds; on the next the rule speaks again, and the file's line says so."""
    text = EXCEPTION.format("always: true")
    assert seen(laid(text, today="2027-01-31"), "n").findings == ()
    late = laid(text, today="2027-02-01")
    assert len(seen(late, "n").findings) == 1
    (fault,) = late.faults
    assert (fault.file, fault.line) == ("/site/site.yaml", 3)
    assert "expired on 2027-01-31" in fault.message


def test_an_expired_exception_of_a_rule_itself_no_longer_holds() -> None:
    """A rule's own `not_when` has a day too."""
    own = "not_when: [{reason: r, if: line, expires: 2026-05-01}]\n"
    assert seen(laid(today="2026-05-01", base=own), "n").findings == ()
    late = laid(today="2026-05-02", base=own)
    assert len(seen(late, "n").findings) == 1
    assert ["expired on 2026-05-01" in fault.message for fault in late.faults] == [True]


def test_a_site_sets_the_numbers_of_rules() -> None:
    """`params` replaces what the rule has; everything that asks for it follows."""
    base = "when: {count: line, at_least: $least}\nparams: {least: 1}\n"
    assert len(seen(laid(base=base), "n").findings) == 1
    loaded = laid("version: 1\nparams: {moon-set: {least: 2}}\n", base=base)
    assert loaded.faults == ()
    assert loaded.rulebook.rules[0].params == {"least": 2.0}
    assert seen(loaded, "n").findings == ()


@pytest.mark.parametrize(
    ("site", "line", "message"),
    [
        ("version: 1\nparams:\n  moon-sat: {least: 2}\n", 3, "no rule 'moon-sat'"),
        ("version: 1\nparams:\n  moon-set: {most: 2}\n", 3, "has no parameter 'most'"),
        ("version: 1\nexceptions:\n  - {rule: sun-set, reason: r, expires: 2027-01-01, always: true}\n", 3, "no rule"),
        ("version: 1\nexceptions:\n  - {rule: moon-set, reason: r, always: true}\n", 3, "expires"),
        (
            "version: 1\nexceptions:\n  - {rule: moon-set, reason: r, expires: 2027-01-01}\n",
            3,
            "needs lines, nodes, jobs or if",
        ),
        (EXCEPTION.format("nodes: '(a'"), 3, "not a regular expression"),
        (EXCEPTION.format("if: tide"), 3, "tide"),
        (EXCEPTION.format("match: {line: {literal: 'high tide'}}, if: line"), 3, "already has a pattern 'line'"),
        (EXCEPTION.format("match: {own: {regex: '(?=tide)low'}}, if: own"), 3, "look"),
        ("version: 1\nexceptions: 3\n", 2, "must be a list"),
        ("version: 2\n", 1, "version"),
        ("version: [1\n", 2, ""),
    ],
)
def test_what_is_wrong_in_an_overlay_is_reported_and_the_base_works_on(site: str, line: int, message: str) -> None:
    """File, line and words; the rule is there as the base has it."""
    loaded = laid(site, base="when: {count: line, at_least: $least}\nparams: {least: 1}\n")
    assert [item.id for item in loaded.rulebook.rules] == ["moon-set"]
    assert len(seen(loaded, "n").findings) == 1
    assert {fault.file for fault in loaded.faults} == {"/site/site.yaml"}
    assert any(fault.line == line and message in fault.message for fault in loaded.faults)


def test_numbers_with_which_a_rule_cannot_be_used_leave_it_its_own() -> None:
    """The fault is reported in the site's file, and the rule is not lost."""
    base = "when: {count: line, at_least: $least}\nparams: {least: 1}\n"
    loaded = laid("version: 1\nparams:\n  moon-set: {least: -3}\n", base=base)
    assert loaded.rulebook.rules[0].params == {"least": 1.0}
    (fault,) = loaded.faults
    assert (fault.file, fault.line) == ("/site/site.yaml", 3)
    assert "keeps its own" in fault.message


def test_a_site_has_rules_of_its_own_but_none_with_the_id_of_one_of_the_base() -> None:
    """The rule of the base stays; the site's is reported with a way out."""
    loaded = laid(tide_low=rule("tide-low"), moon_set=rule())
    assert [item.id for item in loaded.rulebook.rules] == ["moon-set", "tide-low"]
    assert [item.file for item in loaded.rulebook.rules] == [
        "sky/moon-set/rule.yaml",
        "/site/rules/sky/tide-low/rule.yaml",
    ]
    (fault,) = loaded.faults
    assert (fault.file, fault.line) == ("/site/rules/sky/moon-set/rule.yaml", 2)
    assert "site.yaml" in fault.hint


def test_an_overlay_changes_digest_and_version_and_survives_the_cache() -> None:
    """A report says by its versions that it was not the bare base that spoke."""
    bare = load(BASE | {"sky/moon-set/rule.yaml": rule()}).rulebook
    empty = laid().rulebook
    over = laid(EXCEPTION.format("match: {own: {literal: 'calm sea'}}, if: own and line")).rulebook
    assert bare.version == "1.0"
    assert empty.version == "1.0+site"
    assert len({bare.digest, over.digest}) == 2
    assert replace(empty, version=bare.version) == bare
    assert decode(encode(over)) == over
