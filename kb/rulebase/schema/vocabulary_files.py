"""faults.yaml and actions.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kb.model import Grade, Scope
from kb.report import Advice
from kb.rulebase.rule import Shared
from kb.rulebase.schema.fields import Domain, Identifier, Line, StrictModel
from kb.rulebase.schema.rule_file import StepFile


class GenericFile(StrictModel):
    """What is known of a class alone: how a generic match of it is named, where it lies, and what helps."""

    title: Line = Field(description="Name of a fault of which only the class is known; at most 80 characters.")
    lies_in: Line | None = Field(None, description="What is at fault, where that is more than the class says.")
    remediation: Annotated[list[StepFile], Field(min_length=1)] = Field(
        description="Ordered steps, also for rules without steps of their own."
    )


class FaultRow(StrictModel):
    """A class of fault."""

    id: Identifier
    domain: Domain
    title: Line
    symptom: bool = False
    outlives: bool = False
    explains: list[Identifier] = Field(default=[])
    advice: Advice = "fix_first"
    because: Line | None = Field(None, description="Why this advice, in a sentence.")
    lies_in: Line | None = Field(
        None, description="What is at fault if no rank or node is, in a few words: job settings, storage."
    )
    shared: Shared | None = Field(None, description="Ranks share what is at fault: who shows it only reports it.")
    owner: Identifier | None = Field(
        None, description="Who acts, if not the domain's owner, unless the fault's files are the platform's."
    )
    generic: GenericFile | None = Field(None, description="What to say and do where only the class is known.")


class FaultsFile(StrictModel):
    """faults.yaml."""

    version: Literal[1]
    faults: Annotated[list[FaultRow], Field(min_length=1)]


class ActionRow(StrictModel):
    """An action that can be advised."""

    id: Identifier
    title: Line
    grade: Grade
    scope: Scope | None = None


class ActionsFile(StrictModel):
    """actions.yaml."""

    version: Literal[1]
    advice: dict[Advice, Line]
    owners: dict[Domain, Identifier]
    actions: Annotated[list[ActionRow], Field(min_length=1)]
