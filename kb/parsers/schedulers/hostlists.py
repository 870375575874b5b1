"""Expands Slurm's hostlists, such as `gpu[001-003,007],login1`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_NODES: Final = 20_000  # of one list

_RANGE = re.compile(r"^(\d{1,9})(?:-(\d{1,9}))?$")


def hostlist(text: str) -> tuple[str, ...]:
    """Expand Slurm's short form of node names: `gpu[001-003,007],login1`. At most 20,000 names."""
    if text in {"", "None assigned", "(null)", "None"}:
        return ()
    found: dict[str, None] = {}
    made = 0  # names generated, including duplicates
    for part in _parts(text):
        names = _expanded(part)
        made += len(names)
        if made > MAX_NODES:
            break
        found |= dict.fromkeys(name for name in names if name and "[" not in name and "]" not in name)
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if depth == 0:
        yield text[start:].strip()


def _expanded(part: str) -> list[str]:
    names = [""]
    # text and brackets alternate
    for index, piece in enumerate(re.split(r"\[([^\[\]]{1,65536})\]", part)):
        ends = [piece] if index % 2 == 0 else _numbers(piece)
        if len(names) * len(ends) > MAX_NODES:
            return [""] * (MAX_NODES + 1)  # too many: the caller stops
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            continue
        low, high = match[1], match[2] or match[1]
        last = min(int(high), int(low) + MAX_NODES)
        found.extend(str(number).zfill(len(low)) for number in range(int(low), last + 1))
        if len(found) > MAX_NODES:
            break
    return found
