"""Loads pickles that only build plain containers, numbers and text.

A pickle is walked opcode by opcode before it is loaded; the loader then refuses every class and persistent id.
"""

from __future__ import annotations

import pickle
from typing import Any

from kb.parsers.artefacts.flight.dump import LIMITS

# --- pickles ---------------------------------------------------------------------------------------------------------

_WIDTH = [0] * 256  # of an opcode that builds plain values, with its argument, where that has a fixed size; else 0


for _codes, _width in (
    (b"()]}aesut\x85\x86\x87\x88\x89\x94N01", 1),
    (b"Khq\x80", 2),
    (b"M", 3),
    (b"Jj", 5),
    (b"G\x95", 9),
):
    for _code in _codes:
        _WIDTH[_code] = _width
_LENGTH = {0x58: 4, 0x8C: 1, 0x8D: 8, 0x55: 1, 0x54: 4, 0x43: 1, 0x42: 4, 0x8A: 1}  # text, bytes and long integers
_PUT = 0x72  # its argument is a memo index of 32 bits, and the loader makes room for the highest one at once
_STOP = 0x2E
_LONG, _LONGEST_NUMBER = 0x8A, 16
_CONTAINERS = (b"]", b"}", b")", b"\x85", b"\x86", b"\x87", b"t")


def refusal(data: bytes, containers: int = LIMITS.containers) -> str:
    """Return why a pickle is refused, or "": an opcode that builds more than plain values, excess data, or no end.

    Linear in the size; nothing is built. A pickle that passes cannot name a class, call, or set state.
    """
    if sum(map(data.count, _CONTAINERS)) > containers:
        return f"it could build more than {containers} containers"
    try:
        return _walk(data)
    except IndexError:
        return "it is truncated: the pickle has no end"


def _walk(data: bytes) -> str:
    at = 0
    widths, lengths = _WIDTH, _LENGTH
    while True:
        code = data[at]
        width = widths[code]
        if width:
            at += width
        elif code == _PUT:
            if data[at + 4] or data[at + 3] > 0x3F:
                return f"a memo index at byte {at} is too large"
            at += 5
        elif code == _STOP:
            return ""
        elif code not in lengths:
            return f"opcode {code:#04x} at byte {at} is not needed for plain values"
        else:
            width = lengths[code]
            size = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if code == _LONG and size > _LONGEST_NUMBER:
                return f"a number of {size} bytes at byte {at}"
            at += 1 + width + size


class _ByteSource:
    """The minimal file interface that the loader needs; `peek` lets it read the bytes at once."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    def peek(self, size: int, /) -> bytes:
        return bytes(self.data[self.at : self.at + max(size, 1 << 20)])

    def read(self, size: int, /) -> bytes:
        start, self.at = self.at, min(self.at + size, len(self.data))
        return bytes(self.data[start : self.at])

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("the pickle reads a line, which no opcode of plain values does")


class _PlainUnpickler(pickle.Unpickler):
    """A second safeguard: whatever the walk let through, no class and no persistent id is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle needs a class: {module[:80]}.{name[:80]}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - the name is the base class's
        raise pickle.UnpicklingError("the pickle needs a persistent id")


def load_plain(data: bytes) -> Any:
    """Load a pickle that `refusal` let through. Raises the errors of `pickle`, and UnpicklingError for a class."""
    return _PlainUnpickler(_ByteSource(data)).load()
