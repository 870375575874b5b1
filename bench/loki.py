"""What a diagnosis costs a real Loki: seconds, processor time of the server, bytes, queries; and whether it says the same as from the files.

The server is the binary in SIGNALBOX_TEST_LOKI (tests/support/loki_server.py). The logs are those of scan_data.py: one rank
runs out of memory, all others lose their peer. Each line of `--limits` sets other limits; all servers store the same lines.

    SIGNALBOX_TEST_LOKI=loki python bench/loki.py                        # 64 ranks, 1.28 million lines, limits one by one
    SIGNALBOX_TEST_LOKI=loki python bench/loki.py --layouts all          # labels and wrappings of log shippers
    SIGNALBOX_TEST_LOKI=loki python bench/loki.py --ranks 1024 --size 2G --limits default
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import scan_data  # noqa: E402 - the paths come first
from log_stores import _starts, _times, collected_answer, first_of  # noqa: E402

from bot.diagnosis.diagnose import diagnose_paths  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge, prefilter_of  # noqa: E402
from connectors.base.contract import Deadline  # noqa: E402
from connectors.base.http import Endpoint, HttpClient, HttpRequest  # noqa: E402
from connectors.base.http_response import HttpResponse  # noqa: E402
from connectors.log_stores.loki import Loki, LokiSettings  # noqa: E402
from kb.model import Prefilter  # noqa: E402
from tests.support.busy_proxy import busy  # noqa: E402
from tests.support.loki_server import VARIABLE, LokiServer, running  # noqa: E402
from tests.support.shipped_layouts import LAYOUTS, Layout, Origin  # noqa: E402

DATA = Path(__file__).parent / "data"
LIMITS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "entries": {"max_entries_limit_per_query": 1000},
    "length": {"max_query_length": "12h"},
    "series": {"max_query_series": 20},
    "timeout": {"query_timeout": "5s"},
    "parallelism": {"max_query_parallelism": 1, "tsdb_max_query_parallelism": 1},
    "all": {
        "max_entries_limit_per_query": 1000,
        "max_query_length": "12h",
        "max_query_series": 20,
        "query_timeout": "5s",
        "max_query_parallelism": 1,
        "tsdb_max_query_parallelism": 1,
    },
}


class CountingClient(HttpClient):
    """Counts queries, bytes and seconds; `pause` seconds are spent on each call."""

    queries = size = 0
    slow = 0.0

    def once(self, call: HttpRequest, deadline: Deadline, **more: Any) -> HttpResponse:
        """Send a request."""
        time.sleep(self.slow)
        began = time.monotonic()
        found = super().once(call, deadline, **more)
        self.queries += 1
        self.size += len(found.body)
        if os.environ.get("VERBOSE"):
            print(
                f"{time.monotonic() - began:6.2f} {found.status} {len(found.body):9} {call.summary()[:150]}",
                file=sys.stderr,
            )
        return found


def streams(folder: Path, ranks: int, layout: Layout | None) -> Iterator[tuple[dict[str, str], list[tuple[Any, ...]]]]:
    """The logs by stream, in a layout or with labels of job, rank and node."""
    for rank in range(ranks):
        data = (folder / f"rank-{rank}.log").read_bytes()
        times = _times(data, _starts(data))
        lines = data.decode().split("\n")[:-1]
        node, entries = scan_data.host_of(str(rank)), list(zip(times.tolist(), lines, strict=False))
        if layout is not None:
            yield layout.stream(Origin("llm", rank, node), entries)
        else:
            yield {"job": "llm", "rank": str(rank), "node": node}, entries


def measured(
    known: Knowledge,
    words: Prefilter,
    server: LokiServer,
    end: float,
    *,
    url: str | None = None,
    layout: Layout | None = None,
    slow: float = 0.0,
    seconds: float = 60.0,
) -> dict[str, Any]:
    """Find, collect and diagnose, as `signalbox diagnose llm` does."""
    endpoint = Endpoint(url or server.url)
    client = CountingClient(endpoint)
    client.slow = slow
    loki = Loki(layout.settings(server.url) if layout else LokiSettings(endpoint), client)
    before, own = server.cpu_seconds(), time.process_time()
    answer = collected_answer(known, words, loki, "loki", end, seconds=seconds, finding=15)
    return answer | {
        "own_cpu_s": round(time.process_time() - own, 1),
        "loki_cpu_s": round(max(0.0, server.cpu_seconds() - before), 1),  # 0 if it was killed
        "bytes": client.size,
        "queries": client.queries,
    }


def in_layout(
    args: argparse.Namespace, known: Knowledge, folder: Path, name: str, wanted: tuple[object, ...]
) -> dict[str, Any]:
    """Measure the same job in the labels and wrapping of a log shipper, by the configuration that is the example for it."""
    layout = LAYOUTS[name]
    with (
        tempfile.TemporaryDirectory(prefix="signalbox-loki-") as place,
        running(Path(place), {}, binary=os.environ[VARIABLE]) as server,
    ):
        lines, end = 0, 0.0
        for stream in streams(folder, args.ranks, layout):
            lines += server.push_otlp([stream]) if layout.otlp else server.push([stream])
            end = max(end, stream[1][-1][0] / 1e9)
        server.flush()
        figures = measured(known, prefilter_of(known), server, end + 3600, layout=layout)
    return {"layout": name, "lines": lines, "same": figures["says"] == wanted, **figures}


def killed(server: LokiServer, after: float, back: float | None) -> None:
    """Kill the server, and start it again."""
    time.sleep(after)
    server.kill()
    if back is not None:
        time.sleep(back)
        server.start(wait=False)


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=scan_data.byte_count, default=scan_data.byte_count("177M"))
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--limits", default=",".join(LIMITS), help=f"of {', '.join(LIMITS)}; separated by commas")
    parser.add_argument(
        "--layouts", help=f"of {', '.join(LAYOUTS)}, or all: each on a server of its own, default limits"
    )
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that each call takes longer")
    parser.add_argument("--ago", type=float, default=3600.0, help="seconds since the job's last line")
    parser.add_argument("--kill", type=float, help="kill the server after so many seconds of a collection")
    parser.add_argument("--back", type=float, help="start it again so many seconds later")
    parser.add_argument("--busy", type=int, help="answer each Nth call with 429 and Retry-After: 1, by a proxy")
    parser.add_argument("--keep", action="store_true", help="keep what the server stored for the next run")
    return parser.parse_args()


def with_limits(
    args: argparse.Namespace, known: Knowledge, folder: Path, wanted: tuple[object, ...]
) -> Iterator[dict[str, Any]]:
    """Measure with each set of limits; all servers store the same lines."""
    kept = DATA / f"loki-store-{args.ranks}-{args.size}" if args.keep else None
    place = kept or Path(tempfile.mkdtemp(prefix="signalbox-loki-"))
    stored = kept is not None and (kept / "stored").exists()
    lines, end = 0, 0.0
    for number, name in enumerate(args.limits.split(",")):
        with running(place, LIMITS[name], binary=os.environ[VARIABLE]) as server:
            if not number:
                for labels, entries in streams(folder, args.ranks, None):
                    lines += len(entries) if stored else server.push([(labels, entries)])
                    end = max(end, entries[-1][0] / 1e9)
                if not stored:
                    server.flush()
                if kept is not None:
                    (kept / "stored").touch()
            if args.kill is not None:
                threading.Thread(target=killed, args=(server, args.kill, args.back), daemon=True).start()
            with busy(server.url, refuse=args.busy) if args.busy else nullcontext() as proxy:
                url = proxy.url if proxy else server.url
                figures = measured(known, prefilter_of(known), server, end + args.ago, url=url, slow=args.slow)
                figures |= {"refused": proxy.refused} if proxy else {}
            yield {"limits": name, "lines": lines, "same": figures["says"] == wanted, **figures}
    if kept is None:
        shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Measure."""
    args = arguments()
    if not os.environ.get(VARIABLE):
        sys.exit(f"skipped: {VARIABLE} names no Loki")
    recipe = scan_data.Recipe(args.size, args.ranks)
    folder = DATA / f"loki-{args.ranks}-{args.size}"
    if not scan_data.is_made(recipe, folder):
        scan_data.make(recipe, folder)
    known = knowledge()
    wanted = first_of(diagnose_paths(known, [folder], workers=2).report)
    print(json.dumps({"files": wanted}, default=str), flush=True)
    if args.layouts:
        names = list(LAYOUTS) if args.layouts == "all" else args.layouts.split(",")
        rows: Iterator[dict[str, Any]] = (in_layout(args, known, folder, name, wanted) for name in names)
    else:
        rows = with_limits(args, known, folder, wanted)
    for row in rows:
        print(json.dumps(row, default=str), flush=True)


if __name__ == "__main__":
    main()
