"""Prometheus answers: labels to resources, units to ours, and everything odd to a gap."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.model import Gap, Resource
from kb.parsers.artefacts.promql.answer import MOST_POINTS, read_prometheus
from kb.parsers.artefacts.promql.labels import resource_of
from kb.parsers.artefacts.promql.series import MetricSeries

T0 = 1_793_000_000.0


def answer(*series: tuple[dict[str, str], Sequence[object]], **more: object) -> bytes:
    """A successful range answer of the series given as labels and values, a quarter of a minute apart."""
    result = [
        {"metric": labels, "values": [[T0 + 15 * at, str(value)] for at, value in enumerate(values)]}
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}).encode()


def read(data: bytes, source: str = "metrics/x.json", **asked: str) -> tuple[list[MetricSeries], dict[str, Gap]]:
    """The series that were read and the gaps by code."""
    series, gaps = read_prometheus(data, source, **asked)
    return list(series or ()), {gap.code: gap for gap in gaps}


UTIL = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": "trn-07", "gpu": "5", "UUID": "GPU-1c", "device": "nvidia5"}


def test_dcgm_series_gets_our_name_unit_and_the_gpu_it_is_of() -> None:
    """A dcgm-exporter series becomes per cent of one GPU of one node."""
    (one,), gaps = read(answer((UTIL, [97, 98, 96])))

    assert (one.metric, one.unit, one.counter, one.part) == ("gpu_util", "%", False, "")
    assert one.resource == Resource(node="trn-07", gpu="5")
    assert list(one.values) == [97.0, 98.0, 96.0]
    assert list(one.times) == [T0, T0 + 15, T0 + 30]
    assert gaps == {}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"hostname": "n1", "uuid": "GPU-9"}, Resource(node="n1", gpu="GPU-9")),
        ({"instance": "n2:9400", "gpu": "0"}, Resource(node="n2", gpu="0")),
        ({"instance": "[fd00::7]:9400"}, Resource(node="fd00::7")),
        ({"instance": "fd00::7"}, Resource(node="fd00::7")),
        ({"node": "n3", "instance": "10.1.1.1:9100"}, Resource(node="n3")),
        ({"Hostname": "dcgm-exporter-x7z", "node": "n4"}, Resource(node="n4")),
        (
            {"exported_pod": "llm-worker-3", "pod": "exp-1", "Hostname": "exp-1", "node": "n5"},
            Resource(node="n5", container="llm-worker-3"),
        ),
        ({"pod_name": "llm-worker-4"}, Resource(container="llm-worker-4")),
        ({"rank": "17", "local_rank": "1", "cluster": "east"}, Resource(cluster="east", rank=17, local_rank=1)),
        ({"rank": "x", "gpu": "2", "GPU_I_ID": "3"}, Resource(gpu="2.3")),
        ({"rank": "9" * 40}, Resource()),
    ],
)
def test_labels_of_all_exporters_name_the_same_resource(labels: dict[str, str], expected: Resource) -> None:
    """Old and new spellings of node, pod, GPU and rank are read; an exporter's own pod is not a node."""
    assert resource_of(labels) == expected


def test_port_counter_is_a_counter_and_names_its_port() -> None:
    """InfiniBand bytes are a counter for each port of a node."""
    labels = {
        "__name__": "node_infiniband_port_data_transmitted_bytes_total",
        "instance": "n1:9100",
        "device": "mlx5_2",
        "port": "1",
    }
    (one,), _ = read(answer((labels, [1e12, 2e12])))

    assert (one.metric, one.counter, one.part, one.unit) == ("rdma_tx", True, "mlx5_2/1", "bytes/s")


def test_other_port_counters_are_known_by_their_form() -> None:
    """A port counter without a common name keeps the exporter's name."""
    (one,), _ = read(answer(({"__name__": "node_infiniband_link_downed_total", "instance": "n"}, [1, 1])))

    assert (one.metric, one.counter) == ("rdma_link_downed", True)


def test_rate_in_the_query_means_that_it_is_a_rate_already() -> None:
    """A series without a name is named by its query; what the query rated is not rated again."""
    query = 'sum by (instance) (rate(node_infiniband_port_data_received_bytes_total{job="x"}[2m]))'
    (one,), _ = read(answer(({"instance": "n1"}, [5e9, 6e9])), query=query)

    assert (one.metric, one.counter) == ("rdma_rx", False)


def test_the_files_name_names_the_metric_where_nothing_else_does() -> None:
    """Labels and query without a name leave the file's stem."""
    (one,), _ = read(answer(({"rank": "0"}, [1, 2])), "metrics/data_wait.json", unit="s")

    assert (one.metric, one.unit) == ("data_wait", "s")


def test_values_that_are_no_numbers_are_left_out_and_reported() -> None:
    """NaN and infinities are missing, not 0."""
    (one,), gaps = read(answer((UTIL, [97, "NaN", "+Inf", "-Inf", "abc", 98])))

    assert list(one.values) == [97.0, 98.0]
    assert "3 times" in gaps["metric_not_a_number"].reason
    assert "metric_point_broken" in gaps


