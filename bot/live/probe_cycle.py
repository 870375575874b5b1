"""Collects evidence from a running job, cycle by cycle: logs, processes and their stacks, Flight Recorders, metrics.

All state is bounded: summaries of logs, the last few rounds of stacks, the last RAS output, a digest of each rank's last
Flight Recorder dump, the latest metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bot.diagnosis.flight_recorder_pool import PoolLimits, read_dumps
from bot.live.bundle_writer import PROCESSES, StackRound, name_of, round_of
from bot.live.log_follower import LogFollower
from bot.live.metrics_poller import MetricsPoller
from bot.rulebase.loader import Knowledge
from connectors.host.ebpf import LIBRARIES, Probes
from connectors.host.flight_recorder import DumpFile, RecorderSource, request_dumps
from connectors.host.kernel_log import KernelLog
from connectors.host.nccl_ras import RasSource
from connectors.host.process_table import Process
from connectors.host.process_table import started as process_started
from connectors.host.processes import ProcessSelector, RankProcess, StackDump
from kb.collectives.trace import Ring
from kb.diagnosis.live_phase import RUNNING
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.told_ends import end_is_told
from kb.hangs.non_log_evidence import NonLogEvidence
from kb.hangs.observe import observe
from kb.hangs.pace import Lateness
from kb.hangs.votes import limits_of
from kb.model import Gap, Job, JobRecord, Resource, StackSample, StreamRef
from kb.parsers.artefacts.processes import GONE, Ended, event_of
from kb.parsers.artefacts.pystacks.read import read_stacks
from kb.parsers.nccl_ras.answers import read_ras
from kb.parsers.nccl_ras.values import RasReport
from kb.scanning.summary import StreamSummary

EXITS_UNKNOWN = "exits_unknown"
_EXITS_UNKNOWN = Gap(
    EXITS_UNKNOWN,
    "processes",
    "all processes are gone, and no log says how they ended: put the launcher's own output (torchrun, srun) next to the ranks' logs",
    rules_out="which process ended first, and by what signal",
)
_NOTHING = b"[signalbox: the kernel log has said nothing since the watch began]\n"

if TYPE_CHECKING:
    from kb.metrics.panel import Panel

ROUNDS = 6  # rounds of stacks kept as written, for the bundle
HELD = 18  # rounds of stacks that are compared; many, because steps may be long
POLLS = 64  # RAS outputs
MOST_GAPS = 1000
ALONE = 15.0  # seconds that others must keep running before a process that ended for an unknown reason is reported
ASK_EVERY = 60.0  # seconds between two requests for Flight Recorder dumps
READ_DUMPS = 5.0  # seconds that reading new dumps may delay a cycle


class Sampler(Protocol):
    """The source of processes and their stacks: connectors.host.processes.Host, or a test double."""

    @property
    def name(self) -> str:
        """The host's name."""

    @property
    def others(self) -> Collection[int]:
        """Processes that do not belong to the job."""

    @property
    def ours(self) -> Collection[int]:
        """Processes that belong or belonged to the job."""

    def ranks(self, wanted: ProcessSelector) -> tuple[tuple[RankProcess, ...], tuple[Gap, ...]]:
        """The ranks that run on this host."""

    def alive(self, process: Process) -> bool:
        """Whether this very process is still running."""

    def ended(self, process: Process) -> str:
        """How a process ended; "" if unknown."""

    def stacks(
        self, ranks: Sequence[RankProcess], stopping: Callable[[], bool], /, *, native: bool
    ) -> tuple[tuple[StackDump, ...], tuple[Gap, ...]]:
        """One round of stacks."""

    def library(self, pid: int, name: str) -> Path | None:
        """The path of a library that a process has loaded."""


