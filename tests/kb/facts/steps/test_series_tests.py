"""Series as rules ask of them: levels and changes, of iteration lines and of metrics, over steps and not over lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.facts.steps.series_tests import CHANGES, SHARE, Spot, look
from kb.metrics.panel import Panel, Row, make_panel
from kb.model import OWN, RESIZED, ProgressPoint, Resource, StreamRef
from kb.rulebase.checks import CHANGES as NAMED
from kb.rulebase.rule import MEASURED, SeriesTest
from kb.scanning.summary import Series, StageMark, StreamSummary

NAN = math.nan


def log(
    field: str,
    values: Sequence[float],
    *,
    every: int = 1,
    rank: int | None = None,
    form: str = "step_loss",
    marks: tuple[StageMark, ...] = (),
    **more: float,
) -> StreamSummary:
    """A log with one value a line, a line every so many steps, 6 s a step."""
    points = tuple(
        ProgressPoint(
            100 * at,
            every * at,
            time=1e9 + 6.0 * every * at,
            rank=rank,
            format=form,
            validation=form == OWN,
            **{field: value, **more},  # type: ignore[arg-type]
        )
        for at, value in enumerate(values, 1)
    )
    name = "logs/train.log" if rank is None else f"logs/rank-{rank}.log"
    return StreamSummary(StreamRef(name), size=10**6, series=Series(points, len(points)), marks=marks)


def spots(test: SeriesTest, *logs: StreamSummary, **panels: Panel) -> tuple[Spot, ...]:
    """What is found in logs and metrics."""
    return look(test, tuple(enumerate(logs)), panels)


def steps(test: SeriesTest, *logs: StreamSummary) -> list[int | None]:
    """The steps of the findings."""
    return [spot.step for spot in spots(test, *logs)]


# -- levels ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "values", "expected"),
    [
        (SeriesTest("loss", above=1000), [2.0, 3.0, 1500.0, 2.0], [3]),
        (SeriesTest("loss", above=1000), [2.0, 3.0, 1000.0], []),
        (SeriesTest("loss", above=1000, points=2), [2.0, 1500.0, 2.0, 1500.0, 1600.0], [4]),
        (SeriesTest("loss", above=1000, points=2), [2.0, 1500.0, NAN, 1600.0], [2]),  # what was not measured is no end
        (SeriesTest("loss", above=1000, at_end=True), [2.0, 1500.0, 2.0], []),
        (SeriesTest("loss", above=1000, at_end=True), [2.0, 1500.0, 1501.0], [2]),
        (SeriesTest("loss", above=1000, after=4), [9000.0, 9000.0, 2.0, 2.0, 2.0, 1500.0], [6]),
        (SeriesTest("throughput", below=0.7, of="mean", points=3), [100.0] * 8 + [65.0] * 3, [9]),
        (SeriesTest("throughput", below=0.7, of="mean", points=3), [100.0] * 8 + [65.0] * 2 + [100.0], []),
        (SeriesTest("throughput", below=0.7, of="median", points=2), [100.0] * 2 + [10.0] * 9, []),  # too little before
        (SeriesTest("input_size", above=1.5, of="max"), [10.0, 80.0, 10.0, 10.0, 10.0, 100.0, 151.0], [7]),
        (SeriesTest("loss", above=1000), [], []),
        (SeriesTest("step_time", above=1000), [2000.0], [1]),
    ],
)
def test_a_level_is_reported_where_it_begins(test: SeriesTest, values: list[float], expected: list[int]) -> None:
    """Above or below a number, or relative to its own earlier values, for as long as the rule requires."""
    assert steps(test, log(MEASURED[test.metric], values)) == expected


@pytest.mark.parametrize("every", [1, 5, 10, 50])
def test_windows_count_steps_whatever_is_logged(every: int) -> None:
    """A hundred steps are a hundred steps, in a line each or in two lines; seconds are those of the lines."""
    high = [2.0] * 6 + [9.0] * (100 // every)
    assert steps(SeriesTest("loss", above=5, steps=100), log("loss", high, every=every)) == [7 * every]
    assert steps(SeriesTest("loss", above=5, steps=101), log("loss", high, every=every)) == []
    assert steps(SeriesTest("loss", above=5, seconds=601), log("loss", high, every=every)) == []


def test_seconds_are_not_known_without_times() -> None:
    """A window of seconds holds over no lines that have none."""
    whole = log("loss", [9.0] * 20)
    bare = tuple(ProgressPoint(p.offset, p.step, loss=p.loss) for p in whole.series.points)
    assert steps(SeriesTest("loss", above=5, seconds=60), whole) == [1]
    assert steps(SeriesTest("loss", above=5, seconds=60), StreamSummary(StreamRef("x"), series=Series(bare))) == []


def test_points_unsorted_doubled_and_done_again() -> None:
    """Order does not count, and of several lines of a step the last one does."""
    one = log("loss", [2.0, 9.0, 9.0, 9.0]).series.points
    mixed = (one[3], one[0], one[2], one[1])
    again = (*one, *(ProgressPoint(9000 + p.offset, p.step, loss=2.0) for p in one))
    test = SeriesTest("loss", above=5, points=3)
    assert steps(test, StreamSummary(StreamRef("x"), series=Series(mixed))) == [2]
    assert steps(test, StreamSummary(StreamRef("x"), series=Series(again))) == []


def test_a_step_behind_an_evaluation_or_a_checkpoint_is_left_out() -> None:
    """The line after one holds its time."""
    values = [6.0] * 10 + [60.0] + [6.0] * 5
    marks = (StageMark(1050, "evaluating"),)
    assert steps(SeriesTest("step_time", above=30), log("seconds", values)) == [11]
    assert steps(SeriesTest("step_time", above=30), log("seconds", values, marks=marks)) == []


def test_a_rank_that_alone_is_so_is_named() -> None:
    """Of three or more ranks; what all show names none."""
    test = SeriesTest("compute_time", above=2, points=3)
    calm = [log("compute", [1.0] * 8, rank=rank, form=OWN) for rank in range(4)]
    odd = log("compute", [3.0] * 8, rank=7, form=OWN)
    (found,) = spots(test, *calm, odd)
    assert (found.resource, found.stream, found.text) == (
        Resource(rank=7),
        4,
        "rank 7: compute_time is 3, above 2, from step 1 on",
    )
    both = spots(test, *(log("compute", [3.0] * 8, rank=rank, form=OWN) for rank in range(9)))
    assert [spot.resource for spot in both] == [Resource()] * 4


# -- changes ---------------------------------------------------------------------------------------------------------------


def test_the_changes_that_rules_may_name_are_those_there_are() -> None:
    """The checker of rules knows the same ones."""
    assert set(NAMED) == set(CHANGES)


def rates(level: float, count: int, seed: int = 3) -> list[float]:
    """Values about a level, by a hundredth."""
    return list(level * (1 + 0.01 * np.random.default_rng(seed).standard_normal(count)))


@pytest.mark.parametrize(
    ("test", "values", "expected"),
    [
        (SeriesTest("throughput", "drop"), rates(100, 30) + rates(60, 12), [31]),
        (SeriesTest("throughput", "drop", params={"share": 0.5}), rates(100, 30) + rates(60, 12), []),
        (SeriesTest("throughput", "drop"), rates(100, 30) + rates(60, 4) + rates(100, 30), []),  # it got over it
        (SeriesTest("loss", "broken"), [2.5] * 40 + [5000.0] * 4, [41]),
        (SeriesTest("loss", "broken"), [2.5] * 40 + [5000.0, *[2.5] * 20], []),
        (SeriesTest("loss", "broken"), [2.5] * 40 + [5000.0, NAN, NAN], []),  # that it is none says more
        (SeriesTest("loss", "broken"), [2.5] * 60 + [2.9, 3.4] * 8, [61]),
        (SeriesTest("loss", "broken"), [2.5] * 60 + [2.9, 3.4] * 3, []),  # they may come back
        (SeriesTest("loss", "broken"), [2.5] * 60 + [2.54, 2.58] * 8, []),  # too little
        (SeriesTest("loss", "broken"), [0.0002] * 60 + [0.0006, 0.0009] * 8, []),  # as good as zero
        (SeriesTest("loss", "not_finite"), [2.5] * 40 + [NAN, NAN], [41]),
        (SeriesTest("loss", "not_finite"), [2.5] * 40, []),
        (SeriesTest("grad_norm", "jump"), [1.0] * 40 + [9.0] * 4, [41]),
        (SeriesTest("grad_norm", "jump"), [1.0] * 40 + [9.0] * 4 + [NAN] * 3, []),  # its numbers overflowed
        (SeriesTest("grad_norm", "jump", params={"times": 10}), [1.0] * 40 + [9.0] * 4, []),
        (SeriesTest("step_time", "slower"), rates(6, 300) + rates(6.6, 40), [301]),
        (SeriesTest("step_time", "decline"), [6 + 0.002 * at for at in range(600)], [164]),
        (SeriesTest("throughput", "decline"), [60 + 0.02 * at for at in range(600)], []),
        (SeriesTest("learning_rate", "off_schedule"), [1e-3 - 1e-5 * at for at in range(50)] + [5e-4] * 60, [51]),
    ],
)
def test_a_change_is_reported_where_it_begins(test: SeriesTest, values: list[float], expected: list[int]) -> None:
    """Each kind of kb.metrics.change_points, with the rule's numbers."""
    found = steps(test, log(MEASURED[test.metric], values))
    assert len(found) == len(expected)
    assert all(abs((step or 0) - wanted) <= 12 for step, wanted in zip(found, expected, strict=True))


