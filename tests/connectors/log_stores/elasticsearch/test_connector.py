"""Elasticsearch and OpenSearch: paging by a point in time, words by the kind of field, and the same diagnosis as from files."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.base.contract import CollectionRequest, Deadline, JobQuery, JobSummary, SourceFailed
from connectors.base.http import Endpoint, HttpClient, Login
from connectors.base.secret import Secret
from connectors.log_stores.elasticsearch.connector import Elasticsearch, ElasticsearchSettings
from connectors.log_stores.elasticsearch.store import ElasticStore
from connectors.log_stores.store_queries import LineQuery
from kb.model import Prefilter, Window
from tests.doubles.elasticsearch import ElasticDouble, Flavour, serving
from tests.support import stored_logs
from tests.support.contract.subject import START, Memory, Subject, hasty
from tests.support.contract.suite import Contract
from tests.support.paths import BUNDLES
from tests.support.pulled_lines import asked_of, first, refilled

NS = 1_000_000_000
BEGIN = 1_780_000_200 * NS
JOB = "llm-7b"
MAPPING = {"@timestamp": "date_nanos", "message": "text", "job": "keyword", "rank": "keyword", "node": "keyword"}
ALL = LineQuery(BEGIN, BEGIN + 3600 * NS)
FLAVOURS = pytest.mark.parametrize("flavour", ["elasticsearch", "opensearch"])


def doc(at: int, message: str, rank: object = "0", job: str = JOB) -> dict[str, Any]:
    """A document of one line."""
    return {"@timestamp": at, "message": message, "job": job, "rank": rank, "node": "node-a"}


def settings(double: ElasticDouble, **more: Any) -> ElasticsearchSettings:
    """Settings for a double."""
    return ElasticsearchSettings(Endpoint(double.url), flavour=double.flavour, **more)


@contextmanager
def store(double: ElasticDouble, **more: Any) -> Iterator[ElasticStore]:
    """The store of a double as the plan sees it; at the end no point in time is left open."""
    with serving(double):
        client = HttpClient(Endpoint(double.url), sleep=lambda _: None)
        found = ElasticStore(settings(double, **more), client, Deadline.within(20))
        found.choose({"job": (JOB,)})
        try:
            yield found
        finally:
            found.close()
        assert double.open == set()


def taken(found: ElasticStore, ask: LineQuery) -> list[tuple[int, str]]:
    """All lines of all pages."""
    return [(line.at, line.text) for page in found.pages(ask) for line in page]


@FLAVOURS
@pytest.mark.parametrize("backward", [False, True])
def test_pages_lose_nothing_and_double_nothing(flavour: Flavour, backward: bool) -> None:
    """With many lines of one time, including identical ones, each comes once, in order."""
    chance = random.Random(3)
    docs = [doc(BEGIN + chance.randrange(4) * NS, f"{at % 90}", str(at % 3)) for at in range(300)]
    with store(ElasticDouble(docs, MAPPING, flavour=flavour), page=50) as found:
        lines = taken(found, ALL._replace(backward=backward))
    assert Counter((entry["@timestamp"], entry["message"]) for entry in docs) == Counter(lines)
    assert [at for at, _ in lines] == sorted((at for at, _ in lines), reverse=backward)


WORDS = ("Out Of Memory", "NCCL WARN", "Xid (", "Aborted", "alpha*beta", "Failed?", "code137", "EI00")


@pytest.mark.parametrize("kind", ["text", "keyword"])
def test_every_line_with_a_word_is_found(kind: str) -> None:
    """Words as they are written, within longer words, next to punctuation: no line with one is missed, no other is returned."""
    wanted = [
        "CUDA Out Of Memory.",
        "x NCCL WARN y",
        "Xid (PCI:0): 79",
        "TaskAborted!",
        "alpha*beta",
        "it Failed?",
        "exit_code137",
        "EI0001",
    ]
    ordinary = ["iteration 3 loss 2.0", "alphabet", "all well", "task aborted by hand"]
    docs = [doc(BEGIN + at, text) for at, text in enumerate((*wanted, *ordinary))]
    with store(ElasticDouble(docs, {**MAPPING, "message": kind})) as found:
        lines = [text for _, text in taken(found, ALL._replace(words=WORDS))]
    assert lines == wanted


def test_too_many_clauses_are_made_fewer() -> None:
    """A server that accepts 1,024 clauses is asked again with one piece of each word."""
    words = tuple(f"alpha{at:03d} beta{at:03d} gamma{at:03d}" for at in range(600))
    docs = [doc(BEGIN, "alpha007 beta007 gamma007"), doc(BEGIN + 1, "other")]
    with store(ElasticDouble(docs, MAPPING)) as found:
        assert taken(found, ALL._replace(words=words)) == [(BEGIN, "alpha007 beta007 gamma007")]


def test_counts_by_speaker_and_time() -> None:
    """Lines are counted by rank and bucket, including numeric ranks and lines without a rank."""
    docs = [doc(BEGIN + at * NS, "x", at % 2) for at in range(10)]
    docs.append({"@timestamp": BEGIN, "message": "launcher", "job": JOB})
    with store(ElasticDouble(docs, {**MAPPING, "rank": "long"})) as found:
        tally = found.tally(BEGIN, BEGIN + 10 * NS, 5 * NS)
    told = {who.rank: counts for who, counts in tally.counts.items()}
    assert told == {"": {BEGIN: 1}, "0": {BEGIN: 3, BEGIN + 5 * NS: 2}, "1": {BEGIN: 2, BEGIN + 5 * NS: 3}}


def test_a_sample_is_one_line_of_each_stretch() -> None:
    """The first line of each bucket with a word."""
    docs = [doc(BEGIN + at * NS, f"loss {at}") for at in range(100)]
    with store(ElasticDouble(docs, MAPPING)) as found:
        sample = found.sampled(ALL._replace(words=("loss",)), 20 * NS)
    assert [line.text for line in sample] == [f"loss {at}" for at in range(0, 100, 20)]


def test_text_fields_are_compared_whole_by_their_keyword() -> None:
    """A job's name in an analysed field is searched in its sub-field; without one the search is refused, not guessed."""
    docs = [doc(BEGIN, "mine"), doc(BEGIN, "other", job="llm 7b big")]
    mapping = {**MAPPING, "job": "text", "job.keyword": "keyword"}
    with store(ElasticDouble(docs, mapping)) as found:
        assert taken(found, ALL) == [(BEGIN, "mine")]
    with (
        store(ElasticDouble(docs, {**MAPPING, "job": "text"})) as found,
        pytest.raises(SourceFailed, match="keyword field"),
    ):
        taken(found, ALL)


