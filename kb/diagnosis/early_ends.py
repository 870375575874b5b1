"""Processes that ended early without a recognised error, with their exit status and last lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from kb.anomalies.core.severity_words import harm, skeleton
from kb.diagnosis.bad_events import BadEvent, BadEvents, TailLine, exit_of, is_harmless, is_stack, tells_of_others
from kb.diagnosis.symptoms import Symptoms
from kb.facts.job_facts import CLOCK_SKEW, LAUNCHER_KINDS, Facts, without_status
from kb.facts.topology import Place, Places
from kb.model import Structure
from kb.parsers.logs.error_lines import is_calm, message_of
from kb.parsers.logs.progress.formats import read_line
from kb.parsers.logs.recoveries import quoted
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines
from kb.values import dataclass

LAST_LINES = 3  # for a process that ended without reporting an error
HARM = 0.35  # score from which a line's words count as trouble; severity_words gives it to a bad word without a level
WORDS = lazy_compile(r"[^\W\d_]{2,}")
MOST_LOGS = 64  # that are searched for the exit status of a rank, or for lines like those of one
FEWEST_WORDS = 3  # minimum length of a message; anything shorter is part of a table, a path or a number

ENDS = frozenset({"segfault", "killed"})  # ids of the classes of how a process ended, which launchers report
CRASHED = frozenset({"SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"})  # failures that a process causes itself

LauncherEnd = tuple[int, Structure, Place]  # stream, structure, and the place of the process that ended


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """The early end of a rank: its event, the lines to quote, and its launcher's report."""

    rank: int
    event: BadEvent
    lines: tuple[tuple[int, str], ...] = ()
    reported: LauncherEnd | None = None

    @property
    def status(self) -> str:
        """The exit status that the launcher reports, or the signal; empty where it is unknown."""
        fields = self.reported[1].fields if self.reported else {}
        return str(fields.get("signal") or fields.get("exitcode") or "")


def early_ends(bad: BadEvents, symptoms: Symptoms, accused: Iterable[int]) -> Iterator[EarlyEnd]:
    """Yield the end of each accused rank that ended early without showing a symptom.

    A launcher reports an exit status for the rank, its last lines report trouble, or all other ranks lost it and
    its last line is unlike any other in the run.
    """
    facts, places = bad.facts, bad.places
    crashed = crashed_ranks(facts, places)
    reported = {
        rank: (index, item, Place(rank, places.node_of(rank)))
        for rank, (index, item) in crashed.items()
        if item.kind == "launcher_exit"  # of torchrun's own reports, a rule speaks
    }
    reported |= {end[2].rank: end for end in reversed(launcher_ends(facts, places)) if end[2].rank is not None}
    last_words = LastWords(bad, symptoms)
    told = [finding for finding in symptoms.findings if finding.fault.id not in ENDS]  # by the ranks themselves
    speaking = {symptoms.rank(signal) for finding in told for signal in finding.signals}
    for rank in accused:
        if rank in symptoms.ranks and (rank not in crashed or rank in speaking):
            continue
        end, only_one = reported.get(rank), symptoms.lost_peer and _all_others(rank, symptoms)
        last = last_words.of(rank, with_nobodys=only_one or end is not None)
        last = [item for item in last if exit_of(item.line) is None] or last  # those are its launcher's words
        alone = any(facts.streams[item.stream].summary.ref.resource.rank == rank for item in last)
        silent = not symptoms.findings  # then the report of its launcher is all there is
        own_status = end is not None and (alone or silent or str(end[1].fields.get("exitcode")) != "1")
        telling = [item for item in last if is_trouble(item)]
        if not telling and (only_one or rank in crashed):  # native code says what stopped it in words of its own
            telling = [item for item in last if last_words.unlike_all(item)]
        if not (telling or own_status) or (not telling and end is not None and _came_after(end, symptoms)):
            continue
        if not telling and rank in crashed and end is not None:
            last = []  # no more than its progress
        quotes = telling[-1:] + [item for item in reversed(last) if item not in telling[-1:]]
        quotes = quotes[:1] + [item for item in quotes[1:] if last_words.is_own(item, rank)]
        event = bad.of_line("end", quotes[0]) if quotes else _of_exit(end) if end else None
        if event is not None:
            event = replace(event, place=Place(rank, places.node_of(rank)))
            lines = tuple((item.offset, item.line) for item in quotes if item.stream == event.stream)
            yield EarlyEnd(rank, event, lines, end)


