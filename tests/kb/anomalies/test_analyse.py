"""Comparisons of a failed run with a good one, with its peers, and with its own past, joined (kb.anomalies)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bot.diagnosis.event_model import event_model
from kb.anomalies.analyse import RunFindings, measure_run
from kb.anomalies.analyse import find_anomalies as look_with
from kb.anomalies.build_run import build_run
from kb.anomalies.core.clock_skew import align_clocks, skews
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource, StepLine
from kb.anomalies.indicators import shown
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.runs.baseline_diff import Baseline, baseline_of, changed, compare, is_foreign, out_of_order, pooled
from kb.anomalies.time.change_step import changes, course_of
from kb.model import Job, Resource, StreamRef
from kb.report import Indicators
from kb.templates.miner import Miner

MODEL = event_model()
look = partial(look_with, model=MODEL)

USUAL = (
    "loading module fused kernels",
    "connected all rings of the group",
    "building the index of samples",
    "model has been moved to device",
    "optimizer states are ready now",
    "dataloader workers have started",
    "warm up of the schedule is done",
    "gradient buckets have been rebuilt",
    "first batch has been taken over",
)


def a_run(
    *odd: tuple[str, str, str | None, float],
    nodes: int = 4,
    steps: int = 40,
    state: str = "FAILED",
    slow_from: int | None = None,
) -> RunProfile:
    """A run of nodes that print the usual, step lines on the first, and odd lines: (node, text, level, seconds from the begin)."""
    names = [f"n{i}" for i in range(nodes)]
    said = [(node, text, "info", float(i)) for node in names for i, text in enumerate(USUAL)]
    events: dict[str, dict[str, list[LineRef]]] = {}
    levels: dict[str, str | None] = {}
    for place, (node, text, level, at) in enumerate((*said, *odd)):
        spot = LineRef(f"{node}.log", int(at * 100) + place, text, None, 1000.0 + at, node)
        events.setdefault(text, {}).setdefault(node, []).append(spot)
        levels[text] = level
    made = {
        text: RunEvent(
            text, text, levels[text], {n: NodeEvent(len(spots), tuple(spots)) for n, spots in by_node.items()}
        )
        for text, by_node in events.items()
    }
    beats = []
    now = 1020.0
    for step in range(1, steps + 1):
        seconds = 4.0 if slow_from is not None and step >= slow_from else 1.0
        now += seconds
        beats.append(StepLine(LineRef("n0.log", 10_000 + step, "", None, now, "n0"), step, seconds, 2.0))
    voices = tuple(
        RunSource(f"{n}.log", n, None, 100, LineRef(f"{n}.log", 10**6, "", None, now + 30, n)) for n in names
    )
    return RunProfile(made, tuple(names), tuple(beats), (), voices, state)


BROKEN = ("n2", "RuntimeError: CUDA error: uncorrectable ECC error encountered", None, 61.0)


def test_an_event_that_the_good_run_lacks_is_reported_with_its_node_stage_and_step() -> None:
    """What only the failed run says, at its end, on one node, is the answer."""
    found = look(a_run(BROKEN), baseline_of(a_run(state="COMPLETED")))
    assert [BROKEN[1]] == [event.event.text for event in found.events]
    assert found.nodes[0].node == "n2"
    assert (found.stage, found.step) == ("iterating", 41)


def test_without_a_good_run_it_works_and_says_so() -> None:
    """A missing good run costs the filter, not the answer."""
    found = look(a_run(BROKEN))
    assert [BROKEN[1]] == [event.event.text for event in found.events]
    kinds = len(a_run(BROKEN).events)
    assert found.said == (
        (
            "there was no good run of this job to compare with."
            f" {kinds} kinds of lines could not be filtered and may be usual for this job."
            " The surest are those that only some ranks or nodes printed"
        ),
    )


def test_how_far_it_goes_with_one_log_and_no_good_run_is_told() -> None:
    """Nothing can be compared: words and place are all there is."""
    assert look(a_run(("n0", *BROKEN[1:]), nodes=1)).said[0].endswith("speak for those that are shown")


def test_an_empty_good_run_and_one_of_another_job_are_not_used() -> None:
    """A baseline that cannot be right is left out aloud."""
    assert "empty" in look(a_run(BROKEN), Baseline({})).said[0]
    stranger = Baseline({(word, "of", "another", "job"): (10, 4, 3) for word in "abcdefghijklm"}, nodes=4, lines=400)
    assert is_foreign(a_run(BROKEN), stranger)
    assert "another job" in look(a_run(BROKEN), stranger).said[0]


def test_a_good_run_that_failed_itself_does_not_hide_the_same_failure() -> None:
    """The report says so, and the lines with which it failed do not count as usual."""
    stopped = tuple((f"n{i}", "Sending process 7 closing signal SIGTERM", "warning", 75.0) for i in range(4))
    failed = baseline_of(a_run(BROKEN, *stopped))
    found = look(a_run(BROKEN, *stopped), failed)
    assert [BROKEN[1]] == [event.event.text for event in found.events]
    assert "failed as well" in found.said[0]


def test_two_healthy_runs_give_no_indicator() -> None:
    """Drift and single odd lines of a run that ended well are not reported."""
    odd = ("n1", "lost connection to the metrics push gateway", "error", 30.0)
    assert shown(look(a_run(odd, state="COMPLETED"), baseline_of(a_run(state="COMPLETED")))) == Indicators()


def test_new_harmless_words_of_all_nodes_are_passed_over() -> None:
    """A new version's warning, which all print while they go on, ranks below what ended the run."""
    drift = tuple((f"n{i}", "unknown option is not supported by this driver", "warning", 10.0) for i in range(4))
    found = look(a_run(*drift, BROKEN), baseline_of(a_run(state="COMPLETED")))
    assert [BROKEN[1]] == [event.event.text for event in found.events]


