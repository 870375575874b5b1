"""Generates the JSON Schema (draft 2020-12) of the files, for editors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from kb.rulebase.schema.rule_file import RuleFile
from kb.rulebase.schema.site_file import SiteFile


class _UntitledSchema(GenerateJsonSchema):
    """Omits the titles that pydantic derives from field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def rule_json_schema(faults: Collection[str] = (), actions: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of rule.yaml for editors, with the words of both vocabularies if given."""
    schema = RuleFile.model_json_schema(by_alias=True, schema_generator=_UntitledSchema)
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
    """Return the JSON Schema (draft 2020-12) of site.yaml for editors."""
    schema = SiteFile.model_json_schema(by_alias=True, schema_generator=_UntitledSchema)
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
    expression = {"type": "string", "description": "pattern names joined by and, or, not and brackets"}
    return {"description": "A condition over pattern names.", "anyOf": [expression, *objects]}
