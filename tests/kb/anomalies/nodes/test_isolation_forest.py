"""The isolation forest (kb.anomalies.nodes.isolation_forest)."""

from __future__ import annotations

from kb.anomalies.nodes.isolation_forest import Isolation, isolate


def test_the_odd_row_scores_highest_and_names_its_column() -> None:
    """One row of 32 differs in one column."""
    rows = [[5.0, float(i % 3), 0.0] for i in range(31)] + [[5.0, 1.0, 40.0]]
    found = isolate(rows)
    assert max(range(32), key=lambda i: found.scores[i]) == 31
    assert found.columns[31][0] == 2


def test_the_same_rows_give_the_same_scores() -> None:
    """Chance is seeded."""
    rows = [[float(i * 7 % 5), float(i % 4)] for i in range(20)]
    assert isolate(rows) == isolate(rows)


def test_two_rows_and_equal_rows_say_nothing() -> None:
    """Of two, either is as odd as the other."""
    assert isolate([[1.0], [2.0]]) == Isolation((0.0, 0.0), ((), ()))
    assert isolate([[1.0]] * 5).scores == (0.0,) * 5