def test_consequences_are_not_reported_beside_their_cause() -> None:
    """Peers that lost their connection are consequences."""
    peers = tuple((f"n{i}", "socketProgress: Connection closed by remote peer", "warning", 70.0) for i in (0, 1, 3))
    found = look(a_run(BROKEN, *peers), baseline_of(a_run(state="COMPLETED")))
    assert [BROKEN[1]] == [event.event.text for event in found.events]


def test_a_fault_of_all_nodes_names_none() -> None:
    """An exception that all ranks raise is the job's own."""
    all_nodes = tuple((f"n{i}", "ValueError: the world cannot be split", None, 61.0) for i in range(4))
    found = look(a_run(*all_nodes), baseline_of(a_run(state="COMPLETED")))
    assert [all_nodes[0][1]] == [event.event.text for event in found.events]
    assert found.nodes == ()


def test_one_node_has_no_peers() -> None:
    """With a single node, lines are reported but no node."""
    found = look(a_run(("n0", BROKEN[1], None, 61.0), nodes=1), baseline_of(a_run(nodes=1, state="COMPLETED")))
    assert ([BROKEN[1]], ()) == ([event.event.text for event in found.events], found.nodes)


def test_a_node_without_a_log_stands_out() -> None:
    """Silence is an indicator itself."""
    run = a_run()
    run = replace(run, nodes=(*run.nodes, "n9"))
    assert (look(run).nodes[0].node, look(run).nodes[0].why) == ("n9", "it left no log")


def test_a_log_that_ends_early_stands_out() -> None:
    """A node whose log ends long before its peers' is named."""
    run = a_run()
    short = replace(run.voices[3], last=LineRef("n3.log", 50, "", None, 700.0, "n3"))
    found = look(replace(run, voices=(*run.voices[:3], short)))
    assert found.nodes[0].node == "n3"
    assert found.nodes[0].why.startswith("its log ends")


def test_the_step_from_which_on_a_run_was_slower_is_reported() -> None:
    """A run that ended well and became slow turned where the slow steps begin."""
    run = a_run(state="COMPLETED", slow_from=25)
    found = look(run, baseline_of(a_run(state="COMPLETED")))
    assert found.step == 25
    assert shown(look(run)).events[0].why == "steps take 4 s from here on, 1 s before"


