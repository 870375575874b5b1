"""Which parts of a rule's steps hold for a run (kb.diagnosis.context.premises)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from kb.diagnosis.context.premises import MOST, applicable
from kb.facts.circumstances import RunCircumstances
from kb.rulebase.rule import RemediationStep


class Known:
    """What is known of a run, in place of what its logs show."""

    def __init__(self, known: Mapping[str, str], settings: Mapping[str, str]) -> None:
        self.get = lambda name: known.get(name, "")
        self.in_force = lambda name, value: settings.get(name) == value


def left(
    *texts: str,
    command: str | None = None,
    settings: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
) -> list[str]:
    """The texts of the steps that are left for a run, with their commands."""
    steps = [RemediationStep("look_at_logs", text, "look", command=command) for text in texts]
    shown = applicable(steps, cast(RunCircumstances, Known(known or {}, settings or {})))
    return [part for step in shown for part in (step.text, step.command) if part]


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("Read the log. Compare it with the other ranks.", {"processes": "one"}, ["Read the log."]),
        ("Read the log. Compare it with the other ranks.", {"processes": "several"}, None),
        ("Read the log. Compare it with the other ranks.", {}, None),
        ("Set it on every node.", {"nodes": "one"}, ["Use another port."]),
        ("Run the step on another node.", {"nodes": "one"}, None),
        ("Enlarge it (Kubernetes: the volume), or write less.", {"scheduler": "slurm"}, ["Enlarge it, or write less."]),
        ("Enlarge it (Kubernetes: the volume), or write less.", {"scheduler": "kubernetes"}, None),
        ("Look for Xid 13. Run the step again.", {"device": "npu"}, ["Run the step again."]),
    ],
)
def test_no_sentence_stays_whose_premise_the_logs_refute(
    text: str, known: Mapping[str, str], expected: list[str] | None
) -> None:
    """What is unknown refutes nothing; a step of which nothing is left is dropped."""
    rest = ["Use another port."]
    other = [] if expected == rest else rest
    assert left(text, *rest, known=known) == ([text, *rest] if expected is None else [*expected, *other])


def test_a_setting_in_force_is_not_advised() -> None:
    """The run shows that it does not help."""
    advice = ("Fix the index.", "Run it with CUDA_LAUNCH_BLOCKING=1 to see the call.")
    assert left(*advice, settings={"CUDA_LAUNCH_BLOCKING": "1"}) == ["Fix the index."]
    assert left(*advice, settings={"CUDA_LAUNCH_BLOCKING": "0"}) == list(advice)


def test_an_answer_has_few_steps_and_never_none() -> None:
    """A command of another scheduler goes, its step stays; if all would go, the rule's own steps are better than none."""
    assert len(left(*"abcde")) == MOST
    assert left("Find out why.", command="sacct -j 7", known={"scheduler": "kubernetes"}) == ["Find out why."]
    assert left("Ask the other ranks.", known={"processes": "one"}) == ["Ask the other ranks."]


@pytest.mark.parametrize(
    ("check", "steps", "expected"),
    [
        ("two steps pass on two ranks", "some", "the run gets past the step at which it failed"),
        ("one batch passes forward and backward", "some", "the run gets past the step at which it failed"),
        ("one batch passes forward and backward", "none", "one batch passes forward and backward"),
        ("one batch has labels", "some", "one batch has labels"),
        ("the import works", "some", "the import works"),
    ],
)
def test_no_check_that_the_failed_run_had_passed(check: str, steps: str, expected: str) -> None:
    """A run that failed at its tenth step had made nine."""
    step = RemediationStep("look_at_logs", "Look.", "look", verify=check)
    shown = applicable([step], cast(RunCircumstances, Known({"steps": steps}, {})))
    assert [item.verify for item in shown] == [expected]
