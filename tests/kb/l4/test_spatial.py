"""Nodes beside their peers (kb.l4.spatial)."""

from __future__ import annotations

from kb.l4.run import Event, Run, Seen, Spot, Voice
from kb.l4.spatial import groups, lacking, off_values


def printed(text: str, counts: dict[str, int], number: dict[str, float] | None = None) -> Run:
    """A run in which each node prints one event so often, with a number in its lines."""
    nodes = {}
    for node, count in counts.items():
        value = (number or {}).get(node, 1.0)
        spots = tuple(Spot(f"{node}.log", i, f"{text} {value:g}", None, float(i), node) for i in range(min(count, 4)))
        nodes[node] = Seen(count, spots, {(f"{node}.log", None): count})
    voices = tuple(Voice(f"{node}.log", node, None, 10) for node in counts)
    return Run({"e": Event("e", f"{text} <*>", None, nodes)}, tuple(counts), voices=voices)


def test_a_node_that_printed_a_usual_line_less_often_is_named() -> None:
    """All but one printed it nine times."""
    counts = {f"n{i}": 9 for i in range(8)} | {"n3": 8}
    assert [one.node for one in lacking(printed("step done", counts))] == ["n3"]


def test_several_that_differ_alike_are_not_the_odd_ones() -> None:
    """Half of them print it less often: these are two roles."""
    assert lacking(printed("loss", {f"n{i}": 9 if i % 2 else 4 for i in range(8)})) == ()


def test_numbers_far_from_all_others_name_their_node() -> None:
    """The values of lines that all print are compared."""
    run = printed("wait ms", {f"n{i}": 4 for i in range(6)}, {"n5": 80.0})
    found = off_values(run, None, {})
    assert [(one.node, one.why) for one in found] == [("n5", "80 where others have 1")]


def test_suspects_of_one_leaf_are_the_leafs() -> None:
    """Seven of eight suspects hang on one switch."""
    topology = {f"n{i}": {"leaf": "l1" if i < 8 else "l2"} for i in range(32)}
    assert groups([f"n{i}" for i in range(7)] + ["n20"], topology) == ("leaf l1",)
    assert groups(["n1", "n9"], topology) == ()
