"""Tests of numbers that turn to nan in lines of a form that no reader knows."""

import pytest

from kb.facts.log.turned_to_nan import turned_to_nan


def rows(*values: str) -> list[tuple[int, str]]:
    """Lines of a site's own form, an epoch and a value each."""
    return [(30 * number, f"{number} {value} *****") for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("10.5", "10.1", "nan", "nan", "nan"), 60),
        (("10.5", "nan", "nan", "10.1", "10.0"), None),  # it came back
        (("10.5", "10.1", "10.0", "nan", "nan"), None),  # too few
        (("nan", "nan", "nan", "nan"), None),  # a column that never held a number may mean that there is none
    ],
)
def test_a_column_that_turns_to_nan(values: tuple[str, ...], expected: int | None) -> None:
    """The first of the last lines tells where."""
    found = [column.offset for column in turned_to_nan(rows(*values), rows(*values))]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("label", "counts"),
    [
        ("mean_loss = ", True),
        ("Losses: ", True),
        ("Verlust ", True),
        ("損失 ", True),
        ("pérdida_total=", False),
        ("recall = ", False),
        ("lossless ratio ", False),
        ("loss of 3 parts, mean ", False),
    ],
)
def test_only_what_the_line_calls_a_loss(label: str, counts: bool) -> None:
    """Other numbers may have no value, such as a rate of a class without samples."""
    lines = [(at, f"fold {label}{value}") for at, value in enumerate(["1.9", "1.8", "nan", "nan", "nan"])]
    assert [column.is_loss for column in turned_to_nan(lines, lines)] == [counts]


def test_text_in_the_line_is_part_of_its_form() -> None:
    """A value of another line does not make this one's finite."""
    assert turned_to_nan([(0, "bus 0.31")], [(at, "tram nan") for at in (9, 18, 27)]) == []


def test_a_step_glued_to_its_word_is_no_other_form() -> None:
    """Nor are digits before a unit: in many scripts no space stands there."""
    lines = [
        (40 * step, f"ステップ{step} 損失 {value} {200 + step}ms")
        for step, value in enumerate(["0.5", "0.4", *["nan"] * 3])
    ]
    assert [column.offset for column in turned_to_nan(lines, lines)] == [80]


@pytest.mark.parametrize(
    ("name", "counts"), [("'logps/chosen': ", True), ("rewards = ", True), ("'eval_recall': ", False)]
)
def test_an_output_of_the_model_is_never_meant_to_be_nan(name: str, counts: bool) -> None:
    """Even if it never was a number; a metric may have no value."""
    lines = [(40 * at, f"{{'loss': {at}.5, {name}nan}}") for at in range(3)]
    assert bool(turned_to_nan(lines, lines)) is counts
