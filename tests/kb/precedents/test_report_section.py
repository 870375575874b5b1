"""The part of a report about past incidents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kb.digest.rows import DigestRow
from kb.facts.evidence import Evidence
from kb.facts.history import EarlierAttempt, ExcludedNode, History, PastIncident
from kb.model import Job, ProgressPoint
from kb.precedents.advice_outcomes import AdviceStep
from kb.precedents.history import EarlierIncident, history_of, with_attempts
from kb.precedents.incident_trace import FaultPlace, IncidentTrace, trace_of
from kb.precedents.phrases import sentences
from kb.precedents.report_section import SURE, Precedents, remembered
from kb.precedents.signature import FaultLibrary
from kb.report import Decision, Diagnosis, Exclusion, GpuRef, Progress, Report, Suspect, Versions
from kb.scanning.summary import StreamSummary, series_of
from tests.support.common.precedent_samples import LOST, known, report
from tests.support.kb_samples import ref

DAY = 86400.0
NOW = 1_772_366_400.0
BARE = Report("", "", "fault", "failed", "It failed.", Versions("1", "1", "", "1"))
OOM = Diagnosis(1, "cuda_oom", "oom", 1, "", "", 0.9, "likely", "root_cause", suspects=(Suspect("rank", "gpu-017", 3),))
TITLES = {"gpu_memory_ecc": "GPU memory error", "cuda_oom": "GPU memory exhausted", "data_error": "Data fault"}
DOMAINS = {"gpu_memory_ecc": "hardware", "cuda_oom": "software"}


def row(number: int, days: float, **parts: object) -> DigestRow:
    """An earlier incident, so many days earlier."""
    values: dict[str, object] = {"verdict": "fault", "phase": "failed", "job": f"j{number}", "fault": "gpu_memory_ecc"}
    at = NOW - days * DAY
    return DigestRow(id=number, at=at, made=at, **{**values, **parts})  # type: ignore[arg-type]


def past(*earlier: EarlierIncident, **parts: object) -> Precedents:
    """What is remembered, with the history made of it."""
    values = {"at": NOW, "titles": TITLES, "domains": DOMAINS, "history": history_of(earlier, NOW)}
    return Precedents(earlier=earlier, **{**values, **parts})  # type: ignore[arg-type]


def remembered_sentences(item: Report, evidence: Evidence | None = None, known_: Precedents | None = None) -> list[str]:
    """The sentences about it in the report."""
    return list(sentences(remembered(item, evidence or Evidence(), known_ or past()).memory))


def test_a_node_that_failed_other_jobs_is_reported_with_their_incidents() -> None:
    """Out of memory on a node whose GPU failed another job: the earlier failure is reported, too."""
    earlier = [
        EarlierIncident(row(32, 12, nodes=("gpu-017",), fault="gpu_fell_off_bus")),
        EarlierIncident(row(31, 4, nodes=("gpu-017",))),
        EarlierIncident(row(33, 1, nodes=("gpu-020",))),
        EarlierIncident(row(34, 2, nodes=("gpu-017",), chain="own"), own=True),
    ]
    found = remembered(replace(BARE, diagnoses=(OOM,)), Evidence(), past(*earlier)).memory.recalled
    assert [(recalled.kind, recalled.text, recalled.incidents) for recalled in found] == [
        (
            "node",
            (
                "gpu-017 also failed 2 other jobs in the 30 days before (1 in the last 7): "
                "gpu_memory_ecc 4 days earlier (incident 31), gpu_fell_off_bus 12 days earlier (incident 32)"
            ),
            (31, 32),
        )
    ]


def test_a_failure_of_a_program_is_not_held_against_its_node() -> None:
    """Unless people named the node when they closed it."""
    ran_out = EarlierIncident(row(3, 1, nodes=("gpu-017",), fault="cuda_oom"))
    assert remembered_sentences(replace(BARE, diagnoses=(OOM,)), known_=past(ran_out)) == []
    named = row(4, 1, cause="fault", said_fault="cuda_oom", said_nodes=("gpu-017",), closed=True)
    assert remembered_sentences(replace(BARE, diagnoses=(OOM,)), known_=past(EarlierIncident(named))) == [
        "gpu-017 also failed 1 other job in the 7 days before: cuda_oom 24 h earlier (incident 4)."
    ]


def test_a_job_counts_once_however_often_it_was_tried() -> None:
    """Three tries of one other job are one job."""
    earlier = [EarlierIncident(row(n, 3 - n, nodes=("gpu-017",), chain="c")) for n in (1, 2)]
    assert remembered_sentences(replace(BARE, diagnoses=(OOM,)), known_=past(*earlier)) == [
        "gpu-017 also failed 1 other job in the 7 days before: gpu_memory_ecc 24 h earlier (incident 2)."
    ]


def test_nodes_that_nobody_suspects_are_reported_where_they_failed_several_jobs_by_themselves() -> None:
    """Only for hardware and network: a failure of a user's code is not evidence against the node."""
    run = Evidence(job=Job(nodes={"gpu-017": (0,), "gpu-018": (1,)}))
    twice = [EarlierIncident(row(n, n, nodes=("gpu-018",))) for n in (1, 2)]
    code = [EarlierIncident(row(n, n, nodes=("gpu-017",), fault="cuda_oom")) for n in (3, 4)]
    once = [EarlierIncident(row(5, 5, nodes=("gpu-017",)))]
    found = remembered_sentences(report(LOST), run, past(*twice, *code, *once))
    assert [text.partition(" also")[0] for text in found] == ["gpu-018"]


