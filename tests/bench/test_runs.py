"""What the generator of whole runs does without a framework: plans, the truth of a case, its folder, the names it hides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.runs import folders, plan

PLANS = sorted((Path(__file__).parents[2] / "bench" / "runs" / "plans").glob("*.yaml"))
FAULTS = Path(__file__).parents[2] / "rules" / "faults.yaml"
ENTRY = {"id": "a", "script": "ddp", "label": "code_bug", "why": "a bug"}


def _note(rank, time, step=7):
    return {"rank": rank, "time": time, "step": step, "place": "forward", "call": "own:raise"}


@pytest.mark.quick("l4", "dev_failures", "fresh_healthy")
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_can_be_read_and_labels_with_known_faults(path):
    """Labels and accepted classes are ids of the vocabulary."""
    known = {fault["id"] for fault in yaml.safe_load(FAULTS.read_text("utf-8"))["faults"]}
    cases = plan.read(path)
    assert cases
    assert {name for case in cases for name in (case.label, *case.accept)} <= known | {"unknown", "healthy"}


def test_a_failure_without_advice_of_its_own_gets_that_of_its_label():
    """Fixing first where nothing else is listed."""
    assert plan.case(ENTRY).advice == ("fix_first",)
    assert plan.case(ENTRY | {"label": "preempted"}).advice == ("requeue", "resubmit")
    assert plan.case(ENTRY | {"advice": ["wait"]}).advice == ("wait",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lbl": "x"}, "unknown keys lbl"),
        ({"launch": "mpirun"}, "launch mpirun is none of"),
        ({"logs": "xml"}, "logs xml is none of"),
        ({"advice": ["pray"]}, "advice pray is none of"),
    ],
)
def test_a_bad_entry_is_refused_with_its_id(more, words):
    """The message names the case and what is wrong."""
    with pytest.raises(plan.BadPlanError, match=f"^a: {words}"):
        plan.case(ENTRY | more)


def test_an_id_given_twice_is_refused(tmp_path):
    """A second case of the same id would overwrite the first."""
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump([ENTRY, ENTRY]), "utf-8")
    with pytest.raises(plan.BadPlanError, match="given twice: a"):
        plan.read(path)


def test_the_truth_takes_ranks_step_and_time_from_what_the_run_noted():
    """The first note gives step and time, all of them the ranks."""
    case = plan.case(ENTRY | {"plugs": [{"at": "forward", "call": "own:raise", "ranks": [1, 3]}]})
    told = folders.truth(case, [_note(3, 1000.0), _note(1, 1001.0, 8)], "torch 2")
    assert told["ranks"] == [1, 3]
    assert (told["step"], told["time"], told["place"]) == (7, "1970-01-01T00:16:40Z", "forward")


def test_what_happens_on_all_ranks_is_no_ranks_fault():
    """The plug-in is meant for every rank, so which of them noted it says nothing."""
    case = plan.case(ENTRY | {"plugs": [{"at": "forward", "call": "own:raise"}]})
    assert "ranks" not in folders.truth(case, [_note(0, 1000.0)], "torch 2")


def test_ranks_of_the_plan_win_over_the_noted_ones():
    """A fault of the data is at no rank, whoever meets it first."""
    plugs = [{"at": "forward", "call": "own:raise", "ranks": [3]}]
    told = folders.truth(plan.case(ENTRY | {"at_fault": [0], "plugs": plugs}), [_note(3, 1000.0)], "torch 2")
    assert told["ranks"] == [0]


def test_notes_of_all_ranks_come_in_order_of_time(tmp_path):
    """Each rank writes a file of its own."""
    for rank, time in ((0, 5.0), (1, 4.0)):
        (tmp_path / f"rank-{rank}.jsonl").write_text(json.dumps(_note(rank, time)) + "\n", "utf-8")
    assert [note["rank"] for note in folders.notes(tmp_path)] == [1, 0]


def test_paths_and_host_names_of_the_machine_are_replaced():
    """The longest path first; a host name only as a whole word."""
    pairs = folders.replacements({"/srv/x": "/home/user", "/srv/x/venv": "/opt/venv"}, ["box"])
    text = b"/srv/x/venv/bin/python /srv/x/a.py on box: boxes, inbox, b/box"
    assert folders.scrub(text, pairs) == b"/opt/venv/bin/python /home/user/a.py on node-a: boxes, inbox, b/box"


def test_a_running_job_has_no_end():
    """Its state is the plan's, the rest the run's."""
    case = plan.case(ENTRY | {"job": {"state": "RUNNING"}})
    knows = folders.job(case, (0.0, 60.0), -9)
    assert knows["collected_at"] == "1970-01-01T00:01:00Z"
    assert "end" not in knows


def test_the_state_of_a_job_follows_its_status():
    """A launcher that fails makes a failed job; without `job` there is none."""
    case = plan.case(ENTRY | {"job": {}})
    assert [folders.job(case, (0.0, 1.0), status)["state"] for status in (0, 1)] == ["COMPLETED", "FAILED"]
    assert folders.job(plan.case(ENTRY), (0.0, 1.0), 0) is None


def test_complaints_name_missing_logs_and_needles_and_names_that_are_left(tmp_path):
    """A case without complaints is one that can be scored."""
    told = {"id": "a", "label": "code_bug", "needle": ["boom"]}
    folders.write(tmp_path / "empty", {"train.log": b" \n"}, told, None)
    assert folders.complaints(tmp_path / "empty") == ["no logs", "no needle in the logs: boom"]
    folders.write(tmp_path / "named", {"0/stderr.log": b"boom at /srv/secret/a.py"}, told, {"state": "FAILED"})
    assert folders.complaints(tmp_path / "named", forbidden=["/srv/secret"]) == ["names this machine: /srv/secret"]
    assert folders.complaints(tmp_path / "named") == []


def test_only_needles_that_some_log_has_are_kept():
    """A plan names the words of several versions of a framework."""
    assert folders.shown(["Timed out", "timed out"], [b"x", b"wait timed out"]) == ("timed out",)
