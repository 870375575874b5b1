"""The first bad event of a run that no rule explains: an exception, a fatal line, an error or an early end.

It knows no fault, only what the scan has read: structures, the last lines of the streams, which lines rules match, and the
order of it all by time, offset and rank. An event counts only if its process did not go on after it, it is not quoted data,
and it is not what a lost peer, a time-out or a teardown makes others print.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kb.anomalies.core.severity_words import is_aside, is_consequence, is_mild, skeleton
from kb.diagnosis.findings import Finding, chain_span
from kb.diagnosis.ranking import precedes
from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.facts.signals import Signal
from kb.facts.stream_facts import structure_start
from kb.facts.topology import Place, Places
from kb.model import Resource, Structure
from kb.parsers.logs.error_lines import error_level, message_of
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.recoveries import quoted
from kb.parsers.logs.structured import rank_of
from kb.scanning.summary import tail_lines

Kind = Literal["exception", "fatal", "crash", "error", "end"]
LINES = 5  # own lines that are quoted
CALM_AFTER_ERROR = 3  # ordinary lines of the same process that may follow an error that ended it
CALM_AFTER_FATAL = 12  # likewise after an exception or a fatal line: a program may still clean up
FEW = 1 / 3  # share of the ranks that may print the same error; what more of them print is no rank's own failure
LAST_LINES = 3  # of a process that ended without a word of error
_WORTH: Mapping[Kind, int] = {"exception": 0, "fatal": 0, "crash": 1, "error": 2, "end": 3}
# classes that report another process's failure, a stop from outside, or no failure at all
_PASSED_ON = re.compile(
    r"(?:ChildFailed|CalledProcess|ProcessExited|ProcessRaised|Signal|DistBackend|DistNetwork|DistStore|BrokenPipe|BrokenProcessPool"
    r"|Connection\w*|Remote\w*|WorkerCrashed|WorkerDied|ActorDied|RayActor|RayTask|NodeDied|OwnerDied|TaskCancelled|Cancelled|EOF)"
    r"(?:Error|Exception)?|SystemExit|KeyboardInterrupt|StopIteration|GeneratorExit|BdbQuit|RayTaskError\(\w+\)"
)
_PASSED_ON_TEXT = re.compile(
    r"(?i)\b(?:peer|remote (?:process|worker|rank)|other ranks?|another rank|[NR]CCL|gloo|ProcessGroup\w*|collective|all_?reduce|barrier"
    r"|watchdog|TCPStore|rendezvous|heartbeat|DistBackendError|c10d?|c10::\w+)\b"
)
_CLASS_LINE = re.compile(
    r"(?:[A-Za-z_]\w*\.)+(?P<name>[A-Z]\w{2,80})(?:: \S|$)|(?P<alone>[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+): \S"
)
_STACK = re.compile(
    r"^\s|^\S{0,40} @ 0x|^#\d|^frame #|^@ |^\*\*\*|^goroutine |^\S+\.go:\d|^note: |^Thread 0x|^Current thread|^exit status|^Caused by: |^at "
)


@dataclass(frozen=True, slots=True)
class BadEvent:
    """One line that reports trouble of its own process. `span`: the bytes that belong to it; `level`: what it is worth."""

    kind: Kind
    stream: int
    offset: int
    line: str
    place: Place
    resource: Resource
    time: float | None = None
    span: tuple[int, int] = (0, 0)
    chain: int = 0
    name: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The first unexplained event, its process's other bad lines, and why it counts as first.

    `lead`: seconds by which it came before the first symptom, None where that is unknown. `named`: who points at its rank.
    `ranks`: all ranks with the same event.
    """

    event: BadEvent
    lines: tuple[tuple[int, str], ...] = ()
    lead: float | None = None
    named: str = ""
    ranks: frozenset[int] = field(default_factory=frozenset)


def first_unexplained(
    findings: Sequence[Finding], facts: Facts, places: Places, accused: Mapping[int, str] | None = None
) -> Unexplained | None:
    """Return the first bad event that no finding explains and that no finding could have caused; None without any.

    `accused`: rank → who points at it (collectives, watchdogs, a launcher).
    """
    return _Search(findings, facts, places, accused or {}).first()


