"""Reads the small, unsurprising subset of YAML that rule files may use into frozen nodes that know their place.

PyYAML's events are handled one by one, so nothing is built before it is known to be allowed: no anchors, aliases, merge
keys, tags or second documents, no duplicate keys, at most 20 levels and 20,000 nodes. Values that YAML 1.1 reads in a
surprising way (`no`, `1:30`, `012`) are rejected with a hint to quote them. All faults of a file are reported, but a
syntax error stops the reading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

import yaml
from rapidfuzz import fuzz, process

from kb.errors import Fault
from kb.model import Scalar
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_NODES = 20_000
MAX_DIGITS = 15  # decimal digits that a float holds exactly, far more than a rule needs
_WORDS: Mapping[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = lazy_compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FLOAT = lazy_compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_DATE = lazy_compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_CONTROL = lazy_compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_SURPRISES = lazy_compile(
    r"(?:(?i:y|n|yes|no|on|off|true|false|null)"  # booleans and nulls in some parsers
    r"|[-+]?0[0-9_]+|[-+]?0(?i:[xbo])[0-9a-fA-F_]+"  # octal, hexadecimal, binary
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # base 60
    r"|\+[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|-?[0-9]+_[0-9_.]*|-?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|-?[0-9]+\.(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?i:inf)|\.(?i:nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9].*"  # time stamps
    r"|=)\Z",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a file, with its place (line and column from 1).

    `value` is a scalar, a tuple of nodes (a list) or a mapping from key to node. `keys` gives the place of each key.
    """

    file: str
    line: int
    column: int
    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def plain(self) -> Any:
        """Return the value as plain Python: dict, list, text, number, bool or None."""
        if isinstance(self.value, Mapping):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, key: str | int) -> Node | None:
        """Return the child at a key or index; None if there is none."""
        if isinstance(self.value, Mapping):
            return self.value.get(str(key))
        if isinstance(self.value, tuple) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None

    def text(self) -> str | None:
        """Return the text of a scalar; None for anything else."""
        return self.value if isinstance(self.value, str) else None

    def items(self) -> Iterator[tuple[str, Node]]:
        """Return the entries of a mapping; empty for anything else."""
        if isinstance(self.value, Mapping):
            yield from self.value.items()

    def parts(self) -> tuple[Node, ...]:
        """Return the items of a list; empty for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def fault(self, message: str, hint: str = "") -> Fault:
        """Return a fault at this node."""
        return Fault(self.file, self.line, self.column, message, hint)

    def key_fault(self, key: str, message: str, hint: str = "") -> Fault:
        """Return a fault at one of this mapping's keys."""
        line, column = self.keys.get(key, (self.line, self.column))
        return Fault(self.file, line, column, message, hint)


def nearest(word: str, known: Collection[str]) -> str:
    """Return the hint "did you mean …?"; empty if no known word is close."""
    found = process.extractOne(word[:100], sorted(known), scorer=fuzz.ratio, score_cutoff=60)
    return f"did you mean {found[0]!r}?" if found else ""


