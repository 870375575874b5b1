"""Panels: the same for points in any order, unknown where nothing was measured, bounded for any input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.metrics.panel import (
    MOST_CELLS,
    Panel,
    Row,
    last_at_usual,
    make_panel,
    merge,
    panel_of,
    panels_of,
    rates,
    resampled,
)
from kb.model import Resource
from kb.parsers.artefacts.promql.series import MetricSeries

T0 = 1_800_000_000.0


def series(
    values: list[float], *, gpu: str = "0", times: list[float] | None = None, counter: bool = False
) -> MetricSeries:
    """A series of one GPU, ten seconds apart."""
    at = times if times is not None else [T0 + 10 * n for n in range(len(values))]
    return MetricSeries("gpu_util", Resource(node="n1", gpu=gpu), at, values, "%", counter)


def made(*several: MetricSeries, **asked: float) -> Panel:
    """The panel of the series."""
    panel, _ = panel_of(several, **asked)
    assert panel is not None
    return panel


def test_unsorted_and_doubled_points_give_the_same_panel() -> None:
    """Order and repetition of points do not matter; of two values of one time the larger counts."""
    plain = made(series([1.0, 2.0, 3.0, 4.0]))
    times = [T0 + 30, T0, T0 + 10, T0 + 20, T0 + 10, T0]
    mixed = made(series([4.0, 1.0, 2.0, 3.0, 0.5, 1.0], times=times))

    np.testing.assert_array_equal(plain.values, mixed.values)
    assert plain.start == mixed.start


def test_what_was_not_measured_is_unknown_and_never_zero() -> None:
    """A hole and a NaN leave the mask open."""
    panel = made(series([5.0, math.nan] + [5.0] * 6, times=[T0 + at for at in (0, 10, 20, 50, 60, 70, 80, 90)]))

    assert panel.mask.tolist() == [[True, False, True, False, False, True, True, True, True, True]]
    assert np.isnan(panel.values[~panel.mask]).all()


def test_a_panel_cannot_be_written_to() -> None:
    """Arrays in a frozen value are frozen."""
    with pytest.raises(ValueError, match="read-only"):
        made(series([1.0, 2.0])).values[0, 0] = 9.0


def test_a_counters_rate_survives_a_reset_and_says_nothing_over_a_hole() -> None:
    """After a reset the counter began at 0; over a long hole no rate is known."""
    times = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 200.0, 210.0])
    values = np.array([100.0, 200.0, 300.0, 50.0, 150.0, 900.0, 1000.0])
    at, rate = rates(times, values)

    assert at.tolist() == [10.0, 20.0, 30.0, 40.0, 210.0]
    assert rate.tolist() == [10.0, 10.0, 5.0, 10.0, 10.0]


def test_counters_become_rates_in_a_panel() -> None:
    """The panel of a counter holds increases a second."""
    panel = made(series([0.0, 50.0, 100.0, 150.0], counter=True))

    assert panel.values[panel.mask].tolist() == [5.0, 5.0, 5.0]


def test_an_exporters_copies_of_a_gpu_are_one_row() -> None:
    """A GPU that is exported once for each of its pods is not counted twice."""
    copies = [
        MetricSeries("gpu_util", Resource(node="n1", gpu="0", container=pod), [T0, T0 + 10], [40.0, 50.0])
        for pod in ("a", "b")
    ]

    assert made(*copies).values.tolist() == [[40.0, 50.0]]


def test_cells_hold_the_mean_of_their_points() -> None:
    """A wider step averages."""
    panel = made(series([2.0, 4.0, 6.0, 8.0]), step=20.0)

    assert panel.values.tolist() == [[3.0, 7.0]]


def test_a_step_finer_than_the_points_is_widened() -> None:
    """Points a minute apart do not make a panel of holes."""
    panel = made(series([1.0, 2.0, 3.0], times=[T0, T0 + 60, T0 + 120]), step=15.0)

    assert panel.step == 60.0
    assert panel.mask.all()


def test_the_window_bounds_the_points() -> None:
    """`start` belongs to the window, `end` does not."""
    panel = made(series([1.0, 2.0, 3.0, 4.0]), start=T0 + 10, end=T0 + 30)

    assert panel.values.tolist() == [[2.0, 3.0]]


def test_a_broken_time_does_not_make_a_huge_panel() -> None:
    """A point from another time is skipped and reported."""
    panel, gaps = panel_of([series([1.0, 2.0, 3.0, 4.0], times=[T0, T0 + 10, T0 + 20, 1e15])])

    assert panel is not None
    assert panel.values.shape == (1, 3)
    assert [gap.code for gap in gaps] == ["metric_times"]


def test_too_many_cells_widen_the_step() -> None:
    """Few points over two weeks do not make an array of seconds."""
    panel, gaps = panel_of([series([1.0, 2.0, 3.0, 4.0], times=[T0, T0 + 1, T0 + 2, T0 + 12 * 86400])])

    assert panel is not None
    assert panel.values.size <= MOST_CELLS
    assert [gap.code for gap in gaps] == ["metric_coarse"]


def test_nothing_known_gives_no_panel() -> None:
    """No points, no panel, but a gap."""
    panel, gaps = panel_of([series([math.nan, math.inf])])

    assert panel is None
    assert [gap.code for gap in gaps] == ["metric_empty"]


def test_each_metric_has_its_own_panel() -> None:
    """Series of several metrics are separated; a single panel of two metrics is refused."""
    other = MetricSeries("gpu_temp", Resource(node="n1", gpu="0"), [T0], [60.0], "C")
    panels, _ = panels_of([series([1.0]), other])

    assert sorted(panels) == ["gpu_temp", "gpu_util"]
    with pytest.raises(ValueError, match="one metric"):
        panel_of([series([1.0]), other])


def test_merged_panels_have_all_rows_and_times() -> None:
    """What one part knows the whole knows."""
    early, late = series([1.0, 2.0]), series([7.0], gpu="1", times=[T0 + 30])
    whole = merge(made(early, step=10.0), made(late, step=10.0))

    assert [row.resource.gpu for row in whole.rows] == ["0", "1"]
    assert whole.values[0, :2].tolist() == [1.0, 2.0]
    assert whole.values[1, 3] == 7.0
    assert int(whole.mask.sum()) == 3


POINTS = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 100)), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(POINTS, POINTS, POINTS)
def test_merging_does_not_depend_on_order(
    first: list[tuple[int, float]], second: list[tuple[int, float]], third: list[tuple[int, float]]
) -> None:
    """(a + b) + c is c + (b + a) for panels of one step."""
    a, b, c = (
        made(series([v for _, v in part], gpu=str(at % 2), times=[T0 + 10.0 * t for t, _ in part]), step=400.0)
        for at, part in enumerate((first, second, third))
    )
    one, other = merge(merge(a, b), c), merge(c, merge(b, a))

    np.testing.assert_array_equal(one.values, other.values)
    assert (one.rows, one.start) == (other.rows, other.start)


def test_panels_of_other_metrics_are_not_merged() -> None:
    """A temperature is not a utilisation."""
    one = made(series([1.0]))
    with pytest.raises(ValueError, match="not one panel"):
        merge(one, make_panel("gpu_temp", one.rows, one.start, one.step, one.values))


def test_resampling_averages_what_is_known() -> None:
    """Unknown cells do not count as 0 in wider cells; a wholly unknown one stays unknown."""
    panel = make_panel("m", [Row(Resource(rank=0))], 0.0, 10.0, np.array([[4.0, np.nan, np.nan, np.nan, 6.0, 8.0]]))
    wide = resampled(panel, 20.0)

    assert wide.mask.tolist() == [[True, False, True]]
    assert wide.values[wide.mask].tolist() == [4.0, 7.0]
    with pytest.raises(ValueError, match="finer"):
        resampled(panel, 5.0)


@pytest.mark.slow  # the other tests of the module
def test_ten_thousand_ranks_make_a_panel() -> None:
    """A large job's metric is one array."""
    several = [
        MetricSeries("step_time", Resource(rank=rank), [T0, T0 + 60, T0 + 120], [6.0, 6.1, 6.0])
        for rank in range(10_240)
    ]

    assert made(*several).values.shape == (10_240, 3)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.floats(), st.floats()), max_size=6),
            st.booleans(),
            st.sampled_from(["0", "x", "99999"]),
        ),
        max_size=4,
    )
)
def test_any_points_make_a_bounded_panel_or_none(parts: list[tuple[list[tuple[float, float]], bool, str]]) -> None:
    """Times and values of any size raise nothing, warn of nothing and never make a large array."""
    several = [
        series([v for _, v in points], times=[t for t, _ in points], gpu=gpu, counter=counter)
        for points, counter, gpu in parts
    ]
    panel, _ = panel_of(several)

    if panel is not None:
        assert panel.values.size <= MOST_CELLS
        assert np.isfinite(panel.values[panel.mask]).all()
        assert resampled(panel, 2 * panel.step).values.shape[0] == len(panel.rows)


def test_when_the_links_were_last_as_busy_as_usual() -> None:
    """The newest column in which the middle row carries half of what it mostly does; too little says nothing."""
    rows = [Row(Resource(rank=rank)) for rank in range(3)]
    busy = np.array([[8e9] * 4 + [0.0, 0.0, np.nan], [9e9] * 5 + [1e3, np.nan], [9e9] * 4 + [5e9, 1e3, np.nan]])
    assert last_at_usual(make_panel("rdma_tx", rows, 1000.0, 30.0, busy)) == pytest.approx(1120.0)
    assert last_at_usual(make_panel("rdma_tx", rows, 1000.0, 30.0, busy * 1e-6)) is None
    assert last_at_usual(make_panel("rdma_tx", rows, 1000.0, 30.0, busy * np.nan)) is None