class _Search:
    """One search: the bad events of every process, and what rules say of the same lines."""

    def __init__(self, findings: Sequence[Finding], facts: Facts, places: Places, accused: Mapping[int, str]) -> None:
        self._facts = facts
        self._places = places
        self._accused = {**_accused_by_launchers(facts, places), **accused}
        self._symptoms = [finding for finding in findings if finding.is_symptom]
        self._covered: dict[int, list[tuple[int, int]]] = {}
        for finding in findings:
            for signal in finding.signals:
                span = signal.span if finding.is_symptom else chain_span(signal, facts)
                self._covered.setdefault(signal.stream, []).append((span[0], max(span[1], signal.offset + 1)))
                self._covered[signal.stream].append((signal.offset, signal.offset + 1))

    def first(self) -> Unexplained | None:
        """Return the event that leads: of an accused rank before others, else the earliest."""
        by_process: dict[tuple[object, ...], list[BadEvent]] = {}
        for event in self._events():
            by_process.setdefault(self._process(event), []).append(event)
        led = [(min(events, key=_weight), events) for events in by_process.values()]
        chosen = [(event, events) for event, events in led if self._comes_first(event)]
        if not chosen:
            return self._ended_early()
        event, events = min(chosen, key=lambda item: self._order(item[0]))
        same = {other.place.rank for other, _ in chosen if _alike(other, event)} - {None}
        return Unexplained(
            event,
            self._own_lines(event, events),
            self._lead(event.time),
            self._accused.get(event.place.rank, "") if event.place.rank is not None else "",
            frozenset(rank for rank in same if rank is not None),
        )

    # -- which events there are

    def _events(self) -> Iterator[BadEvent]:
        for event in self._read():
            if not (self._explained(event) or self._passed_on(event) or self._went_on(event)):
                yield event

    def _read(self) -> Iterator[BadEvent]:
        facts = self._facts
        for index, item in facts.structures("exception"):
            if not item.fields.get("lived_with"):
                yield self._event("exception", index, item)
        for index, item in facts.structures("native_crash"):
            yield self._event("crash", index, item)
        for index, item in facts.structures("error_line"):
            yield self._event("fatal" if item.fields.get("level") == "fatal" else "error", index, item)
        for index, stream in enumerate(facts.streams):
            if stream.summary.ref.kind == "job":
                yield from self._of_tail(index)

    def _of_tail(self, index: int) -> Iterator[BadEvent]:
        """Yield the error lines at the end of a stream that no reader's trigger finds: other levels, bare class names."""
        stream = self._facts.streams[index]
        for at, line in tail_lines(stream.summary):
            if not line.strip() or line[:1] in " \t" or stream.in_traceback(at):
                continue
            raw = line.encode("utf-8", "replace")
            level = error_level(raw[:2048])
            raised = None if level else _CLASS_LINE.match(line[peel(raw).end :])
            if level is None and raised is None:
                continue
            who = self._facts.placed(_speaker(raw, stream.summary.ref.resource))
            kind: Kind = "exception" if raised else "fatal" if level == "fatal" else "error"
            yield BadEvent(
                kind,
                index,
                at,
                line[:512],
                self._places.place(index, who),
                who,
                self._time_near(index, at),
                (at, at + len(raw)),
                name=(raised["name"] or raised["alone"]) if raised else "",
            )

    def _event(self, kind: Kind, index: int, item: Structure) -> BadEvent:
        who = item.resource
        if who.rank is None:
            reported = next((r for low, high, r in self._blocks.get(index, ()) if low <= item.offset < high), None)
            who = replace(who, rank=reported) if reported is not None else who
        return BadEvent(
            kind,
            index,
            item.offset,
            item.line,
            self._places.place(index, who),
            who,
            item.time,
            (structure_start(item), item.end),
            int(item.fields.get("chain") or 0),
            str(item.fields.get("type") or ""),
            str(item.fields.get("last_frame") or ""),
        )

    @cached_property
    def _blocks(self) -> dict[int, list[tuple[int, int, int]]]:
        """The launchers' failure blocks by stream, which repeat a rank's exception."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for index, item in self._facts.structures("elastic_failure"):
            rank = item.fields.get("rank")
            if isinstance(rank, int) and rank >= 0:
                found.setdefault(index, []).append((item.offset - 600, item.end, rank))
        return found

    def _time_near(self, index: int, offset: int) -> float | None:
        """Return the time of the nearest structure or step at or before a place, else of the stream's end."""
        stream = self._facts.streams[index]
        before = [item.time for item in stream.summary.structures if item.offset <= offset and item.time is not None]
        points = [point.time for point in stream.points if point.offset <= offset and point.time is not None]
        return max((*before[-1:], *points[-1:]), default=None)

    # -- which of them count

    def _explained(self, event: BadEvent) -> bool:
        low, high = event.span
        return any(
            start <= event.offset < end or (low <= start < high and event.kind == "exception")
            for start, end in self._covered.get(event.stream, ())
        )

    def _passed_on(self, event: BadEvent) -> bool:
        """Whether it reports what another process's failure, or a stop from outside, does to this one; or shows data."""
        line = event.line
        if quoted(line.encode()) or self._facts.of_another_job(event.stream, line):
            return True
        if event.kind == "exception":
            return bool(_PASSED_ON.fullmatch(event.name)) or is_consequence(line) or bool(_PASSED_ON_TEXT.search(line))
        said = message_of(line)
        if event.kind == "crash" or said.startswith("terminate called"):
            what = self._what(event)
            return bool(_PASSED_ON_TEXT.search(what)) or "SignalException" in what
        if event.kind == "error" and (is_aside(said) or is_mild(said)):
            return True
        return is_consequence(said) or bool(_PASSED_ON_TEXT.search(said))

    def _what(self, event: BadEvent) -> str:
        crash = [
            str(item.fields.get("what") or "")
            for item in self._facts.streams[event.stream].summary.structures
            if item.kind == "native_crash" and item.offset == event.offset
        ]
        return " ".join((*crash, event.line))

    def _went_on(self, event: BadEvent) -> bool:
        """Whether its process, or the run, went on after it."""
        stream = self._facts.streams[event.stream]
        if self._facts.survived(event.stream, event.offset, event.time, event.resource.rank):
            return True
        if stream.summary.ref.resource.rank is not None and stream.steps_after(event.offset):
            return True
        most = CALM_AFTER_ERROR if event.kind == "error" else CALM_AFTER_FATAL
        return self._calm_after(event, most + 1) > most or (event.kind == "error" and self._recurs(event))

    def _calm_after(self, event: BadEvent, most: int) -> int:
        """Count the ordinary lines that the same process wrote after an event, up to `most`."""
        stream = self._facts.streams[event.stream]
        shared = stream.summary.ref.resource.rank is None and event.resource.rank is not None
        calm = 0
        for at, line in tail_lines(stream.summary):
            if at < event.span[1] or not line.strip() or stream.in_traceback(at):
                continue
            raw = line.encode("utf-8", "replace")[:2048]
            rest = raw[peel(raw).end :].decode("utf-8", "replace")
            if shared and _speaker(raw, stream.summary.ref.resource).rank != event.resource.rank:
                continue
            if _STACK.search(rest) or error_level(raw) or is_consequence(rest) or _PASSED_ON_TEXT.search(rest):
                continue
            calm += 1
            if calm == most:
                break
        return calm

    def _recurs(self, event: BadEvent) -> bool:
        """Whether the same error was printed before without harm, or by many ranks."""
        said = skeleton(message_of(event.line))
        ranks: set[int | None] = set()
        for index, item in self._facts.structures("error_line"):
            if skeleton(message_of(item.line)) != said:
                continue
            if self._facts.streams[index].steps_after(item.offset) or self._facts.survived(
                index, item.offset, item.time
            ):
                return True
            ranks.add(self._places.place(index, item.resource).rank)
        return len(ranks) > 1 and len(ranks) > FEW * self._places.world

    def _comes_first(self, event: BadEvent) -> bool:
        """Whether no symptom came before it, in its own process or, for a rank that nobody points at, in any."""
        mine = self._signal(event)
        accused = event.place.rank in self._accused
        for finding in self._symptoms:
            for signal in finding.signals:
                own = (
                    self._places.place(signal.stream, signal.resource).unit == event.place.unit
                    or signal.stream == event.stream
                )
                order = precedes(mine, signal)
                if own and order == 0.0 and self._same_voice(event, signal):
                    return False
                if not accused and order == 0.0:
                    return False
        return event.kind != "error" or accused or not self._symptoms or self._clearly_before(event)

    def _same_voice(self, event: BadEvent, signal: Signal) -> bool:
        rank = self._places.place(signal.stream, signal.resource).rank
        return event.place.rank is None or rank is None or rank == event.place.rank

    def _clearly_before(self, event: BadEvent) -> bool:
        lead = self._lead(event.time)
        if lead is not None:
            return lead > CLOCK_SKEW
        return all(signal.stream == event.stream for finding in self._symptoms for signal in finding.signals)

    def _lead(self, time: float | None) -> float | None:
        times = [signal.time for finding in self._symptoms for signal in finding.signals if signal.time is not None]
        return min(times) - time if times and time is not None and min(times) >= time else None

    def _signal(self, event: BadEvent) -> Signal:
        return Signal("", event.stream, event.offset, event.line, "line", event.resource, event.time)

    def _process(self, event: BadEvent) -> tuple[object, ...]:
        return event.place.unit if event.place.rank is not None else (event.stream,)

    def _order(self, event: BadEvent) -> tuple[float, ...]:
        accused = event.place.rank in self._accused
        when = event.time if event.time is not None else math.inf
        return (not accused, _WORTH[event.kind] > 1, when, event.place.rank is None, event.stream, event.offset)

    # -- what is quoted of it

    def _own_lines(self, event: BadEvent, events: Sequence[BadEvent]) -> tuple[tuple[int, str], ...]:
        """Return the lines to quote: the event's, the frame that raised it, and the other bad lines of its process."""
        found: dict[int, str] = {event.offset: event.line}
        frame = self._frame_line(event)
        if frame is not None:
            found[frame[0]] = frame[1]
        near = sorted((item for item in events if item.stream == event.stream), key=_weight)
        for item in near:
            found.setdefault(item.offset, item.line)
        return tuple(found.items())[:LINES]

    def _frame_line(self, event: BadEvent) -> tuple[int, str] | None:
        """Return the line of the traceback that names the frame in which it was raised, where the tail still holds it."""
        place, _, function = event.frame.rpartition(" in ")
        path, _, number = place.rpartition(":")
        if not path:
            return None
        wanted = f'File "{path}", line {number}'
        low, high = event.span
        for at, line in tail_lines(self._facts.streams[event.stream].summary):
            if low <= at < high and wanted in line and function in line:
                return at, line
        return None

    # -- ends without a word

    def _ended_early(self) -> Unexplained | None:
        """Return the end of a rank that its launcher reports with a status of its own, and whose log shows no symptom."""
        ends = [
            (index, item, place)
            for index, item, place in _launcher_ends(self._facts, self._places)
            if place.rank is not None and not self._has_symptom(place.rank)
        ]
        if not ends:
            return None
        index, item, place = min(ends, key=lambda end: (end[1].time is None, end[1].time or 0.0, end[0], end[1].offset))
        own = next(
            (
                at
                for at, stream in enumerate(self._facts.streams)
                if stream.summary.ref.kind == "job" and stream.summary.ref.resource.rank == place.rank and at != index
            ),
            None,
        )
        if own is None:
            return None
        last = [(at, line[:512]) for at, line in tail_lines(self._facts.streams[own].summary) if line.strip()][
            -LAST_LINES:
        ]
        if not last:
            return None
        who = replace(self._facts.streams[own].summary.ref.resource, rank=place.rank, node=place.node)
        at, line = last[-1]
        event = BadEvent("end", own, at, line, place, who, item.time, (at, at + 1), name=_status(item))
        return Unexplained(event, tuple(reversed(last)), self._lead(item.time), self._accused.get(place.rank or 0, ""))

    def _has_symptom(self, rank: int) -> bool:
        return any(
            self._places.place(signal.stream, signal.resource).rank == rank
            and signal.resource.rank == rank
            and self._facts.streams[signal.stream].summary.ref.resource.rank == rank
            for finding in self._symptoms
            for signal in finding.signals
        )


