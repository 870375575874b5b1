"""How built failures become a set with known telling lines (bench/runs/indicators.py), and the record that they keep of themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.runs import indicators, plan

PLANS = [Path(__file__).parents[2] / "bench" / "runs" / "plans" / f"{name}.yaml" for name in ("l4", "l4_held")]
ENTRY = {
    "id": "a", "script": "ddp", "label": "unknown", "why": "?", "needle": ["gone"], "hangs": True, "job": {"state": "TIMEOUT"},
    "plugs": [{"at": "step", "call": "faults:hangs", "fault": True}, {"at": "step", "call": "own:noise"}],
}  # fmt: skip


def a_failure(folder: Path, lines: list[str], record: list[dict], **case) -> None:
    """A built failure with its twin."""
    for name, text in (("x", lines), ("x.twin1", ["[rank1]: all is well", "[rank2]: all is well"])):
        (folder / name / "logs").mkdir(parents=True)
        (folder / name / "logs" / "train.log").write_text("\n".join(text) + "\n", "utf-8")
        told = {"kind": "failure", "stage": "iterating", "framework": "ddp", "place": "step"} | case
        (folder / name / "case.yaml").write_text(yaml.safe_dump(told), "utf-8")
        (folder / name / "job.yaml").write_text(yaml.safe_dump({"world_size": 4, "state": "FAILED"}), "utf-8")
    note = {"rank": 1, "step": 7, "pid": 11, "launched": "12", "call": "faults:raises", "fault": True, "time": 1.0}
    (folder / "x" / "record.json").write_text(json.dumps({"notes": [note], "lines": record}), "utf-8")


def test_a_twin_is_the_same_job_without_its_fault() -> None:
    """Noise stays; what the fault needs goes."""
    made = plan.twin(plan.case(ENTRY))
    assert (made.id, made.label, made.hangs, made.needle, made.job) == ("a.twin1", "healthy", False, (), {})
    assert [plug["call"] for plug in made.plugs] == ["own:noise"]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_each_failure_of_the_plans_has_a_fault_noise_and_a_stage(path: Path) -> None:
    """Without one of them nothing could be labelled or compared."""
    for case in plan.read(path):
        assert any(plug.get("fault") for plug in case.plugs), case.id
        assert case.noise, case.id
        assert case.stage in ("launch", "init", "data_load", "iterating", "evaluating", "saving"), case.id
        assert case.needle or case.kind in ("absence", "turn", "value"), case.id


def test_the_held_plan_repeats_no_text_of_the_other() -> None:
    """What a fault says there has not been seen."""
    texts = [
        {plug["with"]["text"] for case in plan.read(path) for plug in case.plugs if plug.get("with", {}).get("text")}
        for path in PLANS
    ]
    assert not texts[0] & texts[1]


def test_what_a_fault_wrote_is_telling_and_its_traceback_is_neutral(tmp_path: Path) -> None:
    """Both readings find the exception; the frames before it count neither way."""
    lines = [
        "[rank1]: step 6",
        "[rank1]: Traceback (most recent call last):",
        "[rank1]: Own: it is gone",
        "[rank2]: Connection closed by peer",
    ]
    record = [
        {"kind": "last", "text": "step 6", "rank": 1}, {"kind": "told", "text": "it is gone", "rank": 1},
        {"kind": "after", "text": "[rank1]: Traceback (most recent call last):", "rank": 1},
        {"kind": "own", "text": "[rank1]: Own: it is gone", "rank": 1},
    ]  # fmt: skip
    a_failure(tmp_path, lines, record, ranks=[1], needle=["Own: it"], step=7)
    found, counts = indicators.truth(tmp_path / "x", tmp_path / "x.twin1")
    assert [event["lines"] for event in found["events"]] == [[["logs/train.log", 3]]]
    assert found["neutral"] == {"logs/train.log": [[2, 2]]}
    assert found["cascade"] == {"logs/train.log": [[4, 4]]}
    assert (found["nodes"], found["iteration"], counts) == (["rank 1"], 7, (1, 1, 1))


def test_a_silence_is_told_by_the_last_line_of_its_rank(tmp_path: Path) -> None:
    """Of lines with the same text, that rank's counts."""
    lines = ["[rank1]: beat", "[rank2]: beat", "[rank2]: beat"]
    a_failure(tmp_path, lines, [{"kind": "last", "text": "beat", "rank": 1}], ranks=[1], step=7, kind="absence")
    found, _ = indicators.truth(tmp_path / "x", tmp_path / "x.twin1")
    assert [(event["kind"], event["lines"]) for event in found["events"]] == [("absence", [["logs/train.log", 1]])]
