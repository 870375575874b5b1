"""Ranking: the cause before its symptoms, the first before the loudest, the specific before the fallback."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.causal_order import explains, precedes
from kb.diagnosis.confidence import band
from kb.diagnosis.findings import find
from kb.diagnosis.ranking import Ranked, rank
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.patterns.lookup import PatternLookup
from kb.model import Job, Resource, StreamRef
from kb.report import Hang, Vote
from kb.rulebase.rule import DetectorTest, ExceptionTest, FaultClass, Pattern, Rule, StructureTest
from kb.scanning.summary import Place, StreamSummary
from tests.support.kb_samples import exception, facts, place, ref, rule, rulebook, scanned, steps, stream

LINE = Pattern("line", literal="trouble")
OOM = rule("oom", "cuda_oom", LINE)
BUG = rule("bug", "code_bug", LINE)
ECC = rule("ecc", "gpu_memory_ecc", LINE)
LINK = rule("link", "link_down", LINE)
CLOSED = rule("closed", "peer_failure", LINE, role="symptom")


def ranked(*rules: Rule, streams: tuple[StreamSummary, ...]) -> list[Ranked]:
    """What is found, in its order."""
    known = facts(*streams)
    return rank(find(rulebook(*rules), known, History()).findings, known)


def order(places: list[Ranked]) -> list[str]:
    """The faults in order."""
    return [item.best.fault.id for item in places]


def at(offset: int, time: float | None = None, who: int | None = None) -> list[Place]:
    """One place."""
    return [place(offset, time=time, rank=who)]


def test_a_cause_comes_before_its_symptom() -> None:
    """Though the symptom was logged first; and the symptom is folded under it."""
    one = stream(found={"closed#line": at(100), "oom#line": at(900)})
    (only,) = ranked(CLOSED, OOM, streams=(one,))
    assert only.best.rule.id == "oom"
    assert [finding.rule.id for finding in only.folded] == ["closed"]


def test_a_cause_comes_before_its_consequence_by_the_table() -> None:
    """A memory error of a GPU may look like memory exhausted; the other way it does not."""
    (only,) = ranked(OOM, ECC, streams=(stream(found={"oom#line": at(100), "ecc#line": at(200)}),))
    assert (only.best.rule.id, [finding.rule.id for finding in only.folded]) == ("ecc", ["oom"])
    places = ranked(OOM, ECC, streams=(stream(found={"oom#line": at(100), "ecc#line": at(9000)}),))
    assert order(places) == ["gpu_memory_ecc", "cuda_oom"]  # so long before its cause is another event
    assert not any("consequence of: ecc" in reason for reason in places[1].reasons)


@pytest.mark.parametrize(("first", "folded"), [(0.0, True), (5000.0, False)])
def test_what_follows_long_after_is_another_failure(first: float, folded: bool) -> None:
    """A fault accounts for what fails with it, not for what fails an hour later."""
    one = stream(found={"ecc#line": at(100, 1000.0), "oom#line": at(200, 1000.0 + first)})
    places = ranked(OOM, ECC, streams=(one,))
    assert order(places) == ["gpu_memory_ecc", *([] if folded else ["cuda_oom"])]
    assert all(any("consequence of: ecc" in reason for reason in item.reasons) for item in places[1:])


ABORT = replace(rule("abort", "code_bug", LINE, role="symptom"), fallback=True)


@pytest.mark.parametrize(("abort", "folded"), [(300, True), (50, False)])
def test_an_abort_after_a_failure_is_its_end(abort: int, folded: bool) -> None:
    """It only reports that something came first, which then is known; an abort before it is another one."""
    one = stream(found={"oom#line": at(100), "abort#line": at(abort)})
    places = ranked(OOM, ABORT, streams=(one,))
    assert ("abort" in [finding.rule.id for finding in places[0].folded]) is folded


def test_a_line_is_no_consequence_of_itself() -> None:
    """Where a second rule reads the very lines of the first, and the table says that one explains the other."""
    same = stream(found={"oom#line": at(200), "ecc#line": at(200)})
    assert order(ranked(OOM, ECC, streams=(same,))) == ["gpu_memory_ecc"]


def test_a_cause_seen_much_later_explains_nothing() -> None:
    """Minutes after the end the table has no say."""
    one = stream(found={"oom#line": at(100, 1000.0), "ecc#line": at(200, 5000.0)})
    assert order(ranked(OOM, ECC, streams=(one,)))[0] == "cuda_oom"


def test_the_first_comes_before_the_loudest() -> None:
    """Of two independent causes the earlier one leads, however often the other is logged."""
    loud = [place(1000 + n, time=200.0 + n, rank=n) for n in range(60)]
    places = ranked(LINK, BUG, streams=(stream(found={"bug#line": at(100, 100.0, 3), "link#line": loud}),))
    assert order(places) == ["code_bug", "link_down"]
    assert "it came before the other findings" in places[0].reasons


def test_a_later_consequence_does_not_come_first() -> None:
    """In logs of two ranks the time decides, whichever log is read first."""
    early = stream("rank-5.log", {"bug#line": at(9000, 100.0, 5)})
    late = stream("rank-0.log", {"link#line": at(10, 130.0, 0)})
    assert order(ranked(LINK, BUG, streams=(late, early)))[0] == "code_bug"
    assert order(ranked(BUG, LINK, streams=(early, late)))[0] == "code_bug"


PEERS = rule("peers", "peer_failure", Pattern("line", exception=ExceptionTest(type="DistBackendError")), role="symptom")
ANY_ERROR = rule("any", "code_bug", Pattern("line", exception=ExceptionTest(type=".*")), fallback=True)


def test_one_ranks_error_behind_the_connection_errors_of_all_others() -> None:
    """Sixty-three ranks lose their peer; the one that raised something else is the cause, known to a rule or not."""
    others = [
        stream(
            StreamRef(f"rank-{n}.log", Resource(rank=n)),
            structures=[exception(100, "DistBackendError", "peer closed", rank=n, time=100.0)],
        )
        for n in range(64)
        if n != 17
    ]
    one = stream(
        StreamRef("rank-17.log", Resource(rank=17)),
        structures=[exception(100, "KeyError", "'input_ids'", rank=17, time=101.0)],
    )
    (only,) = ranked(PEERS, ANY_ERROR, streams=(*others[:40], one, *others[40:]))
    assert only.best.rule.id == "any"
    assert only.best.first.resource.rank == 17
    assert [(finding.rule.id, finding.count) for finding in only.folded] == [("peers", 63)]


def test_a_specific_rule_comes_before_a_fallback() -> None:
    """Where the order of the two is unknown."""
    streams = stream("rank-0.log", structures=[exception(100, "KeyError")]), stream("rank-1.log", {"oom#line": at(50)})
    places = ranked(ANY_ERROR, OOM, streams=streams)
    assert order(places) == ["cuda_oom", "code_bug"]
    assert places[0].confidence > places[1].confidence
    assert "generic match" in places[1].reasons


def test_a_fallback_does_not_push_down_what_it_might_explain() -> None:
    """The causal table counts for rules that know what they saw."""
    last = rule("last", "gpu_memory_ecc", Pattern("line", exception=ExceptionTest(type=".*")), fallback=True)
    streams = stream("rank-0.log", structures=[exception(100, "KeyError")]), stream("rank-1.log", {"oom#line": at(50)})
    assert order(ranked(last, OOM, streams=streams))[0] == "cuda_oom"


def test_context_is_not_ranked() -> None:
    """Context without a fault is not a diagnosis."""
    context = rule("bug", "code_bug", LINE, role="context")
    assert ranked(context, streams=(stream(found={"bug#line": at(100)}),)) == []


def test_a_symptom_alone_is_reported_and_is_not_sure() -> None:
    """Without further evidence it is ranked first, in a lower band."""
    (only,) = ranked(CLOSED, streams=(stream(found={"closed#line": at(100)}),))
    assert only.best.rule.id == "closed"
    assert band(only.confidence) == "possible"


def test_a_symptom_that_the_cause_does_not_explain_is_kept() -> None:
    """It is listed behind the cause, not folded away."""
    spike = rule("spike", "loss_spike", LINE)
    places = ranked(spike, CLOSED, streams=(stream(found={"spike#line": at(100), "closed#line": at(200)}),))
    assert order(places) == ["loss_spike", "peer_failure"]
    assert places[0].folded == ()


def test_rules_of_one_fault_are_one_diagnosis() -> None:
    """Two rules that name the same fault support each other."""
    again = rule("again", "cuda_oom", LINE)
    alone = ranked(OOM, streams=(stream(found={"oom#line": at(100)}),))
    both = ranked(OOM, again, streams=(stream(found={"oom#line": at(100), "again#line": at(200)}),))
    assert order(both) == ["cuda_oom"]
    assert {finding.rule.id for finding in both[0].findings} == {"oom", "again"}
    assert both[0].confidence > alone[0].confidence


def test_a_rival_makes_it_less_sure() -> None:
    """Two independent causes leave doubt."""
    alone = ranked(OOM, streams=(stream(found={"oom#line": at(100)}),))
    rivals = ranked(OOM, BUG, streams=(stream(found={"oom#line": at(100), "bug#line": at(100)}),))
    assert rivals[0].confidence < alone[0].confidence


def test_what_stands_at_the_end_is_last_words() -> None:
    """Steps after it make a finding weigh less."""
    end = ranked(OOM, streams=(stream(found={"oom#line": at(5000)}, points=steps(1, 9)),))
    before = ranked(OOM, streams=(stream(found={"oom#line": at(750)}, points=steps(1, 9)),))
    assert "no step was logged after it" in end[0].reasons
    assert "no step was logged after it" not in before[0].reasons
    assert end[0].score > before[0].score


def test_a_rule_may_explain_beyond_the_table() -> None:
    """By fault or by rule id."""
    wide = rule("wide", "code_bug", LINE, explains=("link",))
    known: Facts = facts(stream(found={"wide#line": at(100), "link#line": at(200)}))
    first, second = find(rulebook(wide, LINK), known, History()).findings
    assert explains(first, second)
    assert not explains(second, first)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [((0, 10, None), (0, 20, None), 1.0), ((0, 20, None), (0, 10, None), 0.0), ((0, 10, None), (0, 10, None), 0.5)],
)
def test_within_a_stream_the_offset_tells_which_came_first(
    left: tuple[int, int, None], right: tuple[int, int, None], expected: float
) -> None:
    """Also without times."""
    known = facts(stream(found={"oom#line": at(left[1]), "bug#line": at(right[1])}))
    assert (
        precedes(PatternLookup(known).look_up(OOM, LINE).signals[0], PatternLookup(known).look_up(BUG, LINE).signals[0])
        == expected
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"), [(10.0, 13.0, 1.0), (13.0, 10.0, 0.0), (10.0, 11.5, 0.5), (None, 11.5, 0.5)]
)
def test_between_streams_the_time_tells_with_two_seconds_of_skew(
    left: float | None, right: float | None, expected: float
) -> None:
    """Events closer together than the clocks agree have no known order."""
    known = facts(stream(ref("a"), {"oom#line": at(1, left)}), stream(ref("b"), {"bug#line": at(1, right)}))
    assert (
        precedes(PatternLookup(known).look_up(OOM, LINE).signals[0], PatternLookup(known).look_up(BUG, LINE).signals[0])
        == expected
    )


def test_the_order_of_the_rules_does_not_matter() -> None:
    """The same findings are ranked alike for any order of rules in the rulebook."""
    one = stream(found={f"{name}#line": at(100, 50.0) for name in ("oom", "bug", "link", "closed")})
    forth = ranked(OOM, BUG, LINK, CLOSED, streams=(one,))
    back = ranked(CLOSED, LINK, BUG, OOM, streams=(one,))
    assert [(place.best.rule.id, place.score) for place in forth] == [(p.best.rule.id, p.score) for p in back]


# --- what a lost node accounts for ---------------------------------------------------------------------------------------


LOST = {"node_lost": FaultClass("node_lost", "platform", "Node lost", explains=("killed",))}


@pytest.mark.parametrize(
    ("after", "folded"),
    [
        ("/opt/jobs/nightly.sh: line 7: 4711 Killed                  python fit.py\n", False),
        ("srun: error: cn-a2: task 3: Killed\n", True),
        (
            (
                "slurmstepd: error: *** JOB 771 ON cn-a1 CANCELLED AT 2027-02-09T17:40:08 DUE TO NODE FAILURE ***\n"
                "/var/spool/slurmd/job771/slurm_script: line 7: 4711 Killed                  torchrun fit.py\n"
            ),
            True,
        ),
    ],
)
def test_a_lost_node_does_not_account_for_a_kill_that_a_shell_reports(after: str, folded: bool) -> None:
    """The shell that started the process runs on, so that its node is not the lost one, unless the job was ended everywhere."""
    lost = rule("lost", "node_lost", Pattern("n", literal="gone: cn-a9"))
    killed = rule("killed", "killed", Pattern("k", structure=StructureTest("launcher_exit", {"signal": "SIGKILL"})))
    killed = replace(killed, role="symptom")
    book = replace(
        rulebook(lost, killed), faults={**LOST, "killed": FaultClass("killed", "none", "Killed", symptom=True)}
    )
    known = facts(scanned("2027-02-09 17:40:01 gone: cn-a9\n" + after, book))
    first, *others = rank(find(book, known, History()).findings, known)
    assert first.best.rule.id == "lost"
    assert ([finding.rule.id for finding in first.folded], [item.best.rule.id for item in others]) == (
        (["killed"], []) if folded else ([], ["killed"])
    )


# --- what is said about the order ------------------------------------------------------------------------------------

FIRST = "it came before the other findings"


@pytest.mark.parametrize(
    ("oom", "bug", "said"),
    [
        (place(100, time=50.0, rank=1), place(900, time=51.0, rank=2), True),
        (place(100, time=50.0, rank=1), place(900, time=50.0, rank=2), False),  # two processes within one second
        (place(100, time=50.0, rank=1), place(900, time=50.0, rank=1), True),  # one process writes in order
        (place(100, time=50.0), place(900, time=50.0), False),
        (place(100), place(900), True),
    ],
)
def test_the_order_is_stated_only_where_it_is_known(oom: Place, bug: Place, said: bool) -> None:
    """Lines of one second have no order between processes, whichever was written to the log first."""
    known = ranked(OOM, BUG, streams=(stream(found={"oom#line": [oom], "bug#line": [bug]}),))
    assert (FIRST in known[0].reasons) is said


def test_one_exception_has_no_order() -> None:
    """Two rules that rest on the same traceback came at the same time."""
    spans = {"oom#line": [place(310)], "bug#line": [place(520)]}
    raised = exception(520, start=300)
    apart = ranked(OOM, BUG, streams=(stream(found=spans),))
    assert FIRST in apart[0].reasons
    together = ranked(OOM, BUG, streams=(stream(found=spans, structures=[raised]),))
    assert FIRST not in together[0].reasons


def test_a_symptom_that_came_earlier_is_counted_in() -> None:
    """What is shown as explained counts among the other findings."""
    found = {"closed#line": at(50), "oom#line": at(100), "bug#line": at(900)}
    assert FIRST not in ranked(CLOSED, OOM, BUG, streams=(stream(found=found),))[0].reasons


def test_later_steps_of_another_log_are_counted_in() -> None:
    """No step came after a line only if none did in any log."""
    own = stream(ref("logs/rank-0.log"), {"oom#line": at(5000)}, points=steps(1, 9))
    other = stream(ref("logs/rank-1.log"), points=steps(1, 12))
    assert "no step was logged after it" in ranked(OOM, streams=(own,))[0].reasons
    assert "no step was logged after it" not in ranked(OOM, streams=(own, other))[0].reasons
    alone = stream(found={"oom#line": at(5000)})
    assert "no step was logged after it" not in ranked(OOM, streams=(alone,))[0].reasons  # there were no steps
    done = stream(found={"oom#line": at(5000)}, points=[replace(point, total=9) for point in steps(1, 9)])
    assert (
        "no step was logged after it" not in ranked(OOM, streams=(done,))[0].reasons
    )  # none could follow the last one


FAILED = (
    "Traceback (most recent call last):\n  File \"/opt/fit.py\", line 3, in <module>\n    fit()\nKeyError: 'mask'\n"
)


@pytest.mark.parametrize(
    ("trouble", "first"),
    [("/opt/lib/checks.py:24: UserWarning: no route\n", "code_bug"), ("connect: no route\n", "link_down")],
)
def test_a_warning_leads_over_no_error_that_ended_the_program(trouble: str, first: str) -> None:
    """A Python warning ends no process, so an error that did comes first, whatever its rule could explain."""
    warns = replace(rule("warns", "link_down", Pattern("line", literal="no route")), explains=("generic",))
    raised = rule("generic", "code_bug", Pattern("line", exception=ExceptionTest(type="KeyError")))
    book = rulebook(warns, replace(raised, fallback=True))
    known = facts(scanned(trouble + FAILED, book))
    assert order(rank(find(book, known, History()).findings, known))[0] == first


@pytest.mark.parametrize(
    ("said", "first"),
    [("ranks differ\n", ["link_down", "peer_failure"]), ("", ["peer_failure", "loss_spike"])],
)
def test_a_cause_of_the_end_leads_over_a_measured_change_that_runs_survive(said: str, first: list[str]) -> None:
    """A loss that is not finite ends no run; what broke the connections does, or else their break is all that is known."""
    spike = rule("spike", "loss_spike", Pattern("line", detect=DetectorTest("loss_not_finite")))
    differ = rule("differ", "link_down", Pattern("line", literal="ranks differ"), role="contributing")
    book = rulebook(spike, replace(differ, explains=("closed",)), CLOSED)
    values = "".join(f"iteration {n}/99 loss {2.0 if n < 20 else 'nan'}\n" for n in range(1, 40))
    known = facts(scanned(f"{values}{said}trouble\n", book))
    assert order(rank(find(book, known, History()).findings, known))[:2] == first
    probed = Hang(votes=(Vote("silence", "no", "the last line is 3 s old", None),))
    alive = Facts(replace(known.evidence, job=Job(state="RUNNING"), hang=probed))  # so a break of them ended nothing
    assert order(rank(find(book, alive, History()).findings, alive))[0] == "loss_spike"


@pytest.mark.parametrize(
    ("end", "first"),
    [
        ("out of process ids\n", "link_down"),
        ("out of process ids\niteration 40/99 loss 2.0\n", "loss_spike"),
        ("", "loss_spike"),
    ],
)
def test_an_error_that_ended_the_run_leads_over_a_measured_change_before_it(end: str, first: str) -> None:
    """Steps followed the change, so it ended nothing; after an error that the run survived, the order is as before."""
    spike = rule("spike", "loss_spike", Pattern("line", detect=DetectorTest("loss_not_finite")))
    book = rulebook(spike, rule("ids", "link_down", Pattern("line", literal="out of process ids")))
    values = "".join(f"iteration {n}/99 loss {'nan' if 10 < n < 15 else 2.0}\n" for n in range(1, 40))
    known = facts(scanned(values + end, book))
    assert order(rank(find(book, known, History()).findings, known))[0] == first


TYPE = rule("type", "code_bug", Pattern("t", exception=ExceptionTest(type="TypeError")))
FULL = replace(rule("full", "cuda_oom", Pattern("f", exception=ExceptionTest(type="MemoryError"))), explains=("type",))
RAISED = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    step()\n{}: no\n'


@pytest.mark.parametrize(
    ("between", "folded"),
    [("\nDuring handling of the above exception, another exception occurred:\n\n", True), ("next try\n" * 60, False)],
)
def test_an_exception_that_ends_another_start_of_the_program_has_its_own_reason(between: str, folded: bool) -> None:
    """What one process raises after its end is raised by another start; only in one chain does one follow from the other."""
    text = RAISED.format("MemoryError") + between + RAISED.format("TypeError")
    known = facts(scanned(text, rulebook(FULL, TYPE)))
    places = rank(find(rulebook(FULL, TYPE), known, History()).findings, known)
    assert [item.best.rule.id for item in places] == (["full"] if folded else ["full", "type"])


@pytest.mark.parametrize(("generic", "first"), [(True, "code_bug"), (False, "peer_failure")])
def test_a_generic_match_accounts_only_for_another_generic_one(*, generic: bool, first: str) -> None:
    """The abort that a launcher reports after it stopped the others came before that, although its line comes later."""
    aborted = rule(
        "aborted", "code_bug", Pattern("line", literal="abort"), role="symptom", fallback=True, explains=("stopped",)
    )
    stopped = rule("stopped", "peer_failure", LINE, role="symptom", fallback=generic)
    found = ranked(
        aborted, stopped, streams=(stream(found={"stopped#line": at(100, 10.0), "aborted#line": at(900, 17.0)}),)
    )
    assert order(found)[0] == first