def unnamed_end(bad: BadEvents, symptoms: Symptoms) -> EarlyEnd | None:
    """Return the end of a process that its launcher reports without its rank, by the last telling line before the report.

    The process gives its rank itself, or it stays unknown (-1).
    """
    last_words = LastWords(bad, symptoms)
    for end in launcher_ends(bad.facts, bad.places):
        index, _, place = end
        begun = _first_report(bad.facts, index)
        if place.rank is not None or bad.facts.streams[index].steps_after(begun):
            continue
        said = [line for line in bad.tail(index) if line.offset < begun and last_words.is_said(line)][-LAST_LINES:]
        told = [line for line in said if is_trouble(line) or last_words.unlike_all(line)]
        if told:
            event = bad.of_line("end", told[-1])
            rank = event.place.rank if event.place.rank is not None else -1
            return EarlyEnd(rank, event, tuple((line.offset, line.line) for line in reversed(told)), end)
    return None


def crashed_ranks(facts: Facts, places: Places) -> dict[int, tuple[int, Structure]]:
    """Return the ranks that, according to launchers, were ended by a signal that a process causes itself, with stream and report."""
    found: dict[int, tuple[int, Structure]] = {}
    for kind in ("elastic_failure", "launcher_exit"):
        for index, item in facts.structures(kind):
            signal = str(item.fields.get("signal") or "")
            rank = item.fields.get("rank", places.rank_of_task(str(item.fields.get("task") or "")))
            rank = places.place(index, item.resource).rank if rank is None and kind == "launcher_exit" else rank
            if signal in CRASHED and isinstance(rank, int) and rank >= 0:
                found.setdefault(rank, (index, item))
    return found


def exited_ranks(facts: Facts, places: Places) -> frozenset[int]:
    """Return the ranks whose exit status, or the signal that ended them, is in the logs: in a launcher's report or in a line of a script."""
    found: set[int] = set()
    for kind in LAUNCHER_KINDS:
        for index, item in facts.structures(kind):
            told = item.fields.get("rank", item.fields.get("task"))
            if item.fields.get("exitcode") is None and not item.fields.get("signal"):
                continue
            named = str(told if told is not None else "")
            rank = int(named) if named.isdigit() and len(named) < 8 else places.place(index, item.resource).rank
            found |= {rank} if rank is not None else set()
    for stream in facts.streams[:MOST_LOGS]:
        if stream.summary.ref.kind == "job":
            found |= {rank for _, line in tail_lines(stream.summary) if (rank := exit_of(line)) is not None}
    return frozenset(found)


def _first_report(facts: Facts, index: int) -> int:
    """Return the offset of the first line in which a launcher reports the end of a process, in one log."""
    return min(item.offset for kind in LAUNCHER_KINDS for at, item in facts.structures(kind) if at == index)


def _came_after(end: LauncherEnd, symptoms: Symptoms) -> bool:
    """Whether an ordinary exit, of which the process says nothing, was clearly later than a symptom of another."""
    when = end[1].time
    times = [signal.time for signal in symptoms.signals if signal.time is not None]
    ordinary = str(end[1].fields.get("exitcode")) == "1"
    return ordinary and when is not None and bool(times) and when > min(times) + CLOCK_SKEW


def _all_others(rank: int, symptoms: Symptoms) -> bool:
    """Whether every other rank, up to the highest known rank, reports a symptom."""
    known = symptoms.ranks.union({rank}, *(finding.ranks for finding in symptoms.findings))
    return len(known) == max(known) + 1


def is_trouble(item: TailLine) -> bool:
    """Whether a line's words report a problem in the process itself."""
    said = message_of(item.line)
    return harm(said, None) >= HARM and not (is_harmless(said) or quoted(item.line.encode()))


def says_something(item: TailLine) -> bool:
    """Whether a line is a message, not a part of a table, a path or a number."""
    return len(WORDS.findall(message_of(item.line))) >= FEWEST_WORDS


