"""The numbers of log lines (kb.anomalies.core.numbers)."""

from __future__ import annotations

import pytest

from kb.anomalies.core.numbers import is_duration, numbers_in


@pytest.mark.parametrize(
    ("line", "place", "timed"),
    [
        ("2026-04-02 11:12:13 furlong 8 threshing_ms=140 sap=3.5", 1, True),
        ("2026-04-02 11:12:13 furlong 8 threshing_ms=140 sap=3.5", 2, False),
        ("furlong 8 took 3.25", 1, True),
        ("furlong 8, 3.25 s each", 1, True),
        ("furlong 8, 3.25 s each", 0, False),
        ("granary 912 MB", 0, False),
        ("times 4", 0, False),
        ("furlong 8", 1, False),
    ],
)
def test_a_number_is_a_duration_by_its_name_or_its_unit(line: str, place: int, timed: bool) -> None:
    """Not a count, and not a size."""
    assert is_duration(line, place) is timed


def test_times_of_the_day_are_no_numbers_of_a_line() -> None:
    """Nor are process ids."""
    assert numbers_in("2026-04-02 11:12:13 pid 77 furlong 0008 rust 0.5") == [8.0, 0.5]
