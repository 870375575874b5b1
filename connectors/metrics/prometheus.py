"""Metrics of a job's GPUs, links and nodes from Prometheus, Thanos, Mimir or VictoriaMetrics, as bundle parts.

One query finds out which metrics exist and how many series each has. Then each metric is queried, and its response stored
unchanged with query and unit (kb.parsers.artefacts.promql.answer reads it). For metrics with too many series, the server
computes medians by node, and only the most extreme GPUs are fetched individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from connectors.base.contract import CheckResult, CollectionRequest, Deadline, EvidenceKind, SourceFailed, Spool
from connectors.base.http import Endpoint, HttpClient, HttpRequest
from connectors.metrics.promql_builder import (
    LEAST_STEP,
    NODE_LABELS,
    Selection,
    job_selection,
    node_selection,
    nodes_of,
    selection,
    split_window,
    step_of,
)
from kb.model import Gap, JobRecord, Window
from kb.parsers.artefacts.promql.answer import read_prometheus
from kb.parsers.artefacts.promql.known_metrics import KNOWN_METRICS

MOST_SERIES = 2000  # series of one metric that are fetched individually
LARGEST = 32 << 20  # bytes of an answer
QUERY_SECONDS = 30.0
SIDE_BY_SIDE = 4
EXTREMES = 8  # extreme series at either end, fetched if the rest is medians
RATE_OVER = "5m"
BY = "cluster," + ",".join(NODE_LABELS)

GPU = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_SM_OCCUPANCY",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_EXP_XID_ERRORS_COUNT",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
)
NODE = (
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_transmit_wait_total",
    "node_infiniband_state_id",
    "node_infiniband_rate_bytes_per_second",
    "node_infiniband_link_downed_total",
    "node_infiniband_link_error_recovery_total",
    "node_infiniband_symbol_error_total",
    "node_infiniband_port_errors_received_total",
    "node_infiniband_rnr_nak_retry_packets_received_total",
    "node_infiniband_local_ack_timeout_errors_total",
    "node_infiniband_packet_sequence_errors_total",
    "node_infiniband_np_cnp_packets_sent_total",
    "node_vmstat_oom_kill",
    "node_procs_blocked",
    "node_load1",
    "node_memory_MemAvailable_bytes",
    "node_pressure_io_waiting_seconds_total",
    "node_pressure_cpu_waiting_seconds_total",
    "node_pressure_memory_waiting_seconds_total",
)
POD = (
    "container_oom_events_total",
    "kube_pod_container_status_last_terminated_reason",
    "kube_pod_container_status_restarts_total",
)
SPIN_GPU = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_DEV_POWER_USAGE",
)
SPIN_NODE = NODE[:2]
_MISSED: Mapping[tuple[str, ...], str] = {  # without any of these metrics, this is unknown
    ("DCGM_FI_DEV_GPU_UTIL",): "whether the GPUs are busy",
    ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"): "whether busy GPUs make progress",
    SPIN_NODE: "whether the network carries traffic",
}


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Prometheus, Thanos, Mimir or VictoriaMetrics: metrics of GPUs, links and nodes."""

    endpoint: Endpoint
    """The server, including any path before /api/v1. Set a tenant's X-Scope-OrgID under `login: headers:`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What every query must also match, such as {cluster: east}."""
    job_labels: Mapping[str, str] = field(default_factory=dict)
    """How series identify the job, instead of the usual labels: label → id, name, namespace or owner."""


