"""Exporter metrics by name, with our name, their unit and range.

Known metrics (`KNOWN_METRICS`) get our names and units: shares in percent, sizes in bytes, rates per second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownMetric:
    """Our name of an exporter's metric, its unit after `factor`, and the largest plausible value."""

    metric: str
    unit: str = ""
    counter: bool = False
    factor: float = 1.0
    top: float = math.inf


_SHARE = 100.0 * 1.05  # activity counters overshoot slightly
KNOWN_METRICS: Mapping[str, KnownMetric] = {
    "DCGM_FI_DEV_GPU_UTIL": KnownMetric("gpu_util", "%", top=_SHARE),
    "DCGM_FI_DEV_MEM_COPY_UTIL": KnownMetric("memory_copy_util", "%", top=_SHARE),
    "DCGM_FI_PROF_SM_ACTIVE": KnownMetric("sm_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_SM_OCCUPANCY": KnownMetric("sm_occupancy", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": KnownMetric("tensor_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": KnownMetric("gr_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_DRAM_ACTIVE": KnownMetric("dram_active", "%", factor=100.0, top=_SHARE),
    "DCGM_FI_PROF_PCIE_TX_BYTES": KnownMetric("pcie_tx", "bytes/s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": KnownMetric("pcie_rx", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": KnownMetric("nvlink_tx", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": KnownMetric("nvlink_rx", "bytes/s"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": KnownMetric("nvlink_bandwidth", "/s", counter=True),
    "DCGM_FI_DEV_POWER_USAGE": KnownMetric("gpu_power", "W", top=5_000.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": KnownMetric("gpu_energy", "W", counter=True, factor=1e-3),
    "DCGM_FI_DEV_GPU_TEMP": KnownMetric("gpu_temp", "C", top=200.0),
    "DCGM_FI_DEV_MEMORY_TEMP": KnownMetric("memory_temp", "C", top=200.0),
    "DCGM_FI_DEV_SM_CLOCK": KnownMetric("sm_clock", "MHz", top=10_000.0),
    "DCGM_FI_DEV_MEM_CLOCK": KnownMetric("memory_clock", "MHz", top=50_000.0),
    "DCGM_FI_DEV_FB_USED": KnownMetric("gpu_memory", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_FB_FREE": KnownMetric("gpu_memory_free", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_FB_RESERVED": KnownMetric("gpu_memory_reserved", "bytes", factor=2.0**20, top=2.0**44),
    "DCGM_FI_DEV_XID_ERRORS": KnownMetric("xid"),
    "DCGM_EXP_XID_ERRORS_COUNT": KnownMetric("xid_count"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": KnownMetric("clock_event_reasons"),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": KnownMetric("clock_event_reasons"),  # its name before DCGM 3.3
    "DCGM_FI_DEV_ROW_REMAP_PENDING": KnownMetric("row_remap_pending"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": KnownMetric("nvlink_recovery_errors", "/s", counter=True),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": KnownMetric("pcie_replays", "/s", counter=True),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": KnownMetric("rows_remapped_correctable", "/s", counter=True),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": KnownMetric("rows_remapped_uncorrectable", "/s", counter=True),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": KnownMetric("row_remap_failure"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": KnownMetric("ecc_single_bit", "/s", counter=True),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": KnownMetric("ecc_double_bit", "/s", counter=True),
    "node_infiniband_port_data_transmitted_bytes_total": KnownMetric("rdma_tx", "bytes/s", counter=True),
    "node_infiniband_port_data_received_bytes_total": KnownMetric("rdma_rx", "bytes/s", counter=True),
    "node_infiniband_state_id": KnownMetric("rdma_port_state"),
    "node_infiniband_physical_state_id": KnownMetric("rdma_physical_state"),
    "node_infiniband_rate_bytes_per_second": KnownMetric("rdma_link_rate", "bytes/s"),
    "node_vmstat_oom_kill": KnownMetric("oom_kills", "/s", counter=True),
    "container_oom_events_total": KnownMetric("container_ooms", "/s", counter=True),
    "kube_pod_container_status_last_terminated_reason": KnownMetric("last_end_reason"),
    "kube_pod_container_status_restarts_total": KnownMetric("container_restarts", "/s", counter=True),
    "node_procs_blocked": KnownMetric("processes_blocked"),
    "node_processes_state": KnownMetric("processes"),
    "node_load1": KnownMetric("load"),
    "node_memory_MemAvailable_bytes": KnownMetric("host_memory_free", "bytes"),
    "node_pressure_io_waiting_seconds_total": KnownMetric("io_pressure", "%", counter=True, factor=100.0),
    "node_pressure_cpu_waiting_seconds_total": KnownMetric("cpu_pressure", "%", counter=True, factor=100.0),
    "node_pressure_memory_waiting_seconds_total": KnownMetric("memory_pressure", "%", counter=True, factor=100.0),
}
_PORT_COUNTER = re.compile(r"node_infiniband_(?:port_)?(\w{1,100}?)_total")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,199}")
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


def known_metric(name: str) -> KnownMetric:
    """Return our name of a metric. An unknown one keeps its name, in lower case."""
    known = KNOWN_METRICS.get(name)
    if known is not None:
        return known
    port = _PORT_COUNTER.fullmatch(name)
    if port:
        return KnownMetric(f"rdma_{port[1]}", "/s", counter=True)
    return KnownMetric(name[:200].lower() or "unnamed", counter=name.endswith("_total"))


def metric_of_query(query: str) -> str:
    """Return the metric in a query: a known one, else the first name that is not a function or label."""
    head = re.sub(
        r"\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|\b(?:by|without|on|ignoring)\s{0,4}\([^()]*\)", " ", query[:4096]
    )
    names = [name for name in _NAME.findall(head) if name not in _FUNCTIONS]
    return next((name for name in names if name in KNOWN_METRICS), names[0] if names else "")


def metric_of_file(source: str) -> str:
    """Return a metric's name from a file stem."""
    name = source.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"\W", "_", name)[:200]
