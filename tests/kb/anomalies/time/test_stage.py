"""In which stage a run was (kb.anomalies.time.stage)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, StageBeginning, StepLine
from kb.anomalies.time.change_step import course_of
from kb.anomalies.time.stage import stage_at, stage_of

STEPS = 45


def run_with(*said: tuple[str, float, str], steps: int = STEPS) -> RunProfile:
    """A run of one step in ten seconds, and what its nodes say: (node, time, text)."""
    spots: dict[str, dict[str, list[LineRef]]] = {}
    for node, time, text in said:
        spots.setdefault(text, {}).setdefault(node, []).append(
            LineRef(f"{node}.log", int(time * 10), text, None, time, node)
        )
    events = {
        text: RunEvent(
            text,
            text,
            "info",
            {n: NodeEvent(len(item), tuple(item), {(f"{n}.log", None): len(item)}) for n, item in by.items()},
        )
        for text, by in spots.items()
    }
    beats = tuple(StepLine(LineRef("n0.log", int(i * 100), "", None, 10.0 * i, "n0"), i) for i in range(1, steps + 1))
    return RunProfile(events, ("n0", "n1"), beats)


def stage(run: RunProfile, when: float, text: str = "") -> str:
    """The stage of a run at a time."""
    return stage_at(run, course_of(run, {}), when, {}, text=text)


EVALUATIONS = tuple(("n0", 10.0 * i + 1.0, "evaluation begins") for i in (10, 20, 30, 40))
RESULTS = tuple(("n0", 10.0 * i + 6.0, "evaluation loss <*>") for i in (10, 20, 30, 40))


def test_between_two_interludes_it_iterates() -> None:
    """What was begun was ended, and steps followed."""
    assert stage(run_with(*EVALUATIONS, *RESULTS), 452.0) == "iterating"


def test_an_evaluation_that_began_and_did_not_end_is_under_way() -> None:
    """The last step line is that before it, and no result came."""
    run = run_with(*EVALUATIONS, *RESULTS[:3], steps=40)
    assert stage(run, 500.0) == "evaluating"
    assert stage(run_with(*EVALUATIONS, *RESULTS, steps=40), 500.0) == "iterating"


def test_an_interlude_that_is_due_and_tells_only_its_end_is_under_way() -> None:
    """The run itself shows that every tenth step one comes; of this one nothing came."""
    assert stage(run_with(*RESULTS[:3], steps=40), 404.0) == "evaluating"
    assert stage(run_with(*RESULTS[:3], steps=44), 444.0) == "iterating"


def test_a_checkpoint_is_ended_only_when_all_that_write_have_written() -> None:
    """One of two nodes has not."""
    written = [(n, 10.0 * i + 3.0, "shard of the checkpoint written") for n in ("n0", "n1") for i in (10, 20, 30)]
    begun = [("n0", 10.0 * i + 1.0, "saving checkpoint at step <*>") for i in (10, 20, 30, 40)]
    half = [*begun, *written, ("n0", 403.0, "shard of the checkpoint written")]
    assert stage(run_with(*half, steps=40), 500.0) == "saving"
    assert stage(run_with(*half, ("n1", 403.0, "shard of the checkpoint written"), steps=40), 500.0) == "iterating"


def test_an_exception_that_says_where_it_was_raised_is_believed() -> None:
    """An exception raised while saving counts as such, whatever the lines before it."""
    assert stage(run_with(), 460.0, "OSError: Disk quota exceeded [in save_checkpoint (checkpointing.py)]") == "saving"


@pytest.mark.parametrize(
    ("when", "expected"),
    [(5.0, "launch"), (12.0, "init"), (22.0, "data_load"), (32.0, "checkpoint_load")],
)
def test_before_the_first_step_the_last_line_that_tells_a_stage_counts(when: float, expected: str) -> None:
    """Lines after the deciding one are ignored."""
    run = run_with(
        ("n0", 10.0, "initialized the process group"),
        ("n1", 20.0, "building train datasets"),
        ("n0", 30.0, "loading checkpoint from <*>"),
        steps=0,
    )
    assert stage(run, when) == expected


def test_lines_that_warn_tell_no_stage() -> None:
    """A warning about a tokenizer's dataset is printed at any time."""
    run = run_with(("n0", 20.0, "building train datasets"), steps=0)
    event = run.events["building train datasets"]
    warned = RunProfile({"e": RunEvent("e", event.text, "warning", event.nodes)}, run.nodes)
    assert stage(warned, 30.0) == "launch"


