"""The connector against a real Loki (SIGNALBOX_TEST_LOKI names its binary or address): the contract suite, and whole diagnoses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import Endpoint, HttpClient, Login
from connectors.log_stores.loki import Loki, LokiSettings
from connectors.log_stores.loki_client import LokiStore
from connectors.log_stores.loki_limits import limits_of
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import LineQuery
from kb.model import Job, JobRecord, Prefilter, Window
from tests.support import loki_server, stored_logs
from tests.support.contract.subject import END, START, Memory, Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import asked_of, first, refilled

NS = 1_000_000_000
RUN = uuid4().hex[:8]
OLD = time.time_ns() // NS * NS - 10 * 86400 * NS
SAMPLE = ("lab-disk-full", "lab-segfault", "lab-slow-rank")
LOW = {"max_entries_limit_per_query": 100, "max_query_length": "12h", "max_query_series": 2, "query_timeout": "5s"}
LIMITS: dict[str, dict[str, object]] = {
    "default": {},
    "no volumes": {"volume_enabled": False},
    "all": {**LOW, "max_query_parallelism": 1, "tsdb_max_query_parallelism": 1, "max_query_bytes_read": "200KB"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server's data, which outlives it."""
    return tmp_path_factory.mktemp("loki")


@pytest.fixture(scope="module", params=LIMITS)
def server(request: pytest.FixtureRequest, place: Path) -> Iterator[loki_server.LokiServer]:
    """A server with each set of limits."""
    with loki_server.running(place / request.param.replace(" ", "-"), LIMITS[request.param]) as found:
        for name in SAMPLE:
            found.push(
                ({**labels, "job": job_of(name)}, lines) for labels, lines in stored_logs.streams(BUNDLES / name)
            )
        found.push([({"job": job_of("old"), "rank": "0"}, [(OLD - 3600 * NS, "first"), (OLD, "last")])])
        found.flush()
        yield found


def job_of(name: str) -> str:
    """The job that a bundle is stored as: its own in each run of the tests."""
    return f"{name}-{RUN}"


def store(server: loki_server.LokiServer, job: str) -> LokiStore:
    """The lines of a job as the plan sees them."""
    endpoint = Endpoint(server.url)
    client, deadline = HttpClient(endpoint), Deadline.within(60)
    return LokiStore(LokiSettings(endpoint), client, {"job": (job,)}, deadline, limits=limits_of(client, deadline))


@pytest.mark.parametrize("name", SAMPLE)
def test_the_same_diagnosis_as_from_the_files(server: loki_server.LokiServer, name: str, tmp_path: Path) -> None:
    """All lines, or those that the plan selects: verdict, first diagnosis and suspects equal those of the bundle itself."""
    held = stored_logs.streams(BUNDLES / name)
    wanted = first(BUNDLES / name)
    for all_lines in (40_000, 0):
        target = tmp_path / str(all_lines)
        refilled(BUNDLES / name, target, store(server, job_of(name)), asked_of(held), all_lines)
        assert first(target) == wanted


