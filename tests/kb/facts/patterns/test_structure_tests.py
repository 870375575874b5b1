"""Tests of exceptions and structures give the answers of `re`, also where no regex is compiled for them."""

import re

import pytest

from kb.facts.patterns.structure_tests import exception_test, fits
from kb.model import Structure
from kb.rulebase.rule import ExceptionTest

CHOICES = [
    "KeyError",
    "KeyError|IndexError",
    "a||b",
    "|a",
    "_x1|é",
    "KeyError|Index.*",
    "(?:Key|Index)Error",
    "1a|b",
    "a|b ",
    "",
]
TEXTS = [
    "KeyError",
    "IndexError",
    "a",
    "b",
    "b ",
    "",
    "é",
    "_x1",
    "1a",
    "keyerror",
    "KeyError|IndexError",
    "Key",
    "KeyErrors",
]


@pytest.mark.parametrize("pattern", CHOICES)
def test_a_choice_of_words_matches_as_a_regex_does(pattern):
    """Words joined by `|` match the same texts as the regex, both whole and within a text."""
    for text in TEXTS:
        assert fits(pattern, text) == bool(re.fullmatch(pattern, text)), text
        assert fits(pattern, text, whole=False) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("sample asks for position 42054 but the\nrotary table ends at 16384", True),
        ("sample asks for position 42054 but the rot\nary table ends at 16384", True),
        ("sample asks for position 42054 but the\n  rotary table ends at 16384", False),
        ("sample asks\nfor position 42054 but the rotary table ends at 16384", False),
    ],
)
def test_a_wrapped_sentence_of_an_exception_is_read_as_one(message, expected):
    """Not an indented line below it, and not a line behind a short one."""
    raised = Structure("exception", 0, 0, "", {"type": "PositionError", "message": message})
    test = exception_test(ExceptionTest(message="asks for position .{1,12} but the rotary table ends"))
    assert (test(raised) is not None) is expected


def test_files_of_windows_are_named_as_those_of_unix():
    """A rule names a file once, and reports show the frame as the log has it."""
    frames = "C:\\work\\fit.py:3 in main\nC:\\py\\lib\\multiprocessing\\spawn.py:126 in _main"
    fields = {"type": "EOFError", "message": "", "frames": frames, "last_frame": frames.rpartition("\n")[2]}
    raised = Structure("exception", 0, 0, "", fields)

    found = exception_test(ExceptionTest(last_frame=r"multiprocessing/spawn\.py"))(raised)
    assert found is not None
    assert found["last_frame"] == fields["last_frame"]
    assert exception_test(ExceptionTest(not_frame=r"/spawn\.py"))(raised) is None
