"""Faults that exporters publish as metrics, as the events that a kernel log, a check or Kubernetes would have shown.

Many clusters have no kernel logs in reach but scrape dcgm-exporter, node_exporter, cAdvisor and kube-state-metrics. What counts
is a change while the job ran: a gauge that kept an Xid of last week, or a counter that is at 12, says nothing about this job.
Only raw counters are read; a rate does not say how many.

A change happened between two samples. The event has the time of the earlier one, since whatever follows from a fault is logged
after it, and its text gives both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from kb.model import Event, Scalar
from kb.parsers.artefacts.promql.series import MetricSeries

MOST_EVENTS = 256  # of all metrics together
APPEARED = 120.0  # seconds after the first sample of any series from which on a series was not there before
HELD_DOWN = 120.0  # seconds for which clocks must be held down, and
HELD_SAMPLES = 3  # samples in a row that show it
_HW_SLOWDOWN = 0x8 | 0x40 | 0x80  # of NVML's clock event reasons: any, thermal, power brake
_ACTIVE = 4.0  # of node_infiniband_state_id
_XIDS = range(1, 1024)

_Fields = dict[str, Scalar]
_Samples = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a series: its value before and after, and between which times it came. `start` None: it was there at once."""

    before: float
    after: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _FaultMetric:
    """The meaning of a metric's change. `changes`: where it changes; `words`: a description of the problem, for the text."""

    changes: Callable[[MetricSeries, float], Iterator[_Change]]
    kind: str
    reason: str
    words: str
    fields: tuple[tuple[str, Scalar], ...] = ()


def events_of_metrics(series: Iterable[MetricSeries]) -> tuple[Event, ...]:
    """Return the faults that appear in metrics while they were recorded, in the order of time."""
    known = [item for item in series if item.metric in _METRICS and len(item.times)]
    if not known:
        return ()
    begin = min(min(item.times) for item in known)
    named = {item.metric for item in known}
    found: dict[tuple[object, ...], Event] = {}
    for item in known:
        if item.metric == "oom_kills" and named & {"container_ooms", "last_end_reason"}:
            continue  # a kill on the node may be another job's; its containers say whose it was
        for event in _events(item, _METRICS[item.metric], begin):
            found.setdefault((event.kind, event.reason, event.resource, event.time), event)
    return tuple(sorted(found.values(), key=lambda event: (event.time or 0.0, repr(event)))[:MOST_EVENTS])


def _events(series: MetricSeries, meaning: _FaultMetric, begin: float) -> Iterator[Event]:
    if series.metric == "last_end_reason" and "OOMKilled" not in series.part:
        return  # how a container ended otherwise, its own events and exit code show
    for change in meaning.changes(series, begin):
        xid = _xid(series, change) if meaning.reason == "xid" else None
        if meaning.reason == "xid" and xid is None:
            continue
        what = "the last Xid of its exporter" if xid is not None else f"{meaning.words}: {series.metric}"
        text = f"{what} went from {change.before:g} to {change.after:g}{_where(series)}{_when(change)}"
        fields: _Fields = {**dict(meaning.fields), "metric": series.metric, "check": text}
        fields |= {"gpu": series.resource.gpu} if series.resource.gpu else {}
        fields |= {"pod": series.resource.container} if series.resource.container else {}
        fields |= {"xid": xid, "pci": series.resource.gpu or ""} if xid is not None else {}
        reason = f"Xid {xid}" if xid is not None else meaning.reason
        yield Event(series.source or "metrics", change.start, meaning.kind, reason, text, series.resource, fields)


def _xid(series: MetricSeries, change: _Change) -> int | None:
    """Return the Xid: the gauge's value, or of a count the label."""
    text = series.part.partition("/")[0] if series.metric == "xid_count" else f"{change.after:g}"
    return int(text) if text.isascii() and text.isdigit() and int(text[:9]) in _XIDS else None


def _where(series: MetricSeries) -> str:
    who = series.resource
    parts = [f"GPU {who.gpu}" if who.gpu else "", f"port {series.part}" if series.metric.startswith("rdma") else ""]
    names = [part for part in (*parts, f"pod {who.container}" if who.container else "", who.node or "") if part]
    return f" on {', '.join(names)}" if names else ""


