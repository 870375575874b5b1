"""Keys of lines: equal for lines that fold alike and different for all others, however long a line is and wherever it starts."""

from __future__ import annotations

import random

import numpy as np

from kb.templates.line_keys import KeyTable, LineKeys
from kb.templates.masking import fold


def keyed(lines: list[bytes], skipped: int = 0) -> list[int]:
    """The key of each line, in a block that starts with so many other bytes."""
    text = b"#" * skipped + b"\n".join(lines) + b"\n"
    ends = np.cumsum([len(line) + 1 for line in lines]) + skipped - 1
    starts = np.concatenate(([skipped], ends[:-1] + 1))
    return LineKeys().keys(np.frombuffer(text, np.uint8), starts, ends).tolist()


def test_lines_have_one_key_if_and_only_if_they_fold_alike():
    """For each place within eight bytes; lines are empty, short, long, and differ by little."""
    chance = random.Random(1)
    lines = [bytes(chance.choices(b"ab19 ", k=chance.choice([0, 1, 3, 7, 8, 9, 16, 40, 300]))) for _ in range(4000)]
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)]) % 8
    told: dict[tuple[bytes, int], set[int]] = {}
    for line, place, key in zip(lines, starts.tolist(), keyed(lines), strict=False):
        told.setdefault((fold(line), place), set()).add(key)
    assert {len(keys) for keys in told.values()} == {1}
    by_key = [key for keys in told.values() for key in keys]
    assert len(set(by_key)) == len(by_key) > 1000


def test_eight_bytes_more_in_front_change_no_key():
    """Neither the text before a line nor the block that it arrives in is part of its key."""
    lines = [b"one 12", b"", b"a line of some more bytes", b"x" * 300_000, b"the last"]
    assert keyed(lines) == keyed(lines, skipped=8) == keyed(lines, skipped=400_000)


def test_a_table_gives_back_what_it_took():
    """For any content and size; a key that was never added is not found."""
    chance = random.Random(2)
    keys = np.array(sorted({chance.getrandbits(64) | 1 for _ in range(30_000)}), np.uint64)
    table, numbers = KeyTable(), np.arange(len(keys), dtype=np.int32)
    for at in range(0, len(keys), 1000):
        table.add(keys[at : at + 1000], numbers[at : at + 1000])
    assert len(table) == len(keys)
    assert (table.find(keys) == numbers).all()
    assert table.find(keys - np.uint64(1))[:5].tolist() == [-1] * 5
    table.clear()
    assert (table.find(keys[:5]) == -1).all()


def test_keys_that_want_one_slot_all_find_one():
    """Neighbours move on to the next that is free."""
    keys = np.array([number | 0xFFF0_0000_0000_0000 for number in range(1, 200)], np.uint64)
    table = KeyTable()
    table.add(keys, np.arange(199, dtype=np.int32))
    assert table.find(keys).tolist() == list(range(199))
