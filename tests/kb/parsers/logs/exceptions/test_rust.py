"""Errors of Rust programs with the chain of their causes."""

import pytest

from kb.parsers.logs.exceptions.readers import READERS
from tests.support.parsing import structures

NUMBERED = "Error: failed to start\n\nCaused by:\n    0: failed to load the checkpoint\n    1: No such file or directory (os error 2)\n"


def raised(text: str) -> list[tuple[object, object, str]]:
    """Class, message and line of each exception."""
    return [(item.fields["type"], item.fields["message"], item.line.strip()) for item in structures(READERS, text)]


def test_numbered_causes_are_one_exception_with_the_whole_chain() -> None:
    """Its line is the innermost cause."""
    message = "failed to start: failed to load the checkpoint: No such file or directory (os error 2)"
    assert raised(NUMBERED) == [("Error", message, "1: No such file or directory (os error 2)")]


def test_a_single_cause_has_no_number() -> None:
    """It is indented below the words."""
    text = "Error: could not connect\n\nCaused by:\n    Connection refused (os error 111)\nstep 3\n"
    assert raised(text) == [
        ("Error", "could not connect: Connection refused (os error 111)", "Connection refused (os error 111)")
    ]


def test_causes_that_each_name_themselves() -> None:
    """As uv prints them; they are read once."""
    text = "error: Failed to fetch: `https://host/simple/`\n  Caused by: Request failed after 3 retries\n  Caused by: operation timed out\n"
    message = "Failed to fetch: `https://host/simple/`: Request failed after 3 retries: operation timed out"
    assert raised(text) == [("Error", message, "Caused by: operation timed out")]


def test_another_process_may_write_in_between() -> None:
    """Lines with another rank are left out."""
    lines = NUMBERED.splitlines()
    text = "".join(f"[rank3]: {line}\n[rank1]: step 7\n" for line in lines)
    (found,) = structures(READERS, text)
    assert found.resource.rank == 3
    assert str(found.fields["message"]).endswith("(os error 2)")


@pytest.mark.parametrize(
    "text",
    [
        "Caused by:\n    0: no error stands above\n",
        "Error: alone\n\nCaused by:\n\n",
        "Error: alone\nCaused by: a sentence of a program\n",
    ],
)
def test_words_without_a_chain_are_none(text: str) -> None:
    """Both what failed and its causes must be there."""
    assert raised(text) == []


def test_ten_thousand_causes_are_cut() -> None:
    """Only the first are read, so the work does not grow with the text."""
    text = "Error: outer\n\nCaused by:\n" + "".join(f"    {at}: cause {at}\n" for at in range(10_000))
    (found,) = raised(text)
    assert str(found[1]).count(": cause ") <= 16
