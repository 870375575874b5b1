"""Steps by what repeats, where no line is a step line that is known (kb.anomalies.time.repeating)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource, StepLine
from kb.anomalies.time.repeating import finer_steps, repeating_steps, step_forms


def a_run(text: Callable[[int, int], str], *, shared: bool = False) -> RunProfile:
    """Six lines of each of four ranks, in a log each or in one."""
    nodes, voices = {}, []
    for rank in range(4):
        source = "train.log" if shared else f"{rank}.log"
        spots = tuple(
            LineRef(source, 100 * line + rank, text(rank, line), None, float(line), f"rank {rank}", rank)
            for line in range(6)
        )
        nodes[f"rank {rank}"] = NodeEvent(6, spots)
        voices.append(RunSource(source, f"rank {rank}", rank, 6, spots[-1]))
    return RunProfile({"e": RunEvent("e", "refilled", None, nodes)}, voices=tuple(voices))


def test_a_number_that_all_ranks_count_is_the_step() -> None:
    """The last one of each log is kept, in whatever words."""
    run = a_run(lambda rank, line: f"refilled {(rank * 7 + line * 5) % 11} rows (batch {4 * line + 4})")
    assert [(beat.step, beat.spot.source) for beat in repeating_steps(run).beats] == [
        (24, f"{rank}.log") for rank in range(4)
    ]


def test_ranks_that_share_a_log_count_together() -> None:
    """Each number comes once for each rank."""
    beats = repeating_steps(a_run(lambda _, line: f"batch {4 * line + 4}", shared=True)).beats
    assert [(beat.step, beat.spot.offset) for beat in beats] == [(24, 500 + rank) for rank in range(4)]
    early = repeating_steps(a_run(lambda rank, line: f"batch {4 * line + 4 * (rank == 2)}", shared=True))
    assert [beat.step for beat in early.beats] == [20, 20, 24, 20]


def test_numbers_of_each_rank_and_numbers_that_jump_are_no_steps() -> None:
    """Memory grows on each rank by itself; chance rises now and then."""
    assert repeating_steps(a_run(lambda rank, line: f"resident {600 + 17 * rank + line} MB")).beats == ()
    assert repeating_steps(a_run(lambda _, line: f"moved to {(line * 7919) % 101}")).beats == ()
    assert repeating_steps(a_run(lambda _, line: f"at {[0, 3, 8, 9, 20, 22][line]}.5 s")).beats == ()


def test_a_loss_that_names_no_step_gets_the_one_that_was_under_way() -> None:
    """By its place between the lines that count; behind the last of them, that one."""
    run = a_run(lambda _, line: f"batch {4 * line + 4}", shared=True)
    losses = tuple(StepLine(LineRef("train.log", at, "loss"), 0, None, 2.0) for at in (50, 153, 353, 900))
    assert [beat.step for beat in repeating_steps(replace(run, losses=losses)).beats] == [5, 10, 18, 24]
    assert repeating_steps(replace(a_run(lambda *_: "no number"), losses=losses)).beats == ()


def test_a_number_that_counts_the_lines_behind_the_step_is_none() -> None:
    """Every tenth step is printed, and each such line has its own number, too; before a number of samples, though, it is the step."""
    pages = a_run(lambda _, line: f"furlong {10 * line + 10}: page {line + 1} written")
    assert {beat.step for beat in repeating_steps(pages).beats} == {60}
    samples = a_run(lambda _, line: f"furlong {line + 1}: {10 * line + 10} sheaves bound")
    assert {beat.step for beat in repeating_steps(samples).beats} == {6}


def test_a_count_beside_a_loss_goes_before_a_slower_one() -> None:
    """A round of several steps is slower than they are, and often printed, too."""
    steps = a_run(lambda rank, line: f"furlong {4 * line + 4} loss 0.{31 - 3 * line}{rank}").events["e"]
    rounds = a_run(lambda _, line: f"circle {line + 1} closed").events["e"]
    run = a_run(lambda *_: "")
    assert {
        beat.step
        for beat in repeating_steps(
            replace(run, events={"a": replace(steps, text="furlong <*> loss <*>"), "b": replace(rounds, id="b")})
        ).beats
    } == {24}


def test_a_rotated_file_with_a_single_line_hides_no_count() -> None:
    """The newest file of a rank may have just begun; the others of the same rank count."""
    run = a_run(lambda _, line: f"furlong {4 * line + 4}")
    event = run.events["e"]
    seen = event.nodes["rank 1"]
    spots = (*seen.spots[:-1], replace(seen.spots[-1], source="1.log.1", offset=0))
    nodes = {**event.nodes, "rank 1": replace(seen, spots=spots)}
    beats = repeating_steps(replace(run, events={"e": replace(event, nodes=nodes)})).beats
    assert sorted(beat.step for beat in beats) == [20, 24, 24, 24]


def test_of_a_run_whose_lines_have_no_times_places_tell_which_count_is_slower() -> None:
    """Though a launcher's log has times."""
    steps = a_run(lambda _, line: f"furlong {line + 1}").events["e"]
    blinks = a_run(lambda _, line: f"blink {3 * line + 3}").events["e"]
    run = a_run(lambda *_: "")
    undated = {
        name: replace(
            event,
            id=name,
            nodes={
                node: replace(seen, spots=tuple(replace(spot, time=None) for spot in seen.spots))
                for node, seen in event.nodes.items()
            },
        )
        for name, event in (("a", blinks), ("b", steps))
    }
    assert {beat.step for beat in repeating_steps(replace(run, events=undated)).beats} == {6}


