"""How far an estimated step of a failure can be true."""

from __future__ import annotations

import pytest

from kb.anomalies.time.failed_step import ESTIMATED, LAST_LOGGED, TURNED, bounded
from kb.report import Indicator, Progress


@pytest.mark.parametrize(
    ("step", "progress", "stage", "told"),
    [
        (46, Progress(45, total_iterations=45), "iterating", ("45", LAST_LOGGED)),
        (44, Progress(40, total_iterations=45), "iterating", ("44", ESTIMATED)),
        (50, Progress(40, total_iterations=45), "iterating", ("45", ESTIMATED)),
        (46, Progress(45, total_iterations=20), "iterating", ("46", ESTIMATED)),  # the total counts something else
        (21, Progress(20), "evaluating", ("20", LAST_LOGGED)),
        (21, Progress(20), "saving", ("20", LAST_LOGGED)),
        (10, Progress(10), None, ("10", LAST_LOGGED)),
        (8, Progress(10), "saving", ("8", ESTIMATED)),
        (21, Progress(), "saving", ("21", ESTIMATED)),
    ],
)
def test_an_estimate_stays_within_what_the_logs_show(
    step: int, progress: Progress, stage: str | None, told: tuple[str, str]
) -> None:
    """No step follows the planned last one, and what comes after a step is not yet the next one."""
    (found,) = bounded([Indicator(str(step), ESTIMATED)], progress, stage)
    assert (found.what, found.why) == told


def test_the_step_of_a_change_is_no_estimate() -> None:
    """A loss may leave its level in the last logged step itself."""
    turned = (Indicator("10", TURNED),)
    assert bounded(turned, Progress(10), "iterating") == turned
