"""Log lines of many templates."""

from __future__ import annotations

import random

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def noise(lines: int, seed: int = 1) -> bytes:
    """Lines of random words, each its own."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 9))) for _ in range(5000)]
    return "".join(" ".join(chance.choices(words, k=chance.randint(5, 9))) + "\n" for _ in range(lines)).encode()
