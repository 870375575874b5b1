"""A learning rate that differs from the warm-up on the command line."""

from __future__ import annotations

import pytest

from kb.hangs.warmup import stuck_warm_up, warm_up_of
from kb.model import ProgressPoint


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--lr 1e-3 --lr-warmup-iters 2000 --train-iters 9000", 2000),
        ("--warmup_steps=500", 500),
        ("train.py --warmup 80 --log-interval 2", 80),
        ("optimizer.lr=1e-3 lr_scheduler.warmup_steps=300", 300),
        ("--num-warmup-steps 40", 40),
        ("--lr-warmup-fraction 0.01", None),
        ("--warmup-ratio 0.03", None),
        ("--warmup 0.1", None),
        ("--warmup-steps 10 --lr-warmup-iters 20", None),
        ("--lr-warmup-samples 5000", None),
        ("", None),
        (None, None),
    ],
)
def test_the_warm_up_of_a_command_line(args: str | None, expected: int | None) -> None:
    """Steps alone, in the spellings of the usual programs; shares, samples and contradictions say nothing."""
    assert warm_up_of(args) == expected


def points(stop: int, *, count: int = 60, every: int = 10, first: int = 1, rise: float = 1e-6) -> list[ProgressPoint]:
    """A rate that rises up to a step and then stays."""
    steps = [every * at for at in range(first, first + count)]
    return [ProgressPoint(100 * at, step, learning_rate=rise * min(step, stop)) for at, step in enumerate(steps)]


def test_a_warm_up_that_stops_half_way() -> None:
    """The first step at which the rate no longer rises."""
    found = stuck_warm_up(points(200), 500)
    assert found is not None
    assert found.text == "the learning rate stays at 0.0002 from step 200 on, during a warm-up of 500 steps"


@pytest.mark.parametrize(
    ("made", "planned"),
    [
        (points(500), 500),
        (points(480), 500),  # it ends a line before
        (points(200), 200),
        (points(200), None),
        (points(10**6), 500),  # it still rises
        (points(200, count=22), 500),  # it has just stopped
        (points(200, first=40), 500),  # a run that went on
        (points(0), 500),
        (points(200, every=0), 500),
        ([], 500),
    ],
)
def test_warm_ups_as_planned_or_unknown(made: list[ProgressPoint], planned: int | None) -> None:
    """Up to the end, unknown, resumed, and too short."""
    assert stuck_warm_up(made, planned) is None
