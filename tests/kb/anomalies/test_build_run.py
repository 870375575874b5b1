"""What a run was set to, out of its job's record and its first lines (kb.anomalies.build_run), and what nodes have otherwise (kb.anomalies.runs.baseline_diff)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.analyse import RunFindings
from kb.anomalies.build_run import build_run
from kb.anomalies.core.run import RunProfile, has_failed
from kb.anomalies.indicators import shown
from kb.anomalies.nodes.drifts import drifting
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.runs.baseline_diff import Baseline, DifferingSetting, changed, differing_settings
from kb.model import Attempt, Job, ProgressPoint, Resource, StreamRef, Structure
from kb.scanning.summary import Series, StreamSummary
from kb.templates.miner import Miner
from kb.templates.table import TemplateTable


def a_table(node: str, *lines: str) -> TemplateTable:
    """A node's log."""
    miner = Miner(StreamRef(f"{node}.log", Resource(node=node)))
    miner.feed("\n".join((*lines, "")).encode())
    return miner.finish()


def a_run(drivers: dict[str, str]) -> RunProfile:
    """Nodes that say which driver they have."""
    tables = [
        a_table(node, f"driver_version: {driver}", "commit=abc123 batch_size=512") for node, driver in drivers.items()
    ]
    return build_run(
        tables, (), Job(args="--lr 1e-4 --bf16 --hub-token hf_secret", framework="megatron", image="train:7")
    )


def test_settings_come_from_the_record_and_from_lines_that_all_nodes_print_alike() -> None:
    """Options, image, framework; versions, commits and batch sizes as logged. No secret is among them."""
    assert a_run({"a": "570.1", "b": "570.1"}).settings == {
        "--lr": "1e-4", "--bf16": "given", "framework": "megatron", "image": "train:7",
        "driver_version": "570.1", "commit": "abc123", "batch_size": "512",
    }  # fmt: skip


def test_a_setting_that_few_nodes_have_otherwise_is_reported_with_them() -> None:
    """One node's driver is not the others'."""
    run = a_run({"a": "570.1", "b": "570.1", "c": "565.4", "d": "570.1"})
    assert differing_settings(run) == (DifferingSetting("driver_version", "565.4", ("c",), "570.1"),)
    told = shown(RunFindings(nodes=(OddNode("c", 0.5, "it is odd"),), unlike=differing_settings(run)))
    assert [(event.what, event.why) for event in told.events] == [("driver_version: 565.4 on c", "570.1 on the others")]


def test_halves_and_numbers_of_each_node_are_no_odd_settings() -> None:
    """Two kinds of nodes are a design, and a value of each node's own is an identity."""
    assert differing_settings(a_run({"a": "1", "b": "1", "c": "2", "d": "2"})) == ()
    assert differing_settings(a_run({f"n{i}": f"9.{i}" for i in range(8)})) == ()


def test_what_the_job_was_built_of_stands_first_among_what_changed() -> None:
    """Image and driver before a learning rate."""
    run = a_run({"a": "570.1", "b": "570.1"})
    good = Baseline({}, settings={"--lr": "3e-4", "image": "train:6", "driver_version": "570.1", "batch_size": "256"})
    now = replace(run, settings={name: value for name, value in run.settings.items() if name in (good.settings or {})})
    assert changed(now, good) == (
        ("image", "train:6", "train:7"),
        ("--lr", "3e-4", "1e-4"),
        ("batch_size", "256", "512"),
    )


def test_a_job_has_failed_by_its_state_or_its_exit_code() -> None:
    """Not by being stopped, or by nothing known."""
    assert has_failed(Job(state="FAILED"))
    assert has_failed(Job(attempts=(Attempt(1), Attempt(2, exit_code=137))))
    assert not has_failed(Job(state="CANCELLED"))
    assert not has_failed(Job(attempts=(Attempt(1, exit_code=1), Attempt(2, exit_code=0))))
    assert not has_failed(Job())


def a_shared_log(*lines: str, name: str = "train.log") -> TemplateTable:
    """A log of all ranks."""
    miner = Miner(StreamRef(name))
    miner.feed("\n".join((*lines, "")).encode())
    return miner.finish()


