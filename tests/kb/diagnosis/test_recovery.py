"""What to do by the grade of the fault, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.findings import find
from kb.diagnosis.ranking import rank
from kb.diagnosis.recovery import Price, RunFacts, decide, listed, price
from kb.facts.evidence import Evidence
from kb.facts.history import EarlierAttempt, ExcludedNode, History, nodes_digest
from kb.facts.job_facts import Facts
from kb.model import Job, ProgressPoint, Resource, Structure
from kb.report import Exclusion, Progress, Suspect
from kb.rulebase.rule import FaultClass, Pattern, StructureTest, Table, TableRow
from tests.support.allowed_matches import BOOK, LINE, places, seen
from tests.support.kb_samples import facts, place, ref, rule, rulebook, steps, stream


@pytest.mark.parametrize(
    ("done", "lost"),
    [
        (Progress(last_iteration=1198, last_checkpoint=1000), 198),
        (Progress(last_iteration=900, last_checkpoint=1000), 0),
        (Progress(last_iteration=900), None),
        (Progress(last_checkpoint=900), None),
    ],
)
def test_the_steps_that_are_lost(done: Progress, lost: int | None) -> None:
    """Those since the last complete checkpoint; not known where one of the two is not."""
    known = seen("oom")
    assert decide(BOOK, places(known), (), RunFacts(done)).steps_lost == lost
    assert decide(BOOK, [], (), RunFacts(done)).steps_lost == lost
    assert decide(BOOK, [], (), RunFacts(done)).advice == "none"


@pytest.mark.parametrize(
    ("done", "every", "most"),
    [
        (Progress(last_iteration=1200, last_checkpoint=1200), 1, 0),
        (Progress(last_iteration=1200, last_checkpoint=1200), 10, 9),
        (Progress(last_iteration=1200, last_checkpoint=1000, total_iterations=1204), 10, 204),
        (Progress(last_iteration=1200), 10, None),
    ],
)
def test_steps_without_a_line_may_be_lost_too(done: Progress, every: int, most: int | None) -> None:
    """Where only every few steps are logged, those after the last line are not known to be none."""
    run = RunFacts(done, Price(logged_every=every))

    assert decide(BOOK, [], (), run).steps_lost_at_most == most


def test_the_distance_of_logged_steps() -> None:
    """It is what most neighbours have, so that a restart of the count does not change it."""
    logged = [ProgressPoint(100 * place, step) for place, step in enumerate((10, 20, 30, 10, 20))]

    assert price(facts(stream(points=logged))).logged_every == 10
    assert price(facts(stream())).logged_every == 1


NODES = (
    Suspect("gpu", node="node-b", rank=3),
    Suspect("rank", node="node-a", rank=1),
    Suspect("node", node="node-b"),
    Suspect("rank", rank=9),
)


@pytest.mark.parametrize(
    ("name", "advice", "owner", "exclude"),
    [
        ("ecc", "requeue_without", "hardware", [("node-b", "cluster"), ("node-a", "cluster")]),
        ("link", "requeue_without", "none", [("node-b", "job"), ("node-a", "job")]),
        ("oom", "fix_first", "user", []),
        ("preempted", "requeue", "none", []),
    ],
)
def test_advice_and_the_nodes_to_leave_out(name: str, advice: str, owner: str, exclude: list[tuple[str, str]]) -> None:
    """Hardware is taken out of the cluster, links out of the job; a fault in the code excludes no node."""
    known = seen(name)
    decision = decide(BOOK, places(known), NODES, RunFacts())
    assert (decision.advice, decision.owner) == (advice, owner)
    assert [(item.node, item.scope) for item in decision.exclude] == exclude


def test_a_lock_up_that_comes_again_wants_a_person() -> None:
    """Once, it may be transient; twice, it is a fault of the program."""
    book = rulebook(rule("stuck", "deadlock", LINE))
    known = facts(stream(found={"stuck#line": [place(5000)]}, points=steps(1, 9)))
    ranked = rank(find(book, known, History()).findings, known)
    assert decide(book, ranked, (), RunFacts()).advice == "requeue"
    before = History(tries=(EarlierAttempt(("deadlock",)),))
    assert decide(book, ranked, (), RunFacts(history=before)).advice == "fix_first"


def test_a_fault_without_advice_of_its_own_has_that_of_its_class() -> None:
    """A row's advice comes before the rule's, and the rule's before that of its class; each with its reason."""
    best = places(seen("oom"))[0].best
    assert listed(best) == ("fix_first", "GPU memory exhausted")
    by_rule = replace(best, rule=replace(best.rule, advice="resubmit", because="A smaller batch fits"))
    assert listed(by_rule) == ("resubmit", "A smaller batch fits")
    by_row = replace(by_rule, row=TableRow("k", "Row", advice="wait", because="The service is down"))
    assert listed(by_row) == ("wait", "The service is down")
    of_another_fault = replace(by_rule, row=TableRow("k", "Row", fault="cuda_oom"))
    assert listed(of_another_fault)[0] == "fix_first"


