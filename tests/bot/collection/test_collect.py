"""Finding a job, collecting from all sources side by side, and the bundle that comes of it."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.collection import collect as module
from bot.collection.bundle_writer import BundleWriter, folder_name
from bot.collection.collect import (
    CollectedBundle,
    ProtectedBundles,
    SharedSpool,
    collect,
    collected_anew,
    evicted_of,
    finished,
    prune,
    shared,
    spool_of,
)
from bot.collection.find_job import ConnectedCluster, JobNotFound, LocatedJob, find, merged, nearest, side_by_side
from bot.collection.window import ends_with_lines, window_gap, window_of
from bot.config.settings import Cluster, Collect
from bot.diagnosis.diagnose import diagnose_bundle
from bot.diagnosis.evidence import from_bundle
from bot.render.report_json import dumps
from bot.rulebase.loader import Knowledge, knowledge
from bot.runtime.errors import NothingCollected
from connectors.base.contract import (
    OUT_OF_TIME,
    Bounds,
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    SourceFailed,
    Spool,
)
from kb.errors import SignalboxError
from kb.model import Attempt, Gap, Job, JobRecord, Prefilter, Resource, Window
from tests.support.common.collection_samples import END, OOM, START

NOW = END + 60
JOB = JobRecord(Job(id="4711", name="llm-7b", start=START, end=END, state="FAILED", nodes={"n1": (0, 1)}), "slurm")
Act = Callable[[CollectionRequest, Spool], Iterable[Gap]]


@dataclass(frozen=True)
class Toy:
    """A source or finder that does what the test says."""

    act: Act = lambda _asked, _spool: ()
    provides: frozenset[EvidenceKind] = frozenset({"logs"})
    jobs: tuple[JobRecord, ...] = ()
    listed: tuple[JobSummary, ...] = ()
    fails: SourceFailed | None = None

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Act."""
        return self.act(request, spool)

    def check(self, deadline: Deadline) -> CheckResult:
        """Work."""
        return CheckResult(deadline.left() > 0, "works")

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """The jobs of this name or id."""
        assert deadline.left() > 0
        if self.fails:
            raise self.fails
        return tuple(job for job in self.jobs if query.text in (job.job.id, job.job.name))

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """What it lists."""
        assert window.end is not None
        assert deadline.left() > 0
        return self.listed


def wired(**connectors: Toy) -> ConnectedCluster:
    """A cluster of toys."""
    return ConnectedCluster(Cluster("east"), tuple(connectors.items()))


