"""Computes keys for all lines of a block at once: numbers that distinguish lines of different shapes.

Digits are first folded to zeros. Two lines that fold to the same bytes have the same key if they start at the same position modulo
eight bytes; so a line has up to eight keys, and code that stores keys examines the line itself when it meets a key for the first time.
Two different lines share a key once in 2**64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]
    Keys = NDArray[np.uint64]

PIECE = 1 << 18  # bytes handled together: what fits into a core's own cache with everything derived from it
_SLACK = 32  # zeros after a piece, so that a word may be read at its end

_U = np.uint64
_ODD, _MIX, _POWER = _U(0x9E3779B97F4A7C15), _U(0xBF58476D1CE4E5B9), 0xD6E8FEB86659FD93
_INVERSE = pow(_POWER, -1, 2**64)
_MASKS = np.array([(1 << 8 * held) - 1 for held in range(9)], _U)  # of the first bytes of a word


class LineKeys:
    """Folds lines and computes their keys. Its memory is reused."""

    def __init__(self) -> None:
        self._grow(PIECE)

    def _grow(self, size: int) -> None:
        words = (size + 2 * _SLACK) >> 3
        self._words = np.zeros(words, _U)
        self._room = self._words.view(np.uint8)
        self._low, self._small = np.empty(8 * words, np.uint8), np.empty(8 * words, np.bool_)
        self._products, self._high = np.empty(words, _U), np.empty(words, _U)
        self._powers = _powers(_POWER, words)
        self._inverses = _powers(_INVERSE, words)

    def keys(self, data: Bytes, starts: Ints, ends: Ints) -> Keys:
        """The key of each line [start, end), in order; never zero."""
        found = np.empty(len(starts), _U)
        at = 0
        while at < len(starts):
            begin = int(starts[at])
            stop = max(at + 1, int(np.searchsorted(ends, begin + PIECE)))
            piece = data[begin : int(ends[stop - 1])]
            found[at:stop] = self._of_piece(piece, starts[at:stop] - begin, ends[at:stop] - begin)
            at = stop
        return found

    def _of_piece(self, data: Bytes, starts: Ints, ends: Ints) -> Keys:
        if len(data) + _SLACK > len(self._room):
            self._grow(len(data))
        self._fold(data)
        self._mix((len(data) >> 3) + 2)
        first, last = (starts + 7) >> 3, ends >> 3  # the words that belong to one line alone
        edges = np.empty(2 * len(first), np.int64)
        edges[::2] = first
        np.maximum(first, last, out=edges[1::2])
        found: Keys = np.add.reduceat(self._products[: (len(data) >> 3) + 2], edges)[::2] * self._inverses[first]
        found[first >= last] = 0
        skipped, length = starts & 7, ends - starts
        ahead = np.minimum(length, -starts & 7)
        head = (self._words[starts >> 3] >> (skipped << 3).view(_U)) & _MASKS[ahead]
        tail = self._words[last] & _MASKS[(length - ahead) & 7]
        for word in (head, tail, (length << 3 | skipped).view(_U)):
            found ^= word
            found *= _MIX
            found ^= found >> _U(32)
        found *= _ODD
        found ^= found >> _U(29)
        np.maximum(found, _U(1), out=found)
        return found

    def _fold(self, data: Bytes) -> None:
        """Turn digits into zeros."""
        size = len(data)
        digit, is_digit = self._low[:size], self._small[:size]
        np.subtract(data, ord("0"), out=digit)
        np.less(digit, 10, out=is_digit)
        np.multiply(digit, is_digit.view(np.uint8), out=digit)
        np.subtract(data, digit, out=self._room[:size])
        self._room[size : size + _SLACK] = 0

    def _mix(self, count: int) -> None:
        """Each word mixed, times the power of its position."""
        products, high = self._products[:count], self._high[:count]
        np.multiply(self._words[:count], _ODD, out=products)
        np.right_shift(products, _U(32), out=high)
        np.bitwise_xor(products, high, out=products)
        np.multiply(products, self._powers[:count], out=products)


def _powers(base: int, count: int) -> Keys:
    powers = np.full(count, base, _U)
    powers[0] = 1
    return np.multiply.accumulate(powers)


class KeyTable:
    """Numbers by key. Grows as needed; its user decides when to empty it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._bits = 12
        self._keys = np.zeros(1 << self._bits, _U)
        self._numbers = np.zeros(1 << self._bits, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, keys: Keys) -> NDArray[np.int32]:
        """The number of each key, -1 for unknown keys."""
        slots = self._slots(keys)
        held = self._keys[slots]
        found = np.where(held == keys, self._numbers[slots], np.int32(-1))
        left = np.flatnonzero((held != keys) & (held != 0))
        while len(left):
            slots[left] = (slots[left] + 1) & (len(self._keys) - 1)
            held = self._keys[slots[left]]
            same = held == keys[left]
            found[left[same]] = self._numbers[slots[left[same]]]
            left = left[~same & (held != 0)]
        return found

    def add(self, keys: Keys, numbers: NDArray[np.int32]) -> None:
        """Add unknown keys with their numbers; of a repeated key one is kept."""
        keys, where = np.unique(keys, return_index=True)
        if (self._count + len(keys)) * 3 > len(self._keys):
            self._widen(self._count + len(keys))
        self._put(keys, numbers[where])
        self._count += len(keys)

    def _widen(self, count: int) -> None:
        held = np.flatnonzero(self._keys)
        keys, numbers = self._keys[held], self._numbers[held]
        while count * 3 > 1 << self._bits:
            self._bits += 2
        self._keys, self._numbers = np.zeros(1 << self._bits, _U), np.zeros(1 << self._bits, np.int32)
        self._put(keys, numbers)

    def _put(self, keys: Keys, numbers: NDArray[np.int32]) -> None:
        slots = self._slots(keys)
        left = np.arange(len(keys))
        while len(left):
            free = left[self._keys[slots[left]] == 0]
            self._keys[slots[free]] = keys[free]  # of several for one slot the last stays
            stood = self._keys[slots[left]] == keys[left]
            self._numbers[slots[left[stood]]] = numbers[left[stood]]
            left = left[~stood]
            slots[left] = (slots[left] + 1) & (len(self._keys) - 1)

    def _slots(self, keys: Keys) -> Ints:
        return (keys >> _U(64 - self._bits)).astype(np.int64)