def test_the_count_of_steps_is_the_slowest_one() -> None:
    """Samples and pulses rise with the steps, but faster; a duration and an epoch are no count."""
    steps = a_run(lambda _, line: f"batch {line + 1}").events["e"]
    samples = a_run(lambda _, line: f"served {16 * line + 16}, after {5 * line + 5} s, pass {line // 4}").events["e"]
    run = a_run(lambda *_: "")
    both = replace(run, events={"b": replace(samples, id="b"), "c": replace(steps, id="c")})
    assert {beat.step for beat in repeating_steps(both).beats} == {6}
    assert {beat.step for beat in repeating_steps(replace(run, events={"b": samples})).beats} == {96}


def test_one_rank_counts_for_all() -> None:
    """If it prints enough such lines, which are no retries; their pace is known."""
    spots = tuple(LineRef("0.log", 50 * i, f"window {2 * i} of 90", None, 3.0 * i, "rank 0", 0) for i in range(9))
    event = RunEvent("w", "window", None, {"rank 0": NodeEvent(9, spots)})
    run = a_run(lambda *_: "idle")
    found = repeating_steps(replace(run, events={"w": event}))
    assert [beat.step for beat in found.beats] == [16]
    assert found.pace == 3.0
    assert repeating_steps(replace(run, events={"w": replace(event, text="retrying")})).beats == ()
    few = replace(event, nodes={"rank 0": NodeEvent(5, spots[:5])})
    assert repeating_steps(replace(run, events={"w": few})).beats == ()


def test_few_lines_of_few_ranks_count_if_they_can_count_nothing_else() -> None:
    """Three lines of one rank of four: an even count beside a value; the furthest one is the step."""
    found = a_run(lambda _, line: f"lap {10 * line + 10} residue {9 - line / 7:.3f}")
    spots = found.events["e"].nodes["rank 2"].spots[:3]
    one = replace(found.events["e"], nodes={"rank 2": NodeEvent(3, spots)})
    assert [beat.step for beat in repeating_steps(replace(found, events={"e": one})).beats] == [30]
    bare = replace(one, nodes={"rank 2": NodeEvent(3, tuple(replace(spot, text="lap 10") for spot in spots))})
    assert repeating_steps(replace(found, events={"e": bare})).beats == ()