def by_ranks(ranks: int, steps: int) -> list[str]:
    """What ranks write to one log."""
    return [f"[rank{rank}]: heartbeat at {step}" for step in range(steps) for rank in range(ranks)]


def test_ranks_that_share_a_log_are_compared_with_each_other() -> None:
    """Each has its own count and last line; what names no rank is the log's own."""
    run = build_run([a_shared_log("launcher starts", *by_ranks(4, 5), "[rank2]: odd one out")])
    assert run.heard == {"rank 0", "rank 1", "rank 2", "rank 3", "train.log"}
    assert {voice.node: voice.last.text for voice in run.voices if voice.last and voice.rank in (1, 2)} == {
        "rank 1": "[rank1]: heartbeat at 4", "rank 2": "[rank2]: odd one out",
    }  # fmt: skip
    (odd,) = [event for event in run.events.values() if "odd" in event.text]
    assert list(odd.nodes) == ["rank 2"]
    (beat,) = [event for event in run.events.values() if "heartbeat" in event.text]
    assert {node: seen.count for node, seen in beat.nodes.items()} == {f"rank {rank}": 5 for rank in range(4)}


def test_a_number_that_no_rank_of_the_job_has_is_not_one() -> None:
    """A launcher's process id stands where the lines of the ranks name theirs."""
    table = a_shared_log(*by_ranks(6, 8), "[rank 31817] INFO all members started", "[rank 31817] INFO stopping all")
    assert {voice.node for voice in build_run([table]).voices} == {"train.log", *(f"rank {rank}" for rank in range(6))}
    few = a_shared_log(*by_ranks(6, 8), "[rank7]: relayed", "[rank7]: relayed")
    assert "rank 7" in build_run([few]).heard
    assert "rank 7" not in build_run([few], (), Job(world_size=6)).heard


def test_ranks_of_a_shared_log_keep_lines_enough_to_see_a_number_move() -> None:
    """The first and last few of each, however many other lines of the template there are."""
    lines = [f"[rank{rank}]: stock {700 + 90 * step * (rank == 5)} MB" for step in range(40) for rank in range(8)]
    run = build_run([a_shared_log(*lines)])
    (odd,) = drifting(run)
    assert odd.node == "rank 5"
    assert all(len(seen.spots) >= 10 for event in run.events.values() for seen in event.nodes.values())


def test_ranks_are_compared_where_their_lines_name_few_nodes() -> None:
    """Of two nodes, neither is the odd one; of eight, one may be."""

    def told(nodes: int) -> frozenset[str]:
        lines = [
            f"n{rank % nodes}:{rank}:{rank} [{rank}] NCCL INFO heartbeat at {step} [rank{rank}]"
            for step in range(5)
            for rank in range(16)
        ]
        return build_run([a_shared_log(*lines)]).heard

    assert told(2) == told(4) == {f"rank {rank}" for rank in range(16)}
    assert told(8) == {"train.log"}


def test_numbered_files_of_one_process_each_are_ranks() -> None:
    """If their numbers are those from 0 to the last rank, whether their lines name it or the job's size tells it."""

    def heard(names: str, line: str, world_size: int | None = None) -> frozenset[str]:
        made = [a_table(f"{name}", line.format(rank=rank)) for rank, name in enumerate(names.split())]
        return build_run(made, (), Job(world_size=world_size)).heard

    assert heard("worker-0 worker-1 worker-2", "[rank{rank}]: begins") == {"rank 0", "rank 1", "rank 2"}
    assert heard("worker-0 worker-1 worker-2", "begins", 3) == {"rank 0", "rank 1", "rank 2"}
    assert heard("lm-worker-0 lm-worker-1 lm-worker-2", "begins", 3) == {"rank 0", "rank 1", "rank 2"}
    assert heard("j7-pod-0-0 j7-pod-1-0 j7-pod-2-0", "begins", 3) == {"rank 0", "rank 1", "rank 2"}
    assert heard("a0-pod-0 a1-pod-1 a2-pod-2", "begins", 3) == {"a0-pod-0", "a1-pod-1", "a2-pod-2"}
    assert heard("worker-0 worker-1 worker-2", "begins", 24) == {"worker-0", "worker-1", "worker-2"}
    assert heard("gpu-4 gpu-5 gpu-6", "begins", 3) == {"gpu-4", "gpu-5", "gpu-6"}
    assert heard("worker-1 worker-2 worker-0", "[rank{rank}]: begins") == {"worker-0", "worker-1", "worker-2"}


