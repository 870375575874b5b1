"""Converts a file's tree to a model, and pydantic's errors to faults with a place in the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from kb.errors import Fault
from kb.rulebase.yaml_nodes import Node, nearest

_ModelT = TypeVar("_ModelT", bound=BaseModel)


def check(model: type[_ModelT], node: Node) -> tuple[_ModelT | None, tuple[Fault, ...]]:
    """Return a file's tree as a model, or all its faults, each with its place."""
    try:
        return model.model_validate(node.plain()), ()
    except ValidationError as error:
        faults = {to_fault(model, node, item) for item in error.errors(include_url=False, include_context=True)}
        return None, tuple(sorted(faults))


# -- rewording pydantic's errors ---------------------------------------------------------------------------------------

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


def to_fault(model: type[BaseModel], node: Node, error: Any) -> Fault:
    """Turn one of pydantic's errors into a fault at its place in the file."""
    kind = error["type"]
    here, path = _deepest_node(node, error["loc"])
    last = str(error["loc"][-1]) if error["loc"] else "the file"
    if kind == "extra_forbidden":
        here, path = _deepest_node(node, error["loc"][:-1])
        return here.key_fault(last, f"unknown key {last[:40]!r}", nearest(last, _keys(model, path)))
    if kind == "missing":
        return here.fault(f"key {last!r} is missing")
    if last == "[key]":
        word = str(error["loc"][-2])
        return _deepest_node(node, error["loc"][:-2])[0].key_fault(
            word, f"key {word[:40]!r} has an invalid form", "letters, digits and '_', starting with a letter"
        )
    return here.fault(*_message_and_hint(".".join(path) or "the file", error))


def _message_and_hint(name: str, error: Any) -> tuple[str, str]:
    """Return a message and a hint for a value that is invalid in itself."""
    kind, context, given = error["type"], error.get("ctx") or {}, error["input"]
    if kind == "value_error":
        return str(context.get("error", error["msg"])), ""
    if kind == "literal_error":
        expected = str(context["expected"])
        hint = nearest(given, re.findall(r"'([^']*)'", expected)) if isinstance(given, str) else ""
        return f"'{name}' is {str(given)[:40]!r}, which is not one of: {expected}", hint
    if kind == "string_pattern_mismatch":
        return f"'{name}' has an invalid form: {str(given)[:40]!r}", f"must match {context['pattern']}"
    if kind in ("string_too_long", "too_long"):
        return f"'{name}' is longer than {context['max_length']}", ""
    hint = "quote it to make it text" if kind == "string_type" and isinstance(given, int | float) else ""
    return f"'{name}' {_MESSAGES.get(kind, error['msg'])}", hint


def _deepest_node(node: Node, loc: Sequence[str | int]) -> tuple[Node, tuple[str, ...]]:
    """Return the deepest node along a pydantic `loc`, and its path. Names of union members are skipped."""
    path: list[str] = []
    for step in loc:
        child = node.get(step)
        if child is not None:
            node = child
            path.append(str(step))
    return node, tuple(path)


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the keys that a model accepts at a path."""
    current: Any = model
    for step in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            known = {(item.alias or name): item.annotation for name, item in current.model_fields.items()}
            current = known.get(step)
        else:
            current = next(iter(get_args(current)[::-1]), None)
        current = _unwrapped(current)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [item.alias or name for name, item in current.model_fields.items()]
    return []


def _unwrapped(annotation: Any) -> Any:
    """Return the type inside `Annotated` and `… | None`."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
            continue
        models = [member for member in get_args(annotation) if member is not type(None)]
        if type(None) in get_args(annotation) and len(models) == 1:
            annotation = models[0]
            continue
        return annotation