def from_settings(settings: PrometheusSettings) -> Prometheus:
    """Return the connector with these settings."""
    return Prometheus(HttpClient(settings.endpoint), settings.labels, settings.job_labels)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One server. `labels`: what every query must also match (`{"cluster": "east"}`).

    `job_labels`: how series identify the job, instead of the usual labels: label → `id`, `name`, `namespace` or `owner`.
    `series`: the job's series by label values, regardless of its name. `gpu`, `node` and `pod`: the metrics to query, at
    most `side_by_side` at a time.
    """

    client: HttpClient
    labels: Mapping[str, str] = field(default_factory=dict)
    job_labels: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gpu: Sequence[str] = GPU
    node: Sequence[str] = NODE
    pod: Sequence[str] = POD
    least_step: float = LEAST_STEP
    side_by_side: int = SIDE_BY_SIDE

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Metrics."""
        return frozenset({"metrics"})

    # -- one query -------------------------------------------------------------------------------------------------

    def query_range(self, query: str, window: Window, step: float, deadline: Deadline) -> Iterator[bytes]:
        """Yield the responses to a query over a window, as many as the server's limit of points requires.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        for part in split_window(window, step):
            span = {"start": f"{part.start:.3f}", "end": f"{part.end:.3f}", "step": f"{step:g}"}
            yield self._asked("query_range", {"query": query, **span}, deadline)

    def _asked(self, how: str, form: Mapping[str, str], deadline: Deadline) -> bytes:
        """The complete body of a response."""
        seconds = min(QUERY_SECONDS, deadline.left())
        call = HttpRequest(f"/api/v1/{how}", form={**form, "timeout": f"{max(1.0, seconds):.0f}s"})
        answer = self.client.get(call, deadline.sooner(QUERY_SECONDS + 5), largest=LARGEST)
        if answer.cut:
            raise SourceFailed("too_large", f"the response is larger than {LARGEST:,} bytes", asked=call.summary())
        return answer.body

    # -- one job ---------------------------------------------------------------------------------------------------

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write metrics/<metric>.json for each available metric of the job.

        Raises:
            SourceFailed: Nothing could be queried.
        """
        gaps: list[Gap] = []
        known = nodes_of(request.record)
        chosen, counts = self._gpus(request, known, gaps)
        self._write(request, spool, chosen, counts, gaps)
        pods = self._of_job(request.record) if request.record.namespace else Selection()
        self._write(request, spool, pods, self._counts(pods, self.pod, request), gaps)
        around = node_selection(known or self._nodes(chosen, counts, request), self._also())
        if around:
            self._write(request, spool, around, self._counts(around, self.node, request), gaps)
        else:
            reason = "the job's nodes are unknown, and no series of its GPUs names them"
            gaps.append(Gap("metrics_no_nodes", "metrics", reason, rules_out="metrics of its network and hosts"))
        return gaps

    def check(self, deadline: Deadline) -> CheckResult:
        """Count the series of one GPU metric and of one node metric."""
        names = "DCGM_FI_DEV_GPU_UTIL|node_load1"
        chosen = Selection((self._also(),)).each(names) if self.labels else f'{{__name__=~"{names}"}}'
        query = f"count by (__name__) ({chosen})"
        try:
            body = self._asked("query", {"query": query}, deadline)
            found = dict(_counted(body, query))
        except SourceFailed as failed:
            return CheckResult(False, str(failed), failed.asked or query, failed.hint)
        if not found:
            change = "have it scrape dcgm-exporter and node_exporter, or correct `labels`"
            return CheckResult(False, "reachable, but it has no metrics of GPUs or nodes", query, change)
        return CheckResult(True, ", ".join(f"{count} series of {name}" for name, count in sorted(found.items())), query)

    def _gpus(
        self, request: CollectionRequest, nodes: Sequence[str], gaps: list[Gap]
    ) -> tuple[Selection, Mapping[str, int]]:
        """The selection of the job's GPUs, by its own labels or by its nodes, with the number of series of each metric."""
        for chosen in (self._of_job(request.record), node_selection(nodes, self._also())):
            counts = self._counts(chosen, self.gpu, request)
            if counts:
                if chosen != self._of_job(request.record):
                    reason = "no series carries the job's own labels; those of its nodes were used, whichever job they belong to"
                    gaps.append(
                        Gap("metrics_by_node", "metrics", reason, rules_out="whose work it was on shared nodes")
                    )
                self._tell_missing(counts, gaps)
                return chosen, counts
        self._tell_missing({}, gaps)
        return Selection(), {}

    def _of_job(self, record: JobRecord) -> Selection:
        if self.series:
            return selection([self.series], self._also())
        if not self.job_labels:
            return job_selection(record, self._also())
        job = record.job
        known = {"id": job.id, "name": job.name, "namespace": record.namespace, "owner": job.owner}
        return selection([{label: known.get(what) for label, what in self.job_labels.items()}], self._also())

    def _also(self) -> Mapping[str, Sequence[str]]:
        return {label: (value,) for label, value in self.labels.items()}

    def _tell_missing(self, counts: Mapping[str, int], gaps: list[Gap]) -> None:
        for names, what in _MISSED.items():
            wanted = [name for name in names if name in self.gpu]
            if wanted and not any(name in counts for name in wanted):
                gaps.append(Gap("metric_not_collected", "metrics", f"no series of {', '.join(wanted)}", rules_out=what))

    def _counts(self, chosen: Selection, names: Sequence[str], request: CollectionRequest) -> dict[str, int]:
        """The number of series of each metric: the maximum at five times in the window."""
        if not (chosen and names):
            return {}
        query = f"count by (__name__) ({chosen.each('|'.join(names))})"
        start, end = request.window.start or 0.0, request.window.end or 0.0
        step = max(1.0, (end - start) / 4)
        counts: dict[str, int] = {}
        for body in self.query_range(query, Window(start, end), step, request.deadline):
            for name, count in _counted(body, query):
                counts[name] = max(counts.get(name, 0), count)
        return counts

    def _nodes(self, chosen: Selection, counts: Mapping[str, int], request: CollectionRequest) -> tuple[str, ...]:
        """The nodes that the job's GPU series name at five times in the window."""
        if not counts:
            return ()
        query = f"group by ({BY}) ({chosen.each(max(counts, key=lambda name: counts[name]))})"
        start, end = request.window.start or 0.0, request.window.end or 0.0
        step = max(1.0, (end - start) / 4)
        bodies = self.query_range(query, Window(start, end), step, request.deadline)
        series = (item for body in bodies for item in read_prometheus(body, "metrics", query)[0] or ())
        return tuple(sorted({series_item.resource.node for series_item in series if series_item.resource.node}))

    def _write(
        self, request: CollectionRequest, spool: Spool, chosen: Selection, counts: Mapping[str, int], gaps: list[Gap]
    ) -> None:
        """Query each available metric in parallel."""

        def fetch(name: str) -> list[Gap]:
            try:
                return self._metric(name, counts[name], chosen, request, spool)
            except SourceFailed as failed:
                return [failed.gap(f"metrics/{name.lower()}", rules_out="what this metric shows")]

        if self.side_by_side == 1:
            gaps += [gap for name in sorted(counts) for gap in fetch(name)]
            return
        with ThreadPoolExecutor(self.side_by_side) as pool:
            for odd in pool.map(fetch, sorted(counts)):
                gaps += odd

    def _metric(self, name: str, series: int, chosen: Selection, request: CollectionRequest, spool: Spool) -> list[Gap]:
        many = series > min(MOST_SERIES, request.bounds.series)
        step = step_of(request.window, min(series, MOST_SERIES), self.least_step)
        known = KNOWN_METRICS.get(name)
        unit = known.unit if known else ""
        queries = _reduced(name, chosen, request.window.end or 0.0) if many else {"": chosen.each(name)}
        for kind, query in queries.items():
            for number, body in enumerate(self.query_range(query, request.window, step, request.deadline)):
                path = f"metrics/{name.lower()}{kind}{f'.{number}' if number else ''}.json"
                spool.write(path, _wrapped(body, query, unit))
                spool.describe(path, query=query, unit=unit)
        if not many:
            return []
        reason = f"{series} series; reduced to medians by node, and to the {2 * EXTREMES} most extreme series"
        return [
            Gap("metric_medians", f"metrics/{name.lower()}", reason, asked=str(series), rules_out="the other series")
        ]


