"""Measures a diagnosis from Elasticsearch or OpenSearch as their double plays them.

Seconds, bytes, queries, and whether the first diagnosis is that of the files.

The double refuses what the real ones refuse, and a query that walks through all terms takes as long as Lucene 8.7 took on
the same lines (0.15 s a walk; `--walk`). Its own work is an index in memory. A real server is measured by the tests
instead (SIGNALBOX_TEST_ELASTICSEARCH).

    python bench/elasticsearch.py                     # 64 ranks x 20,000 lines, in each case
    python bench/elasticsearch.py --cases default,window --flavour opensearch
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import numpy as np  # noqa: E402 - the paths come first
import scan_data  # noqa: E402
from log_stores import FileStream, collected_answer, first_of  # noqa: E402

from bot.diagnosis.diagnose import diagnose_paths  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge, prefilter_of  # noqa: E402
from connectors.base.http import Endpoint  # noqa: E402
from connectors.log_stores.elasticsearch.connector import Elasticsearch, ElasticsearchSettings  # noqa: E402
from kb.model import Prefilter  # noqa: E402
from kb.scanning.matcher import HyperscanMatcher, ScanPattern  # noqa: E402
from tests.doubles.elasticsearch import ElasticDouble, Flavour, serving  # noqa: E402
from tests.doubles.elasticsearch_cluster import Cluster, millis, nanos  # noqa: E402

NS = 1_000_000_000
MILLISECOND = 1_000_000
DATA = Path(__file__).parent / "data"
MAPPING = {"@timestamp": "date", "message": "text", "job": "keyword", "rank": "keyword", "node": "keyword"}
CASES: Mapping[str, tuple[Cluster, float]] = {  # and the seconds that each call takes longer
    "default": (Cluster(), 0.0),
    "window": (Cluster(window=1000), 0.0),
    "no point in time": (Cluster(pit="forbidden"), 0.0),
    "lost points in time": (Cluster(breaks=7), 0.0),
    "busy": (Cluster(busy_each=3), 0.0),
    "shards fail": (Cluster(broken_shards=-1), 0.0),
    "shards fail thrice": (Cluster(broken_shards=3), 0.0),
    "killed and back": (Cluster(gone=(16, 24)), 0.0),
    "killed": (Cluster(gone=(30, 10**9)), 0.0),
    "slow": (Cluster(), 2.0),
    "no parts of words": (Cluster(expensive=False), 0.0),
    "all": (Cluster(window=1000, pit="forbidden", busy_each=5, buckets=1000, terms=10, regex=100, gone=(16, 18)), 0.5),
}


class IndexedDouble(ElasticDouble):
    """The double over one index of all lines by time. A row is a position in it."""

    def fill(self, streams: Sequence[FileStream]) -> None:
        """Sort the lines of all streams by time."""
        self.streams = streams
        times = np.concatenate([stream.times for stream in streams])
        who = np.repeat(np.arange(len(streams), dtype=np.int32), [len(stream.times) for stream in streams])
        number = np.concatenate([np.arange(len(stream.times), dtype=np.int32) for stream in streams])
        order = np.argsort(times, kind="stable")
        self.times, self.who, self.number = times[order] // MILLISECOND * MILLISECOND, who[order], number[order]
        self.place = order
        self.masks: dict[str, np.ndarray] = {}

    def rows(self, query: Mapping[str, Any], indices: set[str]) -> Any:
        """The positions that match."""
        del indices
        kept = np.ones(len(self.times), dtype=bool)
        self.query(query)  # refuses what the server refuses
        for part in query["bool"]["filter"]:
            kept &= self._part(part)
        return np.flatnonzero(kept)

    def _part(self, part: Mapping[str, Any]) -> Any:
        ((kind, body),) = part.items()
        if kind == "bool":
            together = np.logical_and if "filter" in body else np.logical_or
            return together.reduce([self._part(item) for item in body.get("filter") or body["should"]])
        ((name, how),) = body.items()
        if kind == "range":
            low, high = (nanos(how[end]) // MILLISECOND * MILLISECOND for end in ("gte", "lt"))
            return (self.times >= low) & (self.times < high)
        if kind == "terms" and name != "message":
            values = set(how)
            return np.array([stream.labels[name] in values for stream in self.streams])[self.who]
        return self._mask(_patterns(kind, how))

    def _mask(self, patterns: Sequence[str]) -> np.ndarray:
        """The lines with a pattern, by the product's engine: Python's is too slow."""
        key = "|".join(patterns)
        if key not in self.masks:
            matcher = HyperscanMatcher([ScanPattern(f"(?i){pattern}") for pattern in patterns])
            flags = []
            for stream in self.streams:
                found = np.zeros(len(stream.times), dtype=bool)
                found[stream.matching(matcher)] = True
                flags.append(found)
            self.masks[key] = np.concatenate(flags)[self.place]
        return self.masks[key]

    def hits(self, found: Any, body: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
        """The first hits in the order that is asked for."""
        keys = self._keys(body)
        down = keys[0][1]
        tied = len(keys) > 1
        if (after := body.get("search_after")) is not None:
            at = int(np.searchsorted(found, after[-1], side="left" if down else "right"))
            found = found[:at] if down else found[at:]
        rows = found[::-1] if down else found
        skip = body.get("from", 0)
        return [self._line(int(row), tied) for row in rows[skip : skip + size]]

    def _line(self, row: int, tied: bool) -> dict[str, Any]:
        stream = self.streams[int(self.who[row])]
        at = int(self.times[row])
        return {
            "_index": self.index,
            "_id": f"{row:08d}",
            "_score": None,
            "_source": {"message": stream.line(int(self.number[row]))},
            "fields": {"rank": [stream.labels["rank"]], "node": [stream.labels["node"]]},
            "sort": [at, row] if tied else [at],
        }

    def aggregate(self, item: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """The result of an aggregation."""
        for name, place in (("min", 0), ("max", -1)):
            if name in item:
                return {"value": float(self.times[rows[place]]) / MILLISECOND if len(rows) else None}
        if "composite" in item:
            return self._composite(item["composite"], rows)
        step = millis(item["date_histogram"]["fixed_interval"])
        keys, starts, counts = np.unique(
            self.times[rows] // MILLISECOND // step * step, return_index=True, return_counts=True
        )
        self._few(len(keys))
        inner = "first" in item.get("aggregations", {})
        buckets = []
        for key, start, count in zip(keys.tolist(), starts.tolist(), counts.tolist(), strict=True):
            top = {"first": {"hits": {"hits": [self._line(int(rows[start]), False)]}}} if inner else {}
            buckets.append({"key": key, "doc_count": count, **top})
        return {"buckets": buckets}

    def _composite(self, composite: Mapping[str, Any], docs: Any) -> dict[str, Any]:
        self._few(composite["size"])
        step = millis(composite["sources"][-1]["at"]["date_histogram"]["fixed_interval"])
        at = self.times[docs] // MILLISECOND // step * step
        pairs, counts = np.unique(np.stack([self.who[docs], at]), axis=1, return_counts=True)
        names = [next(iter(source)) for source in composite["sources"]]
        entries = []
        for who, when, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            labels = self.streams[who].labels
            entries.append(([*(labels[name] for name in names[:-1]), when], count))
        entries.sort()
        if after := composite.get("after"):
            entries = [entry for entry in entries if entry[0] > [after[name] for name in names]]
        buckets = [
            {"key": dict(zip(names, key, strict=True)), "doc_count": count}
            for key, count in entries[: composite["size"]]
        ]
        return {"buckets": buckets, **({"after_key": buckets[-1]["key"]} if buckets else {})}


def _patterns(kind: str, how: Any) -> list[str]:
    """What lines must have for a term of theirs to match."""
    if kind == "terms":
        return [rf"\b{re.escape(word)}\b" for word in how]
    if kind == "wildcard":
        return [re.escape(re.sub(r"\\(.)", r"\1", how["value"][1:-1]))]
    if inner := re.fullmatch(r"\.\*\((.*)\)\.\*", how["value"]):
        return [inner[1]]
    return [rf"[0-9 ]{how['value'][how['value'].rindex('(') :]}\b"]


def serve(folder: Path, ranks: int, flavour: Flavour, walk: float, told: Any) -> None:
    """Run the double in a separate process; each message is the next case."""
    streams = [
        FileStream(folder / f"rank-{rank}.log", {"job": "llm", "rank": str(rank), "node": scan_data.host_of(str(rank))})
        for rank in range(ranks)
    ]
    double = IndexedDouble([], MAPPING, flavour=flavour)
    double.fill(streams)
    with serving(double):
        told.send((double.url, sum(len(stream.times) for stream in streams), int(double.times[-1])))
        while name := told.recv():
            cluster, double.latency = CASES[name]
            double.cluster = Cluster(**{**vars(cluster), "walk": walk})
            double.asked.clear()
            double.sent = 0
            double.open.clear()
            told.send("ready")
            told.recv()
            told.send((double.sent, len(double.asked), len(double.open)))


def measured(known: Knowledge, words: Prefilter, url: str, flavour: Flavour, end: float) -> dict[str, Any]:
    """Find, collect and diagnose, as `signalbox diagnose llm` does."""
    source = Elasticsearch(ElasticsearchSettings(Endpoint(url), flavour=flavour))
    return collected_answer(known, words, source, "elasticsearch", end, seconds=60, finding=30)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=scan_data.byte_count, default=scan_data.byte_count("177M"))
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}; separated by commas")
    parser.add_argument("--flavour", choices=("elasticsearch", "opensearch"), default="elasticsearch")
    parser.add_argument("--walk", type=float, default=0.15, help="seconds of a walk through all terms")
    args = parser.parse_args()
    recipe = scan_data.Recipe(args.size, args.ranks)
    folder = DATA / f"loki-{args.ranks}-{args.size}"
    if not scan_data.is_made(recipe, folder):
        scan_data.make(recipe, folder)
    known = knowledge()
    words = prefilter_of(known)
    wanted = first_of(diagnose_paths(known, [folder], workers=2).report)
    print(json.dumps({"files": wanted}, default=str), flush=True)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(folder, args.ranks, args.flavour, args.walk, theirs), daemon=True
    )
    process.start()
    url, lines, last = ours.recv()
    for name in args.cases.split(","):
        ours.send(name)
        ours.recv()
        figures = measured(known, words, url, args.flavour, last / NS + 3600)
        ours.send("sent")
        size, queries, left_open = ours.recv()
        same = figures["says"] == wanted
        row = {"case": name, "lines": lines, "same": same, "bytes": size, "queries": queries, "open": left_open}
        print(json.dumps({**row, **figures}, default=str), flush=True)
    ours.send("")


if __name__ == "__main__":
    main()
