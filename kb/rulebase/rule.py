"""A rule after loading and checking, as frozen values. docs/rule-format.md explains each part to rule authors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from kb.model import Grade, Role, Scope, SourceKind, Stage
from kb.report import Advice
from kb.values import dataclass

Status = Literal["draft", "shadow", "experimental", "stable", "deprecated"]
Severity = Literal["critical", "high", "medium", "low", "info"]
Join = Literal["node", "rank", "gpu", "communicator", "stream"]
LiveAction = Literal["notify", "propose_pause"]
Shared = Literal["usually", "always"]  # whether ranks share what is at fault


@dataclass(frozen=True, slots=True)
class Where:
    """Where a pattern applies. Empty means anywhere.

    `in_traceback`: inside a Python traceback or on its last line (True), or outside (False).
    """

    sources: tuple[SourceKind, ...] = ()
    stages: tuple[Stage, ...] = ()
    in_traceback: bool | None = None
    last_frame: str | None = None


@dataclass(frozen=True, slots=True)
class ExceptionTest:
    """A test of a Python exception. `type` matches the whole class name without its module; the rest are searched for.

    `frame` is searched in every frame, written as "path:line in function"; `last_frame` only in the innermost one.
    `uncaught`: the exception ended its process, as far as the log shows. `classified`: the classifier
    (kb.classifier) is sure enough of its class, which is captured as `class`.
    """

    type: str | None = None
    message: str | None = None
    frame: str | None = None
    last_frame: str | None = None
    not_message: str | None = None
    not_frame: str | None = None
    not_last_frame: str | None = None
    not_type: str | None = None
    classified: bool = False


@dataclass(frozen=True, slots=True)
class StructureTest:
    """A test of a structure: its kind or one of several (`a|b`), and a regex (full match) for each of its fields."""

    kind: str
    fields: Mapping[str, str] = field(default_factory=dict)
    not_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of structure that it tests."""
        return tuple(self.kind.split("|"))


@dataclass(frozen=True, slots=True)
class DetectorTest:
    """A series detector, by name, with its parameters."""

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
}  # names of the quantities in iteration lines → fields of ProgressPoint


@dataclass(frozen=True, slots=True)
class SeriesTest:
    """A test of one metric over steps, from iteration lines or from metrics.

    Tests either a `change`, one of kb.facts.steps.series_tests.CHANGES with its `params`, or a level `above` or `below` a
    number: of the
    value itself, or of its own earlier mean, median or maximum (`of`), for this many logged `points`, `steps` and
    `seconds`
    in a row. The first `after` steps are skipped. `at_end`: it must also hold at the last point.
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
    """A user-written Python detector, by the name of its entry point, with its parameters."""

    name: str
    params: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A named pattern. Exactly one of literal, regex, exception, structure, detect, series, plugin is set."""

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
    """A distance in seconds or lines; unlimited if neither is set."""

    seconds: float | None = None
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """The pattern with that name was found."""

    name: str


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds, within the span `within`; with `same`, also on one node, rank, GPU, communicator or stream."""

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
    """The named patterns in order, each within `within` of the previous one."""

    order: tuple[str, ...]
    within: Span = field(default_factory=Span)
    same: Join | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """A pattern found at least (at most) this many times, within a span if one is set."""

    of: str
    at_least: int | None = None
    at_most: int | None = None
    within: Span = field(default_factory=Span)
    same: Join | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """`of` is not found after (before, around) `anchor`, within the span."""

    of: str
    side: Literal["after", "before", "around"]
    anchor: str
    within: Span = field(default_factory=Span)


@dataclass(frozen=True, slots=True)
class Ranks:
    """A condition on the ranks with a pattern: a number, a share of the job's ranks, all but n, or the first ones."""

    of: str
    at_least: int | None = None
    at_most: int | None = None
    fraction_at_least: float | None = None
    fraction_at_most: float | None = None
    all_but: int | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """A fault or rule was diagnosed at least n times on the same node (GPU, job) within the last days."""

    fault: str | None = None
    rule: str | None = None
    same: Literal["node", "gpu", "job"] = "node"
    within_days: float = 30.0
    at_least: int = 1


Condition = Name | All | Any | Not | Sequence | Count | Absent | Ranks | Past


