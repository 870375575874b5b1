"""Finds the rest of lines that a terminal, a container runtime or a log shipper cut.

Each leaves its own mark: the container runtime of Kubernetes marks all parts but the last with a P; shippers cut at round sizes; a
terminal cuts at its width, which the first lines of the stream reveal.
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
    """The width of the terminal that cut a stream's lines, judged by the first of them; None if none did.

    No line is wider, many are as wide, and the lines after those, but hardly any others, lack the prefix that lines have.
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
    """Which stream a line is a part of (`stdout`, `stderr`; empty if the runtime names none), and whether it is marked as continued."""
    match = _PART.match(line)
    return (match[1], match[2] == b"P") if match is not None else (b"", False)
