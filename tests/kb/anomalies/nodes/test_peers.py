"""Nodes compared with their peers (kb.anomalies.nodes.peers)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.peers import lacking, off_values, shared_places


def printed(text: str, counts: dict[str, int], number: dict[str, float] | None = None) -> RunProfile:
    """A run in which each node prints one event so often, with a number in its lines."""
    nodes = {}
    for node, count in counts.items():
        value = (number or {}).get(node, 1.0)
        spots = tuple(
            LineRef(f"{node}.log", i, f"{text} {value:g}", None, float(i), node) for i in range(min(count, 4))
        )
        nodes[node] = NodeEvent(count, spots, {(f"{node}.log", None): count})
    voices = tuple(RunSource(f"{node}.log", node, None, 10) for node in counts)
    return RunProfile({"e": RunEvent("e", f"{text} <*>", None, nodes)}, tuple(counts), voices=voices)


def test_a_node_that_printed_a_usual_line_less_often_is_named() -> None:
    """All but one printed it nine times."""
    counts = {f"n{i}": 9 for i in range(8)} | {"n3": 8}
    assert [odd_node.node for odd_node in lacking(printed("step done", counts))] == ["n3"]


def test_several_that_differ_alike_are_not_the_odd_ones() -> None:
    """Half of them print it less often: these are two roles."""
    assert lacking(printed("loss", {f"n{i}": 9 if i % 2 else 4 for i in range(8)})) == ()


def test_numbers_far_from_all_others_name_their_node() -> None:
    """The values of lines that all print are compared."""
    run = printed("wait ms", {f"n{i}": 4 for i in range(6)}, {"n5": 80.0})
    found = off_values(run, None, {})
    assert [(odd_node.node, odd_node.why) for odd_node in found] == [("n5", "80 where the others have 1")]


def test_suspects_of_one_leaf_are_the_leafs() -> None:
    """Seven of eight suspects hang on one switch."""
    topology = {f"n{i}": {"leaf": "l1" if i < 8 else "l2"} for i in range(32)}
    (found,) = shared_places([f"n{i}" for i in range(7)] + ["n20"], topology)
    assert (found.place, found.suspects, found.of, found.members, found.nodes) == ("leaf l1", 7, 8, 8, 32)
    assert found.chance < 1e-4
    assert found.why.startswith("7 of the 8 suspicious nodes share it, out of 8 of the job's 32 nodes")


def test_suspects_that_share_a_place_by_chance_are_single_nodes() -> None:
    """Two nodes, or three of a rack on which most of the job runs, are not evidence against what they share."""
    topology = {f"n{i}": {"rack": "r1" if i < 24 else "r2"} for i in range(32)}
    assert shared_places(["n1", "n9"], topology) == ()
    assert shared_places(["n1", "n9", "n17"], topology) == ()
    assert shared_places([f"n{i}" for i in range(3)], {f"n{i}": {"leaf": "l1"} for i in range(32)}) == ()


def test_the_same_nodes_under_two_names_are_one_place() -> None:
    """A rack that is also a leaf is reported once."""
    topology = {f"n{i}": {"leaf": f"l{i // 8}", "rack": f"r{i // 8}"} for i in range(32)}
    assert [shared_place.place for shared_place in shared_places([f"n{i}" for i in range(8)], topology)] == ["leaf l0"]


def test_numbers_that_were_unlike_the_others_before_the_turn_too_say_nothing() -> None:
    """A node that always worked longer is so by its role; one that does since a time is not."""
    nodes = {}
    for i in range(6):
        usual = 50.0 if i == 1 else 10.0
        later = 80.0 if i == 4 else usual
        spots = [
            LineRef(f"n{i}.log", k, f"work {usual if k < 4 else later:g}", None, float(k), f"n{i}") for k in range(8)
        ]
        nodes[f"n{i}"] = NodeEvent(8, tuple(spots))
    run = RunProfile(
        {"e": RunEvent("e", "work <*>", None, nodes)},
        tuple(nodes),
        voices=tuple(RunSource(f"{node}.log", node, None, 10) for node in nodes),
    )
    assert [off_value.node for off_value in off_values(run, 4.0, {})] == ["n4"]


def test_times_and_processes_are_no_numbers_to_compare() -> None:
    """A launcher's line has a time of day in it."""
    seen = {
        f"n{i}": NodeEvent(
            2,
            tuple(
                LineRef("s", k, f"W0821 09:{40 + 3 * i}:47.459361 pid {9 * i + 7} hello", None, 1.0, f"n{i}")
                for k in (1, 2)
            ),
        )
        for i in range(6)
    }
    run = RunProfile(
        {"e": RunEvent("e", "W<*> hello", None, seen)},
        tuple(seen),
        voices=tuple(RunSource("s", n, None, 2) for n in seen),
    )
    assert off_values(run, None, {}) == ()
