"""What healthy runs of common frameworks print, for jobs of which no good run is known. Made by bench/healthy_pool.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import zstandard

from bot.store.baselines import MOST_BYTES, unpacked
from kb.anomalies.runs.baseline_diff import Baseline

FILE = Path(__file__).parent / "pool" / "healthy.json.zst"
LABEL = "healthy runs of common frameworks"


@cache
def healthy() -> Baseline:
    """The pool: events by their words."""
    data = zstandard.ZstdDecompressor().decompress(FILE.read_bytes(), max_output_size=MOST_BYTES)
    return unpacked(data, LABEL)
