"""Durations that are the time since the start."""

from __future__ import annotations

from kb.facts.steps.elapsed_times import without_elapsed
from kb.model import ProgressPoint
from kb.scanning.summary import Series


def bars(epochs: int, *, runs_on: bool, slower: float = 1.0) -> Series:
    """The bars of epochs of 100 steps of 2 seconds, drawn at 50 and 100; `runs_on`: their clock is not set back."""
    points = []
    for epoch in range(epochs):
        for step in (50, 100):
            seconds = 2.0 * slower**epoch
            mean = (200.0 * epoch + 2.0 * step) / step if runs_on else seconds
            points.append(ProgressPoint(len(points) * 90, step=step, total=100, seconds=mean, format="tqdm"))
    return Series(points=tuple(points))


def test_a_bar_whose_clock_runs_on_over_epochs_gives_no_time_of_a_step() -> None:
    """Its mean grows with each epoch, although the steps take as long as before."""
    series = without_elapsed(bars(6, runs_on=True), "tqdm")
    assert all(point.seconds is None for point in series.points)


def test_bars_that_begin_again_with_their_clock_keep_their_times() -> None:
    """Also where the steps become slower."""
    assert without_elapsed(bars(6, runs_on=False), "tqdm") == bars(6, runs_on=False)
    assert without_elapsed(bars(6, runs_on=False, slower=1.5), "tqdm") == bars(6, runs_on=False, slower=1.5)
    assert without_elapsed(bars(3, runs_on=True), "tqdm") == bars(3, runs_on=True)  # too few to tell


def lines(values: list[float]) -> Series:
    """Step lines with one time each."""
    return Series(points=tuple(ProgressPoint(90 * n, step=n, seconds=v, format="json") for n, v in enumerate(values)))


def test_whole_seconds_since_the_start_may_be_equal_on_several_lines() -> None:
    """They never fall; the times of steps that become slower once stay about their new level."""
    elapsed = lines([float(at // 2) for at in range(8, 60)])
    assert all(point.seconds is None for point in without_elapsed(elapsed, "tqdm").points)
    for kept in (
        [4.0] * 12 + [20.0] * 14,
        [float(at % 7 + 1) for at in range(40)],
        [float(at // 2) for at in range(8, 24)],
    ):
        assert without_elapsed(lines(kept), "tqdm") == lines(kept)
