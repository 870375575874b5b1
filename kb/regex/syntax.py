"""A Python regex as a tree that names no flags: each character class is a set over one alphabet of 256 symbols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kb.values import dataclass

ALL = (1 << 256) - 1
Place = str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character. `members`: a bit for each symbol; `source` and `flags`: the same as a regex of its own."""

    members: int
    source: str
    flags: int


@dataclass(frozen=True, slots=True)
class Sequential:
    """A sequence of parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, the preferred one first."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A body `low` to `high` times; `high` None: without end."""

    body: Node
    low: int
    high: int | None
    kind: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True, slots=True)
class Group:
    """A group that captures."""

    number: int
    body: Node


@dataclass(frozen=True, slots=True)
class Look:
    """A look-around. `width`: characters before the place where a look-behind begins; None: a look-ahead."""

    body: Node
    negative: bool
    width: int | None


@dataclass(frozen=True, slots=True)
class Atomic:
    """An atomic body: once matched, no other way is tried."""

    body: Node


@dataclass(frozen=True, slots=True)
class Reference:
    """A back reference to a group's text."""

    number: int
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class Conditional:
    """One body if a group matched, otherwise the other."""

    number: int
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class At:
    """A place between characters."""

    place: Place


Node = Chars | Sequential | Choice | Repeat | Group | Look | Atomic | Reference | Conditional | At


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed regex. `named`: other characters that it names → their symbols; `foreign`: it has a class of others.

    `groups`: their number; `names`: name → number.
    """

    root: Node
    text: bool
    groups: int
    names: dict[str, int]
    named: dict[str, int]
    foreign: bool


_WITH_BODY = (Repeat, Group, Look, Atomic)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes right under one."""
    if isinstance(node, Chars):  # most of them
        return ()
    if isinstance(node, Sequential):
        return node.parts
    if isinstance(node, Choice):
        return node.branches
    if isinstance(node, _WITH_BODY):
        return (node.body,)
    return (node.yes, node.no) if isinstance(node, Conditional) else ()


def nodes(root: Node) -> Iterator[Node]:
    """Yield a node and all under it."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))


def nullable(node: Node) -> bool:
    """Whether a node can match the empty string."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Sequential):
        return all(map(nullable, node.parts))
    if isinstance(node, Choice):
        return any(map(nullable, node.branches))
    if isinstance(node, Repeat):
        return node.low == 0 or nullable(node.body)
    if isinstance(node, Conditional):
        return nullable(node.yes) or nullable(node.no)
    return nullable(node.body) if isinstance(node, Group | Atomic) else True


def shown(node: Node) -> str:  # noqa: PLR0911 - one return a kind of node
    """Write a node for messages, roughly as its author wrote it."""
    if isinstance(node, Chars):
        return node.source
    if isinstance(node, Sequential):
        return "".join(f"(?:{shown(part)})" if isinstance(part, Choice) else shown(part) for part in node.parts)
    if isinstance(node, Choice):
        return "|".join(map(shown, node.branches))
    if isinstance(node, Repeat):
        body = shown(node.body)
        if not isinstance(node.body, Chars | Group):
            body = f"(?:{body})"
        known = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.low, node.high))
        span = (
            f"{{{node.low}}}" if node.low == node.high else f"{{{node.low},{'' if node.high is None else node.high}}}"
        )
        return body + (known or span) + {"greedy": "", "lazy": "?", "possessive": "+"}[node.kind]
    if isinstance(node, Group):
        return f"({shown(node.body)})"
    if isinstance(node, At):
        return {"start": "^", "end": r"\Z", "line start": "^"}.get(node.place) or (
            "$" if "end" in node.place else r"\B" if "no " in node.place else r"\b"
        )
    return "(?…)"
