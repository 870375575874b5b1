"""What is kept of each stream: the usual amount of up to a few hundred, and less of each of ten thousand."""

from __future__ import annotations

from kb.model import ProgressPoint
from kb.scanning.limits import ALL_POINTS, ALL_TEXT, WHOLE, limits_for
from kb.scanning.summary import series_of


def test_few_streams_keep_all_that_one_may() -> None:
    """A usual job's summaries do not depend on how many others there are."""
    assert limits_for(0) == limits_for(1) == limits_for(256) == WHOLE


def test_ten_thousand_streams_keep_a_bounded_amount() -> None:
    """Together hardly more than the limit of all, and each enough for its last steps."""
    many = limits_for(10_000)
    assert 10_000 * many.points <= 1.3 * ALL_POINTS
    assert 10_000 * many.text <= ALL_TEXT
    assert 0 < many.last_points <= many.points < WHOLE.points


def test_a_series_keeps_as_many_points_as_it_may() -> None:
    """The first, a sample, and the last ones."""
    points = [ProgressPoint(7 * step, step) for step in range(1, 600)]
    series = series_of(points, len(points), 0, most=32, last=16)
    assert 16 < len(series.points) <= 1 + 32 + 16
    assert (series.first, series.last) == (points[0], points[-1])
    assert series.points[-16:] == tuple(points[-16:])
    assert series_of(points, len(points), 0).points == tuple(points)
