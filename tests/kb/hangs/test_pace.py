"""What a job's own logs teach of its pace and of its pauses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.log.stream_facts import StreamFacts
from kb.hangs.pace import Lateness, has_begun, long_step, pace_of, pauses, usual_gap
from kb.model import Job, ProgressPoint, Resource, StreamRef
from kb.scanning.summary import Series, StageMark, StreamSummary

START = 1_790_000_000.0


def log(points: list[ProgressPoint], *marks: tuple[int, str]) -> list[StreamFacts]:
    """One log with these iteration lines and marks of stages (byte, stage)."""
    series = Series(tuple(points), len(points), 0, points[0], points[-1])
    places = tuple(StageMark(at, stage) for at, stage in marks)  # type: ignore[arg-type]
    one = StreamSummary(StreamRef("logs/rank-0.log", Resource(rank=0)), 100_000, series=series, marks=places)
    return Facts(Evidence(Job(), streams=(one,))).streams


def points(times: list[float]) -> list[ProgressPoint]:
    """An iteration line at each time (seconds from START), a hundred bytes each."""
    return [ProgressPoint(100 * at, at, None, START + when) for at, when in enumerate(times, 1)]


def steady(count: int, every: float = 2.0, begin: float = 0.0) -> list[float]:
    """Times of steps."""
    return [begin + every * at for at in range(count)]


def test_the_usual_gap_is_that_of_neighbouring_lines() -> None:
    """Too few lines say nothing; resumed steps, lines without step and times that are none do no harm."""
    assert usual_gap(log(points(steady(50)))) == pytest.approx(2.0)
    assert usual_gap(log(points(steady(8)))) is None
    odd = [
        ProgressPoint(5001, None, None, START),
        ProgressPoint(5002, 7, None, None),
        ProgressPoint(5003, 3, None, math.nan),
    ]
    assert usual_gap(log([*points(steady(50)), *odd])) == pytest.approx(2.0)


def test_lines_that_come_seldom_show_their_pace_though_they_are_few() -> None:
    """Three lines, minutes apart: the longest gap counts; not so three lines of quick steps, nor two lines."""
    assert usual_gap(log(points([0.0, 200.0, 420.0]))) == pytest.approx(220.0)
    assert usual_gap(log(points([0.0, 2.0, 220.0]))) is None
    assert usual_gap(log(points([0.0, 200.0]))) is None


def test_what_lies_between_lines_in_a_phase_is_no_gap_between_steps() -> None:
    """A logged evaluation of 400 s does not change the usual gap; an unlogged one does."""
    times = [*steady(20), *steady(20, begin=440.0)]
    assert usual_gap(log(points(times), (2050, "evaluating"))) == pytest.approx(2.0)
    assert usual_gap(log(points(times))) == pytest.approx(402.0)


def test_a_phase_seen_alone_is_not_judged_by_a_pause_with_two() -> None:
    """A checkpoint of 10 s that once came right behind an evaluation of 300 s still takes 10 s."""
    times = [*steady(10), *steady(10, begin=30.0), *steady(10, begin=360.0)]
    found = pauses(log(points(times), (1050, "saving"), (2020, "evaluating"), (2050, "saving")))
    assert {name: round(seconds) for name, seconds in found.items()} == {"": 0, "saving": 10, "evaluating": 310}


def test_the_pace_is_that_of_the_newest_lines() -> None:
    """Seconds per step, for any logging interval; of a few lines the longest, of one line none."""
    tens = [replace(point, step=10 * (point.step or 0)) for point in points(steady(20, 30.0))]
    assert pace_of(log(tens)) == pytest.approx(3.0)
    assert pace_of(log(points([0.0, 2.0, 9.0]))) == pytest.approx(7.0)
    assert pace_of(log(points([0.0]))) is None


def test_a_long_step_is_one_that_one_of_ten_exceeds() -> None:
    """A few slow steps among many are normal; the time in a phase is not a step, and a few lines are not enough."""
    times = [0.0]
    for at in range(1, 40):
        times.append(times[-1] + (5.0 if at % 5 == 0 else 2.0))
    assert long_step(log(points(times))) == pytest.approx(5.0)
    assert long_step(log(points([*steady(20), *steady(20, begin=440.0)]), (2050, "evaluating"))) == pytest.approx(2.0)
    assert long_step(log(points(steady(4)))) is None


def test_a_job_is_under_way_after_some_steps() -> None:
    """With times or without."""
    untimed = [replace(point, time=None) for point in points(steady(4))]
    assert has_begun(log(untimed))
    assert not has_begun(log(untimed[:3]))


def test_lines_that_come_in_blocks_are_late() -> None:
    """A block counts from its first line; lines that were there at the first look are ignored."""
    late = Lateness()
    assert late.seen(log(points(steady(10))), START + 900.0) == pytest.approx(0.0)
    assert late.seen(log(points(steady(10))), START + 920.0) == pytest.approx(0.0)
    assert late.seen(log(points(steady(500))), START + 1000.0) == pytest.approx(900.0)
    assert late.seen(log(points(steady(501))), START + 1004.0) == pytest.approx(900.0)


def test_the_first_block_of_a_job_counts_too() -> None:
    """Who looked before the first line came knows how late it is."""
    late = Lateness()
    late.seen([], START)
    assert late.seen(log(points(steady(100, begin=20.0))), START + 300.0) == pytest.approx(0.0)
    late = Lateness()
    late.seen([], START + 290.0)
    assert late.seen(log(points(steady(100, begin=20.0))), START + 300.0) == pytest.approx(270.0)
