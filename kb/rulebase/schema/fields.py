"""Field types that the files share: ids, texts, regexes, days and numbers."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Domain = Literal["hardware", "network", "platform", "software", "training", "none"]


def _as_alternatives(value: Any) -> Any:
    """Accept whole numbers as text for values that are compared as text, such as `exitcode: 137`."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, str | int) and not isinstance(item, bool) for item in value)
    ):
        return "|".join(re.escape(str(item)) for item in value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _valid_date(value: str) -> str:
    date.fromisoformat(value)
    return value


Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
Identifier = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$", max_length=40)]
PatternName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
Line = Annotated[str, Field(min_length=1, max_length=400)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]
Regex = Annotated[str, Field(min_length=1, max_length=2000)]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_valid_date)]
FieldTest = Annotated[
    str,
    BeforeValidator(_as_alternatives, json_schema_input_type=str | int | list[str | int]),
    Field(max_length=2000),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
NumberOrParam = Number | Annotated[str, Field(pattern=r"^\$[A-Za-z][A-Za-z0-9_]*$")]


class StrictModel(BaseModel):
    """The base of all file models: frozen, without unknown keys or conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=False)


Counted = Annotated[int, Field(ge=0, le=2**62)]
