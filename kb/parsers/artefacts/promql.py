"""Answers of Prometheus' query_range: dcgm-exporter, node_exporter and kube metrics to series with a resource and a unit.

Names and units become ours where they are known (`KNOWN`): shares are per cent, sizes bytes, rates per second. What is
missing stays missing: a value that is no number is left out and told as a gap, never turned into 0. Answers are hostile
until read: size, series, points and labels are bounded, and a broken series costs itself only.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec

from kb.model import Gap, Resource

MOST_BYTES = 512 << 20
MOST_SERIES = 50_000
MOST_POINTS = 11_000  # what Prometheus itself gives for a series; an answer that reaches it may have been cut
MOST_ALL_POINTS = 40_000_000
LONGEST_LABEL = 512
_BROKEN = (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One metric of one resource, as it was read: seconds since the epoch and values, unsorted and with duplicates.

    `counter` values only rise, but for resets. `part` tells things of one resource apart (a port, a process state).
    """

    metric: str
    resource: Resource
    times: Sequence[float]
    values: Sequence[float]
    unit: str = ""
    counter: bool = False
    part: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What a metric of an exporter is called here, its unit after `factor`, and the largest value that makes sense."""

    metric: str
    unit: str = ""
    counter: bool = False
    factor: float = 1.0
    top: float = math.inf


_SHARE = 100.0 * 1.05  # counters of activity overshoot a little

KNOWN: Mapping[str, Known] = {
    "DCGM_FI_DEV_GPU_UTIL": Known("gpu_util", "%", top=_SHARE),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Known("memory_copy_util", "%", top=_SHARE),
    "DCGM_FI_PROF_SM_ACTIVE": Known("sm_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_SM_OCCUPANCY": Known("sm_occupancy", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Known("tensor_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Known("gr_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_DRAM_ACTIVE": Known("dram_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Known("pcie_tx", "bytes/s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Known("pcie_rx", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Known("nvlink_tx", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Known("nvlink_rx", "bytes/s"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": Known("nvlink_bandwidth", "/s", counter=True),
    "DCGM_FI_DEV_POWER_USAGE": Known("gpu_power", "W", top=5_000.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Known("gpu_energy", "W", counter=True, factor=1e-3),
    "DCGM_FI_DEV_GPU_TEMP": Known("gpu_temp", "C", top=200.0),
    "DCGM_FI_DEV_MEMORY_TEMP": Known("memory_temp", "C", top=200.0),
    "DCGM_FI_DEV_SM_CLOCK": Known("sm_clock", "MHz", top=10_000.0),
    "DCGM_FI_DEV_MEM_CLOCK": Known("memory_clock", "MHz", top=50_000.0),
    "DCGM_FI_DEV_FB_USED": Known("gpu_memory", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_FB_FREE": Known("gpu_memory_free", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_FB_RESERVED": Known("gpu_memory_reserved", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_XID_ERRORS": Known("xid"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Known("pcie_replays", "/s", counter=True),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": Known("rows_remapped_correctable", "/s", counter=True),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Known("rows_remapped_uncorrectable", "/s", counter=True),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": Known("row_remap_failure"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": Known("ecc_single_bit", "/s", counter=True),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Known("ecc_double_bit", "/s", counter=True),
    "node_infiniband_port_data_transmitted_bytes_total": Known("rdma_tx", "bytes/s", counter=True),
    "node_infiniband_port_data_received_bytes_total": Known("rdma_rx", "bytes/s", counter=True),
    "node_infiniband_state_id": Known("rdma_port_state"),
    "node_infiniband_physical_state_id": Known("rdma_physical_state"),
    "node_infiniband_rate_bytes_per_second": Known("rdma_link_rate", "bytes/s"),
    "node_procs_blocked": Known("processes_blocked"),
    "node_processes_state": Known("processes"),
    "node_load1": Known("load"),
    "node_memory_MemAvailable_bytes": Known("host_memory_free", "bytes"),
    "node_pressure_io_waiting_seconds_total": Known("io_pressure", "%", counter=True, factor=100.0),
    "node_pressure_cpu_waiting_seconds_total": Known("cpu_pressure", "%", counter=True, factor=100.0),
    "node_pressure_memory_waiting_seconds_total": Known("memory_pressure", "%", counter=True, factor=100.0),
}

_PORT_COUNTER = re.compile(r"node_infiniband_(?:port_)?(\w{1,100}?)_total")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,199}")
_RATED = re.compile(r"\b(?:rate|irate|deriv)\s{0,8}\(")
_SUMMED = re.compile(r"\b(?:increase|delta|idelta|changes|resets)\s{0,8}\(")
_FUNCTIONS = frozenset(
    {
        "abs",
        "avg",
        "avg_over_time",
        "bool",
        "bottomk",
        "by",
        "changes",
        "clamp",
        "clamp_max",
        "clamp_min",
        "count",
        "count_over_time",
        "delta",
        "deriv",
        "group",
        "group_left",
        "group_right",
        "histogram_quantile",
        "idelta",
        "ignoring",
        "increase",
        "inf",
        "irate",
        "label_join",
        "label_replace",
        "last_over_time",
        "max",
        "max_over_time",
        "min",
        "min_over_time",
        "nan",
        "offset",
        "on",
        "or",
        "quantile",
        "quantile_over_time",
        "rate",
        "resets",
        "round",
        "sort",
        "sort_desc",
        "stddev",
        "stdvar",
        "sum",
        "sum_over_time",
        "time",
        "topk",
        "unless",
        "vector",
        "without",
        "and",
    }
)
_NODE = (
    "hostname",
    "node",
    "nodename",
    "kubernetes_node",
    "exported_node",
    "host",
    "exported_instance",
    "instance",
    "ip",
)
_POD = ("exported_pod", "pod", "pod_name")
_PART = ("device", "port", "state", "mode", "error_type", "cpu", "mountpoint", "xid", "operation", "dtype")


def read_prometheus(
    data: bytes, source: str, query: str = "", unit: str = ""
) -> tuple[tuple[MetricSeries, ...] | None, tuple[Gap, ...]]:
    """Read one answer, or one wrapped with its `query` and `unit`; None where there is nothing to read.

    `source` is the file's name: where neither label nor query names the metric, its stem does. `unit` is the unit that
    whoever asked claims; it is believed where the metric is not known here.
    """
    if len(data) > MOST_BYTES:
        return None, (
            Gap("metric_too_large", source, f"the answer has {len(data)} bytes; at most {MOST_BYTES} are read"),
        )
    try:
        top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        status = _plain(top.get("status"))
        body = msgspec.json.decode(top["data"], type=dict[str, msgspec.Raw]) if "data" in top else {}
    except _BROKEN as error:
        return None, (Gap("metric_unreadable", source, f"not an answer of Prometheus: {str(error)[:200]}"),)
    if status not in {"success", None} or "result" not in body:
        said = [str(_plain(top.get(key)) or "")[:200] for key in ("errorType", "error")]
        reason = ": ".join(part for part in said if part) or f"status {str(status)[:40]!r} and no result"
        return None, (Gap("metric_refused", source, f"the query was refused: {reason}"),)
    asked = query or str(_plain(top.get("query")) or "")[:4096]
    answer = _Answer(source, asked, unit or str(_plain(top.get("unit")) or "")[:40])
    answer.told(top)
    try:
        raw = msgspec.json.decode(body["result"], type=list[msgspec.Raw])
    except _BROKEN:
        kind = str(_plain(body.get("resultType")))[:40]
        return None, (Gap("metric_unreadable", source, f"the result is a {kind}, no list of series"),)
    return answer.read(raw)


class _Answer:
    """What is read of one answer so far, and what was odd about it, counted so that gaps stay few."""

    def __init__(self, source: str, query: str, unit: str) -> None:
        self.source, self.query, self.unit = source, query, unit
        self.odd: Counter[str] = Counter()
        self.gaps: list[Gap] = []
        self.points = 0
        self.named = _named(query) or _stem(source)
        self.rated = bool(_RATED.search(query[:4096]))
        self.summed = bool(_SUMMED.search(query[:4096]))

    def told(self, top: Mapping[str, msgspec.Raw]) -> None:
        """Keep what the server itself says of the answer: a warning means that a part is missing."""
        warnings = _plain(top.get("warnings"))
        if isinstance(warnings, list) and warnings:
            text = "; ".join(str(one)[:200] for one in warnings[:3])
            self.gaps.append(
                Gap("metric_partial", self.source, f"the server warns: {text}", rules_out="that all series are here")
            )

    def read(self, raw: Sequence[msgspec.Raw]) -> tuple[tuple[MetricSeries, ...] | None, tuple[Gap, ...]]:
        """Read each series by itself."""
        if len(raw) > MOST_SERIES:
            self.gaps.append(
                Gap("metric_series_left_out", self.source, "too many series", got=str(MOST_SERIES), asked=str(len(raw)))
            )
        found: list[MetricSeries] = []
        for one in raw[:MOST_SERIES]:
            series = self._series(one)
            if series is not None:
                found.append(series)
            if self.points >= MOST_ALL_POINTS:
                self.gaps.append(Gap("metric_points_left_out", self.source, "too many points; the rest was not read"))
                break
        settled = self._units(found)
        self._holes(settled)
        self.gaps += [
            Gap(code, self.source, f"{_ODD[code]} ({count} times)") for code, count in sorted(self.odd.items())
        ]
        if not settled:
            self.gaps.append(Gap("metric_empty", self.source, "the answer has no series with a value"))
        return (tuple(settled) or None), tuple(self.gaps)

    def _series(self, raw: msgspec.Raw) -> MetricSeries | None:
        try:
            parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            labels = _labels(_plain(parts.get("metric")))
            pairs = _pairs(parts)
        except _BROKEN:
            self.odd["metric_series_broken"] += 1
            return None
        if len(pairs) > MOST_POINTS:
            self.odd["metric_series_cut"] += 1
            pairs = pairs[:MOST_POINTS]
        elif len(pairs) == MOST_POINTS:
            self.odd["metric_series_full"] += 1
        name = labels.get("__name__") or self.named
        known = _known(name)
        counter = known.counter and not self.rated and not self.summed
        factor = 1.0 if known.counter and self.summed else known.factor
        times, values = self._numbers(pairs, factor)
        self.points += len(times)
        if not times:
            return None
        unit = "" if known.counter and self.summed else known.unit or self.unit
        return MetricSeries(
            known.metric, resource_of(labels), times, values, unit, counter, _part(labels, known.metric), self.source
        )

    def _numbers(self, pairs: Sequence[Any], factor: float) -> tuple[array[float], array[float]]:
        times, values = array("d"), array("d")
        for pair in pairs:
            try:
                time, value = float(pair[0]), float(pair[1]) * factor
            except (*_BROKEN, LookupError):
                self.odd["metric_point_broken"] += 1
                continue
            if not math.isfinite(value) or not math.isfinite(time):
                self.odd["metric_not_a_number"] += 1
                continue
            times.append(time / 1e3 if time > 1e11 else time)
            values.append(value)
            if time > 1e11:
                self.odd["metric_times_in_ms"] += 1
        return times, values

    def _units(self, found: Iterable[MetricSeries]) -> list[MetricSeries]:
        """Mend the units that can be told from the numbers of a metric over all its series; drop what cannot be."""
        metrics: dict[str, list[MetricSeries]] = {}
        for one in found:
            metrics.setdefault(one.metric, []).append(one)
        tops = {known.metric: known for known in KNOWN.values()}
        settled: list[MetricSeries] = []
        for metric, members in metrics.items():
            known = tops.get(metric)
            if known is None or math.isinf(known.top) or members[0].counter:
                settled += members
                continue
            factor = _mend(members, known)
            if factor != 1.0:
                reason = f"{metric} was not in {known.unit}; its values were taken times {factor:g}"
                self.gaps.append(Gap("metric_unit", self.source, reason, scope=metric))
                mended = [replace(m, values=array("d", [v * factor for v in m.values])) for m in members]
            else:
                mended = members
            settled += [one for one in (self._sensible(m, known) for m in mended) if one is not None]
        return settled

    def _sensible(self, series: MetricSeries, known: Known) -> MetricSeries | None:
        if min(series.values) >= 0.0 and max(series.values) <= known.top:
            return series
        kept = [(t, v) for t, v in zip(series.times, series.values, strict=True) if 0.0 <= v <= known.top]
        self.odd["metric_out_of_range"] += len(series.values) - len(kept)
        if not kept:
            return None
        return replace(series, times=array("d", [t for t, _ in kept]), values=array("d", [v for _, v in kept]))

    def _holes(self, found: Sequence[MetricSeries]) -> None:
        """Say where points are missing, and which series ended before the others."""
        metrics: dict[str, list[MetricSeries]] = {}
        for one in found:
            metrics.setdefault(one.metric, []).append(one)
        for metric, members in sorted(metrics.items()):
            last = max(max(m.times) for m in members)
            holed, ended = [], []
            for one in members:
                cadence, longest = _cadence(one.times)
                if cadence and longest > 3 * cadence:
                    holed.append((longest, one))
                if cadence and last - max(one.times) > 5 * cadence:
                    ended.append(one)
            if holed:
                longest = max(hole for hole, _ in holed)
                reason = f"{len(holed)} of {len(members)} series have holes, the longest of {longest:.0f} s"
                who = _who(m for _, m in holed)
                self.gaps.append(Gap("metric_holes", self.source, f"{metric}: {reason}", scope=who))
            if ended:
                reason = f"{len(ended)} of {len(members)} series end before the others"
                self.gaps.append(
                    Gap(
                        "metric_ends",
                        self.source,
                        f"{metric}: {reason}",
                        scope=_who(ended),
                        rules_out="what those did afterwards",
                    )
                )


_ODD = {
    "metric_series_broken": "a series that is not one was left out",
    "metric_series_cut": f"a series had more than {MOST_POINTS} points and was cut",
    "metric_series_full": f"a series has {MOST_POINTS} points, the server's limit: it may have been cut",
    "metric_point_broken": "a point that is no pair of numbers was left out",
    "metric_not_a_number": "a value that is NaN or infinite was left out",
    "metric_times_in_ms": "a time was in milliseconds",
    "metric_out_of_range": "a value that its metric cannot have was left out",
}


def resource_of(labels: Mapping[str, str]) -> Resource:
    """Whose a series is, by its labels: the spellings of dcgm-exporter, node_exporter, kube metrics and trainers."""
    lower = {name.lower(): value for name, value in labels.items() if value}
    pod = next((lower[name] for name in _POD if name in lower), None)
    exporter = lower.get("pod") if "exported_pod" in lower else None
    node = next((_host(lower[name]) for name in _NODE if name in lower and not _exporter(lower[name], exporter)), None)
    gpu = lower.get("gpu") or lower.get("uuid") or lower.get("minor_number")
    if gpu and lower.get("gpu_i_id"):
        gpu = f"{gpu}.{lower['gpu_i_id']}"
    rank = _index(lower.get("rank") or lower.get("global_rank"))
    return Resource(lower.get("cluster"), node, rank, _index(lower.get("local_rank")), gpu, None, pod)


def _exporter(host: str, exporter: str | None) -> bool:
    """Whether what is given as host is the exporter's own pod."""
    return host == exporter or "dcgm-exporter" in host or "node-exporter" in host


