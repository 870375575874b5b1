"""Who is suspected, and what speaks against whom (kb.anomalies.nodes.mentions, kb.anomalies.nodes.evidence, kb.anomalies.nodes.suspects)."""

from __future__ import annotations

from dataclasses import replace

from bot.diagnosis.event_model import event_model
from kb.anomalies.analyse import find_anomalies
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource, StepLine
from kb.anomalies.indicators import shown
from kb.anomalies.nodes.mentions import NodeNames
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.nodes.suspects import suspects
from kb.anomalies.nodes.turning_point import TurningPoint

AT = 1000.0
MOMENT = TurningPoint(AT, 10.0, crashed=True)
Said = tuple[int, str, float]  # node, text, seconds since the last step


def a_job(*said: Said, nodes: int = 8, level: str | None = "info", steps: bool = True) -> RunProfile:
    """A run whose nodes print the usual lines, each with its address, and some other lines, all since an hour before the turn."""
    lines = [(i, f"bootstrap: using eth0:10.0.0.{i + 1}<0>", -3600.0) for i in range(nodes)]
    lines += [(i, "samples of this part have been read", float(-100 * k)) for i in range(nodes) for k in range(1, 5)]
    spots: dict[str, dict[str, list[LineRef]]] = {}
    for node, text, after in sorted((*lines, *said), key=lambda line: line[2]):
        name = "bootstrap: using eth0:<*><0>" if text.startswith("bootstrap") else text
        spot = LineRef(f"n{node}.log", int(after) + 10_000, text, None, AT + after, f"n{node}", node)
        spots.setdefault(name, {}).setdefault(f"n{node}", []).append(spot)
    events = {
        name: RunEvent(
            name,
            name,
            level if any(name == text for _, text, _ in said) else "info",
            {
                n: NodeEvent(len(item), tuple(item[:4] + item[4:][-4:]), {(f"{n}.log", item[0].rank): len(item)})
                for n, item in by.items()
            },
        )
        for name, by in spots.items()
    }
    names = tuple(f"n{i}" for i in range(nodes))
    voices = tuple(
        RunSource(f"{n}.log", n, i, 50, LineRef(f"{n}.log", 99_999, "", None, AT + 90, n)) for i, n in enumerate(names)
    )
    beats = (
        tuple(StepLine(LineRef("n0.log", i, "", None, AT - 10 * (20 - i), "n0"), i) for i in range(1, 21))
        if steps
        else ()
    )
    return RunProfile(events, names, beats, (), voices, "FAILED")


def named(run: RunProfile, *, new: tuple[str, ...] = (), moment: TurningPoint = MOMENT) -> tuple[OddNode, ...]:
    """The suspects, where the good run lacks the given events."""
    fresh = {name: 1.0 if name in new else 0.0 for name in run.events}
    return suspects(run, fresh, (), moment, {})


def test_nodes_that_all_say_the_same_are_no_suspects() -> None:
    """Nothing speaks against anybody."""
    assert named(a_job()) == ()


def test_the_node_whose_peers_name_its_address_is_suspected_though_it_says_nothing() -> None:
    """The owner of the address is known from a line that all nodes print."""
    text = "connection closed by remote peer 10.0.0.6<4242>"
    run = a_job(*[(i, text, 30.0 + i) for i in range(8) if i != 5], level="warning")
    first = named(run, new=(text,))[0]
    assert first.node == "n5"
    assert "7 others mention it" in first.why


def test_names_of_hosts_addresses_and_ranks_are_found_in_lines() -> None:
    """A line's own speaker, addresses that no node has, and a process group's own numbers are ignored."""
    names = NodeNames(a_job())
    spot = LineRef("n0.log", 1, "", None, AT, "n0")

    def of(text: str) -> set[str]:
        return set(names.of(replace(spot, text=text), ranks=True))

    assert of("no answer from node n3.cluster.local or n4 for 59 s") == {"n4"}
    assert of("closed by remote peer 10.0.0.8<31>, own 10.0.0.1, 10.9.9.9") == {"n7"}
    assert of("waiting for rank 6") == {"n6"}
    assert of("process 5 terminated with signal SIGABRT") == {"n5"}
    assert of("member 4 on a host (pid 2) left with status 7") == {"n4"}
    assert of("process 5 starts") == set()
    assert of("[Rank 2] watchdog caught a timeout") == set()