def test_names_of_files_that_a_template_leaves_out_tell_a_stage() -> None:
    """A short line may say only there what it is about; a long one names much."""
    short = LineRef("n0.log", 1, "ckpt-40.data-00003 is written", None, 403.0, "n0")
    long = replace(short, text=f"{short.text} {'and more ' * 8}")
    told = [RunEvent("e", "<*> is written", None, {"n0": NodeEvent(1, (spot,))}) for spot in (short, long)]
    assert [stage_of(event) for event in told] == ["saving", None]


def test_what_a_process_wrote_to_another_file_tells_its_stage() -> None:
    """Its error file has the line that ends it only."""
    run = run_with(("n0", 30.0, "loading checkpoint from <*>"), steps=0)
    undated = {
        name: replace(
            event,
            nodes={
                n: replace(seen, spots=tuple(replace(s, time=None, dated=False) for s in seen.spots))
                for n, seen in event.nodes.items()
            },
        )
        for name, event in run.events.items()
    }
    run = replace(run, events=undated)
    failed = LineRef("n0.err", 0, "broken", None, None, "n0", dated=False)
    course = course_of(run, {})
    assert stage_at(run, course, None, {}, spot=failed) == "checkpoint_load"
    assert stage_at(run, course, None, {}, spot=replace(failed, node="n1")) == "launch"


@pytest.mark.parametrize(
    ("file", "expected"),
    [("snap/000040.pt", "checkpoint_load"), ("pile/part-7.parquet", "data_load"), ("a/b", "launch")],
)
def test_before_the_first_step_the_file_that_is_read_tells_the_stage(file: str, expected: str) -> None:
    """The program's word for it is nobody else's."""
    assert stage(run_with(("n0", 30.0, f"slurping {file}"), steps=0), 31.0) == expected


def test_weights_written_after_steps_are_saved_in_any_words() -> None:
    """Told when it begins: of the last one nothing followed. Told when it is over: it was."""
    begun = [("n0", 10.0 * i + 1.0, "snapping snap/latest.pt") for i in (10, 20, 30, 40)]
    over = [("n0", 10.0 * i + 8.0, "snapped snap/latest.pt") for i in (10, 20, 30, 40)]
    assert stage(run_with(*begun, steps=40), 500.0) == "saving"
    assert stage(run_with(*begun, *over, steps=40), 500.0) == "iterating"


def paused(*texts: str, after: float = 30.0) -> RunProfile:
    """A run that pauses after each tenth step and then says something; it ends within the fourth pause."""
    said = [
        ("n0", 10.0 * i + (after - 10.0) * (i / 10 - 1) + after - 2.0, text) for i in (10, 20, 30) for text in texts
    ]
    run = run_with(*said, steps=40)
    beats = []
    for beat in run.beats:
        time = 10.0 * beat.step + (after - 10.0) * ((beat.step - 1) // 10)
        beats.append(replace(beat, spot=replace(beat.spot, time=time, offset=int(time * 10))))
    return replace(run, beats=tuple(beats))


def test_a_value_for_which_the_run_pauses_is_an_evaluation_in_any_words() -> None:
    """The fourth one was due. Without a pause, without a value, or where weights are written then, it is none."""
    assert stage(paused("yardstick 3.25"), 475.0) == "evaluating"
    assert stage(paused("yardstick 3.25", after=10.0), 415.0) == "iterating"
    assert stage(paused("yardstick fine"), 475.0) == "iterating"
    assert stage(paused("yardstick 3.25", "snapped a/b.pt"), 475.0) == "saving"


def test_without_step_lines_an_interlude_that_was_begun_does_not_last() -> None:
    """A mark of steps says that it iterates; an exception may still say that it came of a save."""
    marks = tuple(
        StageBeginning(LineRef("n0.log", 10 * place, "", None, 5.0, "n0"), name)
        for place, name in enumerate(("init", "iterating", "saving"))
    )
    run = replace(run_with(steps=0), turns=marks)
    assert stage(run, 9.0) == "iterating"
    assert stage(run, 9.0, "OSError: no room [in save_checkpoint (kiln.py)]") == "saving"
    assert stage(replace(run, turns=(marks[0], marks[2])), 9.0) == "saving"
