"""Cases with known causes, their labels, and the advice accepted for each class."""

from __future__ import annotations

import gzip

import pytest

from bot.authoring.cases import (
    LabelledCase,
    accepted_by_class,
    completed,
    holds_own_lines,
    read_case,
    read_labels,
)
from kb.errors import UnreadableInput
from tests.support.paths import ROOT

LOST_PEER = LabelledCase("c1", "code_bug", (), ("RuntimeError: bad shard",), (5,))


@pytest.mark.parametrize("text", [None, "", "- a", "id: 1", "id: [", "\x00", "id: 1\nlabel: x\naccept: 5"])
def test_a_case_that_is_no_case_is_an_error(tmp_path, text):
    """The file is named, in a line."""
    if text is not None:
        (tmp_path / "case.yaml").write_text(text)

    with pytest.raises(UnreadableInput, match=r"case\.yaml: no") as caught:
        read_case(tmp_path)

    assert "\n" not in str(caught.value)


def test_a_case_carries_its_advice_and_whether_its_end_is_proven(tmp_path):
    """Both are optional."""
    (tmp_path / "case.yaml").write_text("id: a\nlabel: healthy\nadvice: [none, wait]\nproven_end: true\n")

    assert (read_case(tmp_path).advice, read_case(tmp_path).proven_end) == (("none", "wait"), True)

    (tmp_path / "case.yaml").write_text("id: a\nlabel: unknown\nverdict: [no_match, insufficient_evidence]\n")

    assert read_case(tmp_path).verdict == ("no_match", "insufficient_evidence")
    assert read_case(tmp_path).may_abstain

    (tmp_path / "case.yaml").write_text("id: a\nlabel: healthy\n")

    assert not read_case(tmp_path).may_abstain
    assert (read_case(tmp_path).advice, read_case(tmp_path).proven_end) == ((), None)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("advice: requeue", "advice must be a list"),
        ("advice: []", "advice must be a list"),
        ("advice: [restart]", "advice 'restart' is unknown; known are fix_first, none, requeue,"),
        ("advice: [[wait]]", "no usable case"),
        ("proven_end: maybe", "proven_end must be true or false"),
        ("verdict: healthy", "verdict must be a list of some of fault, insufficient_evidence,"),
        ("verdict: [healthy]", "verdict 'healthy' is unknown"),
    ],
)
def test_a_wrong_label_is_named(tmp_path, text, error):
    """What is wrong and what is possible, after the path."""
    (tmp_path / "case.yaml").write_text(f"id: a\nlabel: killed\n{text}\n")

    with pytest.raises(UnreadableInput, match=r"case\.yaml: no usable case") as caught:
        read_case(tmp_path)

    assert error in str(caught.value)


def test_labels_beside_the_cases_come_first(tmp_path):
    """Then the case itself, then its class; a class that the table does not know has none."""
    (tmp_path / "labels.yaml").write_text("cases:\n  c1: {advice: [wait]}\n  c2: {proven_end: false}\n")
    labels = read_labels(tmp_path / "labels.yaml")
    own = LabelledCase("c3", "killed", (), (), (), advice=("resubmit",))

    assert completed(LOST_PEER, labels).advice == ("wait",)
    assert completed(LabelledCase("c2", "healthy", (), (), ()), labels).proven_end is False
    assert completed(LabelledCase("c2", "healthy", (), (), ()), labels).advice == ("none",)
    assert completed(own, labels).advice == ("resubmit",)
    assert completed(LabelledCase("c4", "fault_of_a_site", (), (), ()), labels).advice == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no usable labels"),
        ("cases: []", "no usable labels"),
        ("cases: {a: {advise: [wait]}}", "a: unknown field advise; known are advice and proven_end"),
        ("cases: {a: {advice: [stop]}}", "advice 'stop' is unknown"),
        ("cases: {a: 5}", "no usable labels"),
    ],
)
def test_wrong_labels_are_an_error(tmp_path, text, error):
    """One line with the path."""
    (tmp_path / "labels.yaml").write_text(text)

    with pytest.raises(UnreadableInput, match=r"labels\.yaml") as caught:
        read_labels(tmp_path / "labels.yaml")

    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_labels_are_an_error(tmp_path):
    """A wrong path is not an empty file."""
    with pytest.raises(UnreadableInput, match="No such file"):
        read_labels(tmp_path / "labels.yaml")


def test_each_class_has_accepted_advice(known):
    """The table knows the classes of faults.yaml, all of them and no others."""
    assert set(accepted_by_class()) == set(known.rulebook.faults)


def test_no_failure_is_accepted_as_nothing_to_do(known):
    """Except the one that a person wanted, and those that a run can continue with."""
    outlived = {fault for fault, fault_class in known.rulebook.faults.items() if fault_class.outlives}

    assert {fault for fault, advice in accepted_by_class().items() if "none" in advice} <= outlived | {
        "healthy",
        "cancelled",
    }


def test_a_symptom_is_not_answered_with_a_repeat(known):
    """Nobody knows that it would end otherwise."""
    symptoms = {fault for fault, fault_class in known.rulebook.faults.items() if fault_class.symptom}

    assert {accepted_by_class()[fault] for fault in symptoms} == {("fix_first",)}


def test_the_labels_of_the_benchmark_are_usable():
    """Each names advice or an end."""
    labels = read_labels(ROOT / "bench" / "benchmark_labels.yaml")

    assert len(labels) > 30
    assert all(labels.values())


def test_own_lines_are_found_in_plain_and_compressed_logs(tmp_path):
    """By needle, in any stream of the case."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank-0.log").write_text("Watchdog caught collective operation timeout\n")
    assert not holds_own_lines(tmp_path, LOST_PEER)

    (logs / "rank-5.log.gz").write_bytes(gzip.compress(b"step 3\nRuntimeError: bad shard 17\n"))
    assert holds_own_lines(tmp_path, LOST_PEER)


def test_without_a_needle_the_log_of_a_rank_at_fault_counts(tmp_path):
    """Its lines count, whatever their content."""
    logs, case = tmp_path / "logs", LabelledCase("c1", "code_bug", (), (), (5,))
    logs.mkdir()
    (logs / "rank-4.log").write_text("step 3\n")
    assert not holds_own_lines(tmp_path, case)

    (logs / "rank-5.log").write_text("step 3\n")
    assert holds_own_lines(tmp_path, case)
