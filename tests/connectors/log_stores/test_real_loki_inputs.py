"""Odd jobs in a real Loki (SIGNALBOX_TEST_LOKI), found and collected as by `signalbox diagnose JOB`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bot.collection.window import window_gap, window_of
from bot.config.settings import Collect
from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import Endpoint
from connectors.log_stores.loki import Loki, LokiSettings
from kb.model import Gap, Job, JobRecord, Prefilter, Window
from tests.support import loki_server
from tests.support.busy_proxy import busy
from tests.support.contract.subject import Memory

NS = 1_000_000_000
DAY = 86400.0
NAMES = ('"} or {job=~".+', "{llm}", "a\\", "a\nb", "a`b", "a|other", "llm-.*", "(?i)LLM", "{{ .job }}", "'; drop", "ä")


@pytest.fixture(scope="module")
def server() -> Iterator[loki_server.LokiServer]:
    """One server for all."""
    with tempfile.TemporaryDirectory() as folder, loki_server.running(Path(folder)) as found:
        yield found


def collected(
    job: str, url: str, *, seconds: float = 60.0, **settings: Any
) -> tuple[JobRecord, Memory, tuple[Gap, ...]]:
    """Find the job, and collect the window that follows from its lines."""
    now, deadline = time.time(), Deadline.within(seconds)
    loki = Loki(LokiSettings(Endpoint(url), **settings))
    (record,) = loki.find(JobQuery(job, Window(now - 30 * DAY, now)), deadline)
    window = window_of(record, Collect(), now)
    spool = Memory(deadline)
    gaps = tuple(loki.collect(CollectionRequest(record, window, deadline, Prefilter(("end",)), Bounds()), spool))
    return record, spool, (*gaps, window_gap(record, window))


def texts(spool: Memory) -> list[str]:
    """The lines without times."""
    return sorted(line.partition("Z ")[2] for log in spool.logs.values() for line in log.decode().splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_any_characters(server: loki_server.LokiServer, name: str) -> None:
    """It finds its own streams, and no others."""
    job, at = f"{uuid4().hex[:8]}{name}", time.time_ns() - 60 * NS
    server.push(
        [({"job": job, "rank": "0"}, [(at, "its own")]), ({"job": "llm-other", "rank": "0"}, [(at, "of another")])]
    )
    record, spool, _ = collected(job, server.url)
    assert (record.job.id, texts(spool)) == (job, ["its own"])


@pytest.mark.parametrize("ago", [3600.0, DAY, 10 * DAY])
def test_a_job_that_is_over_is_found_by_its_labels(server: loki_server.LokiServer, ago: float) -> None:
    """With its lines, its window, and how to change that."""
    job, end = f"over-{uuid4().hex[:8]}", time.time_ns() // NS * NS - round(ago * NS)
    server.push(
        [({"job": job, "rank": str(rank)}, [(end - 600 * NS, "begin"), (end - rank * NS, "end")]) for rank in range(2)]
    )
    server.flush()
    record, spool, gaps = collected(job, server.url)
    assert record.seen == Window(end / NS - 600, end / NS)
    assert texts(spool) == ["begin", "begin", "end", "end"]
    assert gaps[-1].reason.count(time.strftime("%Y-%m-%d %H:%M", time.gmtime(end / NS))) >= 1
    assert "--window 6h" in gaps[-1].reason


def test_a_label_that_half_of_the_streams_lack(server: loki_server.LokiServer) -> None:
    """All lines are there; those without it under the labels that they have."""
    job, at = f"half-{uuid4().hex[:8]}", time.time_ns() - 60 * NS
    for number in range(4):
        labels = {"job": job, "pod": f"p-{number}", **({"rank": str(number)} if number % 2 else {})}
        server.push([(labels, [(at, f"of {number}"), (at + NS, "end")])])
    _, spool, gaps = collected(job, server.url)
    assert sorted(path.rpartition("/")[2] for path in spool.logs) == [
        "p-0.log",
        "p-2.log",
        "rank-1_p-1.log",
        "rank-3_p-3.log",
    ]
    assert texts(spool) == sorted([*(f"of {number}" for number in range(4)), *["end"] * 4])
    assert len(gaps) == 1


def test_the_same_pod_in_two_clusters(server: loki_server.LokiServer) -> None:
    """Said; and `also` selects one."""
    job, at = f"twins-{uuid4().hex[:8]}", time.time_ns() - 60 * NS
    for cluster in ("east", "west"):
        server.push([({"job": job, "pod": "p-0", "cluster": cluster}, [(at, f"in {cluster}")])])
    _, spool, gaps = collected(job, server.url)
    assert texts(spool) == ["in east", "in west"]
    (told,) = (gap.reason for gap in gaps if gap.code == "several_clusters")
    assert "cluster: east, west" in told
    assert "also: {cluster: east}" in told
    _, spool, gaps = collected(job, server.url, also={"cluster": "west"})
    assert texts(spool) == ["in west"]
    assert len(gaps) == 1


def test_times_out_of_order_and_ahead(server: loki_server.LokiServer) -> None:
    """Lines are in the order of their times; a node whose clock is ahead loses none."""
    job, now = f"clocks-{uuid4().hex[:8]}", time.time_ns()
    times = (-60, 500, -300, 400, -200)
    server.push([({"job": job, "rank": "0"}, [(now + second * NS, f"at {second}") for second in times])])
    record, spool, _ = collected(job, server.url)
    assert record.seen is not None
    assert record.seen.end == (now + 500 * NS) / NS
    (log,) = spool.logs.values()
    assert [line.partition("Z ")[2] for line in log.decode().splitlines()] == [
        f"at {second}" for second in sorted(times)
    ]


def test_the_longest_lines(server: loki_server.LokiServer) -> None:
    """256 KB each, more than fit into one answer of the usual size; cut at 64 KB."""
    job, at = f"long-{uuid4().hex[:8]}", time.time_ns() - 600 * NS
    for number in range(40):
        server.push([({"job": job, "rank": "0"}, [(at + number * NS, f"{number} ".ljust(256 << 10, "x"))])])
    _, spool, _ = collected(job, server.url)
    (log,) = spool.logs.values()
    lines = log.decode().splitlines()
    assert [line.split(" ")[1] for line in lines] == [str(number) for number in range(40)]
    assert {len(line.partition("Z ")[2]) for line in lines} == {64 << 10}


@pytest.mark.parametrize("refuse", [2, 3])
def test_a_busy_server(server: loki_server.LokiServer, refuse: int) -> None:
    """429 with Retry-After to every second or third request: all lines, no gap."""
    job, at = f"busy-{uuid4().hex[:8]}", time.time_ns() - 60 * NS
    labels: Mapping[str, str] = {"job": job, "rank": "0"}
    server.push([(labels, [(at, "begin"), (at + NS, "end")])])
    with busy(server.url, refuse=refuse) as proxy:
        _, spool, gaps = collected(job, proxy.url)
    assert (texts(spool), len(gaps)) == (["begin", "end"], 1)
    assert proxy.refused > 1


def test_new_lines_are_reported(server: loki_server.LokiServer) -> None:
    """By the tail, with metadata and without those of another job; the next one beyond the server's limit is refused."""
    job, record = f"tail-{uuid4().hex[:8]}", JobRecord(Job(id="tail"), "test")
    record = replace(record, job=replace(record.job, id=job))
    loki = Loki(LokiSettings(Endpoint(server.url)))
    tail = loki.tail(record, Deadline.within(60))
    at = time.time_ns()
    server.push([({"job": job, "pod": "p-0"}, [(at, "new", {"rank": "3"})]), ({"job": "other"}, [(at, "no")])])
    spool = Memory(Deadline.within(20))
    assert tail.read(spool, 10.0) == ()
    assert (list(spool.logs), texts(spool)) == (["logs/loki/rank-3_p-0.log"], ["new"])
    more = [loki.tail(record, Deadline.within(60)) for _ in range(10)]
    with pytest.raises(SourceFailed, match="max concurrent tail requests"):
        more[-1].read(spool, 10.0)
    for open_tail in (tail, *more):
        open_tail.close()
