"""JSON lines of training: step, measures, time, rank and memory, for any order of keys."""

from __future__ import annotations

import json
import math

import pytest

from kb.model import ProgressPoint
from kb.parsers.logs.progress.formats import read_line
from kb.parsers.logs.structured import memory_of, stamp_of

LINE = {
    "timestamp": "2026-11-20T03:04:05.5Z",
    "rank": 3,
    "step": 40,
    "loss": 2.5,
    "learning_rate": 1e-4,
    "gpu_memory_usage": 70_000_000_000,
    "gradient_norm": 1.25,
    "throughput_tokens_per_sec": 12345.5,
}
POINT = ProgressPoint(
    0,
    40,
    time=1795143845.5,
    loss=2.5,
    grad_norm=1.25,
    learning_rate=1e-4,
    throughput=12345.5,
    memory=7e10,
    rank=3,
    format="json",
)


@pytest.mark.parametrize("order", [list(LINE), list(reversed(LINE)), sorted(LINE)])
@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_every_key_is_read(order, separators):
    """Whatever the order of the keys and the spaces between them."""
    line = json.dumps({key: LINE[key] for key in order}, separators=separators).encode()
    point = read_line(line)
    assert line[point.offset :].startswith(b'"step"')
    assert ProgressPoint(**{**{name: getattr(point, name) for name in point.__slots__}, "offset": 0}) == POINT


def test_values_that_are_not_finite():
    """A loss of NaN and an infinite norm are kept as such."""
    point = read_line(json.dumps({"step": 1, "loss": math.nan, "gradient_norm": math.inf}).encode())
    assert point.loss is not None
    assert math.isnan(point.loss)
    assert point.grad_norm == math.inf


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ('"2026-11-20T03:04:05+01:00"', 1795140245.0),
        ('"2026-11-20 03:04:05,250"', 1795143845.25),
        ("1795143845", 1795143845.0),
        ("1795143845.25", 1795143845.25),
        ("1795143845250", 1795143845.25),
        ("1795143845250000000", 1795143845.25),
        ('"yesterday at noon"', None),
        ('"2026-13-45T03:04:05Z"', None),
        ("17", None),
        ("-1795143845", None),
        ('"' + "9" * 5000, None),
    ],
)
@pytest.mark.parametrize("key", ["timestamp", "@timestamp", "ts", "time"])
def test_times(key, value, time):
    """ISO 8601 text and numbers since the epoch in their usual units; nothing else."""
    assert stamp_of(f'{{"step": 1, "{key}": {value}}}'.encode()) == time


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('"gpu_memory_usage": 70.5', 70.5 * 2**30),
        ('"gpu_memory_usage": 71000', 71000 * 2.0**20),
        ('"gpu_memory_used": 75000000000', 75e9),
        ('"gpu_memory_usage_gb": 70', 70 * 2.0**30),
        ('"gpu_memory_allocated_mib": 8', 8 * 2.0**20),
        ('"gpu_memory_usage_bytes": 8', 8.0),
        ('"gpu_memory_usage": 0.87', None),
        ('"gpu_memory_usage": "much"', None),
    ],
)
def test_memory(text, size):
    """A number with its unit in the key, or inferred from its size; a percentage is not an amount."""
    assert memory_of(f'{{"step": 1, {text}, "x": 1}}'.encode()) == size