def _host(value: str) -> str:
    """The host of an `instance`: without its port."""
    head, _, tail = value.rpartition(":")
    return head.strip("[]") if head and tail.isdigit() and (head.count(":") == 0 or head.startswith("[")) else value


def _index(value: str | None) -> int | None:
    return int(value) if value and len(value) <= 9 and value.isascii() and value.isdigit() else None


def _part(labels: Mapping[str, str], metric: str) -> str:
    """What tells series of one resource apart; a GPU's `device` says nothing that `gpu` does not."""
    skip = "gpu" in labels and not metric.startswith("rdma")
    return "/".join(labels[name] for name in _PART if labels.get(name) and not (skip and name == "device"))


def _plain(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    kept = list(value.items())[:100]
    return {
        str(name)[:LONGEST_LABEL]: str(one)[:LONGEST_LABEL] for name, one in kept if not isinstance(one, (dict, list))
    }


def _pairs(parts: Mapping[str, msgspec.Raw]) -> Sequence[Any]:
    raw = parts.get("values")
    if raw is None:
        return [_plain(parts["value"])] if "value" in parts else []
    try:
        return msgspec.json.decode(raw, type=list[tuple[float, str]])
    except msgspec.ValidationError:
        loose = msgspec.json.decode(raw)
        return loose if isinstance(loose, list) else []


def _known(name: str) -> Known:
    known = KNOWN.get(name)
    if known is not None:
        return known
    port = _PORT_COUNTER.fullmatch(name)
    if port:
        return Known(f"rdma_{port[1]}", "/s", counter=True)
    return Known(name[:200].lower() or "unnamed", counter=name.endswith("_total"))


def _named(query: str) -> str:
    """The metric that a query asks for: a known one, else the first name that is no function or label."""
    head = re.sub(
        r"\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|\b(?:by|without|on|ignoring)\s{0,4}\([^()]*\)", " ", query[:4096]
    )
    names = [name for name in _NAME.findall(head) if name not in _FUNCTIONS]
    return next((name for name in names if name in KNOWN), names[0] if names else "")


def _stem(source: str) -> str:
    name = source.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"\W", "_", name)[:200]


