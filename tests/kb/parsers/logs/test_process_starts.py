"""Which process is which rank, as launchers print it."""

from __future__ import annotations

from kb.parsers.logs.process_starts import READERS
from tests.support.parsing import structures

DEEPSPEED = (
    "[2026-11-22 21:36:18,288] [INFO] [launch.py:158:main] nnodes=2, num_local_procs=2, node_rank=1\n"
    "[2026-11-22 21:36:18,289] [INFO] [launch.py:169:main] global_rank_mapping=defaultdict(<class 'list'>, "
    "{'cn-1': [0, 1], 'cn-2': [2, 3]})\n"
    "[2026-11-22 21:36:18,289] [INFO] [launch.py:245:main] process 811 spawned with command: ['python', 'ds.py', '--local_rank=0']\n"
    "[2026-11-22 21:36:18,352] [INFO] [launch.py:245:main] process 812 spawned with command: ['python', 'ds.py', '--local_rank=1']\n"
)


def test_ray_train_lists_its_workers() -> None:
    """Rank, local rank, process and address of each worker, for any colour of the prefix."""
    lines = (
        "\x1b[36m(TrainController pid=7)\x1b[0m - (ip=192.0.2.2, pid=4764) world_rank=0, local_rank=0, node_rank=0\n"
        "(TorchTrainer pid=7) - (node_id=7450ab, ip=192.0.2.3, pid=5039) world_rank=1, local_rank=0, node_rank=1\n"
    )
    found = structures(READERS, lines)
    assert [item.fields for item in found] == [
        {"rank": 0, "local_rank": 0, "pid": 4764, "node": "192.0.2.2"},
        {"rank": 1, "local_rank": 0, "pid": 5039, "node": "192.0.2.3"},
    ]


def test_the_deepspeed_launcher_gives_the_ranks_of_its_node() -> None:
    """The node's number selects its ranks from the mapping."""
    found = structures(READERS, DEEPSPEED)
    assert [(item.resource.rank, item.resource.local_rank, item.resource.pid) for item in found] == [
        (2, 0, 811),
        (3, 1, 812),
    ]
    assert {item.resource.node for item in found} == {"cn-2"}


def test_a_node_that_the_mapping_lacks_gives_nothing() -> None:
    """A mapping of fewer nodes, or none, names no rank."""
    assert structures(READERS, DEEPSPEED.replace("node_rank=1", "node_rank=7")) == []
    assert structures(READERS, DEEPSPEED.replace("global_rank_mapping", "mapping")) == []


def test_lines_of_another_node_in_between_are_left_out() -> None:
    """In a log of several nodes, each launcher's lines carry the prefix of its node."""
    merged = "".join(f"cn-2: {line}\n" for line in DEEPSPEED.splitlines())
    other = "cn-1: [INFO] [launch.py:245:main] process 99 spawned with command: ['python', 'ds.py', '--local_rank=0']\n"
    head, _, rest = merged.partition("cn-2: [2026-11-22 21:36:18,289] [INFO] [launch.py:245")
    found = structures(READERS, f"{head}{other}cn-2: [2026-11-22 21:36:18,289] [INFO] [launch.py:245{rest}")
    assert [item.resource.pid for item in found] == [811, 812]