@lru_cache(maxsize=1024)
def parse(text: str, file: str) -> tuple[Node | None, tuple[Fault, ...]]:
    """Read one file. Results are cached by text, since few files of a rule base change between loads.

    Returns:
        The root node, None if it cannot be read, and all faults. If there are faults, the root serves for further
        checks only.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return None, (Fault(file, 1, 1, f"the file is larger than {MAX_BYTES // 1024} KiB"),)
    root = _parse_fast(text, file)
    if root is not None:
        return root, ()
    tree = _Tree(file)
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_event():
            tree.event(loader.get_event())  # type: ignore[no-untyped-call]
    except _TooMuch:
        return None, tuple(sorted(tree.faults))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, IndexError) as error:
        return None, tuple(sorted([*tree.faults, _syntax(error, text, file)]))
    return tree.root, tuple(sorted(set(tree.faults)))


def _parse_fast(text: str, file: str) -> Node | None:
    """Return the root of a file without faults, read with libyaml; None if it has any, or if libyaml is not installed.

    A tenth of the time. Faults are left to the parser in Python, whose places and words they have.
    """
    if not yaml.__with_libyaml__:
        return None
    tree = _Tree(file)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            tree.event(event)
    except (_TooMuch, yaml.YAMLError, ValueError, OverflowError, RecursionError, IndexError):
        return None
    return None if tree.faults else tree.root


class _TooMuch(Exception):  # noqa: N818 - a signal to stop, not an error that anyone sees
    """Raised when the file exceeds a limit; the fault has been recorded."""


@dataclass(slots=True)
class _Open:
    """A list or mapping still being read. `key`: the key whose value comes next."""

    mapping: bool
    line: int
    column: int
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: str | None = None
    awaits_key: bool = True


class _Tree:
    """Builds nodes from events, using an explicit stack instead of recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self._stack: list[_Open] = []
        self._documents = self._nodes = 0

    def event(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(event, "more than one document in a file", "remove the '---' and what follows it")
        elif isinstance(event, yaml.AliasEvent):
            self._fault(event, f"alias '*{str(event.anchor)[:40]}' is not allowed", "write the value out")
            self._add(self._node(event, None))
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_extras(event)
            self._add(self._scalar(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._refuse_extras(event)
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()

    def _fault(self, event: Any, message: str, hint: str = "") -> None:
        mark = event.start_mark
        self.faults.append(Fault(self.file, mark.line + 1, mark.column + 1, message, hint))

    def _stop(self, event: Any, message: str, hint: str = "") -> None:
        self._fault(event, message, hint)
        raise _TooMuch

    def _refuse_extras(self, event: Any) -> None:
        if event.anchor is not None:
            self._fault(
                event, f"anchor '&{str(event.anchor)[:40]}' is not allowed", "write the value out where it is needed"
            )
        if event.tag is not None:
            self._fault(event, f"tag {str(event.tag)[:80]!r} is not allowed", "quote a value to make it text")

    def _node(self, event: Any, value: Scalar) -> Node:
        return Node(self.file, event.start_mark.line + 1, event.start_mark.column + 1, value)

    def _scalar(self, event: Any) -> Node:
        if _CONTROL.search(event.value):
            self._fault(event, "control character in a text")
        if event.style:
            return self._node(event, event.value)
        value, wrong = _resolve(event.value)
        if wrong:
            self._fault(event, wrong, f"quote it: '{event.value[:40]}'")
        return self._node(event, value)

    def _open(self, event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        above = self._stack[-1] if self._stack else None
        if above and above.mapping and above.awaits_key:
            self._stop(event, "a key must be a plain word, not a list or mapping")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Open(mapping, event.start_mark.line + 1, event.start_mark.column + 1))

    def _close(self) -> None:
        done = self._stack.pop()
        value: Any = done.entries if done.mapping else tuple(done.items)
        self._add(Node(self.file, done.line, done.column, value, done.keys))

    def _add(self, node: Node, event: Any = None) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self.faults.append(node.fault(f"more than {MAX_NODES} values in a file"))
            raise _TooMuch
        if not self._stack:
            self.root = node
            return
        above = self._stack[-1]
        if not above.mapping:
            above.items.append(node)
        elif above.awaits_key:
            self._key(above, node, event)
        else:
            if above.key is not None:
                above.entries[above.key] = node
            above.awaits_key = True

    def _key(self, above: _Open, node: Node, event: Any) -> None:
        above.awaits_key = False
        text = event.value if event is not None else ""
        above.key = text
        if event is not None and not event.style and text == "<<":
            self.faults.append(node.fault("merge key '<<' is not allowed", "write the entries out"))
            above.key = None
        elif text in above.keys:
            line, _ = above.keys[text]
            self.faults.append(node.fault(f"key {text[:80]!r} is defined twice", f"first in line {line}"))
            above.key = None
        elif text == "":
            self.faults.append(node.fault("a key is empty"))
            above.key = None
        else:
            above.keys[text] = (node.line, node.column)


def _resolve(text: str) -> tuple[Scalar, str]:
    """Return the value of an unquoted scalar, and any problem with it."""
    if text in _WORDS:
        return _WORDS[text], ""
    if _INTEGER.match(text):
        return (int(text), "") if len(text) <= MAX_DIGITS else (text, f"a number of more than {MAX_DIGITS} digits")
    if _FLOAT.match(text):
        number = float(text) if len(text) <= 40 else math.inf
        return (number, "") if math.isfinite(number) else (text, "a number out of range")
    if not _DATE.match(text) and _SURPRISES.match(text):
        return text, f"unquoted {text[:40]!r} means different things to different YAML readers"
    return text, ""


def _syntax(error: Exception, text: str, file: str) -> Fault:
    """Return a syntax error as a fault whose words say what to do."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: int(error.position)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return Fault(file, line, column, f"character U+{_code(error.character):04X} is not allowed", "remove it")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Fault(file, 1, 1, "not YAML: a number or escape in it cannot be read", str(error)[:120])
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = str(error.problem or error.context or "cannot be read")
    if "'\\t'" in problem:
        return Fault(file, line, column, "a tab where only spaces may stand", "indent with spaces")
    return Fault(file, line, column, f"not YAML: {problem}", _SYNTAX_HINTS.get(problem, ""))


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")


_SYNTAX_HINTS = {
    "mapping values are not allowed here": "quote a text that contains ': '",
    "could not find expected ':'": "is a ':' missing, or a quote left open?",
    "found unexpected end of stream": "a quote or bracket is left open",
}
