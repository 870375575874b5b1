"""The words of a line by which a rule knew it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.render.telling_words import telling_words
from kb.rulebase.rule import DetectorTest, ExceptionTest, Pattern, SeriesTest
from tests.support.bot_samples import FALLEN_GPU


@pytest.mark.parametrize(
    ("pattern", "line", "words"),
    [
        (Pattern("a", literal="off the bus"), "GPU fell off the bus", "off the bus"),
        (Pattern("a", literal="OFF", ignore_case=True), "GPU fell off", "off"),
        (Pattern("a", regex=r"Xid .*: 79, "), "NVRM: Xid (PCI): 79, pid=1", "Xid (PCI): 79,"),
        (
            Pattern("a", exception=ExceptionTest(type="ValueError", message="file size")),
            "[rank5]: ValueError: mmap length is greater than file size!",
            "ValueError: mmap length is greater than file size",
        ),
        (Pattern("a", literal="absent"), "GPU fell off", None),
        (Pattern("a", detect=DetectorTest("loss_spike")), "iteration 7 | lm loss: 5.0E+00 | x", "loss: 5.0E+00"),
        (Pattern("a", series=SeriesTest("grad_norm")), "loss: 1.0 | grad norm: 960.3 |", "grad norm: 960.3"),
        (Pattern("a", detect=DetectorTest("straggler_step")), "loss: 1.0", None),
        (Pattern("a", detect=DetectorTest("loss_not_finite")), "loss: 1.2 | grad norm: nan |", "grad norm: nan"),
        (
            Pattern("a", regex="uture failed after"),
            "ChainedFuture failed afterwards",
            "ChainedFuture failed afterwards",
        ),
        (Pattern("a", exception=ExceptionTest(type="KeyError")), "KeyError: 'lr'", "KeyError: 'lr'"),
        (Pattern("a", exception=ExceptionTest(type="KeyError", message="nowhere")), "KeyError: 'lr'", None),
        (
            Pattern("a", exception=ExceptionTest(type="KeyError", message="^no ")),
            "[0]: KeyError: no key",
            "KeyError: no",
        ),
        (
            Pattern("a", exception=ExceptionTest(classified=True)),
            "ValueError: no such split",
            "ValueError: no such split",
        ),
    ],
)
def test_the_longest_match_of_the_rule_is_telling(known, pattern, line, words):
    """A literal, a regex or an exception; nothing where the pattern is not found in the quoted line."""
    rule = replace(known.rulebook.rules[0], patterns=(pattern,))
    diagnosis = replace(FALLEN_GPU.diagnoses[0], rule=rule.id)
    span = telling_words(replace(known.rulebook, rules=(rule,)))(diagnosis, line)

    assert (None if span is None else line[slice(*span)]) == words


def test_an_unknown_rule_tells_nothing(known):
    """A stored report can name a rule that is gone."""
    assert telling_words(known.rulebook)(replace(FALLEN_GPU.diagnoses[0], rule="gone"), "a line") is None