def test_a_symptom_is_no_cause() -> None:
    """Where only a symptom is known, or nothing, the cause is to be found."""
    ranked = places(seen("preempted"))
    symptom = replace(ranked[0], findings=(replace(ranked[0].best, role="symptom"),))
    decision = decide(BOOK, [symptom], (), RunFacts())
    assert (decision.advice, decision.find_cause) == ("fix_first", True)
    assert not decide(BOOK, ranked, (), RunFacts()).find_cause
    unexplained = decide(BOOK, [], (), RunFacts(unexplained=True))
    assert (unexplained.advice, unexplained.find_cause) == ("fix_first", True)


def at_its_limit(done: Progress, *tries: EarlierAttempt, saved: bool = False) -> str:
    """The advice for a run that reached its time limit."""
    book = rulebook(rule("limit", "preempted", LINE))
    limit = FaultClass("time_limit", "platform", "Time limit", advice="requeue")
    known = facts(stream(found={"limit#line": [place(5000)]}, points=steps(1, 9)))
    ranked = rank(find(book, known, History()).findings, known)
    ranked = [replace(item, findings=(replace(item.best, fault=limit),)) for item in ranked]
    return decide(book, ranked, (), RunFacts(done, history=History(tries=tries), saved=saved)).advice


def test_a_run_gets_past_its_time_limit_only_from_a_new_checkpoint() -> None:
    """Without one it ends at the same step again, and so does a run that comes no further than the attempt before."""
    last = EarlierAttempt(("time_limit",), "requeue", reached=900, incident=7)
    assert at_its_limit(Progress(900, None, 800)) == "requeue"
    assert at_its_limit(Progress()) == "resubmit"  # what it does is not logged, and it may do all of it again
    assert at_its_limit(Progress(), saved=True) == "requeue"
    assert at_its_limit(Progress(900)) == "resubmit"
    assert at_its_limit(Progress(1400, None, 1300), last) == "requeue"
    assert at_its_limit(Progress(900, None, 800), last) == "resubmit"


def test_the_scheduler_says_why_it_stopped_a_job() -> None:
    """A bare SIGTERM from outside is a symptom; with the scheduler's reason it is not."""
    ranked = places(seen("preempted"))
    symptom = [replace(ranked[0], findings=(replace(ranked[0].best, role="symptom"),))]
    assert decide(BOOK, symptom, (), RunFacts()).advice == "fix_first"
    told = decide(BOOK, symptom, (), RunFacts(stopped="preempted"))
    assert (told.advice, told.find_cause) == ("requeue", False)
    assert decide(BOOK, places(seen("oom")), (), RunFacts(stopped="preempted")).advice == "fix_first"


def test_a_checkpoint_of_wrong_numbers_is_not_resumed() -> None:
    """One that was written after the loss went wrong holds the wrong weights."""
    ranked = places(seen("spike"))
    wrong = FaultClass("loss_not_finite", "training", "Not finite", outlives=True)
    ranked = [replace(ranked[0], findings=(replace(ranked[0].best, fault=wrong),))]
    step = ranked[0].best.first.iteration
    assert step is not None
    later = decide(BOOK, ranked, (), RunFacts(Progress(step + 9, None, step + 5)))
    assert (later.from_checkpoint, later.steps_lost) == (None, None)
    before_it = decide(BOOK, ranked, (), RunFacts(Progress(step + 9, None, step - 1)))
    assert (before_it.from_checkpoint, before_it.steps_lost) == (step - 1, 10)


