"""Loki: queries as documented, pages without loss or duplicates, and the same diagnosis as from the files."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery, JobSummary, SourceFailed
from connectors.base.http import Endpoint, HttpClient, Login
from connectors.base.secret import Secret
from connectors.log_stores import loki_counts, loki_pace
from connectors.log_stores.loki import Loki, LokiSettings
from connectors.log_stores.loki_client import LokiStore
from connectors.log_stores.loki_limits import LokiLimits, limits_of
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import LineQuery
from kb.model import Job, JobRecord, Member, Prefilter, Window
from tests.doubles.loki import Limits, LokiDouble, Stream, serving
from tests.support import stored_logs
from tests.support.contract.subject import END, START, Memory, Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import asked_of, first, refilled

NS = 1_000_000_000
BEGIN = 1_780_000_200 * NS
JOB = "llm-7b"


def made(ranks: int = 4, lines: int = 60) -> list[Stream]:
    """Streams of some ranks, a line a second each; and the same of another job."""
    return [
        Stream(
            {"job": job, "rank": str(rank), "node": f"node-{rank // 2}"},
            [(BEGIN + at * NS, f"{job} rank {rank} line {at}{' error' if at == 50 else ''}") for at in range(lines)],
        )
        for job in (JOB, "other")
        for rank in range(ranks)
    ]


def store(
    double: LokiDouble, *, page: int = 5000, streams: dict[str, Any] | None = None, seconds: float = 20.0, **more: Any
) -> LokiStore:
    """The store of a double as the plan sees it."""
    endpoint = Endpoint(double.url)
    settings = LokiSettings(endpoint, page=page)
    client = HttpClient(endpoint, sleep=lambda _: None)
    return LokiStore(settings, client, streams or {"job": (JOB,)}, Deadline.within(seconds), **more)


def taken(found: LokiStore, ask: LineQuery) -> list[tuple[int, str]]:
    """All lines of all pages."""
    return [(line.at, line.text) for page in found.pages(ask) for line in page]


ALL = LineQuery(BEGIN, BEGIN + 3600 * NS)


@pytest.mark.parametrize("backward", [False, True])
def test_pages_lose_nothing_and_double_nothing(backward: bool) -> None:
    """With many lines of one time at every border, each line comes once, in order."""
    chance = random.Random(3)
    streams = [
        Stream(
            {"job": JOB, "rank": str(rank)}, [(BEGIN + chance.randrange(40) * NS, f"{rank}/{at}") for at in range(200)]
        )
        for rank in range(3)
    ]
    with serving(LokiDouble(streams)) as double:
        found = taken(store(double, page=50), ALL._replace(backward=backward))
    times = [at for at, _ in found]
    assert Counter(f"{rank}/{at}" for rank in range(3) for at in range(200)) == Counter(text for _, text in found)
    assert sorted(times, reverse=backward) == times


def test_a_page_of_one_time_is_parted_by_speakers() -> None:
    """More lines of one nanosecond than a page holds are fetched speaker by speaker."""
    streams = [
        Stream({"job": JOB, "rank": str(rank)}, [(BEGIN + 7, f"{rank}/{at}") for at in range(40)]) for rank in range(4)
    ]
    with serving(LokiDouble(streams)) as double:
        found = store(double, page=50)
        found.tally(BEGIN, BEGIN + 60 * NS, NS)
        lines = taken(found, ALL)
        assert len({text for _, text in lines}) == len(lines) == 160
        assert list(found.gaps()) == []


def test_one_speaker_with_more_of_one_time_is_a_gap() -> None:
    """Lines that no query can separate are reported as missing, and later ones are still fetched."""
    entries = [(BEGIN + 7, f"{at}") for at in range(120)] + [(BEGIN + NS, "later")]
    with serving(LokiDouble([Stream({"job": JOB, "rank": "0"}, entries)])) as double:
        found = store(double, page=50)
        found.tally(BEGIN, BEGIN + 60 * NS, NS)
        assert taken(found, ALL)[-1] == (BEGIN + NS, "later")
        assert [gap.code for gap in found.gaps()] == ["lines_of_one_time"]


def test_limits_of_the_server_are_taken() -> None:
    """Lower limits on entries, length of time and bytes: the query is split, all lines come."""
    limits = Limits(entries=60, query_length=1800, query_bytes=6000)
    with serving(LokiDouble(made(), limits)) as double:
        assert len(taken(store(double), ALL)) == 240
        assert len(taken(store(double), ALL._replace(words=("error",)))) == 4


def test_counts_of_more_streams_than_one_answer_may_have() -> None:
    """The count is split by the values of a label."""
    streams = [Stream({"job": JOB, "rank": str(rank)}, [(BEGIN + rank * NS + 1, "x")]) for rank in range(1024)]
    with serving(LokiDouble(streams)) as double:
        found = store(double)
        tally = found.tally(BEGIN, BEGIN + 2000 * NS, 60 * NS)
        assert (tally.total(), len(tally.counts), tally.exact) == (1024, 1024, False)
        assert found.meter.used <= 6
        found = store(double, limits=LokiLimits(volume=False))
        tally = found.tally(BEGIN, BEGIN + 2000 * NS, 60 * NS)
        assert (tally.total(), len(tally.counts), tally.exact) == (1024, 1024, True)
        assert found.meter.used <= 6


@pytest.mark.quick("entries-published", "query_bytes-learned", "series")
@pytest.mark.parametrize("told", [True, False], ids=["published", "learned"])
@pytest.mark.parametrize(
    "limits",
    [
        {"entries": 60},
        {"query_length": 1800.0},
        {"series": 2},
        {"query_bytes": 6000},
        {"volume": False},
        {"entries": 20, "query_length": 1800.0, "series": 2, "query_bytes": 6000, "volume": False},
    ],
    ids="+".join,
)
def test_each_limit_is_met_by_asking_less(limits: dict[str, Any], told: bool) -> None:
    """A lower limit, published or only named in refusals: the same lines as without it, nothing counts as failed."""
    chosen = ("lines that rules look for", "last lines")
    with serving(LokiDouble(made(lines=500), Limits(**limits, told=told))) as double:
        client = HttpClient(Endpoint(double.url))
        spool, gaps = selected(store(double, limits=limits_of(client, Deadline.within(60))))
        assert sum(log.count(b" error") for log in spool.logs.values()) == 4
        assert not [gap for gap in gaps if gap.scope in chosen or gap.code.startswith("source_")]
        found = store(double)
        assert len(taken(found, ALL)) == 2000
        assert {who.rank for who in found.tally(BEGIN, BEGIN + 3600 * NS, 60 * NS).counts} == set("0123")


def test_volumes_need_labels_that_all_streams_have() -> None:
    """A label that half of the streams lack: counted by those that all have; none: lines are counted."""
    half = [
        Stream({"job": JOB, "rank": str(rank), **({"pod": "p"} if rank else {})}, [(BEGIN + 1, "x")]) for rank in (0, 1)
    ]
    with serving(LokiDouble(half)) as double:
        tally = store(double).tally(BEGIN, BEGIN + 60 * NS, 60 * NS)
        assert {who.rank for who in tally.counts} == {"0", "1"}
        assert not tally.exact
    with serving(LokiDouble([Stream({"job": JOB}, [(BEGIN + 1, "x", {"rank": "5"})])])) as double:
        assert store(double).tally(BEGIN, BEGIN + 60 * NS, 60 * NS).exact


def test_a_search_that_would_not_finish_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that searches slowly: parts from the end as long as there is time, the rest is a gap; every rank has lines."""
    streams = made(ranks=4, lines=3000)
    with serving(LokiDouble(streams, Limits(searched=4_000.0))) as double:  # all lines in 12 s
        monkeypatch.setattr(loki_pace, "FIRST_PART", 20_000)
        began = time.monotonic()
        spool, gaps = selected(store(double, seconds=4.0), telling=("error", *"xyz"))
        assert time.monotonic() - began < 10
        assert len(spool.logs) == 4
        codes = {gap.code for gap in gaps}
        assert {"source_timeout", "read_in_part", "not_line_by_line"} <= codes
        searches = [params for path, params in double.asked if path.endswith("query_range") and "|~" in params["query"]]
        spans = [int(params["end"]) - int(params["start"]) for params in searches if "error" in params["query"]]
        assert spans[0] < 3000 * NS


