"""Peers: a row that leaves its group for minutes is named; what healthy groups show is not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kb.metrics.medians import known_median
from kb.metrics.panel import Panel, Row, make_panel
from kb.metrics.peer_outliers import ComparisonRule, OutlierLimits, compare, odd_rows, vanished
from kb.metrics.spinning import idle_among_spinning, spinning, stalled_compound
from kb.model import Event, Resource

T0 = 1_800_000_000.0
STEP = 15.0


def group(level: float, noise: float, *, rows: int = 16, count: int = 240, seed: int = 1) -> np.ndarray:
    """Noise about a level, relative, rows x scrapes."""
    chance = np.random.default_rng(seed)
    own = 1 + 0.02 * chance.standard_normal((rows, 1))
    return level * own * (1 + noise * chance.standard_normal((rows, count)))


def panel(metric: str, values: np.ndarray) -> Panel:
    """A panel of one row a node."""
    rows = [Row(Resource(node=f"n{at:02d}")) for at in range(values.shape[0])]
    return make_panel(metric, rows, T0, STEP, values)


def nodes(outliers: object) -> list[str]:
    """The nodes named."""
    return [outlier.row.resource.node for outlier in outliers]  # type: ignore[attr-defined]


def test_a_node_that_drops_for_good_is_named_with_size_and_start() -> None:
    """A loss of 10 % of the bandwidth is reported with its start."""
    values = group(4e10, 0.02)
    values[5, 160:] *= 0.75
    (found,) = compare(panel("rdma_tx", values))

    assert found.row.resource.node == "n05"
    assert found.size == pytest.approx(-0.25, abs=0.03)
    assert abs(found.since - (T0 + 160 * STEP)) <= 4 * STEP
    assert 300 <= found.found - found.since <= 480
    assert found.until == T0 + 240 * STEP
    assert "n05: rdma_tx" in found.text
    assert "below" in found.text


def test_a_healthy_group_that_differs_by_design_is_quiet() -> None:
    """Noise and standing differences of a few per cent name no one."""
    assert compare(panel("rdma_tx", group(4e10, 0.05))) == ()


def test_a_phase_that_all_enter_is_no_outlier() -> None:
    """An evaluation lowers all alike, even where they enter it one after another."""
    values = group(40.0, 0.03)
    for row in range(16):
        values[row, 100 + row % 3 : 130 + row % 2] *= 0.3

    assert compare(panel("tensor_active", values)) == ()


def test_a_straggler_that_comes_and_goes_is_not_called() -> None:
    """Two minutes slow, three minutes well, again and again."""
    values = group(1700.0, 0.003)
    for begin in range(60, 230, 20):
        values[3, begin : begin + 8] *= 0.7

    assert compare(panel("sm_clock", values)) == ()


def test_the_good_direction_is_not_called() -> None:
    """A GPU that is cooler than all others needs no one."""
    values = group(60.0, 0.005)
    values[2, 120:] -= 12.0

    assert compare(panel("gpu_temp", values)) == ()
    assert nodes(compare(panel("gpu_temp", values), ComparisonRule("both", 20.0, 0.015))) == ["n02"]


def test_odd_since_the_first_point_is_reported_as_standing() -> None:
    """A row without a past is only compared with the others."""
    values = group(9e10, 0.02)
    values[11] *= 0.5
    (found,) = compare(panel("nvlink_tx", values))

    assert (found.row.resource.node, found.standing) == ("n11", True)
    assert found.since == T0


def test_a_metric_that_differs_by_role_is_compared_with_its_own_past_only() -> None:
    """The head's processor is always busier; a node whose load doubles is odd."""
    values = group(20.0, 0.03)
    values[0] *= 1.9
    quiet = compare(panel("cpu_util", values))
    values[7, 150:] *= 2.0

    assert quiet == ()
    assert nodes(compare(panel("cpu_util", values))) == ["n07"]


def test_a_kind_of_machines_is_no_outlier() -> None:
    """Where a third of the rows goes another way, that is another kind of work."""
    values = group(500.0, 0.02)
    values[:5, 120:] *= 0.6

    assert compare(panel("gpu_power", values)) == ()


def test_missing_scrapes_are_not_low_values() -> None:
    """An exporter that dies is not taken for a GPU that does nothing."""
    values = group(98.0, 0.005)
    values[4, 150:] = np.nan
    values[np.random.default_rng(3).random(values.shape) < 0.1] = np.nan

    assert compare(panel("gpu_util", values)) == ()


def test_few_peers_are_no_group() -> None:
    """Three rows have no median worth the name."""
    values = group(98.0, 0.005, rows=3)
    values[0, 100:] = 10.0

    assert compare(panel("gpu_util", values)) == ()


