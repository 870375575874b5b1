"""Findings: rules that hold, by table row, without what the run survived and without fallbacks behind other rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.findings import Finding, RuleResults, chain_span, find
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.patterns.lookup import PatternLookup
from kb.model import Job, Structure
from kb.report import NotEvaluated
from kb.rulebase.rule import Any as AnyOf
from kb.rulebase.rule import (
    Count,
    ExceptionTest,
    Name,
    Pattern,
    RemediationStep,
    Rule,
    Span,
    StructureTest,
    Table,
    TableRow,
)
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import exception, facts, hits, place, ref, rule, rulebook, steps, stream

LINE = Pattern("line", literal="trouble")


def found(*rules: Rule, streams: tuple[StreamSummary, ...]) -> dict[str, list[Finding]]:
    """The findings of these rules, by rule."""
    book = rulebook(*rules)
    answer: dict[str, list[Finding]] = {}
    for finding in find(book, facts(*streams), History()).findings:
        answer.setdefault(finding.rule.id, []).append(finding)
    return answer


def where(finding: Finding) -> list[int]:
    """The offsets of a finding's signals."""
    return [signal.offset for signal in finding.signals]


def test_a_rule_that_holds_is_a_finding() -> None:
    """Its signals come in order of time; its texts speak of the earliest."""
    one = rule("r", "code_bug", LINE, summary="Rank {rank} on {node} in {stage} at {iteration}: {what|something}{none}")
    lines = [place(900, time=50.0, rank=4, node="node-b"), place(950, time=20.0, rank=2, node="node-a", what="disk")]
    (finding,) = found(one, streams=(stream(found={"r#line": lines}, points=steps(1, 8)),))["r"]
    assert where(finding) == [950, 900]
    assert finding.first.resource.rank == 2
    assert finding.fill(one.summary) == "Rank 2 on node-a in iterating at 8: diskunknown"
    assert (finding.count, finding.ranks) == (2, {2, 4})
    assert not finding.is_symptom


def test_a_finding_counts_all_lines_and_ranks() -> None:
    """Also those of which no place was kept."""
    lines = hits(*(place(n, rank=n) for n in range(200)), count=5000)
    (finding,) = found(rule("r", "code_bug", LINE), streams=(stream(found={"r#line": lines}),))["r"]
    assert len(finding.signals) < 50
    assert (finding.count, len(finding.ranks)) == (5000, 200)


@pytest.mark.parametrize(
    ("role", "fault", "expected"),
    [("root_cause", "code_bug", False), ("symptom", "code_bug", True), ("root_cause", "peer_failure", True)],
)
def test_a_symptom_by_role_or_by_class(role: str, fault: str, expected: bool) -> None:
    """A rule may say so, or its class is one that only reports what came before."""
    one = rule("r", fault, LINE, role=role)
    assert found(one, streams=(stream(found={"r#line": [place(1)]}),))["r"][0].is_symptom is expected


# tables

XIDS = Table(
    "xid",
    {
        "48": TableRow("48", "Double-bit error", fault="gpu_memory_ecc"),
        "43": TableRow("43", "Channel reset", role="symptom"),
        "63": TableRow("63", "Row remapped", ignore=True),
    },
)


def xid(offset: int, number: int) -> Structure:
    """An Xid of the kernel log."""
    return Structure("xid", offset, offset + 40, f"NVRM: Xid {number}", {"xid": number, "pci": "0000:3b:00"})


def xids(table: Table, *numbers: int) -> dict[str, tuple[str, str, str]]:
    """Which rows speak: key → fault, role, title."""
    one = rule("x", "code_bug", Pattern("line", structure=StructureTest("xid")), table=table)
    kernel = stream(ref("dmesg.log", kind="kernel"), structures=[xid(100 * n, xid_) for n, xid_ in enumerate(numbers)])
    rows = found(one, streams=(kernel,)).get("x", [])
    return {row.captures["key"]: (row.fault.id, row.role, row.captures["title"]) for row in rows}


def test_a_table_gives_a_finding_for_each_row() -> None:
    """The row may change fault and role; what it leaves open is the rule's own."""
    assert xids(XIDS, 43, 48, 43) == {
        "48": ("gpu_memory_ecc", "root_cause", "Double-bit error"),
        "43": ("code_bug", "symptom", "Channel reset"),
    }


