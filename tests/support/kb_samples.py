"""A small rulebook for tests of the scanner and the engine: few rules, no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.model import Job, ProgressPoint, Resource, StreamRef, Structure
from kb.rulebase.rule import ActionWord, FaultClass, Name, Pattern, Rule, Rulebook
from kb.scanning.matcher import Hit, HyperscanMatcher, Matcher, ScanPattern
from kb.scanning.plan import ScanPlan
from kb.scanning.plan_builder import plan
from kb.scanning.scanner import scan
from kb.scanning.summary import (
    PatternHits,
    Place,
    RankTally,
    Series,
    StageMark,
    StreamSummary,
    first_places,
    last_places,
)

FAULTS = {
    fault_class.id: fault_class
    for fault_class in (
        FaultClass("cuda_oom", "software", "GPU memory exhausted", explains=("peer_failure",)),
        FaultClass("deadlock", "software", "Locked up", explains=("peer_failure",), advice="requeue"),
        FaultClass("code_bug", "software", "Error in the code", explains=("peer_failure",)),
        FaultClass(
            "gpu_memory_ecc",
            "hardware",
            "GPU memory error",
            explains=("peer_failure", "cuda_oom"),
            advice="requeue_without",
        ),
        FaultClass("loss_spike", "training", "Loss spike", outlives=True),
        FaultClass("preempted", "platform", "Preempted", explains=("peer_failure",), advice="requeue"),
        FaultClass("link_down", "network", "A link is down", explains=("peer_failure",), advice="requeue_without"),
        FaultClass("peer_failure", "none", "A peer was lost", symptom=True, advice="restart_in_place"),
    )
}
ACTIONS = {"look_at_logs": ActionWord("look_at_logs", "Look at these logs", "look")}
OWNERS = {"hardware": "hardware", "software": "user", "training": "user", "none": "none"}


def rule(name: str, fault: str, *patterns: Pattern, **parts: object) -> Rule:
    """A rule with the parts that tests do not care about filled in."""
    values: dict[str, object] = {
        "title": name,
        "role": "root_cause",
        "status": "stable",
        "severity": "high",
        "summary": "",
        "cause": "",
        "impact": "",
        "when": Name(patterns[0].name),
        "remediation": (),
    }
    return Rule(id=name, fault=fault, patterns=patterns, **{**values, **parts})  # type: ignore[arg-type]


def rulebook(*rules: Rule) -> Rulebook:
    """A rulebook of these rules."""
    return Rulebook("0", "digest", rules, FAULTS, ACTIONS, OWNERS)


OOM = rule("oom", "cuda_oom", Pattern("line", regex=r"out of memory\. Tried to allocate (?P<size>[\d.]+ GiB)"))
CLOSED = rule("closed", "peer_failure", Pattern("line", literal="Connection closed by peer"), role="symptom")
ANCHORED = rule("anchored", "code_bug", Pattern("line", regex=r"^Fatal trouble in \w+", not_line=r"\(harmless\)"))
BOOK = rulebook(OOM, CLOSED, ANCHORED)
PLAN = plan(BOOK)


_PREPARED: dict[int, tuple[Rulebook, ScanPlan, Matcher]] = {}  # the book is kept, so that its id stays its own


def prepared(book: Rulebook) -> tuple[ScanPlan, Matcher]:
    """Plan and compiled engine of a book, made once."""
    if id(book) not in _PREPARED:
        what = plan(book)
        _PREPARED[id(book)] = (book, what, SharingMatcher(what.patterns))
    return _PREPARED[id(book)][1:]


class SharingMatcher:
    """Hyperscan in two parts: what each plan searches for, compiled once, and the rest. Compiling both takes a hundred times longer."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[ScanPattern]) -> None:
        (shared, engine), at = _shared(), {pattern: index for index, pattern in enumerate(patterns)}
        self._parts: list[tuple[list[int], Matcher]] = [([at[pattern] for pattern in shared], engine)]
        if own := [pattern for pattern in patterns if pattern not in shared]:
            self._parts.append(([at[pattern] for pattern in own], HyperscanMatcher(own)))

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        return [(numbers[index], at) for numbers, part in self._parts for index, at in part.hits(block)]

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """See `Matcher.lines`."""
        return self.hits(block), {}

    def dump(self) -> None:
        """Return None: it is compiled in two parts."""