def test_holes_and_early_ends_are_reported_with_who() -> None:
    """A series with a hole and one that ends before the others are gaps in the telemetry."""
    full = [50.0] * 60
    holed = [50.0 if not 20 <= at < 40 else "NaN" for at in range(60)]
    ended = [50.0] * 30
    courses: tuple[Sequence[object], ...] = (full, holed, ended)
    rows: list[tuple[dict[str, str], Sequence[object]]] = [
        ({**UTIL, "gpu": str(gpu)}, values) for gpu, values in enumerate(courses)
    ]
    _, gaps = read(answer(*rows))

    assert gaps["metric_holes"].scope == "trn-07 1"
    assert gaps["metric_ends"].scope == "trn-07 2"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", [0.97, 0.5, 1.0], [97.0, 50.0, 100.0]),
        ("DCGM_FI_PROF_SM_ACTIVE", [62.0, 55.0, 60.0], [62.0, 55.0, 60.0]),
        ("DCGM_FI_DEV_POWER_USAGE", [610_000.0, 590_000.0, 600_000.0], [610.0, 590.0, 600.0]),
        ("DCGM_FI_DEV_FB_USED", [7.2e10, 7.3e10, 7.4e10], [7.2e10, 7.3e10, 7.4e10]),
    ],
)
def test_wrong_units_are_corrected_and_reported(name: str, given: list[float], expected: list[float]) -> None:
    """Shares for per cent, per cent for shares, milliwatts and bytes are seen from the numbers."""
    (one,), gaps = read(answer(({**UTIL, "__name__": name}, given)))

    assert list(one.values) == pytest.approx(expected)
    assert "metric_unit" in gaps


def test_idle_gpus_are_not_taken_for_shares() -> None:
    """A utilisation of 0 and 1 per cent stays what it is."""
    (one,), gaps = read(answer((UTIL, [0, 1, 0])))

    assert list(one.values) == [0.0, 1.0, 0.0]
    assert "metric_unit" not in gaps


def test_values_that_cannot_be_are_left_out() -> None:
    """A temperature of a million degrees is not a measurement."""
    (one,), gaps = read(answer(({**UTIL, "__name__": "DCGM_FI_DEV_GPU_TEMP"}, [61, 1e6, -5, 62])))

    assert list(one.values) == [61.0, 62.0]
    assert "metric_out_of_range" in gaps


def test_times_in_milliseconds_become_seconds() -> None:
    """Times that would lie in another age are milliseconds."""
    data = {"status": "success", "data": {"result": [{"metric": UTIL, "values": [[T0 * 1e3, "5"]]}]}}
    (one,), gaps = read(json.dumps(data).encode())

    assert list(one.times) == [T0]
    assert "metric_times_in_ms" in gaps


def test_a_warning_of_the_server_is_a_gap() -> None:
    """Partial answers say so."""
    _, gaps = read(answer((UTIL, [1, 2]), warnings=["store-3 did not answer"]))

    assert "store-3" in gaps["metric_partial"].reason


def test_a_refused_query_says_why() -> None:
    """An error answer gives no series and the server's words."""
    series, gaps = read(b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}')

    assert series == []
    assert gaps["metric_refused"].reason == "the query was refused: bad_data: exceeded maximum resolution"


def test_an_instant_answer_is_a_point_a_series() -> None:
    """A vector is read like a range of one point."""
    data = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": UTIL, "value": [T0, "41"]}]}}
    (one,), _ = read(json.dumps(data).encode())

    assert list(one.values) == [41.0]


def test_one_broken_series_costs_itself_only() -> None:
    """Other series of the answer are read."""
    good = json.loads(answer((UTIL, [10, 20])))
    good["data"]["result"] += [7, {"metric": UTIL, "values": 3}, {"metric": [], "values": [[T0, "1"]]}]
    series, gaps = read(json.dumps(good).encode())

    assert [list(series_item.values) for series_item in series] == [[10.0, 20.0], [1.0]]
    assert "metric_series_broken" in gaps


def test_a_series_at_the_servers_limit_may_have_been_cut() -> None:
    """Eleven thousand points are what the server gives at most."""
    _, gaps = read(answer((UTIL, [3] * MOST_POINTS)))

    assert "metric_series_full" in gaps


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"status":"success"}',
        b'{"data":{"result":{}}}',
        b'{"data":[]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_a_gap(data: bytes) -> None:
    """Nothing is raised on garbage."""
    series, gaps = read_prometheus(data, "metrics/a.json")

    assert series is None
    assert gaps


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["metric", "values", "value", "gpu"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(JSON, max_size=4), JSON, JSON)
def test_any_json_is_read_without_an_exception_and_gives_finite_points(
    result: list[object], warned: object, query: object
) -> None:
    """Whatever an answer contains, only numbers are read."""
    data = {"status": "success", "data": {"result": result}, "warnings": warned, "query": query}
    series, _ = read_prometheus(json.dumps(data).encode(), "m.json")

    assert all(
        math.isfinite(value) for series_item in series or () for value in (*series_item.times, *series_item.values)
    )