class LastWords:
    """The last lines of each rank, in whichever log they are."""

    def __init__(self, bad: BadEvents, symptoms: Symptoms) -> None:
        self._facts = bad.facts
        self._places = bad.places
        self._bad = bad
        self._symptoms = symptoms

    def of(self, rank: int, *, with_nobodys: bool) -> list[TailLine]:
        """Return a rank's last lines: those with its prefix, else those of its stream, else a log's lines before all symptoms.

        `with_nobodys`: include later lines that name no rank, since only this rank can have written them.
        """
        shared = []
        for index, stream in enumerate(self._facts.streams):
            if stream.summary.ref.kind != "job":
                continue
            if stream.summary.ref.resource.rank is None:
                shared.append(index)
            said = [item for item in self._bad.tail(index) if self._is_of(item, rank) and self.is_said(item)]
            if said and not stream.steps_after(said[-1].offset):
                after = [item for item in self._nobodys(index) if item.offset > said[-1].offset] if with_nobodys else []
                return said[-LAST_LINES:] + after
        for index in shared:
            said = self._nobodys(index)
            if any(is_trouble(item) or self.unlike_all(item) for item in said[-LAST_LINES:]):
                return said[-LAST_LINES:]
        return []

    def _nobodys(self, index: int) -> list[TailLine]:
        """Return the lines before the first symptom in a shared log that name no rank and no level below error."""
        begun = self._symptoms.begin(index)
        if begun is None or self._facts.streams[index].summary.ref.resource.rank is not None:
            return []
        lines = (item for item in self._bad.tail(index) if item.offset < begun and item.resource.rank is None)
        return [item for item in lines if self.is_said(item) and not is_calm(item.line.encode("utf-8", "replace"))]

    def unlike_all(self, item: TailLine) -> bool:
        """Whether a line is a message of unknown kind whose form is unique in its log."""
        said, raw = message_of(item.line), item.line.encode("utf-8", "replace")
        if not says_something(item) or is_calm(raw):
            return False
        if is_harmless(said) or quoted(raw):
            return False
        summary = self._facts.streams[item.stream].summary
        marked = {mark.offset for mark in summary.marks} | {place.offset for place in summary.structures}
        return item.offset not in marked and not self.is_usual(item)

    def is_usual(self, item: TailLine) -> bool:
        """Whether a line reports progress, or has a form that its log has more often."""
        said = message_of(item.line)  # a message may be glued to a progress bar, which then says nothing of it
        if read_line(item.line.encode("utf-8", "replace")) and read_line(said.encode("utf-8", "replace")):
            return True
        form = _form(item.line)
        others = (other for other in self._bad.tail(item.stream) if other.offset != item.offset)
        return any(_form(other.line) == form for other in others)

    def is_own(self, item: TailLine, rank: int) -> bool:
        """Whether a line is specific to one rank: it names the rank or reports a problem, and no log has another line like it."""
        if not (self._is_of(item, rank) or is_trouble(item)) or self.is_usual(item):
            return False
        return self._logs_with.get(_form(item.line), set()) <= {item.stream}

    @cached_property
    def _logs_with(self) -> Mapping[tuple[str, ...], set[int]]:
        """In which logs each form of a line is among the last ones."""
        found: dict[tuple[str, ...], set[int]] = {}
        for index in range(min(len(self._facts.streams), MOST_LOGS)):
            for item in self._bad.tail(index):
                found.setdefault(_form(item.line), set()).add(index)
        return found

    def _is_of(self, item: TailLine, rank: int) -> bool:
        """Whether a rank wrote a line; on a single node, local ranks are the ranks."""
        place = self._places.place(item.stream, item.resource)
        if place.rank is None and len(self._places.nodes) < 2:
            return item.resource.local_rank == rank
        return place.rank == rank

    def is_said(self, item: TailLine) -> bool:
        """Whether a line is a process's own message, neither part of a stack nor about another process."""
        covered = self._symptoms.covers(item.stream, item.offset)
        return not covered and not is_stack(item.message) and not tells_of_others(item.message)


def _form(line: str) -> tuple[str, ...]:
    """Return the words of a line that do not vary, in any script."""
    said = message_of(line)
    return skeleton(said) if said.isascii() else tuple(word.lower() for word in WORDS.findall(said))


def _of_exit(end: LauncherEnd) -> BadEvent:
    """Return a launcher's report of an exit as an event, if the process itself reported nothing."""
    index, item, _ = end
    return BadEvent(
        "exit",
        index,
        item.offset,
        item.line,
        Place(),
        item.resource,
        item.time,
        (item.offset, item.end),
        timed=item.timed,
    )


def launcher_ends(facts: Facts, places: Places) -> list[LauncherEnd]:
    """Return the exits that launchers report without a signal, each with the place of the process."""
    found = []
    for kind in LAUNCHER_KINDS:
        for index, item in facts.structures(kind):
            code = str(item.fields.get("exitcode") or "")
            failed = code.isdigit() and 0 < int(code) < 128
            if item.fields.get("signal") or not (failed or without_status(item)):
                continue
            place = places.place(index, item.resource)
            task = str(item.fields.get("task") or "")
            if place.rank is None and task.isdigit() and len(task) < 8:
                place = Place(int(task), place.node)
            found.append((index, item, place))
    return found
