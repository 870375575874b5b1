"""One look after another at a job that runs: logs, processes and their stacks, RAS answers, the kernel log; evidence comes out.

Everything kept is bounded: summaries of logs, the last few rounds of stacks, the last RAS answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bot.following import Following
from bot.livebundle import Round, name_of, round_of
from bot.rulefiles import Knowledge
from connectors.ebpf import LIBRARIES, Probes
from connectors.kernellog import KernelLog
from connectors.processes import Dump, Process, RankProcess, Wanted
from connectors.ras import RasSource
from kb.evidence import Evidence
from kb.hang import limits_of
from kb.model import Gap, Job, Resource, StackSample, StreamRef
from kb.observed import Parts, observe
from kb.readers.pystacks import read_stacks
from kb.readers.ras import RasReport, read_ras
from kb.summary import StreamSummary

ROUNDS = 6  # of stacks that are held
POLLS = 64  # of RAS
MOST_GAPS = 1000


class Sampler(Protocol):
    """Where processes and their stacks come from: connectors.processes.Host, or a test."""

    @property
    def name(self) -> str:
        """The host's name."""

    def ranks(self, wanted: Wanted) -> tuple[tuple[RankProcess, ...], tuple[Gap, ...]]:
        """The ranks that run here."""

    def alive(self, process: Process) -> bool:
        """Whether this very process still runs."""

    def stacks(
        self, ranks: Sequence[RankProcess], stopping: Callable[[], bool]
    ) -> tuple[tuple[Dump, ...], tuple[Gap, ...]]:
        """One round of stacks."""

    def library(self, pid: int, name: str) -> Path | None:
        """The file of a library that a process has loaded."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is looked at; None for what is not. `logs`: a folder or file."""

    host: Sampler
    logs: Path | None = None
    wanted: Wanted = field(default_factory=Wanted)
    kernel: KernelLog | None = None
    ras: RasSource | None = None
    ebpf: Probes | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What one look gave. `grew`: some log said something; `lost`: rank → process that has gone since the look before.

    `ended`: since when no process of the job runs here any more. `gaps`: those that are new.
    """

    time: float
    evidence: Evidence
    grew: bool
    lost: Mapping[int, Process]
    ended: float | None
    gaps: tuple[Gap, ...]


class Looking:
    """Looks at a job: `look(now)` as often as you like."""

    def __init__(self, knowledge: Knowledge, sources: Sources, stopping: Callable[[], bool]) -> None:
        self.rounds: deque[Round] = deque(maxlen=ROUNDS)
        self.answers: dict[str, bytes] = {}
        self.logs = Following(knowledge, sources.logs if sources.logs is not None else Path())
        self._rulebook, self._sources, self._stopping = knowledge.rulebook, sources, stopping
        self._apart = limits_of(knowledge.rulebook).stack_apart
        self._samples: deque[tuple[StackSample, ...]] = deque(maxlen=ROUNDS)
        self._polls: deque[RasReport] = deque(maxlen=POLLS)
        self._kernel: StreamSummary | None = None
        self._sampled = float("-inf")
        self._mains: dict[int, Process] = {}
        self._lost: set[int] = set()
        self._world: int | None = None
        self._ended: float | None = None
        self._known: dict[tuple[str, str], Gap] = {}
        self._new: list[Gap] = []

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be looked at, so far."""
        return tuple(self._known.values())

    @property
    def kernel(self) -> tuple[str, bytes] | None:
        """The name and text of the kernel log, where there is any."""
        kernel = self._sources.kernel
        return (f"dmesg.{self._sources.host.name}.log", kernel.text) if kernel is not None and kernel.text else None

    def look(self, now: float) -> Look:
        """Look at everything once. `now`: seconds since the epoch."""
        self._new = []
        grew = self._sources.logs is not None and self.logs.look(now)
        self._note(self.logs.gaps)
        grew = self._look_at_kernel(now) or grew
        lost = self._look_at_processes(now)
        self._look_at_ras(now)
        if self._sources.ebpf is not None:
            self._note(self._sources.ebpf.poll())
        return Look(now, self._evidence(now), grew, lost, self._ended, tuple(self._new))

    def start(self) -> None:
        """Start what runs beside the looks."""
        probes, host = self._sources.ebpf, self._sources.host
        if probes is None:
            return
        ranks, _ = host.ranks(self._sources.wanted)
        found = {name: host.library(ranks[0].main.pid, name) for name in LIBRARIES} if ranks else {}
        self._note(probes.start({name: path for name, path in found.items() if path is not None}))

    def stop(self) -> None:
        """Stop what runs beside the looks."""
        if self._sources.ebpf is not None:
            self._sources.ebpf.stop()

    def traced(self) -> Mapping[str, bytes]:
        """What the eBPF programs wrote so far."""
        return self._sources.ebpf.outputs() if self._sources.ebpf is not None else {}

    def _evidence(self, now: float) -> Evidence:
        here = {self._sources.host.name: tuple(sorted(self._mains))} if self._mains else {}
        job = Job(id=self._sources.job, world_size=self._world, state="RUNNING", collected_at=now, nodes=here)
        streams = (*self.logs.streams, *((self._kernel,) if self._kernel is not None else ()))
        parts = Parts(tuple(one for each in self._samples for one in each), ras=tuple(self._polls))
        return observe(Evidence(job=job, streams=streams, gaps=self.gaps), parts, self._rulebook)

    def _look_at_kernel(self, now: float) -> bool:
        kernel = self._sources.kernel
        if kernel is None:
            return False
        grew = kernel.poll()
        self._note(kernel.gaps)
        if grew and self.kernel is not None:
            name, text = self.kernel
            ref = StreamRef(f"logs/{name}", Resource(node=self._sources.host.name), kind="kernel")
            self._kernel = self.logs.scan_text(ref, text, now)
        return grew

    def _look_at_processes(self, now: float) -> dict[int, Process]:
        """See who runs and, where it is time, take a round of stacks; who was lost."""
        host = self._sources.host
        ranks, gaps = host.ranks(self._sources.wanted)
        if not self._mains:
            self._note(gaps)
        lost = {rank: one for rank, one in self._mains.items() if not host.alive(one)}
        fresh = {rank: one for rank, one in lost.items() if rank not in self._lost}
        self._lost = set(lost) - {one.rank for one in ranks}
        for one in ranks:
            self._mains[one.rank] = one.main
            self._world = one.main.world_size or self._world
        gone = bool(self._mains) and not ranks
        self._ended = (now if self._ended is None else self._ended) if gone else None
        if ranks and now - self._sampled >= 0.95 * self._apart:
            self._sampled = now
            self._sample(ranks, now)
        return fresh

    def _sample(self, ranks: Sequence[RankProcess], now: float) -> None:
        dumps, gaps = self._sources.host.stacks(ranks, self._stopping)
        self._note(gaps)
        samples = []
        packed = round_of(name_of(now), dumps)
        for one, (file, _) in zip(dumps, packed.files, strict=True):
            who = Resource(node=self._sources.host.name, rank=one.rank, pid=one.pid)
            source = f"stacks/{packed.name}/{file}"
            found, odd = read_stacks(one.data, source, who, packed.name, now, child=one.child)
            self._note(odd)
            samples += [found] if found is not None else []
        if samples:
            self.rounds.append(packed)
            self._samples.append(tuple(samples))

    def _look_at_ras(self, now: float) -> None:
        if self._sources.ras is None:
            return
        answers, gaps = self._sources.ras.poll(now)
        self._note(gaps)
        for time, data in answers:
            name = name_of(time)
            found, odd = read_ras(data, f"ras/{name}.json", time)
            self._note(odd)
            if found is not None:
                self._polls.append(found)
                self.answers[name] = data
                if len(self.answers) > POLLS:
                    self.answers.pop(next(iter(self.answers)))

    def _note(self, gaps: Sequence[Gap]) -> None:
        """Keep a gap, once."""
        for gap in gaps:
            key = (gap.code, gap.source)
            if key not in self._known and len(self._known) < MOST_GAPS:
                self._known[key] = gap
                self._new.append(gap)