def writes(path: str, data: bytes) -> Act:
    """Write one log."""

    def act(_asked: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        spool.append(path, data)
        return ()

    return act


def hangs(until: threading.Event) -> Act:
    """Hang, then try to write: too late."""

    def act(_asked: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        until.wait(60)
        spool.append("logs/late.log", b"late\n")
        return ()

    return act


def run(
    cluster: ConnectedCluster, folder: Path, seconds: float = 5.0, limits: Collect | None = None, **more: Any
) -> CollectedBundle:
    """Collect the job."""
    return collect(
        cluster,
        LocatedJob("east", JOB),
        limits or Collect(),
        Prefilter(),
        window=Window(START, END),
        deadline=Deadline.within(seconds),
        folder=folder,
        now=NOW,
        **more,
    )


def described(folder: Path) -> dict[str, Any]:
    """bundle.yaml."""
    return yaml.safe_load((folder / "bundle.yaml").read_text())


@pytest.fixture(scope="module")
def known() -> Knowledge:
    """The rule base."""
    return knowledge()


# -- finding -------------------------------------------------------------------------------------------------------------

QUERY = JobQuery("llm-7b", Window(START, NOW))


def test_a_job_is_found_by_name_and_the_newest_counts() -> None:
    """Of several runs with one name the last one counts; the cluster's topology completes the scheduler's data."""
    older = replace(JOB, job=replace(JOB.job, id="4000", start=START - 9e4))
    cluster = ConnectedCluster(
        Cluster("east", topology={"n1": {"rack": "r1"}}), (("slurm", Toy(jobs=(older, JOB), provides=JOBS)),)
    )
    found = find([cluster], QUERY, Deadline.within(60))
    assert (found.cluster, found.record.job.id, found.record.job.cluster) == ("east", "4711", "east")
    assert found.record.topology == {"n1": {"rack": "r1"}}


JOBS: frozenset[EvidenceKind] = frozenset({"jobs"})


def test_a_job_of_the_same_name_in_another_namespace_is_a_gap() -> None:
    """The newest is taken; the gap names the others and the option that selects one."""
    jobs = tuple(
        JobRecord(Job(id=f"{space}/llm", name="llm", start=START + at), "kubernetes", namespace=space)
        for at, space in enumerate(("dev", "ml"))
    )
    found = find([wired(kube=Toy(jobs=jobs, provides=JOBS))], JobQuery("llm", Window(START, END)), Deadline.within(60))
    assert found.record.job.id == "ml/llm"
    assert [(gap.code, gap.scope, "--namespace" in gap.reason) for gap in found.gaps] == [
        ("job_ambiguous", "dev/llm", True)
    ]


def test_the_first_system_counts_and_others_fill_in() -> None:
    """If two systems know the job, the first one's values win, and the other fills in missing ones."""
    other = replace(
        JOB, job=replace(JOB.job, state="Failed", owner="ann"), system="loki", namespace="ml", labels={"job": "llm"}
    )
    found = find(
        [wired(slurm=Toy(jobs=(JOB,), provides=JOBS), loki=Toy(jobs=(other,), provides=JOBS))],
        QUERY,
        Deadline.within(60),
    )
    assert (found.record.system, found.record.job.state, found.record.job.owner) == ("slurm", "FAILED", "ann")
    assert (found.record.namespace, found.record.labels) == ("ml", {"job": "llm"})
    assert merged(JOB, JOB) == JOB


def test_a_finder_that_fails_is_a_gap() -> None:
    """Unreachable systems are reported, and the others' answers are used."""
    failed = SourceFailed("unauthorised", "it answered 401")
    found = find(
        [wired(a=Toy(fails=failed, provides=JOBS), b=Toy(jobs=(JOB,), provides=JOBS))], QUERY, Deadline.within(60)
    )
    assert [(gap.code, gap.source) for gap in found.gaps] == [("source_unauthorised", "a")]


def test_an_unknown_job_has_candidates() -> None:
    """A mistyped name is answered with what may have been meant, and with who could not be asked."""
    listed = (
        JobSummary("1", "llm-7b-pretrain", "RUNNING"),
        JobSummary("2", "llm-70b"),
        JobSummary("3", "llm-7b-pretrain", "FAILED"),
        JobSummary("4", "vision"),
    )
    cluster = wired(a=Toy(listed=listed, provides=JOBS), b=Toy(fails=SourceFailed("timeout", "slow"), provides=JOBS))
    with pytest.raises(JobNotFound) as caught:
        find([cluster], JobQuery("llm-7b-pertrain", QUERY.window), Deadline.within(60))
    assert str(caught.value) == (
        "no job 'llm-7b-pertrain' found; did you mean llm-7b-pretrain (1), running, llm-70b (2)?; "
        "b could not be queried: slow"
    )


def test_without_candidates_the_system_that_did_not_answer_comes_first() -> None:
    """The job may be there."""
    cluster = wired(a=Toy(provides=JOBS), b=Toy(fails=SourceFailed("timeout", "slow"), provides=JOBS))
    with pytest.raises(JobNotFound) as caught:
        find([cluster], JobQuery("4711", QUERY.window), Deadline.within(60))
    assert str(caught.value) == "b could not be queried: slow; no other system knows a job '4711'"


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "x" * 300, "a\x00", "\u202e"])
def test_what_is_no_name_is_not_looked_for(text: str) -> None:
    """Empty, overlong and unprintable names reach no system."""
    boom = Toy(fails=SourceFailed("refused", "asked"), provides=JOBS)
    with pytest.raises(JobNotFound) as caught:
        find([wired(a=boom)], JobQuery(text, QUERY.window), Deadline.within(60))
    assert caught.value.gaps == ()
    assert "\n" not in str(caught.value)