def test_what_would_take_long_to_count_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without volumes, the size in the index decides; the lines are searched all the same."""
    monkeypatch.setattr(loki_counts, "READ_TO_COUNT", 1000)
    with serving(LokiDouble(made(), Limits(volume=False))) as double:
        found = store(double)
        tally = found.tally(BEGIN, BEGIN + 3600 * NS, 60 * NS)
        assert not tally.exact
        assert 0 < tally.total() < 240
        assert [gap.code for gap in found.gaps()] == ["not_by_origin"]
        assert not any("count_over_time" in asked.get("query", "") for _, asked in double.asked)
        spool = Memory(Deadline.within(20))
        asked = CollectionRequest(
            stored_logs.record(JOB),
            Window(BEGIN / NS, BEGIN / NS + 3600),
            spool.deadline,
            Prefilter(("error",)),
            Bounds(),
        )
        fetch_lines(store(double), asked, spool, "loki", source="loki", all_lines=0)
        assert len(spool.logs) == 4


def test_nothing_is_asked_after_the_deadline() -> None:
    """A refusal of the clock is not answered by asking for less."""
    with serving(LokiDouble(made())) as double:
        found = store(double, seconds=0.0)
        with pytest.raises(SourceFailed, match="time limit"):
            list(found.pages(LineQuery(BEGIN, BEGIN + 60 * NS)))
        assert (found.meter.used, double.asked) == (0, [])


def test_a_server_that_is_busy_or_starting_is_waited_for() -> None:
    """429 with Retry-After, and rings that are empty: the same lines a moment later."""
    with serving(LokiDouble(made())) as double:
        double.refusals = [(429, "too many outstanding requests", {"Retry-After": "1"}), (500, "empty ring", {})] * 3
        found = store(double)
        assert len(taken(found, ALL)) == 240
        assert not double.refusals


def test_a_job_is_found_day_by_day() -> None:
    """A job that ended ten days ago, on a server that takes queries of twelve hours: found, with the times of its lines."""
    now = BEGIN + 10 * 86400 * NS
    runs = [(BEGIN - 5 * 86400 * NS, "earlier run"), (BEGIN - 3600 * NS, "first"), (BEGIN, "last")]
    with serving(LokiDouble([Stream({"job": JOB, "rank": "0"}, runs)], Limits(query_length=12 * 3600.0))) as double:
        window = Window(now / NS - 30 * 86400, now / NS)
        (record,) = Loki(LokiSettings(Endpoint(double.url))).find(JobQuery(JOB, window), Deadline.within(60))
        assert record.seen == Window(BEGIN / NS - 3600, BEGIN / NS)
        asked = [params for path, params in double.asked if path.endswith("/series")]
    assert len(asked) <= 24
    assert int(asked[0]["end"]) > int(asked[1]["end"])


def test_a_clock_that_is_ahead_loses_no_line() -> None:
    """A line of the next minutes is the last one."""
    now = time.time_ns()
    with serving(LokiDouble([Stream({"job": JOB}, [(now, "now"), (now + 500 * NS, "ahead")])])) as double:
        loki = Loki(LokiSettings(Endpoint(double.url)))
        (record,) = loki.find(JobQuery(JOB, Window(now / NS - 86400, now / NS)), Deadline.within(20))
    assert record.seen == Window(now / NS, (now + 500 * NS) / NS)


def test_streams_of_several_clusters_are_named() -> None:
    """Unless one is selected."""
    streams = [Stream({"job": JOB, "pod": "p-0", "k8s_cluster": name}, [(BEGIN, name)]) for name in ("east", "west")]
    with serving(LokiDouble(streams)) as double:
        found = store(double)
        found.tally(BEGIN, BEGIN + NS, NS)
        (gap,) = found.gaps()
        chosen = store(double, streams={"job": (JOB,), "k8s_cluster": ("east",)})
        chosen.tally(BEGIN, BEGIN + NS, NS)
    assert "k8s_cluster: east, west" in gap.reason
    assert chosen.gaps() == ()


def test_a_refused_tenant_is_named() -> None:
    """The message speaks of the header that is missing or wrong."""
    with serving(LokiDouble(made(), tenant="team-a")) as double, pytest.raises(SourceFailed, match="X-Scope-OrgID"):
        collected(LokiSettings(Endpoint(double.url, Login(headers={"X-Scope-OrgID": "team-b"}))), stored_logs.record())


def test_metadata_tells_who_speaks() -> None:
    """A rank in structured metadata is a rank, and selects lines; it splits no stream."""
    entries = [(BEGIN + at, f"line {at}", {"rank": str(at % 2), "trace": str(at)}) for at in range(10)]
    with serving(LokiDouble([Stream({"job": JOB}, entries)])) as double:
        found = store(double)
        page = next(iter(found.pages(ALL)))
        speakers = sorted({line.who for line in page})
        assert [speaker.rank for speaker in speakers] == ["0", "1"]
        only = taken(found, ALL._replace(of=(speakers[1],)))
        assert [text for _, text in only] == [f"line {at}" for at in range(1, 10, 2)]


NAMES = ('a"} or {job=~".+', "a\\", "a\nb", "a`b", "a|other", ".*", "l\x00m", "\u202ea", "a b", "ä", "a'b", "{{x}}")


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_are_quoted(name: str) -> None:
    """A name with LogQL, regular expression or control characters finds its own streams and no others."""
    streams = [Stream({"job": word, "pod": word}, [(BEGIN, f"of {word!r}")]) for word in (*NAMES, "other")]
    with serving(LokiDouble(streams)) as double:
        assert taken(store(double, streams={"job": (name,)}), ALL) == [(BEGIN, f"of {name!r}")]
        two = taken(store(double, streams={"job": (name, "none.*")}), ALL)
        assert two == [(BEGIN, f"of {name!r}")]
        assert [text for _, text in taken(store(double, streams={"job": (name,)}), ALL._replace(words=(name,)))] in (
            [f"of {name!r}"] if name in f"of {name!r}" else [],
            [f"of {name!r}"] * (name in f"of {name!r}"),
        )


def collected(settings: LokiSettings, record: JobRecord, **more: Any) -> tuple[Memory, tuple[Any, ...]]:
    """What a collection wrote, and what it misses."""
    deadline = Deadline.within(20)
    spool = Memory(deadline)
    window = Window(BEGIN / NS, BEGIN / NS + 3600)
    asked = CollectionRequest(record, window, deadline, Prefilter(("error",)), **more)
    return spool, tuple(Loki(settings, HttpClient(settings.endpoint, sleep=lambda _: None)).collect(asked, spool))


def selected(found: LokiStore, telling: tuple[str, ...] = ("error",)) -> tuple[Memory, tuple[Any, ...]]:
    """What the plan wrote of a job that it takes for a large one, and what it misses."""
    spool = Memory(Deadline.within(20))
    window = Window(BEGIN / NS, BEGIN / NS + 3600)
    asked = CollectionRequest(stored_logs.record(), window, found.deadline, Prefilter(("error",), telling=telling))
    return spool, fetch_lines(found, asked, spool, "loki", source="loki", all_lines=0)


def test_logs_are_written_by_speaker_with_the_stores_time() -> None:
    """A file for each rank, each line with its time to the nanosecond, and its metadata."""
    entries = [(BEGIN + 5, "first\nsecond"), (BEGIN + NS + 123456789, "third")]
    with serving(LokiDouble([Stream({"job": JOB, "rank": "3", "node": "n/1"}, entries)])) as double:
        spool, gaps = collected(LokiSettings(Endpoint(double.url), folder="east"), stored_logs.record())
    (path,) = spool.logs
    assert path.startswith("logs/east/rank-3_n_1-")
    assert spool.logs[path] == (
        b"2026-05-28T20:30:00.000000005Z first\n"
        b"2026-05-28T20:30:00.000000005Z second\n"
        b"2026-05-28T20:30:01.123456789Z third\n"
    )
    assert gaps == ()
    resource = spool.told[path]["resource"]
    assert (resource.rank, resource.node) == (3, "n/1")
    assert spool.told[path]["written"] == (BEGIN + NS + 123456789) / NS


def test_bounds_cut_and_say_so() -> None:
    """Lines beyond the limit of one source are cut, reported as a gap with both counts."""
    with serving(LokiDouble(made())) as double:
        spool, gaps = collected(
            LokiSettings(Endpoint(double.url), page=50), stored_logs.record(), bounds=Bounds(log_lines=80)
        )
    assert sum(log.count(b"\n") for log in spool.logs.values()) <= 130
    assert {gap.code for gap in gaps} == {"lines_cut", "logs_cut"}


def test_tenant_and_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its tenant or password it is refused; with both it answers."""
    monkeypatch.setenv("LOKI_PASSWORD", "secret")
    with serving(LokiDouble(made(), tenant="team-a", login=("reader", "secret"))) as double:
        login = Login(user="reader", password=Secret(env="LOKI_PASSWORD"), headers={"X-Scope-OrgID": "team-a"})
        spool, _ = collected(LokiSettings(Endpoint(double.url, login)), stored_logs.record())
        assert len(spool.logs) == 4
        with pytest.raises(SourceFailed) as failed:
            collected(LokiSettings(Endpoint(double.url)), stored_logs.record())
    assert failed.value.kind == "unauthorised"


