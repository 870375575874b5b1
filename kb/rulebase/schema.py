"""What rule.yaml, faults.yaml and actions.yaml may hold, as pydantic models, and their JSON Schema for editors.

The only module that imports pydantic: a start from a cached rulebook never comes here. A condition is checked by
kb.rulebase.conditions, names across files by kb.rulebase.rulebook.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema

from kb.errors import Fault
from kb.model import Grade, Role, Scope, SourceKind, Stage
from kb.report import Advice
from kb.rulebase.rule import LiveAction, Severity, Status
from kb.rulebase.yaml_nodes import Node, nearest

Domain = Literal["hardware", "network", "platform", "software", "training", "none"]
_ModelT = TypeVar("_ModelT", bound=BaseModel)


def _wordy(value: Any) -> Any:
    """Whole numbers may stand for text where a value is compared as text: `exitcode: 137`."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, str | int) and not isinstance(one, bool) for one in value)
    ):
        return "|".join(re.escape(str(one)) for one in value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _day(value: str) -> str:
    date.fromisoformat(value)
    return value


Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$", max_length=40)]
PatternName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
Line = Annotated[str, Field(min_length=1, max_length=400)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]
Regex = Annotated[str, Field(min_length=1, max_length=2000)]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_day)]
FieldTest = Annotated[
    str,
    BeforeValidator(_wordy, json_schema_input_type=str | int | list[str | int]),
    Field(max_length=2000),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
NumberOrParam = Number | Annotated[str, Field(pattern=r"^\$[A-Za-z][A-Za-z0-9_]*$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False)


class WhereFile(_Part):
    """Where a pattern may stand."""

    sources: list[SourceKind] = Field(default=[], description="Kinds of source; left out: any.")
    stages: list[Stage] = Field(default=[], description="Stages of the run; left out: any.")
    in_traceback: bool | None = Field(None, description="Inside a Python traceback (true) or outside of any (false).")
    last_frame: Regex | None = Field(
        None, description="A regex searched in the innermost frame, 'path:line in function'."
    )


class ExceptionFile(_Part):
    """A Python exception, with or without its traceback."""

    type: Regex | None = Field(None, description="Regex that matches the whole class name without its module.")
    message: Regex | None = Field(None, description="Regex searched in the first 2,000 characters of the message.")
    frame: Regex | None = Field(None, description="Regex searched in every frame, 'path:line in function'.")
    last_frame: Regex | None = Field(None, description="Regex searched in the innermost frame.")
    not_message: Regex | None = Field(None, description="The message must not hold this.")
    not_frame: Regex | None = Field(None, description="No frame may hold this.")
    not_last_frame: Regex | None = Field(None, description="The innermost frame must not hold this.")

    @model_validator(mode="after")
    def _says_something(self) -> ExceptionFile:
        if not (self.type or self.message or self.frame or self.last_frame):
            raise ValueError("an exception pattern wants type, message, frame or last_frame")
        return self


class StructureFile(_Part):
    """A structure of docs/structures.md."""

    kind: Word = Field(description="Kind of structure.")
    fields: dict[str, FieldTest] = Field(
        default={}, description="Regex or list of values that each field matches whole."
    )
    not_fields: dict[str, FieldTest] = Field(default={}, description="Regex or list of values that no field may match.")


class DetectFile(_Part):
    """A detector over the series of iteration lines."""

    name: Word = Field(description="Name of the detector.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Its numbers, or '$name' of a site parameter.")


class SeriesFile(_Part):
    """A test of one metric over the steps of a run: how it changes, or above or below which number it is, for how long."""

    metric: Word = Field(description="A field of iteration lines, or a metric of the bundle.")
    change: Word | None = Field(None, description="The kind of change that is looked for.")
    above: NumberOrParam | None = Field(None, description="It is above this number.")
    below: NumberOrParam | None = Field(None, description="It is below this number.")
    of: Literal["value", "mean", "median", "max"] = Field("value", description="What the number is a multiple of.")
    points: NumberOrParam | None = Field(None, description="For so many logged points on end.")
    steps: NumberOrParam | None = Field(None, description="For so many steps on end, whatever the logging interval.")
    seconds: NumberOrParam | None = Field(None, description="For so many seconds on end.")
    after: NumberOrParam | None = Field(None, description="So many first steps are left out.")
    at_end: bool = Field(default=False, description="It must hold at the last point.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Numbers of the change.")

    @model_validator(mode="after")
    def _one_test(self) -> SeriesFile:
        if sum(one is not None for one in (self.change, self.above, self.below)) != 1:
            raise ValueError("a series is tested by exactly one of change, above, below")
        given = [one for one in (self.points, self.steps, self.seconds) if one is not None]
        if self.change is not None and (given or self.of != "value" or self.at_end):
            raise ValueError("points, steps, seconds, of and at_end go with above or below")
        if self.params and self.change is None:
            raise ValueError("params go with change")
        return self


class PluginFile(_Part):
    """A detector that users programmed in Python (docs/detectors.md)."""

    name: Word = Field(description="Name of its entry point in the group signalbox.detectors.")
    params: dict[str, NumberOrParam] = Field(default={}, description="Its numbers, or '$name' of a site parameter.")
    captures: list[PatternName] = Field(default=[], description="The names that it captures, for holes in texts.")


class PatternFile(_Part):
    """A named thing to look for: exactly one of literal, regex, exception, structure, detect, series, plugin."""

    literal: Regex | None = Field(None, description="This text in a line.")
    regex: Regex | None = Field(None, description="A regular expression of the safe subset, in a line.")
    exception: ExceptionFile | None = None
    structure: StructureFile | None = None
    detect: DetectFile | None = None
    series: SeriesFile | None = None
    plugin: PluginFile | None = None
    ignore_case: bool = Field(default=False, description="Upper and lower case are the same.")
    confirm: Regex | None = Field(None, description="A regex of full Python syntax that the hit line must match too.")
    not_line: Regex | None = Field(None, description="A regex that the hit line must not match.")
    where: WhereFile | None = Field(None, description="Where it may stand.")

    @model_validator(mode="after")
    def _exactly_one(self) -> PatternFile:
        given = [self.literal, self.regex, self.exception, self.structure, self.detect, self.series, self.plugin]
        if sum(one is not None for one in given) != 1:
            raise ValueError(
                "a pattern has exactly one of literal, regex, exception, structure, detect, series, plugin"
            )
        return self


class StepFile(_Part):
    """One step of the remedy."""

    action: Word = Field(description="A word of rules/actions.yaml.")
    text: Text = Field(description="What to do, in words; holes are {name} or {name|default}.")
    grade: Grade | None = Field(None, description="Left out: the action's own.")
    scope: Scope | None = Field(None, description="Left out: the action's own.")
    command: Line | None = Field(None, description="A read-only command.")
    verify: Line | None = Field(None, description="How to see that it worked.")
    escalate: Line | None = Field(None, description="Whom to turn to if it did not.")


class RowFile(_Part):
    """What a captured key means; parts left out are the rule's own."""

    title: Line | None = Field(None, description="Name of the fault found.")
    fault: Word | None = Field(None, description="A class of rules/faults.yaml.")
    role: Role | None = None
    severity: Severity | None = None
    summary: Line | None = None
    remediation: list[StepFile] = []
    ignore: bool = Field(default=False, description="This key is harmless: say nothing.")

    @model_validator(mode="after")
    def _titled(self) -> RowFile:
        if self.title is None and not self.ignore:
            raise ValueError("a row wants a title, or ignore: true")
        return self


class TableFile(_Part):
    """One rule for a catalogue: a captured key picks the row."""

    key: PatternName = Field(description="The captured name that picks the row.")
    rows: Annotated[dict[str, RowFile], Field(min_length=1)]
    default: RowFile | None = Field(None, description="What an unknown key means; left out: silent.")


class NotWhenFile(_Part):
    """An exception to the rule: where it holds, the rule is silent."""

    reason: Line
    if_: Any = Field(alias="if", description="A condition.")
    owner: Line | None = None
    expires: Day | None = Field(None, description="Day after which it should be looked at again.")


class ReferenceFile(_Part):
    """Where a fact comes from."""

    url: Line
    shows: Annotated[str, Field(max_length=400)] = Field("", description="What the source shows.")


class DeprecatedFile(_Part):
    """When and why a rule was retired."""

    date: Day
    reason: Line
    replaced_by: Id | None = None


Counted = Annotated[int, Field(ge=0, le=2**62)]


class LearnedFile(_Part):
    """What a rule was learned from, as the miner wrote it."""

    incidents: Annotated[list[Counted], Field(min_length=1, max_length=1000)] = Field(description="Their numbers.")
    miner: Line = Field(description="The version of the miner.")
    support: Counted = Field(description="Incidents that it finds.")
    asked: Counted = Field(description="Incidents that it was to find.")
    counter_examples: Counted = Field(0, description="Incidents of other faults in which it speaks.")
    tried: Counted = Field(0, description="Incidents of other faults that it was held against.")


class RuleFile(_Part):
    """A rule of Signalbox: which signals mean which fault, why, and what to do about it."""

    format: Literal[1]
    id: Id = Field(description="The name of the rule's folder; never reused.")
    title: Line = Field(description="Name of the fault found, not of the cure; at most 80 characters.")
    fault: Word = Field(description="A class of rules/faults.yaml.")
    role: Role
    status: Status
    severity: Severity
    summary: Line = Field(description="One sentence; holes are {name} or {name|default}.")
    cause: Text = Field(description="Why this happens.")
    impact: Text = Field(description="What it does to the run.")
    match: Annotated[dict[PatternName, PatternFile], Field(min_length=1, max_length=64)] = Field(
        description="Named patterns."
    )
    when: Any = Field(None, description="The condition over the patterns' names; left out: any of them.")
    remediation: list[StepFile] = Field(default=[], description="Ordered steps; the first is what a person can do now.")
    fallback: bool = Field(
        default=False, description="Speaks only for lines and exceptions that no other rule explains."
    )
    owner: Word | None = Field(None, description="Who acts; left out: by the fault's domain.")
    live: LiveAction = Field("notify", description="What to do when it is seen in a running job.")
    not_when: list[NotWhenFile] = Field(default=[], description="Where one holds, the rule is silent.")
    table: TableFile | None = None
    explains: list[str] = Field(default=[], description="Faults or rules that may be its consequence.")
    applies_to: dict[str, Line] = Field(default={}, description="Framework and versions that it is for.")
    params: dict[PatternName, Number] = Field(default={}, description="Site parameters with their defaults.")
    references: list[ReferenceFile] = []
    known_problems: list[Line] = []
    deprecated: DeprecatedFile | None = None
    related: dict[str, Id] = Field(default={}, description="Other rules; renamed: the id that this one had.")
    provenance: Line = "hand"
    learned: LearnedFile | None = None

    @model_validator(mode="after")
    def _retired_with_reason(self) -> RuleFile:
        if (self.status == "deprecated") != (self.deprecated is not None):
            raise ValueError("status deprecated and the key deprecated (date, reason) go together")
        return self


class FaultRow(_Part):
    """A class of fault."""

    id: Word
    domain: Domain
    title: Line
    symptom: bool = False
    outlives: bool = False
    explains: list[Word] = []
    advice: Advice = "fix_first"


class FaultsFile(_Part):
    """faults.yaml."""

    version: Literal[1]
    faults: Annotated[list[FaultRow], Field(min_length=1)]


class ActionRow(_Part):
    """A word of what may be advised."""

    id: Word
    title: Line
    grade: Grade
    scope: Scope | None = None


class ActionsFile(_Part):
    """actions.yaml."""

    version: Literal[1]
    advice: dict[Advice, Line]
    owners: dict[Domain, Word]
    actions: Annotated[list[ActionRow], Field(min_length=1)]


class SiteExceptionFile(_Part):
    """What a site takes out of a rule of the base. Of the parts that are given all must hold."""

    rule: Id = Field(description="The rule that is silent here.")
    reason: Line
    expires: Day = Field(description="The last day on which it holds.")
    owner: Line | None = None
    lines: Regex | None = Field(None, description="Signals whose line holds this do not count.")
    nodes: Regex | None = Field(None, description="Signals of nodes whose whole name this matches do not count.")
    jobs: Regex | None = Field(None, description="Only for jobs whose whole name or id this matches.")
    match: Annotated[dict[PatternName, PatternFile], Field(max_length=16)] = Field(
        default={}, description="Patterns of its own, for `if`."
    )
    if_: Any = Field(None, alias="if", description="A condition over the rule's patterns and its own.")
    always: bool = Field(default=False, description="The rule is never right here.")

    @model_validator(mode="after")
    def _bounded(self) -> SiteExceptionFile:
        given = [self.lines, self.nodes, self.jobs, self.if_]
        if self.always == any(one is not None for one in given):
            raise ValueError("an exception says where it holds, by lines, nodes, jobs or if; or else always: true")
        return self


class SiteFile(_Part):
    """site.yaml: what a site lays over the rule base."""

    version: Literal[1]
    exceptions: Annotated[list[SiteExceptionFile], Field(max_length=500)] = []
    params: dict[Id, dict[PatternName, Number]] = Field(
        default={}, description="Rule id → its parameters' values here."
    )


def check(model: type[_ModelT], node: Node) -> tuple[_ModelT | None, tuple[Fault, ...]]:
    """A file's tree as a model, or everything that is wrong with it, each where it stands."""
    try:
        return model.model_validate(node.plain()), ()
    except ValidationError as error:
        faults = {_fault(model, node, one) for one in error.errors(include_url=False, include_context=True)}
        return None, tuple(sorted(faults))


class _Schema(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of every field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def rule_json_schema(faults: Collection[str] = (), actions: Collection[str] = ()) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of rule.yaml for editors; with the words of both vocabularies where given."""
    schema = RuleFile.model_json_schema(by_alias=True, schema_generator=_Schema)
    parts = schema["$defs"]
    parts["Condition"] = _condition_schema()
    condition = {"$ref": "#/$defs/Condition"}
    schema["properties"]["when"] = {**condition, "description": RuleFile.model_fields["when"].description}
    parts["NotWhenFile"]["properties"]["if"] = condition
    if faults:
        schema["properties"]["fault"]["enum"] = sorted(faults)
    if actions:
        parts["StepFile"]["properties"]["action"]["enum"] = sorted(actions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Signalbox rule, format 1", **schema}


def site_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a site's site.yaml for editors."""
    schema = SiteFile.model_json_schema(by_alias=True, schema_generator=_Schema)
    parts = schema["$defs"]
    parts["Condition"] = _condition_schema()
    parts["SiteExceptionFile"]["properties"]["if"] = {"$ref": "#/$defs/Condition"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Signalbox site overlay", **schema}


def _condition_schema() -> dict[str, Any]:
    name, parts = {"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Condition"}, "minItems": 1}
    number = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\$"}]}
    within = {"type": "string", "description": "30s, 10m, 2h or '40 lines'"}
    same = {"enum": ["node", "rank", "gpu", "communicator", "stream"]}
    past = {
        "fault": name,
        "rule": name,
        "same": {"enum": ["node", "gpu", "job"]},
        "within_days": number,
        "at_least": number,
    }
    forms: list[dict[str, Any]] = [
        {"all": parts, "same": same, "within": within},
        {"any": parts},
        {"not": {"$ref": "#/$defs/Condition"}},
        {"sequence": {"type": "array", "items": name, "minItems": 2}, "within": within, "same": same},
        {"count": name, "at_least": number, "at_most": number, "within": within, "same": same},
        {"absent": name, "after": name, "before": name, "around": name, "within": within},
        {
            "ranks": name,
            **dict.fromkeys(("at_least", "at_most", "fraction_at_least", "fraction_at_most", "all_but"), number),
            "first": {"type": "boolean"},
        },
        {"history": {"type": "object", "properties": past, "additionalProperties": False}},
    ]
    objects = [
        {"type": "object", "properties": form, "required": [next(iter(form))], "additionalProperties": False}
        for form in forms
    ]
    expression = {"type": "string", "description": "names of patterns joined by and, or, not and brackets"}
    return {"description": "A condition over pattern names.", "anyOf": [expression, *objects]}


# -- pydantic's errors, in our words -----------------------------------------------------------------------------------

_MESSAGES = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a number",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


def _fault(model: type[BaseModel], node: Node, error: Any) -> Fault:
    kind = error["type"]
    here, path = _place(node, error["loc"])
    last = str(error["loc"][-1]) if error["loc"] else "the file"
    if kind == "extra_forbidden":
        here, path = _place(node, error["loc"][:-1])
        return here.key_fault(last, f"unknown key {last[:40]!r}", nearest(last, _keys(model, path)))
    if kind == "missing":
        return here.fault(f"key {last!r} is missing")
    if last == "[key]":
        word = str(error["loc"][-2])
        return _place(node, error["loc"][:-2])[0].key_fault(
            word, f"key {word[:40]!r} does not have the right form", "letters, digits and '_', first a letter"
        )
    return here.fault(*_words(".".join(path) or "the file", error))


def _words(name: str, error: Any) -> tuple[str, str]:
    """A message and a hint for a value that is wrong in itself."""
    kind, context, given = error["type"], error.get("ctx") or {}, error["input"]
    if kind == "value_error":
        return str(context.get("error", error["msg"])), ""
    if kind == "literal_error":
        expected = str(context["expected"])
        hint = nearest(given, re.findall(r"'([^']*)'", expected)) if isinstance(given, str) else ""
        return f"'{name}' is {str(given)[:40]!r}, which is none of: {expected}", hint
    if kind == "string_pattern_mismatch":
        return f"'{name}' does not have the right form: {str(given)[:40]!r}", f"must match {context['pattern']}"
    if kind in ("string_too_long", "too_long"):
        return f"'{name}' is longer than {context['max_length']}", ""
    hint = "quote it to make it text" if kind == "string_type" and isinstance(given, int | float) else ""
    return f"'{name}' {_MESSAGES.get(kind, error['msg'])}", hint


def _place(node: Node, loc: Sequence[str | int]) -> tuple[Node, tuple[str, ...]]:
    """The deepest node on the way of a loc, and the way there. Names of union members in a loc lead nowhere."""
    path: list[str] = []
    for step in loc:
        child = node.get(step)
        if child is not None:
            node = child
            path.append(str(step))
    return node, tuple(path)


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that a model knows at a path."""
    current: Any = model
    for step in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            known = {(one.alias or name): one.annotation for name, one in current.model_fields.items()}
            current = known.get(step)
        else:
            current = next(iter(get_args(current)[::-1]), None)
        current = _inside(current)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [one.alias or name for name, one in current.model_fields.items()]
    return []


def _inside(annotation: Any) -> Any:
    """What stands inside Annotated and `… | None`."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
            continue
        models = [one for one in get_args(annotation) if one is not type(None)]
        if type(None) in get_args(annotation) and len(models) == 1:
            annotation = models[0]
            continue
        return annotation
