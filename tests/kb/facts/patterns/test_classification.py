"""What the classifier is given of an exception: the stage that the log states, the chain before it, and the other ranks."""

from __future__ import annotations

import pytest

from kb.classifier import classify as classifier
from kb.classifier.classify import Around
from kb.classifier.model import Answer
from kb.facts.patterns.classification import classified
from kb.model import Job, Structure
from kb.rulebase.rule import ExceptionTest
from kb.scanning.summary import StageMark, StreamSummary
from tests.support.kb_samples import exception, facts, ref, stream


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Around]:
    """What the classifier was given, in order; it answers every question."""
    asked: list[Around] = []

    def answer(kind: str, _message: str, _frames: str, around: Around) -> Answer:
        asked.append(around)
        return Answer("code_bug", 0.95, (f"type {kind}",))

    monkeypatch.setattr(classifier, "classify", answer)
    return asked


def classify_all(*streams: StreamSummary) -> None:
    """Classify every exception of a job of two ranks."""
    known = facts(*streams, job=Job(world_size=2))
    raised = known.structures("exception")
    test = classified(ExceptionTest(classified=True), raised, known)
    for _, item in raised:
        found = test(item)
        assert found is not None
        assert (found["class"], found["sure"]) == ("code_bug", "yes")


def chain(*kinds: str) -> list[Structure]:
    """Exceptions that were each raised while the one before was handled."""
    return [exception(100 * (at + 1), kind, start=100 * at + 40, chain=at) for at, kind in enumerate(kinds)]


@pytest.mark.parametrize(("mark", "stage"), [("data_load", "data_load"), ("launch", ""), ("teardown", "")])
def test_the_stage_that_lines_state_is_given(given: list[Around], mark: str, stage: str) -> None:
    """Not a launch or an end, which a log of errors alone shows, too."""
    classify_all(stream(marks=[StageMark(10, mark)], structures=[exception(100)]))  # type: ignore[arg-type]
    assert [around.stage for around in given] == [stage]


def test_the_exception_before_in_the_chain_is_given(given: list[Around]) -> None:
    """Only the one that was handled when this one was raised."""
    classify_all(stream(structures=chain("KeyError", "ValueError", "RuntimeError")))
    assert [around.handled for around in given] == [(), ("KeyError",), ("ValueError",)]


def test_what_other_ranks_did_is_given(given: list[Around]) -> None:
    """Both ranks raise the same."""
    classify_all(*(stream(ref(f"{rank}.log", rank), structures=[exception(100, rank=rank)]) for rank in (0, 1)))
    assert [around.ranks for around in given] == ["alike", "alike"]
