"""A run compared with its own past: its steps, where they changed, whether it is stuck (kb.anomalies.time.change_step)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kb.anomalies.core.run import LineRef, RunProfile, StepLine
from kb.anomalies.time.change_step import StepCourse, changes, course_of, is_stalled, step_named, step_of


def beat(
    step: int, time: float, *, seconds: float | None = None, loss: float | None = None, rate: float | None = None
) -> StepLine:
    """A step line of the first node."""
    return StepLine(LineRef("n0.log", int(time * 10), "", None, time, "n0"), step, seconds, loss, rate=rate)


def steps_of(*seconds: float) -> StepCourse:
    """The course of a run whose steps take so long each."""
    now, beats = 0.0, []
    for step, each in enumerate(seconds, 1):
        now += each
        beats.append(beat(step, now, seconds=each))
    return course_of(RunProfile({}, beats=tuple(beats)), {})


def test_a_lasting_slowdown_is_reported_with_its_step() -> None:
    """Thirty steps of a second, then twenty of two."""
    (found,) = changes(steps_of(*[1.0] * 30, *[2.0] * 20))
    assert (found.step, found.why, found.told) == (31, "slower", "steps take 2 s from here on, 1 s before")


@pytest.mark.parametrize("every", [5, 10])
def test_evaluations_and_checkpoints_that_come_again_turn_nothing(every: int) -> None:
    """Long steps at intervals, and slow first ones, are the run's own way."""
    seconds = [9.0 if step % every == 0 else 6.0 if step < 3 else 1.0 for step in range(1, 60)]
    assert changes(steps_of(*seconds)) == ()


def test_lengths_that_change_turn_nothing_but_hide_no_lasting_slowdown() -> None:
    """Steps that vary by half hide single slow ones; if all become longer by half, the change is reported."""
    varying = [1.0 + 0.5 * ((7 * i) % 11) / 11 for i in range(60)]
    assert changes(steps_of(*varying)) == ()
    (found,) = changes(steps_of(*varying[:40], *[1.6 * item for item in varying]))
    assert abs(found.step - 41) <= 2


def test_rates_stand_in_for_seconds_and_are_never_mixed_with_them() -> None:
    """A rate in units per second shows slower steps; a line with both rate and duration is read by its duration."""
    beats = [beat(i, float(i), rate=100.0 if i < 30 else 40.0) for i in range(1, 60)]
    (found,) = changes(course_of(RunProfile({}, beats=tuple(beats)), {}))
    assert (found.step, found.told) == (30, "steps take 2.5 times as long from here on")
    both = [beat(i, float(i), seconds=1.0 if i > 30 else None, rate=9.0) for i in range(1, 60)]
    assert changes(course_of(RunProfile({}, beats=tuple(both)), {})) == ()


def test_lines_of_one_step_are_one() -> None:
    """What several lines say of a step is put together."""
    beats = (beat(1, 1.0, rate=5.0), beat(1, 1.1, loss=2.5), beat(2, 2.0, seconds=1.0))
    found = course_of(RunProfile({}, beats=beats), {}).beats
    assert [(step_line.step, step_line.seconds, step_line.loss, step_line.rate) for step_line in found] == [
        (1, None, 2.5, 5.0),
        (2, 1.0, None, None),
    ]


def test_a_bar_that_counts_anew_is_set_right_by_the_ranks_own_steps() -> None:
    """A resumed run's bar begins at one; its ranks say at which step they are."""
    beats = tuple(beat(i, 10.0 * i) for i in range(1, 31))
    anchors = tuple(beat(4000 + i, 10.0 * i + 1) for i in range(5, 31, 5))
    assert course_of(RunProfile({}, beats=beats, anchors=anchors), {}).beats[-1].step == 4030
    near = tuple(beat(i + 2, 10.0 * i + 1) for i in range(5, 31, 5))
    assert course_of(RunProfile({}, beats=beats, anchors=near), {}).beats[-1].step == 30