def test_a_job_may_be_preempted_any_number_of_times() -> None:
    """Neither other nodes nor a person are called for it."""
    last = EarlierAttempt(("preempted",), "requeue", ran_on=nodes_digest(["a", "c"]), incident=41)
    for nodes in (frozenset({"a", "b"}), frozenset({"a", "c"})):
        run = RunFacts(history=History(tries=(last, last)), nodes=nodes)
        assert decide(BOOK, places(seen("preempted")), (), run).advice == "requeue"


def test_a_node_that_is_not_named_cannot_be_left_out() -> None:
    """The advice is given all the same, and names what is missing."""
    known = seen("ecc")
    decision = decide(BOOK, places(known), (Suspect("rank", rank=9), Suspect("job")), RunFacts())
    assert (decision.advice, decision.exclude, decision.find_cause) == ("requeue_without", (), True)
    assert "node is not known" in decision.why
    assert not decide(BOOK, places(known), NODES, RunFacts()).find_cause


def test_the_row_of_a_table_says_why_a_node_is_left_out() -> None:
    """Rather than the rule, which speaks for a whole catalogue."""
    table = Table("xid", {"48": TableRow("48", "Double-bit error")})
    book = rulebook(rule("x", "gpu_memory_ecc", Pattern("line", structure=StructureTest("xid")), table=table))
    one = Structure("xid", 10, 50, "NVRM: Xid", {"xid": 48}, Resource(node="node-c"))
    known = facts(stream(ref("dmesg.log", node="node-c", kind="kernel"), structures=[one]))
    ranked = rank(find(book, known, History()).findings, known)
    decision = decide(book, ranked, (Suspect("node", node="node-c"),), RunFacts())
    assert decision.exclude == (Exclusion("node-c", "cluster", "Double-bit error"),)


def test_a_fault_that_only_comparison_shows_bars_a_node_for_this_job_alone() -> None:
    """The node is not known to be broken; it only differs from its peers."""
    book = rulebook(rule("slow", "gpu_memory_ecc", Pattern("observed", structure=StructureTest("peer_outlier"))))
    one = Structure("peer_outlier", 0, 1, "node-c is slow", {}, Resource(node="node-c"))
    known = facts(stream(ref("metrics.json", node="node-c", kind="health"), structures=[one]))
    ranked = rank(find(book, known, History()).findings, known)
    decision = decide(book, ranked, (Suspect("node", node="node-c"),), RunFacts())
    assert [(item.node, item.scope) for item in decision.exclude] == [("node-c", "job")]
    nobody = decide(book, ranked, (), RunFacts())
    assert nobody.advice == "restart_in_place"
    before = History(tries=(EarlierAttempt(("gpu_memory_ecc",)),))
    assert decide(book, ranked, (), RunFacts(history=before)).advice == "resubmit"


def test_steps_done_again_cost_gpu_hours() -> None:
    """GPUs times steps times the length of a step; where one is not known neither is the price."""
    assert Price(8, 9.0).hours(100) == 2.0
    assert Price(8, 9.0, 450.0).hours(100, start_up=True) == 3.0
    assert Price(None, 9.0).hours(100) is None
    assert Price(8).hours(100) is None
    assert Price(8).hours(0) == 0.0
    decision = decide(BOOK, places(seen("ecc")), NODES, RunFacts(Progress(1198, None, 1000), Price(16, 10.0)))
    assert decision.gpu_hours_lost == 8.8
    assert {option.advice for option in decision.options} == {"requeue_without", "restart_in_place", "resubmit"}
    assert {option.gpu_hours for option in decision.options} == {8.8}
    assert decide(BOOK, places(seen("oom")), NODES, RunFacts()).options == ()


def test_the_price_comes_from_the_jobs_size_and_its_last_steps() -> None:
    """The median length of a step; without it, the times between steps; the first step gives the start-up time."""
    size = Job(world_size=64, gpus=64, start=0.0)
    told = Facts(Evidence(size, streams=(stream(points=steps(1, 40, seconds=6.5)),)))
    assert price(told) == Price(64, 6.5)
    timed = [replace(step, time=600.0 + 5.0 * (step.step or 0)) for step in steps(1, 40)]
    known = Facts(Evidence(size, streams=(stream(points=timed),)))
    assert price(known) == Price(64, 5.0, 605.0)
    assert price(Facts(Evidence())) == Price()


