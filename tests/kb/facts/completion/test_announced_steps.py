"""The number of steps that a program announces."""

from __future__ import annotations

import pytest

from kb.facts.completion.announced_steps import announced_steps


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["  Total optimization steps = 5,000"], 5000),
        (["120 iterations per epoch. 12000 max iterations "], 12000),
        (["Total training steps: 800", "later: total steps = 800"], 800),
        (["Total training steps: 800", "Total steps = 900"], None),
        (["max_iterations=50000"], None),  # a setting that another one may shorten
        (["total steps per epoch: 10", "step 12000"], None),
        ([], None),
    ],
)
def test_the_one_number_that_is_announced(lines: list[str], expected: int | None) -> None:
    """Two different numbers are no announcement, nor is a limit among the settings."""
    assert announced_steps(enumerate(lines)) == expected