def _weight(event: BadEvent) -> tuple[int, float, int]:
    return (_WORTH[event.kind], event.chain if event.kind == "exception" else 0, event.offset)


def _alike(left: BadEvent, right: BadEvent) -> bool:
    return left.kind == right.kind and skeleton(message_of(left.line)) == skeleton(message_of(right.line))


def _speaker(raw: bytes, stream: Resource) -> Resource:
    prefix = peel(raw)
    rank = prefix.rank if prefix.rank is not None else rank_of(raw)
    return Resource(
        node=prefix.node or stream.node,
        rank=stream.rank if rank is None else rank,
        local_rank=stream.local_rank if prefix.local_rank is None else prefix.local_rank,
        pid=stream.pid if prefix.pid is None else prefix.pid,
        container=stream.container,
    )


def _accused_by_launchers(facts: Facts, places: Places) -> dict[int, str]:
    """Return the ranks that launchers report as the first to fail."""
    blocks = [item for _, item in facts.structures("elastic_failure") if item.fields.get("root") == "yes"]
    times = sorted(str(item.fields.get("time") or "~") for item in blocks)
    found: dict[int, str] = {}
    for item in blocks:
        rank = item.fields.get("rank")
        if isinstance(rank, int) and rank >= 0 and str(item.fields.get("time") or "~") == times[0]:
            found[rank] = "the launcher reports it as the first to fail"
    if not found:
        ends = _launcher_ends(facts, places)
        ranks = {place.rank for _, _, place in ends if place.rank is not None}
        if len(ranks) == 1:
            found = dict.fromkeys(ranks, "the launcher reports its exit")
    return found


def _launcher_ends(facts: Facts, places: Places) -> list[tuple[int, Structure, Place]]:
    """Return the exits with a status of their own (no signal) that launchers report, each with the place that ended."""
    found = []
    for kind in ("elastic_failure", "elastic_exit", "launcher_exit"):
        for index, item in facts.structures(kind):
            code = str(item.fields.get("exitcode") or "")
            if item.fields.get("signal") or not code.isdigit() or not 0 < int(code) < 128:
                continue
            if kind == "elastic_failure" and item.fields.get("root") != "yes":
                continue
            place = places.place(index, item.resource)
            task = str(item.fields.get("task") or "")
            if place.rank is None and task.isdigit() and len(task) < 8:
                place = Place(int(task), place.node)
            found.append((index, item, place))
    return found


def _status(item: Structure) -> str:
    return str(item.fields.get("exitcode") or "")
