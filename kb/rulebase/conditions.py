"""Parses the `when` of a rule, an expression or a mapping, into the Condition values of kb.rulebase.rule.

Faults are collected with their places in the file, never raised. Depth and size are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeVar, cast, get_args

from kb.errors import Fault
from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Absent, All, Any, Condition, Count, Join, Name, Not, Past, Ranks, Sequence, Span
from kb.rulebase.yaml_nodes import Node, nearest

MAX_DEPTH = 16
MAX_PARTS = 200
MAX_EXPRESSION = 2000  # characters
NAME = lazy_compile(r"[A-Za-z][A-Za-z0-9_]{0,39}\Z")
RESERVED = frozenset({"and", "or", "not"})
_TOKEN = lazy_compile(r"\s*(?:([A-Za-z0-9_$.-]+)|([()])|(\S))")
_SPAN = lazy_compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d|lines?)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_KEYS: Mapping[str, tuple[str, ...]] = {
    "all": ("same", "within"),
    "any": (),
    "not": (),
    "sequence": ("within", "same"),
    "count": ("at_least", "at_most", "within", "same"),
    "absent": ("after", "before", "around", "within"),
    "ranks": ("at_least", "at_most", "fraction_at_least", "fraction_at_most", "all_but", "first"),
    "history": (),
}
_HISTORY = ("fault", "rule", "same", "within_days", "at_least")
_PAST_SAME: tuple[Literal["node", "gpu", "job"], ...] = ("node", "gpu", "job")
_Item = TypeVar("_Item")


class _Broken(Exception):  # noqa: N818 - ends one expression; its fault is noted
    """Raised when an expression cannot be parsed further."""


class ConditionParser:
    """Parses the conditions of one rule. `names` are its patterns, `params` its site parameters with their values."""

    def __init__(self, names: Collection[str], params: Mapping[str, float]) -> None:
        self._names, self._params = names, params
        self._parts = 0
        self.faults: list[Fault] = []

    def parse(self, node: Node) -> Condition | None:
        """Return the condition; None if it has faults (see `faults`)."""
        before = len(self.faults)
        condition = self._condition(node, 0)
        return condition if len(self.faults) == before else None

    def _fault(self, node: Node, message: str, hint: str = "") -> None:
        self.faults.append(node.fault(message, hint))

    def _condition(self, node: Node, depth: int) -> Condition | None:
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            self._fault(node, f"a condition deeper than {MAX_DEPTH} levels or of more than {MAX_PARTS} parts")
            return None
        text = node.text()
        if text is not None:
            return self._expression(node, text)
        if isinstance(node.value, Mapping):
            return self._mapping(node, depth)
        self._fault(node, "a condition is an expression over pattern names, or a mapping", "like: a and not b")
        return None

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, node: Node, text: str) -> Condition | None:
        if len(text) > MAX_EXPRESSION:
            self._fault(node, f"an expression of more than {MAX_EXPRESSION} characters")
            return None
        tokens = [match.group(match.lastindex or 0) for match in _TOKEN.finditer(text)]
        if len(tokens) > MAX_PARTS:
            self._fault(node, f"an expression of more than {MAX_PARTS} words")
            return None
        tokens.reverse()
        try:
            condition = self._or(node, tokens, 0)
            if tokens:
                self._fault(node, f"{tokens[-1][:40]!r} is not allowed here", "join names by 'and' or 'or'")
        except _Broken:
            return None
        return condition

    def _or(self, node: Node, tokens: list[str], depth: int) -> Condition:
        parts = [self._and(node, tokens, depth)]
        while tokens and tokens[-1] == "or":
            tokens.pop()
            parts.append(self._and(node, tokens, depth))
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _and(self, node: Node, tokens: list[str], depth: int) -> Condition:
        parts = [self._factor(node, tokens, depth)]
        while tokens and tokens[-1] == "and":
            tokens.pop()
            parts.append(self._factor(node, tokens, depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _factor(self, node: Node, tokens: list[str], depth: int) -> Condition:
        if depth > MAX_DEPTH:
            self._break(node, f"an expression deeper than {MAX_DEPTH} levels")
        if not tokens:
            self._break(node, "the expression ends where a pattern name is required")
        token = tokens.pop()
        if token == "not":  # noqa: S105 - a word of the grammar
            return Not(self._factor(node, tokens, depth + 1))
        if token == "(":  # noqa: S105
            inner = self._or(node, tokens, depth + 1)
            if not tokens or tokens.pop() != ")":
                self._break(node, "a bracket is not closed")
            return inner
        if token in RESERVED or NAME.match(token) is None:
            self._break(
                node, f"{token[:40]!r} is not a pattern name", "letters, digits and '_', starting with a letter"
            )
        self._require_pattern(node, token)
        return Name(token)

    def _break(self, node: Node, message: str, hint: str = "") -> None:
        self._fault(node, message, hint)
        raise _Broken

    def _require_pattern(self, node: Node, name: str) -> None:
        if name not in self._names:
            self._fault(node, f"no pattern {name[:40]!r} under match", nearest(name, self._names))

    # -- mappings ----------------------------------------------------------------------------------------------------

    def _mapping(self, node: Node, depth: int) -> Condition | None:
        kinds = [key for key in _KEYS if node.get(key) is not None]
        if len(kinds) != 1:
            hint = nearest(next(iter(node.keys), ""), _KEYS) if not kinds else ""
            self._fault(node, f"a condition needs exactly one of: {', '.join(_KEYS)}", hint)
            return None
        kind = kinds[0]
        self._only(node, (kind, *_KEYS[kind]))
        child = cast("Node", node.get(kind))
        if kind in ("all", "any"):
            return self._joined(kind, node, child, depth)
        if kind == "not":
            part = self._condition(child, depth + 1)
            return Not(part) if part is not None else None
        readers: Mapping[str, Callable[[Node, Node], Condition | None]] = {
            "sequence": self._sequence,
            "count": self._count,
            "absent": self._absent,
            "ranks": self._ranks,
            "history": self._history,
        }
        return readers[kind](node, child)

    def _only(self, node: Node, allowed: Collection[str]) -> None:
        for key in node.keys:
            if key not in allowed:
                self.faults.append(node.key_fault(key, f"unknown key {key[:40]!r}", nearest(key, allowed)))

    def _joined(self, kind: str, node: Node, child: Node, depth: int) -> Condition | None:
        if not child.parts():
            self._fault(child, f"'{kind}' needs a list of conditions")
            return None
        found = [self._condition(part, depth + 1) for part in child.parts()]
        parts = tuple(part for part in found if part is not None)
        if kind == "any":
            return Any(parts)
        return All(parts, self._same(node), self._within(node))

    def _sequence(self, node: Node, child: Node) -> Condition | None:
        order = tuple(self._name(part) for part in child.parts())
        if len(order) < 2:
            self._fault(child, "'sequence' needs a list of at least two pattern names")
        return Sequence(order, self._within(node), self._same(node))

    def _count(self, node: Node, child: Node) -> Condition | None:
        low, high = self._whole(node, "at_least", 1), self._whole(node, "at_most", 0)
        self._bounds(node, low, high)
        if node.get("at_least") is None and node.get("at_most") is None:
            self._fault(node, "'count' needs at_least or at_most")
        return Count(self._name(child), low, high, self._within(node), self._same(node))

    def _absent(self, node: Node, child: Node) -> Condition | None:
        sides = [side for side in ("after", "before", "around") if node.get(side) is not None]
        if len(sides) != 1:
            self._fault(node, "'absent' needs exactly one of after, before, around")
            return None
        side = cast('Literal["after", "before", "around"]', sides[0])
        return Absent(self._name(child), side, self._name(cast("Node", node.get(side))), self._within(node))

    def _ranks(self, node: Node, child: Node) -> Condition | None:
        low, high = self._whole(node, "at_least", 1), self._whole(node, "at_most", 0)
        self._bounds(node, low, high)
        first = node.get("first")
        if first is not None and not isinstance(first.value, bool):
            self._fault(first, "'first' must be true or false")
        if len(node.keys) < 2:
            self._fault(node, f"'ranks' needs one of: {', '.join(_KEYS['ranks'])}")
        return Ranks(
            self._name(child),
            low,
            high,
            self._number(node, "fraction_at_least", 0.0, 1.0),
            self._number(node, "fraction_at_most", 0.0, 1.0),
            self._whole(node, "all_but", 0),
            first is not None and first.value is True,
        )

    def _history(self, _node: Node, child: Node) -> Condition | None:
        if not isinstance(child.value, Mapping):
            self._fault(child, "'history' needs a mapping", "like: {fault: gpu_memory_ecc, same: node, at_least: 1}")
            return None
        self._only(child, _HISTORY)
        fault, rule = (self._word(child, key) for key in ("fault", "rule"))
        if fault is None and rule is None:
            self._fault(child, "'history' needs a fault or a rule")
        days = self._number(child, "within_days", 0.0, 3650.0)
        least = self._whole(child, "at_least", 1)
        return Past(
            fault,
            rule,
            self._choice(child, "same", _PAST_SAME) or "node",
            30.0 if days is None else days,
            1 if least is None else least,
        )

    # -- values ------------------------------------------------------------------------------------------------------

    def _name(self, node: Node) -> str:
        text = node.text()
        if text is None or NAME.match(text) is None:
            self._fault(node, "a pattern name is required here")
            return ""
        self._require_pattern(node, text)
        return text

    def _word(self, node: Node, key: str) -> str | None:
        child = node.get(key)
        if child is None:
            return None
        if child.text() is None:
            self._fault(child, f"'{key}' must be text")
        return child.text()

    def _choice(self, node: Node, key: str, allowed: tuple[_Item, ...]) -> _Item | None:
        child = node.get(key)
        if child is None:
            return None
        for item in allowed:
            if child.value == item:
                return item
        words = [str(item) for item in allowed]
        self._fault(child, f"'{key}' must be one of: {', '.join(words)}", nearest(str(child.text()), words))
        return None

    def _same(self, node: Node) -> Join | None:
        return self._choice(node, "same", cast("tuple[Join, ...]", get_args(Join)))

    def _within(self, node: Node) -> Span:
        child = node.get("within")
        if child is None:
            return Span()
        span = read_span(child.text() or "")
        if span is None:
            self._fault(child, "'within' must be a time or a number of lines", "like 30s, 10m, 2h or 40 lines")
        return span or Span()

    def _number(self, node: Node, key: str, low: float, high: float) -> float | None:
        child = node.get(key)
        if child is None:
            return None
        value = child.value
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in self._params:
                self._fault(child, f"no parameter {value[1:41]!r} under params", nearest(value[1:], self._params))
                return None
            value = self._params[value[1:]]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fault(child, f"'{key}' must be a number or the '$name' of a parameter")
            return None
        if not low <= value <= high:
            self._fault(child, f"'{key}' must be between {low:.10g} and {high:.10g}")
            return None
        return float(value)

    def _whole(self, node: Node, key: str, low: int) -> int | None:
        number = self._number(node, key, low, 1_000_000)
        if number is not None and number != int(number):
            self._fault(cast("Node", node.get(key)), f"'{key}' must be a whole number")
        return None if number is None else int(number)

    def _bounds(self, node: Node, low: int | None, high: int | None) -> None:
        if low is not None and high is not None and low > high:
            self._fault(node, "at_least is greater than at_most")


def read_span(text: str) -> Span | None:
    """Parse a span such as 30s, 10m, 2h, 500ms, 1d or "40 lines"; None if it is invalid."""
    match = _SPAN.match(text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if unit.startswith("line"):
        return Span(lines=int(number)) if number == int(number) else None
    return Span(seconds=number * _UNITS[unit])


def any_of(names: Collection[str]) -> Condition:
    """Return the condition of a rule without `when`, which is any of its patterns."""
    parts = tuple(Name(name) for name in names)
    return parts[0] if len(parts) == 1 else Any(parts)