def test_what_people_reported_goes_before_what_was_diagnosed() -> None:
    """Closed as another fault on another node; or as nothing that has a fault."""
    said = row(1, 1, nodes=("gpu-017",), cause="fault", said_fault="cuda_oom", said_nodes=("gpu-020",), closed=True)
    none = row(2, 1, nodes=("gpu-017",), cause="no_rule", closed=True)
    history = history_of([EarlierIncident(said), EarlierIncident(none)], NOW)
    assert history.past == (PastIncident("", "cuda_oom", 1.0, "gpu-020", None, None),)


def test_rules_are_reported_of_all_faults_with_their_places() -> None:
    """Also of those that were not the first: the GPU that failed behind an out-of-memory."""
    trace = IncidentTrace(
        (FaultPlace("oom", "cuda_oom", "gpu-1"), FaultPlace("ecc", "gpu_memory_ecc", "gpu-1", "0000:5d:00"))
    )
    earlier = EarlierIncident(row(1, 2.5, nodes=("gpu-1",), name="llm"), trace=trace)
    assert history_of([earlier], NOW).past == (
        PastIncident("ecc", "gpu_memory_ecc", 2.5, "gpu-1", "0000:5d:00", "llm"),
        PastIncident("oom", "cuda_oom", 2.5, "gpu-1", None, "llm"),
    )
    sound = EarlierIncident(row(1, 2, verdict="no_fault", phase="completed"), trace=trace)
    assert history_of([sound], NOW) == History()


def test_the_digest_covers_all_that_was_reported() -> None:
    """The same past gives the same digest; another try, another bar, another one."""
    one = EarlierIncident(row(1, 1), own=True, reached=5)
    bar = ExcludedNode("n", "cluster", "2026-01-01", "ana")
    found = [history_of([one], NOW), history_of([one], NOW), history_of([replace(one, reached=6)], NOW)]
    found.append(history_of([one], NOW, [bar]))
    assert found[0] == found[1]
    assert len({each.digest for each in found}) == 3
    assert history_of([], NOW).digest == ""


def test_attempts_of_the_bundle_come_with_what_the_store_knows() -> None:
    """The store's tries have numbers and go before."""
    attempts = History((PastIncident("r", "f", 0.0),), "x", (EarlierAttempt(("f",)),))
    stored = history_of([EarlierIncident(row(1, 1), own=True)], NOW)
    both = with_attempts(stored, attempts)
    assert [past_incident.fault for past_incident in both.past] == ["f", "gpu_memory_ecc"]
    assert [earlier_attempt.incident for earlier_attempt in both.tries] == [1]
    assert with_attempts(stored, History()) is stored
    assert with_attempts(History(), attempts).tries == attempts.tries


# --- the job's own tries ---------------------------------------------------------------------------------------------


def ended(step: int | None, *steps: int, tail: str = "") -> tuple[Report, Evidence]:
    """A run that ended at a step; `steps`: the steps in its log."""
    points = [ProgressPoint(n, item, None) for n, item in enumerate(steps)] if steps else []
    stream = StreamSummary(ref("logs/0.log"), series=series_of(points, len(points), 0), tail=tail)
    return replace(BARE, progress=Progress(step)), Evidence(streams=(stream,))


def tries(*reached: int | None, shards: Sequence[tuple[str, ...]] = ()) -> Precedents:
    """The job's own tries before."""
    traces = [IncidentTrace(shards=shard) for shard in shards] or [IncidentTrace()] * len(reached)
    own = [
        EarlierIncident(row(n, 9 - n), own=True, reached=at, trace=trace)
        for n, (at, trace) in enumerate(zip(reached, traces, strict=True), 1)
    ]
    return past(*own)


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ((120,), "it ended at step 120, like the try before"),
        ((120, 120), "it ended at step 120, like the 2 tries before"),
        ((50, 128), "it ended at step 120, like the try before"),
        ((50,), ""),
        ((None,), ""),
        ((50, 300), "each try ended at another step (50, 300, 120)"),
        ((50, 50), ""),
    ],
)
def test_the_same_step_or_never_the_same(before: tuple[int | None, ...], kind: str) -> None:
    """Steps are logged every ten, so 120 and 128 are equal. Two ends at different steps yield nothing."""
    found = remembered_sentences(*ended(120, 100, 110, 120), tries(*before))
    assert (found[0][:1].lower() + found[0][1:]).startswith(kind) if kind else found == []


