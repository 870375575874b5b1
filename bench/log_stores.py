"""Measures a diagnosis from a large log store: bytes, queries, time to the first answer, memory.

Also checks that the result is the same as from all lines. The logs are those of scan_data.py (one rank runs out of
memory, all others lose their peer), behind the double of Loki that the tests have, in a process of its own that answers
each call 100 ms late. The double keeps an index, so that its own work is small in comparison.

    python bench/log_stores.py                 # 1,024 ranks, 2 GB, five runs
    python bench/log_stores.py --size 200M --ranks 128 --runs 2
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import re
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import numpy as np  # noqa: E402 - the paths come first
import scan_data  # noqa: E402

from bot.collection.bundle_writer import BundleWriter  # noqa: E402
from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge  # noqa: E402
from connectors.base.contract import (  # noqa: E402
    Bounds,
    CollectionRequest,
    Deadline,
    JobQuery,
    SourceFailed,
)
from connectors.base.http import Endpoint, HttpClient  # noqa: E402
from connectors.log_stores.loki_client import LokiStore  # noqa: E402
from connectors.log_stores.loki_settings import LokiSettings  # noqa: E402
from connectors.log_stores.query_plan import fetch_lines  # noqa: E402
from kb.model import Job, JobRecord, Prefilter, Window  # noqa: E402
from kb.scanning.matcher import HyperscanMatcher, ScanPattern  # noqa: E402
from kb.scanning.prefilter import prefilter  # noqa: E402
from tests.doubles.loki import Entry, Limits, LineFilter, LokiDouble, Refused, Selected, serving  # noqa: E402

NS = 1_000_000_000
DATA = Path(__file__).parent / "data"
_WORDS = re.compile(r'\|~ "(?P<regex>(?:[^"\\]|\\.)*)"')


class FileStream:
    """The log of one rank as a stream: an index of times and offsets over its file."""

    def __init__(self, path: Path, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)
        self.path = path
        data = path.read_bytes()
        self.size = len(data)
        self.starts = _starts(data)
        self.times = _times(data, self.starts)
        self.handle = path.open("rb")

    def count(self, start: int, end: int, _words: LineFilter) -> int:
        """Return the number of lines; used only by label queries."""
        first, last = np.searchsorted(self.times, (start, end))
        return int(last - first)

    def entries(self, *_: Any, **__: Any) -> Iterator[Entry]:
        """Not used here."""
        raise NotImplementedError

    def line(self, at: int) -> str:
        """Return the text of a line."""
        self.handle.seek(self.starts[at])
        return self.handle.read(self.starts[at + 1] - self.starts[at] - 1).decode("utf-8", "replace")

    def matching(self, matcher: HyperscanMatcher) -> np.ndarray:
        """Return the numbers of the lines that pass a filter."""
        hits = sorted({offset for _, offset in matcher.hits(self.path.read_bytes())})
        return np.unique(np.searchsorted(self.starts, hits, side="right") - 1) if hits else np.empty(0, dtype=np.int64)


class IndexedDouble(LokiDouble):
    """The double over one index of all lines by time, so that its own work does not distort the measurement."""

    def index(self) -> None:
        """Sort the lines of all streams by time."""
        self.guard = threading.Lock()
        self.times = np.concatenate([stream.times for stream in self.streams])
        self.who = np.repeat(
            np.arange(len(self.streams), dtype=np.int32), [len(stream.times) for stream in self.streams]
        )
        self.number = np.concatenate([np.arange(len(stream.times), dtype=np.int32) for stream in self.streams])
        order = np.argsort(self.times, kind="stable")
        self.times, self.who, self.number = self.times[order], self.who[order], self.number[order]
        self.found: dict[str, np.ndarray] = {}

    def _rows(self, parsed: Selected, start: int, end: int) -> np.ndarray:
        """Return the positions in the index that match a query, by time."""
        first, last = np.searchsorted(self.times, (start, end))
        rows = np.arange(first, last)
        if parsed.words.text:
            kept = self._passing(parsed.words.text)
            rows = kept[np.searchsorted(kept, first) : np.searchsorted(kept, last)]
        chosen = {id(stored) for stored in self._matching(parsed)}
        if len(chosen) < len(self.streams):
            mask = np.array([id(stream) in chosen for stream in self.streams])
            rows = rows[mask[self.who[rows]]]
        return rows

    def _passing(self, text: str) -> np.ndarray:
        """Return the positions of the lines that pass a filter, using the product's engine: Python's is too slow."""
        with self.guard:
            if text not in self.found:
                words = _words_of(text)
                matcher = HyperscanMatcher([ScanPattern(re.escape(word).replace("\\ ", " ")) for word in words])
                base = np.cumsum([0, *(len(stream.times) for stream in self.streams)])
                flags = np.zeros(base[-1], dtype=bool)
                for place, item in enumerate(self.streams):
                    flags[base[place] + item.matching(matcher)] = True
                self.found[text] = np.flatnonzero(flags[base[self.who] + self.number])
            return self.found[text]

    def _streams(self, parsed: Any, _chosen: Any, how: tuple[int, int, int, bool, int], _categorised: bool) -> object:
        start, end, limit, backward, interval = how
        rows = self._rows(parsed, start, end)
        if interval:
            rows = _spaced(rows, self.times, interval)
        rows = rows[::-1][:limit] if backward else rows[:limit]
        values: dict[int, list[list[str]]] = {}
        for row in rows:
            who = int(self.who[row])
            values.setdefault(who, []).append([str(self.times[row]), self.streams[who].line(int(self.number[row]))])
        result = [{"stream": self.streams[who].labels, "values": lines} for who, lines in values.items()]
        return {"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}}

    def _matrix(self, parsed: Any, start: int, end: int, params: Mapping[str, str]) -> object:
        step = round(float(params["step"]) * NS)
        start, end = start - start % step, -(-end // step) * step
        rows = self._rows(parsed.of, start - parsed.span + 1, end + 1)
        place = -(-(self.times[rows] - start) // step)
        names = [
            tuple((label, stream.labels[label]) for label in parsed.by if label in stream.labels)
            for stream in self.streams
        ]
        metrics = sorted(set(names))
        of = np.array([metrics.index(name) for name in names]) if parsed.by else np.zeros(len(names), dtype=int)
        width = (end - start) // step + 1
        counts = np.bincount(of[self.who[rows]] * width + place, minlength=len(metrics) * width).reshape(-1, width)
        there = [at for at in range(len(metrics)) if counts[at].any()]
        if len(there) > self.limits.series:
            raise Refused(
                400, f"maximum number of series ({self.limits.series}) reached for a single query; consider reducing"
            )
        result = [
            {
                "metric": dict(metrics[at]),
                "values": [[(start + k * step) / NS, str(counts[at, k])] for k in np.flatnonzero(counts[at])],
            }
            for at in there
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result, "stats": {}}}


def _words_of(text: str) -> list[str]:
    found = _WORDS.search(text)
    if found is None:
        raise SystemExit(f"the double knows no filter as {text[:100]!r}")
    regex = ast.literal_eval(f'"{found["regex"]}"')
    parts = re.split(r"(?<!\\)\|", regex)
    return [re.sub(r"\\(.)", r"\1", part) for part in parts]


def _spaced(rows: np.ndarray, times: np.ndarray, interval: int) -> np.ndarray:
    kept, last = [], None
    for row in rows:
        if last is None or times[row] - last >= interval:
            kept.append(row)
            last = times[row]
    return np.array(kept, dtype=np.int64)


def _starts(data: bytes) -> np.ndarray:
    raw = np.frombuffer(data, dtype=np.uint8)
    return np.concatenate(([0], np.flatnonzero(raw == 10) + 1))


def _times(data: bytes, starts: np.ndarray) -> np.ndarray:
    """Return each line's time in nanoseconds: its timestamp (`2026-11-03 04:10:00,123`), or 1 µs after the last."""
    raw = np.frombuffer(data + b" " * 40, dtype=np.uint8)
    begins = starts[:-1]
    shift = np.where((raw[begins] == 32) & (raw[begins + 1] == 91), 2, np.where(raw[begins] == 91, 1, 0))
    cells = raw[(begins + shift)[:, None] + np.arange(23)].astype(np.int64) - 48
    good = (cells[:, 4] == -3) & (cells[:, 7] == -3) & (cells[:, 13] == 10) & (cells[:, 16] == 10)
    number = lambda *at: sum(cells[:, item] * 10 ** (len(at) - 1 - place) for place, item in enumerate(at))  # noqa: E731
    seconds = (number(8, 9) * 24 + number(11, 12)) * 3600 + number(14, 15) * 60 + number(17, 18)
    month = int(np.datetime64("2026-11-01", "s").astype(int)) - 86400
    fraction = np.where((cells[:, 19] == -4) | (cells[:, 19] == -2), number(20, 21, 22), 0)
    told = np.where(good, (month + seconds) * NS + fraction * 1_000_000, 0)
    first = told[np.argmax(good)] - len(told) * 1000
    told = np.where(good, told, 0)
    told[0] = told[0] or first
    base = np.maximum.accumulate(told)
    run = np.arange(len(told)) - np.maximum.accumulate(np.where(told == base, np.arange(len(told)), 0))
    return base + run * 1000