def test_a_step_that_the_line_names_itself_counts_if_it_is_not_a_past_one() -> None:
    """An exception says at which iteration it was raised."""
    course = steps_of(*[1.0] * 30)
    assert step_named("RuntimeError: rank 3, iteration 35: result is nan", course) == 35
    assert step_named("RuntimeError: checkpoint of step 12 is broken", course) is None
    assert step_named("RuntimeError: out of memory", course) is None
    assert step_named("slurmstepd: error: *** STEP 9001.0 ON c7 CANCELLED", course) is None
    assert step_named("srun: error: step 9001.batch was ended", course) is None
    assert step_named("it broke at step 41. No more is known", course) == 41


def test_the_step_of_a_line_is_the_last_that_its_speaker_printed() -> None:
    """If it printed none, the last of anybody; nothing is known before the first, and in another log."""
    lines = [StepLine(LineRef("all.log", 10 * at, rank=at % 2), 5 * at) for at in range(1, 7)]
    run = RunProfile({}, beats=tuple(lines[:2]), counted=tuple(lines[2:]))
    assert step_of(run, LineRef("all.log", 45, rank=1)) == 15
    assert step_of(run, LineRef("all.log", 40, rank=0)) == 20
    assert step_of(run, LineRef("all.log", 5, rank=1)) is None
    assert step_of(run, LineRef("all.log", 45, rank=3)) == 20
    assert step_of(run, LineRef("other.log", 45, rank=1)) is None


def test_a_line_that_counts_steps_tells_its_own() -> None:
    """Between the first and the last lines that count, none is kept; a line in other words tells nothing."""
    lines = [
        StepLine(LineRef("all.log", 10 * at, f"tier 2 furlong {at} sap 0.{at}", rank=0), at) for at in (1, 2, 50, 51)
    ]
    run = RunProfile({}, beats=tuple(lines[-1:]), counted=tuple(lines))
    assert step_of(run, LineRef("all.log", 300, "tier 2 furlong 30 sap 9.5", rank=1)) == 30
    assert step_of(run, LineRef("all.log", 300, "tier 2 brim 30 sap 9.5", rank=0)) == 2


def test_a_run_stands_when_lines_go_on_long_after_the_last_step() -> None:
    """Longer than its longest pause, and not just a while."""
    course = steps_of(*[10.0] * 20, 200.0, *[10.0] * 10)
    assert not is_stalled(course, 500.0 + 590.0)
    assert is_stalled(course, 500.0 + 700.0)
    assert not is_stalled(steps_of(), 1e6)


def test_a_loss_that_is_no_number_is_reported_at_once() -> None:
    """The first step whose loss is not finite."""
    beats = tuple(beat(i, float(i), loss=math.nan if i >= 20 else 2.0) for i in range(1, 31))
    assert [change.step for change in changes(course_of(RunProfile({}, beats=beats), {}))] == [20]


def clocked(times: list[float]) -> StepCourse:
    """The course of a run whose step lines state nothing but their time."""
    beats = [
        replace(one := beat(step, time), spot=replace(one.spot, offset=step)) for step, time in enumerate(times, 1)
    ]
    return course_of(RunProfile({}, beats=tuple(beats)), {})


def test_clocks_without_fractions_show_only_much_slower_steps() -> None:
    """Several lines share a second; where each step takes a second or none, a third more is chance."""
    fast = [float(number // 5) for number in range(30)]
    much = [6.0 + 2.0 * number for number in range(30)]
    some = [6.0 + float(number // 3) for number in range(30)]
    assert [change.why for change in changes(clocked(fast + much))] == ["slower"]
    assert changes(clocked(fast + some)) == ()


def test_a_loss_turns_where_it_begins_to_rise() -> None:
    """Not where it is far above all that came before; a value that is no higher than those before it is none of the rise."""
    losses = [2.0 - 0.1 * step for step in range(15)] + [0.62, 0.75, 0.97, 2.95, 5.2, 9.1, 10.9]
    beats = tuple(beat(step, float(step), loss=loss) for step, loss in enumerate(losses, 1))
    (change,) = changes(course_of(RunProfile({}, beats=beats), {}))
    assert change.step == 17
    assert change.beats[0].loss == 0.75
