"""rule.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kb.model import Grade, Role, Scope
from kb.report import Advice
from kb.rulebase.rule import LiveAction, Severity, Shared, Status, row_keys
from kb.rulebase.schema.fields import (
    Counted,
    Day,
    Id,
    Identifier,
    Line,
    Number,
    PatternName,
    Regex,
    StrictModel,
    Text,
)
from kb.rulebase.schema.pattern_file import PatternFile


class StepFile(StrictModel):
    """One step of the remedy."""

    action: Identifier = Field(description="A word of rules/actions.yaml.")
    text: Text = Field(description="What to do, in words; holes are {name} or {name|default}.")
    grade: Grade | None = Field(None, description="Default: the grade of the action.")
    scope: Scope | None = Field(None, description="Default: the scope of the action.")
    command: Line | None = Field(None, description="A read-only command.")
    verify: Line | None = Field(None, description="How to check that it worked.")
    escalate: Line | None = Field(None, description="Who to contact if it did not.")
    only: dict[PatternName, Regex] = Field(
        default={},
        description="Captured name (or `pattern`, the name of the pattern that matched) → regex that its whole value must match, or the step is not shown.",
    )


def _with_reason(advice: Advice | None, because: str | None) -> None:
    if (advice is None) != (because is None):
        raise ValueError("advice and because (the reason for it) go together")


class RowFile(StrictModel):
    """The meaning of a captured key. Omitted parts default to the rule's."""

    title: Line | None = Field(None, description="Name of the fault found.")
    fault: Identifier | None = Field(None, description="A class of rules/faults.yaml.")
    role: Role | None = None
    severity: Severity | None = None
    summary: Line | None = None
    cause: Text | None = None
    impact: Text | None = None
    remediation: list[StepFile] = Field(default=[])
    ignore: bool = Field(default=False, description="This key is harmless; report nothing.")
    advice: Advice | None = Field(None, description="What to do with the job, where the row knows better.")
    because: Line | None = Field(None, description="Why this advice, in a sentence.")
    owner: Identifier | None = Field(None, description="Who acts, where the row knows better.")
    lies_in: Line | None = Field(None, description="What is at fault, where the row knows better than the class.")
    reference: Identifier | None = Field(None, description="The `id` of the rule's reference that supports this row.")

    @model_validator(mode="after")
    def _titled(self) -> RowFile:
        if self.title is None and not self.ignore:
            raise ValueError("a row needs a title, or ignore: true")
        _with_reason(self.advice, self.because)
        return self


class TableFile(StrictModel):
    """Turns one rule into a catalogue: a captured key selects the row."""

    key: PatternName = Field(description="The capture whose value selects the row.")
    classes: bool = Field(
        default=False,
        description="The key is a class of rules/faults.yaml; classes without a row have their generic one.",
    )
    rows: dict[str, RowFile] = Field(default={}, description="`a | b`: a row for each of these keys.")
    default: RowFile | None = Field(None, description="The meaning of an unknown key. Default: none, report nothing.")

    @model_validator(mode="after")
    def _each_key_once(self) -> TableFile:
        keys = [key for written in self.rows for key in row_keys(written)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"two rows have the key {twice[:40]!r}")
        if not keys and not self.classes:
            raise ValueError("a table needs rows, or classes: true")
        return self


class NotWhenFile(StrictModel):
    """An exception to the rule. When it holds, the rule stays silent."""

    reason: Line
    if_: Any = Field(alias="if", description="A condition.")
    owner: Line | None = None
    expires: Day | None = Field(None, description="Day after which to review it.")


class ReferenceFile(StrictModel):
    """The source of a fact."""

    url: Line
    shows: Annotated[str, Field(max_length=400)] = Field("", description="What the source states.")
    id: Identifier | None = Field(None, description="The name by which rows of the table refer to it.")
    checked: Day | None = Field(None, description="The day on which the rule was last compared with it.")