def serve(folder: Path, ranks: int, latency: float, told: Any) -> None:
    """Run the double in a separate process until it is ended."""
    streams = [
        FileStream(folder / f"rank-{rank}.log", {"job": "llm", "rank": str(rank), "node": scan_data.host_of(str(rank))})
        for rank in range(ranks)
    ]
    double = IndexedDouble(streams, Limits(volume=False), latency=latency)  # its streams have no sizes by time
    double.index()
    with serving(double):
        size = sum(stream.size for stream in streams)
        told.send((double.url, size, int(double.times[0]), int(double.times[-1])))
        while told.recv() == "sent":
            told.send((double.sent, len(double.asked)))


def collected_answer(
    known: Knowledge, words: Prefilter, source: Any, name: str, end: float, *, seconds: float, finding: float
) -> dict[str, Any]:
    """Find the job `llm`, collect its logs and diagnose them, as `signalbox diagnose llm` does.

    `source`: a Source that is a Finder too; `seconds`: the time to find and collect it in; `finding`: the part of it to find it in.
    """
    began, deadline = time.monotonic(), Deadline.within(seconds)
    [record] = source.find(JobQuery("llm", Window(end - 30 * 86400, end)), deadline.sooner(finding))
    assert record.seen
    assert record.seen.end
    window = Window(max(record.seen.start or 0.0, record.seen.end - 21600), record.seen.end + 300)
    with tempfile.TemporaryDirectory() as folder:
        bundle = BundleWriter(Path(folder), 1 << 30)
        share = bundle.share(name, 1 << 30)
        try:
            gaps = tuple(source.collect(CollectionRequest(record, window, deadline, words, Bounds()), share))
        except SourceFailed as failed:
            gaps = (failed.gap(name),)
        bundle.finish(record, window, end, {name: "some"}, gaps)
        collected = time.monotonic() - began
        report = diagnose_bundle(known, Path(folder)).report
    return {
        "says": first_of(report),
        "answer_s": round(time.monotonic() - began, 1),
        "collected_s": round(collected, 1),
        "gaps": [f"{gap.code}: {gap.reason[:120]} [{gap.asked[:60]} -> {gap.got[:60]}]" for gap in gaps],
    }


