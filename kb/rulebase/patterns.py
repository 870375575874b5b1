"""The safe regex subset for rule patterns, and the form of patterns that the one-pass engine searches for.

A rule's regex is Python syntax. For the pass over the log it is rewritten into a *scan form* that no engine reads
differently. It has no anchors, no newline in any class, nothing optional at either end (engines report every end
offset), and bytes instead of characters. A scan form finds every line that the regex matches and may find more. If it
finds exactly the same lines, it is marked `exact`; only lines found by other forms are confirmed with Python's `re`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from kb.regex.hazards import exponential_parts
from kb.regex.re_tree import REPEATS, parsed, sre, strictly_parsed, walk
from kb.rulebase.recurring_lines import RECURRING
from kb.values import dataclass

MAX_REPEAT = 1000
WIDE_REPEAT = 40  # wider bounded repeats are treated as unbounded, since they would blow up the automaton
TELLING = 6  # minimum run of letters or digits that makes part of a pattern worth searching for by itself
COMMON = frozenset(
    b"cluster client connection device endpoint epoch error exception failed failure iteration killed loading memory "
    b"message network node process rank server signal socket step timeout timed training unreachable warning worker".split()
) | {b"nccl warn", b"timed out"}
_NEWLINES = {0x0A, 0x0D}
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGIT = frozenset(b"0123456789")
_SPACE = frozenset(b" \t\n\r\f\v")
_ALL = frozenset(range(256))
_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGIT,
    sre.CATEGORY_NOT_DIGIT: _ALL - _DIGIT,
    sre.CATEGORY_SPACE: _SPACE,
    sre.CATEGORY_NOT_SPACE: _ALL - _SPACE,
    sre.CATEGORY_WORD: _WORD,
    sre.CATEGORY_NOT_WORD: _ALL - _WORD,
}
_UNSAFE = {
    sre.ASSERT: "look-around",
    sre.ASSERT_NOT: "look-around",
    sre.GROUPREF: "a back-reference",
    sre.GROUPREF_EXISTS: "a conditional group",
    sre.ATOMIC_GROUP: "an atomic group",
    sre.POSSESSIVE_REPEAT: "a possessive repeat",
}
_KEPT = 4096  # number of cached analyses: a rule base has a thousand regexes, and most are unchanged at the next load
_Items = Sequence[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class ScanForm:
    """The form that the engine searches for. `anchored`: the regex has `^`, the start of a message after its prefix."""

    expression: str
    exact: bool
    anchored: bool


@lru_cache(maxsize=_KEPT)
def check(regex: str, ignore_case: bool = False) -> tuple[str, ...]:
    """Return why a regex cannot be a rule's pattern; empty if it is in the safe subset."""
    try:
        tree = strictly_parsed(regex.encode("utf-8"), ignore_case)
    except (re.error, RecursionError, OverflowError, ValueError, Warning) as error:
        return (f"not a regular expression: {error}",)
    faults = [f"{what} is outside the safe subset (use `confirm` or `not_line`)" for what in sorted(_unsafe(tree))]
    if tree.getwidth()[0] == 0:
        faults.append("it matches the empty string")
    if tree.state.flags & (re.DOTALL | re.MULTILINE | re.VERBOSE):
        faults.append("inline flags s, m and x are outside the safe subset")
    faults += map(str, exponential_parts(regex.encode("utf-8"), ignore_case))
    if not faults and informative(regex) < 4:
        faults.append("every alternative needs at least four letters or digits in a row")
    return tuple(faults)


def informative(regex: str) -> int:
    """Return the length of the longest literal run that every match must contain, counting letters and digits."""
    return _informative(_squash(parsed(regex.encode("utf-8"))))


def groups(regex: str) -> frozenset[str]:
    """Return the names that a regex captures."""
    return frozenset(parsed(regex).state.groupdict)


def literal_regex(text: str) -> str:
    """Return the regex that matches exactly this text."""
    return re.escape(text)