def test_what_one_node_says_since_the_turn_counts_more_than_what_another_reported_long_before() -> None:
    """The same words, at another time."""
    text, old = "device lost the link", "device lost the lane"
    run = a_job((2, text, 5.0), (6, old, -3000.0), level="warning")
    assert named(run, new=(text, old))[0].node == "n2"


def test_a_line_that_healthy_nodes_print_too_counts_where_it_comes_far_oftener_since_the_turn() -> None:
    """One retry here and there is usual, six in a minute on one node are not."""
    text = "read timed out, trying another replica"
    run = a_job(*[(4, text, 10.0 * k) for k in range(6)], (1, text, -900.0), (6, text, -2000.0), level="warning")
    assert named(run)[0].node == "n4"


def test_several_nodes_that_are_odd_alike_are_all_named() -> None:
    """Two of eight say the same at the same time, a third another thing at another."""
    text = "node will be shut down for maintenance"
    run = a_job((2, text, 1.0), (5, text, 2.0), (7, "sensor could not be read", -1500.0), level="warning")
    found = [item.node for item in named(run, new=(text, "sensor could not be read"))]
    assert set(found[:2]) == {"n2", "n5"}


def test_two_nodes_are_enough_to_compare() -> None:
    """Who raises what the other does not is suspected."""
    text = "RuntimeError: an illegal instruction was encountered"
    assert [item.node for item in named(a_job((1, text, 2.0), nodes=2, level="error"), new=(text,))][:1] == ["n1"]


def test_one_node_has_no_peers_and_a_fault_of_all_names_none() -> None:
    """In both cases there are no peers to compare with."""
    text = "ValueError: the batch cannot be divided"
    assert named(a_job((0, text, 1.0), nodes=1, level="error"), new=(text,)) == ()
    run = a_job(*[(i, text, 1.0) for i in range(8)], level="error")
    assert suspects(run, dict.fromkeys(run.events, 1.0), [(text, 0.9)], MOMENT, {}) == ()


def test_a_node_that_left_no_log_is_named_and_more_so_where_no_step_was_done() -> None:
    """Silence is an indicator itself: a node that never came holds all others up."""
    run = a_job()
    trained = named(replace(run, nodes=(*run.nodes, "n9")))
    waiting = named(replace(run, nodes=(*run.nodes, "n9"), beats=()), moment=TurningPoint(AT, 10.0, crashed=True))
    assert [(item.node, item.why) for item in trained] == [("n9", "it left no log")]
    assert [item.node for item in waiting] == ["n9"]
    assert waiting[0].score > trained[0].score


def test_a_node_whose_log_is_cut_off_is_named() -> None:
    """It ends ten minutes before the others'."""
    run = a_job()
    cut = replace(run.voices[3], last=LineRef("n3.log", 50, "", None, AT - 600.0, "n3"))
    found = named(replace(run, voices=(*run.voices[:3], cut, *run.voices[4:])))
    assert [item.node for item in found] == ["n3"]
    assert found[0].why.startswith("its log ends")


def test_a_rank_that_does_not_cry_with_the_others_is_suspected() -> None:
    """All others time out; the one that hangs says nothing."""
    text = "RuntimeError: collective timed out"
    run = a_job(*[(i, text, 40.0) for i in range(8) if i != 6], level="error")
    assert named(run, new=(text,))[0].node == "n6"


def test_usual_lines_that_one_node_lacks_at_the_end_tell_a_hang() -> None:
    """Its peers reached the evaluation, it did not."""
    lines = [
        (i, text, 20.0) for i in range(8) if i != 2 for text in ("evaluation of my part is done", "my part is sent")
    ]
    assert named(a_job(*lines))[0].node == "n2"


def test_suspects_of_one_leaf_are_one_suspect_in_the_report() -> None:
    """Six of six nodes that lose their link hang on one switch of four: the switch is named before them."""
    text = "RuntimeError: link of the device went down"
    lost = [(i, text, 1.0 + i / 10) for i in range(6)]
    run = a_job(*lost, nodes=32, level="error")
    topology = {f"n{i}": {"leaf": f"l{i // 8}", "rail": str(i % 2)} for i in range(32)}
    told = shown(find_anomalies(run, model=event_model(), topology=topology)).nodes
    assert told[0].what == "leaf l0"
    assert told[0].why.startswith("6 of the 6 suspicious nodes share it, out of 8 of the job's 32 nodes")
    assert {item.what for item in told[1:]} == {f"n{i}" for i in range(6)}


