"""Trouble that a run's processes reported: exceptions, crashes, fatal lines and errors, each with its process and place.

Only a line's form counts here; kb.diagnosis.first_unexplained decides whether an event mattered and which came first.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import zip_longest
from typing import Literal

from kb.anomalies.core.severity_words import is_aside, is_consequence, is_mild
from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.topology import Place, Places
from kb.model import Resource, Structure
from kb.parsers.logs.error_lines import behind_bar, error_level, is_traceback_line, message_of
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.recoveries import quoted
from kb.parsers.logs.speakers import speaker
from kb.regex.lazy import lazy_compile
from kb.scanning.line_access import filled_resource, time_of_line
from kb.scanning.summary import tail_lines
from kb.values import dataclass

Kind = Literal["exception", "fatal", "crash", "error", "end", "exit"]
LONGEST = 512  # maximum characters of a line
BLOCK = 600  # bytes of a launcher's failure block that precede its exit code
# classes that report another process's failure, a stop from outside, or no failure at all
_PASSED_ON = lazy_compile(
    r"(?:ChildFailed|CalledProcess|ProcessExited|ProcessRaised|Signal|DistBackend|DistNetwork|DistStore|BrokenProcessPool"
    r"|Remote\w*|WorkerCrashed|WorkerDied|ActorDied|RayActor|RayTask|NodeDied|OwnerDied|TaskCancelled|Cancelled"
    r"|WorkerGroup|WorkerHealthCheck\w*|TrainingFailed)"
    r"(?:Error|Exception)?|SystemExit|KeyboardInterrupt|StopIteration|GeneratorExit|BdbQuit|RayTaskError\(\w+\)"
)
# classes of a lost connection, which programs also raise with words of their own, about other things
_CONNECTION = lazy_compile(r"(?:BrokenPipe|Connection\w*|EOF)(?:Error|Exception)?")
_OF_A_CONNECTION = lazy_compile(
    r"(?i)\berrno\b|connect|\bpipe|socket|\bhosts?\b|\bclose[ds]?\b|\breset\b|refused|aborted|\beof\b|end of file|network|https?:|ran out of input"
)
_HEADER = lazy_compile(r"Traceback \(most recent call last\)")
_FRAME = lazy_compile(r"\s{1,16}File \"[^\"\n]{1,400}\", line \d{1,9}, in ")
_RAISES = lazy_compile(r"\s{4,80}raise (?:\w{1,80}\.){0,8}(?P<name>[A-Z]\w{2,80})\(")
_FEWEST_WORDS = 3  # of a message that says what happened
_SHOWN = 400  # characters of a line in which the exit status of a rank is looked for
_EXITED = lazy_compile(
    r"(?i)\b(?:rank|worker|task|process)[ _:=#]{0,2}(\d{1,6})\b.{0,40}?\bexit(?:ed|s)?(?: with)?[ _-]?(?:status|code|return code)?[ :=]{1,3}-?\d{1,5}\b"
    r"|(?<![a-z])exit(?:ed|s)?\b[^\n]{0,60}?\b(?:rank|worker|task|local_rank)\W{1,4}(\d{1,6})\b.{0,40}?\b(?:code|status|rc|return_?code|exit_?code)\W{1,4}-?\d{1,5}\b"
)
_OTHERS = lazy_compile(
    r"(?i)\b(?:peer|remote (?:process|worker|rank)|other ranks?|another rank|[NR]CCL|gloo|ProcessGroup\w*|collective|all_?reduce|barrier"
    r"|watchdog|TCPStore|rendezvous|DistBackendError|c10d?|c10::\w+|(?:missing|stalled|remaining|remainder of|subset of) ranks)\b"
)
_GIVES_UP = lazy_compile(
    r"(?i)\b(?:refus\w+|cannot|can't|unable|not|never|no longer|without) (?:\w+ ){0,2}(?:continu\w+|carry\w*|retr\w+|recover\w*|resum\w+|proceed\w*|train|go on)"
    r"|\bgiv(?:ing|es|e) up|\b(?:leaving|exiting|stopping|aborting|bailing|shutting down)\b"
)
_CLASS_LINE = lazy_compile(
    r"(?:[A-Za-z_]\w*\.)+(?P<name>[A-Z]\w{2,80})(?:: \S|$)|(?P<alone>[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+): \S"
)
_STACK = lazy_compile(
    r"^\s|^.{0,64}? File \"[^\"]{1,300}\", line \d{1,7},? in |\(most recent call (?:fir|la)st\)|^.{0,64}?\bThread (?:0x[0-9a-fA-F]{1,16}|\d{1,9}) \((?:idle|active)|^.{0,64}? {2}[\w.<>]{1,80} \([\w./<>-]{1,200}:\d{1,7}\)$|^\S{0,40} @ 0x|^#\d|^frame #|^@ |^\*\*\*(?:$| (?:Check failure stack|Aborted at|SIG|Process received|End of error|STEP|JOB))|^goroutine |^\S+\.go:\d|^note: |^Thread 0x|^Current thread|^exit status"
    r"|^Caused by: |^at |^\S+\(\S*\+0x[0-9a-f]+\) ?\[0x|^[-=*#_]{4,}|^Timeout \(\d+:\d\d:\d\d\)!|^\[\d+\]:$"
)


@dataclass(frozen=True, slots=True)
class BadEvent:
    """A line in which a process reports its own trouble, and the bytes that belong to the event (`span`).

    `chain`: the number of exceptions it followed from; `name`: an exception's class, or an exit status; `frame`: the
    innermost frame of an exception; `timed`: whether `time` is its own; else, it is that of an earlier line.
    """

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
    timed: bool = True


@dataclass(frozen=True, slots=True)
class TailLine:
    """A line at the end of a stream, with its writer and its text after the prefixes."""

    stream: int
    offset: int
    line: str
    message: str
    resource: Resource


def _from_below(text: str, offset: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that starts at an offset of its log, the last one first."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end) + 1
        yield offset + len(text[:start].encode("utf-8", "replace")), text[start:end]
        end = start - 1


class BadEvents:
    """The bad events of a run."""

    def __init__(self, facts: Facts, places: Places) -> None:
        self.facts = facts
        self.places = places
        self._tails: dict[int, tuple[TailLine, ...]] = {}

    def all(self) -> Iterator[BadEvent]:
        """Yield every bad event, first from the structures, then from the streams' last lines."""
        facts = self.facts
        for index, item in facts.structures("exception"):
            if not item.fields.get("lived_with"):
                yield self._of_structure("exception", index, item)
        told = {(index, item.offset) for index, item in facts.structures("error_line")}
        for index, item in facts.structures("native_crash"):
            if (index, item.offset) not in told:  # a fatal line is one event, whoever else read it
                yield self._of_structure("crash", index, item)
        for index, item in facts.structures("error_line"):
            if self._of_traceback(index, item.offset, item.line, item.resource) or self._of_launcher(
                index, item.offset, item.end
            ):
                continue
            yield self._of_structure("fatal" if item.fields.get("level") == "fatal" else "error", index, item)
        for index, stream in enumerate(facts.streams):
            if stream.summary.ref.kind == "job":
                yield from self._of_tail(index)
                yield from self._cut_off(index)

    def tail(self, index: int) -> tuple[TailLine, ...]:
        """Return the last lines of a stream, without blank lines and tracebacks."""
        if index not in self._tails:
            stream = self.facts.streams[index]
            own = stream.summary.ref.resource
            found = []
            for at, line in tail_lines(stream.summary):
                if not line.strip() or stream.in_traceback(at):
                    continue
                raw = behind_bar(line.encode("utf-8", "replace")[:2048])
                prefix = peel(raw)
                message = raw[prefix.end :].decode("utf-8", "replace")
                who = filled_resource(own, speaker(raw, prefix))
                found.append(TailLine(index, at, line[:LONGEST], message, self.facts.placed(who)))
            self._tails[index] = tuple(found)
        return self._tails[index]

    def _of_tail(self, index: int) -> Iterator[BadEvent]:
        """Yield errors that no reader's trigger finds, such as other levels and bare class names."""
        tail = self.tail(index)
        for item, following in zip_longest(tail, tail[1:]):
            if item.line[:1] in " \t" or self._of_traceback(index, item.offset, item.line, item.resource):
                continue
            if self._of_launcher(index, item.offset, math.inf if following is None else following.offset):
                continue
            level = error_level(item.line.encode("utf-8", "replace"))
            raised = None if level else _CLASS_LINE.match(item.message)
            if level is None and raised is None:
                continue
            kind: Kind = "exception" if raised else "fatal" if level == "fatal" else "error"
            yield self.of_line(kind, item, (raised["name"] or raised["alone"]) if raised else "")

    def _cut_off(self, index: int) -> Iterator[BadEvent]:
        """Yield the innermost frame of a traceback that the end of a log cuts off before its exception, or the line there that raises it."""
        summary = self.facts.streams[index].summary
        innermost: tuple[int, str, Prefix, str] | None = None
        for at, line in _from_below(summary.tail.rstrip(), summary.tail_offset):
            raw = line.encode("utf-8", "replace")[:2048]
            prefix = peel(raw)
            message = raw[prefix.end :].decode("utf-8", "replace")
            if innermost is not None and _HEADER.match(message):
                offset, shown, own, name = innermost
                who = filled_resource(summary.ref.resource, speaker(shown.encode("utf-8", "replace"), own))
                yield self.of_line("exception", TailLine(index, offset, shown, shown, self.facts.placed(who)), name)
            if not message[:1].isspace():
                return
            raises = _RAISES.match(message) if innermost is None else None
            if raises or (innermost is None and _FRAME.match(message)):
                innermost = at, line[:LONGEST], prefix, raises["name"] if raises else ""

    def _of_traceback(self, index: int, offset: int, line: str, who: Resource) -> bool:
        """Whether a line is above the exception of a traceback of which each line was logged with a level."""
        return is_traceback_line(line) or any(
            structure_start(item) <= offset < item.offset
            and (item.resource.rank, item.resource.pid) == (who.rank, who.pid)
            for item in self.facts.streams[index].exceptions
        )

    def _of_launcher(self, index: int, low: int, high: float) -> bool:
        """Whether a line with a level is the report of a launcher, which repeats the command before the status."""
        reports = self._reports.get(index, ())
        return bisect_left(reports, low) < bisect_left(reports, high)

    def of_line(self, kind: Kind, item: TailLine, name: str = "") -> BadEvent:
        """Return a line of a tail as an event, with its own time if it has one that fits what came before it."""
        time, timed = self.time_of(item)
        return BadEvent(
            kind,
            item.stream,
            item.offset,
            item.line,
            self.places.place(item.stream, item.resource),
            item.resource,
            time,
            (item.offset, item.offset + len(item.line)),
            name=name,
            timed=timed,
        )

    def time_of(self, item: TailLine) -> tuple[float | None, bool]:
        """Return the time of a line of a tail, and whether it is its own; else it is that of what came before it, None if that has none."""
        near = self._time_near(item.stream, item.offset)
        dated = near if near is not None else self.facts.streams[item.stream].summary.last_time
        own = time_of_line(
            item.line.encode("utf-8", "replace"), None if dated is None else datetime.fromtimestamp(dated, UTC).year
        )
        timed = own is not None and (near is None or own >= near - CLOCK_SKEW)
        return own if timed else near, timed

    def _of_structure(self, kind: Kind, index: int, item: Structure) -> BadEvent:
        who = item.resource
        if who.rank is None:
            reported = next(
                (rank for low, high, rank in self._blocks.get(index, ()) if low <= item.offset < high), None
            )
            who = replace(who, rank=reported) if reported is not None else who
        return BadEvent(
            kind,
            index,
            item.offset,
            item.line,
            self.places.place(index, who),
            who,
            item.time,
            (structure_start(item), item.end),
            int(item.fields.get("chain") or 0),
            str(item.fields.get("type") or item.fields.get("what") or ""),
            str(item.fields.get("last_frame") or ""),
            item.timed,
        )

    @cached_property
    def _blocks(self) -> dict[int, list[tuple[int, int, int]]]:
        """The launchers' failure blocks, which repeat a rank's exception, by stream."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for index, item in self.facts.structures("elastic_failure"):
            rank = item.fields.get("rank")
            if isinstance(rank, int) and rank >= 0:
                found.setdefault(index, []).append((item.offset - BLOCK, item.end, rank))
        return found

    @cached_property
    def _reports(self) -> dict[int, list[int]]:
        """The offsets at which launchers report the end of a process, by stream."""
        found: dict[int, list[int]] = {}
        for index, item in self.facts.structures("launcher_exit"):
            insort(found.setdefault(index, []), item.offset)
        return found

    def _time_near(self, index: int, offset: int) -> float | None:
        """Return the time of the nearest structure or step at or before a place; None if there is none."""
        stream = self.facts.streams[index]
        before = [item.time for item in stream.summary.structures if item.offset <= offset and item.time is not None]
        points = [point.time for point in stream.points if point.offset <= offset and point.time is not None]
        return max((*before[-1:], *points[-1:]), default=None)


def passed_on(event: BadEvent) -> bool:
    """Whether an event shows data, or only the effect of another process's failure or an external stop."""
    line = event.line
    if quoted(line.encode()):
        return True
    if event.kind == "exception":
        return (
            bool(_PASSED_ON.fullmatch(event.name))
            or _lost_connection(event)
            or is_consequence(line)
            or bool(_OTHERS.search(line))
        )
    said = message_of(line)
    if event.kind == "crash" or said.startswith("terminate called"):
        what = f"{event.name} {line}"
        return bool(_OTHERS.search(what)) or "SignalException" in what
    if event.kind == "error" and is_harmless(said):
        return True
    return tells_of_others(said)


