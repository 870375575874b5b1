"""The first bad event of a run that no rule explains: an exception, a fatal line, an error or an early end.

The search knows no faults, only what the scan read: structures, the streams' last lines, the lines that rules match, and
their order by time, offset and rank. An event counts only if its process did not continue after it, it is not quoted data,
and it is not an effect of a lost peer, a timeout or a teardown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from kb.anomalies.core.severity_words import skeleton
from kb.diagnosis.bad_events import (
    BadEvent,
    BadEvents,
    Kind,
    exit_of,
    is_stack,
    only_gives_up,
    passed_on,
    tells_of_others,
)
from kb.diagnosis.causal_order import precedes
from kb.diagnosis.early_ends import LauncherEnd, crashed_ranks, early_ends, launcher_ends, unnamed_end
from kb.diagnosis.findings import Finding
from kb.diagnosis.symptoms import Symptoms
from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.facts.log.run_ends import from_tracker
from kb.facts.patterns.signals import Signal
from kb.facts.topology import Place, Places
from kb.model import Resource
from kb.parsers.logs.error_lines import error_level, message_of
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines
from kb.values import dataclass

STARTED = "process_start"  # kind of the structures that map ranks to processes
LINES = 5  # number of the process's own lines to quote
CALM_AFTER_ERROR = 3  # ordinary lines that a process may print after the error that ended it
CALM_AFTER_FATAL = 12  # likewise after an exception or a fatal line, since a program may still clean up
_RIGHT_ABOVE = 1024  # bytes between an error and the line by which its process announces its end
FEW = 1 / 3  # share of the ranks that may print the same error; if more do, it is not one rank's own failure
# threads left at exit, usually after the failure of another rank; the header of torch_npu, which the cause follows
_HEADS_STACK = lazy_compile(r"\berror stack:\s{0,4}$")  # of MPICH: the calls follow, and the last one says what failed
_MPI_STACK = 1500  # bytes of such a stack, at most
_SAYS_NOTHING = lazy_compile(
    r"terminate called without an active exception|\) ERR\d{5} [A-Z]{2,8} call \w{2,8} api failed"
)
_TRIES_AGAIN = lazy_compile(
    r"(?i)\b(?:will|going to) (?:be )?(?:retr(?:y|ied)|tr(?:y|ied) again)\b|\b(?:retrying|trying again)\b(?! (?:failed|gave))"
)
_WORTH: Mapping[Kind, int] = {"exception": 0, "fatal": 0, "crash": 1, "error": 2, "end": 3, "exit": 3}


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The first unexplained event, the other bad lines of its process, and the reason it counts as first.

    `lead`: seconds by which it preceded the first symptom, None if unknown; `exact`: whether all symptoms have a time.
    `named`: who accuses its rank. `ranks`: all ranks that report the same event. `leads`: whether it demonstrably preceded
    all other bad events and symptoms. `stood`: seconds of silence of the whole run after it, before somebody stopped the run.
    """

    event: BadEvent
    lines: tuple[tuple[int, str], ...] = ()
    lead: float | None = None
    named: str = ""
    ranks: frozenset[int] = field(default_factory=frozenset)
    exact: bool = True
    leads: bool = False
    stood: float = 0.0


def first_unexplained(
    findings: Sequence[Finding], facts: Facts, places: Places, accused: Mapping[int, str] | None = None
) -> Unexplained | None:
    """Return the first bad event that no finding explains or could have caused; None if there is none.

    `accused`: rank → who accuses it (collectives, watchdogs, a launcher).
    """
    return _Search(findings, facts, places, accused or {}).first()