def _mend(members: Sequence[MetricSeries], known: Known) -> float:
    """By what to multiply so that the numbers make sense in the metric's unit; 1 where they do, or where nothing does."""
    middle = median(median(m.values) for m in members)
    largest = max(max(m.values) for m in members)
    if known.unit == "%":
        if known.factor == 1.0 and largest <= 1.0 and any(0.0 < v < 1.0 for m in members for v in m.values):
            return 100.0  # a share of 1 where per cent were promised
        return 0.01 if known.factor == 100.0 and known.top < largest and 150.0 < largest <= 10_500.0 else 1.0
    if known.unit == "bytes" and known.factor > 1.0 and middle > known.top:
        return 1.0 / known.factor  # bytes where MiB were promised
    return 1e-3 if known.unit == "W" and middle > known.top else 1.0


def _cadence(times: Sequence[float]) -> tuple[float, float]:
    """The usual time between points and the longest; zeros for fewer than three points."""
    ordered = sorted(set(times))
    steps = [later - earlier for earlier, later in pairwise(ordered)]
    return (median(steps), max(steps)) if len(steps) >= 2 else (0.0, 0.0)


def _who(members: Iterable[MetricSeries]) -> str:
    """The first few nodes or GPUs, for a gap's scope."""
    names = dict.fromkeys(
        " ".join(part for part in (m.resource.node or m.resource.container or "?", m.resource.gpu or m.part) if part)
        for m in members
    )
    shown = list(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