def test_longer_steps_that_do_more_work_are_no_slow_down() -> None:
    """By the rate of the same lines, or by a line that says that steps are larger from there on."""
    values = rates(6, 300) + rates(9, 60)
    test = SeriesTest("step_time", "slower")
    assert len(steps(test, log("seconds", values))) == 1
    assert steps(test, log("seconds", values, throughput=4000.0)) == []
    points = log("seconds", values).series.points
    sized = (*points[:300], ProgressPoint(30_050, format=RESIZED, validation=True), *points[300:])
    assert steps(test, StreamSummary(StreamRef("x"), series=Series(sized))) == []


def test_bars_of_another_length_are_not_compared() -> None:
    """An evaluation bar between training steps has its own pace; longer steps of the same bar are still reported."""
    test = SeriesTest("step_time", "slower")
    slow = rates(6, 300) + rates(9, 60)
    bars = [
        ProgressPoint(100 * at, step=at, total=400 if seconds > 1 else 360, seconds=seconds, format="tqdm")
        for at, seconds in enumerate([0.4] * 300 + rates(9, 60))
    ]
    assert steps(test, StreamSummary(StreamRef("x"), series=Series(tuple(bars)))) == []
    alone = [replace(point, total=400, seconds=slow[at]) for at, point in enumerate(bars)]
    assert len(steps(test, StreamSummary(StreamRef("x"), series=Series(tuple(alone))))) == 1