def _lost_connection(event: BadEvent) -> bool:
    """Whether an exception has the class of a lost connection, and says nothing else."""
    if not _CONNECTION.fullmatch(event.name):
        return False
    said = message_of(event.line).partition(event.name)[2]
    return len(said.split()) < _FEWEST_WORDS or bool(_OF_A_CONNECTION.search(said))


def is_harmless(message: str) -> bool:
    """Whether a message is about something outside the run, or says that its process will continue."""
    return is_aside(message) or (is_mild(message) and not _GIVES_UP.search(message))


def only_gives_up(line: str) -> bool:
    """Whether a line announces the end of its process and does not say why."""
    said = message_of(line)
    return bool(_GIVES_UP.search(said)) and len(_GIVES_UP.sub("", said).split()) < _FEWEST_WORDS


def exit_of(line: str) -> int | None:
    """Return the rank whose exit status a line gives, as a launcher or a script reports it; None if it gives none."""
    found = _EXITED.search(line[:_SHOWN])
    return int(found[1] or found[2]) if found is not None else None


def tells_of_others(message: str) -> bool:
    """Whether a message is about another process, the communication with it, or a launcher's work."""
    return is_consequence(message) or bool(_OTHERS.search(message))


def is_stack(message: str) -> bool:
    """Whether a line is a separator or part of a stack trace of any runtime."""
    return bool(_STACK.search(message))