def test_pods_name_a_job_where_no_label_does() -> None:
    """Without a label for jobs, the pods that the cluster knows are queried, within their namespace."""
    streams = [Stream({"namespace": space, "pod": "fit-0"}, [(BEGIN, space)]) for space in ("east", "west")]
    record = JobRecord(Job(id="fit"), "kubernetes", namespace="east", members=(Member("fit-0", container="fit-0"),))
    with serving(LokiDouble(streams)) as double:
        settings = LokiSettings(Endpoint(double.url), labels={"namespace": "namespace", "pod": "pod"})
        spool, _ = collected(settings, record)
        assert list(spool.logs) == ["logs/loki/fit-0.log"]
        assert spool.logs["logs/loki/fit-0.log"].endswith(b"east\n")
        with pytest.raises(SourceFailed, match="no label identifies this job"):
            collected(settings, stored_logs.record())


def test_jobs_are_found_by_their_label() -> None:
    """A job with exactly this name, with its speakers; all names if none matches."""
    with serving(LokiDouble(made(ranks=2))) as double:
        loki = Loki(LokiSettings(Endpoint(double.url)))
        window = Window(BEGIN / NS, BEGIN / NS + 60)
        (record,) = loki.find(JobQuery(JOB, window), Deadline.within(60))
        assert loki.find(JobQuery("llm", window), Deadline.within(60)) == ()
        assert loki.recent(window, Deadline.within(60)) == (JobSummary(JOB, JOB), JobSummary("other", "other"))
    members = (Member("rank-0_node-0", "node-0", 0), Member("rank-1_node-0", "node-0", 1))
    seen = Window(BEGIN / NS, BEGIN / NS + 59)
    assert record == JobRecord(Job(id=JOB, name=JOB), "loki", members=members, seen=seen)


