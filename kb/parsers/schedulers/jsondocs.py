"""Reads lists of objects from JSON documents printed by command-line tools: complete, concatenated, or truncated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import msgspec

MAX_BYTES: Final = 64 << 20
_DENSE: Final = 8  # minimum bytes per comma: real output has more, and millions of tiny parts would fill memory
_DECODER: Final = json.JSONDecoder()
_OTHER: Final = re.compile(r"[^ \t\r\n,]")


@dataclass(frozen=True, slots=True)
class ListedObject:
    """The objects of a list. `found`: the list exists; `cut`: the text is truncated; `left`: excess objects."""

    items: tuple[Mapping[str, Any], ...] = ()
    found: bool = False
    cut: bool = False
    left: int = 0


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


class _Jobs(msgspec.Struct):
    jobs: list[msgspec.Raw]


class _Nodes(msgspec.Struct):
    nodes: list[msgspec.Raw]


def listed(data: bytes, key: str, limit: int) -> ListedObject:
    """Return the objects of the list `key` ("items", "jobs" or "nodes"), at most `limit`.

    Several documents in a row and single objects form one list. Text denser than any real output is not read. Never
    raises.
    """
    if data.count(b",") > len(data) // _DENSE + 4096:
        return ListedObject()
    raws = _raws(data, key)
    if raws is None:
        return _by_hand(data.decode("utf-8", "replace"), key, limit)
    kept = [one for raw in raws[:limit] if isinstance(one := _decoded(raw), dict)]
    return ListedObject(tuple(kept), found=True, left=max(0, len(raws) - limit))


def _raws(data: bytes, key: str) -> list[msgspec.Raw] | None:
    try:
        if key == "jobs":
            return msgspec.json.decode(data, type=_Jobs).jobs
        if key == "nodes":
            return msgspec.json.decode(data, type=_Nodes).nodes
        return msgspec.json.decode(data, type=_Items).items
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _by_hand(text: str, key: str, limit: int) -> ListedObject:
    """Read object after object; if the outermost one is broken, read those in its list. At most two reads fail."""
    kept: list[Mapping[str, Any]] = []
    at, cut, found = 0, False, False
    while len(kept) < limit and (at := _behind_space(text, at)) < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            start = -1 if cut else _list_start(text, key, at)
            if start < 0:
                cut = cut or not kept or text[at] == "{"
                break
            at, cut, found = start, True, True
            continue
        inside = value.get(key) if isinstance(value, dict) else None
        found = found or isinstance(value, dict)
        kept.extend(part for part in (inside if isinstance(inside, list) else [value]) if isinstance(part, dict))
    return ListedObject(tuple(kept[:limit]), found=found, cut=cut, left=max(0, len(kept) - limit))


def _behind_space(text: str, at: int) -> int:
    other = _OTHER.search(text, at)
    return other.start() if other else len(text)


def _list_start(text: str, key: str, at: int) -> int:
    name = text.find(f'"{key}"', at)
    bracket = text.find("[", name, name + len(key) + 32) if name >= 0 else -1
    return bracket + 1 if bracket >= 0 else -1


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any, limit: int = 1024) -> list[Mapping[str, Any]]:
    """Return the objects of a list; empty if the value is not a list."""
    return [item for item in value[:limit] if isinstance(item, dict)] if isinstance(value, list) else []


def string(value: Any, limit: int = 200) -> str:
    """Return a string, truncated; empty for other values. Numbers become strings."""
    if isinstance(value, str):
        return value[:limit]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else ""


def integer(value: Any) -> int | None:
    """Return an integer, also one in a string; None for other values and beyond 63 bits."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    if isinstance(value, float) and isfinite(value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
