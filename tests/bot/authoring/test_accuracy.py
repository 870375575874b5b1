"""Figures over cases with known causes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from bot.authoring.accuracy import (
    bins,
    calibration_error,
    calibration_floor,
    confusion,
    evaluate_cases,
    figures,
    judge,
    render,
    to_json,
)
from bot.authoring.cases import LabelledCase
from kb.errors import UnreadableInput
from kb.rulebase.rule import FaultClass
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, TOO_LITTLE, UNKNOWN
from tests.support.paths import BUNDLES

FALLEN = LabelledCase("c1", "gpu_fell_off_bus", (), ("fallen off the bus",), (7,))
WELL = LabelledCase("c2", "healthy", (), (), ())


def test_a_right_answer_is_top_1_and_shows_its_needle():
    """The first fault is the label, and a quoted line holds the needle."""
    one = judge(FALLEN, FALLEN_GPU)

    assert (one.top1, one.top3, one.needle, one.false_alarm, one.band) == (True, True, True, None, "likely")


def test_the_second_answer_is_top_3():
    """Later diagnoses count as top-3, and another accepted label counts as right."""
    waited = LabelledCase("c3", "collective_timeout", (), ("not there",), ())

    one, accepted = judge(waited, FALLEN_GPU), judge(replace(waited, accept=("gpu_fell_off_bus",)), FALLEN_GPU)

    assert (one.top1, one.top3, one.needle) == (False, True, False)
    assert (accepted.top1, accepted.top3) == (True, True)


@pytest.mark.parametrize(
    ("report", "alarm", "right"),
    [(HEALTHY, False, True), (FALLEN_GPU, True, False), (UNKNOWN, True, False), (TOO_LITTLE, False, False)],
)
def test_a_fault_or_an_unknown_failure_on_a_healthy_run_is_an_alarm(report, alarm, right):
    """`insufficient_evidence` is no alarm, but only `no_fault` is right."""
    judged = judge(WELL, report)

    assert (judged.false_alarm, judged.top1, judged.needle) == (alarm, right, None)


def test_healthy_runs_of_which_nothing_can_be_reported_are_counted_apart():
    """They are neither right nor alarms."""
    judged = [judge(WELL, HEALTHY), judge(WELL, TOO_LITTLE), judge(FALLEN, TOO_LITTLE)]

    numbers = figures(judged)

    assert (numbers["healthy"], numbers["false_alarms"], numbers["healthy_cannot_tell"]) == (2, 0, 1)
    assert ("healthy", "cannot_tell", 1) in confusion(judged)
    assert "0 of 2 healthy runs, cannot tell on 1" in render(judged)


def test_the_figures_are_shares():
    """By count, by class, by lost GPU time; alarms are counted."""
    judged = [judge(FALLEN, FALLEN_GPU), judge(FALLEN, UNKNOWN), judge(WELL, HEALTHY), judge(WELL, FALLEN_GPU)]

    numbers = figures(judged)

    assert (numbers["cases"], numbers["healthy"], numbers["false_alarms"]) == (4, 2, 1)
    assert (numbers["top1"], numbers["top1_failures"], numbers["no_match"], numbers["needle"]) == (0.5, 0.5, 0.5, 0.5)
    assert confusion(judged) == [("gpu_fell_off_bus", "unknown", 1), ("healthy", "gpu_fell_off_bus", 1)]
    assert json.loads(to_json(judged))["figures"] == numbers
    assert "1 of 2 healthy runs" in render(judged)
    assert "c1: gpu_fell_off_bus, said no_match" in render(judged, verbose=True)
    assert {scored_case.case: scored_case for scored_case in judged}["c2"].label == "healthy"


def test_no_cases_have_figures_of_nought():
    """Empty lists divide by nothing."""
    assert figures([])["top1"] == 0
    assert "0 cases" in render([])


def test_cases_of_a_folder_are_diagnosed(known, tmp_path):
    """Folders with a case.yaml are cases, others are not."""
    for name, label in (("killed", "killed"), ("healthy", "healthy")):
        shutil.copytree(BUNDLES / ("rank-killed" if name == "killed" else name), tmp_path / name)
        (tmp_path / name / "case.yaml").write_text(f"id: {name}\nlabel: {label}\nranks: [1]\n")
    (tmp_path / "other").mkdir()

    judged = evaluate_cases(known, tmp_path, 2)

    assert [(scored_case.case, scored_case.false_alarm) for scored_case in judged] == [
        ("healthy", False),
        ("killed", None),
    ]


def test_labels_beside_the_cases_reach_the_figures(known, tmp_path):
    """Accepted advice comes from the labels, here where the class would accept another."""
    shutil.copytree(BUNDLES / "healthy", tmp_path / "cases" / "healthy")
    (tmp_path / "cases" / "healthy" / "case.yaml").write_text("id: h\nlabel: healthy\n")
    (tmp_path / "labels.yaml").write_text("cases: {h: {advice: [wait], proven_end: true}}")

    judged = evaluate_cases(known, tmp_path / "cases", 1, tmp_path / "labels.yaml")

    assert judged[0].accepted_advice == ("wait",)
    numbers = figures(judged)["harm"]
    assert (numbers["end_recognized"]["n"], numbers["advice_accepted"]["count"]) == (1, 0)


def test_an_abstention_is_right_where_the_end_is_not_proven():
    """A healthy run whose logs stop half way is answered well with `insufficient_evidence`, and with `no_fault`."""
    cut = replace(WELL, proven_end=False)

    assert judge(cut, TOO_LITTLE).top1
    assert judge(cut, HEALTHY).top1
    assert not judge(replace(WELL, proven_end=True), TOO_LITTLE).top1
    assert not judge(replace(FALLEN, accept=("unknown",)), TOO_LITTLE).top1


def test_an_abstention_is_right_where_the_case_accepts_it():
    """A log that stops silently: the cause cannot be determined."""
    stopped = replace(FALLEN, label="unknown", needle=(), verdict=("insufficient_evidence", "no_match"))

    assert judge(stopped, TOO_LITTLE).top1
    assert judge(stopped, TOO_LITTLE).harm.abstained is False
    assert judge(stopped, UNKNOWN).top1
    assert judge(stopped, HEALTHY).harm.called_healthy is True
    assert judge(replace(stopped, verdict=()), TOO_LITTLE).harm.abstained is True


def test_harmful_answers_are_listed_with_the_advice():
    """The counts in the table, the cases with `verbose`."""
    bug = replace(FALLEN, label="code_bug", advice=("fix_first",))
    judged = [judge(bug, FALLEN_GPU), judge(bug, HEALTHY)]

    text = render(judged, verbose=True)

    assert "repeats c1: code_bug, said fault gpu_fell_off_bus, advice requeue_without (accepted: fix_first)" in text
    assert "called_healthy c1: code_bug, said no_fault healthy" in text
    assert json.loads(to_json(judged))["figures"]["harm"]["called_healthy"]["count"] == 1
    assert json.loads(to_json(judged))["cases"][0]["harm"]["repeats"] is True


def test_a_folder_without_cases_is_an_error(known, tmp_path):
    """Figures over nothing would be no figures."""
    with pytest.raises(UnreadableInput, match="no case in it"):
        evaluate_cases(known, tmp_path)


def test_calibration_error_is_the_gap_between_sure_and_right() -> None:
    """None where 80 % of what is 0.8 sure is right, 0.3 where half is; in bins of equal mass."""
    assert calibration_error([(0.8, at % 5 != 0) for at in range(50)]) == pytest.approx(0.0)
    assert calibration_error([(0.8, at % 2 == 0) for at in range(50)]) == pytest.approx(0.3)
    mixed = [(0.9, True)] * 15 + [(0.5, False)] * 10
    assert calibration_error(mixed) == pytest.approx((3 * 0.1 + 2 * 0.5) / 5)
    assert calibration_error(mixed[::-1]) == calibration_error(mixed)
    assert [len(part) for part in bins(mixed)] == [5] * 5


def test_the_floor_of_the_calibration_error_falls_with_the_number_of_cases() -> None:
    """Few cases show an error even where every confidence is perfect."""
    few, many = ([(0.7, True)] * size for size in (10, 1000))
    assert 0.05 < calibration_floor(few) < 0.3
    assert calibration_floor(many) < 0.03
    assert calibration_floor([]) == 0.0


def test_explicit_faults_are_those_that_a_line_can_name() -> None:
    """Classes that a needle can show count as explicit, not symptoms or classes seen only in numbers; the fault that was named is measured separately."""
    faults = {
        "gpu_fell_off_bus": FaultClass("gpu_fell_off_bus", "hardware", "Gone"),
        "loss_spike": FaultClass("loss_spike", "training", "Spike"),
        "killed": FaultClass("killed", "none", "Killed", symptom=True),
    }
    told = [judge(replace(FALLEN, label=label), FALLEN_GPU, faults) for label in faults]
    assert [item.explicit for item in told] == [True, False, False]
    assert [item.named for item in told] == [True, True, True]
    numbers = figures(told)
    assert (numbers["explicit"], numbers["explicit_recall"]) == (1, 1.0)
    assert numbers["explicit_precision"] == pytest.approx(1 / 3, abs=1e-3)
    assert not judge(replace(FALLEN, needle=()), FALLEN_GPU, faults).explicit
    assert not judge(WELL, HEALTHY, faults).named