def test_check_names_the_labels_that_are_there() -> None:
    """A wrong name of the job label is reported, with the existing labels."""
    import time

    now = time.time_ns() - NS
    with serving(LokiDouble([Stream({"app": "x", "job_name": JOB}, [(now, "x")])])) as double:
        wrong = Loki(LokiSettings(Endpoint(double.url))).check(Deadline.within(60))
        right = Loki(LokiSettings(Endpoint(double.url), labels={"job": "job_name"})).check(Deadline.within(60))
    assert not wrong.works
    assert "app, job_name" in wrong.words
    assert right.works


SAMPLE = ("healthy", "lab-disk-full", "lab-segfault", "lab-slow-rank", "lab-sizes")


@pytest.mark.quick("healthy")
@pytest.mark.parametrize("name", SAMPLE)
def test_the_same_diagnosis_as_from_the_files(name: str, tmp_path: Path) -> None:
    """All lines, or those that the plan selects: verdict, first diagnosis and suspects equal those of the bundle itself."""
    held = stored_logs.streams(BUNDLES / name)
    wanted = first(BUNDLES / name)
    with serving(LokiDouble([Stream(labels, lines) for labels, lines in held])) as double:
        for all_lines in (40_000, 0):
            target = tmp_path / str(all_lines)
            refilled(BUNDLES / name, target, store(double), asked_of(held), all_lines)
            assert first(target) == wanted


def test_deep_fetches_all_lines(tmp_path: Path) -> None:
    """`deep` fetches every line, without a gap."""
    held = stored_logs.streams(BUNDLES / "lab-error")
    with serving(LokiDouble([Stream(labels, lines) for labels, lines in held])) as double:
        gaps = refilled(BUNDLES / "lab-error", tmp_path / "deep", store(double, page=100), asked_of(held, deep=True), 0)
    assert gaps == ()


@contextmanager
def contract_double() -> Iterator[str]:
    """A Loki with the job of the contract and another."""
    import time

    now = time.time_ns()
    streams = [
        Stream(
            {"job": job, "rank": str(rank)},
            [*((round((START + 60 * at) * NS), f"{job} {at} error") for at in range(1, 50)), (now, "x")],
        )
        for job in (JOB, "other")
        for rank in range(2)
    ]
    assert END - START > 50 * 60
    with serving(LokiDouble(streams)) as double:
        yield double.url


class TestContract(Contract):
    """The contract suite of all connectors."""

    subject = Subject("loki", contract_double, lambda url: Loki(LokiSettings(Endpoint(url)), hasty(Endpoint(url))))
