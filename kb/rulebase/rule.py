"""What a rule is, once loaded and checked. Frozen values; docs/rule-format.md explains each part to its author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kb.model import Grade, Role, Scope, SourceKind, Stage

Status = Literal["draft", "shadow", "experimental", "stable", "deprecated"]
Severity = Literal["critical", "high", "medium", "low", "info"]
Join = Literal["node", "rank", "gpu", "communicator", "stream"]
LiveAction = Literal["notify", "propose_pause"]


@dataclass(frozen=True, slots=True)
class Where:
    """Where a pattern may stand. Empty means anywhere.

    `in_traceback`: inside a Python traceback or on its last line (True), or outside of any (False).
    """

    sources: tuple[SourceKind, ...] = ()
    stages: tuple[Stage, ...] = ()
    in_traceback: bool | None = None
    last_frame: str | None = None


@dataclass(frozen=True, slots=True)
class ExceptionTest:
    """A test of a Python exception: `type` matches the class name whole, without its module; the others are searched.

    `frame` is searched in every frame written as "path:line in function"; `last_frame` in the innermost one only.
    `uncaught`: it ended its process, as far as the log shows.
    """

    type: str | None = None
    message: str | None = None
    frame: str | None = None
    last_frame: str | None = None
    not_message: str | None = None
    not_frame: str | None = None
    not_last_frame: str | None = None


@dataclass(frozen=True, slots=True)
class StructureTest:
    """A test of a structure: its kind, and a regex (full match) or a list of values for each of its fields."""

    kind: str
    fields: Mapping[str, str] = field(default_factory=dict)
    not_fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DetectorTest:
    """A detector over series (later stacks and collectives) by name, with its parameters."""

    name: str
    params: Mapping[str, float] = field(default_factory=dict)


MEASURED: Mapping[str, str] = {
    "step_time": "seconds",
    "throughput": "throughput",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "memory": "memory",
    "learning_rate": "learning_rate",
    "loss_scale": "loss_scale",
    "compute_time": "compute",
    "data_wait": "data",
    "input_size": "size",
}  # the names of what iteration lines measure → fields of ProgressPoint


@dataclass(frozen=True, slots=True)
class SeriesTest:
    """A test of one metric over steps, from iteration lines or from metrics.

    Either `change`, one of kb.facts.series_tests.CHANGES with its `params`, or a level that is `above` or `below` a number: of the value
    itself, or of its own mean, median or largest value before (`of`), for so many logged `points`, `steps` and `seconds` on
    end. The first `after` steps are left out. `at_end`: it must hold at the last point.
    """

    metric: str
    change: str | None = None
    above: float | None = None
    below: float | None = None
    of: str = "value"
    points: float = 1
    steps: float = 0
    seconds: float = 0
    after: float = 0
    at_end: bool = False
    params: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginTest:
    """A detector that users programmed in Python, by the name of its entry point, with its parameters."""

    name: str
    params: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A named thing to look for. Exactly one of literal, regex, exception, structure, detect, series, plugin is set."""

    name: str
    literal: str | None = None
    regex: str | None = None
    ignore_case: bool = False
    confirm: str | None = None
    not_line: str | None = None
    exception: ExceptionTest | None = None
    structure: StructureTest | None = None
    detect: DetectorTest | None = None
    series: SeriesTest | None = None
    plugin: PluginTest | None = None
    where: Where = field(default_factory=Where)


@dataclass(frozen=True, slots=True)
class Span:
    """A distance: seconds, or lines, or neither (no limit)."""

    seconds: float | None = None
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """The pattern of that name was seen."""

    name: str


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds; with `same`, within one node, rank, GPU, communicator or stream, and within `within`."""

    parts: tuple[Condition, ...]
    same: Join | None = None
    within: Span = field(default_factory=Span)


@dataclass(frozen=True, slots=True)
class Any:
    """At least one part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Sequence:
    """The named patterns one after another, each within `within` of the one before."""

    order: tuple[str, ...]
    within: Span = field(default_factory=Span)
    same: Join | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """A pattern seen at least (at most) so many times, within a span where one is given."""

    of: str
    at_least: int | None = None
    at_most: int | None = None
    within: Span = field(default_factory=Span)
    same: Join | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """`of` is not seen after (before, around) `anchor`, within the span."""

    of: str
    side: Literal["after", "before", "around"]
    anchor: str
    within: Span = field(default_factory=Span)


