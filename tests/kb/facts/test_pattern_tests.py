"""Tests of exceptions and structures give the answers of `re`, also where no regex is compiled for them."""

import re

import pytest

from kb.facts.pattern_tests import fits

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