def test_single_slow_steps_turn_nothing() -> None:
    """Evaluations and checkpoints come and go."""
    run = a_run(state="COMPLETED")
    beats = tuple(replace(beat, seconds=9.0) if beat.step % 10 == 0 else beat for beat in run.beats)
    assert changes(course_of(replace(run, beats=beats), {})) == ()


def test_a_loss_that_is_no_number_any_more_is_reported() -> None:
    """The first step whose loss is not finite."""
    run = a_run(state="COMPLETED")
    beats = tuple(replace(beat, loss=float("nan")) if beat.step >= 30 else beat for beat in run.beats)
    assert look(replace(run, beats=beats)).step == 30


def test_counts_far_beyond_the_good_runs_are_fresh() -> None:
    """An event that the good run has too counts where it comes far more often."""
    retry = "write was slow and is tried again"
    good = baseline_of(a_run(("n1", retry, "warning", 5.0), state="COMPLETED"))
    many = tuple(("n1", retry, "warning", 5.0 + i) for i in range(40))
    assert compare(a_run(*many), good)[retry].fresh == 0.8
    assert compare(a_run(many[0]), good)[retry].fresh == 0.0


def test_versions_and_paths_do_not_make_an_event_new() -> None:
    """Events match by their words."""
    good = baseline_of(a_run(("n1", "loaded kernel library <*> version <*> from cache folder", None, 5.0)))
    new = "loaded kernel library version <*>.<*> from the cache folder"
    assert compare(a_run(("n1", new, None, 5.0)), good)[new].fresh == 0.0


def test_an_event_at_another_place_in_the_order_is_found() -> None:
    """Alignment of the order of first occurrences, not of sets."""
    late, early = ("n0", "checkpoint has been loaded", None, 9.5), ("n0", "checkpoint has been loaded", None, -5.0)
    assert out_of_order(a_run(late), baseline_of(a_run(early))) == (late[1],)


def test_what_was_set_otherwise_is_reported() -> None:
    """Settings of both runs are compared; what only one prints is not, but for options."""
    good = replace(baseline_of(a_run()), settings={"--lr": "1e-4", "driver_version": "550.1", "image": "a"})
    run = replace(a_run(), settings={"--lr": "3e-4", "driver_version": "550.1", "--bf16": "given"})
    assert changed(run, good) == (("--bf16", "", "given"), ("--lr", "1e-4", "3e-4"))


def test_what_any_of_several_good_runs_has_is_known_to_their_pool() -> None:
    """Pooled good runs serve as one; what they print is not reported, even without a run of the job itself."""
    odd = ("n1", "fatal: device is dead, cannot read it", "error", 61.0)
    pool = pooled([baseline_of(a_run(state="COMPLETED")), baseline_of(a_run(odd, state="COMPLETED"))], "other jobs")
    assert odd[1] in [event.event.text for event in look(a_run(odd)).events]
    found = look(a_run(odd, BROKEN), pool=pool)
    assert [BROKEN[1]] == [event.event.text for event in found.events]
    kinds = len(a_run(odd, BROKEN).events)
    assert found.said == (
        (
            "there was no good run of this job to compare with."
            f" Other jobs print {kinds - 1} of its {kinds} kinds of lines, too; these were left out."
            " 1 kind of lines could not be filtered and may be usual for this job."
            " The surest are those that only some ranks or nodes printed"
        ),
    )


def test_clocks_and_zones_are_brought_together() -> None:
    """A node that is hours ahead is found; lines that name their zone are aligned with those that do not."""
    run = a_run()
    ahead = {
        name: replace(
            event,
            nodes={
                node: replace(
                    seen, spots=tuple(replace(s, time=(s.time or 0) + 7200 * (node == "n3")) for s in seen.spots)
                )
                for node, seen in event.nodes.items()
            },
        )
        for name, event in run.events.items()
    }
    assert skews(replace(run, events=ahead)) == {"n3": 7200.0}
    local = LineRef("n0.log", 1, "2026-01-01 10:00:00 step", None, 36000.0, "n0")
    zoned = LineRef("n0.log", 2, "2026-01-01T08:00:01Z agent", None, 28801.0, "n0")
    mixed = RunProfile({"a": RunEvent("a", "a", None, {"n0": NodeEvent(2, (local, zoned))})}, ("n0",))
    assert [s.time for s in align_clocks(mixed).events["a"].nodes["n0"].spots] == [36000.0, 36001.0]


