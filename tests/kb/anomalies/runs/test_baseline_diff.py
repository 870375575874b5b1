"""A run against a good one: its own failure, its length, the order of its events (kb.anomalies.runs.baseline_diff)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.runs.baseline_diff import baseline_of, compare, doubts, out_of_order


def a_run(*texts: str, nodes: int = 2, lines: int = 100) -> RunProfile:
    """Nodes that print texts in order, one a second."""
    names = [f"n{i}" for i in range(nodes)]
    events: dict[str, dict[str, list[LineRef]]] = {}
    for node in names:
        for place, text in enumerate(texts):
            spot = LineRef(f"{node}.log", place * 100, text, place + 1, 1000.0 + place, node)
            events.setdefault(text, {}).setdefault(node, []).append(spot)
    made = {
        text: RunEvent(text, text, None, {node: NodeEvent(len(spots), tuple(spots)) for node, spots in by_node.items()})
        for text, by_node in events.items()
    }
    return RunProfile(
        made, tuple(names), (), (), tuple(RunSource(f"{n}.log", n, None, lines) for n in names), "COMPLETED"
    )


WORK = ("loading the shards", "step is done", "step is done", "step is done", "step is done")
CRASH = ("RuntimeError: the link is gone", "Sending process 12 closing signal SIGTERM")


def test_a_good_run_that_failed_itself_is_found_out_and_its_end_does_not_count() -> None:
    """An exception after which nothing usual comes, and a launcher that stops the others."""
    good = baseline_of(a_run(*WORK, *CRASH))
    assert good.failed == CRASH[0]
    assert compare(a_run(*WORK, *CRASH), good)[CRASH[0]].fresh == 1.0
    assert doubts(a_run(*WORK, *CRASH), good) == [
        f"the good run seems to have failed as well ({CRASH[0]!r}); its last lines do not count as normal"
    ]


def test_an_exception_after_which_the_work_went_on_is_no_failure() -> None:
    """Healthy runs raise, too; and what the interpreter ignores ends nothing."""
    assert baseline_of(a_run(WORK[0], *CRASH, *WORK)).failed == ""
    assert baseline_of(a_run(*WORK, "Exception ignored in: <function gone>", *CRASH)).failed == ""


def test_a_good_run_of_many_times_the_length_is_reported() -> None:
    """Its counts say little then."""
    good = baseline_of(a_run(*WORK, lines=100_000))
    assert doubts(a_run(*WORK), good) == [
        "the good run is 1000 times as long; its lines count as normal however often they occur"
    ]
    assert compare(a_run(*WORK), good)["step is done"].fresh == 0.0
    assert doubts(a_run(*WORK), baseline_of(a_run(*WORK))) == []


def test_as_many_events_as_can_be_keep_their_place_when_orders_are_aligned() -> None:
    """One that moved is one, and not all behind it."""
    good = baseline_of(a_run("one here", "two here", "three here", "four here"))
    assert out_of_order(a_run("two here", "three here", "four here", "one here"), good) == ("one here",)
    assert out_of_order(a_run("one here", "four here", "new words", "three here"), good) == ("four here",)
    assert out_of_order(a_run("five here"), good) == ()


def test_a_count_beyond_the_good_runs_is_reported_as_a_power_of_two() -> None:
    """Three times on a node where the good run has it once; lines that are new get no power."""
    good = baseline_of(a_run("retry it", "done now"))
    found = compare(a_run("retry it", "retry it", "retry it", "quite new words"), good)
    assert (found["retry it"].excess, found["quite new words"].excess) == (1.0, 0.0)


def test_a_new_event_knows_how_like_a_known_one_it_is() -> None:
    """By the words that both have; a stranger is like none."""
    good = baseline_of(a_run("opened shard of the data set"))
    found = compare(a_run("closed shard of the data set", "gibberish"), good)
    assert (round(found["closed shard of the data set"].like, 2), found["gibberish"].like) == (0.71, 0.0)


def test_a_run_without_events_gives_an_empty_baseline() -> None:
    """Nothing in, nothing out."""
    assert baseline_of(replace(a_run(), events={})).empty