def test_a_harmless_row_is_silent_and_so_is_an_unknown_key() -> None:
    """`ignore: true` and a key without a row give no finding, unless the table has a default."""
    assert xids(XIDS, 63) == {}
    assert xids(XIDS, 999) == {}
    default = Table("xid", XIDS.rows, TableRow("", "An Xid without a row"))
    assert xids(default, 63, 999) == {"999": ("code_bug", "root_cause", "An Xid without a row")}


def test_a_table_whose_key_was_not_captured_is_silent() -> None:
    """No row applies."""
    assert xids(Table("severity", XIDS.rows, TableRow("", "any")), 48) == {}


# what stays silent


@pytest.mark.parametrize("status", ["draft", "shadow", "deprecated"])
def test_rules_that_are_not_in_force_stay_silent(status: str) -> None:
    """Drafts, shadow rules and retired rules give no finding."""
    one = rule("r", "code_bug", LINE, status=status)
    assert found(one, streams=(stream(found={"r#line": [place(1)]}),)) == {}


def test_a_rule_that_cannot_be_judged_is_listed() -> None:
    """With what it would need."""
    one = rule("r", "code_bug", LINE, when=Count("line", at_least=2, within=Span(seconds=5)))
    book = rulebook(one)
    seen = facts(stream(found={"r#line": [place(1), place(2)]}))
    assert find(book, seen, History()) == RuleResults((), (NotEvaluated("r", "times of the lines"),))


def test_what_the_run_survived_is_no_finding() -> None:
    """An error after which steps went on did not end the run; a fault that a run lives with stays."""
    rules = rule("r", "code_bug", LINE), rule("s", "loss_spike", LINE)
    log = stream(found={"r#line": [place(100)], "s#line": [place(100)]}, points=steps(1, 9, start=50))
    assert set(found(*rules, streams=(log,))) == {"s"}


def test_only_what_was_not_survived_is_reported() -> None:
    """Of two like errors the fatal one gives place, rank, count and texts."""
    lines = [place(100, rank=3, size="1 GiB"), place(5000, rank=5, size="2 GiB")]
    one = rule("r", "cuda_oom", LINE)
    (finding,) = found(one, streams=(stream(found={"r#line": lines}, points=steps(1, 9, start=50)),))["r"]
    assert where(finding) == [5000]
    assert (finding.captures["rank"], finding.captures["size"]) == ("5", "2 GiB")
    assert (finding.count, finding.ranks) == (1, {5})


# rules of last resort

ANY_ERROR = rule("any", "code_bug", Pattern("line", exception=ExceptionTest(type=".*")), fallback=True)
VALUE = rule("value", "cuda_oom", Pattern("line", exception=ExceptionTest(type="ValueError")))


def test_a_fallback_speaks_where_no_other_rule_does() -> None:
    """An exception that no other rule knows is reported by the fallback rule."""
    assert set(found(ANY_ERROR, VALUE, streams=(stream(structures=[exception(100, "KeyError")]),))) == {"any"}


def test_a_fallback_is_silent_behind_another_rule() -> None:
    """The same exception is not reported twice; a different one is still reported by the fallback alone."""
    both = stream(structures=[exception(100, rank=1), exception(9000, "KeyError", rank=2)])
    answer = found(ANY_ERROR, VALUE, streams=(both,))
    assert where(answer["value"][0]) == [100]
    assert where(answer["any"][0]) == [9000]
    assert (answer["any"][0].captures["rank"], answer["any"][0].count) == ("2", 1)
    assert set(found(ANY_ERROR, VALUE, streams=(stream(structures=[exception(100)]),))) == {"value"}


def test_a_fallback_is_silent_behind_a_line_within_the_traceback() -> None:
    """A rule that knows a line of the block explains the block."""
    line = rule("line", "cuda_oom", LINE)
    block = stream(found={"line#line": [place(700)]}, structures=[exception(900, start=500)])
    assert set(found(ANY_ERROR, line, streams=(block,))) == {"line"}
    apart = stream(found={"line#line": [place(200)]}, structures=[exception(900, start=500)])
    assert set(found(ANY_ERROR, line, streams=(apart,))) == {"line", "any"}


def test_a_chain_is_explained_by_any_of_its_parts() -> None:
    """Whoever knows the inner exception explains the outer ones of its chain."""
    chain = [
        exception(900, start=500, chain=0),
        exception(1500, "KeyError", start=1000, chain=1, chained="cause"),
        exception(2100, "RuntimeError", start=1600, chain=2, chained="context"),
    ]
    assert set(found(ANY_ERROR, VALUE, streams=(stream(structures=chain),))) == {"value"}
    apart = [*chain[:1], exception(9500, "KeyError", start=9000)]
    assert set(found(ANY_ERROR, VALUE, streams=(stream(structures=apart),))) == {"value", "any"}