@lru_cache(maxsize=_KEPT)
def scan_form(regex: str) -> ScanForm:
    """Rewrite a regex for the pass over the log.

    Raises:
        re.error: the regex does not parse. `check` reports this in words meant for its author.
    """
    tree = parsed(regex.encode("utf-8"))
    writer = _Writer()
    anchors = [argument for op, argument in tree if _is_anchor(op, argument)]
    for anchor in anchors:
        writer.at(anchor)
    expression = writer.alone([item for item in tree if not _is_anchor(*item)])
    return ScanForm(expression, writer.exact, writer.anchored)


def portable(regex: str) -> str:
    """Return the whole regex in the form that bytes engines read, without captures and anchors, for comparisons."""
    writer = _Writer()
    return writer.sequence(item for item in parsed(regex.encode("utf-8")) if not _is_anchor(*item))


def with_any_digits(expression: str) -> str:
    """Return a scan form that also matches lines that it would match with other digits."""
    return _AnyDigits().sequence(parsed(expression.encode("utf-8")))


def _unsafe(items: Iterable[tuple[Any, Any]]) -> set[str]:
    found = set()
    for op, argument in walk(items):
        if op in _UNSAFE:
            found.add(_UNSAFE[op])
        elif op in REPEATS and argument[0] > MAX_REPEAT:
            found.add(f"a repeat of more than {MAX_REPEAT}")
        elif op is sre.LITERAL and argument in _NEWLINES:
            found.add("a newline")
    return found


def _squash(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Flatten plain groups, so that literals on both sides of a parenthesis form one run."""
    flat: list[tuple[Any, Any]] = []
    for op, argument in items:
        flat.extend(_squash(argument[3]) if op is sre.SUBPATTERN else [(op, argument)])
    return flat


def _informative(items: _Items) -> int:
    best = 0
    run: list[int] = []
    for op, argument in [*items, (None, None)]:
        if op is sre.LITERAL:
            run.append(argument)
            continue
        if op is sre.AT or (op is sre.IN and len(argument) <= 2):
            continue  # these do not end a run: a choice of two letters is nearly as selective as one letter
        best = max(best, _letters(run))
        run = []
        if op is sre.BRANCH:
            best = max(best, min(_informative(_squash(branch)) for branch in argument[1]))
        elif op in REPEATS and argument[0] > 0:
            best = max(best, _informative(_squash(argument[2])))
    return best


def _letters(run: Sequence[int]) -> int:
    return sum(byte in _WORD for byte in run)


def _trim(items: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Drop optional parts at both ends. This changes no line's result, only the number of reported ends."""
    while items and (shorter := _least(items[0])) != items[:1]:
        items = shorter + items[1:]
    while items and (shorter := _least(items[-1])) != items[-1:]:
        items = items[:-1] + shorter
    return items


def _is_anchor(op: Any, argument: Any) -> bool:
    return op is sre.AT and argument not in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY)


def _divided(items: list[tuple[Any, Any]]) -> list[list[tuple[Any, Any]]]:
    r"""Split a sequence at each repeat: `.*`, `\S{1,80}`, `\d+`. Repeats cost the engine most and select least."""
    parts: list[list[tuple[Any, Any]]] = [[]]
    for op, argument in items:
        if op in REPEATS and argument[1] > 1:
            parts.append([])
        else:
            parts[-1].append((op, argument))
    return [part for part in parts if part] or [items]


def _telling(part: _Items) -> int:
    """Score how selective a part is. Words common to most lines of any log score low."""
    flat = _squash(part)
    plain = [bytes(argument for op, argument in flat if op is sre.LITERAL)]
    for op, argument in flat:
        if op is sre.BRANCH:
            plain += [bytes(a for o, a in _squash(branch) if o is sre.LITERAL) for branch in argument[1]]
    common = any(text.strip(b" :=").lower() in COMMON for text in plain)
    return _informative(flat) - (8 if common else 0)


def _recurs(part: _Items) -> bool:
    """Whether a part occurs on lines printed at every step, each of which would need confirming in Python."""
    text = bytes(argument if op is sre.LITERAL else 0 for op, argument in _squash(part))
    return text.decode("latin-1").lower().strip() in RECURRING


