"""What is told of the step of a failure."""

from __future__ import annotations

import pytest

from kb.anomalies.time.failed_step import ESTIMATED, LAST_LOGGED, TURNED, as_logged
from kb.report import Indicator, Progress


@pytest.mark.parametrize("step", [8, 10, 46])
def test_the_last_logged_step_is_told_and_no_estimate(step: int) -> None:
    """Whether the next step had begun, no line says."""
    (found,) = as_logged([Indicator(str(step), ESTIMATED)], Progress(45, total_iterations=45))
    assert (found.what, found.why) == ("45", LAST_LOGGED)


def test_an_estimate_is_told_where_no_step_is_logged() -> None:
    """It is all that is known."""
    (found,) = as_logged([Indicator("21", ESTIMATED)], Progress())
    assert (found.what, found.why) == ("21", ESTIMATED)


def test_the_step_of_a_change_is_no_estimate() -> None:
    """A loss may leave its level in the last logged step itself."""
    turned = (Indicator("10", TURNED),)
    assert as_logged(turned, Progress(10)) == turned
