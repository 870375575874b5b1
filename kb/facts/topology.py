"""The layout of a job: ranks, nodes, local ranks, processes, addresses, and aliases of machines.

Collected in one pass from job.yaml, file names, NCCL's initialization, torchrun's failure blocks and line prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property

from kb.facts.job_facts import Facts
from kb.facts.log.line_writers import writer_of
from kb.facts.stated_world import stated_world
from kb.model import Resource, Structure
from kb.regex.lazy import lazy_compile
from kb.report import ranges
from kb.scanning.summary import StreamSummary
from kb.values import dataclass

_FEW_RANGES = 4  # of ranks that are named besides their number
MOST_TOKENS = 12  # characters of a file name searched for a node name
MOST_OF_A_NODE = 256  # tasks in a row that srun reports for one node
_ADDRESS = lazy_compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_GIVEN = lazy_compile(
    r"([\w.-]{1,64}):\d{1,9}:\d{1,9} \[-?\d{1,4}\] [NR]CCL INFO [^\n]{0,40}?Using \S{1,20}:([0-9.]{7,15})<"
)
_LOOPBACK = lazy_compile(r"(?:ip6-)?localhost\d?(?:\.[\w.-]{1,64})?|127(?:\.\d{1,3}){3}|0\.0\.0\.0|::1?")
_PART = lazy_compile(r"[^\W_.-]+")
_BUS = lazy_compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-9a-fA-F]))?")
# a shell's prompt at which the messages of its own host were asked for
_PROMPT = lazy_compile(
    r"(?m)^(?:\([\w.-]{1,40}\) ?)?\[?[\w.-]{1,32}@(?P<host>[A-Za-z][\w.-]{0,62})(?::\S{0,80}| [^\s\]]{1,80}\])[#$] {0,3}"
    r"(?:sudo )?(?P<asks>dmesg|journalctl|nvidia-smi)?\b"
)
_CONTAINER = lazy_compile(r"[0-9a-f]{12}|[0-9a-f]{64}")  # the id of one, which is its host name
_TASKS = lazy_compile(r"(\d{1,7})(?:-(\d{1,7}))?")
# a rank that says that it has started, within a line
_STARTED = lazy_compile(
    r"\b(?:[Pp]rocess rank|Rank|GLOBAL_RANK)[:= ]{1,2}(\d{1,6})(?:, device\b|: Completed store-based barrier\b|, MEMBER\b)"
)
_SPEAKING = ("nccl_warn", "elastic_failure", "launcher_exit", "xid", "sxid", "oom_kill", "ib_completion")


@dataclass(frozen=True, slots=True)
class Place:
    """One process, as far as known: its rank, node, and number within the node."""

    rank: int | None = None
    node: str | None = None
    local: int | None = None

    @property
    def unit(self) -> tuple[int | None, str | None, int | None]:
        """The key of the process: the rank, or node and number if the rank is unknown."""
        return (self.rank, None, None) if self.rank is not None else (None, self.node, self.local)


class Places:
    """The layout of one job. All lookups are dictionary lookups."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._names: dict[str, str] = {}  # short or full name → the name to show
        self._node: dict[int, str] = {}
        self._local: dict[tuple[str, int], int] = {}
        self._pid: dict[tuple[str, int], int] = {}
        self._lone: dict[int, int | None] = {}  # the rank of a process number that occurs on one node only
        self._bases: set[int] = set()  # rank minus local rank, of all processes with both known
        self._bus: dict[tuple[str, int], int] = {}
        self._starts = [(index, item) for index, item in facts.structures("nccl_init")]
        sizes = [size for _, item in self._starts if isinstance(size := item.fields.get("nranks"), int)]
        self._told = facts.evidence.job.world_size or max(sizes, default=0) or stated_world(facts)
        self._read_job()
        self._read_starts()
        self._read_blocks()
        self._read_launches()
        for kind in _SPEAKING:
            for _, item in facts.structures(kind):
                self._name(item.resource.node)
        self._of_files = _without_files_words(stream.summary.ref.resource.node for stream in facts.streams)
        self._streams = [self._stream_node(index) for index in range(len(facts.streams))]
        for index, stream in enumerate(facts.streams):
            self._put(stream.summary.ref.resource.rank, self._streams[index])
        self._base: dict[str, int | None] = {}
        self._read_processes()

    def _read_job(self) -> None:
        for node, ranks in self._facts.evidence.job.nodes.items():
            self._name(node)
            for local, rank in enumerate(ranks):
                self._put(rank, node, local)

    def _read_starts(self) -> None:
        """Read NCCL's communicator of all ranks; in smaller ones the number is not the global rank."""
        for index, item in self._starts:
            known = self._facts.streams[index].summary.ref.resource
            rank = item.resource.rank if item.resource.rank is not None else known.rank
            if rank is None and item.fields.get("nranks") == self._told:
                rank = _whole(item.fields.get("comm_rank"))
            node = self._name(str(item.fields.get("host") or "") or None)
            if rank is not None and node is not None:
                self._put(rank, node, _whole(item.fields.get("device")), _whole(item.fields.get("pid")))
                bus = str(item.fields.get("bus") or "")
                if bus and set(bus.lower()) <= set("0123456789abcdef"):
                    self._bus.setdefault((node, int(bus, 16)), rank)

    def _read_blocks(self) -> None:
        for _, item in self._facts.structures("elastic_failure"):
            node = self._name(str(item.fields.get("host") or "") or None)
            fields = item.fields
            self._put(_whole(fields.get("rank")), node, _whole(fields.get("local_rank")), _whole(fields.get("pid")))

    def _read_launches(self) -> None:
        for _, item in self._facts.structures("process_start"):
            node, fields = str(item.fields.get("node") or "") or None, item.fields
            known = node if node is None or not names_a_node(node) or _ADDRESS.fullmatch(node) else self._name(node)
            self._put(_whole(fields.get("rank")), known, _whole(fields.get("local_rank")), _whole(fields.get("pid")))

    def _read_processes(self) -> None:
        """Read logs of single processes: their lines give the rank; on a node, ranks follow local ranks."""
        logs = []
        for index, stream in enumerate(self._facts.streams):
            node, local = self._streams[index], stream.summary.ref.resource.local_rank
            if node is None or local is None or stream.summary.ref.kind != "job":
                continue
            logs.append((node, local))
            told = {rank for rank in _ranks_in(stream.summary) if rank is not None}
            if len(told) == 1:
                self._put(min(told), node, local)
        for kind in ("exception", "native_crash"):
            for _, item in self._facts.structures(kind):
                if item.resource.rank is not None and item.resource.local_rank is not None:
                    self._bases.add(item.resource.rank - item.resource.local_rank)
        for (node, local), rank in self._local.items():
            same = self._base.setdefault(node, rank - local) == rank - local >= 0
            self._base[node] = rank - local if same else None
        for node, local in logs:
            self._put(self._rank_of(node, local), node, local)

    def _rank_of(self, node: str, local: int) -> int | None:
        base = self._base.get(node)
        return self._local.get((node, local), None if base is None else base + local)

    def _put(self, rank: int | None, node: str | None, local: int | None = None, pid: int | None = None) -> None:
        if rank is None or rank < 0 or node is None or (self._told and rank >= self._told):
            return
        node = self._names.get(node, node)
        self._node.setdefault(rank, node)
        if local is not None:
            self._local.setdefault((node, local), rank)
            self._bases.add(rank - local)
        if pid is not None:
            self._pid.setdefault((node, pid), rank)
            self._lone[pid] = rank if self._lone.setdefault(pid, rank) == rank else None

    def _name(self, node: str | None) -> str | None:
        """Register a node's name; return the name under which it is known already."""
        if not node or _ADDRESS.fullmatch(node):
            return node or None
        short = node.partition(".")[0]
        known = self._names.setdefault(short, node)
        self._names.setdefault(node, known)
        return known

    def _stream_node(self, index: int) -> str | None:
        """Return the node that wrote a stream: a known node in its path, else a path part that looks like a node name."""
        ref = self._facts.streams[index].summary.ref
        named = ref.resource.node
        if named in self._names:
            return self._names[named]
        told = self._of_files.get(named, named) if named else None
        return self._in_path(ref.uri) or told or self._at_prompt(index)

    def _at_prompt(self, index: int) -> str | None:
        """Return the host at whose prompt the kernel's messages or the GPUs of a text were shown, if its prompts name one host."""
        summary = self._facts.streams[index].summary
        found = [match for text in (summary.head, summary.tail) if "@" in text for match in _PROMPT.finditer(text)]
        hosts = {match["host"] for match in found}
        if len(hosts) != 1 or not any(match["asks"] for match in found):
            return None
        host = hosts.pop()
        return None if _CONTAINER.fullmatch(host) else self.node(host)

    def _in_path(self, uri: str) -> str | None:
        for segment in reversed(uri.split("/")):
            parts = [(found.start(), found.end()) for found in _PART.finditer(segment[:200])][:MOST_TOKENS]
            spans = [segment[low:high] for at, (low, _) in enumerate(parts) for _, high in parts[at:]]
            found = max((span for span in spans if span in self._names), key=len, default=None)
            if found is not None:
                return self._names[found]
        return None

    @cached_property
    def _addresses(self) -> dict[str, str]:
        """Address → node, from NCCL's initialization; computed on first use."""
        found: dict[str, str] = {}
        for stream in self._facts.streams:
            if " Using " in stream.summary.head:
                for host, address in _GIVEN.findall(stream.summary.head):
                    found.setdefault(address, self._names.get(host, host))
        return found

    def known(self, name: str | None) -> str | None:
        """Return the job's node with that name or address; None if unknown."""
        if not name:
            return None
        if _ADDRESS.fullmatch(name):
            return self._addresses.get(name)
        return self._names.get(name) or self._names.get(name.partition(".")[0])

    def node(self, name: str | None) -> str | None:
        """Return the name to show for a node or an address; unchanged if unknown."""
        return self.known(name) or name

    def node_of(self, rank: int | None) -> str | None:
        """Return the node of a rank."""
        return None if rank is None else self._node.get(rank) or self._ended_on.get(rank)

    @cached_property
    def _ended_on(self) -> dict[int, str]:
        """Rank → node, by what srun reports of the ends of its tasks. Who is only listed there is no known process."""
        found: dict[int, str] = {}
        for _, item in self._facts.structures("launcher_exit") if self._tasks_are_ranks else ():
            node = str(item.fields.get("node") or "")
            for low, high in _TASKS.findall(str(item.fields.get("task"))) if node and _is_of_srun(item) else ():
                for rank in range(int(low), min(int(high or low), int(low) + MOST_OF_A_NODE) + 1):
                    found.setdefault(rank, self._names.get(node, node))
        return found

    def place(self, stream: int, resource: Resource) -> Place:
        """Return the writer of a line of a stream, completed from the layout."""
        ref = self._facts.streams[stream].summary.ref.resource
        node = self._streams[stream] if resource.node in (None, ref.node) else self.node(resource.node)
        rank = resource.rank if not self._told or resource.rank is None or resource.rank < self._told else None
        if rank is None:
            rank = self._rank_of_process(node, resource)
        if rank is not None:
            node = self.node_of(rank) or node
        return Place(rank, node, resource.local_rank)

    def _rank_of_process(self, node: str | None, resource: Resource) -> int | None:
        """Return the rank of a process from its number or its local rank."""
        rank = None
        if resource.pid is not None:
            rank = self._lone.get(resource.pid) if node is None else self._pid.get((node, resource.pid))
        if rank is None and resource.local_rank is not None:
            rank = self._rank_of(node, resource.local_rank) if node is not None else None
            if rank is None and self._single_base is not None:
                rank = self._single_base + resource.local_rank
        return rank if rank is None or not self._told or rank < self._told else None

    @cached_property
    def _single_base(self) -> int | None:
        """Rank minus local rank, if all known processes are on one node."""
        return next(iter(self._bases)) if len(self._bases) == 1 and len(self.nodes) < 2 else None

    def rank_of_task(self, task: str) -> int | None:
        """Return the rank of a task of srun, if srun starts the ranks themselves and not one launcher per node."""
        return int(task) if task.isdecimal() and len(task) < 8 and self._tasks_are_ranks else None

    @cached_property
    def _tasks_are_ranks(self) -> bool:
        """Whether the tasks that srun reports are ranks: as many as the job has, or several on one node."""
        if self._facts.structures("elastic_failure") or self._facts.structures("elastic_exit"):
            return False
        tasks: dict[str, set[int]] = {}
        for _, item in self._facts.structures("launcher_exit"):
            if _is_of_srun(item):
                numbers = _TASKS.findall(str(item.fields.get("task")))
                listed = {int(number) for pair in numbers for number in pair if number}
                tasks.setdefault(str(item.fields.get("node")), set()).update(listed)
        last = max((max(listed) for listed in tasks.values() if listed), default=-1)
        several = any(len(listed) > 1 for listed in tasks.values())
        return several and (not self._told or last < self._told)

    def rank_at(self, node: str | None, *, pid: str = "", pci: str = "") -> int | None:
        """Return the rank of a process or GPU on a node; for a process, also without a node."""
        if pid.isdecimal() and len(pid) < 12:
            rank = self._lone.get(int(pid)) if node is None else self._pid.get((node, int(pid)))
            if rank is not None:
                return rank
        found = _BUS.fullmatch(pci)
        if found is None or node is None:
            return None
        domain, bus, device, function = (int(part, 16) if part else 0 for part in found.groups())
        return self._bus.get((node, domain << 20 | bus << 12 | device << 4 | function))

    @cached_property
    def ranks(self) -> frozenset[int]:
        """The ranks that occur in any source."""
        spoken = [rank for item in self._facts.of_kind("job") for rank in _ranks_in(item.summary)]
        found = {rank for rank in spoken if rank is not None} | set(self._node)
        return frozenset(rank for rank in found if not self._told or rank < self._told)

    @cached_property
    def world(self) -> int:
        """The number of ranks of the job, as far as known."""
        return self._told or len(self.ranks)

    @cached_property
    def least_world(self) -> int:
        """The number of ranks that the job has at least: rank 7 is the eighth, also where no other occurs."""
        return self._told or max(self.ranks, default=-1) + 1

    @property
    def size(self) -> str:
        """The number of ranks of the job as words: at least so many, where no source states it."""
        return f"{self._told} ranks" if self._told else f"at least {self.least_world} ranks"

    def share(self, ranks: int, known: int | None = None) -> str:
        """Return a number of ranks as a share of the job's ranks if a source states how many there are, else of the ranks that occur.

        Without a stated size, there can be more ranks than occur, so it is never all of them.

        `known`: the number of processes that were counted, if these are not all that occur.
        """
        seen = len(self.ranks) if known is None else known
        if self._told and known in (None, self._told):
            return f"{ranks} of {self._told} ranks"
        return f"{ranks} ranks" if ranks >= seen else f"{ranks} of at least {seen} ranks"

    def shared_by(self, seen: AbstractSet[int]) -> str:
        """Return ranks as a share and, unless they are all of a job of stated size or many ranges, by number."""
        share, numbers = self.share(len(seen)), ranges(seen).replace(",", ", ")
        return share if len(seen) == self._told or numbers.count(",") >= _FEW_RANGES else f"{share} ({numbers})"

    def allows(self, rank: int) -> bool:
        """Whether the job can have this rank: its size is unknown, or larger."""
        return 0 <= rank < self._told if self._told else rank >= 0

    def is_all_of_a_node(self, local: int) -> bool:
        """Whether the stated size of the job leaves no room for another node with as many ranks as a local rank shows."""
        return 0 < self._told < 2 * (local + 1)

    @cached_property
    def units(self) -> tuple[Place, ...]:
        """The job's known processes that occur in any source."""
        found = {Place(rank).unit: Place(rank, self._node.get(rank)) for rank in sorted(self.ranks)}
        for index, stream in enumerate(self._facts.streams):
            resource = stream.summary.ref.resource
            if resource.local_rank is not None and stream.summary.ref.kind == "job":
                place = self.place(index, resource)
                found.setdefault(place.unit, place)
        return tuple(found.values())

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the job's ranks; if unknown, those that wrote its logs."""
        job = self._facts.evidence.job.nodes
        told = (self._names.get(node, node) for node in job)  # an address is no name
        placed = dict.fromkeys(told) if job else dict.fromkeys(self._node.values())
        written = [
            node
            for node, stream in zip(self._streams, self._facts.streams, strict=True)
            if node is not None and stream.summary.ref.kind == "job"
        ]
        return tuple(placed if job else {**placed, **dict.fromkeys(written)})


