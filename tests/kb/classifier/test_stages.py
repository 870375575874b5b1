"""The stage that the name of a function and its area show."""

from __future__ import annotations

import pytest

from kb.classifier.stages import stage_of


@pytest.mark.parametrize(
    ("area", "function", "stage"),
    [
        ("checkpoint", "load", "checkpoint_load"),
        ("model", "from_pretrained", "checkpoint_load"),
        ("own", "save_checkpoint", "saving"),
        ("own", "evaluate", "evaluating"),
        ("own", "training_step", "iterating"),
        ("optimizer", "step", "iterating"),
        ("sharding", "__init__", "init"),
        ("config", "validate_args", "init"),
        ("data", "next_shard", "data_load"),
        ("launcher", "poll", "launch"),
        ("launcher", "launch_workers", "launch"),
        ("collective", "shutdown", "teardown"),
        ("own", "main", ""),
        ("own", "<module>", ""),
        ("", "", ""),
    ],
)
def test_names_and_areas_tell_the_stage(area: str, function: str, stage: str) -> None:
    """The name decides, then the area; what may run at any time tells none."""
    assert stage_of(area, function) == stage
