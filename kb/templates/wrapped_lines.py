"""Lines that a terminal, a runtime or a shipper of logs cut: where their rest stands.

Cut lines are known by what cut them: the runtime of Kubernetes' containers marks all parts but the last with a P; shippers cut at
round sizes; a terminal at its width, of which every line is told by the stream's first lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kb.parsers.logs.prefixes import peel

ROUND = frozenset({4096, 8192, 16384, 32768})  # bytes at which shippers cut
HEAD = 64 * 1024  # bytes of a stream by which its width is judged
NARROWEST, WIDEST = 60, 400  # of a terminal
FEWEST = 100  # lines to judge by
SHARE, FEW = 0.03, 8  # of them must be as wide as the terminal
SURE = 0.9

_PART = re.compile(rb"[^\n]{0,80}? (std(?:out|err)) ([FP]) ")


def width_of(head: bytes) -> int | None:
    """The width of the terminal that cut a stream's lines, judged by the first of them; None where none did.

    No line is wider, many are as wide, and those behind them, but hardly any others, come without the prefix that lines have.
    """
    lines = head[:HEAD].replace(b"\r\n", b"\n").split(b"\n")[:-1]
    if len(lines) < FEWEST or b"\r" in head[:HEAD]:
        return None
    width = max(map(len, lines))
    full = [len(line) == width for line in lines[:-1]]
    if not NARROWEST <= width <= WIDEST or sum(full) < max(FEW, SHARE * len(full)):
        return None
    begins = [peel(line).end > 0 for line in lines[1:]]
    behind = [begin for begin, is_full in zip(begins, full, strict=True) if is_full]
    others = [begin for begin, is_full in zip(begins, full, strict=True) if not is_full]
    return width if _share(behind) <= 1 - SURE and _share(others) >= SURE else None


def _share(told: Iterable[bool]) -> float:
    known = list(told)
    return sum(known) / len(known) if known else 0.0


def part_of(line: bytes) -> tuple[bytes, bool]:
    """Whose part of a line this is (`stdout`, `stderr`; empty where the runtime names none), and whether it says that it goes on."""
    match = _PART.match(line)
    return (match[1], match[2] == b"P") if match is not None else (b"", False)
