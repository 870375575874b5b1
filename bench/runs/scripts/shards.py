"""Writes a corpus of tokens in shards."""

from pathlib import Path

import numpy as np


def write(folder, shards=4, rows=64, width=17, vocabulary=64, seed=0):
    """Write a corpus of numbers that a tiny model can learn."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(seed)
    for number in range(shards):
        start = chance.integers(0, vocabulary, (rows, 1))
        tokens = (start + np.arange(width)[None, :] * 3) % vocabulary
        np.save(Path(folder, f"shard-{number:04d}.npy"), tokens.astype(np.int64))
