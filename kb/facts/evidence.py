"""Evidence of one job, and the facts that rules are judged on: every hit with its stage, iteration and what came after."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Literal

from kb.metrics.series_detectors.detect import detect
from kb.metrics.series_detectors.finding import SeriesFinding
from kb.metrics.series_detectors.watchdog import collective_behind
from kb.model import Gap, Job, ProgressPoint, Resource, SourceKind, Stage, Structure, Window
from kb.parsers.logs.recoveries import quoted
from kb.plugin import Observed, Plugged, plugin_key
from kb.report import Hang
from kb.rulebase.rule import (
    MEASURED,
    DetectorTest,
    ExceptionTest,
    Pattern,
    PluginTest,
    Rule,
    SeriesTest,
    StructureTest,
)
from kb.scanning.summary import Place, StreamSummary, tail_lines

if TYPE_CHECKING:
    from kb.metrics.panel import Panel

PROGRESS_AFTER = 3  # so many further steps and an error before them did not end the run
LEAST_POINTS = 5  # of a metric; fewer are no series
UNTELLING = (None, "launch", "init", "teardown")  # stages that a stream of errors alone seems to be in
RECOVERY = 2048  # bytes behind trouble in which a line may say that it is over
CLOCK_SKEW = 2.0  # seconds by which clocks of two nodes may differ

_TROUBLE = re.compile(
    r"(?i)error|fail|traceback|exception|kill|abort|signal|terminat|exit|dumped|time(?:d )?.?out|cancel"
)
_ENDS = ("elastic_failure", "elastic_exit", "launcher_exit", "native_crash", "oom_kill", "slurm_end")
_SCHEDULER = re.compile(r"\b_?slurm_rpc_\w+|\bslurmctld\b|\bsched: ")
_JOB_FILE = re.compile(r"slurm-(\d{2,12})(?:_\d+)?\.(?:out|err|log)$")
_JOB = re.compile(r"\b[Jj]ob(?:_?[Ii][Dd])?(?:=| |: ?|=Job)#?(\d{2,12})\b")


@dataclass(frozen=True, slots=True)
class PastIncident:
    """One earlier diagnosis, for rules that ask for history."""

    rule: str
    fault: str
    days_ago: float
    node: str | None = None
    gpu: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """An earlier try of the same job that ended badly. `faults`: found in it, the first cause first.

    `advice`: what was said to do then; `without`: the nodes to be left out; `ran_on`: a digest of those that it had
    (`nodes_digest`), "" where they are not known. `incident`: its number, None for an attempt that lies in the bundle.
    `reached`: its last iteration; `shards`: the data that it was at when it ended.
    """

    faults: tuple[str, ...]
    advice: str = "none"
    without: tuple[str, ...] = ()
    ran_on: str = ""
    incident: int | None = None
    reached: int | None = None
    shards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Barred:
    """A node that people have barred, for the cluster or for this job. `since`: the day, as 2026-11-22; `who` confirmed it."""

    node: str
    scope: Literal["cluster", "job"]
    since: str
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What bot chose to tell of the past; bounded. `digest` stands in the report.

    `tries`: the job's own earlier tries, oldest first; `barred`: nodes of this job that are barred.
    """

    past: tuple[PastIncident, ...] = ()
    digest: str = ""
    tries: tuple[Try, ...] = ()
    barred: tuple[Barred, ...] = ()


def history_digest(*parts: object) -> str:
    """A digest of what was told of the past; "" for nothing."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if any(parts) else ""


def nodes_digest(nodes: Iterable[str]) -> str:
    """The same for the same nodes in any order; "" for none."""
    names = sorted(set(nodes))
    return sha256(repr(names).encode("utf-8", "surrogatepass")).hexdigest()[:16] if names else ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything seen of one job in one window. `streams` in a fixed order; earlier attempts and baselines not among them.

    `plugged`: what the detectors that users programmed say of it (kb.plugin.plugin_key → what they gave). `panels`: the
    bundle's metrics by name; with any there is a stream of the group "metrics" for what they show.
    """

    job: Job = field(default_factory=Job)
    window: Window = field(default_factory=Window)
    streams: tuple[StreamSummary, ...] = ()
    gaps: tuple[Gap, ...] = ()
    bundle: str | None = None
    plugged: Mapping[str, Plugged] = field(default_factory=dict)
    panels: Mapping[str, Panel] = field(default_factory=dict)
    hang: Hang = field(default_factory=Hang)


