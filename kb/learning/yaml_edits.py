"""Edits a rule file's text and leaves the rest of it as its author wrote it: comments, order, quotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from kb.errors import RuleError
from kb.rulebase.yaml_nodes import Node, parse

_WIDE = 10_000


def with_value(text: str, key: str, value: object) -> str:
    """The text with another value of a top-level key, which is added at the end if it is missing.

    Raises:
        RuleError: the text is not YAML as rules may use it.
    """
    root, lines = _read(text)
    written = _dumped({key: value})
    if key not in root.keys:
        return _joined([*lines, *written])
    start, stop = _block(root, lines, key)
    return _joined([*lines[:start], *written, *lines[stop:]])


def with_pattern(text: str, name: str, values: Mapping[str, Any]) -> str:
    """The text with one more named pattern at the end of `match`.

    Raises:
        RuleError: the text is not YAML as rules may use it, or has a pattern of that name.
    """
    root, lines = _read(text)
    match = root.get("match")
    if match is None or match.get(name) is not None:
        raise RuleError([(match or root).fault(f"cannot add a pattern {name!r}")])
    start, stop = _block(root, lines, "match")
    if lines[start].split("#")[0].strip() != "match:":  # in one line, with braces
        return with_value(text, "match", {**match.plain(), name: dict(values)})
    indent = len(lines[start + 1]) - len(lines[start + 1].lstrip())
    more = [" " * indent + line for line in _dumped({name: dict(values)})]
    return _joined([*lines[:stop], *more, *lines[stop:]])


def value_of(text: str, key: str) -> Any:
    """The value of a top-level key as plain Python; None if it is missing.

    Raises:
        RuleError: the text is not YAML as rules may use it.
    """
    found = _read(text)[0].get(key)
    return None if found is None else found.plain()


def _read(text: str) -> tuple[Node, list[str]]:
    root, faults = parse(text, "rule.yaml")
    if root is None or not root.keys:
        raise RuleError(list(faults) or [])
    return root, text.rstrip("\n").split("\n")


def _block(root: Node, lines: list[str], key: str) -> tuple[int, int]:
    """The lines of a top-level key, without the blank lines and comments before the next one."""
    start = root.keys[key][0] - 1
    stop = min((line - 1 for line, _ in root.keys.values() if line - 1 > start), default=len(lines))
    while stop > start + 1 and (not lines[stop - 1].strip() or lines[stop - 1].startswith("#")):
        stop -= 1
    return start, stop


def _dumped(value: object) -> list[str]:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_WIDE).rstrip("\n").split("\n")


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
