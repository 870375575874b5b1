"""The lines that a report quotes as evidence for a diagnosis, for an unknown failure, or for how a run ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kb.anomalies.core.severity_words import by_signal, is_consequence
from kb.diagnosis.bad_events import TailLine
from kb.diagnosis.context.passing_changes import LATE_ERROR, NO_FAULT
from kb.diagnosis.endings import end_lines_of
from kb.diagnosis.findings import Finding, chain_span
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.telling_lines import BESIDE, form_of, telling_lines
from kb.facts.completion.completion import Completion
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.facts.topology import names_a_node
from kb.model import Structure, Verdict
from kb.regex.lazy import lazy_compile
from kb.report import Diagnosis, EvidenceItem, Indicator, Indicators, Suspect
from kb.scanning.summary import StreamSummary

SHOWN_LINES = 5
SHOWN_TEXT = 2048
MESSAGE_LINES = 2  # of a message whose first line only announces them
MESSAGE_LINE = 512
INDICATORS = 8
NUMBER = lazy_compile(r"\d+")


_ITEMS: Mapping[str, Literal["stack", "collective", "series", "event"]] = {
    "stacks": "stack",
    "collectives": "collective",
    "metrics": "event",
    "events": "event",
    "probes": "event",
}


class Numbering:
    """Assigns the ids e1, e2, … to evidence. The same line of the same source keeps its id."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._ids: dict[tuple[int, int], str] = {}

    def item(self, signal: Signal) -> EvidenceItem:
        """Return a signal's line as evidence."""
        summary = self._facts.streams[signal.stream].summary
        text = f"{signal.line}{self._rest_of_message(signal)}"
        return self._make(signal.stream, signal.offset, text, summary, signal)

    def _rest_of_message(self, signal: Signal) -> str:
        """Return the next lines of an exception's message where its first line only announces them; else an empty text."""
        if not signal.line.rstrip().endswith(":"):
            return ""
        raised = (item for item in self._facts.streams[signal.stream].exceptions if item.offset == signal.offset)
        said = next((str(item.fields.get("message") or "") for item in raised), "")
        _, _, rest = said.partition("\n")
        following = [line.strip()[:MESSAGE_LINE] for line in rest.splitlines() if line.strip()][:MESSAGE_LINES]
        return "".join(f"\n{line}" for line in following)

    def raised_last(self, signal: Signal) -> EvidenceItem | None:
        """Return the exception that followed from a signal's exception and ended the process; None if the signal's own did."""
        if signal.kind != "exception":
            return None
        _, high = chain_span(signal, self._facts)
        later = [
            item
            for item in self._facts.streams[signal.stream].exceptions
            if signal.offset < item.offset < high
            and int(item.fields.get("chain") or 0) > 0
            and item.resource.rank == signal.resource.rank
        ]
        return (
            replace(self.line(signal.stream, later[-1].offset, later[-1].line), rank=signal.resource.rank)
            if later
            else None
        )

    def line(self, stream: int, offset: int, text: str) -> EvidenceItem:
        """Return a line of a stream as evidence."""
        return self._make(stream, offset, text, self._facts.streams[stream].summary, None)

    def with_line(self, quoted: Sequence[EvidenceItem], line: TailLine, who: Suspect) -> tuple[EvidenceItem, ...]:
        """Return the quoted lines, with a line of a suspect inserted after the first one."""
        if any(
            item.source == self._facts.streams[line.stream].summary.ref.uri and item.offset == line.offset
            for item in quoted
        ):
            return tuple(quoted)
        item = replace(self.line(line.stream, line.offset, line.line), rank=who.rank, node=who.node)
        return (*quoted[:1], item, *quoted[1 : SHOWN_LINES - 1])

    def _make(self, stream: int, offset: int, text: str, summary: StreamSummary, signal: Signal | None) -> EvidenceItem:
        name = self._ids.setdefault((stream, offset), f"e{len(self._ids) + 1}")
        resource = signal.resource if signal else summary.ref.resource
        return EvidenceItem(
            id=name,
            kind="series" if signal and signal.kind == "series" else _ITEMS.get(summary.ref.group, "line"),
            source=summary.ref.uri,
            text=text.strip("\n"),
            offset=offset if summary.ref.group not in _ITEMS else None,
            time=signal.time if signal else None,
            rank=resource.rank,
            node=resource.node,
        )