def test_memory_of_one_rank_is_reported_sooner_than_that_of_all() -> None:
    """A few points tell a leak only where the other ranks show none; many do by themselves."""
    test = SeriesTest("memory", "growth")
    grows, level = [5e8 * at for at in range(2, 10)], [1e9] * 8
    calm = [log("memory", level, every=10, rank=rank, form=OWN) for rank in range(3)]
    assert [spot.resource.rank for spot in spots(test, *calm, log("memory", grows, every=8, rank=3, form=OWN))] == [3]
    assert spots(test, *(log("memory", grows, every=8, rank=rank, form=OWN) for rank in range(4))) == ()
    assert len(steps(test, log("memory", [5e8 * at for at in range(2, 40)], every=8))) == 1


# -- metrics ---------------------------------------------------------------------------------------------------------------

ROWS = [Row(Resource(node="node-a", gpu=str(at))) for at in range(4)]


def panel(metric: str, values: np.ndarray, start: float = 1e9) -> Panel:
    """A metric of four GPUs, a value every 30 s."""
    return make_panel(metric, ROWS, start, 30.0, values)


def test_a_metric_names_its_row_and_its_steps() -> None:
    """By the times of the run's own lines; where there are none, columns count."""
    values = np.full((4, 40), 50.0)
    values[2, 20:] = 99.0
    test = SeriesTest("gpu_util", above=98, steps=5)
    timed = [(1e9 + 6.0 * step, step) for step in range(1, 200)]
    (found,) = look(test, (), {"gpu_util": panel("gpu_util", values)}, timed)
    assert (found.stream, found.resource, found.captures["since"]) == (None, ROWS[2].resource, "100")
    (found,) = look(test, (), {"gpu_util": panel("gpu_util", values)})
    assert (found.captures["since"], found.time) == ("20", 1e9 + 600)