@dataclass(frozen=True, slots=True)
class ProbeSources:
    """What to probe; None disables a probe. `logs`: a folder or file. `ask`: whether to request dumps through the pipe.

    `params`: numbers for this job, by rule and parameter (`Job.params`).
    """

    host: Sampler
    logs: Path | None = None
    wanted: ProcessSelector = field(default_factory=ProcessSelector)
    kernel: KernelLog | None = None
    ras: RasSource | None = None
    ebpf: Probes | None = None
    recorder: RecorderSource | None = None
    metrics: MetricsPoller | None = None
    ask: bool = False
    job: str | None = None
    params: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one cycle. `grew`: a log has new lines; `lost`: rank → process that ended since the cycle before.

    `how`: how these processes ended, if known. `missing`: ranks whose process is gone while others run. `found`: whether
    processes of the job were ever seen here; `again`: whether ranks that were gone are running again. `ended`: since when no
    process of the job has been running here; `launching`: whether their launcher is still running. `started`: when the first
    of the running processes started, 0 if unknown. `gaps`: new gaps only.
    """

    time: float
    evidence: Evidence
    grew: bool
    lost: Mapping[int, Process]
    ended: float | None
    gaps: tuple[Gap, ...]
    how: Mapping[int, str] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    found: bool = False
    again: bool = False
    launching: bool = False
    started: float = 0.0


class ProbeCycle:
    """Probes a job: call `look(now)` repeatedly."""

    def __init__(self, knowledge: Knowledge, sources: ProbeSources, stopping: Callable[[], bool]) -> None:
        self.rounds: deque[StackRound] = deque(maxlen=ROUNDS)
        self.answers: dict[str, bytes] = {}
        self.logs = LogFollower(knowledge, sources.logs if sources.logs is not None else Path())
        self._rulebook, self._sources, self._stopping = knowledge.rulebook, sources, stopping
        self._limits = limits_of(knowledge.rulebook, sources.params)
        self._samples: deque[tuple[StackSample, ...]] = deque(maxlen=HELD)
        self._late = Lateness()
        self._polls: deque[RasReport] = deque(maxlen=POLLS)
        self._kernel: StreamSummary | None = None
        self._sampled = float("-inf")
        self._mains: dict[int, Process] = {}
        self._lost: set[int] = set()
        self._launchers: dict[int, Process] = {}
        self._again = False
        self._gone: dict[int, Ended] = {}
        self.metrics: Mapping[str, bytes] = {}
        self._panels: Mapping[str, Panel] = {}
        self._rings: dict[Path, tuple[DumpFile, Ring]] = {}
        self._heard = self._asked = self._running = float("-inf")
        self._world: int | None = None
        self._ended: float | None = None
        self._known: dict[tuple[str, str], Gap] = {}
        self._new: list[Gap] = []

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps so far: what could not be probed."""
        return tuple(self._known.values())

    @property
    def kernel(self) -> tuple[str, bytes] | None:
        """The name and text of the kernel log, if there is one."""
        kernel = self._sources.kernel
        if kernel is None or kernel.gaps:
            return None
        return f"dmesg.{self._sources.host.name}.log", kernel.text or _NOTHING

    def look(self, now: float) -> ProbeResult:
        """Run one cycle. `now`: seconds since the epoch. Logs are read last, so that they are evaluated right after that."""
        self._new = []
        lost = self._look_at_processes(now)
        self._look_at_ras(now)
        self._look_at_dumps(now)
        self._look_at_metrics(now)
        if self._sources.ebpf is not None:
            self._note(self._sources.ebpf.poll())
        grew = self._sources.logs is not None and self.logs.look(now)
        self._note(self.logs.gaps)
        grew = self._look_at_kernel(now) or grew
        self._heard = now if grew or self._heard < 0 else self._heard
        how = {rank: item.how for rank, item in self._gone.items() if item.how != GONE}
        if self._ended is not None and self._gone and not how and not end_is_told(self.logs.streams):
            self._note([_EXITS_UNKNOWN])
        launching = any(self._sources.host.alive(item) for item in self._launchers.values())
        missing = frozenset(self._gone) if self._ended is None else frozenset()
        evidence = self._evidence(now)
        return ProbeResult(
            now,
            evidence,
            grew,
            lost,
            self._ended,
            tuple(self._new),
            how,
            missing,
            bool(self._mains),
            self._again,
            launching,
            min((process_started(item) for item in self._mains.values()), default=0.0),
        )

    def start(self) -> None:
        """Start the background sources."""
        probes, host = self._sources.ebpf, self._sources.host
        if probes is None:
            return
        ranks, _ = host.ranks(self._sources.wanted)
        found = {name: host.library(ranks[0].main.pid, name) for name in LIBRARIES} if ranks else {}
        self._note(probes.start({name: path for name, path in found.items() if path is not None}))

    def stop(self) -> None:
        """Stop the background sources."""
        if self._sources.ebpf is not None:
            self._sources.ebpf.stop()

    @property
    def ended(self) -> tuple[Ended, ...]:
        """Processes that definitely ended while the job kept running.

        If it is unknown how a process ended, the job itself may have ended, or the rank may have had nothing left to do while another
        one still writes. So other processes must have kept running for a while, and must outnumber those that are gone.
        """
        few = 2 * len(self._gone) < len(self._mains)
        return tuple(
            item
            for _, item in sorted(self._gone.items())
            if item.how not in (GONE, "exit 0") or (few and item.how == GONE and self._running - item.time >= ALONE)
        )

    @property
    def dumps(self) -> tuple[DumpFile, ...]:
        """The Flight Recorder dumps that are recent enough."""
        return tuple(dump for dump, _ in self._rings.values())

    def traced(self) -> Mapping[str, bytes]:
        """The output of the eBPF programs so far."""
        return self._sources.ebpf.outputs() if self._sources.ebpf is not None else {}

    def _evidence(self, now: float) -> Evidence:
        here = {self._sources.host.name: tuple(sorted(self._mains))} if self._mains else {}
        state = RUNNING if self._mains and self._ended is None else None
        job = Job(
            id=self._sources.job,
            world_size=self._world,
            state=state,
            end=self._ended,
            collected_at=now,
            nodes=here,
            params=self._sources.params,
        )
        streams = (*self.logs.streams, *((self._kernel,) if self._kernel is not None else ()))
        rings = tuple(ring for _, ring in self._rings.values())
        parts = NonLogEvidence(
            stacks=tuple(item for each in self._samples for item in each),
            rings=rings,
            panels=self._panels,
            ras=tuple(self._polls),
            events=tuple(event_of(item, PROCESSES) for item in self.ended),
            dumped=min((dump.written for dump, _ in self._rings.values()), default=None),
            alive=state is not None,
        )
        evidence = Evidence(job=job, streams=streams, gaps=self.gaps)
        parts = replace(parts, late=self._late.seen(Facts(evidence).streams, now))
        return observe(evidence, parts, self._rulebook)

    def _look_at_kernel(self, now: float) -> bool:
        kernel = self._sources.kernel
        if kernel is None or not (self._mains or self._sources.logs is None):
            return False  # on a host where no process of the job was seen, this says nothing about the job
        grew = kernel.poll(self._sources.host.others, self._sources.host.ours)
        self._note(kernel.gaps)
        if (grew or self._kernel is None) and self.kernel is not None:
            name, text = self.kernel
            ref = StreamRef(f"logs/{name}", Resource(node=self._sources.host.name), kind="kernel")
            self._kernel = self.logs.scan_text(ref, text, now)
        return grew

    def _look_at_processes(self, now: float) -> dict[int, Process]:
        """Check which processes are running and, if due, take a round of stacks. Return the processes that are gone."""
        host = self._sources.host
        ranks, gaps = host.ranks(self._sources.wanted)
        if not self._mains:
            self._note(gaps)
        lost = {rank: item for rank, item in self._mains.items() if not host.alive(item)}
        fresh = {rank: item for rank, item in lost.items() if rank not in self._lost}
        self._lost = set(lost) - {item.rank for item in ranks}
        for rank, process in fresh.items():
            how = host.ended(process) or GONE
            self._gone[rank] = Ended(rank, process.pid, now, how, host.name, len(ranks))
        self._again = any(item.rank in self._gone for item in ranks)
        for item in ranks:
            self._mains[item.rank] = item.main
            self._gone.pop(item.rank, None)  # restarted
            if item.launcher is not None:
                self._launchers = {item.launcher.pid: item.launcher}
            self._world = item.main.world_size or self._world
            if self._sources.recorder is not None and item.main.dumps:
                self._sources.recorder.prefixes.add(item.main.dumps)
        self._running = now if ranks else self._running
        gone = bool(self._mains) and not ranks
        self._ended = (now if self._ended is None else self._ended) if gone else None
        if ranks and now - self._sampled >= 0.95 * self._limits.stack_apart:
            self._sampled = now
            self._sample(ranks, now)
        return fresh

    def _sample(self, ranks: Sequence[RankProcess], now: float) -> None:
        silent = (
            self._heard > 0 and now - self._heard >= self._limits.pending
        )  # C frames are expensive, and add nothing for a job that makes progress
        dumps, gaps = self._sources.host.stacks(ranks, self._stopping, native=silent)
        self._note(gaps)
        samples = []
        packed = round_of(name_of(now), dumps)
        for item, (file, _) in zip(dumps, packed.files, strict=True):
            who = Resource(node=self._sources.host.name, rank=item.rank, pid=item.pid)
            source = f"stacks/{packed.name}/{file}"
            found, odd = read_stacks(item.data, source, who, packed.name, now, child=item.child)
            self._note(odd)
            samples += [found] if found is not None else []
        if samples:
            self.rounds.append(packed)
            self._samples.append(tuple(samples))

    def _look_at_dumps(self, now: float) -> None:
        """Read new Flight Recorder dumps. If the logs are silent and requests are allowed, request some."""
        recorder = self._sources.recorder
        if recorder is None:
            return
        found, gaps = recorder.poll(now)
        self._note(gaps)
        if found:
            rings, odd = read_dumps([item.path for item in found], PoolLimits(budget=READ_DUMPS))
            self._note(odd)
            by_path = {str(item.path): item for item in found}
            for ring in rings:
                dump = by_path[ring.source]
                self._rings[dump.path] = (dump, replace(ring, source=f"flight_recorder/{dump.path.name}"))
        old = now - self._limits.window
        self._rings = {path: item for path, item in self._rings.items() if item[0].written >= old}
        silent = self._heard > 0 and now - self._heard >= self._limits.pending
        if self._sources.ask and silent and now - self._asked >= ASK_EVERY:
            self._asked = now
            self._note(
                request_dumps(Path(f"{item.pipe}{rank}.pipe") for rank, item in self._mains.items() if item.pipe)
            )

    def _look_at_metrics(self, now: float) -> None:
        metering = self._sources.metrics
        if metering is None:
            return
        here = {self._sources.host.name: tuple(sorted(self._mains))}
        found = metering.look(now, JobRecord(Job(id=self._sources.job, nodes=here), "watch"))
        if found is None:
            return
        from kb.metrics.panel import panels_of  # noqa: PLC0415 - numpy: only where there are metrics
        from kb.parsers.artefacts.promql.answer import read_prometheus  # noqa: PLC0415 - likewise

        files, gaps = found
        self._note(gaps)
        series = [item for name, data in sorted(files.items()) for item in read_prometheus(data, name)[0] or ()]
        if series:  # an empty round keeps the previous data, which expires on its own
            self.metrics = files
            self._panels, odd = panels_of(series)
            self._note(odd)

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
        """Record a gap once."""
        for gap in gaps:
            key = (gap.code, gap.source)
            if key not in self._known and len(self._known) < MOST_GAPS:
                self._known[key] = gap
                self._new.append(gap)