def test_numbers_in_the_names_of_files_are_ranks_if_lines_say_so() -> None:
    """Of files that follow each other from 0; another log has no number."""

    def heard(*said: str, name: str = "p{}.err", first: int = 0, world_size: int | None = None) -> frozenset[str]:
        logs = [a_shared_log(line, name=name.format(first + place)) for place, line in enumerate(said)]
        return build_run([*logs, a_shared_log("oven is lit", name="oven.log")], (), Job(world_size=world_size)).ranks

    raised = ("glaze mixed", "[rank1]: ValueError: too hot", "glaze mixed")
    assert heard(*raised) == {"rank 0", "rank 1", "rank 2"}
    assert heard(*["glaze mixed"] * 3, world_size=3) == {"rank 0", "rank 1", "rank 2"}
    assert not heard(*["glaze mixed"] * 3)
    assert not heard(*raised, first=1)
    assert not heard("glaze mixed", "glaze mixed", "[rank1]: ValueError: too hot")
    assert not heard(*raised[:2])


def test_files_of_one_rank_each_are_ranks_though_their_lines_name_a_host() -> None:
    """Else what one rank prints would be said of all on its host."""
    stamp = "2027-02-09T10:00:00.000000+00:00"
    made = [
        replace(
            table := a_table(f"rank-{rank}", *[f"{stamp} host-{rank % 2} trainer[{rank + 70}]: begins"] * 3),
            ref=replace(table.ref, resource=Resource(rank=rank)),
        )
        for rank in range(8)
    ]
    run = build_run(made)
    (event,) = run.events.values()
    assert run.heard == set(event.nodes) == {f"rank {rank}" for rank in range(8)}


def test_a_log_that_names_no_ranks_or_nodes_of_its_own_stays_whole() -> None:
    """Few ranks, few lines that name one, several nodes."""
    assert build_run([a_shared_log(*["nothing special"] * 20, *by_ranks(3, 2))]).heard == {"train.log"}
    assert build_run([a_shared_log(*by_ranks(2, 5))]).heard == {"train.log"}
    assert build_run([a_table("a", *by_ranks(4, 5)), a_table("b", *by_ranks(4, 5))]).heard == {"a", "b"}


def test_logs_that_count_their_ranks_from_zero_each_stay_whole() -> None:
    """Two agents' local ranks are not the same processes; the job's size tells them from two streams of the same ranks."""
    logs = [a_shared_log(*by_ranks(4, 5), name=name) for name in ("one.log", "two.log")]
    assert build_run(logs, (), Job(world_size=8)).heard == {"one.log", "two.log"}
    assert build_run(logs, (), Job(world_size=4)).heard == {f"rank {rank}" for rank in range(4)}


def test_exceptions_keep_their_frames_and_losses_without_a_step_are_kept() -> None:
    """Both come from what the scanner saw."""
    ref = StreamRef("3.log", Resource(rank=3))
    raised = Structure(
        "exception", 40, 60, "OSError: full", {"frames": "/a/run.py:9 in main\n/a/io.py:4 in save_state"}
    )
    points = (ProgressPoint(10, loss=2.5), ProgressPoint(20, step=4, loss=2.4))
    run = build_run((), (StreamSummary(ref, structures=(raised,), series=Series(points)),))
    (stack,) = run.stacks
    assert (stack.spot.node, stack.spot.offset, stack.frames) == ("rank 3", 40, ("main run.py", "save_state io.py"))
    assert [(line.spot.offset, line.loss) for line in run.losses] == [(10, 2.5)]


def test_a_job_without_logs_of_its_own_has_the_settings_of_its_record() -> None:
    """A folder of node logs alone, of a job whose size is known."""
    assert build_run([], (), Job(world_size=8)).settings == {"world_size": "8"}
