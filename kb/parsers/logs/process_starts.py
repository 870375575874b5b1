"""Maps processes to ranks, from what Ray Train and DeepSpeed print when they start their processes."""

from __future__ import annotations

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import line_at, lines_from, number, on_line, plain, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_FOLLOWING = 64  # lines searched after DeepSpeed's numbers: those of its own and of other nodes
_WINDOW = 32 * 1024  # bytes; each process is one line with its whole command
# Ray Train: `- (ip=10.0.0.1, pid=811) world_rank=0, local_rank=0, node_rank=0`; version 1 prints a node id before the address
_RAY = lazy_compile(
    rb"\((?:node_id=\w{1,64}, )?ip=(?P<ip>[0-9A-Fa-f.:]{2,45}), pid=(?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7})"
    rb"(?:, local_rank=(?P<local>\d{1,5}))?"
)
_NUMBERS = lazy_compile(rb"nnodes=(?P<nodes>\d{1,6}), num_local_procs=\d{1,5}, node_rank=(?P<node>\d{1,6})")
_MAPPING = lazy_compile(rb"global_rank_mapping=\w{0,20}\(?(?:<class 'list'>, )?\{(?P<nodes>[^}\n]{1,8000})\}")
_RANKS = lazy_compile(rb"'(?P<host>[\w.-]{1,64})': \[(?P<ranks>[\d, ]{1,2000})\]")
_SPAWNED = lazy_compile(rb"process (?P<pid>\d{1,9}) spawned with command: .{0,3000}?--local_rank=(?P<local>\d{1,5})\b")


def _read_ray(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _RAY.search(plain(line_at(window, at)[0]))
    if found is None:
        return ()
    rank, local, pid = number(found["rank"]), number(found["local"]), number(found["pid"])
    return (_start(window, at, Resource(node=text(found["ip"]), rank=rank, local_rank=local, pid=pid)),)


def _read_deepspeed(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    numbers, prefix = _NUMBERS.search(line), peel(line)
    if numbers is None:
        return ()
    layout: list[tuple[str, list[int]]] = []
    found: list[Structure] = []
    for start, _, follower in lines_from(window, after, _FOLLOWING):
        if not _same_speaker(prefix, peel(follower)):
            continue
        if mapping := _MAPPING.search(follower):
            layout = [
                (text(host), [int(rank) for rank in ranks.split(b",") if rank.strip().isdigit()])
                for host, ranks in _RANKS.findall(mapping["nodes"])
            ]
        spawned = _SPAWNED.search(follower)
        node = int(numbers["node"])
        if spawned is None or node >= len(layout):
            continue
        host, ranks = layout[node]
        local = int(spawned["local"])
        if local < len(ranks):
            who = Resource(node=host, rank=ranks[local], local_rank=local, pid=int(spawned["pid"]))
            found.append(_start(window, start, who))
    return tuple(found)


def _same_speaker(one: Prefix, other: Prefix) -> bool:
    return (one.node, one.rank) == (other.node, other.rank)


def _start(window: bytes, at: int, who: Resource) -> Structure:
    fields: dict[str, Scalar] = {"rank": who.rank, "local_rank": who.local_rank, "pid": who.pid, "node": who.node}
    return on_line("process_start", window, at, fields, who=who)


READERS: tuple[Reader, ...] = (
    Reader(name="ray_worker", trigger=r"pid=\d+\) world_rank=\d", read=_read_ray, after=1024, keep=2048),
    Reader(
        name="deepspeed_start",
        trigger=r"num_local_procs=\d+, node_rank=\d",
        read=_read_deepspeed,
        after=_WINDOW,
    ),
)
