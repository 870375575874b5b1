"""Runs regexes with Python's semantics, including look-around and back references, in a limited number of steps.

Only what the linear engine cannot run comes here: a text costs at most `Budget.left` steps, whatever the pattern, and
the same text always costs the same. A place of the program that failed at a place of the text is not tried there again,
unless what comes after it depends on more than the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from kb.regex.parser import member_test
from kb.regex.syntax import (
    Atomic,
    Chars,
    Choice,
    Conditional,
    Group,
    Look,
    Node,
    Reference,
    Repeat,
    Sequential,
    Tree,
    nullable,
)
from kb.values import dataclass

STEPS = 200_000  # of one search: some 50 ms
LARGEST = 20_000  # instructions of a program
Spans = tuple[tuple[int, int], ...]
Search = Callable[[str | bytes, int, bool, "Budget"], "Spans | None"]
_NEWLINE = frozenset(("\n", 0x0A))
_ASCII_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class BudgetSpent(Exception):  # noqa: N818 - says what it is
    """Raised if a search was given up; whether the text matches is unknown."""


class TooLarge(ValueError):  # noqa: N818 - says what it is
    """Raised if a regex is too large to be run."""


@dataclass(slots=True)
class Budget:
    """The remaining steps for searches. Several searches can share a budget."""

    left: int = STEPS


@dataclass(slots=True)
class _Program:
    """Instructions. `slots`: captures and marks; `plain`: what follows depends on the place alone."""

    code: list[tuple[Any, ...]] = field(default_factory=list)
    slots: int = 0
    plain: bool = True


def backtracker(tree: Tree) -> Search:
    """Return a search: (text, first place, whether all must match, budget) → spans of the match and its groups, or None.

    The search raises `BudgetSpent` if the budget did not suffice.

    Raises:
        TooLarge: the program would be too large.
    """
    program = _Program(slots=2 * tree.groups + 2)
    _Compiler(program, text=tree.text).add(tree.root)
    program.code.append(("match",))
    groups = tree.groups

    def search(text: str | bytes, first: int, whole: bool, budget: Budget) -> Spans | None:
        run = _Run(program, text, budget, whole=whole)
        for start in range(first, first + 1 if whole else len(text) + 1):
            found = run.from_(0, start)
            if found is not None:
                end, slots = found
                return ((start, end), *((slots[2 * n], slots[2 * n + 1]) for n in range(1, groups + 1)))
        return None

    return search


class _Members(dict[Any, bool]):
    """Which characters belong to a class. `re` is asked once for each that may not have a symbol of its own."""

    def __init__(self, chars: Chars, *, text: bool) -> None:
        super().__init__()
        self._chars, self._text = chars, text
        self._test: Callable[[Any], bool] | None = None

    def __missing__(self, symbol: Any) -> bool:
        code = ord(symbol) if self._text else symbol
        found = bool(self._chars.members >> code & 1) if code < 128 else self._asked(symbol)
        if len(self) < 4096:
            self[symbol] = found
        return found

    def _asked(self, symbol: Any) -> bool:
        if self._test is None:
            self._test = member_test(self._chars.source, self._chars.flags, text=self._text)
        return self._test(symbol)


class _Compiler:
    def __init__(self, program: _Program, *, text: bool) -> None:
        self._program, self._code, self._text = program, program.code, text

    def add(self, node: Node) -> None:  # noqa: C901, PLR0912 - one branch a kind of node
        if len(self._code) > LARGEST:
            raise TooLarge("it is too large: write fewer or smaller repeats")
        code = self._code
        if isinstance(node, Chars):
            code.append(("chars", _Members(node, text=self._text)))
        elif isinstance(node, Sequential):
            for part in node.parts:
                self.add(part)
        elif isinstance(node, Choice):
            self.choice(node.branches)
        elif isinstance(node, Repeat):
            if node.kind == "possessive":
                self.part("atomic", Repeat(node.body, node.low, node.high, "greedy"))
            else:
                self.repeat(node)
        elif isinstance(node, Group):
            code.append(("save", 2 * node.number))
            self.add(node.body)
            code.append(("save", 2 * node.number + 1))
        elif isinstance(node, Look):
            self.part("look", node.body, node.negative, node.width)
        elif isinstance(node, Atomic):
            self.part("atomic", node.body)
        elif isinstance(node, Reference):
            self._program.plain = False
            code.append(("again", node.number, node.ignore_case))
        elif isinstance(node, Conditional):
            self._program.plain = False
            self.conditional(node)
        else:
            code.append(("at", node.place))

    def part(self, name: str, body: Node, *more: object) -> None:
        """A body that is run by itself up to its own end."""
        place = len(self._code)
        self._code.append(())
        self.add(body)
        self._code.append(("match",))
        self._code[place] = (name, len(self._code), *more)

    def choice(self, branches: tuple[Node, ...]) -> None:
        ends = []
        for branch in branches[:-1]:
            fork = self.reserve()
            self.add(branch)
            ends.append(self.reserve())
            self._code[fork] = ("fork", fork + 1, len(self._code))
        self.add(branches[-1])
        for end in ends:
            self._code[end] = ("go", len(self._code))

    def conditional(self, node: Conditional) -> None:
        test = self.reserve()
        self.add(node.yes)
        end = self.reserve()
        self._code[test] = ("if", node.number, len(self._code))
        self.add(node.no)
        self._code[end] = ("go", len(self._code))

    def repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self.add(node.body)
        empty = nullable(node.body)
        if empty and node.high != 1:
            self._program.plain = False
        if node.high is None:
            top = self.reserve()
            self.body(node.body, empty=empty, then=top)
            self._code[top] = self.fork(top, node)
            return
        forks, ends = [], []
        for _ in range(node.high - node.low):
            forks.append(self.reserve())
            ends.append(self.body(node.body, empty=empty and node.high != 1, then=None))
        for fork in forks:
            self._code[fork] = self.fork(fork, node)
        for end in filter(None, ends):
            self._code[end] = (*self._code[end], len(self._code))

    def body(self, body: Node, *, empty: bool, then: int | None) -> int | None:
        """One round; a round that matched nothing is the last one, as in `re`. Returns the test of that without its target."""
        mark = self._program.slots
        if empty:
            self._program.slots += 1
            self._code.append(("save", mark))
        self.add(body)
        if then is None:
            if empty:
                self._code.append(("moved", mark))
                return len(self._code) - 1
        elif empty:
            self._code.append(("moved", mark, len(self._code) + 2))
            self._code.append(("go", then))
        else:
            self._code.append(("go", then))
        return None

    def fork(self, place: int, node: Repeat) -> tuple[Any, ...]:
        into, past = place + 1, len(self._code)
        return ("fork", into, past) if node.kind == "greedy" else ("fork", past, into)

    def reserve(self) -> int:
        self._code.append(())
        return len(self._code) - 1


class _Run:
    """One search in one text."""

    def __init__(self, program: _Program, text: str | bytes, budget: Budget, *, whole: bool) -> None:
        self._program, self._text, self._budget, self._whole = program, text, budget, whole
        self._failed: set[tuple[int, int]] = set()

    def from_(self, pc: int, at: int) -> tuple[int, tuple[int, ...]] | None:
        return self.run(pc, at, (-1,) * self._program.slots, self._failed, whole=self._whole)

    def run(  # noqa: C901, PLR0912, PLR0915 - the loop of a machine
        self, pc: int, at: int, slots: tuple[int, ...], failed: set[tuple[int, int]], *, whole: bool
    ) -> tuple[int, tuple[int, ...]] | None:
        code, text, size, plain = self._program.code, self._text, len(self._text), self._program.plain
        pending: list[tuple[int, int, tuple[int, ...]]] = [(pc, at, slots)]
        left = self._budget.left
        while pending:
            pc, at, slots = pending.pop()
            while True:
                left -= 1
                if left < 0:
                    self._budget.left = 0
                    raise BudgetSpent
                instruction = code[pc]
                name = instruction[0]
                if name == "chars":
                    if at >= size or not instruction[1][text[at]]:
                        break
                    at += 1
                    pc += 1
                elif name == "fork":
                    if plain:
                        if (pc, at) in failed:
                            break
                        failed.add((pc, at))
                    pending.append((instruction[2], at, slots))
                    pc = instruction[1]
                elif name == "go":
                    pc = instruction[1]
                elif name == "save":
                    slot = instruction[1]
                    slots = (*slots[:slot], at, *slots[slot + 1 :])
                    pc += 1
                elif name == "at":
                    if not _is_at(instruction[1], text, at):
                        break
                    pc += 1
                elif name == "match":
                    if whole and at != size:
                        break
                    self._budget.left = left
                    return at, slots
                elif name == "moved":
                    pc = instruction[2] if slots[instruction[1]] == at else pc + 1
                elif name == "again":
                    end = _again(text, slots, instruction[1], at, ignore_case=instruction[2])
                    if end is None:
                        break
                    left -= (end - at) >> 4
                    at = end
                    pc += 1
                elif name == "if":
                    number = instruction[1]
                    pc = pc + 1 if slots[2 * number + 1] >= 0 else instruction[2]
                else:  # a part that is run by itself
                    self._budget.left = left
                    start = at - (instruction[3] or 0) if name == "look" else at
                    found = self.run(pc + 1, start, slots, set(), whole=False) if start >= 0 else None
                    left = self._budget.left
                    if name == "look":
                        if (found is None) != instruction[2]:
                            break
                        slots = found[1] if found is not None else slots
                    elif found is None:
                        break
                    else:
                        at, slots = found
                    pc = instruction[1]
        self._budget.left = left
        return None


def _is_at(place: str, text: Any, at: int) -> bool:
    if "boundary" in place:
        return _is_boundary(place, text, at)
    before = at > 0 and text[at - 1] in _NEWLINE
    behind = at < len(text) and text[at] in _NEWLINE
    if "start" in place:
        return at == 0 or (before and place == "line start")
    last = behind and (place == "line end" or (place == "end or last newline" and at == len(text) - 1))
    return at == len(text) or last


def _is_boundary(place: str, text: Any, at: int) -> bool:
    if not text:
        return False  # `re` sees neither a boundary nor none in the empty string
    word = _ascii_word if place.startswith("ascii") else _word
    before, behind = at > 0 and word(text[at - 1]), at < len(text) and word(text[at])
    return (before != behind) != ("no boundary" in place)


def _ascii_word(symbol: Any) -> bool:
    return (chr(symbol) if isinstance(symbol, int) else symbol) in _ASCII_WORD


def _word(symbol: Any) -> bool:
    return bool(symbol.isalnum()) or symbol == "_"


def _again(text: Any, slots: tuple[int, ...], number: int, at: int, *, ignore_case: bool) -> int | None:
    start, end = slots[2 * number], slots[2 * number + 1]
    if start < 0 or end < start:
        return None
    before, now = text[start:end], text[at : at + end - start]
    same = before == now or (ignore_case and before.lower() == now.lower())
    return at + end - start if same and len(now) == end - start else None