@dataclass(frozen=True, slots=True)
class Signal:
    """One observed thing. `stream` is the index of its stream; `offset` its line's first byte; `span` the block it is part of.

    `survived`: the run demonstrably went on after it.
    """

    key: str
    stream: int
    offset: int
    line: str
    kind: str
    resource: Resource
    time: float | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    stage: Stage | None = None
    iteration: int | None = None
    span: tuple[int, int] = (0, 0)
    survived: bool = False
    chain: int = 0

    @property
    def compared(self) -> bool:
        """Whether a comparison of all ranks showed it (kb.hangs.observe), rather than a device or a program that said it."""
        return self.key.endswith("#observed")


@dataclass(frozen=True, slots=True)
class Seen:
    """A pattern as it was seen in all streams: how often, the signals kept, and on which ranks how often.

    `needs`: what was lacking to look for it at all; then it is not known whether it is there.
    """

    count: int = 0
    signals: tuple[Signal, ...] = ()
    ranks: Mapping[int | None, int] = field(default_factory=dict)
    needs: str = ""


def begin(one: Structure) -> int:
    """The byte at which a structure begins, which may be before its decisive line."""
    start = one.fields.get("start")
    return one.offset if start is None else int(start)


class StreamFacts:
    """One stream's facts by offset: stage, iteration, traceback spans, what came after."""

    def __init__(self, summary: StreamSummary) -> None:
        self.summary = summary
        points = [p for p in summary.series.points if not p.validation]
        self.points = points
        self._point_offsets = [p.offset for p in points]
        self._mark_offsets = [mark.offset for mark in summary.marks]
        self.exceptions = [one for one in summary.structures if one.kind == "exception"]
        self._spans = sorted((begin(one), one.end) for one in self.exceptions)
        excused = [one for one in self.exceptions if one.fields.get("lived_with")]
        self._excused = [(begin(one), one.end) for one in excused]
        ends = [one for one in summary.structures if one.kind == "run_end"]
        self.completed = max((one.offset for one in ends if one.fields.get("how") == "completed"), default=None)
        self.stopped_itself = any(
            one.fields.get("how") in ("completed", "duration_limit", "exit_interval") for one in ends
        )
        self._recoveries = [one for one in summary.structures if one.kind == "recovery"]
        self._recovered = [one.offset for one in self._recoveries]

    def stage(self, offset: int) -> Stage | None:
        """The stage that the stream was in at an offset: the last mark before it, or iterating after an iteration line."""
        mark = bisect_right(self._mark_offsets, offset) - 1
        point = bisect_right(self._point_offsets, offset) - 1
        if mark < 0 and point < 0:
            return None
        if point >= 0 and (mark < 0 or self._point_offsets[point] > self._mark_offsets[mark]):
            return "iterating"
        return self.summary.marks[mark].stage

    def iteration(self, offset: int) -> int | None:
        """The last step logged before an offset."""
        for index in range(bisect_right(self._point_offsets, offset) - 1, -1, -1):
            step = self.points[index].step
            if step is not None:
                return step
        return None

    def in_traceback(self, offset: int) -> bool:
        """Whether a line stands inside a traceback or is its last."""
        index = bisect_right(self._spans, (offset, 1 << 62)) - 1
        return any(start <= offset < end for start, end in self._spans[max(0, index - 3) : index + 1])

    def steps_after(self, offset: int) -> int:
        """How many further training steps were logged behind an offset."""
        later = self.points[bisect_right(self._point_offsets, offset) :]
        # where every epoch ends at the same step, each such line is progress of its own
        steps = {p.step if p.step is not None and p.step != p.total else -p.offset for p in later}
        return len(steps)

    def went_on(self, offset: int) -> bool:
        """Whether the run demonstrably went on behind an offset, ended well, or says that it lives with what stands there."""
        if any(start <= offset < end for start, end in self._excused):
            return True
        if self.completed is not None and self.completed > offset:
            return True
        return self.steps_after(offset) >= PROGRESS_AFTER

    def recovered(self, offset: int, rank: int | None) -> bool:
        """Whether a line a little further on says that the trouble at an offset is over; not one of another rank."""
        low = bisect_right(self._recovered, offset - 1)
        high = bisect_right(self._recovered, offset + RECOVERY)
        return any(rank is None or one.resource.rank in (None, rank) for one in self._recoveries[low:high])

    def calm_after(self, offset: int) -> bool:
        """Whether the stream goes on behind an offset and its last line is not of trouble."""
        last = next(((at, line) for at, line in reversed(list(tail_lines(self.summary))) if line.strip()), None)
        return last is not None and last[0] > offset and not _TROUBLE.search(last[1])