def test_the_only_named_node_is_not_set_apart_from_ranks() -> None:
    """Where some lines name one node and others only ranks, the ranks are probably on that node, too."""
    run = a_job((0, "ERROR: something broke", 30.0), nodes=1)
    voices = (*run.voices, RunSource("rank-1.log", "rank 1", 1, 5), RunSource("rank-2.log", "rank 2", 2, 5))
    assert "n0" not in {odd.node for odd in named(replace(run, voices=voices), new=("ERROR: something broke",))}


def by_rank(run: RunProfile, log: str = "train.log") -> RunProfile:
    """The same run with ranks in place of nodes, and a launcher's log in place of the last."""
    last = len(run.nodes) - 1
    names = {f"n{i}": f"rank {i}" if i < last else log for i in range(last + 1)}
    events = {
        name: replace(event, nodes={names[node]: seen for node, seen in event.nodes.items()})
        for name, event in run.events.items()
    }
    voices = tuple(
        replace(voice, node=names[voice.node], source=log if names[voice.node] == log else voice.source)
        for voice in run.voices
    )
    return replace(run, nodes=(), events=events, voices=voices)


def test_a_launchers_log_is_no_peer_of_the_ranks() -> None:
    """It is not counted with them, and it is no suspect."""
    run = by_rank(a_job((2, "window 17 rejected", -1.0), (7, "no signal from the agent", 1.0), level="error", nodes=8))
    found = find_anomalies(run, model=event_model())
    assert run.kinds["train.log"] == "log"
    assert "train.log" not in {node.node for node in found.nodes}
    told = {event.event.id: event.why for event in found.events}
    assert "only rank 2 printed this" in told["window 17 rejected"]


def test_only_the_first_by_its_own_time_reported_trouble_first() -> None:
    """A line without a time has that of an earlier line, which does not say when it was printed."""
    run = a_job((2, "window 17 rejected", -1.0), (5, "chunk of the reader is invalid", 1.0), level="error")
    why = " ".join(node.why for node in named(run, new=("window 17 rejected", "chunk of the reader is invalid")))
    assert why.count("reported trouble first") <= 1
    undated = {
        name: replace(
            event,
            nodes={
                node: replace(seen, spots=tuple(replace(spot, dated=False) for spot in seen.spots))
                for node, seen in event.nodes.items()
            },
        )
        for name, event in run.events.items()
    }
    found = named(replace(run, events=undated), new=("window 17 rejected", "chunk of the reader is invalid"))
    assert found
    assert "reported trouble first" not in " ".join(node.why for node in found)


def test_a_rank_that_its_launcher_saw_end_by_a_signal_is_first() -> None:
    """It cannot say so itself; the launcher's words for the others' ends are no signal."""
    killed, left = "worker 4 exited with exit code -11", "worker 2 exited with exit code 1"
    run = by_rank(a_job((7, killed, 1.0), (7, left, 2.0), (2, "link is down, giving up", 1.5), level="error"))
    told = [(killed, 0.9), ("link is down, giving up", 0.5)]
    fresh = {name: float(name in (killed, left, "link is down, giving up")) for name in run.events}
    first = suspects(run, fresh, told, MOMENT, {})[0]
    assert first.node == "rank 4"
    assert "its launcher reports the signal" in first.why


def test_a_rank_that_reports_on_another_and_ends_by_it_is_not_first() -> None:
    """It ends with another status than those that lose it, and does not cry like them."""
    text, lost = "member 4 adds nothing, ending", "connection reset by peer"
    said = [(0, text, 1.0), *((rank, lost, 2.0) for rank in range(1, 7))]
    said += [(7, f"member {rank} is over: {13 if rank == 0 else 1}", 3.0) for rank in range(7)]
    run = by_rank(a_job(*said, level="error"))
    table = replace(
        run.events["member 0 is over: 13"],
        id="table",
        nodes={
            "train.log": NodeEvent(
                7,
                tuple(
                    run.events[f"member {r} is over: {13 if r == 0 else 1}"].nodes["train.log"].spots[0]
                    for r in range(7)
                ),
            )
        },
    )
    events = {name: event for name, event in run.events.items() if "is over" not in name} | {"table": table}
    run = replace(run, events=events)
    fresh = {name: float(name in (text, lost, "table")) for name in run.events}
    assert suspects(run, fresh, [(text, 0.6)], MOMENT, {})[0].node == "rank 4"