def _reduced(name: str, chosen: Selection, end: float) -> dict[str, str]:
    """Queries for a metric with too many series: medians by node, and the series with recent extreme values."""
    known = KNOWN_METRICS.get(name)
    counter = known.counter if known else name.endswith("_total")
    value = f"rate({{}}[{RATE_OVER}])" if counter else "{}"
    lately = chosen.each(name, f"{'rate' if counter else 'avg_over_time'}({{}}[{RATE_OVER}] @ {end:.3f})")
    return {
        "": f"quantile by ({BY}) (0.5, {chosen.each(name, value)})",
        ".extremes": f"({chosen.each(name, value)}) and (topk({EXTREMES}, {lately}) or bottomk({EXTREMES}, {lately}))",
    }


def _wrapped(body: bytes, query: str, unit: str) -> bytes:
    """The response with query and unit. A response that is not an object is left for the reader to reject."""
    head = b'{"query":' + msgspec.json.encode(query) + b',"unit":' + msgspec.json.encode(unit) + b","
    text = body.lstrip()
    return head + text[1:] if text.startswith(b"{") and text[1:].lstrip()[:1] not in (b"}", b"") else body


class _Result(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Result] = []


class _Body(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data)


def _counted(body: bytes, query: str) -> Iterator[tuple[str, int]]:
    """Metric and largest count, from the response to a `count by (__name__)`.

    Raises:
        SourceFailed: The response is not as documented.
    """
    try:
        for result in msgspec.json.decode(body, type=_Body).data.result:
            points = [*result.values, *([result.value] if result.value is not None else [])]
            if points and "__name__" in result.metric:
                yield result.metric["__name__"], max(int(float(value)) for _, value in points)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise SourceFailed("bad_answer", f"the response is not from Prometheus: {error}", asked=query) from None
