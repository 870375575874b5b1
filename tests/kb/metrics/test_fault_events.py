"""Faults that exporters publish as metrics, as events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kb.metrics.fault_events import MOST_EVENTS, events_of_metrics
from kb.model import Event, Resource
from kb.parsers.artefacts.promql.series import MetricSeries

AT = 1_780_000_000.0
GPU = Resource(node="gpu-7", gpu="3")
POD = Resource(node="gpu-7", container="fit-worker-1")


def series(
    metric: str,
    values: Sequence[float],
    who: Resource = GPU,
    part: str = "",
    first: float = AT,
    *,
    counter: bool = False,
) -> MetricSeries:
    """A sample each 30 s."""
    return MetricSeries(
        metric, who, [first + 30 * at for at in range(len(values))], values, "", counter, part, "m.json"
    )


REFERENCE = series("gpu_util", [97.0] * 40)
ALONG = series("xid", [0.0] * 40, Resource(node="gpu-8", gpu="0"))  # says when the recording began


def found(*given: MetricSeries) -> tuple[Event, ...]:
    """The fault events of one GPU; the other GPU is healthy."""
    return events_of_metrics([REFERENCE, ALONG, *given])


def test_an_xid_that_appears_names_gpu_node_and_time() -> None:
    """The earliest that it can have been is its time; the text has both samples."""
    (event,) = found(series("xid", [0, 0, 79, 79]))
    assert (event.kind, event.reason, event.time, event.resource) == ("node_problem", "Xid 79", AT + 30, GPU)
    assert event.fields["xid"] == 79
    assert (
        "the last Xid of its exporter went from 0 to 79 on GPU 3, gpu-7 between 20:27:10 and 20:27:40 UTC"
        in event.message
    )


def test_each_new_xid_is_an_event() -> None:
    """The gauge keeps the last one."""
    assert [event.reason for event in found(series("xid", [31, 31, 45, 45, 79]))] == ["Xid 45", "Xid 79"]


@pytest.mark.parametrize(
    "given",
    [
        series("xid", [79.0] * 9),
        series("xid", [79.0, 0.0, 0.0]),
        series("xid", [0, 2000]),
        series("xid", [0, 0.5]),
        series("ecc_double_bit", [12, 12, 12], counter=True),
        series("ecc_single_bit", [0, 900, 2000], counter=True),
        series("row_remap_pending", [1, 1, 1]),
        series("row_remap_failure", [0, 0]),
        series("rdma_link_downed", [3, 3], part="mlx5_0/1", counter=True),
        series("rdma_port_state", [4, 1, 4, 4], part="mlx5_0/1"),
        series("rdma_port_state", [1, 1], part="mlx5_9/1"),
        series("clock_event_reasons", [4.0] * 20),
        series("clock_event_reasons", [0, 8, 0, 8, 0, 8]),
        series("clock_event_reasons", [8.0] * 20),
        series("last_end_reason", [0, 1], POD, "Error"),
        series("container_ooms", [0, 0], POD, counter=True),
        series("container_restarts", [2, 2], POD, counter=True),
        series("xid", []),
    ],
)
def test_what_is_old_or_normal_is_no_event(given: MetricSeries) -> None:
    """Values that precede the job, do not change, recovered, or are not faults."""
    assert found(given) == ()


@pytest.mark.parametrize(
    ("given", "kind", "reason"),
    [
        (series("ecc_double_bit", [0, 0, 2], counter=True), "health_check", "memory"),
        (series("rows_remapped_uncorrectable", [1, 2], counter=True), "health_check", "memory"),
        (series("row_remap_failure", [0, 1]), "health_check", "memory"),
        (series("row_remap_pending", [0, 1, 1]), "health_check", "recovery"),
        (series("clock_event_reasons", [0, *[0x48] * 9]), "health_check", "throttled"),
        (series("nvlink_recovery_errors", [0, 4], counter=True), "health_check", "nvlink_recovered"),
        (series("rdma_link_downed", [3, 4], part="mlx5_0/1", counter=True), "health_check", "link_downed"),
        (series("rdma_port_state", [4, 4, 1, 1], part="mlx5_0/1"), "health_check", "port"),
        (series("container_ooms", [0, 1], POD, counter=True), "oom_kill", "container_oom_events"),
        (series("last_end_reason", [0, 1], POD, "OOMKilled"), "oom_kill", "OOMKilled"),
        (series("oom_kills", [5, 6], Resource(node="gpu-7"), counter=True), "oom_kill", "oom_kill"),
        (series("container_restarts", [0, 1], POD, counter=True), "restart", "restarted"),
    ],
)
def test_what_changes_during_the_job_is_an_event(given: MetricSeries, kind: str, reason: str) -> None:
    """With the metric that shows it."""
    (event,) = found(given)
    assert (event.kind, event.reason, event.fields["metric"]) == (kind, reason, given.metric)
    assert event.resource == given.resource


def test_a_counter_that_appears_late_rose_from_zero() -> None:
    """dcgm-exporter makes the series of an Xid when it comes; one that was there from the start is not known to be new."""
    late = series("xid_count", [1, 1], part="94", first=AT + 600)
    assert [event.reason for event in found(late)] == ["Xid 94"]
    assert found(series("xid_count", [1, 1], part="94")) == ()


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    """The exporter was restarted."""
    assert len(found(series("ecc_double_bit", [9, 9, 1], counter=True))) == 1
    assert found(series("ecc_double_bit", [9, 9, 0, 0], counter=True)) == ()


def test_a_kill_on_the_node_counts_only_where_no_container_says_whose_it_was() -> None:
    """Its counter is of all processes there."""
    node = series("oom_kills", [0, 1], Resource(node="gpu-7"), counter=True)
    assert found(node, series("container_ooms", [0, 0], POD, counter=True)) == ()
    assert len(found(node)) == 1


def test_there_are_only_so_many_in_the_order_of_time() -> None:
    """Ten thousand GPUs may all report."""
    many = [series("xid", [0] * (at % 7 + 1) + [79], Resource(node=f"n{at}", gpu="0")) for at in range(1000)]
    events = found(*many)
    assert len(events) == MOST_EVENTS
    assert [event.time for event in events] == sorted(event.time or 0 for event in events)