class _Search:
    """A search over the bad events of every process and the rules that match the same lines."""

    def __init__(self, findings: Sequence[Finding], facts: Facts, places: Places, accused: Mapping[int, str]) -> None:
        self._facts = facts
        self._places = places
        self._bad = BadEvents(facts, places)
        self._symptoms = Symptoms(findings, facts, places)
        self._accused = {**_accused_by_launchers(facts, places, launcher_ends(facts, places)), **accused}

    def first(self) -> Unexplained | None:
        """Return the leading event: the earliest, preferring those of accused ranks."""
        by_process: dict[tuple[object, ...], list[BadEvent]] = {}
        for event in self._events():
            by_process.setdefault(_process(event), []).append(event)
        led = [(self._leading(events), events) for events in by_process.values()]
        chosen = [(event, events) for event, events in led if self._comes_first(event)]
        if not chosen:
            return self._ended_early()
        event, events = min(chosen, key=lambda item: self._order(item[0]))
        same = {other.place.rank for other, _ in chosen if _alike(other, event)} - {None}
        return Unexplained(
            event,
            self._own_lines(event, events),
            self._symptoms.lead(event.time),
            self._accused.get(event.place.rank, "") if event.place.rank is not None else "",
            frozenset(rank for rank in same if rank is not None),
            self._symptoms.dated,
            self._leads(event, [other for other, _ in chosen if other is not event]),
        )

    def _leading(self, events: Sequence[BadEvent]) -> BadEvent:
        """Return the event of a process that says most; one that only announces its end yields to the error right above."""
        most = min(events, key=_weight)
        if most.kind != "fatal" or not only_gives_up(most.line):
            return most
        above = [item for item in events if item.kind == "error" and item.stream == most.stream]
        near = [item for item in above if 0 < most.offset - item.offset < _RIGHT_ABOVE and self._comes_first(item)]
        return max(near, key=lambda item: item.offset, default=most)

    def _leads(self, event: BadEvent, others: Sequence[BadEvent]) -> bool:
        mine = _signal(event)
        return all(precedes(mine, other) == 1.0 for other in (*map(_signal, others), *self._symptoms.signals))

    def _events(self) -> Iterator[BadEvent]:
        for event in self._bad.all():
            if self._explained(event) or passed_on(event) or self._went_on(event):
                continue
            if event.kind == "exception" and not event.name and self._symptoms.signals:
                continue  # cut off before its class: it may be of the symptom that others show
            if not self._facts.of_another_job(event.stream, event.line):
                yield self._placed(event)

    def _placed(self, event: BadEvent) -> BadEvent:
        """Return an event, giving it the only accused rank without a symptom if its own rank is unknown."""
        if event.place.rank is not None or self._facts.streams[event.stream].summary.ref.kind != "job":
            return event
        if self._is_no_rank(event):
            return event
        ranks = [rank for rank in self._accused if rank not in self._symptoms.ranks]
        if len(ranks) != 1:
            return event
        return replace(event, place=Place(ranks[0], self._places.node_of(ranks[0]) or event.place.node))

    def _is_no_rank(self, event: BadEvent) -> bool:
        """Whether a process other than the ranks wrote the event, such as the controller that started them."""
        return event.place.rank is None and event.resource.pid is not None and bool(self._facts.structures(STARTED))

    # -- which events count

    def _explained(self, event: BadEvent) -> bool:
        low, high = event.span
        # what a header announces is on the next line
        ahead = high + 1 if _SAYS_NOTHING.search(event.line) else 0
        if _HEADS_STACK.search(event.line):
            ahead = high + _MPI_STACK
        return any(
            start <= event.offset < end or (low <= start < high and event.kind == "exception") or high <= start <= ahead
            for start, end in self._symptoms.covered.get(event.stream, ())
        )

    def _went_on(self, event: BadEvent) -> bool:
        """Whether its process or the run continued after the event."""
        stream = self._facts.streams[event.stream]
        if self._facts.survived(event.stream, event.offset, event.time, event.resource.rank):
            return True
        if event.kind == "error" and stream.iteration(event.offset) is not None and from_tracker(event.line):
            return True
        if event.kind == "exception" and self._was_retried(event):
            return True
        alone = stream.summary.ref.resource.rank is not None or self._is_no_rank(event)
        if alone and stream.steps_after(event.offset):
            return True
        most = CALM_AFTER_ERROR if event.kind == "error" else CALM_AFTER_FATAL
        return self._calm_after(event, most + 1) > most or (event.kind == "error" and self._recurs(event))

    def _calm_after(self, event: BadEvent, most: int) -> int:
        """Count the ordinary lines that the same process wrote after an event, up to `most`."""
        stream = self._facts.streams[event.stream]
        shared = stream.summary.ref.resource.rank is None
        begun = self._symptoms.begin(event.stream) if shared and event.resource.rank is None else None
        calm = 0
        for item in self._bad.tail(event.stream):
            if item.offset < event.span[1] or (shared and _speaker(item.resource) != _speaker(event.resource)):
                continue
            if begun is not None and item.offset >= begun > event.offset:
                break
            if is_stack(item.message) or error_level(item.line.encode()) or tells_of_others(item.message):
                continue
            calm += 1
            if calm == most:
                break
        return calm

    def _was_retried(self, event: BadEvent) -> bool:
        """Whether the line above an exception announces another try, and its rank lived to report a symptom of its own."""
        rank, low = event.place.rank, event.span[0]
        lived = any(
            item.stream == event.stream and item.offset >= event.span[1] and self._symptoms.rank(item) == rank
            for item in self._symptoms.signals
        )
        if rank is None or not lived:
            return False
        own = (item for item in self._bad.tail(event.stream) if low - _RIGHT_ABOVE < item.offset < low)
        said = [item for item in own if self._places.place(item.stream, item.resource).rank == rank]
        return bool(said) and _TRIES_AGAIN.search(said[-1].message) is not None

    def _recurs(self, event: BadEvent) -> bool:
        """Whether the same error was printed earlier without harm, or by many ranks."""
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
        """Whether no symptom preceded the event in its own process or, for a rank that nobody accuses, in any process."""
        mine = _signal(event)
        accused = event.place.rank in self._accused
        for signal in self._symptoms.signals:
            if precedes(mine, signal) > 0.0:
                continue
            rank = self._symptoms.rank(signal)
            own = signal.stream == event.stream and (rank is None or event.place.rank in (None, rank))
            if own or rank == event.place.rank or not accused:
                return False
        return event.kind != "error" or accused or not self._symptoms.findings or self._clearly_before(mine)

    def _clearly_before(self, mine: Signal) -> bool:
        """Whether an error came before every symptom, by the clock or in the same stream."""
        lead = self._symptoms.lead(mine.time)
        by_clock = lead is not None and lead > CLOCK_SKEW
        return all(
            by_clock or (item.stream == mine.stream and precedes(mine, item) == 1.0) for item in self._symptoms.signals
        )

    def _order(self, event: BadEvent) -> tuple[float, ...]:
        accused = event.place.rank in self._accused
        when = event.time if event.time is not None else math.inf
        return (
            not accused,
            _SAYS_NOTHING.search(event.line) is not None,
            _WORTH[event.kind] > 1,
            when,
            event.place.rank is None,
            event.stream,
            event.offset,
        )

    # -- which of its lines are quoted

    def _own_lines(self, event: BadEvent, events: Sequence[BadEvent]) -> tuple[tuple[int, str], ...]:
        """Return the lines to quote: the event's own line, those that belong to it, and its process's other bad lines."""
        found: dict[int, str] = {event.offset: event.line}
        found |= self._frame_line(event) if event.kind == "exception" else self._said_after(event)
        near = sorted((item for item in events if item.stream == event.stream), key=_weight)
        for item in near:
            found.setdefault(item.offset, item.line)
        return tuple(found.items())[:LINES]

    def _frame_line(self, event: BadEvent) -> dict[int, str]:
        """Return the traceback line that names the frame where the exception was raised, if the tail still holds it."""
        place, _, function = event.frame.rpartition(" in ")
        path, _, number = place.rpartition(":")
        wanted = f'File "{path}", line {number}'
        low, high = event.span
        lines = tail_lines(self._facts.streams[event.stream].summary) if path else ()
        return {at: line for at, line in lines if low <= at < high and wanted in line and function in line}

    def _said_after(self, event: BadEvent) -> dict[int, str]:
        """Return what a crash prints on the following lines, such as `what():` or the message of a panic."""
        own = [item for item in self._bad.tail(event.stream) if item.resource.rank == event.resource.rank]
        after = [item for item in own if item.offset > event.offset][:2]
        wanted = [item for item in after if "what():" in item.line or not is_stack(item.message)]
        return {
            item.offset: item.line
            for item in wanted
            if not tells_of_others(item.message) and exit_of(item.line) is None
        }

    def _ended_early(self) -> Unexplained | None:
        """Return the end of a rank that others accuse and that shows no symptom itself."""
        for end in early_ends(self._bad, self._symptoms, self._accused):
            event = replace(end.event, name=end.status)
            lead = self._symptoms.lead(event.time)
            return Unexplained(event, end.lines[:LINES], lead, self._accused[end.rank], exact=self._symptoms.dated)
        unnamed = unnamed_end(self._bad, self._symptoms) if not self._symptoms.findings else None
        return (
            None if unnamed is None else Unexplained(replace(unnamed.event, name=unnamed.status), unnamed.lines[:LINES])
        )


