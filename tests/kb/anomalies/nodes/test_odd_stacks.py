"""The rank that was elsewhere in the program (kb.anomalies.nodes.odd_stacks), and stages from stacks (kb.anomalies.time.stack_stage)."""

from __future__ import annotations

from collections.abc import Mapping

from kb.anomalies.core.run import LineRef, RunProfile, RunSource, RunStack, StepLine
from kb.anomalies.nodes.odd_stacks import odd_stack
from kb.anomalies.time.change_step import StepCourse
from kb.anomalies.time.stack_stage import stage_in_stacks, stage_of_stack

WAITING = ("main run.py", "fit trainer.py", "run_validation loop.py", "barrier distributed.py")
ALONE = ("main run.py", "fit trainer.py", "run_validation loop.py", "read_part feed.py")


def a_run(paths: Mapping[int, tuple[str, ...]], at: float | None = 50.0) -> RunProfile:
    """Ranks with the frames of their last exceptions."""
    stacks = tuple(
        RunStack(LineRef(f"{rank}.log", 90, "RuntimeError: gone", None, at, f"rank {rank}", rank), frames)
        for rank, frames in paths.items()
    )
    voices = tuple(RunSource(f"{rank}.log", f"rank {rank}", rank, 20, stacks[0].spot) for rank in range(8))
    return RunProfile({}, voices=voices, stacks=stacks)


def test_the_rank_with_other_frames_than_all_others_is_found() -> None:
    """They wait, and it does not."""
    odd = odd_stack(a_run(dict.fromkeys(range(7), WAITING) | {7: ALONE}), {}, 45.0)
    assert odd is not None
    assert odd.node == "rank 7"


def test_nobody_is_found_where_two_are_elsewhere_or_all_wait_alike() -> None:
    """Then the frames do not say who began."""
    assert odd_stack(a_run(dict.fromkeys(range(8), WAITING)), {}, 45.0) is None
    assert odd_stack(a_run(dict.fromkeys(range(6), WAITING) | {6: ALONE, 7: ALONE[:2]}), {}, 45.0) is None


def test_exceptions_long_before_the_end_do_not_count() -> None:
    """They were caught."""
    assert odd_stack(a_run(dict.fromkeys(range(7), WAITING) | {7: ALONE}), {}, 90.0) is None


def test_the_innermost_frame_that_names_a_stage_decides() -> None:
    """A checkpoint may be saved within an evaluation."""
    assert stage_of_stack(WAITING) == "evaluating"
    assert stage_of_stack((*WAITING[:3], "save_checkpoint io.py", "write io.py")) == "saving"
    assert stage_of_stack(("main run.py", "train_step loop.py", "backward engine.py")) is None
    assert stage_of_stack(("main run.py", "restore_state io.py")) == "checkpoint_load"


def test_peers_say_in_which_stage_a_silent_rank_was() -> None:
    """Most of them wait in the same one."""
    run = a_run(dict.fromkeys(range(6), WAITING))
    assert stage_in_stacks(run, StepCourse((), (), None, 1), None, {}) == "evaluating"


def test_a_run_that_makes_steps_no_longer_loads() -> None:
    """Its data are read within the steps."""
    run = a_run(dict.fromkeys(range(6), ("main run.py", "load_dataset feed.py")))
    beat = StepLine(LineRef("0.log", 10, "", None, 20.0, "rank 0", 0), 5)
    assert stage_in_stacks(run, StepCourse((), (), None, 1), None, {}) == "data_load"
    assert stage_in_stacks(run, StepCourse((beat,), (20.0,), None, 1), None, {}) is None
