"""The store's history of a job, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from bot.handlers.successful_runs import SuccessfulRun, record_successful_run
from bot.incidents.exclusions import ExclusionRequest
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.precedents import TRACE, PrecedentScope, moment, recall_within, recaller, traced, whose
from bot.incidents.resolution import Closing
from bot.notify.announce import assign_chain
from bot.policy.routing import JobFacts, link_of
from bot.render.report_json import dumps
from bot.rulebase.loader import Knowledge
from bot.store.database import StoreError
from bot.store.packed_reports import Origin, file
from bot.store.report_writes import add_within
from bot.store.tables import IncidentRow
from kb.facts.evidence import Evidence, logs_digest
from kb.facts.history import EarlierAttempt
from kb.model import Attempt, Gap, Job
from kb.precedents.advice_outcomes import outcomes
from kb.precedents.incident_trace import FaultPlace, IncidentTrace
from kb.precedents.report_section import Precedents
from kb.report import Decision, JobView, Outcomes, Progress, Report
from kb.rulebase.rule import FaultClass
from kb.scanning.summary import StreamSummary
from tests.support.bot_samples import FALLEN_GPU, HEALTHY
from tests.support.kb_samples import ref
from tests.support.paths import DEMO

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
FAULTS = {"gpu_fell_off_bus": FaultClass("gpu_fell_off_bus", "hardware", "A GPU is lost")}


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """An empty store."""
    with Ledger(database) as made:
        yield made


def facts(job: str = "100", **parts: object) -> JobFacts:
    """A job of ana's."""
    return JobFacts(**{"tenant": "default", "cluster": "c1", "id": job, "name": "llm-70b", "user": "ana", **parts})  # type: ignore[arg-type]


def add(
    ledger: Ledger,
    hours: float,
    job: str = "100",
    *,
    report: Report = FALLEN_GPU,
    trace: IncidentTrace | None = None,
    at: datetime = NOW,
    attempt: int | None = None,
    reached: int | None = None,
    advice: str = "restart_in_place",
    **told: object,
) -> int:
    """An incident of a job that ended so many hours before now; its number."""
    who = facts(job, **told)
    ended = at - hours * HOUR
    one = replace(
        report,
        id=f"{job} {hours} {attempt}",
        job=JobView(job, who.name, attempt, owner=who.user),
        decision=Decision(advice),  # type: ignore[arg-type]
        progress=Progress(reached),
    )
    kept = {TRACE: msgspec.json.encode(trace)} if trace is not None else {}
    filed = file(dumps(one), one, b"", None, ended + HOUR / 60, origin=Origin(who.tenant, who.cluster, ended, kept))
    with ledger.database.session(write=True) as session:
        number = add_within(session, filed)
        assign_chain(session, session.get_one(IncidentRow, number), link_of(who), ended)
    return number


def recall(
    ledger: Ledger, job: str = "200", who: PrecedentScope | None = None, at: datetime = NOW, **parts: object
) -> Precedents:
    """Return the history of a job that ends now."""
    evidence = Evidence(Job(**{"id": job, "name": "llm-70b", "owner": "ana", "end": at.timestamp(), **parts}))  # type: ignore[arg-type]
    with ledger.database.session() as session:
        return recall_within(session, evidence, who or whose(facts(job)), FAULTS, NOW + HOUR)


def numbers(past: Precedents, *, own: bool | None = None) -> list[int]:
    """Return the incidents in the history, oldest first."""
    return [item.row.id for item in past.earlier if own is None or item.own is own]


def test_earlier_incidents_of_the_tenant_and_the_cluster(ledger: Ledger) -> None:
    """Incidents of other tenants and clusters, later ones and those older than thirty days are left out."""
    first = add(ledger, 50, "1", name="a")
    second = add(ledger, 3, "2", name="b", user="bob")
    add(ledger, 2, "3", cluster="c2")
    add(ledger, 2, "4", tenant="other")
    add(ledger, -1, "5")
    add(ledger, 31 * 24, "6")
    assert numbers(recall(ledger)) == [first, second]
    assert numbers(recall(ledger), own=True) == []
    assert {past_incident.node for past_incident in recall(ledger).history.past} == {"gpu-017"}