def test_the_same_part_of_the_data_at_each_end() -> None:
    """Only while all of the last ones have it."""
    run = ended(None, tail="opening shard-1.tar\nopening shard-7.tar\n")
    same = tries(None, None, None, shards=[("shard-9.tar",), ("shard-7.tar", "x-1.tar"), ("shard-7.tar",)])
    assert remembered_sentences(*run, same) == [
        "The same part of the data was being read at the last 3 failures: shard-7.tar; check it first (incidents 3, 2)."
    ]
    assert remembered_sentences(*run, tries(None, shards=[("shard-8.tar",)])) == []


def test_with_many_readers_some_part_is_always_the_same() -> None:
    """It is not reported unless the deciding lines name one of them."""
    logs = [StreamSummary(ref(f"logs/{n}.log"), tail=f"shard {n}\nshard {n + 10}\n") for n in range(4)]
    same = tries(None, shards=[tuple(f"shard {n + 10}" for n in range(4))])
    assert remembered_sentences(BARE, Evidence(streams=tuple(logs)), same) == []
    named = report("ValueError: cannot decode shard 12", verdict="fault")
    assert remembered_sentences(named, Evidence(streams=tuple(logs)), same) == [
        "The same part of the data is named at the last 2 failures: shard 12; check it first (incident 1)."
    ]


def test_an_excluded_node_that_is_used_again_is_reported() -> None:
    """With the reason for the exclusion."""
    bars = (ExcludedNode("gpu-017", "cluster", "2026-02-01", "ana", "ECC twice"),)
    assert remembered_sentences(BARE, known_=past(history=History(barred=bars))) == [
        "gpu-017 was excluded for the cluster on 2026-02-01 by ana, but is in use again: ECC twice."
    ]


# --- likeness --------------------------------------------------------------------------------------------------------


def test_where_no_rule_knows_it_a_likeness_is_the_answer() -> None:
    """In the summary, with what helped; the class by its title."""
    library = FaultLibrary([known(42, LOST)])
    found = remembered(replace(report(LOST), summary="No rule knows it."), Evidence(), past(library=library))
    assert found.summary == (
        "No rule knows it. It looks the same as incident 42, closed as: Data fault; what helped: reseated it."
    )
    assert (found.memory.alike[0].incident, found.memory.alike[0].fault) == (42, "data_error")


def test_where_a_rule_knows_it_a_likeness_changes_nothing_but_the_hint() -> None:
    """Diagnoses, decision and summary do not change."""
    one = report(LOST, verdict="fault")
    found = remembered(one, Evidence(), past(library=FaultLibrary([known(42, LOST)])))
    assert (found.diagnoses, found.decision, found.summary) == (one.diagnoses, one.decision, one.summary)
    assert [each.incident for each in found.memory.alike] == [42]


def test_a_faint_likeness_is_told_only_where_the_cause_is_not_clear() -> None:
    """A third of the words of another incident say nothing beside a likely cause."""
    theirs = "safetensors_rust.SafetensorError: I/O error: No space left on device (os error 28)"
    library = FaultLibrary(
        [known(42, theirs, "Trainer.save_model failed after the last step", "wandb: run stopped early")]
    )
    told = {
        band: remembered(
            replace(one, diagnoses=tuple(replace(item, band=band) for item in one.diagnoses)),
            Evidence(),
            past(library=library),
        ).memory.alike
        for one in [report("OSError: [Errno 28] No space left on device: '/tmp/md.step-400.ckpt'", verdict="fault")]
        for band in ("likely", "possible")
    }
    (faint,) = told["possible"]
    assert faint.similarity < SURE
    assert told["likely"] == ()


def test_a_run_in_which_nothing_failed_is_reported_nothing() -> None:
    """And keeps its id."""
    one = replace(BARE, verdict="no_fault", id="x")
    assert remembered(one, Evidence(), past(library=FaultLibrary([known(42, LOST)]))) is one