def test_a_metric_without_a_name_here_is_judged_both_ways() -> None:
    """Any metric can be compared."""
    values = group(3.0, 0.02)
    values[9, 150:] *= 1.5

    assert nodes(compare(panel("acme_queue", values))) == ["n09"]


def test_outliers_of_several_metrics_add_up_to_one_suspect() -> None:
    """The row with the most and strongest outliers comes first."""
    power, clock, tx = (
        group(500.0, 0.02, seed=1),
        group(1700.0, 0.003, seed=2),
        group(4e10, 0.03, seed=3),
    )
    power[6, 150:] *= 0.7
    clock[6, 150:] *= 0.8
    tx[1, 180:] *= 0.7
    found = odd_rows([panel("gpu_power", power), panel("sm_clock", clock), panel("rdma_tx", tx)])

    assert nodes(found) == ["n06", "n01"]
    assert {outlier.metric for outlier in found[0].outliers} == {"gpu_power", "sm_clock"}


def test_a_node_whose_whole_telemetry_ends_is_lost() -> None:
    """All metrics of both exporters gone is a lost node; one exporter gone is not."""
    gpu, host = group(98.0, 0.005), group(20.0, 0.05, seed=4)
    gpu[8, 200:] = np.nan
    dead = vanished([panel("gpu_util", gpu), panel("cpu_util", host)])
    host[8, 200:] = np.nan
    lost = vanished([panel("gpu_util", gpu), panel("cpu_util", host)])

    assert dead == ()
    assert nodes(lost) == ["n08"]
    assert lost[0].since == T0 + 200 * STEP


def test_the_same_input_gives_the_same_answer_in_any_order_of_metrics() -> None:
    """The order of panels does not matter."""
    one, two = group(500.0, 0.02), group(1700.0, 0.003, seed=5)
    one[6, 150:] *= 0.7
    two[2, 150:] *= 0.7
    panels = [panel("gpu_power", one), panel("sm_clock", two)]

    assert odd_rows(panels) == odd_rows(panels[::-1])


@pytest.mark.slow  # the other tests of the module
def test_ten_thousand_ranks_are_compared() -> None:
    """One slow rank of a large job is found."""
    values = group(6.0, 0.02, rows=10_240, count=80)
    values[7000, 50:] *= 1.3
    rows = [Row(Resource(rank=at)) for at in range(10_240)]
    found = compare(make_panel("step_time", rows, T0, STEP, values))

    assert [odd_row.row.resource.rank for odd_row in found] == [7000]


def test_the_middle_leaves_out_what_is_unknown() -> None:
    """Medians along an axis, NaN only where nothing is known."""
    values = np.array([[1.0, np.nan, 3.0, 9.0], [np.nan] * 4, [4.0, 2.0, np.nan, np.nan]])

    np.testing.assert_array_equal(known_median(values, axis=1), [3.0, np.nan, 3.0])
    assert known_median(np.empty((2, 0)), axis=1).shape == (2,)


# Probe (c) and what goes with it.

NOW = T0 + 100 * STEP


def stuck(*, sm: float | None = 3.0, tensor: float | None = None, power: float | None = None) -> dict[str, Panel]:
    """A job of eight nodes that trained and has spun without traffic for seven minutes."""
    util = np.full((8, 101), 98.0)
    util[:, 72:] = 100.0
    tx = np.full((8, 101), 3e10)
    tx[:, 72:] = 2e4
    panels = {"gpu_util": panel("gpu_util", util), "rdma_tx": panel("rdma_tx", tx)}
    for name, before, after in (("sm_active", 60.0, sm), ("tensor_active", 35.0, tensor), ("gpu_power", 600.0, power)):
        if after is not None:
            values = np.full((8, 101), before)
            values[:, 72:] = after
            panels[name] = panel(name, values)
    return panels


@pytest.mark.parametrize("signal", [{"sm": 3.0}, {"sm": None, "tensor": 0.1}, {"sm": None, "power": 260.0}])
def test_spinning_gpus_without_traffic_vote_for_a_hang(signal: dict[str, float | None]) -> None:
    """SM activity decides; where it is not collected, tensor activity or power does, and the vote says so."""
    vote = spinning(stuck(**signal), NOW)

    assert vote.vote == "yes"
    assert vote.numbers["share_of_gpus_busy"] == 1.0
    assert vote.since == NOW - 180.0
    assert ("SM activity not collected" in vote.detail) == (signal["sm"] is None)


@pytest.mark.parametrize("signal", [{"sm": 55.0}, {"sm": None, "tensor": 30.0}, {"sm": None, "power": 590.0}])
def test_gpus_that_compute_without_traffic_do_not_vote(signal: dict[str, float | None]) -> None:
    """A long evaluation on one node each needs no network and is no hang."""
    assert spinning(stuck(**signal), NOW).vote == "no"