def test_the_tries_of_a_job_are_reported_from_other_jobs(ledger: Ledger) -> None:
    """The requeued job itself, jobs of the same name and user within a day, and those in their chain."""
    first = add(ledger, 60, "100", attempt=1, reached=10, advice="requeue_without")
    second = add(ledger, 20, "150", reached=20, name="llm-70b")
    other = add(ledger, 5, "300", name="else", user="bob")
    past = recall(ledger)
    assert numbers(past, own=True) == [second]
    assert numbers(recall(ledger, "100", attempt=2), own=True) == [first, second]
    assert numbers(past, own=False) == [first, other]
    assert past.history.tries == (
        EarlierAttempt(("gpu_fell_off_bus",), "restart_in_place", incident=second, reached=20),
    )


def test_without_a_scheduler_tries_are_reported_by_id_and_name(ledger: Ledger) -> None:
    """As of a bundle on the command line; a name that says nothing ties nothing together."""
    own = add(ledger, 3, "100", name="llm-70b")
    add(ledger, 4, "101", name="bash")
    bare = PrecedentScope("default")
    assert numbers(recall(ledger, "999", bare), own=True) == [own]
    assert numbers(recall(ledger, "999", bare, owner="bob"), own=True) == []
    assert numbers(recall(ledger, "999", bare, name="bash"), own=True) == []
    assert numbers(recall(ledger, "100", bare, name="x", attempt=2), own=True) == [own]


def test_an_end_is_never_its_own_past(ledger: Ledger) -> None:
    """However often it is diagnosed: so the same report comes of it, which is kept once."""
    add(ledger, 0.002, "200", attempt=1)
    number = add(ledger, 0.001, "200")
    with ledger.database.session(write=True) as session:
        ledger_row = session.get_one(IncidentRow, number)
        ledger_row.attempt = 1
    assert numbers(recall(ledger, attempt=1)) == []
    assert len(numbers(recall(ledger, attempts=(Attempt(1), Attempt(2)), attempt=2))) == 1
    ledger.closings.annotate(number, "default", "k", Closing("ana", "cli", "right", "shown", "gpu_fell_off_bus"), NOW)
    assert [entry.incident for entry in recall(ledger, attempt=1).library.entries] == []
    assert [entry.incident for entry in recall(ledger, "777").library.entries] == [number]


def test_the_same_logs_of_a_job_are_not_its_past(ledger: Ledger) -> None:
    """A bundle and a connector may give other times of the end; attempts with numbers are told apart by these."""
    logs = (StreamSummary(ref("logs/train.log"), size=9, head="step 1\n", tail="error\n"),)
    trace = IncidentTrace(logs=logs_digest(Evidence(streams=logs)))
    number = add(ledger, 3, "200", trace=trace)

    def past(seen: tuple[StreamSummary, ...], attempt: int | None = None) -> list[int]:
        job = Job(id="200", name="llm-70b", owner="ana", end=NOW.timestamp(), attempt=attempt)
        evidence = Evidence(job, streams=seen)
        with ledger.database.session() as session:
            return numbers(recall_within(session, evidence, whose(facts("200")), FAULTS, NOW + HOUR))

    assert past(logs) == []
    assert past((replace(logs[0], tail="another error\n"),)) == [number]
    numbered = add(ledger, 2, "200", trace=trace, attempt=1)
    assert past(logs, attempt=2) == [numbered]


def test_the_same_logs_are_not_their_past_where_only_one_report_knows_the_job(ledger: Ledger) -> None:
    """Read as files first, and then by the name of the job."""
    logs = (StreamSummary(ref("logs/train.log"), size=9, head="step 1\n", tail="error\n"),)
    number = add(ledger, 3, "200", trace=IncidentTrace(logs=logs_digest(Evidence(streams=logs))))
    with ledger.database.session(write=True) as session:
        session.get_one(IncidentRow, number).job_id = None
    job = Job(id="200", name="llm-70b", owner="ana", end=NOW.timestamp())
    for seen, expected in ((logs, []), ((replace(logs[0], tail="another error\n"),), [number])):
        with ledger.database.session() as session:
            found = recall_within(session, Evidence(job, streams=seen), whose(facts("200")), FAULTS, NOW + HOUR)
        assert numbers(found) == expected