def test_the_same_past_gives_the_same_report_and_another_one_another_id() -> None:
    """Even without a sentence about it, the digest is in the report."""
    one = replace(BARE, diagnoses=(OOM,))
    steps = (AdviceStep("cuda_oom", "requeue", 1, tried=True, next_reached=2),)
    ids = [
        remembered(one, Evidence(), each).id
        for each in (past(), past(), past(steps=steps), past(EarlierIncident(row(1, 2))))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_how_advice_fared_is_told_of_the_same_known_fault_only() -> None:
    """Failures of unknown cause have no fault in common, whatever class their first lead has."""
    steps = (AdviceStep("cuda_oom", "requeue", 1, tried=True, next_reached=2),)
    known_fault = replace(BARE, diagnoses=(OOM,))
    assert remembered_sentences(known_fault, known_=past(steps=steps)) == [
        "Requeueing helped 1 of 1 time for this fault here."
    ]
    for unknown in (
        replace(known_fault, verdict="no_match"),
        replace(BARE, diagnoses=(replace(OOM, rule=""),)),
    ):
        assert remembered_sentences(unknown, known_=past(steps=steps)) == []


# --- what an incident leaves -----------------------------------------------------------------------------------------


def test_what_an_answer_leaves_for_later_ones() -> None:
    """More than a guess, with its places; the nodes as a digest; those to be left out."""
    who = (Suspect("gpu", "gpu-1", gpu=GpuRef(pci="0000:5d:00")), Suspect("rank", "gpu-2", 3))
    ecc = replace(OOM, fault="gpu_memory_ecc", rule="ecc", suspects=who)
    guess = replace(OOM, band="weak")
    bare = replace(OOM, fault="code_bug", rule="bug", suspects=())
    one = replace(
        BARE, diagnoses=(ecc, guess, bare), decision=Decision("requeue_without", (Exclusion("gpu-1", "cluster", ""),))
    )
    found = trace_of(one, Evidence(job=Job(nodes={"b": (0,), "a": (1,)})))
    assert found.found == (
        FaultPlace("ecc", "gpu_memory_ecc", "gpu-1", "0000:5d:00"),
        FaultPlace("ecc", "gpu_memory_ecc", "gpu-2"),
        FaultPlace("bug", "code_bug"),
    )
    assert found.without == ("gpu-1",)
    assert found.ran_on == trace_of(one, Evidence(job=Job(nodes={"a": (1,), "b": (0,)}))).ran_on != ""
    assert trace_of(replace(BARE, verdict="no_fault"), Evidence()) == IncidentTrace()


# --- across the fleet ------------------------------------------------------------------------------------------------

NEW, OLD = {"driver_version": "580.95.05"}, {"driver_version": "570.86.15"}


def fleet(*, shared: bool) -> Precedents:
    """Five jobs of other people, each on two nodes of which one failed by its hardware; with the new driver, or whichever."""
    earlier = []
    for number in range(1, 6):
        bad, well = f"gpu-1{number}", f"gpu-2{number}"
        told_ = {bad: NEW, well: OLD} if shared or number % 2 else {bad: OLD, well: NEW}
        earlier.append(EarlierIncident(row(number, number, nodes=(bad,)), trace=IncidentTrace(installed=told_)))
    return past(*earlier)


def here(node: str, driver: str) -> Evidence:
    """A run of two nodes that say their drivers as they start."""
    heads = {node: driver, "gpu-030": OLD["driver_version"]}
    streams = [
        StreamSummary(ref(f"{name}.log", node=name), head=f"driver_version={version} api_token=0123456789\nstep 1\n")
        for name, version in heads.items()
    ]
    return Evidence(streams=tuple(streams))


def test_what_failed_nodes_share_across_jobs_is_reported() -> None:
    """A driver that all nodes that failed have, and none of the others, with the day on which it was first seen."""
    found = remembered(replace(BARE, diagnoses=(OOM,)), here("gpu-017", "580.95.05"), fleet(shared=True)).memory
    [one] = [each for each in found.recalled if each.kind == "fleet"]
    assert (one.text, one.incidents) == (
        "6 of 6 failed nodes have driver_version 580.95.05, 0 of 6 others, seen since 2026-02-24",
        (5, 4, 3, 2, 1),
    )


def test_what_chance_would_give_is_not_reported() -> None:
    """Nor what this job's suspect does not have, nor without a suspect."""
    told_by = [
        remembered(item, evidence, before).memory.recalled
        for item, evidence, before in (
            (replace(BARE, diagnoses=(OOM,)), here("gpu-017", "580.95.05"), fleet(shared=False)),
            (replace(BARE, diagnoses=(OOM,)), here("gpu-017", "570.86.15"), fleet(shared=True)),
            (BARE, here("gpu-017", "580.95.05"), fleet(shared=True)),
        )
    ]
    assert [[item.kind for item in each if item.kind == "fleet"] for each in told_by] == [[], [], []]


def test_what_a_node_runs_on_is_left_for_later_ones_without_secrets() -> None:
    """As its first lines say."""
    left = trace_of(BARE, here("gpu-017", "580.95.05"))
    assert left.installed == {"gpu-017": NEW, "gpu-030": OLD}
