"""site.yaml, a site's changes to the rule base."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kb.rulebase.schema.fields import Day, Id, Line, Number, PatternName, Regex, StrictModel
from kb.rulebase.schema.pattern_file import PatternFile


class SiteExceptionFile(StrictModel):
    """A site's exception to one of the base's rules. All given parts must hold."""

    rule: Id = Field(description="The rule to silence here.")
    reason: Line
    expires: Day = Field(description="The last day on which it applies.")
    owner: Line | None = None
    lines: Regex | None = Field(None, description="Ignore signals whose line contains this.")
    nodes: Regex | None = Field(None, description="Ignore signals of nodes whose whole name matches this.")
    jobs: Regex | None = Field(None, description="Apply only to jobs whose whole name or id matches this.")
    match: Annotated[dict[PatternName, PatternFile], Field(max_length=16)] = Field(
        default={}, description="Additional patterns, for `if`."
    )
    if_: Any = Field(None, alias="if", description="A condition over the rule's patterns and its own.")
    always: bool = Field(default=False, description="The rule never applies here.")

    @model_validator(mode="after")
    def _bounded(self) -> SiteExceptionFile:
        given = [self.lines, self.nodes, self.jobs, self.if_]
        if self.always == any(item is not None for item in given):
            raise ValueError("an exception needs lines, nodes, jobs or if, or else always: true")
        return self


class SiteFile(StrictModel):
    """site.yaml: a site's changes to the rule base."""

    version: Literal[1]
    exceptions: Annotated[list[SiteExceptionFile], Field(max_length=500)] = Field(default=[])
    params: dict[Id, dict[PatternName, Number]] = Field(
        default={}, description="Rule id → its parameters' values here."
    )