def test_a_later_report_on_the_same_end_stands_for_the_one_before(ledger: Ledger) -> None:
    """A job that was diagnosed twice failed once; a merged incident counts as part of the other."""
    add(ledger, 3, "1", attempt=1)
    second = add(ledger, 2.999, "1", attempt=1)
    third = add(ledger, 2, "2")
    assert numbers(recall(ledger, "9")) == [second, third]
    ledger.lifecycle.step(third, "default", "k", LifecycleStep("merge", "ana", "cli", other=second), NOW)
    assert numbers(recall(ledger, "9")) == [second]


def test_what_an_incident_left_is_reported_and_what_cannot_be_read_is_not(ledger: Ledger) -> None:
    """All faults with their places; a row without it gives what the row has."""
    trace = IncidentTrace(
        (FaultPlace("r", "gpu_memory_ecc", "gpu-3", "0000:5d:00"),), ("shard-1.tar",), "abc", ("gpu-3",)
    )
    add(ledger, 3, "1", trace=trace)
    bare = add(ledger, 2, "2")
    broken = add(ledger, 1, "3", trace=trace)
    with ledger.database.session(write=True) as session:
        session.connection().exec_driver_sql(f"UPDATE kept SET name = 'else' WHERE incident_id = {broken}")  # noqa: S608
    first, second, third = recall(ledger).earlier
    assert first.trace == trace
    assert (second.row.id, second.trace, third.trace) == (bare, IncidentTrace(), IncidentTrace())
    assert [place.node for place in third.places] == ["gpu-017"]


def test_how_advice_fared_is_reported_by_what_came_next(ledger: Ledger) -> None:
    """The next attempt got further, no further, or completed; failures without one are not counted."""
    for job, reached, later in (("1", 10, 20), ("2", 10, 10), ("3", 10, None), ("4", 10, None)):
        add(ledger, 40, job, name=f"n{job}", reached=reached)
        if later is not None:
            add(ledger, 30, job, name=f"n{job}", reached=later, attempt=2)
    with ledger.database.session(write=True) as session:
        record_successful_run(session, SuccessfulRun(facts("3", name="n3"), (NOW - 20 * HOUR).timestamp()), NOW)
        record_successful_run(session, SuccessfulRun(facts("9", name="n9"), (NOW - 20 * HOUR).timestamp()), NOW)
    steps = recall(ledger).steps
    assert outcomes(steps, "gpu_fell_off_bus") == (Outcomes("restart_in_place", "gpu_fell_off_bus", 2, 3, 0),)


def test_bars_in_force_of_the_jobs_own_nodes(ledger: Ledger) -> None:
    """Who confirmed is named, an id of the chat is not."""
    ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-1", why="ECC"), "ana", NOW)
    ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-2"), "U0GRACE", NOW)
    ledger.exclusions.add(ExclusionRequest("default", "c1", "gpu-9"), "ana", NOW)
    barred = recall(ledger, nodes={"gpu-1": (0,), "gpu-2": (1,)}).history.barred
    assert [(item.node, item.scope, item.since, item.who, item.why) for item in barred] == [
        ("gpu-1", "cluster", "2026-03-02", "ana", "ECC"),
        ("gpu-2", "cluster", "2026-03-02", "somebody in Slack", ""),
    ]


@pytest.mark.parametrize(
    ("end", "last", "expected"),
    [
        (NOW.timestamp() - 60, None, NOW - HOUR / 60),
        (None, NOW.timestamp() - 60, NOW - HOUR / 60),
        (NOW.timestamp() + 1e6, None, NOW),
        (None, None, None),
        (1e300, None, None),
        (float("nan"), None, None),
    ],
    ids=["the scheduler", "the last line", "a clock that is ahead", "nothing", "no time", "nan"],
)
def test_when_a_job_ended(end: float | None, last: float | None, expected: datetime | None) -> None:
    """Uses the best known time, and never one in the future."""
    streams = (StreamSummary(ref("a.log"), last_time=last),)
    assert moment(Evidence(Job(end=end), streams=streams), NOW) == expected