def quoted_lines(ranked: Ranked, numbers: Numbering) -> tuple[EvidenceItem, ...]:
    """Return the decisive lines: the first of each shape, starting with the leading rule's, up to five lines and 2 kB."""
    chosen: list[EvidenceItem] = []
    shapes: set[str] = set()
    room = SHOWN_TEXT
    last = numbers.raised_last(ranked.best.first)
    for signal in _rounds(ranked):
        if last is not None and len(chosen) == 1:  # after the first one, how the program saw the failure
            chosen.append(last)
            shapes.add(NUMBER.sub("#", last.text)[:160])
            room -= len(last.text.encode("utf-8", "replace"))
            last = None
        shape = f"{signal.stream} {signal.offset}" if signal.kind == "series" else NUMBER.sub("#", signal.line)[:160]
        if shape in shapes or not signal.line.strip():
            continue
        if signal.kind == "series" and _quoted_already(signal, ranked, chosen):
            continue
        item = numbers.item(signal)
        text = _cut(item.text, room)
        if len(chosen) == SHOWN_LINES or len(text) < min(40, len(item.text)):
            break
        shapes.add(shape)
        room -= len(text.encode("utf-8", "replace"))
        chosen.append(replace(item, text=text))
    return tuple(chosen if last is None or len(chosen) != 1 else (*chosen, last))


def _quoted_already(signal: Signal, ranked: Ranked, chosen: Sequence[EvidenceItem]) -> bool:
    """Whether a value was read from a line that is quoted as such."""
    same = (item for finding in ranked.findings for item in finding.signals if item.stream == signal.stream)
    lines = {item.offset for item in same if item.kind != "series"}
    return signal.offset in lines and any(item.offset == signal.offset for item in chosen)


