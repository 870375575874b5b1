"""The digest of a week as a value: every figure with its number of cases. `kb.digest.definitions` defines the figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from kb.digest.recovery_times import Recoveries
from kb.digest.repeat_offenders import Offenders
from kb.digest.statistics import Rate, Share, Spread, Sum, total

SCHEMA = "signalbox.digest/1"


@dataclass(frozen=True, slots=True)
class FaultTitle:
    """A class of faults by its title, with its domain (hardware, network, platform, software, training, none)."""

    title: str
    domain: str = "none"


@dataclass(frozen=True, slots=True)
class ClassLine:
    """Failures of one class; `before`: in the week before; `open`: that nobody has closed, None in digests that did not count them."""

    fault: str
    title: str
    domain: str
    failures: int
    gpu_hours: Sum
    before: int
    open: int | None = None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One week of the trend; times in seconds since the epoch, `hours` as many as the week had."""

    week: str
    start: float
    end: float
    hours: float
    failures: int
    gpu_hours: Sum
    between: Rate
    unknown: Share
    effective: float | None


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Mean time to failure of jobs of one size: hours run per failure. `low`, `high`: GPUs; None for no upper end."""

    low: int
    high: int | None
    to_failure: Rate
    runs: int


@dataclass(frozen=True, slots=True)
class Ineffective:
    """Hours of job time. `recovery`: mean hours of the failures whose recovery time is known; `saving`: writing checkpoints.

    `wall`: hours from the first start to the last stop of the interrupted jobs, within the week; `jobs`: how many these are.
    `value` and `effective` are None if fewer than five recovery times are known.
    """

    interruptions: int
    known: int
    recovery: float | None
    saving: Sum
    wall: float
    jobs: int
    value: float | None
    effective: float | None


@dataclass(frozen=True, slots=True)
class AccuracyRecord:
    """The bot's own record over `weeks` weeks, by close-outs: its answers, and the failures for which it had none."""

    weeks: int
    closed: Share
    top1: Share
    top3: Share
    abstained: Share


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule: how often it came first this week, and how many of its recent answers that people judged were wrong."""

    rule: str
    fired: int
    wrong: Share


@dataclass(frozen=True, slots=True)
class OpenFailure:
    """A failure that nobody has closed."""

    incident: int
    job: str
    fault: str
    title: str
    gpu_hours: float | None
    at: float


@dataclass(frozen=True, slots=True)
class NewThisWeek:
    """What is new this week. `compared`: how many of the weeks before had any report."""

    compared: int
    classes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BreakdownLine:
    """Failures with one value of a breakdown."""

    value: str
    failures: int
    gpu_hours: Sum


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Failures by a property of their jobs; `unknown`: those without it; `rest`: in lines left out."""

    name: str
    lines: tuple[BreakdownLine, ...]
    unknown: int
    rest: int


@dataclass(frozen=True, slots=True)
class Digest:
    """All figures of one week. Times are seconds since the epoch; `until`: later reports are not included.

    `late`: it was sent later than it was due. `classes`: by count, the largest first. `ran_well`: GPU-hours of the jobs that ended
    well.
    """

    tenant: str
    week: str
    zone: str
    start: float
    end: float
    until: float
    reports: int
    failures: int
    jobs: int
    gpu_hours: Sum
    lost_each: Spread
    classes: tuple[ClassLine, ...]
    trend: tuple[TrendPoint, ...]
    sizes: tuple[SizeClass, ...]
    recovery: Recoveries
    ineffective: Ineffective
    offenders: Offenders
    unknown: Share
    record: AccuracyRecord
    long_record: AccuracyRecord
    fired: tuple[RuleLine, ...]
    wrong: tuple[RuleLine, ...]
    thinly_judged: int
    open_week: int
    open_all: int
    open: tuple[OpenFailure, ...]
    new: NewThisWeek
    cuts: tuple[Breakdown, ...]
    late: bool = False
    ran_well: Sum = field(default_factory=lambda: total(()))
    made_up: int = 0
    schema: str = SCHEMA

    @property
    def before(self) -> TrendPoint:
        """The week before."""
        return self.trend[-2]

    @property
    def this(self) -> TrendPoint:
        """The week itself, as a point of the trend."""
        return self.trend[-1]