def test_traffic_that_flows_is_no_hang() -> None:
    """Low SM activity with traffic is slow, not hung."""
    assert spinning(stuck() | {"rdma_tx": panel("rdma_tx", np.full((8, 101), 3e10))}, NOW).vote == "no"


def test_a_minute_without_traffic_is_too_short() -> None:
    """What holds for less than some minutes does not vote."""
    tx = np.full((8, 101), 3e10)
    tx[:, 97:] = 0.0

    assert spinning(stuck() | {"rdma_tx": panel("rdma_tx", tx)}, NOW).vote == "no"


@pytest.mark.parametrize(
    ("absent", "words"), [("rdma_tx", "RDMA"), ("gpu_util", "GPU utilisation"), ("sm_active", "SM activity")]
)
def test_what_is_not_collected_cannot_be_observed(absent: str, words: str) -> None:
    """A missing metric is neither a hang nor health, and never 0."""
    panels = stuck()
    del panels[absent]
    vote = spinning(panels, NOW)

    assert vote.vote == "not_observable"
    assert any(words in item for item in vote.missing)


def test_scrapes_that_stopped_cannot_be_observed() -> None:
    """Traffic last measured before the minutes in question is not evidence for them."""
    tx = np.full((8, 101), 3e10)
    tx[:, 72:] = np.nan

    assert spinning(stuck() | {"rdma_tx": panel("rdma_tx", tx)}, NOW).vote == "not_observable"


def test_the_one_idle_gpu_among_spinning_ones_is_named() -> None:
    """If nearly all spin at 100 % and one or two are at 0 %, those are the source."""
    util = np.full((8, 101), 100.0)
    util[6, 70:] = 0.0
    one = idle_among_spinning(panel("gpu_util", util), NOW)
    util[:3, 70:] = 0.0

    assert [row.resource.node for row in one] == ["n06"]
    assert idle_among_spinning(panel("gpu_util", util), NOW) == ()
    assert idle_among_spinning(panel("gpu_util", np.full((8, 101), 60.0)), NOW) == ()


def event(kind: str, node: str | None, time: float | None = NOW - 30) -> Event:
    """An event reported by an eBPF program or by the kernel."""
    return Event("ebpf", time, kind, kind, "", Resource(node=node))


def test_a_spinning_gpu_with_a_stalled_queue_pair_and_a_blocked_task_is_a_compound() -> None:
    """All three on one node, and no step for minutes."""
    sm = panel("sm_active", np.full((8, 101), 85.0))
    stalled, blocked = [event("queue_pair", "n03")], [event("d_state", "n03")]

    assert stalled_compound(sm, stalled, blocked, NOW, NOW - 400).vote == "yes"
    assert stalled_compound(sm, stalled, [event("d_state", "n04")], NOW, NOW - 400).vote == "no"
    assert stalled_compound(sm, stalled, [], NOW, NOW - 400).vote == "no"
    assert stalled_compound(sm, stalled, [event("d_state", "n03", NOW - 9000)], NOW, NOW - 400).vote == "no"
    assert stalled_compound(sm, stalled, blocked, NOW, NOW - 20).vote == "no"
    assert stalled_compound(None, stalled, blocked, NOW, NOW - 400).vote == "not_observable"
    assert stalled_compound(sm, stalled, blocked, NOW).vote == "not_observable"


def test_limits_can_be_set() -> None:
    """A site that wants to wait longer does."""
    values = group(4e10, 0.02)
    values[5, 200:] *= 0.5

    assert nodes(compare(panel("rdma_tx", values))) == ["n05"]
    assert compare(panel("rdma_tx", values), None, replace(OutlierLimits(), lasts=1200.0)) == ()


@settings(max_examples=20, deadline=None)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(0, 8), st.sampled_from([0, 1, 30, 130])),
        elements=st.sampled_from([0.0, -1.0, 1.0, 97.0, 1e300, -1e300, 1e-300, math.nan, math.inf]),
    ),
    st.sampled_from(["gpu_util", "gpu_temp", "sm_active", "unknown"]),
)
def test_any_panel_is_compared_without_an_exception(values: np.ndarray, metric: str) -> None:
    """Empty, constant, huge, negative and unknown cells raise nothing and warn of nothing."""
    one = panel(metric, values)
    compare(one)
    odd_rows([one, panel("cpu_util", values)])
    idle_among_spinning(one, NOW)
    panels = {name: panel(name, values) for name in ("gpu_util", "rdma_tx", "sm_active", "gpu_power")}

    assert spinning(panels, NOW).vote in {"yes", "no", "not_observable"}
    assert stalled_compound(one, [], [], NOW, T0).vote in {"no", "not_observable"}