LATER = datetime(2027, 1, 1, tzinfo=UTC)  # than the demonstration


def test_a_diagnosis_with_a_store_says_what_it_knows_and_twice_the_same(ledger: Ledger, known: Knowledge) -> None:
    """The next try of a job whose failure was closed: its incident is named, and its step."""
    first = diagnose_bundle(known, DEMO, workers=1)
    ended_at = moment(first.evidence, LATER)
    assert ended_at is not None
    job = first.evidence.job
    filed = file(
        dumps(first.report),
        first.report,
        b"",
        None,
        ended_at,
        origin=Origin(ended_at=ended_at - HOUR, kept=traced(first)),
    )
    with ledger.database.session(write=True) as session:
        number = add_within(session, filed)
        session.get_one(IncidentRow, number).attempt = 77
    said = Closing("ana", "cli", "right", "shown", "data_error", action="copied the shard again")
    ledger.closings.annotate(number, "default", "k", said, NOW)
    ask = recaller(lambda: ledger.database, PrecedentScope(), known.rulebook.faults, lambda: LATER)
    again = [diagnose_bundle(known, DEMO, workers=1, recall=ask).report for _ in range(2)]
    assert again[0] == again[1]
    assert again[0].id != first.report.id
    assert [(alike.incident, alike.similarity, alike.helped) for alike in again[0].memory.alike] == [
        (number, 1.0, "copied the shard again")
    ]
    assert [recalled.kind for recalled in again[0].memory.recalled] == ["iteration"]
    assert replace(again[0], memory=first.report.memory, id="", decision=first.report.decision) == replace(
        first.report, id=""
    )
    assert job.id is not None


def test_a_store_that_cannot_be_asked_is_a_gap(known: Knowledge) -> None:
    """The answer does not need it."""

    def broken(_: Evidence) -> Precedents:
        raise StoreError("s.db cannot be used: disk full")

    report = diagnose_bundle(known, DEMO, workers=1, recall=broken).report
    assert report.verdict == "fault"
    assert (
        Gap(
            "not_recalled",
            "store",
            "s.db cannot be used: disk full",
            rules_out="precedents among earlier incidents",
        )
        in report.gaps
    )


def test_a_good_run_leaves_no_past(ledger: Ledger) -> None:
    """Only its success is recorded."""
    add(ledger, 3, "1", report=HEALTHY)
    assert recall(ledger).history.past == ()


OOM = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB
"""


def test_out_of_memory_on_a_node_whose_gpu_failed_another_job_is_the_gpus(
    ledger: Ledger, known: Knowledge, tmp_path: Path
) -> None:
    """A rule asks for history, and gets that of all jobs of the cluster; not that of other nodes."""
    trace = IncidentTrace((FaultPlace("xid-catalogue", "gpu_memory_ecc", "node-b", "0000:5d:00"),))
    number = add(ledger, 48, "another", trace=trace, name="x", user="bob")
    for node, fault in (("node-b", "gpu_memory_ecc"), ("node-c", "cuda_oom")):
        folder = tmp_path / node
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "rank-0.log").write_text(OOM)
        (folder / "job.yaml").write_text(
            f"id: '9'\nname: llm\nstate: FAILED\nend: '2026-03-02T12:00:00Z'\nnodes: {{{node}: [0]}}\n"
        )
        ask = recaller(
            lambda: ledger.database, PrecedentScope("default", "c1"), known.rulebook.faults, lambda: NOW + HOUR
        )
        report = diagnose_bundle(known, folder, workers=1, recall=ask).report
        assert report.diagnoses[0].fault == fault
        assert [recalled.incidents for recalled in report.memory.recalled] == ([(number,)] if node == "node-b" else [])
