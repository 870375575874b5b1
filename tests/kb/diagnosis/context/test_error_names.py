"""What a Python exception names as absent."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.error_names import of_error


@pytest.mark.parametrize(
    ("kind", "message", "sort", "name", "holder"),
    [
        ("KeyError", "'stop_loss'", "key", "stop_loss", None),
        ("KeyError", '"it\'s"', "key", "it's", None),
        ("KeyError", "1701", "key", "1701", None),
        ("KeyError", "'Label Name'", "key", "Label Name", None),
        ("AttributeError", "'Mixer' object has no attribute 'gain'", "attribute", "gain", "Mixer"),
        ("AttributeError", "type object 'Mixer' has no attribute 'gain'", "attribute", "gain", "Mixer"),
        ("AttributeError", "module 'shelf.io' has no attribute 'rows'", "module", "rows", "shelf.io"),
        ("AttributeError", "'NoneType' object has no attribute 'shape'", "none", "shape", "NoneType"),
        ("NameError", "name 'cfg' is not defined", "name", "cfg", None),
        ("UnboundLocalError", "local variable 'best' referenced before assignment", "name", "best", None),
        ("UnboundLocalError", "cannot access local variable 'best' where it is not associated with a value", "name", "best", None),
        ("TypeError", "Mixer.__init__() got an unexpected keyword argument 'gain'", "argument", "gain", "Mixer.__init__"),
        ("TypeError", "mix() missing 2 required positional arguments: 'left' and 'right'", "needs", "'left' and 'right'", "mix"),
    ],
)  # fmt: skip
def test_what_is_absent_is_named_with_what_lacks_it(
    kind: str, message: str, sort: str, name: str, holder: str | None
) -> None:
    """In all of Python's own forms."""
    told = of_error(kind, message)

    assert (sort, name, holder) == (told["absent"], told["absent_name"], told.get("absent_from"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("KeyError", "'optimizer adamx is not in the registry'"),
        ("KeyError", "Unknown shelf"),
        ("ValueError", "'rows'"),
        ("TypeError", "unsupported operand type(s) for -: 'NoneType' and 'int'"),
        ("", ""),
    ],
)
def test_a_sentence_names_nothing(kind: str, message: str) -> None:
    """A program that raises a KeyError with a sentence says more than a key."""
    assert of_error(kind, message) == {}


def test_an_exception_without_a_message_is_called_so() -> None:
    """Nobody is sent to read a message that is not there."""
    assert of_error("NotImplementedError", " ") == {"absent": "message"}
