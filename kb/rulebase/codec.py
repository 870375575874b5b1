"""Encodes a rulebook as bytes for a fast start, and computes its digest and the lock of its rules.

This module uses neither YAML nor pydantic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import msgspec

from kb.errors import UnreadableInput
from kb.rulebase.rule import (
    Absent,
    ActionWord,
    All,
    Condition,
    Count,
    FaultClass,
    Name,
    Not,
    Past,
    Ranks,
    Rule,
    Rulebook,
    RuleException,
    Sequence,
    SiteException,
    Span,
    TableRow,
)
from kb.rulebase.rule import Any as AnyOf

FORMAT = "signalbox.rulebook/1"
_MAX_DEPTH = 64
_CONDITIONS: dict[str, type[Condition]] = {
    item.__name__.lower(): item for item in (Name, All, AnyOf, Not, Sequence, Count, Absent, Ranks, Past)
}
_TAGS = {item: tag for tag, item in _CONDITIONS.items()}
_FIELDS = {item: tuple(part.name for part in fields(item)) for item in _TAGS}


def _wire_rule() -> type[msgspec.Struct]:
    """A rule with conditions as tagged lists, since msgspec cannot distinguish the members of the Condition union."""
    hints = get_type_hints(Rule)
    hints["when"] = list[Any]
    hints["not_when"] = list[tuple[str, list[Any], str | None, str | None]]
    hints["site"] = list[tuple[tuple[str, str, str | None, str | None, str | None, str | None], list[Any] | None]]
    return msgspec.defstruct("WireRule", [(field.name, hints[field.name]) for field in fields(Rule)], array_like=True)


WireRule: Any = _wire_rule()


class _Wire(msgspec.Struct, array_like=True):
    format: str
    version: str
    digest: str
    rules: list[WireRule]
    faults: dict[str, FaultClass]
    actions: dict[str, ActionWord]
    owners: dict[str, str]
    versions: dict[str, int]


_DECODER = msgspec.msgpack.Decoder(_Wire)


def encode(rulebook: Rulebook) -> bytes:
    """Encode a rulebook for a cache next to the rules. The same rulebook always gives the same bytes."""
    wire = _Wire(
        FORMAT,
        rulebook.version,
        rulebook.digest,
        [_to_wire(rule) for rule in rulebook.rules],
        dict(rulebook.faults),
        dict(rulebook.actions),
        dict(rulebook.owners),
        dict(rulebook.versions),
    )
    return msgspec.msgpack.encode(wire)


def decode(data: bytes) -> Rulebook:
    """Decode a rulebook.

    Raises:
        UnreadableInput: the bytes are not a rulebook in this format.
    """
    try:
        wire = _DECODER.decode(data)
        if wire.format != FORMAT:
            raise UnreadableInput(f"cached rulebook has an unsupported format ({wire.format[:40]!r}); rebuild it")
        rules = tuple(_from_wire(rule) for rule in wire.rules)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError, KeyError, IndexError) as error:
        raise UnreadableInput(f"not a cached rulebook: {error}") from error
    return Rulebook(wire.version, wire.digest, rules, wire.faults, wire.actions, wire.owners, wire.versions)


def digest(rulebook: Rulebook) -> str:
    """Return the SHA-256 of everything that can change a report: all rules (without their places) and the vocabularies."""
    rules = []
    for rule in sorted(rulebook.rules, key=lambda item: item.id):
        wire = msgspec.structs.asdict(_to_wire(rule))
        rules.append({name: value for name, value in wire.items() if name not in ("file", "family")})
    whole = {"rules": rules, "faults": rulebook.faults, "actions": rulebook.actions, "owners": rulebook.owners}
    return hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()


class Locked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule in lock.json: the SHA-256 of its meaning, in hexadecimal, and its version, counted from 1."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    version: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


def read_lock(text: str) -> dict[str, Locked]:
    """Return the entries of a lock.json by rule id.

    Raises:
        UnreadableInput: the text is not a lock file.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, Locked])
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UnreadableInput(f"not a rule lock file: {error}") from error


