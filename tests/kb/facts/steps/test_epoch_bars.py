"""Bars that count epochs are no steps."""

from __future__ import annotations

import pytest

from kb.facts.steps.epoch_bars import without_epoch_bars
from kb.model import ProgressPoint
from kb.scanning.summary import Series


def bars_of(steps: str, total: int = 4) -> list[ProgressPoint]:
    """The bars that are left of a log in whose course digits are updates of a bar, and letters the lines of epochs 0 to 25."""
    points = [
        ProgressPoint(at, step=int(sign), total=total, format="tqdm")
        if sign.isdigit()
        else ProgressPoint(at, step=None, loss=1.0, epoch=float(ord(sign) - ord("a")), format="epoch_loss")
        for at, sign in enumerate(steps)
    ]
    series = Series(points=tuple(points), first=points[0], last=points[-1])
    return [point for point in without_epoch_bars(series, "tqdm").points if point.format == "tqdm"]


@pytest.mark.parametrize("course", ["01a2b", "0a1b2c", "1a", "0abcd", "0123401abcd"])
def test_a_bar_that_moves_with_the_epochs_or_has_as_many_steps_counts_them(course: str) -> None:
    """Its last step is no iteration."""
    assert bars_of(course) == []


@pytest.mark.parametrize("course", ["0123a", "01a3b", "0a", "01a2b3c4d4", "012", "0abc", "1c"])
def test_other_bars_are_kept(course: str) -> None:
    """Those that move between epochs, that are complete at the end, or beside which too few epochs are told."""
    assert bars_of(course)
