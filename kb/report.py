"""The report of a job. Its fields are those of the JSON `signalbox.report/1` (docs/report.schema.json).

Times are seconds since the epoch here; `as_json` writes them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Literal

from kb.model import Attempt, Band, Gap, Grade, Phase, Role, Scope, Verdict
from kb.values import dataclass

SCHEMA = "signalbox.report/1"
Advice = Literal["requeue", "requeue_without", "restart_in_place", "resubmit", "fix_first", "wait", "none"]


TimeZone = Literal["utc", "unknown", "mixed"]


@dataclass(frozen=True, slots=True)
class GpuRef:
    """A GPU, by the identifiers that are known."""

    index: int | None = None
    uuid: str | None = None
    pci: str | None = None


BLOCKER_UNKNOWN = "blocker unknown"
WAITING = f"waiting; {BLOCKER_UNKNOWN}"  # the reason for those that wait, where nothing shows for whom: not at fault
ONE_END = "one end of the failed connection; the logs don't show which end is at fault"
ONE_SIDE = "one of those that differ; the logs don't show which of them is wrong"
WHOLE_JOB = "affects the whole job"  # of a fault that hits a job as a whole, wherever it was seen
SCHEDULER_ENDED = "the scheduler ended the whole job"
COMPLETED = "The run itself completed"  # ends the reason of a decision where that is known
REPORTED = "reported it"  # the reason for those that only ran into a fault that lies elsewhere: not at fault


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who is at fault: a rank, node, GPU, port, switch, or the job as a whole. `score` is 0 to 1 among the suspects."""

    kind: Literal["rank", "node", "gpu", "port", "switch", "job"]
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pod: str | None = None
    gpu: GpuRef | None = None
    score: float = 1.0
    why: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One piece of evidence. `offset` is the byte at which the line starts; `line` counts from 1, None until resolved."""

    id: str
    kind: Literal["line", "series", "stack", "collective", "event"]
    source: str
    text: str
    line: int | None = None
    offset: int | None = None
    time: float | None = None
    rank: int | None = None
    node: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """Symptoms folded under a cause: their class, and what their lines are.

    `count`: the distinct lines, None if not all are known. `ranks`: those that wrote the lines, as ranges ("0-6,8-63").
    """

    fault: str
    count: int | None = None
    ranks: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class RemedyStep:
    """One step of the remedy, with its texts filled in."""

    action: str
    grade: Grade
    text: str
    scope: Scope | None = None
    command: str | None = None
    verify: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A fault and its explanation. `rank` is its place in the list, from 1.

    `rule` is empty for an unknown failure, which no rule explains. `first_seen_own`: whether `first_seen` is the time of
    its own lines; else, it is that of a line before them, and the fault was seen no earlier. `first_seen_reported`: whether it
    is when a launcher noticed the end of the process, and the fault was seen no later. `lies_in`: what is at fault
    where that is no rank, node or GPU, such as the settings of the job; the suspects are then only where it was seen. Empty
    if a suspect is accused, or if it is unknown.
    `epoch`, `epoch_iteration`, `epoch_iterations`: in place of `iteration`, the last position within an epoch before it, if
    the lines only count from the start of each epoch.
    """

    rank: int
    fault: str
    rule: str
    rule_version: int
    title: str
    summary: str
    confidence: float
    band: Band
    role: Role
    reasons: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    first_seen: float | None = None
    first_seen_own: bool = True
    first_seen_reported: bool = False
    stage: str | None = None
    iteration: int | None = None
    evidence: tuple[EvidenceItem, ...] = ()
    explains: tuple[Explained, ...] = ()
    remediation: tuple[RemedyStep, ...] = ()
    cause: str = ""
    impact: str = ""
    owner: str = "none"
    traits: tuple[str, ...] = ()
    lies_in: str = ""
    epoch: int | None = None
    epoch_iteration: int | None = None
    epoch_iterations: int | None = None

    @property
    def known(self) -> bool:
        """Whether a rule explains it."""
        return bool(self.rule)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes among the suspects, each once."""
        return tuple(dict.fromkeys(suspect.node for suspect in self.suspects if suspect.node))

    @property
    def nodes_at_fault(self) -> tuple[str, ...]:
        """The nodes of suspects, without those on which the fault was only seen, or which only waited."""
        found = (suspect.node for suspect in self.suspects if suspect.why not in (WAITING, REPORTED))
        return () if self.lies_in else tuple(dict.fromkeys(node for node in found if node))


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node to leave out, and the scope of that."""

    node: str
    scope: Scope
    why: str


@dataclass(frozen=True, slots=True)
class Option:
    """An open choice: its cost in GPU-hours where that is known, and what the cost includes."""

    advice: Advice
    gpu_hours: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What the reader must decide: whether to requeue, without whom, from where, at what cost, and who owns it.

    `steps_lost`: up to the last logged step; `steps_lost_at_most`: also those that may have followed without a line.
    `find_cause`: only a symptom is known, or nothing, or not the node to leave out; find it before the job is started again.
    """

    advice: Advice = "none"
    exclude: tuple[Exclusion, ...] = ()
    from_checkpoint: int | None = None
    steps_lost: int | None = None
    steps_lost_at_most: int | None = None
    gpu_hours_lost: float | None = None
    owner: str = "none"
    why: str = ""
    options: tuple[Option, ...] = ()
    find_cause: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run came.

    If its lines only count from the start of each epoch, the step of the run is unknown, and `epoch`, `epoch_iteration`
    and `epoch_iterations` give the position in the last epoch as the log prints it.
    """

    last_iteration: int | None = None
    last_progress: float | None = None
    last_checkpoint: int | None = None
    stage: str | None = None
    total_iterations: int | None = None
    epoch: int | None = None
    epoch_iteration: int | None = None
    epoch_iterations: int | None = None