def _steps(facts: StreamFacts) -> Structure:
    """That a stream has iteration lines, as a structure: the last of them."""
    last = facts.points[-1]
    seen = facts.summary.series.seen or len(facts.points)
    text = f"{seen} iteration lines, the last of step {last.step}"
    return Structure("progress", last.offset, last.offset + 1, text, {"seen": seen, "last": last.step}, time=last.time)


class Facts:
    """All streams' facts, and every pattern of every rule looked up in them."""

    def __init__(self, evidence: Evidence, rules: Iterable[Rule]) -> None:
        self.evidence = evidence
        self.streams = [StreamFacts(summary) for summary in evidence.streams]
        self._times = sorted(
            p.time
            for facts in self.streams
            for p in facts.points
            if p.time is not None and facts.summary.ref.kind == "job"
        )
        self._timed = sorted(
            (p.time, p.step)
            for facts in self.streams
            for p in facts.points
            if p.time is not None and p.step is not None
        )
        self._by_kind: dict[str, list[tuple[int, Structure]]] = {}
        self._classes: set[str] | None = None  # of the exceptions
        self._hit: dict[str, list[int]] = {}  # key of a pattern → the streams that it hit
        for index, facts in enumerate(self.streams):
            for key in facts.summary.hits:
                self._hit.setdefault(key, []).append(index)
            for one in facts.summary.structures:
                self._by_kind.setdefault(one.kind, []).append((index, one))
            if facts.points:
                self._by_kind.setdefault("progress", []).append((index, _steps(facts)))
        self.end = self._end_of_steps()
        ends = [one.time for _, one in self.structures("run_end") if one.fields.get("how") == "completed"]
        self._completed = max((time for time in ends if time is not None), default=None)
        self.ended_well = any(facts.stopped_itself for facts in self.streams) and not any(
            True
            for kind in _ENDS
            for index, one in self.structures(kind)
            if not self.streams[index].went_on(one.offset)
        )
        self._own_jobs = {str(one.fields.get("id")) for _, one in self.structures("job_id")}
        if evidence.job.id:
            self._own_jobs.add(evidence.job.id)
        named = (_JOB_FILE.search(facts.summary.ref.uri) for facts in self.streams)
        self._own_jobs.update(found[1] for found in named if found)
        self._nodes = {rank: node for node, ranks in evidence.job.nodes.items() for rank in ranks}
        self._detected: dict[tuple[str, tuple[tuple[str, float], ...]], tuple[tuple[int, SeriesFinding], ...]] = {}
        self.rules = tuple(rules)

    def structures(self, kind: str) -> list[tuple[int, Structure]]:
        """All structures of a kind with the index of their stream."""
        return self._by_kind.get(kind, [])

    def when(self, stream: int, offset: int, time: float | None) -> tuple[Stage | None, int | None]:
        """Stage and iteration at a place: from its own stream, else from the stream that logs the steps, by time."""
        facts = self.streams[stream]
        stage, step = facts.stage(offset), facts.iteration(offset)
        if step is None and time is not None:
            at = bisect_right(self._timed, (time, 1 << 62)) - 1
            step = self._timed[at][1] if at >= 0 else None
            if step is not None and stage in UNTELLING:
                stage = "iterating"
        if step is None and time is None and not facts.points and stage in UNTELLING and self.end is not None:
            # a rank's own error file has neither steps nor times: what ended the run stands where the run ended
            return self.end
        return stage, step

    def _end_of_steps(self) -> tuple[Stage | None, int | None] | None:
        """Stage and step at the end of the stream that logged the furthest step."""
        furthest = max(
            (
                (p.step, index, p.offset)
                for index, facts in enumerate(self.streams)
                for p in facts.points[-1:]
                if p.step
            ),
            default=None,
        )
        if furthest is None:
            return None
        facts = self.streams[furthest[1]]
        later = [mark.stage for mark in facts.summary.marks if mark.offset > furthest[2] and mark.stage != "teardown"]
        return (later[-1] if later else "iterating"), furthest[0]

    def _placed(self, resource: Resource) -> Resource:
        """A resource with its node, where only the job's layout tells on which node its rank ran."""
        if resource.node is not None or resource.rank not in self._nodes:
            return resource
        return replace(resource, node=self._nodes[resource.rank])

    def ranks_known(self) -> int:
        """How many ranks the job has, as far as anything tells."""
        if self.evidence.job.world_size:
            return self.evidence.job.world_size
        named = {s.summary.ref.resource.rank for s in self.streams} - {None}
        return len(named)

    def seen(self, rule: Rule, pattern: Pattern) -> Seen:
        """Look one pattern up."""
        key = f"{rule.id}#{pattern.name}"
        if pattern.exception is not None:
            return self._structured(
                key, pattern, self._raised(pattern.exception.type), exception_test(pattern.exception)
            )
        if pattern.structure is not None:
            found = self.structures(pattern.structure.kind)
            return self._structured(key, pattern, found, structure_test(pattern.structure))
        if pattern.detect is not None:
            return self._detector(key, pattern.detect)
        if pattern.series is not None:
            return self._series(key, pattern, pattern.series)
        if pattern.plugin is not None:
            return self._plugged(key, pattern, pattern.plugin)
        return self._lines(key, pattern)

    def _raised(self, kind: str | None) -> list[tuple[int, Structure]]:
        """The exceptions whose class a regex matches whole: there are few classes, and many ranks that raise one."""
        everything = self.structures("exception")
        if kind is None:
            return everything
        if self._classes is None:
            self._classes = {str(one.fields.get("type") or "") for _, one in everything}
        wanted = {name for name in self._classes if _regex(kind).fullmatch(name) is not None}
        return [item for item in everything if str(item[1].fields.get("type") or "") in wanted] if wanted else []

    def _lines(self, key: str, pattern: Pattern) -> Seen:
        signals: list[Signal] = []
        ranks: dict[int | None, int] = {}
        count = 0
        for index in self._hit.get(key, ()):
            facts = self.streams[index]
            hits = facts.summary.hits[key]
            here = [self._line_signal(key, index, facts, place) for place in hits.places()]
            kept = [signal for signal in here if self._stands(pattern, signal)]
            signals.extend(kept)
            count += hits.count if len(kept) == len(here) else len(kept)
            if kept:
                for tally in hits.ranks:
                    ranks[tally.rank] = ranks.get(tally.rank, 0) + tally.count
        return Seen(count, tuple(signals), ranks)

    def _line_signal(self, key: str, index: int, facts: StreamFacts, place: Place) -> Signal:
        return Signal(
            key,
            index,
            place.offset,
            place.line,
            "line",
            self._placed(place.resource),
            place.time,
            dict(place.captures),
            *self.when(index, place.offset, place.time),
            (place.offset, place.offset + 1),
            self._survived(facts, place.offset, place.time, place.resource.rank) or quoted(place.line.encode()),
        )

    def _structured(
        self,
        key: str,
        pattern: Pattern,
        found: Iterable[tuple[int, Structure]],
        test: Callable[[Structure], Mapping[str, str] | None],
    ) -> Seen:
        signals = []
        for index, one in found:
            captures = test(one)
            if captures is None or not _line_passes(pattern, one.line):
                continue
            signal = self._structure_signal(key, index, one, captures)
            if self._stands(pattern, signal):
                signals.append(signal)
        ranks: dict[int | None, int] = {}
        for signal in signals:
            ranks[signal.resource.rank] = ranks.get(signal.resource.rank, 0) + 1
        return Seen(len(signals), tuple(signals), ranks)

    def _structure_signal(self, key: str, index: int, one: Structure, captures: Mapping[str, str]) -> Signal:
        facts = self.streams[index]
        start = begin(one)
        return Signal(
            key,
            index,
            one.offset,
            one.line,
            "exception" if one.kind == "exception" else "structure",
            self._placed(one.resource),
            one.time,
            captures,
            *self.when(index, start, one.time),
            (start, max(one.end, one.offset + 1)),
            self._survived(facts, one.offset, one.time, one.resource.rank) or quoted(one.line.encode()),
            int(one.fields.get("chain") or 0),
        )

    def _detector(self, key: str, test: DetectorTest) -> Seen:
        if test.name == "collective_behind":
            return self._behind(key)
        which = (test.name, tuple(sorted(test.params.items())))
        if which not in self._detected:
            self._detected[which] = tuple(
                (index, found)
                for index, facts in enumerate(self.streams)
                if facts.summary.ref.kind == "job"
                for found in detect(test.name, facts.summary.series.points, test.params)
            )
        signals = tuple(
            Signal(
                key,
                index,
                point.offset,
                found.text,
                "series",
                Resource(rank=None),
                point.time,
                {**dict(found.captures), "finding": found.text},
                "iterating",
                point.step,
                (point.offset, point.offset + 1),
            )
            for index, found in self._detected[which]
            for point in (found.point, *found.more)
        )
        return Seen(len(signals), signals, {None: len(signals)} if signals else {})

    def _series(self, key: str, pattern: Pattern, test: SeriesTest) -> Seen:
        """Where a series is as the test asks; a metric of the bundle speaks from the stream of its metrics."""
        if not self._measured(test.metric):
            return Seen()
        from kb.facts.series_tests import look  # noqa: PLC0415 - numpy is slow to import, and only a few jobs measure what rules ask for

        logs = [(at, one.summary) for at, one in enumerate(self.streams) if one.summary.ref.kind == "job"]
        metrics = next((at for at, one in enumerate(self.streams) if one.summary.ref.group == "metrics"), None)
        signals = []
        for spot in look(test, logs, self.evidence.panels, self._timed):
            stream = metrics if spot.stream is None else spot.stream
            if stream is None:
                continue
            who = self._placed(spot.resource)
            signal = Signal(
                key,
                stream,
                spot.offset,
                spot.text,
                "series",
                who,
                spot.time,
                {**spot.captures, "finding": spot.text},
                "iterating",
                spot.step,
                (spot.offset, spot.offset + 1),
            )
            if _line_passes(pattern, signal.line) and self._stands(pattern, signal):
                signals.append(signal)
        return Seen(len(signals), tuple(signals), Counter(signal.resource.rank for signal in signals))

    def _measured(self, metric: str) -> bool:
        """Whether anything of the job measures it."""
        if metric in self.evidence.panels or (metric == "gpu_memory_share" and "gpu_memory" in self.evidence.panels):
            return True
        field = MEASURED.get(metric)
        if field is None:
            return False
        points = (p for one in self.streams for p in one.summary.series.points if getattr(p, field) is not None)
        return sum(1 for _ in islice(points, LEAST_POINTS)) == LEAST_POINTS

    def _plugged(self, key: str, pattern: Pattern, test: PluginTest) -> Seen:
        """What a user's detector gave; the streams that it speaks of must be there."""
        gave = self.evidence.plugged.get(plugin_key(test), Plugged(failure="it did not run"))
        if gave.failure:
            return Seen(needs=f"detector {test.name}: {gave.failure}")
        made = [self._observed(key, one) for one in gave.observed if 0 <= one.stream < len(self.streams)]
        signals = tuple(one for one in made if _line_passes(pattern, one.line) and self._stands(pattern, one))
        ranks = Counter(signal.resource.rank for signal in signals)
        return Seen(len(signals), signals, ranks)

    def _observed(self, key: str, one: Observed) -> Signal:
        facts = self.streams[one.stream]
        known = facts.summary.ref.resource
        resource = replace(
            known,
            rank=known.rank if one.rank is None else one.rank,
            node=known.node if one.node is None else one.node,
        )
        stage, step = self.when(one.stream, one.offset, one.time)
        return Signal(
            key,
            one.stream,
            one.offset,
            one.text,
            "series",
            self._placed(resource),
            one.time,
            one.captures,
            stage,
            step if one.iteration is None else one.iteration,
            (one.offset, one.offset + 1),
        )

    def _behind(self, key: str) -> Seen:
        found = collective_behind(self.structures("watchdog_status"))
        signals = tuple(self._structure_signal(key, one.stream, one.status, dict(one.captures)) for one in found)
        return Seen(len(signals), signals, {signal.resource.rank: 1 for signal in signals})

    def of_another_job(self, stream: int, line: str) -> bool:
        """Whether a line of a scheduler's own log speaks of jobs, and none of them is this one."""
        if not self._own_jobs:
            return False
        if self.streams[stream].summary.ref.kind != "scheduler" and not _SCHEDULER.search(line):
            return False
        named = _JOB.findall(line)
        return bool(named) and self._own_jobs.isdisjoint(named)

    def _stands(self, pattern: Pattern, signal: Signal) -> bool:
        where = pattern.where
        facts = self.streams[signal.stream]
        if self.of_another_job(signal.stream, signal.line):
            return False
        if where.sources and facts.summary.ref.kind not in where.sources:
            return False
        if where.stages and signal.stage not in where.stages:
            return False
        if (
            where.in_traceback is not None
            and signal.kind == "line"
            and facts.in_traceback(signal.offset) != where.in_traceback
        ):
            return False
        if where.last_frame is not None:
            return any(
                _search(where.last_frame, str(one.fields.get("last_frame") or ""))
                for one in facts.exceptions
                if begin(one) <= signal.offset < one.end
            )
        return True

    def _survived(self, facts: StreamFacts, offset: int, time: float | None, rank: int | None = None) -> bool:
        if facts.went_on(offset) or facts.recovered(offset, rank):
            return True
        if self.ended_well and facts.summary.ref.kind == "job" and facts.calm_after(offset):
            return True
        if facts.points or time is None:
            return False
        if self._completed is not None and self._completed > time + CLOCK_SKEW:
            return True
        if not self._times:
            return False
        later = len(self._times) - bisect_right(self._times, time + 60.0)
        return later >= PROGRESS_AFTER

    def survived(self, stream: int, offset: int, time: float | None, rank: int | None = None) -> bool:
        """Whether the run demonstrably went on behind a place: in its own stream, or by the clock in the log of steps."""
        return self._survived(self.streams[stream], offset, time, rank)

    def last_point(self) -> ProgressPoint | None:
        """The furthest step of the job."""
        points = [p for facts in self.streams for p in facts.points if p.step is not None]
        return max(points, key=lambda p: p.step or 0, default=None)

    def text_bytes(self) -> int:
        """How much text was seen."""
        return sum(facts.summary.size for facts in self.streams)

    def of_kind(self, kind: SourceKind) -> Iterator[StreamFacts]:
        """The streams of one kind."""
        return (facts for facts in self.streams if facts.summary.ref.kind == kind)


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _search(pattern: str | None, text: str) -> bool:
    return pattern is None or _regex(pattern).search(text) is not None