def meaning(rule: Rule) -> str:
    """Return the SHA-256 of the parts that decide when a rule matches and what it reports.

    Texts, steps and severity are not included.

    Parts with default values are omitted, so adding an optional part to the format changes no hash.
    """
    table = rule.table
    parts = {
        **{name: _plain(getattr(rule, name)) for name in ("fault", "role", "status", "fallback", "patterns", "when")},
        "not_when": [_plain(item.condition) for item in rule.not_when],
        "explains": sorted(set(rule.explains)),
        "params": _plain(rule.params),
        "key": table.key if table else None,
        "rows": {key: _row(row) for key, row in table.rows.items()} if table else {},
        "default": _row(table.default) if table and table.default else None,
        **({"advice": rule.advice} if rule.advice else {}),
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def _row(row: TableRow) -> list[Any]:
    return [row.fault, row.role, row.ignore, *([row.advice] if row.advice else [])]


def _plain(value: Any) -> Any:
    """Return a part of a rule as plain values, without defaults."""
    if is_dataclass(value):
        tag = {"is": type(value).__name__.lower()} if type(value) in _TAGS else {}
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        return tag | {
            field.name: _plain(given[field.name]) for field in fields(value) if given[field.name] != _default(field)
        }
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _default(part: Any) -> Any:
    return part.default if part.default_factory is MISSING else part.default_factory()


def _to_wire(rule: Rule) -> Any:
    values = {field.name: getattr(rule, field.name) for field in fields(Rule)}
    values["when"] = _pack(rule.when)
    values["not_when"] = [(item.reason, _pack(item.condition), item.owner, item.expires) for item in rule.not_when]
    values["site"] = [
        (
            (
                site_exception.reason,
                site_exception.expires,
                site_exception.owner,
                site_exception.lines,
                site_exception.nodes,
                site_exception.jobs,
            ),
            _pack(site_exception.condition) if site_exception.condition else None,
        )
        for site_exception in rule.site
    ]
    return WireRule(**values)


def _from_wire(wire: Any) -> Rule:
    values = msgspec.structs.asdict(wire)
    values["when"] = _unpack(wire.when, 0)
    values["not_when"] = tuple(
        RuleException(reason, _unpack(condition, 0), owner, expires)
        for reason, condition, owner, expires in wire.not_when
    )
    values["site"] = tuple(_site(words, condition) for words, condition in wire.site)
    return Rule(**values)


def _site(words: Any, condition: list[Any] | None) -> SiteException:
    reason, expires, owner, lines, nodes, jobs = words
    when = _unpack(condition, 0) if condition else None
    return SiteException(reason, expires, owner, lines, nodes, jobs, when)


def _pack(condition: Condition) -> list[Any]:
    kind = type(condition)
    return [_TAGS[kind], *(_pack_value(getattr(condition, name)) for name in _FIELDS[kind])]


def _pack_value(value: Any) -> Any:
    if type(value) in _TAGS:
        return _pack(value)
    if isinstance(value, Span):
        return [value.seconds, value.lines]
    if isinstance(value, tuple):
        return [_pack_value(item) for item in value]
    return value


def _unpack(packed: list[Any], depth: int) -> Condition:
    if depth > _MAX_DEPTH:
        raise ValueError("a condition is nested too deeply")
    tag, *values = packed
    kind = _CONDITIONS[tag]
    if len(values) != len(_FIELDS[kind]):
        raise ValueError(f"a condition {tag!r} with {len(values)} values")
    for index, name in enumerate(_FIELDS[kind]):
        if name == "parts":
            values[index] = tuple(_unpack(item, depth + 1) for item in values[index])
        elif name == "part":
            values[index] = _unpack(values[index], depth + 1)
        elif name == "within":
            seconds, lines = values[index]
            values[index] = Span(seconds, lines)
        elif name == "order":
            values[index] = tuple(values[index])
    return kind(*values)