def test_a_symptom_explains_its_own_block_only() -> None:
    """The rule that knows "peer lost" does not silence what raised it."""
    symptom = rule("peer", "peer_failure", Pattern("line", exception=ExceptionTest(type="KeyError")))
    chain = [exception(900, start=500), exception(1500, "KeyError", start=1000, chain=1, chained="context")]
    answer = found(ANY_ERROR, symptom, streams=(stream(structures=chain),))
    assert where(answer["any"][0]) == [900]


def test_context_does_not_silence_a_fallback() -> None:
    """What is only worth showing explains nothing."""
    context = rule("value", "cuda_oom", *VALUE.patterns, role="context")
    assert set(found(ANY_ERROR, context, streams=(stream(structures=[exception(100)]),))) == {"value", "any"}


def test_another_streams_exception_is_not_explained() -> None:
    """Offsets of two streams have nothing to do with each other."""
    streams = stream("a.log", structures=[exception(100)]), stream("b.log", structures=[exception(100, "KeyError")])
    assert set(found(ANY_ERROR, VALUE, streams=streams)) == {"value", "any"}


def test_the_span_of_a_chain_covers_its_parts_and_nothing_else() -> None:
    """From the first traceback's head to the last line of the last."""
    chain = [exception(900, start=500), exception(1500, "KeyError", start=1000, chain=1, chained="cause")]
    far = exception(9900, "OSError", start=9500)
    known = facts(stream(found={"r#line": [place(700)]}, structures=[*chain, far]))
    one = rule("r", "code_bug", LINE, when=Name("line"))
    (signal,) = PatternLookup(known).look_up(one, LINE).signals
    assert chain_span(signal, known) == (500, chain[1].end)


def test_a_rule_for_a_framework_is_passed_over_on_another():
    """Where the job does not say what it runs, the rule is judged."""
    book = rulebook(rule("r", "code_bug", Pattern("line", literal="x"), applies_to={"framework": "megatron"}))
    heard = {}
    for name in (None, "Megatron-LM", "deepspeed"):
        known = Facts(Evidence(Job(framework=name), streams=(stream(found={"r#line": [place(1)]}),)))
        heard[name] = len(find(book, known, History()).findings)
    assert heard == {None: 1, "Megatron-LM": 1, "deepspeed": 0}


def test_the_pattern_that_matched_chooses_the_row() -> None:
    """The first of the rule's patterns that a line matches; what others captured on it stays known."""
    table = Table("pattern", {"wet": TableRow("wet", "Wet")}, TableRow("", "Dry"))
    one = rule(
        "r",
        "code_bug",
        Pattern("wet", literal="water"),
        LINE,
        when=Name("line"),
        table=table,
        summary="On {host|a host}",
    )
    one = replace(one, when=AnyOf((Name("wet"), Name("line"))))
    seen = stream(found={"r#wet": [place(100)], "r#line": [place(100, host="n1"), place(900)]})
    wet, dry = found(one, streams=(seen,))["r"]
    assert (wet.row and wet.row.title, where(wet), wet.fill(one.summary)) == ("Wet", [100], "On n1")
    assert (dry.row and dry.row.title, where(dry)) == ("Dry", [900])


def test_steps_are_shown_for_the_lines_that_they_hold_for() -> None:
    """`only` names captured words; the name of the pattern is one of them."""
    steps_ = tuple(
        RemediationStep("look_at_logs", text, "look", only=only)
        for text, only in (
            ("Always {what|there}", {}),
            ("For disks", {"what": "disk|tape"}),
            ("For tapes", {"what": "tape"}),
            ("For this pattern", {"pattern": "line"}),
        )
    )
    one = rule("r", "code_bug", LINE, remediation=steps_)
    (finding,) = found(one, streams=(stream(found={"r#line": [place(100, what="disk")]}),))["r"]
    assert [step.text for step in finding.steps()] == ["Always disk", "For disks", "For this pattern"]


def test_no_text_calls_a_node_localhost() -> None:
    """It is whoever says it."""
    one = rule("r", "code_bug", LINE, summary="Lost on {node}[? ({node})].")
    (finding,) = found(one, streams=(stream(found={"r#line": [place(100, node="localhost")]}),))["r"]
    assert finding.fill(one.summary) == "Lost on the node."