@dataclass(frozen=True, slots=True)
class RemediationStep:
    """One step of the remedy: an action of actions.yaml, its text, and, if known, a read-only command and a check.

    `only`: captured name → regex. The step is shown only if each regex matches the whole captured value.
    """

    action: str
    text: str
    grade: Grade
    scope: Scope | None = None
    command: str | None = None
    verify: str | None = None
    escalate: str | None = None
    only: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table rule: the meaning of a captured key. Empty parts default to the rule's own.

    `advice` and `because` go together, or both are None. `reference`: the id of the rule's reference that supports it.
    """

    key: str
    title: str
    fault: str | None = None
    role: Role | None = None
    severity: Severity | None = None
    summary: str | None = None
    cause: str | None = None
    impact: str | None = None
    remediation: tuple[RemediationStep, ...] = ()
    ignore: bool = False
    advice: Advice | None = None
    because: str | None = None
    owner: str | None = None
    reference: str | None = None
    lies_in: str = ""


def row_keys(written: str) -> tuple[str, ...]:
    """Return the keys that share a row of a table: `a | b` means two rows with the same content."""
    return tuple(part.strip() for part in written.split(" | "))


@dataclass(frozen=True, slots=True)
class Table:
    """Captured key → row. `default` is the meaning of unknown keys; if it is None, the rule ignores them."""

    key: str
    rows: Mapping[str, TableRow]
    default: TableRow | None = None

    @property
    def only_words(self) -> bool:
        """Whether the rows only word what the rule's own patterns find: they name no other fault."""
        return self.key == "pattern" and all(row.fault is None for row in self.rows.values())


@dataclass(frozen=True, slots=True)
class RuleException:
    """An exception to a rule. The rule stays silent when the condition holds."""

    reason: str
    condition: Condition
    owner: str | None = None
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class SiteException:
    """What a site's overlay excludes from a rule until a day (ISO date, the last on which it applies).

    All parts that are set must hold: `jobs` and `nodes` match the whole name, `lines` is searched in the decisive line,
    `condition` uses the rule's patterns. Matching signals do not count; with neither `lines` nor `nodes`, no signal
    counts.
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
    """The source of a fact, and the statement in that source.

    `id`: how rows of the table refer to it. `checked`: the day (ISO date) on which they were last compared.
    """

    url: str
    shows: str = ""
    id: str | None = None
    checked: str | None = None


@dataclass(frozen=True, slots=True)
class Deprecation:
    """When and why a rule was retired, and the rule that replaced it."""

    date: str
    reason: str
    replaced_by: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """The origin of a learned rule: its incidents, miner, and number of incidents matched, including other faults."""

    incidents: tuple[int, ...]
    miner: str
    support: int
    asked: int
    counter_examples: int = 0
    tried: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: which signals indicate which fault, why, and what to do about it.

    `advice` and its reason `because` override the fault class's; otherwise both are None. `lies_in`: what is at fault where
    that is not what the class says; empty otherwise. `shared`: as in a fault class, where the rule knows better.
    """

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
    advice: Advice | None = None
    because: str | None = None
    lies_in: str = ""
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class FaultClass:
    """A fault class of faults.yaml. `outlives`: a run can survive the fault, so later progress does not rule it out.

    `explains`: classes that it can cause (the loader adds the indirect ones). `because`: the reason for the
    advice, in a sentence. `owner`: who acts, if not the domain's owner; see kb.diagnosis.owner. `lies_in`: what is at
    fault if no rank or node is; `shared`: ranks have it in common, so that a rank which
    shows it only reports it; `usually`: unless other ranks are seen to have lost that rank. `generic`: what a rule that
    knows only the class says and advises.
    """

    id: str
    domain: str
    title: str
    symptom: bool = False
    outlives: bool = False
    explains: tuple[str, ...] = ()
    advice: Advice = "fix_first"
    because: str = ""
    owner: str = ""
    lies_in: str = ""
    shared: Shared | None = None
    generic: TableRow | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class ActionWord:
    """An action of actions.yaml that can be advised, with its default grade and scope."""

    id: str
    title: str
    grade: Grade
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The versioned set of rules with its vocabulary. `digest` covers everything that can change a report.

    `versions`: rule id → version, which starts at 1 and increases whenever the rule's meaning changes
    (rules/lock.json).
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
    """An overlay's files, by path relative to its root. `root` is the folder name shown in messages."""

    root: str
    files: Mapping[str, str]

    def rules(self) -> dict[str, str]:
        """The overlay's own rules, by path relative to its rules folder."""
        found = ((path.partition("/"), text) for path, text in self.files.items())
        return {rest: text for (first, _, rest), text in found if first == "rules"}