@dataclass(frozen=True, slots=True)
class Indicator:
    """A line, node, stage or iteration that stands out although no rule explains it."""

    what: str
    why: str
    evidence: EvidenceItem | None = None


@dataclass(frozen=True, slots=True)
class Indicators:
    """What stands out, by kind; the main answer where no rule matches. `compared_with`: what the run was compared with."""

    events: tuple[Indicator, ...] = ()
    nodes: tuple[Indicator, ...] = ()
    stages: tuple[Indicator, ...] = ()
    iterations: tuple[Indicator, ...] = ()
    compared_with: str = ""


Ballot = Literal["yes", "no", "not_observable"]  # the vote of a hang probe


@dataclass(frozen=True, slots=True)
class Vote:
    """One hang probe's vote. `since`: when what it reports began."""

    probe: str
    vote: Ballot
    detail: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class StackBranch:
    """Frames of the merged main threads that the same ranks are in, outermost first, each as `function (file:line)`.

    `depth` counts branches from the outermost, 0. `ranks` counts the ranks inside; `inside` and `outside` list them
    as ranges, shortened. `folded`: the number of inner branches left out.
    """

    depth: int
    frames: tuple[str, ...]
    ranks: int
    inside: str
    outside: str = ""
    folded: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """Whether a hang is called, and how each probe voted.

    `suspected`: one probe sees a hang, and no other one could look or agrees; `advice`: what to enable to be sure.
    `stacks`:
    the merged view of the ranks' stacks, outermost branch first, each before those inside it.
    """

    called: bool = False
    votes: tuple[Vote, ...] = ()
    suspected: bool = False
    advice: tuple[str, ...] = ()
    stacks: tuple[StackBranch, ...] = ()

    @property
    def lone(self) -> Vote | None:
        """The vote of the only probe that sees a hang, where no other one could look; else None."""
        said = [vote for vote in self.votes if vote.vote != "not_observable"]
        return said[0] if self.suspected and len(said) == 1 and said[0].vote == "yes" else None


@dataclass(frozen=True, slots=True)
class Alike:
    """An earlier incident that looked like this one and has a confirmed cause. A hint only: rules decide.

    `similarity` is 0 to 1; `fault`: the class that it was closed as, None where no rule matched; `closed_as`: that in
    words;
    `helped`: what fixed it; `shared`: the first few things that both have in common.
    """

    incident: int
    similarity: float
    fault: str | None
    closed_as: str
    helped: str = ""
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """A hint from earlier incidents, in words. `incidents`: the numbers of the first few."""

    kind: Literal["node", "data", "iteration", "barred", "fleet"]
    text: str
    incidents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How advice fared for a fault here: `helped` of `tried` next attempts passed the point of failure.

    `open`: further attempts whose result is unknown.
    """

    advice: Advice
    fault: str
    helped: int
    tried: int
    open: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Hints from other runs: similar ones, lessons, results of advice. `digest`: of everything queried."""

    alike: tuple[Alike, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    outcomes: tuple[Outcomes, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """A rule that could not be evaluated, and what it needs."""

    rule: str
    needs: str


@dataclass(frozen=True, slots=True)
class JobView:
    """The job as the report shows it. `gpus`: None unless GPUs are known; `ranks`: its processes, by its description."""

    id: str | None = None
    name: str | None = None
    attempt: int | None = None
    state: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    owner: str | None = None
    attempts: tuple[Attempt, ...] = ()
    last_good: str | None = None
    ranks: int | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that produced this report."""

    engine: str
    rulebook: str
    digest: str
    calibration: str


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. `id` is a digest of the rest; `fingerprint` identifies the kind of failure.

    `time_zone`: "utc", or "unknown" or "mixed" where all or some logs state no zone; their times are read as UTC.
    """

    id: str
    fingerprint: str
    verdict: Verdict
    phase: Phase
    summary: str
    versions: Versions
    bundle: str | None = None
    window: tuple[float | None, float | None] = (None, None)
    job: JobView = field(default_factory=JobView)
    decision: Decision = field(default_factory=Decision)
    progress: Progress = field(default_factory=Progress)
    diagnoses: tuple[Diagnosis, ...] = ()
    indicators: Indicators = field(default_factory=Indicators)
    hang: Hang = field(default_factory=Hang)
    memory: Memory = field(default_factory=Memory)
    gaps: tuple[Gap, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    streams: int = 0
    bytes_read: int = 0
    time_zone: TimeZone = "utc"


_TIME_LIMIT = "time_limit"  # id of the fault class


def is_unexplained(report: Report) -> bool:
    """Whether something failed and the answer does not say what happened first: its lines may be the seed of a rule."""
    return report.verdict == "no_match" or (report.verdict == "fault" and leaves_open(report))


def leaves_open(report: Report) -> bool:
    """Whether the diagnoses do not say what happened first in the run itself.

    All are weak, or the first is a symptom, or a limit of time that only the scheduler reports: the run may have hung.
    """
    if not report.diagnoses:
        return False
    first = report.diagnoses[0]
    limit = first.fault == _TIME_LIMIT and all(item.kind == "event" for item in first.evidence)
    return limit or first.role == "symptom" or all(item.band == "weak" for item in report.diagnoses)


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: `0-6,8-63`."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return spans(found)


def spans(pairs: Iterable[tuple[int, int]]) -> str:
    """Format pairs of first and last number as ranges."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def short_ranges(numbers: Iterable[int], most: int = 24) -> str:
    """Format numbers as ranges, cut after `most` of them, with the count of ranges left out."""
    parts = ranges(numbers).split(",")
    return ",".join(parts) if len(parts) <= most else f"{','.join(parts[:most])},+{len(parts) - most} more"