def _events(*lines: Callable[[int, int], str], gap: int = 0) -> RunProfile:
    """One kind of line after the other, six of each of four ranks, each rank in its own log; `gap`: bytes before the last kind."""
    run = a_run(lambda *_: "")
    events = {}
    for kind, text in enumerate(lines):
        nodes = {
            node: replace(
                seen,
                spots=tuple(
                    replace(
                        spot,
                        offset=spot.offset * (8 if gap and kind == len(lines) - 1 else 1) + gap * kind,
                        text=text(spot.rank or 0, at),
                    )
                    for at, spot in enumerate(seen.spots)
                ),
            )
            for node, seen in a_run(lambda *_: "").events["e"].nodes.items()
        }
        name = f"kind {kind}"
        events[name] = RunEvent(name, re.sub(r"\d+(?:\.\d+)?", "<*>", text(0, 0)), None, nodes)
    ends = {
        voice.source: max(s.offset for e in events.values() for s in e.nodes[voice.node].spots) for voice in run.voices
    }
    voices = tuple(
        replace(voice, last=LineRef(voice.source, ends[voice.source], time=9.0, node=voice.node))
        for voice in run.voices
    )
    return replace(run, events=events, voices=voices)


def _sheaf(_: int, line: int) -> str:
    return f"sheaf {line + 1}/6 bound"


def _furlong(_: int, line: int) -> str:
    return f"furlong {2 * line + 2} rust 0.{71 - line}"


def test_a_loop_of_the_start_up_counts_no_steps() -> None:
    """It has an end and is over early; the steps go on to the end of the log, and state a value."""
    assert {beat.step for beat in repeating_steps(_events(_sheaf, _furlong, gap=700)).beats} == {12}


def test_a_run_without_the_lines_that_count_the_steps_of_a_good_run_made_none() -> None:
    """One such line is enough to know the step."""
    forms, steps = step_forms(_events(_sheaf, _furlong, gap=700))
    assert forms == {("furlong", "rust"): 0}
    assert {step.step for step in steps} == {2, 4, 6, 8, 10, 12}
    early = _events(_sheaf)
    assert {beat.step for beat in repeating_steps(early).beats} == {6}
    assert repeating_steps(early, forms).beats == ()
    event = _events(_furlong).events["kind 0"]
    one = replace(event, nodes={"rank 1": NodeEvent(1, event.nodes["rank 1"].spots[:1])})
    begun = replace(early, events={**early.events, "one": one})
    assert [beat.step for beat in repeating_steps(begun, forms).beats] == [2]


def test_the_rows_of_a_table_count() -> None:
    """They have no words; a ruler has no numbers."""
    rows = _events(lambda _, line: f"|  {line + 1} | 0.{92 - line} |  17 |")
    assert {beat.step for beat in repeating_steps(rows).beats} == {6}


def test_speakers_of_one_log_that_are_not_told_apart_count_together() -> None:
    """Each number comes as often as there are speakers, now and then in another order; an epoch beside a step is none."""
    order = [1, 1, 1, 2, 2, 3, 2, 3, 3, 4, 4, 4]
    nodes = {
        f"oast{box}": NodeEvent(
            12,
            tuple(
                LineRef(f"oast{box}.log", 90 * at, f"furlong {step} rust 0.{70 - step}", None, float(at), f"oast{box}")
                for at, step in enumerate(order)
            ),
        )
        for box in (1, 2)
    }
    voices = tuple(RunSource(seen.spots[0].source, node, None, 12, seen.spots[-1]) for node, seen in nodes.items())
    run = RunProfile({"e": RunEvent("e", "furlong <*> rust <*>", None, nodes)}, tuple(nodes), voices=voices)
    assert [beat.step for beat in repeating_steps(run).beats] == [4, 4]


def test_lines_between_sparse_step_lines_tell_the_step() -> None:
    """If they count the same: at the time of each step line they are where it is."""
    run = a_run(lambda _, line: f"furlong {4 * line + 4} rust 0.{71 - line}")
    event = run.events["e"]
    run = replace(run, events={"e": replace(event, text="furlong <*> rust <*>")})

    def sparse(*steps: int) -> RunProfile:
        return replace(run, beats=tuple(StepLine(LineRef("0.log", 90, time=step / 4 - 1.0), step) for step in steps))

    assert max(line.step for line in finer_steps(sparse(8, 16))) == 24
    assert finer_steps(sparse(8, 12)) == ()  # they are not sparse
    late = tuple(replace(beat, step=beat.step + 60) for beat in sparse(8, 16).beats)
    assert finer_steps(replace(run, beats=late)) == ()