def names_a_node(name: str) -> bool:
    """Whether a name identifies a machine; `localhost` does not."""
    return _LOOPBACK.fullmatch(name) is None


def _without_files_words(told: Iterable[str | None]) -> dict[str, str]:
    """Map file-name parts to node names; if one ends with the other, the longer one is specific to the file."""
    names: dict[str, str] = {}
    for node in sorted({node for node in told if node}, key=len):
        ends = (node[at + 1 :] for at, sign in enumerate(node) if sign in "-_.")
        names[node] = next((names[end] for end in ends if end in names), node)
    return names


def _ranks_in(summary: StreamSummary) -> Iterator[int | None]:
    """Yield the ranks in the prefixes of a stream's lines, with repeats."""
    yield summary.ref.resource.rank
    yield from (structure.resource.rank for structure in summary.structures if _speaks(structure))
    yield from (point.rank for point in summary.series.points)
    if summary.ref.resource.rank is None:
        yield from (writer_of(summary, line[:512]).rank for line in summary.head.split("\n"))
        yield from map(int, _STARTED.findall(summary.head))
    for hits in summary.hits.values():
        yield from (tally.rank for tally in hits.ranks)


def _is_of_srun(structure: Structure) -> bool:
    return structure.fields.get("launcher") == "srun"


def _speaks(structure: Structure) -> bool:
    return structure.kind in ("exception", "nccl_init", "watchdog", "watchdog_status", "native_crash", "nccl_warn")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None