def test_partial_answers_are_gaps() -> None:
    """A search that timed out and failed shards are reported."""
    double = ElasticDouble([doc(BEGIN, "x")], MAPPING, timed_out=True, shards_failed=2)
    with store(double) as found:
        taken(found, ALL)
        told = [gap.reason for gap in found.gaps()]
    assert told == [
        "the query timed out and returned partial results",
        "2 of 3 shards failed: node left (logs-train-000001)",
    ]


def collected(double: ElasticDouble, **more: Any) -> tuple[Memory, tuple[Any, ...]]:
    """What a collection wrote, and what it misses."""
    deadline = Deadline.within(20)
    spool = Memory(deadline)
    asked = CollectionRequest(
        stored_logs.record(), Window(BEGIN / NS, BEGIN / NS + 3600), deadline, Prefilter(("error",))
    )
    return spool, tuple(Elasticsearch(settings(double, **more)).collect(asked, spool))


def test_api_key_and_index_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is sent as ApiKey; an index pattern with special characters is one part of the path; nested sources are read."""
    monkeypatch.setenv("ES_KEY", "abc==")
    double = ElasticDouble([doc(BEGIN, "x")], MAPPING, api_key="abc==", nested=True)
    with serving(double):
        spool, gaps = collected(double, api_key=Secret(env="ES_KEY"), index="logs-*,-old-*,<logs-{now/d}>")
        assert list(spool.logs) == ["logs/elasticsearch/rank-0_node-a.log"]
        assert gaps == ()
        assert double.asked[0][1] == "/logs-%2A%2C-old-%2A%2C%3Clogs-%7Bnow%2Fd%7D%3E/_field_caps"
        with pytest.raises(SourceFailed) as failed:
            collected(double)
    assert failed.value.kind == "unauthorised"


def test_login_and_missing_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a password; a nonexistent index is reported as missing."""
    monkeypatch.setenv("ES_PASSWORD", "secret")
    double = ElasticDouble([doc(BEGIN, "x")], MAPPING, login=("reader", "secret"))
    with serving(double):
        endpoint = Endpoint(double.url, Login(user="reader", password=Secret(env="ES_PASSWORD")))
        checked = Elasticsearch(ElasticsearchSettings(endpoint)).check(Deadline.within(60))
        assert checked.works
        assert "among the terms of message" in checked.words
        missing = Elasticsearch(ElasticsearchSettings(endpoint, index="train")).check(Deadline.within(60))
        assert not missing.works
        assert "no such index" in missing.words