def _when(change: _Change) -> str:
    first, last = (datetime.fromtimestamp(time, UTC) for time in (change.start, change.end))
    return f" between {first:%H:%M:%S} and {last:%H:%M:%S} UTC" if last > first else f" at {last:%H:%M:%S} UTC"


# -- where a series changes ----------------------------------------------------------------------------------------------


def _samples(series: MetricSeries) -> _Samples:
    return sorted(dict(zip(series.times, series.values, strict=True)).items())


def _with_start(series: MetricSeries, begin: float) -> _Samples:
    """The samples, after a zero where the series appeared only while the others were recorded: exporters make some then."""
    samples = _samples(series)
    first = samples[0][0]
    return [(begin, 0.0), *samples] if first > begin + APPEARED else samples


def _new_value(series: MetricSeries, begin: float) -> Iterator[_Change]:
    """A gauge takes a different value than 0."""
    for (start, before), (end, after) in pairwise(_with_start(series, begin)):
        if after not in (before, 0.0):
            yield _Change(before, after, start, end)


def _rise(series: MetricSeries, begin: float) -> Iterator[_Change]:
    """A counter rises, from 0 where it began again: once for each series, from its first rise to its last."""
    samples = _with_start(series, begin)
    rises = [(one, two) for one, two in pairwise(samples) if two[1] > one[1] >= 0.0 or 0.0 < two[1] < one[1]]
    if rises:
        yield _Change(rises[0][0][1], rises[-1][1][1], rises[0][0][0], rises[0][1][0])


def _down(series: MetricSeries, _begin: float) -> Iterator[_Change]:
    """A port leaves the state ACTIVE and is not active at the end."""
    samples = _samples(series)
    if samples[-1][1] == _ACTIVE:
        return
    for (start, before), (end, after) in pairwise(samples):
        if before == _ACTIVE != after and all(value != _ACTIVE for time, value in samples if time >= end):
            yield _Change(before, after, start, end)
            return


def _held_down(series: MetricSeries, _begin: float) -> Iterator[_Change]:
    """Clocks are held down by the hardware for minutes, after they were not."""
    samples = [(time, float(int(value) & _HW_SLOWDOWN)) for time, value in _samples(series) if 0 <= value < 2**53]
    since = None
    for at, ((start, before), (_, after)) in enumerate(pairwise(samples)):
        if after and not before:
            since = (at + 1, start)
        if not after:
            since = None
        if since is not None and at + 2 - since[0] >= HELD_SAMPLES and samples[at + 1][0] - since[1] >= HELD_DOWN:
            yield _Change(0.0, after, since[1], samples[since[0]][0])
            return


_OF_XIDS = (("problem", "xid"),)
_CHECK = "health_check"
_METRICS = {
    "xid": _FaultMetric(_new_value, "node_problem", "xid", "", _OF_XIDS),
    "xid_count": _FaultMetric(_rise, "node_problem", "xid", "", _OF_XIDS),
    "ecc_double_bit": _FaultMetric(_rise, _CHECK, "memory", "uncorrectable memory errors"),
    "rows_remapped_uncorrectable": _FaultMetric(_rise, _CHECK, "memory", "memory rows remapped after uncorrectable errors"),
    "row_remap_failure": _FaultMetric(_new_value, _CHECK, "memory", "a memory row could not be remapped"),
    "row_remap_pending": _FaultMetric(_new_value, _CHECK, "recovery", "a memory row waits to be remapped at the next GPU reset"),
    "clock_event_reasons": _FaultMetric(_held_down, _CHECK, "throttled", "clocks held down by the hardware"),
    "nvlink_recovery_errors": _FaultMetric(_rise, _CHECK, "nvlink_recovered", "NVLink links that had to recover"),
    "rdma_link_downed": _FaultMetric(_rise, _CHECK, "link_downed", "RDMA port went down"),
    "rdma_port_state": _FaultMetric(_down, _CHECK, "port", "RDMA port is not active"),
    "container_ooms": _FaultMetric(_rise, "oom_kill", "container_oom_events", "process killed for lack of memory"),
    "last_end_reason": _FaultMetric(_new_value, "oom_kill", "OOMKilled", "container killed for lack of memory"),
    "oom_kills": _FaultMetric(_rise, "oom_kill", "oom_kill", "process killed for lack of memory"),
    "container_restarts": _FaultMetric(_rise, "restart", "restarted", "container restarted"),
}  # fmt: skip