def _signal(event: BadEvent) -> Signal:
    return Signal("", event.stream, event.offset, event.line, "line", event.resource, event.time)


def _speaker(resource: Resource) -> tuple[int | None, ...]:
    """Return what a line's prefix says about its process."""
    return (resource.rank, resource.local_rank, resource.pid)


def _process(event: BadEvent) -> tuple[object, ...]:
    return event.place.unit if event.place.rank is not None else (event.stream,)


def _weight(event: BadEvent) -> tuple[int, float, int]:
    return (_WORTH[event.kind], event.chain if event.kind == "exception" else 0, event.offset)


def _alike(left: BadEvent, right: BadEvent) -> bool:
    return left.kind == right.kind and skeleton(message_of(left.line)) == skeleton(message_of(right.line))


def _accused_by_launchers(facts: Facts, places: Places, ends: Sequence[LauncherEnd]) -> dict[int, str]:
    """Return the ranks that launchers report as crashed, as the first to fail, or as the only ones that exited."""
    found: dict[int, str] = {}
    failed = [
        (rank, item)
        for _, item in facts.structures("elastic_failure")
        if isinstance(rank := item.fields.get("rank"), int)
    ]
    for rank, (_, item) in crashed_ranks(facts, places).items():
        found[rank] = f"the launcher reports that {item.fields['signal']} ended it"
    times = sorted(str(item.fields.get("time") or "~") for _, item in failed if item.fields.get("root") == "yes")
    for rank, item in failed:
        if item.fields.get("root") == "yes" and rank >= 0 and str(item.fields.get("time") or "~") == times[0]:
            found.setdefault(rank, "the launcher reports it as the first to fail")
    codes = Counter(item.fields.get("exitcode") for _, item in failed)
    for rank, item in failed:
        if len(failed) > 2 and rank >= 0 and codes[item.fields.get("exitcode")] == 1 and not item.fields.get("signal"):
            found[rank] = f"the launcher reports exit status {item.fields.get('exitcode')}, unlike that of the others"
    ranks = {place.rank for _, _, place in ends if place.rank is not None}
    if not found and len(ranks) == 1:
        found = dict.fromkeys(ranks, "the launcher reports its exit")
    return found or _unlike_others(ends)


def _unlike_others(ends: Sequence[LauncherEnd]) -> dict[int, str]:
    """Return the rank whose exit status differs from that of all others, else the one whose exit was reported first."""
    status = {place.rank: str(item.fields.get("exitcode")) for _, item, place in ends if place.rank is not None}
    codes = Counter(status.values())
    lone = {rank: code for rank, code in status.items() if codes[code] == 1 and len(status) > 2}
    if len(lone) == 1:
        return {
            rank: f"the launcher reports exit status {code}, unlike that of the others" for rank, code in lone.items()
        }
    if len(status) < 2 or len({index for index, _, _ in ends}) > 1:
        return {}
    return {next(iter(status)): "the launcher reports its exit before those of the others"}
