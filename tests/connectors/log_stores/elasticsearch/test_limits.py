"""Elasticsearch and OpenSearch with limits, refusals and faults: each is met by asking less, and nothing fetched is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from connectors.base.contract import CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import Endpoint, HttpClient
from connectors.log_stores.elasticsearch.connector import Elasticsearch, ElasticsearchSettings
from connectors.log_stores.elasticsearch.store import ElasticStore
from connectors.log_stores.store_queries import LineQuery
from kb.model import Gap, Job, JobRecord, Prefilter, Window
from tests.doubles.elasticsearch import ElasticDouble, Flavour, serving
from tests.doubles.elasticsearch_cluster import Cluster
from tests.support.contract.subject import Memory

NS = 1_000_000_000
BEGIN = 1_780_000_200 * NS
JOB = "llm-7b"
MAPPING = {"@timestamp": "date_nanos", "message": "text", "job": "keyword", "rank": "keyword", "node": "keyword"}
COARSE = {**MAPPING, "@timestamp": "date"}
ALL = LineQuery(BEGIN, BEGIN + 3600 * NS)
WINDOW = Window(BEGIN / NS, BEGIN / NS + 3600)
FLAVOURS = pytest.mark.parametrize("flavour", ["elasticsearch", "opensearch"])
FEW = 300


def doc(at: int, message: str, rank: object = "0", job: str = JOB, **more: Any) -> dict[str, Any]:
    """A document of one line."""
    return {"@timestamp": at, "message": message, "job": job, "rank": rank, "node": "node-a", **more}


def crowded(number: int = FEW) -> list[dict[str, Any]]:
    """Documents of which many share a time."""
    return [doc(BEGIN + at // 40 * NS, f"line {at}", str(at % 3)) for at in range(number)]


@contextmanager
def store(double: ElasticDouble, seconds: float = 20.0, **more: Any) -> Iterator[ElasticStore]:
    """The store of a double as the plan sees it."""
    with serving(double):
        settings = ElasticsearchSettings(Endpoint(double.url), flavour=double.flavour, **more)
        client = HttpClient(Endpoint(double.url), sleep=lambda _: None)
        found = ElasticStore(settings, client, Deadline.within(seconds))
        found.choose({"job": (JOB,)})
        try:
            yield found
        finally:
            found.close()


def texts(found: ElasticStore, ask: LineQuery = ALL) -> list[str]:
    """The lines of all pages, in order."""
    return [line.text for page in found.pages(ask) for line in page]


def said(found: ElasticStore) -> list[str]:
    """The codes of the gaps."""
    return [gap.code for gap in found.gaps()]


def collected(double: ElasticDouble, **more: Any) -> tuple[Memory, tuple[Gap, ...]]:
    """What a collection wrote, and what it misses."""
    deadline = Deadline.within(20)
    spool = Memory(deadline)
    settings = ElasticsearchSettings(Endpoint(double.url), flavour=double.flavour, **more)
    source = Elasticsearch(settings, HttpClient(Endpoint(double.url), sleep=lambda _: None))
    asked = CollectionRequest(JobRecord(Job(id=JOB), "test"), WINDOW, deadline, Prefilter(("error",)))
    return spool, tuple(source.collect(asked, spool))


# -- points in time --------------------------------------------------------------------------------------------------------


WITHOUT = {
    "forbidden": Cluster(pit="forbidden"),
    "too old": Cluster(pit="absent"),
    "too many": Cluster(contexts=0),
    "too long": Cluster(keep_alive=60),
    "lost after each second search": Cluster(breaks=2),
    "lost after each search": Cluster(breaks=1),
    "no unique field": Cluster(id_fielddata=False),
}


@pytest.mark.quick(6)
@FLAVOURS
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mapping", [MAPPING, COARSE], ids=["nanoseconds", "milliseconds"])
@pytest.mark.parametrize("name", WITHOUT)
def test_pages_without_a_point_in_time(flavour: Flavour, name: str, mapping: dict[str, str], backward: bool) -> None:
    """Refused, or lost in the middle: pages go on where the last one ended, and each line comes once, in order of time."""
    docs = crowded()
    cluster = Cluster(**vars(WITHOUT[name]))
    with store(ElasticDouble(docs, mapping, flavour=flavour, cluster=cluster), page=50) as found:
        lines = [line for page in found.pages(ALL._replace(backward=backward)) for line in page]
        assert said(found) == []
    assert sorted(line.text for line in lines) == sorted(entry["message"] for entry in docs)
    assert [line.at for line in lines] == sorted((line.at for line in lines), reverse=backward)


def test_more_lines_of_one_time_than_a_query_can_reach() -> None:
    """Without a point in time, what is beyond the limit is missing, and a gap says so; later lines are there."""
    docs = [*(doc(BEGIN, f"{at}") for at in range(200)), doc(BEGIN + NS, "later")]
    double = ElasticDouble(docs, MAPPING, cluster=Cluster(pit="forbidden", window=120))
    with store(double, page=50) as found:
        lines = texts(found)
        assert len(set(lines)) == len(lines) >= 101
        assert lines[-1] == "later"
        assert said(found) == ["lines_of_one_time"]


def test_the_other_product_is_noticed() -> None:
    """A cluster of the other product than configured: its own points in time are used, and closed."""
    for configured, real in (("elasticsearch", "opensearch"), ("opensearch", "elasticsearch")):
        double = ElasticDouble(crowded(), MAPPING, flavour=real)  # type: ignore[arg-type]
        with serving(double):
            settings = ElasticsearchSettings(Endpoint(double.url), flavour=configured, page=50)  # type: ignore[arg-type]
            deadline = Deadline.within(20)
            spool = Memory(deadline)
            asked = CollectionRequest(JobRecord(Job(id=JOB), "test"), WINDOW, deadline, Prefilter())
            assert tuple(Elasticsearch(settings).collect(asked, spool)) == ()
        assert sum(log.count(b"\n") for log in spool.logs.values()) == FEW
        assert double._issued
        assert double.open == set()


def test_points_in_time_are_closed() -> None:
    """Whatever happens in between, at the end none is open that the server still has."""
    for cluster in (Cluster(), Cluster(busy=2), Cluster(broken_shards=1), Cluster(window=60)):
        double = ElasticDouble(crowded(), MAPPING, cluster=cluster)
        with store(double, page=100) as found:
            assert len(texts(found)) == FEW
        assert double.open == set()


def test_a_point_in_time_is_closed_after_the_deadline() -> None:
    """A collection that ran out of time leaves none open."""
    double = ElasticDouble(crowded(), MAPPING)
    with store(double, seconds=1000.0) as found:
        assert len(texts(found)) == FEW
        assert len(double.open) == 1
        found.calls._deadline = Deadline.within(-1)
        found.close()
        assert double.open == set()


# -- limits ----------------------------------------------------------------------------------------------------------------

LIMITS: dict[str, Cluster] = {
    "window": Cluster(window=40),
    "breaker": Cluster(breaker_above=60),
    "busy": Cluster(busy=3),
    "shards fail once": Cluster(broken_shards=1),
    "killed and back": Cluster(gone=(3, 6)),
    "a shard is busy once": Cluster(broken_shards=1, shard_error="es_rejected_execution_exception"),
    "few terms": Cluster(terms=1),
    "few states": Cluster(states=20),
    "short expressions": Cluster(regex=20),
    "all": Cluster(window=40, busy=2, broken_shards=1, terms=1, regex=20, pit="forbidden", breaker_above=35),
}


@pytest.mark.quick("all-elasticsearch", "window-opensearch", "breaker-elasticsearch")
@FLAVOURS
@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_met_by_asking_less(flavour: Flavour, name: str) -> None:
    """All lines, and all lines with words, as without limits."""
    docs = [
        doc(BEGIN + at * NS, f"{at} {'failed to open' if at % 50 == 7 else 'fine'}", str(at % 3)) for at in range(200)
    ]
    words = ("ailed", "Traceback", "NCCL WARN", "imeout", "illed")
    double = ElasticDouble(docs, MAPPING, flavour=flavour, cluster=Cluster(**vars(LIMITS[name])))
    with store(double, page=100) as found:
        found.choose({"job": (JOB, "other")})
        assert texts(found) == [entry["message"] for entry in docs]
        assert texts(found, ALL._replace(words=words)) == [text for text in texts(found) if "ailed" in text]
        assert said(found) == []


def test_counts_with_few_buckets() -> None:
    """Counts by origin and time, and a sample, where one answer may hold 100 buckets; the same as with 65,535."""
    docs = [doc(BEGIN + at * NS, f"loss {at}", str(at % 7)) for at in range(700)]
    results = []
    for buckets in (65_535, 100):
        with store(ElasticDouble(docs, MAPPING, cluster=Cluster(buckets=buckets))) as found:
            tally = found.tally(BEGIN, BEGIN + 700 * NS, 10 * NS)
            sample = found.sampled(ALL._replace(end=BEGIN + 700 * NS, words=("loss",)), NS)
            results.append((tally.counts, said(found)))
            assert tally.total() == 700
            assert 40 <= len(sample) <= 700
    assert results[0] == results[1]


def test_only_whole_words_where_parts_may_not_be_searched() -> None:
    """With search.allow_expensive_queries false, whole words are searched, and a gap says so; a keyword field is refused."""
    docs = [doc(BEGIN, "RuntimeError: x"), doc(BEGIN + 1, "fine"), doc(BEGIN + 2, "it failed")]
    with store(ElasticDouble(docs, MAPPING, cluster=Cluster(expensive=False))) as found:
        assert texts(found, ALL._replace(words=("rror", "ailed"))) == ["RuntimeError: x", "it failed"]
        assert said(found) == ["not_searched"]
    double = ElasticDouble(docs, {**MAPPING, "message": "keyword"}, cluster=Cluster(expensive=False))
    with store(double) as found, pytest.raises(SourceFailed, match="allow_expensive_queries"):
        texts(found, ALL._replace(words=("rror",)))


def test_a_slow_cluster_is_asked_for_shorter_windows_and_keeps_what_it_gave() -> None:
    """Answers that ran out of time: their lines are there, with a gap, and the time limit is kept."""
    docs = [doc(BEGIN + at * NS, f"{at}") for at in range(100)]
    with store(ElasticDouble(docs, MAPPING, timed_out=True), seconds=20) as found:
        lines = texts(found)
        assert len(lines) > 30
        assert said(found) == ["partial_answer"]


def test_a_cluster_that_goes_away_keeps_what_it_gave() -> None:
    """It stops answering between pages: the lines before that were returned, then the search fails."""
    with store(ElasticDouble(crowded(), MAPPING, cluster=Cluster(gone=(5, 10**9))), page=50) as found:
        pages = found.pages(ALL)
        assert [len(next(pages)), len(next(pages))] == [50, 50]
        with pytest.raises(SourceFailed, match="disconnected"):
            next(pages)


def test_shards_that_stay_away_are_a_gap() -> None:
    """The lines of the others are there; the gap names index and reason; so does a cluster that was skipped."""
    cluster = Cluster(broken_shards=-1, skipped_clusters=("east",))
    double = ElasticDouble(crowded(), MAPPING, cluster=cluster)
    with serving(double):
        spool, gaps = collected(double)
    assert sum(log.count(b"\n") for log in spool.logs.values()) == FEW
    assert sorted(gap.reason for gap in gaps) == [
        "2 of 3 shards failed: node left (logs-train-000001)",
        "not all clusters answered: east: skipped",
    ]


# -- indices, fields, names ------------------------------------------------------------------------------------------------


def test_indices_that_may_not_be_read_are_left_out() -> None:
    """Of several indices one is forbidden: the others are searched, and a gap names it. If none is left, that is the failure."""
    docs = [
        doc(BEGIN, "mine", _index="logs-a"),
        doc(BEGIN + 1, "secret", _index="logs-b"),
        doc(BEGIN + 2, "old", _index="logs-a-old"),
    ]
    double = ElasticDouble(docs, MAPPING, index="logs-a", cluster=Cluster(forbidden=frozenset({"logs-b"})))
    with serving(double):
        spool, gaps = collected(double, index="logs-a*,logs-b,-logs-a-old")
        assert [line.split()[1] for log in spool.logs.values() for line in log.splitlines()] == [b"mine"]
        (gap,) = gaps
        assert gap.code == "indices_left_out"
        assert "logs-b" in gap.reason
        with pytest.raises(SourceFailed) as failed:
            collected(double, index="logs-b")
        assert failed.value.kind == "forbidden"
        with pytest.raises(SourceFailed, match="no such index, alias or data stream: logs-c"):
            collected(double, index="logs-c")


@pytest.mark.parametrize(
    ("mapping", "names", "nested"),
    [
        ({"message": "match_only_text", "kubernetes.labels.job": "keyword", "kubernetes.pod.name": "keyword"}, {"job": "kubernetes.labels.job", "pod": "kubernetes.pod.name"}, True),
        ({"message": "text", "job": "text", "job.keyword": "keyword", "pod": "text", "pod.keyword": "keyword"}, {"job": "job", "pod": "pod"}, False),
        ({"message": "text", "job": "text", "job.keyword": "keyword", "pod": "text", "pod.keyword": "keyword"}, {"job": "job.keyword", "pod": "pod.keyword"}, True),
        ({"message": "wildcard", "attributes": "flattened", "k8s.pod.name": "keyword"}, {"job": "attributes.job", "pod": "k8s.pod.name"}, False),
    ],
    ids=["filebeat", "fluentd", "fluent-bit", "otel"],
)  # fmt: skip
def test_mappings_of_shippers(mapping: dict[str, str], names: dict[str, str], nested: bool) -> None:
    """Jobs are compared whole and lines are told apart by pod, however the shipper maps them."""
    job, pod = (names[role].removesuffix(".keyword") for role in ("job", "pod"))
    flat = {job: JOB, pod: "p-1"}
    docs = [
        {"@timestamp": BEGIN, "message": "RuntimeError", **flat},
        {"@timestamp": BEGIN + 1, "message": "another job", **flat, job: "llm 7b"},
        {"@timestamp": BEGIN + 2, "message": "no pod", job: JOB},
    ]
    types = {"@timestamp": "date_nanos", **mapping}
    known = {**types, names["job"]: "keyword"} if "attributes" in mapping else types
    double = ElasticDouble(docs, known, nested=nested)
    if "attributes" in mapping:
        double.unlisted = frozenset({names["job"]})
    with store(double, fields=names) as found:
        found.choose({names["job"]: (JOB,)})
        lines = [(line.who.pod, line.text) for page in found.pages(ALL) for line in page]
        assert lines == [("p-1", "RuntimeError"), ("", "no pod")]
        assert texts(found, ALL._replace(words=("rror",))) == ["RuntimeError"]
        assert {who.pod: sum(held.values()) for who, held in found.tally(ALL.start, ALL.end, NS).counts.items()} == {
            "": 1,
            "p-1": 1,
        }


NAMES: Sequence[str] = ('a"b', "a{b}", "a*", "a?", "a\nb", "a\\", "job:(x OR y)", "a/b", "[a TO z]", "ä", "a b")


def test_names_are_values() -> None:
    """A name with wildcards, Lucene syntax or control characters finds its own lines and no others."""
    docs = [doc(BEGIN + at, f"of {name!r}", job=name) for at, name in enumerate([*NAMES, "ab", "axb", "a"])]
    double = ElasticDouble(docs, MAPPING)
    with serving(double):
        source = Elasticsearch(ElasticsearchSettings(Endpoint(double.url)))
        for name in NAMES:
            (record,) = source.find(JobQuery(name, WINDOW), Deadline.within(20))
            assert record.job.id == name
        assert source.find(JobQuery("a.", WINDOW), Deadline.within(20)) == ()
        with store(double) as found:
            for name in NAMES:
                found.choose({"job": (name,)})
                assert texts(found) == [f"of {name!r}"]


def test_the_same_pod_in_two_clusters_is_said() -> None:
    """Lines of two clusters under one name are there, and a gap names both."""
    docs = [doc(BEGIN, "x", _index="east:logs"), doc(BEGIN + 1, "y", _index="west:logs")]
    double = ElasticDouble(docs, MAPPING, index="east:logs")
    with serving(double):
        spool, gaps = collected(double, index="*:logs")
        assert sum(log.count(b"\n") for log in spool.logs.values()) == 2
        (gap,) = gaps
        assert (gap.code, "east, west" in gap.reason) == ("several_clusters", True)
        assert collected(double, index="east:logs")[1] == ()


def test_tiers_can_be_chosen() -> None:
    """Frozen indices are searched unless the tiers are limited."""
    docs = [doc(BEGIN, "hot"), doc(BEGIN + 1, "frozen", _tier="data_frozen")]
    for tiers, wanted in (((), ["hot", "frozen"]), (("hot", "warm"), ["hot"])):
        with store(ElasticDouble(docs, MAPPING), tiers=tiers) as found:
            assert texts(found) == wanted


def test_lines_beyond_what_the_index_searches() -> None:
    """Values longer than `ignore_above` of a keyword field are found by words too; lines of 256 KB are cut."""
    long = "x" * 262_144 + " RuntimeError"
    docs = [doc(BEGIN, long), doc(BEGIN + 1, "RuntimeError"), doc(BEGIN + 2, "fine")]
    double = ElasticDouble(docs, {**MAPPING, "message": "keyword"}, cluster=Cluster(ignore_above=32_766))
    with store(double) as found:
        assert texts(found, ALL._replace(words=("rror",))) == [long, "RuntimeError"]
    with serving(double):
        spool, gaps = collected(double)
        assert gaps == ()
        assert max(len(line) for log in spool.logs.values() for line in log.splitlines()) < 70_000


def test_a_job_that_ended_ten_days_ago() -> None:
    """Found by going backwards, with the times of its last run only."""
    end = BEGIN
    docs = [doc(end - 20 * 86400 * NS, "an earlier run"), doc(end - 3600 * NS, "first"), doc(end, "last")]
    double = ElasticDouble(docs, MAPPING)
    now = end / NS + 10 * 86400
    with serving(double):
        source = Elasticsearch(ElasticsearchSettings(Endpoint(double.url)))
        (record,) = source.find(JobQuery(JOB, Window(now - 30 * 86400, now)), Deadline.within(20))
    assert record.seen == Window(end / NS - 3600, end / NS + 0.001)
    assert len(double.asked) <= 14