# --- what was tried before -------------------------------------------------------------------------------------------

STUCK = rulebook(rule("stuck", "peer_failure", LINE, role="symptom"))
HERE, ELSEWHERE = nodes_digest(["a", "b"]), nodes_digest(["a", "c"])


def tried(
    *tries: EarlierAttempt, nodes: str = "ab", barred: tuple[ExcludedNode, ...] = ()
) -> tuple[str, str, list[str]]:
    """The decision on a lost peer, which wants a restart in place, after these tries: advice, why, nodes to leave out."""
    known = facts(stream(found={"stuck#line": [place(5000)]}, points=steps(1, 9)))
    ranked = rank(find(STUCK, known, History()).findings, known)
    run = RunFacts(history=History(tries=tries, barred=barred), nodes=frozenset(nodes))
    decision = decide(STUCK, ranked, (), run)
    return decision.advice, decision.why, [item.node for item in decision.exclude]


def before(number: int, advice: str = "restart_in_place", ran_on: str = "", **parts: object) -> EarlierAttempt:
    """A try that ended with the same lost peer."""
    return EarlierAttempt(("peer_failure",), advice, ran_on=ran_on, incident=number, **parts)  # type: ignore[arg-type]


def test_after_a_restart_on_the_same_nodes_others_are_taken() -> None:
    """Those of the advice, or those that the job really had."""
    assert tried()[0] == "restart_in_place"
    assert tried(before(40), nodes="")[0] == "resubmit"
    assert tried(before(40, "requeue_without", HERE))[0] == "resubmit"


def test_after_other_nodes_a_person_must_look() -> None:
    """It came back on nodes that it had not had before."""
    advice, why, _ = tried(before(40, ran_on=ELSEWHERE))
    assert advice == "fix_first"
    assert why.endswith("the failure recurred on other nodes (incident 40). Have a person investigate and fix it")
    assert tried(before(40), before(41, "resubmit"), nodes="")[0] == "fix_first"


def test_another_fault_in_between_begins_anew() -> None:
    """What was tried against one fault is no evidence for another one."""
    assert tried(before(40, ran_on=ELSEWHERE), EarlierAttempt(("code_bug",)))[0] != "fix_first"


def test_a_node_that_was_to_be_left_out_and_was_not() -> None:
    """The advice was not tried, so it is repeated and says so."""
    known = seen("ecc")
    last = EarlierAttempt(("gpu_memory_ecc",), "requeue_without", ("node-b",), ELSEWHERE, 41)
    run = RunFacts(history=History(tries=(last,)), nodes=frozenset({"node-a", "node-b"}))
    decision = decide(BOOK, places(known), NODES, run)
    assert decision.advice == "requeue_without"
    assert decision.why.endswith("node-b should have been excluded (incident 41) but was used again")


def test_the_same_fault_on_another_named_node_is_left_out_too() -> None:
    """Two bad GPUs in a row are not a fault of the program, but possibly of what the nodes share."""
    known = seen("ecc")
    last = EarlierAttempt(("gpu_memory_ecc",), "requeue_without", ("node-x",), ELSEWHERE, 41)
    run = RunFacts(history=History(tries=(last,)), nodes=frozenset({"node-a", "node-b"}))
    decision = decide(BOOK, places(known), NODES, run)
    assert (decision.advice, [item.node for item in decision.exclude]) == ("requeue_without", ["node-b", "node-a"])
    assert decision.why.endswith("the failure recurred on other nodes (incident 41). Look for what they share")


def test_excluded_nodes_are_left_out_of_a_restart() -> None:
    """A restart in place would use them again; those that this job does not have are not its matter."""
    bars = (ExcludedNode("b", "cluster", "2026-02-01", "ana", "ECC"), ExcludedNode("z", "cluster", "2026-02-01", "ana"))
    assert tried(barred=bars) == ("requeue_without", "A peer was lost; b is excluded already", ["b"])
    known = seen("ecc")
    run = RunFacts(
        history=History(barred=(ExcludedNode("node-b", "job", "2026-02-01", "ana"),)), nodes=frozenset({"node-b"})
    )
    assert [item.node for item in decide(BOOK, places(known), NODES, run).exclude] == ["node-b", "node-a"]