@cache
def _shared() -> tuple[tuple[ScanPattern, ...], HyperscanMatcher]:
    patterns = plan(rulebook()).patterns
    return patterns, HyperscanMatcher(patterns)


def matcher() -> Matcher:
    """The compiled engine for PLAN, made once."""
    return prepared(BOOK)[1]


def scanned(text: str | bytes, book: Rulebook, ref: StreamRef | None = None) -> StreamSummary:
    """The summary of a text, read for the rules of a book."""
    what, matcher_ = prepared(book)
    data = text.encode() if isinstance(text, str) else text
    return scan(what, matcher_, ref or StreamRef("logs/train.log"), [data])


def ref(uri: str, rank: int | None = None, node: str | None = None, kind: str = "job") -> StreamRef:
    """A stream's reference."""
    return StreamRef(uri, Resource(rank=rank, node=node), kind=kind)  # type: ignore[arg-type]


def place(
    offset: int,
    line: str = "a line",
    *,
    time: float | None = None,
    rank: int | None = None,
    node: str | None = None,
    **captures: str,
) -> Place:
    """A place where a pattern hit."""
    return Place(offset, line, Resource(rank=rank, node=node), time, tuple(captures.items()))


def hits(*places: Place, count: int | None = None) -> PatternHits:
    """Hits at these places; `count` where more were counted than kept."""
    tallies: dict[int | None, RankTally] = {}
    for item in sorted(places, key=lambda entry: entry.offset):
        old = tallies.get(item.resource.rank)
        rank = item.resource.rank
        tallies[rank] = RankTally(rank, old.count + 1, old.first) if old else RankTally(rank, 1, item.offset)
    kept = first_places(places), last_places(places)
    return PatternHits(len(places) if count is None else count, *kept, tuple(tallies.values()))


def stream(
    what: StreamRef | str = "logs/train.log",
    found: Mapping[str, Iterable[Place] | PatternHits] | None = None,
    *,
    structures: Iterable[Structure] = (),
    points: Iterable[ProgressPoint] = (),
    marks: Iterable[StageMark] = (),
    size: int = 100_000,
) -> StreamSummary:
    """A summary made by hand: hits by pattern key, structures, points, marks."""
    known = tuple(points)
    return StreamSummary(
        StreamRef(what) if isinstance(what, str) else what,
        size,
        {k: v if isinstance(v, PatternHits) else hits(*v) for k, v in (found or {}).items()},
        tuple(structures),
        Series(known, len(known), 0, known[0] if known else None, known[-1] if known else None),
        tuple(marks),
    )


def steps(first: int, last: int, *, start: int = 0, every: int = 100, **values: object) -> list[ProgressPoint]:
    """Iteration lines of steps first to last, `every` bytes apart from offset `start` on."""
    return [
        ProgressPoint(start + every * index, step, **values)  # type: ignore[arg-type]
        for index, step in enumerate(range(first, last + 1))
    ]


def exception(
    offset: int,
    kind: str = "ValueError",
    message: str = "bad",
    *,
    start: int | None = None,
    time: float | None = None,
    rank: int | None = None,
    **fields: str | int,
) -> Structure:
    """An exception whose last line is at an offset, its traceback beginning at `start`."""
    line = f"{kind}: {message}"
    values = {"type": kind, "message": message, "start": offset if start is None else start, **fields}
    return Structure("exception", offset, offset + len(line) + 1, line, values, Resource(rank=rank), time)


def facts(*streams: StreamSummary, job: Job | None = None) -> Facts:
    """The facts of a job with these streams."""
    return Facts(Evidence(job or Job(), streams=streams))