def test_the_share_of_gpu_memory_needs_both_of_its_parts() -> None:
    """Used and free on one grid; where one was not measured there is none."""
    used, free = np.full((4, 30), 50e9), np.full((4, 30), 30e9)
    used[1], free[1] = 79.5e9, 0.5e9
    used[3, :] = NAN
    test = SeriesTest(SHARE, above=98, points=5)
    both = {"gpu_memory": panel("gpu_memory", used), "gpu_memory_free": panel("gpu_memory_free", free)}
    assert [item.resource for item in look(test, (), both)] == [ROWS[1].resource]
    assert look(test, (), {"gpu_memory": both["gpu_memory"]}) == ()
    other = {**both, "gpu_memory_free": panel("gpu_memory_free", free, 1e9 + 30)}
    assert look(test, (), other) == ()


@pytest.mark.parametrize("values", [np.full((4, 0), 1.0), np.full((4, 9), NAN), np.zeros((4, 9))])
def test_metrics_of_nothing_are_no_finding(values: np.ndarray) -> None:
    """No columns, nothing measured, all zero."""
    for change in CHANGES:
        assert look(SeriesTest("loss", change), (), {"loss": panel("loss", values)}) == ()


def test_clocks_that_stand_still_or_run_back_give_columns() -> None:
    """These times cannot delimit steps."""
    values = np.full((4, 40), 99.0)
    for timed in ([(1e9, 1), (1e9, 2)], [(1e9, 9), (1e9 + 60, 2)], [(1e9, 1)]):
        (found, *_) = look(SeriesTest("gpu_util", above=98), (), {"gpu_util": panel("gpu_util", values)}, timed)
        assert found.captures["since"] == "0"


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.floats(width=64) | st.sampled_from([0.0, NAN, math.inf, 1e308]), max_size=60),
    st.lists(st.integers(-5, 10**19), max_size=60),
)
def test_any_numbers_are_looked_at_without_an_exception(values: list[float], at: list[int]) -> None:
    """Lines may contain any numbers in any order."""
    points = tuple(
        ProgressPoint(100 * n, step, loss=value) for n, (value, step) in enumerate(zip(values, at, strict=False))
    )
    stream = StreamSummary(StreamRef("x"), series=Series(points, len(points)))
    tests = [SeriesTest("loss", change) for change in CHANGES]
    tests += [SeriesTest("loss", above=2, of=of, points=2) for of in ("value", "mean", "median", "max")]
    assert all(len(look(test, ((0, stream),), {})) <= 4 for test in tests)