def test_candidates_are_alike() -> None:
    """Only equivalent jobs are candidates; an id counts as a name."""
    jobs = [("east", JobSummary(str(n), f"job-{n}")) for n in range(4710, 4712)]
    assert nearest("4711", jobs)[0][1].id == "4711"
    assert nearest("zzzzzz", jobs) == []


def test_side_by_side_leaves_what_hangs() -> None:
    """Tasks run concurrently; one that hangs or raises is reported, and its answer is dropped."""
    over = threading.Event()

    def late() -> int:
        over.wait(60)
        return 2

    results = side_by_side([lambda: 1, late, lambda: 1 // 0], Deadline.within(1.0))
    over.set()
    assert results[0] == 1
    assert isinstance(results[1], SourceFailed)
    assert results[1].kind == "timeout"
    assert "ZeroDivisionError" in str(results[2])


# -- collecting ----------------------------------------------------------------------------------------------------------


def test_all_sources_give_one_bundle(tmp_path: Path, known: Knowledge) -> None:
    """Logs, metrics and events together; bundle.yaml records writers and queries; the bundle can be diagnosed."""

    def logs(request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        assert request.kinds == {"logs"}
        spool.append("logs/loki/pod-a.log", b"step 1\n")
        spool.append("logs/loki/pod-a.log", OOM)
        spool.describe("logs/loki/pod-a.log", resource=Resource(node="n1", rank=1), query='{job="llm"}')
        return (Gap("log_cut", "loki", "only the first 2 lines"),)

    def metrics(request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        assert request.wants("metrics")
        assert not request.wants("logs")
        spool.write("metrics/gpu.json", b'{"status":"success","data":{"resultType":"matrix","result":[]}}')
        return ()

    folder = tmp_path / "b"
    got = run(wired(loki=Toy(logs), prom=Toy(metrics, frozenset({"metrics"}))), folder)
    assert got.sources == {"prom": "63 bytes", "loki": "120 bytes; missing: only the first 2 lines"}
    told = described(folder)
    assert told["files"]["logs/loki/pod-a.log"] == {"source": "loki", "node": "n1", "rank": 1, "query": 1}
    assert told["queries"] == {1: '{job="llm"}'}
    evidence = from_bundle(known, folder)
    assert [(stream.ref.resource.node, stream.ref.resource.rank) for stream in evidence.streams] == [("n1", 1)]
    assert evidence.job.id == "4711"
    report = diagnose_bundle(known, folder).report
    assert report.diagnoses[0].fault == "cuda_oom"
    assert {gap.code for gap in report.gaps} >= {"log_cut"}


def test_the_same_bundle_gives_the_same_report(tmp_path: Path, known: Knowledge) -> None:
    """What was collected is diagnosed from disk: again, byte for byte."""
    run(wired(loki=Toy(writes("logs/a.log", OOM))), tmp_path / "b")
    first, again = (dumps(diagnose_bundle(known, tmp_path / "b").report, {}) for _ in range(2))
    assert first == again


def test_logs_come_from_the_first_source_that_has_any(tmp_path: Path) -> None:
    """The next one is asked only where one fails or has none."""
    first, second, third = (Toy(writes(f"logs/{name}.log", b"x\n")) for name in "abc")
    run(wired(a=first, b=second), tmp_path / "1")
    assert sorted(described(tmp_path / "1")["files"]) == ["logs/a.log"]

    def fail(_asked: CollectionRequest, _spool: Spool) -> Iterable[Gap]:
        raise SourceFailed("unreachable", "no route")

    got = run(wired(a=Toy(fail), empty=Toy(), c=third, d=first), tmp_path / "2")
    assert sorted(described(tmp_path / "2")["files"]) == ["logs/c.log"]
    assert got.sources == {"a": "nothing; missing: no route", "empty": "nothing", "c": "2 bytes"}
    assert [gap["code"] for gap in described(tmp_path / "2")["gaps"]] == ["source_unreachable"]


def test_logs_that_are_gone_in_one_source_come_from_the_next(tmp_path: Path) -> None:
    """A source that has logs, but not of all pods, is followed by the next one; what both have stays apart."""

    def act(_asked: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        spool.append("logs/kubernetes/rank-0.log", OOM)
        return (Gap("logs_gone", "kubernetes", "1 of 2 pods do not exist"),)

    kubernetes, loki = Toy(act), Toy(writes("logs/loki/rank-1.log", OOM))
    run(wired(kubernetes=kubernetes, loki=loki, third=Toy(writes("logs/third.log", OOM))), tmp_path / "b")
    assert sorted(described(tmp_path / "b")["files"]) == ["logs/kubernetes/rank-0.log", "logs/loki/rank-1.log"]


def test_a_source_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """At the deadline the bundle is closed: what hangs becomes a gap, and can write no more."""
    over, before = threading.Event(), set(threading.enumerate())
    cluster = wired(a=Toy(hangs(over)), b=Toy(writes("logs/b.log", b"x\n")), m=Toy(hangs(over), frozenset({"metrics"})))
    got = run(cluster, tmp_path / "b", seconds=2.0)
    assert got.sources["b"] == "2 bytes"
    codes = {(gap["code"], gap["source"]) for gap in described(got.folder)["gaps"]}
    assert codes == {("source_timeout", "a"), ("source_timeout", "m")}
    late = set(threading.enumerate()) - before
    assert len(late) >= 2
    over.set()
    for thread in late:
        thread.join(60)
    assert sorted(path.name for path in (got.folder / "logs").iterdir()) == ["b.log"]


def test_a_source_that_has_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is slow but has lines keeps its turn; a log that it writes again is counted once."""
    monkeypatch.setattr(module, "LEAST_PATIENCE", 0.02)
    monkeypatch.setattr(module, "HEDGE", 0.0)

    def slowly(_asked: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        spool.replace({"logs/a.log": b"late\n"})
        time.sleep(0.1)
        spool.replace({"logs/a.log": b"early\nlate\n"})
        return ()

    got = run(wired(a=Toy(slowly), b=Toy(writes("logs/b.log", b"x\n"))), tmp_path / "b")
    assert got.sources == {"a": "11 bytes"}
    assert (got.folder / "logs/a.log").read_bytes() == b"early\nlate\n"


def test_a_mistake_in_a_connector_is_a_gap(tmp_path: Path) -> None:
    """An exception that no connector should raise takes nothing else down."""

    def wrong(_asked: CollectionRequest, _spool: Spool) -> Iterable[Gap]:
        raise KeyError("oops")

    got = run(wired(a=Toy(wrong, frozenset({"events"})), b=Toy(writes("logs/b.log", b"x\n"))), tmp_path / "b")
    [gap] = described(got.folder)["gaps"]
    assert (gap["source"], "KeyError" in gap["reason"]) == ("a", True)


def test_sources_that_ran_out_of_time_are_told_together(tmp_path: Path) -> None:
    """In one wording, whether the collection or the source itself noticed."""

    def late(asked: CollectionRequest, _spool: Spool) -> Iterable[Gap]:
        replace(asked.deadline, at=0.0).check()
        return ()

    sources = wired(a=Toy(late, frozenset({"events"})), b=Toy(late, frozenset({"metrics"})), c=Toy())
    with pytest.raises(NothingCollected, match=rf"4711: a, b \({OUT_OF_TIME}\); c \(nothing\)$"):
        run(sources, tmp_path / "b")


def test_nothing_is_reported_to_be_nothing(tmp_path: Path) -> None:
    """If no source has evidence there is no bundle, and each source's message is reported."""
    with pytest.raises(NothingCollected, match=r"4711: a \(nothing\)"):
        run(wired(a=Toy()), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_shares_are_bounded(tmp_path: Path) -> None:
    """Beyond its share a source is cut, and what came before stays."""

    def much(_asked: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        for _ in range(10):
            spool.append("logs/a.log", b"x" * 399 + b"\n")
        return ()

    got = run(wired(a=Toy(much)), tmp_path / "b", limits=Collect(bytes=1000))
    assert (got.folder / "logs" / "a.log").stat().st_size == 800
    [gap] = described(got.folder)["gaps"]
    assert (gap["code"], gap["got"]) == ("source_too_large", "800 bytes")


def test_secrets_are_masked_on_writing(tmp_path: Path) -> None:
    """Tokens never reach the disk; addresses of people do unless that is asked for; lengths stay."""
    line = b"login ann.b@site.example with token hf_" + b"a1B2" * 9 + b"\n"
    run(wired(a=Toy(writes("logs/a.log", line))), tmp_path / "1")
    text = (tmp_path / "1/logs/a.log").read_bytes()
    assert text == b"login ann.b@site.example with token hf_" + b"*" * 36 + b"\n"
    run(wired(a=Toy(writes("logs/a.log", line))), tmp_path / "2", hide_emails=True)
    text = (tmp_path / "2/logs/a.log").read_bytes()
    assert text == b"login *****@site.example with token hf_" + b"*" * 36 + b"\n"


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "logs/../../x", "logs/.x", "", "logs//x", "logs/a\nb", "a/" * 9]
)
def test_paths_stay_in_the_bundle(tmp_path: Path, path: str) -> None:
    """A source cannot write outside the bundle, whatever path it gives."""
    bundle = BundleWriter(tmp_path / "b", 1000)
    with pytest.raises(SourceFailed, match="not a valid name"):
        bundle.share("a", 1000).write(path, b"x")
    assert not list(tmp_path.rglob("*"))


def test_two_sources_cannot_write_one_file(tmp_path: Path) -> None:
    """A file belongs to the source that began it."""
    bundle = BundleWriter(tmp_path, 1000)
    bundle.share("a", 1000).append("logs/x.log", b"1\n")
    with pytest.raises(SourceFailed, match="already written by a"):
        bundle.share("b", 1000).append("logs/x.log", b"2\n")


def test_the_job_is_written_as_it_is_known(tmp_path: Path) -> None:
    """job.yaml has the times as text, the attempts with their timeline, the topology."""
    record = replace(
        JOB,
        attempts=(Attempt(1, "FAILED", "NodeFail", 1, queued=START - 60, stopped=END, nodes=("n1",)),),
        topology={"n1": {"rack": "r1"}},
        last_good="4000",
    )
    BundleWriter(tmp_path, 1000).finish(record, Window(START, END), NOW, {}, ())
    told = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert told["attempts"] == [
        {
            "number": 1,
            "state": "FAILED",
            "reason": "NodeFail",
            "exit_code": 1,
            "queued": "2025-11-13T02:12:20Z",
            "stopped": "2025-11-13T03:13:20Z",
            "nodes": ["n1"],
        }
    ]
    assert (told["start"], told["last_good"], told["nodes"]) == ("2025-11-13T02:13:20Z", "4000", {"n1": [0, 1]})


# -- the window ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "last", "expected"),
    [
        (START, END, None, (START, END + 60)),  # from its start, to now where that is before `after`
        (END - 60, END, None, (END - 1800, END + 60)),  # at least `before`
        (START - 9e5, END, None, (END + 60 - 21600, END + 60)),  # at most `longest`
        (START, None, None, (START, NOW)),  # it runs
        (START, END, 600.0, (END - 600, END + 60)),
        (None, None, None, (NOW - 1800, NOW)),
        (START, NOW + 9e9, None, (START, NOW)),  # an end that has not come
    ],
)
def test_windows(start: float | None, end: float | None, last: float | None, expected: tuple[float, float]) -> None:
    """The time range covers the end of the job and is bounded."""
    found = window_of(replace(JOB, job=replace(JOB.job, start=start, end=end)), Collect(), NOW, last)
    assert (found.start, found.end) == expected


def test_the_window_reaches_lines_of_a_clock_that_is_ahead() -> None:
    """The last line is inside it."""
    ahead = replace(JOB, job=replace(JOB.job, start=None, end=None, state=None), seen=Window(NOW - 600, NOW + 300))
    found = window_of(ahead, Collect(), NOW, None)
    assert found.end is not None
    assert NOW + 300 < found.end < NOW + 302


def test_the_window_of_a_job_that_only_its_lines_tell_of() -> None:
    """Its last line counts as its end, unless a scheduler knows better; the gap names the window and the option."""
    only = JobRecord(Job(id="llm", name="llm"), "loki", seen=Window(START, END))
    found = window_of(only, Collect(), NOW, None)
    assert (found.start, found.end) == (START, END + 60)
    assert window_of(only, Collect(), NOW, 60.0).start == END - 60
    assert "--window" in window_gap(only, found).reason
    runs = merged(JobRecord(Job(id="llm", name="llm", state="RUNNING", start=START), "slurm"), only)
    assert (runs.seen, ends_with_lines(runs)) == (only.seen, False)
    assert window_of(runs, Collect(), NOW, None).end == NOW


# -- sharing ---------------------------------------------------------------------------------------------------------------


@dataclass
class Counted:
    """Makes bundles, and counts them."""

    pause: float = 0.0
    made: list[Path] = field(default_factory=list)

    def make(self, folder: Path) -> CollectedBundle:
        """Make one."""
        time.sleep(self.pause)
        self.made.append(folder)
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "a.log").write_bytes(b"x" * 1000)
        return CollectedBundle(folder, {"a": "1,000 bytes"})


def ask(sharing: SharedSpool, counted: Counted, window: Window | None = None, **more: Any) -> CollectedBundle:
    """Ask for the job."""
    located = LocatedJob("east", JOB)
    how = {"origin": "a", **more}
    return shared(sharing, located, window or Window(START, END), Deadline.within(60), counted.make, **how)


def test_twenty_people_share_one_collection(tmp_path: Path) -> None:
    """Whoever asks while or soon after it is collected gets the same bundle."""
    counted = Counted(pause=0.2)
    sharing = SharedSpool(tmp_path, 60, 1 << 30)
    results = side_by_side([lambda: ask(sharing, counted) for _ in range(20)], Deadline.within(60))
    assert len(counted.made) == 1
    assert {result.folder for result in results} == {counted.made[0]}
    assert sum(result.again for result in results) == 19


def test_what_is_old_or_smaller_is_not_shared(tmp_path: Path) -> None:
    """Another window, deeper logs, or a bundle that is too old: collected again."""
    counted = Counted()
    sharing = SharedSpool(tmp_path, 60, 1 << 30)
    ask(sharing, counted, now=lambda: 1000.0)
    ask(sharing, counted, now=lambda: 1030.0)
    assert len(counted.made) == 1
    ask(sharing, counted, now=lambda: 1061.0)
    assert len(counted.made) == 2
    ask(sharing, counted, Window(START - 3600, END), now=lambda: 1063.0)
    assert len(counted.made) == 3
    ask(sharing, counted, deep=True, now=lambda: 1065.0)
    assert len(counted.made) == 4
    ask(sharing, counted, origin="b", now=lambda: 1066.0)
    assert len(counted.made) == 5


def test_the_oldest_bundles_go_first(tmp_path: Path) -> None:
    """The spool keeps a limited number of bytes; the newest bundle stays, however large."""
    counted = Counted()
    sharing = SharedSpool(tmp_path, 0, 1 << 30)
    for second in range(3):
        ask(sharing, counted, now=lambda second=second: 1000.0 + second)
    prune(tmp_path, 2500)
    assert [path.exists() for path in counted.made] == [False, True, True]
    prune(tmp_path, 0, counted.made[2])
    assert [path.exists() for path in counted.made] == [False, False, True]


def test_where_nobody_can_say_what_is_pinned_nothing_goes(tmp_path: Path) -> None:
    """A store that cannot be read does not cost anybody's evidence; it is asked only where something must go."""
    counted = Counted()
    ask(SharedSpool(tmp_path, 0, 1 << 30), counted)

    def broken() -> ProtectedBundles:
        raise SignalboxError("the store is locked")

    prune(tmp_path, 0, spare=broken)
    assert counted.made[0].exists()
    prune(tmp_path, 0, spare=lambda: ProtectedBundles(open=frozenset({str(counted.made[0])})))
    assert not counted.made[0].exists()
    assert evicted_of(counted.made[0]).exists()
    prune(tmp_path, 0, spare=broken)


def test_what_a_dead_worker_collected_is_found_again(tmp_path: Path) -> None:
    """A finished bundle is taken up as it is; one that is not finished, or gone, is not."""
    counted = Counted()
    made = ask(SharedSpool(tmp_path, 60, 1 << 30), counted)
    assert finished(made.folder) == CollectedBundle(made.folder, made.sources, again=True)
    (tmp_path / "job" / "half").mkdir(parents=True)
    assert finished(tmp_path / "job" / "half") is None
    prune(tmp_path, 0)
    assert finished(made.folder) is None
    assert collected_anew(made.folder).reason.endswith(
        f"into {made.folder}, which cannot be reached from here: collected again"
    )


def test_a_shared_folder_that_is_not_there_is_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles lie in the configured folder; where its mount failed, on this host, and a gap says so."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    shared_one = tmp_path / "mnt" / "spool"
    limits = Collect(spool=str(shared_one))
    own, gaps = spool_of(limits)
    assert (own, [gap.code for gap in gaps]) == (tmp_path / "state" / "spool", ["spool_missing"])
    assert not shared_one.exists()
    shared_one.mkdir(parents=True)
    assert spool_of(limits) == (shared_one, ())
    assert SharedSpool.of("red", limits).root == shared_one / "red"
    assert spool_of(Collect()) == (tmp_path / "state" / "spool", ())


def test_the_folder_of_a_tenant_is_private(tmp_path: Path) -> None:
    """Bundles hold lines of logs: other users of the host cannot look into them."""
    made = ask(SharedSpool(tmp_path / "red", 60, 1 << 30), Counted())
    assert [(tmp_path / "red").stat().st_mode & 0o777, made.folder.parent.stat().st_mode & 0o777] == [0o700, 0o700]


def test_a_folder_without_locks_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems refuse locks: the error says so and what to do, and does not wait for the deadline."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("bot.collection.collect.fcntl.flock", refused)
    with pytest.raises(SignalboxError, match=r"cannot lock files \(No locks available\).*collect: spool"):
        ask(SharedSpool(tmp_path, 60, 1 << 30), Counted())


def test_a_collection_that_does_not_end_is_reported(tmp_path: Path) -> None:
    """Who waits for another's collection waits until the deadline and no longer."""
    begun, over = threading.Event(), threading.Event()

    def make(folder: Path) -> CollectedBundle:
        begun.set()
        over.wait(60)
        return counted.make(folder)

    counted = Counted()
    sharing = SharedSpool(tmp_path, 60, 1 << 30)
    asked = (sharing, LocatedJob("east", JOB), Window(START, END))
    busy = threading.Thread(target=shared, args=(*asked, Deadline.within(60), make), kwargs={"origin": "a"})
    busy.start()
    assert begun.wait(60)
    with pytest.raises(SignalboxError, match="is still running"):
        shared(*asked, Deadline.within(0.2), counted.make, origin="a")
    over.set()
    busy.join()


def test_names_of_folders_are_safe() -> None:
    """The name of a bundle consists of job and time and is safe for any job name."""
    assert folder_name(JOB, NOW) == "4711-2025-11-13T03-14-20Z"
    odd = folder_name(replace(JOB, job=Job(id="../../x y")), NOW)
    assert "/" not in odd
    assert not odd.startswith(".")


def test_bounds_are_the_configured_ones(tmp_path: Path) -> None:
    """Each source gets its size limit."""
    seen: list[Bounds] = []

    def act(request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        seen.append(request.bounds)
        spool.append("logs/a.log", b"x\n")
        return ()

    run(wired(a=Toy(act)), tmp_path / "b", limits=Collect(bytes=12345))
    assert [bounds.log_bytes for bounds in seen] == [12345]
