"""Evidence from files: what logs alone provide."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.diagnosis.evidence import from_bundle, from_paths
from kb.model import Structure


def slow(evidence) -> list[Structure]:
    """The ranks that are slow by their own lines."""
    return [item for stream in evidence.streams for item in stream.structures if item.kind == "peer_outlier"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A bundle with the logs of four ranks, of which one waits for its batches."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(4):
        lines = [
            f"2026-11-03 04:{step // 60:02d}:{step % 60:02d},000 step {step} loss 2.31 fetch={0.9 if rank == 2 else 0.02}s"
            for step in range(1, 90)
        ]
        (folder / f"rank-{rank}.log").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_ranks_are_compared_where_there_are_only_logs(known, logs):
    """In a bundle without other parts, and in files that are given by their paths."""
    for evidence in (from_bundle(known, logs, workers=1), from_paths(known, [logs / "logs"], workers=1)):
        (found,) = slow(evidence)
        assert (found.resource.rank, found.fields["metric"], found.fields["field"]) == (2, "data_wait", "fetch")


def test_without_logs_nothing_is_compared(known, tmp_path):
    """An empty bundle stays empty."""
    assert from_bundle(known, tmp_path, workers=1).streams == ()


def test_the_state_in_the_description_of_the_job_counts(known, logs):
    """A scheduler's state that gives the reason of the end names the fault, with no other part in the bundle."""
    (logs / "job.yaml").write_text("id: '77'\nstate: PREEMPTED\n", "utf-8")
    events = [
        item for stream in from_bundle(known, logs, workers=1).streams for item in stream.structures
        if item.kind == "platform_event"
    ]  # fmt: skip
    assert [(event.fields["kind"], event.fields["states"]) for event in events] == [("preemption", "PREEMPTED")]


def test_the_answer_of_a_scheduler_replaces_the_state_of_the_description(known, logs):
    """What slurm.json reports in more detail is not counted twice."""
    (logs / "job.yaml").write_text("id: '77'\nstate: PREEMPTED\n", "utf-8")
    (logs / "slurm.json").write_text('{"jobs": [{"job_id": 77, "job_state": "TIMEOUT", "name": "llm"}]}', "utf-8")
    events = [
        item for stream in from_bundle(known, logs, workers=1).streams for item in stream.structures
        if item.kind == "platform_event"
    ]  # fmt: skip
    assert [event.fields["kind"] for event in events] == ["time_limit"]