def test_binary_noise_and_cut_logs_are_borne() -> None:
    """Any content of a stream results in a run and an answer."""
    tables = []
    for node, data in (("a", bytes(range(256)) * 40), ("b", b"2026-01-01 10:00:00 ERROR: it bro"), ("c", b"")):
        miner = Miner(StreamRef(f"{node}.log", Resource(node=node)))
        miner.feed(data)
        tables.append(miner.finish())
    run = build_run(tables, (), Job(state="FAILED", nodes={"a": (), "b": (), "c": ()}))
    assert {"a", "b"} <= run.heard
    assert look(run) == look(build_run(tables[::-1], (), Job(state="FAILED", nodes={"a": (), "b": (), "c": ()})))


def test_the_report_shows_what_was_found_with_its_lines() -> None:
    """Indicators carry source, offset and node of the line that shows them."""
    told = shown(look(a_run(BROKEN), baseline_of(a_run(state="COMPLETED"))))
    evidence = told.events[0].evidence
    assert evidence is not None
    assert (evidence.source, evidence.node, evidence.time, evidence.id) == ("n2.log", "n2", 1061.0, "i1")
    assert told.events[0].why.startswith("not in the last good run, ")
    assert [stage.what for stage in told.stages] == ["iterating"]


def test_every_weight_is_of_a_feature_that_is_measured() -> None:
    """A name of an unmeasured feature would raise an error at the first failed job."""
    measured = measure_run(a_run(BROKEN), baseline_of(a_run(state="COMPLETED"))).measured
    wanted = {
        name
        for weights in (MODEL.with_good_run, MODEL.without_good_run)
        for key in weights.first
        for name in key.split("*")
        if name
    }
    assert measured
    assert all(wanted <= set(measured_event.features) for measured_event in measured)


def test_an_exception_that_the_interpreter_ignores_is_not_reported() -> None:
    """Python says itself that it goes on: what follows that word ends nothing."""
    ignored = (
        ("n1", "Exception ignored in: <function Loader.__del__>", None, 60.5),
        ("n1", "AssertionError: can only close what is open", None, 60.5),
    )
    found = look(a_run(*ignored, BROKEN), baseline_of(a_run(state="COMPLETED")))
    assert [BROKEN[1]] == [event.event.text for event in found.events]


def test_a_run_that_is_reported_to_go_on_and_stands_still_for_long_has_not_ended_well() -> None:
    """Others still speak an hour after the last step of a job that the scheduler calls running."""
    stuck = ("n1", "task of the loader is blocked: cannot read the shard", "error", 400.0)
    speaking = [(f"n{i}", "fatal: nobody answers, lost the file server", "error", 4000.0) for i in (1, 2, 3)]
    good = baseline_of(a_run(state="COMPLETED"))
    assert not measure_run(a_run(stuck, *speaking, state="RUNNING"), good).ending.well
    assert measure_run(a_run(stuck, state="RUNNING"), good).ending.well


def test_the_last_line_of_a_node_that_ends_early_is_reported() -> None:
    """What should have come next is missing; where it stopped is the evidence."""
    run = a_run()
    last = LineRef("n3.log", 50, "step is under way", 7, 700.0, "n3")
    short = replace(run.voices[3], last=last)
    found = look(replace(run, voices=(*run.voices[:3], short)))
    assert [(item.node, item.spot) for item in found.absent] == [("n3", last)]
    assert "the last line of n3: its log ends 390 s before the others" in {event.why for event in shown(found).events}