def fits(pattern: str, text: str, *, whole: bool = True) -> bool:
    """Whether a regex matches a whole text, or is somewhere in it."""
    compiled = _regex(pattern)
    return (compiled.fullmatch(text) if whole else compiled.search(text)) is not None


def _line_passes(pattern: Pattern, line: str) -> bool:
    """`confirm` and `not_line` on the line of a structure; the scanner has done it for line patterns."""
    if pattern.confirm is not None and not _search(pattern.confirm, line):
        return False
    return pattern.not_line is None or not _search(pattern.not_line, line)


def exception_test(test: ExceptionTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """A test of exception structures: gives what was captured, or None."""

    def judge(one: Structure) -> Mapping[str, str] | None:
        kind, message = str(one.fields.get("type") or ""), str(one.fields.get("message") or "")
        last, frames = str(one.fields.get("last_frame") or ""), str(one.fields.get("frames") or "")
        if test.type is not None and _regex(test.type).fullmatch(kind) is None:
            return None
        captures = {"type": kind, "message": message[:200], "last_frame": last}
        if test.message is not None:
            match = _regex(test.message).search(message)
            if match is None:
                return None
            captures.update({name: value for name, value in match.groupdict().items() if value})
        if not (_search(test.frame, frames) and _search(test.last_frame, last)):
            return None
        denied = ((test.not_message, message), (test.not_frame, frames), (test.not_last_frame, last))
        if any(pattern is not None and _search(pattern, text) for pattern, text in denied):
            return None
        return captures

    return judge


def structure_test(test: StructureTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """A test of structures' fields: gives all fields as text, or None."""

    def judge(one: Structure) -> Mapping[str, str] | None:
        fields = {name: "" if value is None else str(value) for name, value in one.fields.items()}
        if any(_regex(pattern).fullmatch(fields.get(name, "")) is None for name, pattern in test.fields.items()):
            return None
        if any(_regex(pattern).fullmatch(fields.get(name, "")) for name, pattern in test.not_fields.items()):
            return None
        return {name: value for name, value in fields.items() if value}

    return judge