class DeprecatedFile(StrictModel):
    """When and why a rule was retired."""

    date: Day
    reason: Line
    replaced_by: Id | None = None


class LearnedFile(StrictModel):
    """The origin of a learned rule, as the miner wrote it."""

    incidents: Annotated[list[Counted], Field(min_length=1, max_length=1000)] = Field(description="Their numbers.")
    miner: Line = Field(description="Version of the miner.")
    support: Counted = Field(description="Incidents that the rule matches.")
    asked: Counted = Field(description="Incidents that the rule should match.")
    counter_examples: Counted = Field(0, description="Incidents of other faults that the rule matches.")
    tried: Counted = Field(0, description="Incidents of other faults that the rule was tested on.")


class RuleFile(StrictModel):
    """A Signalbox rule: which signals indicate which fault, why, and what to do about it."""

    format: Literal[1]
    id: Id = Field(description="The name of the rule's folder; never reused.")
    title: Line = Field(description="Name of the fault, not of its cause; at most 80 characters.")
    fault: Identifier = Field(description="A class of rules/faults.yaml.")
    role: Role
    status: Status
    severity: Severity
    summary: Line = Field(description="One sentence; holes are {name} or {name|default}.")
    cause: Text = Field(description="Why this happens.")
    impact: Text = Field(description="Effect on the run.")
    match: Annotated[dict[PatternName, PatternFile], Field(min_length=1, max_length=64)] = Field(
        description="Named patterns."
    )
    when: Any = Field(None, description="The condition over the patterns' names. Default: any of them.")
    remediation: list[StepFile] = Field(
        default=[], description="Ordered steps; the first is what a person can do now. Default: those of the class."
    )
    advice: Advice | None = Field(
        None, description="What to do with the job, where the rule knows better than its class."
    )
    because: Line | None = Field(None, description="Why this advice, in a sentence.")
    fallback: bool = Field(default=False, description="Use only for lines and exceptions that no other rule explains.")
    owner: Identifier | None = Field(None, description="Who acts. Default: by the fault's domain.")
    lies_in: Line | None = Field(
        None, description="What is at fault if no rank or node is, where the rule knows better than its class."
    )
    shared: Shared | None = Field(
        None, description="Ranks share what is at fault, where the rule knows better than its class."
    )
    live: LiveAction = Field("notify", description="What to do when it appears in a running job.")
    not_when: list[NotWhenFile] = Field(default=[], description="The rule is silent where one of these holds.")
    table: TableFile | None = None
    explains: list[str] = Field(default=[], description="Faults or rules that can be its consequence.")
    applies_to: dict[str, Line] = Field(default={}, description="Framework and versions that it applies to.")
    params: dict[PatternName, Number] = Field(default={}, description="Site parameters with their defaults.")
    references: list[ReferenceFile] = Field(default=[])
    known_problems: list[Line] = Field(default=[])
    deprecated: DeprecatedFile | None = None
    related: dict[str, Id] = Field(default={}, description="Other rules; renamed: the earlier id of this rule.")
    provenance: Line = "hand"
    learned: LearnedFile | None = None

    @model_validator(mode="after")
    def _given_with_reason(self) -> RuleFile:
        if (self.status == "deprecated") != (self.deprecated is not None):
            raise ValueError("status deprecated and the key deprecated (date, reason) go together")
        _with_reason(self.advice, self.because)
        return self

    @model_validator(mode="after")
    def _rows_with_sources(self) -> RuleFile:
        named = [reference.id for reference in self.references if reference.id is not None]
        if len(named) != len(set(named)):
            raise ValueError("two references have the same id")
        rows = [*self.table.rows.items(), ("default", self.table.default)] if self.table else []
        for key, row in rows:
            if row is not None and row.reference is not None and row.reference not in named:
                raise ValueError(f"the reference {row.reference!r} of row {key[:40]!r} is not an id under references")
        return self