def test_an_exception_that_the_good_run_has_too_does_not_count_as_one_that_ended_the_run() -> None:
    """It lived with it."""
    usual = ("n1", "KeyError: sidecar", None, 60.5)
    found = look(a_run(BROKEN, usual), baseline_of(a_run(usual, state="COMPLETED")))
    assert [event.event.text for event in found.events] == [BROKEN[1]]


def test_a_loss_that_is_no_number_is_the_turn_if_nothing_was_raised_on_its_own() -> None:
    """What a launcher ended later is no cause; an exception is."""
    run = a_run(("n3", "Sending process 7 closing signal SIGTERM", None, 62.0))
    lost = tuple(replace(beat, loss=float("nan")) if beat.step > 30 else beat for beat in run.beats)
    good = baseline_of(a_run(state="COMPLETED"))
    assert look(replace(run, beats=lost), good).step == 31
    assert look(replace(a_run(BROKEN), beats=lost), good).turn is None


def test_little_time_lost_at_the_end_of_a_run_that_ended_well_is_nothing() -> None:
    """It may be chance, unless a step takes several times as long."""
    good = baseline_of(a_run(state="COMPLETED"))
    run = a_run(state="COMPLETED")
    paces = [0.1] * 25 + [0.2] * 15
    beats = tuple(
        replace(beat, seconds=pace, spot=replace(beat.spot, time=1020.0 + sum(paces[: number + 1])))
        for number, (beat, pace) in enumerate(zip(run.beats, paces, strict=True))
    )
    assert look(replace(run, beats=beats), good).turn is None


def test_a_node_that_stands_out_by_a_line_is_shown_with_it() -> None:
    """The ground says "this"; one that is about no line has none."""
    spot = LineRef("a.log", 0, "[rank 3] cache is cold", rank=3)
    odd = OddNode("rank 3", 0.5, "no other node or rank prints this", ("e",), spot)
    told = shown(RunFindings(nodes=(odd, replace(odd, node="rank 4", why="all others stop, and this one does not"))))
    assert [item.why for item in told.nodes] == [
        "no other node or rank prints this: [rank 3] cache is cold",
        "all others stop, and this one does not",
    ]


def test_an_exception_says_more_than_the_silence_of_another_node() -> None:
    """Which differs in its end for its own reasons."""
    run = a_run(nodes=6)
    voices = tuple(
        replace(voice, last=replace(voice.last, time=1010.0)) if voice.node == "n4" and voice.last else voice
        for voice in run.voices
    )
    good = baseline_of(a_run(nodes=6, state="COMPLETED"))
    assert [odd.node for odd in look(replace(run, voices=voices), good).absent] == ["n4"]
    broken = a_run(("n2", "OwnError: offsets turn back", None, 61.0), nodes=6)
    assert look(replace(broken, voices=voices), good).absent == ()


def test_the_last_line_that_names_a_rank_is_called_so() -> None:
    """Later lines of it may not name it."""
    spot = LineRef("a.log", 0, "[rank3] step 5", rank=3)
    odd = OddNode("rank 3", 0.5, "it is silent", (), spot)
    told = shown(RunFindings(absent=(odd, replace(odd, spot=replace(spot, text="step 5")))))
    assert [item.why for item in told.events] == [
        "the last line that names rank 3: it is silent",
        "the last line of rank 3: it is silent",
    ]


def test_a_number_that_each_rank_repeats_is_no_step() -> None:
    """Its place in the world, as `3/4`, stands where others print the step."""
    run = a_run(BROKEN, steps=12)
    stuck = replace(run, beats=tuple(replace(item, step=3) for item in run.beats))
    assert look(stuck, None).step is None
    assert look(run, None).step == 13