def first_of(report: Any) -> tuple[object, ...]:
    """Return the verdict, the first fault and its ranks."""
    top = report.diagnoses[:1]
    return (
        report.verdict,
        [item.fault for item in top],
        [sorted({who.rank for who in item.suspects}, key=str) for item in top],
    )


def once(
    known: Knowledge, words: Any, url: str, window: Window, ranks: int
) -> tuple[float, float, tuple[object, ...], list[str]]:
    """Run one collection and diagnosis; return the seconds of both, the first answer, and the gaps."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = BundleWriter(Path(folder), 1 << 30)
        endpoint = Endpoint(url)
        begun = time.perf_counter()
        deadline = Deadline.within(60)
        record = JobRecord(Job(id="llm", name="llm", world_size=ranks, state="FAILED"), "bench")
        store = LokiStore(LokiSettings(endpoint), HttpClient(endpoint), {"job": ("llm",)}, deadline, speakers=ranks)
        gaps = fetch_lines(
            store,
            CollectionRequest(record, window, deadline, words, Bounds()),
            bundle.share("loki", 1 << 30),
            "loki",
            source="loki",
        )
        bundle.finish(record, window, window.end or 0.0, {"loki": "some"}, gaps)
        collected = time.perf_counter() - begun
        answer = diagnose_bundle(known, Path(folder))
        return (
            collected,
            time.perf_counter() - begun,
            first_of(answer.report),
            [f"{gap.code}: {gap.asked} -> {gap.got} {gap.scope}" for gap in gaps],
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=scan_data.byte_count, default=scan_data.byte_count("2G"))
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--storm", type=float, default=0.0)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    recipe = scan_data.Recipe(args.size, args.ranks, args.storm)
    folder = DATA / f"store-{args.ranks}-{args.size}-{args.storm:g}"
    if not scan_data.is_made(recipe, folder):
        if not scan_data.room_for(recipe, folder):
            sys.exit(f"skipped: not enough free disk for {args.size / 1e9:.1f} GB at {folder}")
        scan_data.make(recipe, folder)
    known = knowledge()
    begun = time.perf_counter()
    words = prefilter(known.rulebook)
    compiled = time.perf_counter() - begun
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(folder, args.ranks, args.latency, theirs), daemon=True
    )
    process.start()
    url, size, low, high = ours.recv()
    window = Window(low / NS - 60, high / NS + 60)
    rows, before, asked = [], 0, 0
    for _ in range(args.runs):
        collected, total, said, gaps = once(known, words, url, window, args.ranks)
        ours.send("sent")
        sent, queries = ours.recv()
        rows.append(
            {
                "collected_s": collected,
                "answer_s": total,
                "bytes": sent - before,
                "queries": queries - asked,
                "says": said,
                "gaps": gaps,
            }
        )
        before, asked = sent, queries
        print(json.dumps(rows[-1]), file=sys.stderr)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ours.send("end")
    whole = first_of(diagnose_paths(known, [folder], workers=2).report)
    answers = sorted(row["answer_s"] for row in rows)
    figures = {
        "stored_bytes": size,
        "fetched_share": max(row["bytes"] for row in rows) / size,
        "queries": max(row["queries"] for row in rows),
        "first_answer_p50_s": statistics.median(answers),
        "first_answer_p95_s": answers[min(len(answers) - 1, round(0.95 * len(answers)))],
        "peak_memory_mb": memory,
        "prefilter_words": len(words.words),
        "prefilter_compiled_s": compiled,
        "same_as_from_all": all(row["says"] == whole for row in rows),
        "says": whole,
    }
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:.4g}" if isinstance(value, float) else f"{name:24} {value}")


if __name__ == "__main__":
    main()
