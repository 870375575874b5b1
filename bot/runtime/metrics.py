"""What the service counts of itself, for Prometheus: what it did, how long it took, what failed.

Several processes count; each writes into a file of a folder that the main process makes, and reads all of when it is asked. In a
process that did not `begin`, as the command line, counting does nothing and costs nothing. Labels are words of ours or names of
the configuration, never of jobs, nodes or people.
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
    "diagnoses": ("Diagnoses that were given.", ("verdict",)),
    "rule_hits": ("First answers, by the rule that gave them.", ("rule",)),
    "sources": ("Questions to connectors, by what came of them.", ("connector", "outcome")),
    "slack_calls": ("Calls of Slack's API, by what came of them.", ("method", "outcome")),
    "http_requests": ("Requests that were answered.", ("endpoint", "status")),
    "replaced": ("Processes that died and were replaced.", ("post",)),
}
TIMED: Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "work_seconds": ("How long a piece of work took.", ("kind", "outcome"), (0.5, 1, 2, 5, 10, 20, 40, 60, 120, 300)),
    "diagnosis_seconds": ("How long a step of a diagnosis took.", ("step",), (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)),
    "http_seconds": ("How long a request took.", ("endpoint",), (0.01, 0.03, 0.1, 0.3, 0.5, 1, 3, 10)),
    "slack_seconds": ("How long a call of Slack's API took.", ("method",), (0.1, 0.3, 1, 3, 10)),
}

_made: dict[str, Any] = {}
_on = False


@contextmanager
def collected() -> Iterator[None]:
    """Count in this process and in those that it starts, while this is open; for the main process."""
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
    """Count from now on; nothing where no main process collects it."""
    global _on  # noqa: PLW0603 - one a process, as the metrics are
    _on = FOLDER in os.environ


def _end() -> None:
    global _on  # noqa: PLW0603 - likewise
    _on = False
    _made.clear()


def count(name: str, *labels: str) -> None:
    """One more. `labels`: in the order that COUNTED gives."""
    if _on:
        _counter(name).labels(*labels).inc()


def timed(name: str, seconds: float, *labels: str) -> None:
    """So long it took. `labels`: in the order that TIMED gives."""
    if _on:
        _histogram(name).labels(*labels).observe(seconds)


@dataclass(frozen=True, slots=True)
class Gauge:
    """Something that is looked up when it is asked for. `values`: by the values of its labels."""

    name: str
    words: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


def exposition(now: Iterable[Gauge]) -> bytes:
    """All that was counted in all processes, and what holds now, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - the service's only
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    if os.path.isdir(os.environ.get(FOLDER, "")):  # noqa: PTH112 - of a text
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    families = []
    for one in now:
        family = GaugeMetricFamily(f"signalbox_{one.name}", one.words, labels=one.labels)
        for labels, value in one.values.items():
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
