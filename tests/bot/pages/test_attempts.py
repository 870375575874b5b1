"""The attempts of a job on one time axis."""

from __future__ import annotations

from dataclasses import replace

from bot.pages.attempts import LEAST_BAR, attempt_rows
from kb.model import Attempt
from tests.support.bot_samples import FALLEN_GPU, NOON


def rows(*attempts: Attempt):
    """The rows of a report with these attempts."""
    return attempt_rows(replace(FALLEN_GPU, job=replace(FALLEN_GPU.job, attempts=attempts)))


def test_each_attempt_has_its_part_of_the_axis():
    """From the first time of all to the last: 10 hours, of which the first attempt waited one."""
    first = Attempt(0, "NODE_FAIL", queued=NOON, scheduled=NOON + 3600, stopped=NOON + 4 * 3600)
    second = Attempt(
        1, "FAILED", exit_code=1, queued=NOON + 4 * 3600, initialised=NOON + 5 * 3600, stopped=NOON + 36_000
    )

    one, two = rows(first, second)
    assert (one.queued, one.ran, one.style) == ((0.0, 10.0), (10.0, 30.0), "u9")
    assert (two.queued, two.ran, two.style, two.end) == ((40.0, 10.0), (50.0, 50.0), "s9", "FAILED, exit 1")


def test_a_short_attempt_is_seen():
    """Even one of a second, at the very end."""
    *_, last = rows(
        Attempt(0, "FAILED", scheduled=NOON, stopped=NOON + 86_400),
        Attempt(1, "COMPLETED", scheduled=NOON + 86_400, stopped=NOON + 86_401),
    )

    assert (last.ran, last.style) == ((100.0 - LEAST_BAR, LEAST_BAR), "well")


def test_there_are_no_bars_without_times():
    """One attempt, none with an end, or a clock that ran backwards."""
    alone = rows(Attempt(0, "FAILED", scheduled=NOON, stopped=NOON + 60))
    open_ended = rows(Attempt(0, scheduled=NOON), Attempt(1, scheduled=NOON + 60))
    backwards = rows(Attempt(0, scheduled=NOON + 60, stopped=NOON), Attempt(1, scheduled=NOON, stopped=NOON + 60))

    assert [row.ran for row in (*alone, *open_ended, backwards[0])] == [None] * 4
    assert open_ended[0].end == "unknown outcome"
    assert rows() == ()