def test_pages_lose_nothing_and_double_nothing(server: loki_server.LokiServer) -> None:
    """Lines that share their times at every border of a page: each comes once, both ways."""
    job, begin = f"pages-{uuid4().hex[:8]}", (time.time_ns() // NS - 600) * NS
    for rank in range(3):
        lines = [(begin + at // 7 * NS, f"{rank}/{at}") for at in range(400)]
        server.push([({"job": job, "rank": str(rank)}, lines)])
    for backward in (False, True):
        ask = LineQuery(begin, begin + 3600 * NS, backward=backward)
        found = [line.text for page in store(server, job).pages(ask) for line in page]
        assert sorted(found) == sorted(f"{rank}/{at}" for rank in range(3) for at in range(400))


def test_a_job_that_ended_ten_days_ago(server: loki_server.LokiServer) -> None:
    """Found by its label, with the times of its first and last lines."""
    now = time.time()
    loki = Loki(LokiSettings(Endpoint(server.url)))
    (record,) = loki.find(JobQuery(job_of("old"), Window(now - 30 * 86400, now)), Deadline.within(30))
    assert record.seen == Window(OLD / NS - 3600, OLD / NS)


NAMES = ('a"} or {job=~".+', "a\\", "a\nb", "a`b", "a|other", ".*", "{{x}}", "ä")


def test_names_are_quoted(server: loki_server.LokiServer) -> None:
    """A name with LogQL, regular expressions or control characters finds its own streams and no others."""
    mark, at = uuid4().hex[:8], time.time_ns() - 60 * NS
    names = [f"{mark}{name}" for name in NAMES]
    server.push(({"job": name, "rank": "0"}, [(at, f"of {name!r}")]) for name in names)
    for name in names:
        found = [line.text for page in store(server, name).pages(LineQuery(at - NS, at + NS)) for line in page]
        assert found == [f"of {name!r}"]


def test_long_lines_metadata_and_missing_labels(server: loki_server.LokiServer) -> None:
    """A line of 250 KB is cut; a rank in structured metadata counts; a label that half of the streams lack causes no failure."""
    job, at = f"odd-{uuid4().hex[:8]}", time.time_ns() - 60 * NS
    server.push([({"job": job, "pod": "p-0"}, [(at, "x" * 250_000, {"rank": "3"})])])
    server.push([({"job": job, "node": "n-1"}, [(at + 1, "short")])])
    deadline = Deadline.within(30)
    spool = Memory(deadline)
    window = Window(at / NS - 60, at / NS + 60)
    asked = CollectionRequest(JobRecord(Job(id=job), "test"), window, deadline, Prefilter(("short",)), Bounds())
    gaps = fetch_lines(store(server, job), asked, spool, "loki", source="loki")
    assert sorted(spool.logs) == ["logs/loki/n-1.log", "logs/loki/rank-3_p-0.log"]
    assert [gap.code for gap in gaps] == []


def test_a_tenant_is_needed(place: Path) -> None:
    """Without X-Scope-OrgID the request is refused with a message; with another tenant's there is no such job."""
    with loki_server.running(place / "tenants", tenants=True) as found:
        at, mine = time.time_ns() - 60 * NS, {"X-Scope-OrgID": "team-a"}
        found.push([({"job": "llm", "rank": "0"}, [(at, "x")])], mine)
        query = JobQuery("llm", Window(at / NS - 60, at / NS + 60))

        def jobs_of(**headers: str) -> tuple[Any, ...]:
            login = Login(headers={"X-Scope-OrgID": headers["tenant"]} if headers else {})
            return Loki(LokiSettings(Endpoint(found.url, login))).find(query, Deadline.within(60))

        assert len(jobs_of(tenant="team-a")) == 1
        assert jobs_of(tenant="team-b") == ()
        with pytest.raises(SourceFailed, match="X-Scope-OrgID"):
            jobs_of()


def test_a_server_that_is_killed_and_comes_back(place: Path) -> None:
    """Killed while it is asked: an answer once it is back, and a clear failure if it stays away."""
    with loki_server.running(place / "killed") as found:
        if found.process is None:
            pytest.skip("an address is not ours to kill")
        at = time.time_ns() - 60 * NS
        found.push([({"job": "llm", "rank": "0"}, [(at, "x")])])
        found.kill()
        with pytest.raises(SourceFailed, match="cannot be reached"):
            list(store(found, "llm").pages(LineQuery(at - NS, at + NS)))
        found.start(wait=False)
        assert [len(page) for page in store(found, "llm").pages(LineQuery(at - NS, at + NS))] == [1]


@contextmanager
def _contract_server() -> Iterator[str]:
    """A real server with the job of the contract and another."""
    import tempfile

    now = time.time_ns()
    with tempfile.TemporaryDirectory() as folder, loki_server.running(Path(folder)) as found:
        for job in (stored_logs.JOB, "other"):
            for rank in range(2):
                lines = [*((round((START + 60 * at) * NS), f"{job} {at} error") for at in range(1, 50)), (now, "x")]
                found.push([({"job": job, "rank": str(rank)}, lines)])
        found.flush()
        assert END > START
        yield found.url


@pytest.mark.skipif(not loki_server.named(), reason=f"{loki_server.VARIABLE} names no Loki")
class TestContract(Contract):
    """The contract suite of all connectors."""

    subject = Subject(
        "real loki", _contract_server, lambda url: Loki(LokiSettings(Endpoint(url)), hasty(Endpoint(url)))
    )