def _least(item: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    op, argument = item
    if op in REPEATS and argument[0] != argument[1]:
        low, _, body = argument
        return [(sre.MAX_REPEAT, (low, low, body))] if low else []
    if op is sre.SUBPATTERN and not argument[1] and not argument[2]:
        return list(argument[3])
    return [item]


class _Writer:
    """Writes the tree as an expression for a bytes engine, and records whether it matches more than the regex."""

    def __init__(self) -> None:
        self.exact = True
        self.anchored = False

    def alone(self, items: _Items) -> str:
        """Write a part that has nothing before or after it. If repeats divide it, write only its most selective piece.

        Two pieces would keep an automaton active on every line that has the first. In a choice, each branch stands by
        itself too.
        """
        items = _trim(list(items))
        if len(items) == 1 and items[0][0] is sre.BRANCH:
            return "(?:" + "|".join(self.alone(branch) for branch in items[0][1][1]) + ")"
        parts = _divided(items)
        if len(parts) == 1:
            return self.sequence(items)
        best = max(parts, key=_telling)
        if _informative(_squash(best)) < TELLING or _recurs(best):
            return self.sequence(items)
        self.exact = False
        return self.alone(best)

    def sequence(self, items: Iterable[tuple[Any, Any]]) -> str:
        return "".join(self.item(op, argument) for op, argument in items)

    def item(self, op: Any, argument: Any) -> str:  # noqa: PLR0911 - one return a kind of node
        if op is sre.LITERAL:
            return _byte(argument)
        if op is sre.NOT_LITERAL:
            return _charset(_ALL - {argument})
        if op is sre.ANY:
            return "."
        if op is sre.IN:
            return _charset(_members(argument))
        if op in REPEATS:
            return self.repeat(*argument)
        if op is sre.SUBPATTERN:
            return self.group(*argument)
        if op is sre.BRANCH:
            return "(?:" + "|".join(self.sequence(branch) for branch in argument[1]) + ")"
        return self.at(argument)

    def at(self, where: Any) -> str:
        if where in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            return r"\b" if where is sre.AT_BOUNDARY else r"\B"
        self.exact = False
        self.anchored |= where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING)
        return ""

    def repeat(self, low: int, high: Any, body: _Items) -> str:
        inner = self.sequence(body)
        if high is sre.MAXREPEAT:
            span = {0: "*", 1: "+"}.get(low, f"{{{low},}}")
        elif high - low > WIDE_REPEAT:
            self.exact = False
            span = {0: "*", 1: "+"}.get(low, f"{{{low},}}")
        else:
            span = f"{{{low}}}" if low == high else f"{{{low},{high}}}"
        if span == "{1}":
            return f"(?:{inner})"
        return f"(?:{inner}){span}" if inner else ""

    def group(self, _number: Any, add: int, _remove: int, body: _Items) -> str:
        inner = self.sequence(body)
        return f"(?i:{inner})" if add & re.IGNORECASE else f"(?:{inner})"


class _AnyDigits(_Writer):
    """Writes any digit in place of a certain one, and all of them in a class that has some."""

    def item(self, op: Any, argument: Any) -> str:
        if op is sre.NOT_LITERAL and argument in _DIGIT:
            return _charset(_ALL)
        members = {argument} if op is sre.LITERAL else _members(argument) if op is sre.IN else frozenset[int]()
        return _charset(members | _DIGIT) if members & _DIGIT else super().item(op, argument)


def _members(items: Iterable[tuple[Any, Any]]) -> frozenset[int]:
    members: set[int] = set()
    negate = False
    for op, argument in items:
        if op is sre.NEGATE:
            negate = True
        elif op is sre.LITERAL:
            members.add(argument)
        elif op is sre.RANGE:
            members.update(range(argument[0], argument[1] + 1))
        elif op is sre.CATEGORY:
            members |= _CATEGORIES[argument]
    return frozenset(_ALL - members if negate else members)


def _charset(members: frozenset[int] | set[int]) -> str:
    kept = sorted(set(members) - _NEWLINES)
    spans: list[list[int]] = []
    for value in kept:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    inside = "".join(f"\\x{a:02x}" if a == b else f"\\x{a:02x}-\\x{b:02x}" for a, b in spans)
    return f"[{inside}]" if inside else "[\\x00]"


def _byte(value: int) -> str:
    return chr(value) if value in _WORD or value == 0x20 else f"\\x{value:02x}"
