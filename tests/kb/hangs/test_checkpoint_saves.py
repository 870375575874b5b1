"""A checkpoint compared with the job's earlier ones."""

from __future__ import annotations

import pytest

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.hangs.checkpoint_saves import longest_save, slow_save, time_saving
from kb.model import Job, ProgressPoint, Resource, StreamRef, Structure
from kb.scanning.summary import Series, StreamSummary

START = 1_790_000_000.0


def run(pause: float, *, saves: int = 4, ended: bool = False, timed: bool = True) -> tuple[Facts, float]:
    """Ten steps of 2 s from save to save, and the time of the last step; the last save has no end."""
    points, marks, time = [], [], START
    for step in range(1, 10 * saves + 1):
        time += 2.0 + (pause if step > 10 and step % 10 == 1 else 0.0)
        points.append(ProgressPoint(100 * step, step, time=time if timed else None, loss=2.0))
        if step % 10 == 0:
            marks.append(
                Structure("checkpoint", 200 * step, 200 * step + 9, "", {"event": "save_begin", "iteration": step})
            )
            if step < 10 * saves or ended:
                marks.append(
                    Structure(
                        "checkpoint", 200 * step + 50, 200 * step + 60, "", {"event": "save_end", "iteration": step}
                    )
                )
    writer = StreamSummary(StreamRef("logs/rank-0.log", Resource(node="node-a", rank=0)), structures=tuple(marks))
    teller = StreamSummary(StreamRef("logs/rank-3.log"), series=Series(tuple(points), len(points)))
    return Facts(Evidence(Job(), streams=(writer, teller))), time


def test_a_save_of_many_times_the_usual_is_reported() -> None:
    """By the steps around the earlier ones, with the rank that writes."""
    facts, last = run(3.0)
    found = slow_save(facts, last + 130)
    assert found is not None
    assert (found.step, found.longest, found.earlier, found.resource) == (40, 3.0, 3, Resource(node="node-a", rank=0))
    assert found.text == "the checkpoint of step 40 has been writing for 130 s; the 3 before it took at most 3.0 s"


@pytest.mark.parametrize(
    ("made", "after"),
    [
        (run(3.0), 50.0),  # a minute is normal
        (run(10.0), 130.0),  # so is a few times as long
        (run(3.0, saves=2), 130.0),  # one earlier save is too few
        (run(3.0, ended=True), 130.0),
        (run(3.0, timed=False), 130.0),
    ],
)
def test_saves_that_may_take_that_long(made: tuple[Facts, float], after: float) -> None:
    """Shorter, as before, the second one, over, or of a run without times."""
    facts, last = made
    assert slow_save(facts, last + after) is None
    assert slow_save(facts, None) is None


def test_the_longest_save_is_reported_by_two_logs() -> None:
    """One log mentions saves, another one steps; a single earlier save is too few."""
    assert longest_save(run(30.0)[0]) == pytest.approx(30.0)
    assert longest_save(run(30.0, saves=2)[0]) is None
    assert longest_save(run(30.0, timed=False)[0]) is None


def test_the_time_spent_saving_is_what_the_steps_waited() -> None:
    """Of the saves that ended and were followed by steps; unknown if no log mentions saves, or has times."""
    facts, _ = run(3.0)
    assert time_saving(facts.evidence) == pytest.approx(9.0)
    assert time_saving(run(3.0, timed=False)[0].evidence) is None
    assert time_saving(Evidence(Job())) is None