def test_jobs_are_found_by_their_field() -> None:
    """A job with exactly this name and its speakers; all names, the latest first."""
    docs = [doc(BEGIN + NS, "x"), doc(BEGIN + 9 * NS, "y", job="late"), doc(BEGIN, "z", rank="1")]
    double = ElasticDouble(docs, MAPPING)
    window = Window(BEGIN / NS, BEGIN / NS + 60)
    with serving(double):
        source = Elasticsearch(settings(double))
        (record,) = source.find(JobQuery(JOB, window), Deadline.within(60))
        assert source.find(JobQuery("llm", window), Deadline.within(60)) == ()
        recent = source.recent(window, Deadline.within(60))
    assert [(member.name, member.node, member.rank) for member in record.members] == [
        ("rank-0_node-a", "node-a", 0),
        ("rank-1_node-a", "node-a", 1),
    ]
    assert record.seen == Window(BEGIN / NS, BEGIN / NS + 1.001)
    late = BEGIN / NS + 9
    assert recent == (
        JobSummary("late", "late", start=late, end=late),
        JobSummary(JOB, JOB, start=BEGIN / NS, end=BEGIN / NS + 1),
    )
    assert double.open == set()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("flavour", "name"),
    [("elasticsearch", "lab-disk-full"), ("elasticsearch", "lab-killed"), ("opensearch", "lab-killed")],
)
def test_the_same_diagnosis_as_from_the_files(flavour: Flavour, name: str, tmp_path: Path) -> None:
    """All lines, or those that the plan selects: verdict, first diagnosis and suspects equal those of the bundle itself."""
    held = stored_logs.streams(BUNDLES / name)
    docs = [{**labels, "@timestamp": at, "message": line} for labels, lines in held for at, line in lines]
    wanted = first(BUNDLES / name)
    kind = "text" if flavour == "elasticsearch" else "keyword"
    with store(ElasticDouble(docs, {**MAPPING, "message": kind}, flavour=flavour)) as found:
        for all_lines in (40_000, 0):
            target = tmp_path / str(all_lines)
            refilled(BUNDLES / name, target, found, asked_of(held), all_lines)
            assert first(target) == wanted


@contextmanager
def contract_double() -> Iterator[str]:
    """A cluster with the job of the contract and another."""
    docs = [
        doc(round((START + 60 * at) * NS), f"{job} {at} error", job=job)
        for job in (JOB, "other")
        for at in range(1, 50)
    ]
    with serving(ElasticDouble(docs, MAPPING)) as double:
        yield double.url


class TestContract(Contract):
    """The contract suite of all connectors."""

    subject = Subject(
        "elasticsearch",
        contract_double,
        lambda url: Elasticsearch(ElasticsearchSettings(Endpoint(url)), hasty(Endpoint(url))),
    )
