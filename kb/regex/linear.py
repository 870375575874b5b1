"""Writes a regex for RE2 over one-byte symbols (kb.regex.syntax), if RE2 gives it the same meaning as `re`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.regex.syntax import ALL, At, Chars, Choice, Group, Node, Repeat, Sequential, Tree, nodes, nullable
from kb.values import dataclass

OTHER_LETTERS = re.compile(rb"[\x80\x82\x84-\xff]")  # symbols of letters and digits, and of what the pattern names
MOST_TIMES = 1000  # RE2's own limit
_PLACES = {
    "start": r"\A",
    "end": r"\z",
    "end or last newline": r"\z",
    "line start": "(?m:^)",
    "line end": "(?m:$)",
    "boundary": r"\b",
    "ascii boundary": r"\b",
    "no boundary": r"\B",
    "ascii no boundary": r"\B",
}


@dataclass(frozen=True, slots=True)
class LinearForm:
    """An expression for RE2, and what a text must not have for it to mean the same as `re`.

    `dollar`: a newline at its end; `boundary`: different letters than ASCII's; `inner`: no text at all.
    """

    expression: str
    dollar: bool
    boundary: bool
    inner: bool

    def readable(self, text: str | bytes, *, foreign: bool) -> bool:
        """Whether RE2 reads this text as `re` does, but for boundaries of words."""
        if self.dollar and text[-1:] in ("\n", b"\n"):
            return False
        if self.inner and not text:
            return False
        return not foreign or isinstance(text, bytes) or text.isascii()

    def sees_boundaries(self, symbols: bytes) -> bool:
        """Whether RE2 sees the boundaries of words that `re` sees: it takes only ASCII letters for letters."""
        return not self.boundary or OTHER_LETTERS.search(symbols) is None


def without_boundaries(tree: Tree) -> str:
    """Write a regex for RE2 that finds wherever the regex does, and more: with no boundaries of words."""
    return "".join(_written(tree.root, boundaries=False))


def linear_form(tree: Tree) -> LinearForm | None:
    """Write a regex for RE2; None if RE2 lacks a construct or gives it another meaning."""
    places = set()
    for node in nodes(tree.root):
        if isinstance(node, At):
            places.add(node.place)
        elif isinstance(node, Repeat):
            many = node.high is None or node.high > 1
            if (
                node.kind == "possessive"
                or max(node.low, node.high or 0) > MOST_TIMES
                or (many and nullable(node.body))
            ):
                return None
        elif not isinstance(node, Chars | Sequential | Choice | Group):
            return None
    return LinearForm(
        "".join(_written(tree.root)),
        "end or last newline" in places,
        not places.isdisjoint({"boundary", "no boundary"}),
        not places.isdisjoint({"no boundary", "ascii no boundary"}),
    )


def _written(node: Node, *, boundaries: bool = True) -> Iterator[str]:
    if isinstance(node, Chars):
        yield char_class(node.members)
    elif isinstance(node, Sequential):
        for part in node.parts:
            yield from _written(part, boundaries=boundaries)
    elif isinstance(node, Choice):
        for index, branch in enumerate(node.branches):
            yield "|" if index else "(?:"
            yield from _written(branch, boundaries=boundaries)
        yield ")"
    elif isinstance(node, Group):
        yield "("
        yield from _written(node.body, boundaries=boundaries)
        yield ")"
    elif isinstance(node, Repeat):
        yield "(?:"
        yield from _written(node.body, boundaries=boundaries)
        yield ")" + _times(node)
    elif isinstance(node, At) and (boundaries or "boundary" not in node.place):
        yield _PLACES[node.place]


def _times(node: Repeat) -> str:
    known = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.low, node.high))
    span = known or f"{{{node.low},{'' if node.high is None else node.high}}}"
    return span + ("?" if node.kind == "lazy" else "")


def char_class(members: int) -> str:
    """Write a set of symbols."""
    if members == 0:
        return r"[^\x00-\x{10ffff}]"
    if members == ALL:
        return r"[\x00-\xff]"
    if members & (members - 1) == 0:
        return _byte(members.bit_length() - 1)
    spans = []
    at = 0
    while members >> at:
        at += ((members >> at) & -(members >> at)).bit_length() - 1
        stop = at
        while members >> stop & 1:
            stop += 1
        spans.append(f"\\x{at:02x}" if stop == at + 1 else f"\\x{at:02x}-\\x{stop - 1:02x}")
        at = stop
    return f"[{''.join(spans)}]"


def _byte(symbol: int) -> str:
    char = chr(symbol)
    return char if symbol < 0x80 and (char.isalnum() or char in " _") else f"\\x{symbol:02x}"