@dataclass(frozen=True, slots=True)
class Ranks:
    """On how many ranks a pattern stands: a number, a share of the job's ranks, all but n, or first in time there."""

    of: str
    at_least: int | None = None
    at_most: int | None = None
    fraction_at_least: float | None = None
    fraction_at_most: float | None = None
    all_but: int | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """History: a fault or rule was diagnosed on the same node (rank, job) within so many days, at least n times."""

    fault: str | None = None
    rule: str | None = None
    same: Literal["node", "gpu", "job"] = "node"
    within_days: float = 30.0
    at_least: int = 1


Condition = Name | All | Any | Not | Sequence | Count | Absent | Ranks | Past


@dataclass(frozen=True, slots=True)
class RemediationStep:
    """One step of the remedy: an action of actions.yaml, its words, and where known a read-only command and a check."""

    action: str
    text: str
    grade: Grade
    scope: Scope | None = None
    command: str | None = None
    verify: str | None = None
    escalate: str | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table rule: what a captured key means. Parts left empty are the rule's own."""

    key: str
    title: str
    fault: str | None = None
    role: Role | None = None
    severity: Severity | None = None
    summary: str | None = None
    remediation: tuple[RemediationStep, ...] = ()
    ignore: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Captured key → row. `default` says what an unknown key means; None: the rule is silent on it."""

    key: str
    rows: Mapping[str, TableRow]
    default: TableRow | None = None


@dataclass(frozen=True, slots=True)
class RuleException:
    """An exception to a rule: where its condition holds the rule is silent."""

    reason: str
    condition: Condition
    owner: str | None = None
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class SiteException:
    """What a site's overlay takes out of a rule until a day (ISO date, the last on which it holds).

    Of the parts that are given all must hold: `jobs` and `nodes` match the whole name, `lines` is searched in the deciding
    line, `condition` is over the rule's patterns. Signals that they fit do not count; with none of `lines` and `nodes`
    none does.
    """

    reason: str
    expires: str
    owner: str | None = None
    lines: str | None = None
    nodes: str | None = None
    jobs: str | None = None
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a fact comes from and what the source shows."""

    url: str
    shows: str = ""


@dataclass(frozen=True, slots=True)
class Deprecation:
    """When and why a rule was retired, and the rule that took its place."""

    date: str
    reason: str
    replaced_by: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What a rule was learned from: incidents, by which miner, how many it finds of those asked, and in how many others it speaks."""

    incidents: tuple[int, ...]
    miner: str
    support: int
    asked: int
    counter_examples: int = 0
    tried: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """Knowledge: which signals mean which fault, why, and what to do about it."""

    id: str
    title: str
    fault: str
    role: Role
    status: Status
    severity: Severity
    summary: str
    cause: str
    impact: str
    patterns: tuple[Pattern, ...]
    when: Condition
    remediation: tuple[RemediationStep, ...]
    fallback: bool = False
    owner: str | None = None
    live: LiveAction = "notify"
    not_when: tuple[RuleException, ...] = ()
    table: Table | None = None
    explains: tuple[str, ...] = ()
    applies_to: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, float] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    known_problems: tuple[str, ...] = ()
    deprecated: Deprecation | None = None
    related: Mapping[str, str] = field(default_factory=dict)
    provenance: str = "hand"
    learned: Learned | None = None
    site: tuple[SiteException, ...] = ()
    file: str = ""
    family: str = ""


@dataclass(frozen=True, slots=True)
class FaultClass:
    """A class of faults.yaml. `outlives`: a run can go on with it, so later progress does not clear it.

    `explains`: the classes that may be its consequence (closed over by the loader).
    """

    id: str
    domain: str
    title: str
    symptom: bool = False
    outlives: bool = False
    explains: tuple[str, ...] = ()
    advice: str = "fix_first"


@dataclass(frozen=True, slots=True)
class ActionWord:
    """A word of actions.yaml: what may be advised, with its default grade and scope."""

    id: str
    title: str
    grade: Grade
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The versioned set of rules with its vocabulary. `digest` covers everything that can change an answer.

    `versions`: rule id → its version, counted from 1 and raised whenever its meaning changes (rules/lock.json).
    """

    version: str
    digest: str
    rules: tuple[Rule, ...]
    faults: Mapping[str, FaultClass]
    actions: Mapping[str, ActionWord]
    owners: Mapping[str, str]
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """An overlay's files by path relative to it. `root` is how messages name the folder."""

    root: str
    files: Mapping[str, str]

    def rules(self) -> dict[str, str]:
        """Its own rules' files, by path relative to its rules folder."""
        found = ((path.partition("/"), text) for path, text in self.files.items())
        return {rest: text for (first, _, rest), text in found if first == "rules"}
