"""The connector against a real Elasticsearch or OpenSearch (SIGNALBOX_TEST_ELASTICSEARCH names its address)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.base.contract import Deadline, JobQuery
from connectors.base.http import HttpClient
from connectors.log_stores.elasticsearch.connector import Elasticsearch
from connectors.log_stores.elasticsearch.store import ElasticStore
from connectors.log_stores.store_queries import LineQuery
from kb.model import Window
from tests.support import elasticsearch_server, stored_logs
from tests.support.contract.subject import START, Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.elasticsearch_server import ElasticServer
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import asked_of, first, refilled

NS = 1_000_000_000
BEGIN = (time.time_ns() // NS - 7200) * NS
MAPPING = {"@timestamp": "date", "message": "text", "job": "keyword", "rank": "keyword", "node": "keyword"}
KINDS = ("text", "match_only_text", "keyword", "wildcard")
LIMITS: dict[str, dict[str, object]] = {
    "default": {},
    "all": {"max_result_window": 100, "max_terms_count": 2, "max_regex_length": 100, "number_of_shards": 3},
}
NAMES = ('a"b', "a*", "a?", "a\nb", "a\\", "job:(x OR y)", "[a TO z]", "ä", "a b")


@pytest.fixture(scope="module")
def server() -> ElasticServer:
    """The server."""
    return elasticsearch_server.running()


@contextmanager
def store(server: ElasticServer, index: str, job: str, **more: Any) -> Iterator[ElasticStore]:
    """The lines of a job as the plan sees them."""
    settings = server.settings(index, **more)
    found = ElasticStore(settings, HttpClient(settings.endpoint), Deadline.within(60))
    found.choose({"job": (job,)})
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", ["lab-disk-full", "lab-segfault", "lab-slow-rank"])
def test_the_same_diagnosis_as_from_the_files(server: ElasticServer, name: str, limits: str, tmp_path: Path) -> None:
    """All lines, or those that the plan selects: verdict, first diagnosis and suspects equal those of the bundle itself."""
    held = stored_logs.streams(BUNDLES / name)
    wanted = first(BUNDLES / name)
    with server.index(MAPPING, LIMITS[limits]) as index:
        server.store(index, ({**who, "@timestamp": at, "message": line} for who, lines in held for at, line in lines))
        for all_lines in (40_000, 0):
            target = tmp_path / str(all_lines)
            with store(server, index, stored_logs.JOB, order="offset") as found:
                refilled(BUNDLES / name, target, found, asked_of(held), all_lines)
            assert first(target) == wanted


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("backward", [True, False])
def test_pages_lose_nothing_and_double_nothing(server: ElasticServer, backward: bool, tied: bool) -> None:
    """Lines that share their times at every border of a page: each comes once, with a point in time and without one."""
    docs = [{"@timestamp": BEGIN + at // 40 * NS, "message": f"{at}", "job": "llm"} for at in range(400)]
    with server.index(MAPPING, {"number_of_shards": 3}) as index:
        server.store(index, docs)
        with store(server, index, "llm", page=50) as found:
            if not tied:
                found.searches.flavour = None
            lines = [line.text for page in found.pages(LineQuery(BEGIN, BEGIN + 3600 * NS, backward)) for line in page]
    assert sorted(lines) == sorted(str(at) for at in range(400))


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_found_in_each_type_of_field(server: ElasticServer, kind: str) -> None:
    """Within longer words, next to punctuation, in lines of 30 KB."""
    if server.flavour == "opensearch" and kind == "match_only_text":
        pytest.skip("OpenSearch has this type since 2.12 only")
    words = ("rror", "NCCL WARN", "Xid (", "alpha*beta", "it/s", "illed")
    wanted = [
        "RuntimeError: x",
        "a NCCL WARN b",
        "NVRM: Xid (PCI:0): 79",
        "alpha*beta",
        "1.2it/s]",
        "Killed",
        "y" * 30_000 + " error",
    ]
    docs = [
        {"@timestamp": BEGIN + at * NS, "message": text, "job": "llm"}
        for at, text in enumerate([*wanted, "iteration 3 loss 2.0", "all well", "site-packages"])
    ]
    with server.index({**MAPPING, "message": kind}) as index:
        server.store(index, docs)
        with store(server, index, "llm") as found:
            ask = LineQuery(BEGIN, BEGIN + 3600 * NS, words=words)
            assert [line.text for page in found.pages(ask) for line in page] == wanted


def test_a_lost_point_in_time_is_opened_again(server: ElasticServer) -> None:
    """Deleted between two pages: the search goes on where it stopped."""
    docs = [{"@timestamp": BEGIN + at // 7 * NS, "message": f"{at}", "job": "llm"} for at in range(200)]
    with server.index(MAPPING) as index:
        server.store(index, docs)
        with store(server, index, "llm", page=50) as found:
            lines = []
            for number, page in enumerate(found.pages(LineQuery(BEGIN, BEGIN + 3600 * NS))):
                lines += [line.text for line in page]
                if number in (0, 2) and found.searches._pit:
                    found.searches._delete(found.searches._pit)
    assert sorted(lines) == sorted(str(at) for at in range(200))


def test_jobs_counts_and_names(server: ElasticServer) -> None:
    """Names with wildcards and Lucene syntax find their own lines; counts by origin; the job's times; the fields of `check`."""
    docs = [
        {"@timestamp": BEGIN + at * NS, "message": "x", "job": name, "rank": str(at % 2)}
        for name in NAMES
        for at in range(4)
    ]
    with server.index(MAPPING) as index:
        server.store(index, docs)
        source = Elasticsearch(server.settings(index))
        window = Window(BEGIN / NS - 86400 * 20, BEGIN / NS + 3600)
        for name in NAMES:
            (record,) = source.find(JobQuery(name, window), Deadline.within(30))
            assert [member.rank for member in record.members] == [0, 1]
            assert record.seen == Window(BEGIN / NS, BEGIN / NS + 3.001)
        assert source.find(JobQuery("a.", window), Deadline.within(30)) == ()
        assert {job.id for job in source.recent(window, Deadline.within(30))} == set(NAMES)
        checked = source.check(Deadline.within(30))
        assert checked.works, checked.words
        with store(server, index, "a b") as found:
            counts = found.tally(BEGIN, BEGIN + 4 * NS, 2 * NS).counts
        assert {who.rank: sum(held.values()) for who, held in counts.items()} == {"0": 2, "1": 2}


@contextmanager
def _contract_server() -> Iterator[str]:
    """A real server with the job of the contract and another, in an index of the pattern that the connector reads."""
    server = elasticsearch_server.running()
    with server.index(MAPPING) as index:
        server.store(
            index,
            (
                {"@timestamp": round((START + 60 * at) * NS), "message": f"{job} {at} error", "job": job, "rank": "0"}
                for job in (stored_logs.JOB, "other")
                for at in range(1, 50)
            ),
        )
        yield server.url


def _built(url: str) -> Elasticsearch:
    """The connector for the address that the contract gives, with the login of the server."""
    settings = elasticsearch_server.running().settings("signalbox-test-*")
    endpoint = type(settings.endpoint)(url, settings.endpoint.login)
    fields = {name: getattr(settings, name) for name in ("index", "flavour", "api_key")}
    return Elasticsearch(type(settings)(endpoint, **fields), hasty(endpoint))


@pytest.mark.skipif(
    not elasticsearch_server.named(), reason=f"{elasticsearch_server.VARIABLE} names no Elasticsearch or OpenSearch"
)
class TestContract(Contract):
    """The contract suite of all connectors."""

    subject = Subject("real elasticsearch", _contract_server, _built)
