"""Metrics of the service for Prometheus: what it did, how long it took, what failed.

Several processes count. Each one writes to a file in a folder that the main process creates; a scrape reads all of them. In a
process that did not `begin`, such as the command line, counting does nothing and costs nothing. Labels are fixed words or names
from the configuration, never names of jobs, nodes or people.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "diagnoses": ("Diagnoses completed.", ("verdict",)),
    "rule_hits": ("First answers by rule.", ("rule",)),
    "sources": ("Requests to connectors by outcome.", ("connector", "outcome")),
    "slack_calls": ("Slack API calls by outcome.", ("method", "outcome")),
    "http_requests": ("HTTP requests answered.", ("endpoint", "status")),
    "http_dropped": ("Connections closed at a limit.", ("why",)),
    "replaced": ("Processes that died and were replaced.", ("post",)),
}
TIMED: Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "work_seconds": ("Duration of a task.", ("kind", "outcome"), (0.5, 1, 2, 5, 10, 20, 40, 60, 120, 300)),
    "diagnosis_seconds": ("Duration of a step of a diagnosis.", ("step",), (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)),
    "http_seconds": ("Duration of an HTTP request.", ("endpoint",), (0.01, 0.03, 0.1, 0.3, 0.5, 1, 3, 10)),
    "slack_seconds": ("Duration of a Slack API call.", ("method",), (0.1, 0.3, 1, 3, 10)),
}

_made: dict[str, Any] = {}
_on = False


@contextmanager
def collected() -> Iterator[None]:
    """Count in this process and its children while this is open. For the main process."""
    folder = tempfile.mkdtemp(prefix="signalbox-metrics-")
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = folder
    begin()
    try:
        yield
    finally:
        _end()
        os.environ.pop(FOLDER, None)
        if before is not None:
            os.environ[FOLDER] = before
        shutil.rmtree(folder, ignore_errors=True)


def begin() -> None:
    """Start counting; does nothing unless a main process collects the counts."""
    global _on  # noqa: PLW0603 - one a process, as the metrics are
    _on = FOLDER in os.environ


def _end() -> None:
    global _on  # noqa: PLW0603 - likewise
    _on = False
    _made.clear()


def count(name: str, *labels: str) -> None:
    """Increment a counter. `labels`: in the order of COUNTED."""
    if _on:
        _counter(name).labels(*labels).inc()


def timed(name: str, seconds: float, *labels: str) -> None:
    """Observe a duration in seconds. `labels`: in the order of TIMED."""
    if _on:
        _histogram(name).labels(*labels).observe(seconds)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge that is read on each scrape. `values`: by the values of its labels."""

    name: str
    words: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


def exposition(now: Iterable[Gauge]) -> bytes:
    """Return all counters of all processes and the current gauges in Prometheus text format."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - the service's only
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    if os.path.isdir(os.environ.get(FOLDER, "")):  # noqa: PTH112 - of a text
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    families = []
    for gauge in now:
        family = GaugeMetricFamily(f"signalbox_{gauge.name}", gauge.words, labels=gauge.labels)
        for labels, value in gauge.values.items():
            family.add_metric(labels, value)
        families.append(family)

    class _Now:
        def collect(self) -> list[GaugeMetricFamily]:
            return families

    registry.register(_Now())
    return generate_latest(registry)


def _counter(name: str) -> Counter:
    if name not in _made:
        from prometheus_client import CollectorRegistry, Counter  # noqa: PLC0415 - the service's only

        help_, labels = COUNTED[name]
        _made[name] = Counter(f"signalbox_{name}", help_, labels, registry=CollectorRegistry())
    made: Counter = _made[name]
    return made


def _histogram(name: str) -> Histogram:
    if name not in _made:
        from prometheus_client import CollectorRegistry, Histogram  # noqa: PLC0415 - the service's only

        help_, labels, buckets = TIMED[name]
        _made[name] = Histogram(f"signalbox_{name}", help_, labels, registry=CollectorRegistry(), buckets=buckets)
    made: Histogram = _made[name]
    return made