def _cut(text: str, size: int) -> str:
    """Cut a text to this many bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= size else data[:size].decode("utf-8", "ignore")


def _rounds(ranked: Ranked) -> list[Signal]:
    """Sort signals for quoting: the first of each pattern of each rule, then the rest."""
    first: list[Signal] = []
    rest: list[Signal] = []
    for finding in ranked.findings:
        keys: set[str] = set()
        for signal in finding.signals:
            (rest if signal.key in keys else first).append(signal)
            keys.add(signal.key)
    return first + rest


def _indicators(facts: Facts, signs: Sequence[tuple[int, Structure]], lines: Sequence[Indicator]) -> Indicators:
    """Return what indicates an unknown failure: the given lines, and nodes, stages and the step of what ended the run."""
    stages = sorted(
        {str(facts.streams[s].stage(pair.offset)) for s, pair in signs if facts.streams[s].stage(pair.offset)}
    )
    steps = sorted({i for s, pair in signs if (i := facts.streams[s].run_iteration(pair.offset)) is not None})
    nodes = sorted({node for _, pair in signs if (node := pair.resource.node) and names_a_node(node)})
    stages = [stage for stage in stages if stage != "teardown"] or stages  # the others were stopped then
    return Indicators(
        tuple(lines),
        tuple(Indicator(node, "its lines report the failure") for node in nodes[:INDICATORS]),
        tuple(Indicator(stage, "the stage in which the job ended") for stage in stages[:2]),
        tuple(Indicator(str(step), "the last step before the failure") for step in steps[-1:]),
    )


def _lines_that_tell(
    facts: Facts,
    signs: Sequence[tuple[int, Structure]],
    numbers: Numbering,
    quoted: Sequence[EvidenceItem],
    *,
    sure: bool = False,
) -> list[Indicator]:
    """Return the lines that ended a run, then those that most likely say why, as many as are left beside the quoted ones.

    Where one rank says what failed, what launchers and other ranks report of its end is left out.
    """
    found: list[Indicator] = []
    forms = {form_of(line) for item in quoted for line in item.text.split("\n")}
    sources = {item.source for item in quoted}
    led = {index for index, _ in signs}
    led |= {index for index, stream in enumerate(facts.streams) if stream.summary.ref.uri in sources}

    lead = quoted[0] if quoted else None
    own = lead.rank if lead is not None and not _is_of_others(lead.text) else None

    def add(stream: int, offset: int, line: str, rank: int | None, why: str) -> None:
        form = form_of(line)
        if own is not None and rank != own and _is_of_others(line):
            return
        if line.strip() and form not in forms and len(quoted) + len(found) < SHOWN_LINES:
            forms.add(form)
            found.append(Indicator(line.strip()[:200], why, numbers.line(stream, offset, line)))

    for stream, pair in signs:
        add(
            stream,
            pair.offset,
            pair.line,
            pair.resource.rank,
            f"{pair.kind.replace('_', ' ')}; nothing shows that the run continued",
        )
    if len(quoted) + len(found) < SHOWN_LINES:
        for item in telling_lines(facts, led, sure=sure):
            if item.worth < BESIDE and (quoted or found):
                break
            add(item.stream, item.offset, item.line, item.rank, item.why)
    return found


def _is_of_others(text: str) -> bool:
    """Whether a line only reports that another process ended."""
    return is_consequence(text) and not by_signal(text)


def shown_indicators(
    verdict: Verdict,
    facts: Facts,
    signs: Sequence[tuple[int, Structure]],
    end: Completion,
    numbers: Numbering,
    *,
    first: Diagnosis | None = None,
    passed: Sequence[Finding] = (),
    late: Sequence[tuple[int, int, str]] = (),
) -> Indicators:
    """Return the lines that report an unknown failure; otherwise those that prove a normal end, or the logs' last lines.

    `first`: the first diagnosis. `passed`: changes of a metric that the run survived, as observations behind them. `late`:
    errors before its normal end, each with its stream and offset.
    """
    quoted = first.evidence if first is not None else ()
    if verdict == "no_match":
        lines = _lines_that_tell(facts, signs, numbers, quoted)
        if lines or quoted:
            return _indicators(facts, signs, lines)
    if verdict == "fault":
        told = first is not None and first.role == "symptom"  # what it is a symptom of is unknown
        return Indicators(tuple(_lines_that_tell(facts, (), numbers, quoted)) if told else ())
    ended = _end_indicators(verdict, facts, end, numbers)
    seen = dict.fromkeys(finding.first.line for finding in passed)
    errors = [
        Indicator(text.strip()[:200], LATE_ERROR, numbers.line(stream, offset, text))
        for stream, offset, text in late[:INDICATORS]
    ]
    doubts = _lines_that_tell(facts, (), numbers, (), sure=True) if verdict == "insufficient_evidence" else []
    known = {form_of(line) for item in ended.events if item.evidence for line in item.evidence.text.split("\n")}
    doubts = [item for item in doubts if form_of(item.what) not in known]
    return replace(ended, events=(*doubts, *ended.events, *errors, *(Indicator(text, NO_FAULT) for text in seen)))


def _end_indicators(verdict: Verdict, facts: Facts, end: Completion, numbers: Numbering) -> Indicators:
    """Return the lines that prove a normal end or, without proof, the last lines of the logs."""
    lines = list(end_lines_of(verdict, facts, end))[:INDICATORS]
    events = [
        Indicator(item.line.strip()[:200], item.why, numbers.line(item.stream, item.offset, item.line))
        for item in lines
    ]
    return Indicators(tuple(event for event in events if event.what))
