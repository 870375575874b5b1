"""Derives the checked part of signalbox.yaml from the frozen settings of a connector: one declaration, no second list of fields.

A connector declares its settings as a dataclass of plain types. This module creates the pydantic model that checks the file, and
builds the dataclass from what was read. The fields of an Endpoint appear next to the connector's own.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, TypeAdapter, create_model
from pydantic import Field as ModelField
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from connectors.base.contract import Seconds, Size
from connectors.base.http import Endpoint

_UNITS_OF_TIME = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_OF_SIZE = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([A-Za-z]{0,3})\Z")


def seconds(value: object) -> object:
    """Parse a duration into seconds: 90, "90s", "5m", "2h", "1d"."""
    return _quantity(value, _UNITS_OF_TIME, 'a number of seconds, or text like "30s", "5m", "2h", "7d"')


def size(value: object) -> object:
    """Parse an amount of data into bytes: 1024, "64MiB", "2GB"."""
    found = _quantity(value, _UNITS_OF_SIZE, 'a number of bytes, or text like "64MiB"')
    return int(found) if isinstance(found, float) else found


def _quantity(value: object, units: Mapping[str, float], form: str) -> object:
    if isinstance(value, bool) or not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            raise ValueError(f"{value} is negative: write {form}")
        return value
    found = _QUANTITY.match(value.strip())
    if found is None or found[2].lower() not in units:
        raise ValueError(f"{value[:40]!r} is not {form}")
    return float(found[1]) * units[found[2].lower()]


SECONDS = Annotated[
    float, BeforeValidator(seconds, json_schema_input_type=float | str), ModelField(ge=0, allow_inf_nan=False)
]
SIZE = Annotated[int, BeforeValidator(size, json_schema_input_type=int | str), ModelField(ge=0)]
_QUANTITIES: Mapping[object, Any] = {Seconds: SECONDS, Size: SIZE}


class Part(BaseModel):
    """A part of the file; unknown keys are rejected. `settings`: the dataclass whose attribute docstrings describe its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    settings_: ClassVar[type | None] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add descriptions from attribute docstrings. Only the JSON Schema needs them, so a check never reads source code."""
        schema = handler(core_schema)
        if cls.settings_ is not None:
            properties = handler.resolve_ref_schema(schema)["properties"]
            for name, words in _described(cls.settings_).items():
                properties[name].setdefault("description", words)
        return schema


@cache
def model_of(settings: type, kind: str | None = None) -> type[BaseModel]:
    """Create the model that checks a settings dataclass; with `kind`, also the key `type` with that value."""
    parts: dict[str, Any] = {}
    if kind is not None:
        parts["type"] = (Literal[kind], ModelField(description=_first(settings)))
    for pair, hint in _fields(settings):
        parts[pair.name] = (_annotation(hint), ModelField(**_default(pair)))
    model = create_model(settings.__name__, __base__=Part, __doc__=_first(settings), **parts)
    model.settings_ = settings
    return model


def build(settings: type, checked: Mapping[str, Any]) -> Any:
    """Build the settings from a checked part (plain values, without unset keys).

    Raises:
        ValueError: the dataclass rejects them, with its own message.
    """
    hints = get_type_hints(settings)
    given: dict[str, Any] = {}
    for field in fields(settings):
        if hints[field.name] is Endpoint:
            own = {name: checked[name] for name in (part.name for part in fields(Endpoint)) if name in checked}
            given[field.name] = build(Endpoint, own)
        elif field.name in checked:
            given[field.name] = _built(hints[field.name], checked[field.name])
    return settings(**given)


def _built(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    hint = next((member for member in get_args(hint) if member is not type(None)), hint) if _is_union(hint) else hint
    if isinstance(hint, type) and is_dataclass(hint):
        return build(hint, value)
    origin, inside = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_built(inside[0], item) for item in value)
    if isinstance(value, dict):
        return {key: _built(inside[1], item) for key, item in value.items()}
    return value


def _fields(settings: type) -> Iterator[tuple[Field[Any], Any]]:
    """Return each field with its type; an Endpoint is replaced by its fields."""
    hints = get_type_hints(settings, include_extras=True)
    for field in fields(settings):
        if hints[field.name] is Endpoint:
            yield from _fields(Endpoint)
        else:
            yield field, hints[field.name]


def _default(field: Field[Any]) -> dict[str, Any]:
    # Defaults come from the dataclass; the schema only says whether a key is required.
    must = field.default is MISSING and field.default_factory is MISSING
    return {} if must else {"default": None}


def _annotation(hint: Any) -> Any:
    found: Any = _QUANTITIES.get(hint, hint)
    origin, inside = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        found = model_of(hint)
    elif _is_union(hint):
        found = Union[tuple(_annotation(item) for item in inside)]  # noqa: UP007 - made of a list
    elif origin is tuple:
        found = Annotated[list[_annotation(inside[0])], ModelField(max_length=1000)]  # type: ignore[misc]
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        found = Annotated[dict[str, _annotation(inside[1])], ModelField(max_length=20_000)]  # type: ignore[misc]
    elif hint is str:
        found = Annotated[str, ModelField(max_length=4000)]
    return found


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _first(settings: type) -> str:
    return " ".join((settings.__doc__ or "").split("\n\n")[0].split())


@cache
def _described(settings: type) -> Mapping[str, str]:
    """Return the attribute docstrings of a dataclass by field, as pydantic reads them; an Endpoint is replaced by its fields."""
    adapter = TypeAdapter(tuple[settings], config=ConfigDict(use_attribute_docstrings=True))  # type: ignore[valid-type]
    properties = adapter.json_schema()["$defs"][settings.__name__]["properties"]
    own = {
        name: " ".join(schema["description"].split()) for name, schema in properties.items() if "description" in schema
    }
    hints = get_type_hints(settings)
    found: dict[str, str] = {}
    for name, words in own.items():
        found |= _described(Endpoint) if hints[name] is Endpoint else {name: words}
    return found