def _of_ranks(value: Callable[[int, int], float], *last: tuple[int, str], state: str = "FAILED") -> RunProfile:
    """Eight lines of each of six ranks in one log without times, with a number by rank and line, and last lines by rank."""
    spots = {
        rank: tuple(
            LineRef(
                "all.log",
                100 * at + rank,
                f"furlong {10 * at + 10} sap {value(rank, at):g}",
                None,
                None,
                f"rank {rank}",
                rank,
            )
            for at in range(8)
        )
        for rank in range(6)
    }
    nodes = {f"rank {rank}": NodeEvent(8, own) for rank, own in spots.items()}
    events = {"sap": RunEvent("sap", "furlong <*> sap <*>", None, nodes)}
    for at, (rank, text) in enumerate(last):
        spot = LineRef("all.log", 2000 + at, text, None, None, f"rank {rank}", rank)
        events[text] = RunEvent(text, text, "error", {f"rank {rank}": NodeEvent(1, (spot,))})
    voices = tuple(RunSource("all.log", f"rank {rank}", rank, 8, own[-1]) for rank, own in spots.items())
    return RunProfile(events, voices=voices, state=state)


def test_a_run_that_fails_by_a_number_that_moved_fails_at_its_end_and_one_that_is_stopped_turned_where_it_moved() -> (
    None
):
    """If another rank's line names the end, the end may have nothing to do with the number."""
    good = baseline_of(_of_ranks(lambda rank, at: rank + at, state="COMPLETED"))

    def rises(rank: int, at: int) -> float:
        return 4000.0 if rank == 2 and at > 2 else rank + at

    assert look(_of_ranks(rises, (2, "SapError: the cask is full")), good).step == 80
    assert look(_of_ranks(rises, (2, "SapError: the cask is full"), state="CANCELLED"), good).step == 40
    assert look(_of_ranks(rises, (4, "SapError: the cask is full"), state="CANCELLED"), good).step == 80


def test_a_number_that_moved_on_one_rank_is_told_of_a_run_that_goes_on_but_no_other_line() -> None:
    """Nothing has failed yet; without a good run to compare with, and of a run that has ended well, it is not told."""

    def slower(rank: int, at: int) -> float:
        return 380.0 if rank == 3 and at > 3 else 40.0 + at

    good = baseline_of(_of_ranks(lambda _, at: 40.0 + at, state="COMPLETED"))
    late = (1, "error: the spool was busy, it is free again")
    found = look(_of_ranks(slower, late, state="RUNNING"), good)
    assert ([odd.node for odd in found.drifted], found.events, found.step) == (["rank 3"], (), 50)
    assert found.stage == "iterating"
    assert look(_of_ranks(slower, late, state="COMPLETED"), good).drifted == ()
    assert look(_of_ranks(slower, late, state="RUNNING")).drifted == ()
    assert look(_of_ranks(lambda _, at: 40.0 + at, late, state="RUNNING"), good).drifted == ()


def test_the_ranks_that_left_with_the_same_new_words_are_suspected_first() -> None:
    """They are no more than the others, who lost them, one of them first."""
    lost = "RuntimeError: Connection closed by peer"
    said = {
        "strand <*> woven": (range(8), range(30)),
        "carrier <*> sent": (range(8), range(30)),
        "the loom is level, leaving": ((4, 5, 6, 7), (40,)),
        lost: ((0, 1, 2, 3), (41,)),
    }
    events = {}
    for place, (text, (ranks, seconds)) in enumerate(said.items()):
        nodes = {}
        for rank in ranks:
            late = text == lost and rank != 1
            spots = [
                LineRef(f"{rank}.log", 100 * n + place, text, None, 1000.0 + n + late, f"rank {rank}", rank)
                for n in seconds
            ]
            nodes[f"rank {rank}"] = NodeEvent(len(spots), tuple(spots))
        events[text] = RunEvent(text, text, "error" if text == lost else "info", nodes)
    lasts = {
        rank: events["the loom is level, leaving" if rank > 3 else lost].nodes[f"rank {rank}"].spots[-1]
        for rank in range(8)
    }
    voices = tuple(RunSource(f"{rank}.log", f"rank {rank}", rank, 90, spot) for rank, spot in lasts.items())
    run = RunProfile(events, voices=voices, state="FAILED")
    usual = replace(run, events={text: event for text, event in events.items() if "<*>" in text})
    found = look(run, baseline_of(usual))
    assert [event.event.text for event in found.events] == ["the loom is level, leaving"]
    assert {node.node for node in found.nodes[:4]} == {f"rank {rank}" for rank in range(4, 8)}
