"""The step lines of a run: of too many, those of the source that shows the job's course, and the edges of the others."""

from __future__ import annotations

from kb.anomalies.core import step_lines
from kb.anomalies.core.step_lines import beats, over_epochs
from kb.model import ProgressPoint, Resource, StreamRef
from kb.scanning.summary import Series, StreamSummary


def _summary(rank: int, steps: int, loss: float | None) -> StreamSummary:
    points = tuple(ProgressPoint(10 * step, step, loss=loss, rank=rank) for step in range(steps))
    return StreamSummary(StreamRef(f"rank-{rank}.log", Resource(rank=rank)), series=Series(points))


def test_too_many_step_lines_are_thinned_in_all_sources_but_one(monkeypatch):
    """No source is left out, and the one with losses keeps each of its lines."""
    summaries = [_summary(rank, 100 + rank % 2, 2.5 if rank == 3 else None) for rank in range(8)]
    whole = beats(summaries, frozenset())
    assert len(whole) == sum(len(summary.series.points) for summary in summaries)
    monkeypatch.setattr(step_lines, "MOST_BEATS", 320)
    found: dict[int | None, list[int]] = {}
    for beat in beats(summaries, frozenset()):
        found.setdefault(beat.spot.rank, []).append(beat.step)
    assert set(found) == set(range(8))
    assert found.pop(3) == list(range(101))
    for rank, steps in found.items():
        assert steps == [*range(10), *range(70 + rank % 2, 100 + rank % 2)]


def test_a_bar_that_starts_over_with_each_epoch_counts_on() -> None:
    """The epoch is named and each has as many steps; a run that was resumed in a later epoch, and one counter for all of them, are left."""

    def told(*bars: tuple[int, int], total: int = 40) -> list[int | None]:
        points = [ProgressPoint(at, step, total=total, epoch=float(epoch)) for at, (epoch, step) in enumerate(bars)]
        return [point.step for point in over_epochs(points)]

    assert told((0, 20), (0, 40), (1, 20), (1, 40), (2, 5)) == [20, 40, 60, 80, 85]
    assert told((1, 20), (1, 40), (2, 20)) == [20, 40, 60]
    assert told((7, 20), (7, 40), (8, 20)) == [20, 40, 20]
    assert told((0, 20), (0, 40), (1, 60), (1, 80), total=80) == [20, 40, 60, 80]
