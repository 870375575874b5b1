"""Failures that no rule knows, under symptoms that rules do know, with the rule base that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.diagnosis.diagnose import diagnose_paths
from bot.rulebase.loader import Knowledge
from kb.report import Report
from tests.support.unexplained_scenes import GO, HANG, JAVA, NATIVE, RUST, Scene, scenes, symptom_only

SCENES = scenes()
SYMPTOMS = symptom_only()


def diagnosed(known: Knowledge, scene: Scene, folder: Path) -> Report:
    """The report on the logs of a scene."""
    for path, text in scene.logs.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return diagnose_paths(known, [folder / "logs"], workers=1).report


@pytest.mark.quick("own-exception-gloo", "merged-json")
@pytest.mark.parametrize("name", SCENES)
def test_an_unknown_first_cause_leads(known, tmp_path, name) -> None:
    """Its rank is named, its own lines are quoted, and the symptoms that it explains are folded under it."""
    scene = SCENES[name]
    report = diagnosed(known, scene, tmp_path)
    first = report.diagnoses[0]
    assert (report.verdict, report.phase, first.fault, first.rule) == ("no_match", "failed", "unknown", "")
    assert [scene.rank] == [suspect.rank for suspect in first.suspects]
    assert f"Unknown failure on rank {scene.rank}" == first.title
    quoted = [item.text for item in first.evidence]
    assert [needle for needle in scene.needles if not any(needle in line for line in quoted)] == []
    assert {item.fault for item in first.explains} & {"collective_timeout", "peer_failure"}
    assert report.decision.advice == "fix_first"


@pytest.mark.quick("missing-rank")
@pytest.mark.parametrize("name", SYMPTOMS)
def test_a_symptom_without_an_earlier_error_still_leads(known, tmp_path, name) -> None:
    """Errors that ended nothing and errors of the teardown are not first causes."""
    report = diagnosed(known, SYMPTOMS[name], tmp_path)
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "collective_timeout")
    assert "unknown" not in {diagnosis.fault for diagnosis in report.diagnoses}


def test_the_status_that_a_launcher_reports_is_no_failure_of_its_own(known, tmp_path) -> None:
    """DeepSpeed prints the whole command before it: nothing in it says what failed, in however many words."""
    command = ["/opt/py/bin/python", "-u", "train.py", *(f"--option_{number}=value" for number in range(60))]
    log = tmp_path / "train.log"
    log.write_text(
        "[2026-03-20 20:31:29,210] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 4107\n"
        f"[2026-03-20 20:31:29,269] [ERROR] [launch.py:321:sigkill_handler] {command} exits with return code = 1\n"
    )
    report = diagnose_paths(known, [log], workers=1).report
    assert (report.verdict, report.phase, report.diagnoses) == ("no_match", "failed", ())


def test_the_summary_tells_how_long_before_the_symptom(known, tmp_path) -> None:
    """The lead is that of the event's time stamp over the first symptom's."""
    report = diagnosed(known, SCENES["json-error"], tmp_path)
    assert report.summary.startswith(
        f"Unknown failure on rank 5, {HANG} s before the first symptom: window 17 rejected"
    )


def test_the_same_unknown_failure_has_the_same_fingerprint(known, tmp_path) -> None:
    """Recurring unknown failures group by the shape of their line, others stay apart."""
    again = SCENES["json-error"]
    moved = Scene({path: text.replace("window 17", "window 902") for path, text in again.logs.items()}, again.rank)
    prints = [
        diagnosed(known, scene, tmp_path / str(number)).fingerprint
        for number, scene in enumerate((again, moved, SCENES["critical-exit"]))
    ]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.quick("alone-rust", "after steps-native")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [(NATIVE, "fault"), (RUST, "no_match"), (GO, "no_match"), (JAVA, "no_match")],
    ids=["native", "rust", "go", "java"],
)
@pytest.mark.parametrize("before", ["", "step 1 loss 2.31\nstep 2 loss 2.29\n"], ids=["alone", "after steps"])
def test_a_log_that_ends_with_a_native_error_has_failed(known, tmp_path, text, verdict, before):
    """Nothing else says so: no launcher, no peers, no scheduler; and the message stands lines above the end."""
    (tmp_path / "train.log").write_text(before + text)
    report = diagnose_paths(known, [tmp_path], workers=1).report
    assert (report.verdict, report.phase) == (verdict, "failed")
    quoted = " ".join(item.text for item in report.diagnoses[0].evidence)
    assert text.splitlines()[0][:40].strip() in quoted
