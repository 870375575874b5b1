"""Converts metrics of experiment trackers into a structured training log, which the log readers understand.

Each step is one line: `{"step": 120, "loss": 2.31, "learning_rate": 0.0003, …}` with the tracker's time in front.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.base.contract import SourceFailed
from kb.model import JobRecord

MOST_POINTS = 20_000  # of a metric; the newest
MOST_RUNS = 8
MEASURES: Mapping[str, tuple[str, ...]] = {  # name in the lines → names that trainers use
    "loss": (
        "loss",
        "train/loss",
        "train_loss",
        "train/total_loss",
        "training/loss",
        "lm loss",
        "lm-loss-training/lm loss",
    ),
    "grad_norm": (
        "grad_norm",
        "train/grad_norm",
        "gradient_norm",
        "train/gradient_norm",
        "grad-norm/grad-norm",
        "grad norm",
    ),
    "learning_rate": (
        "learning_rate",
        "train/learning_rate",
        "lr",
        "train/lr",
        "learning-rate/learning-rate",
        "lr-AdamW",
    ),
    "throughput_tokens_per_sec": (
        "throughput_tokens_per_sec",
        "tokens_per_sec",
        "tokens_per_second",
        "train/tokens_per_second",
        "throughput/tokens_per_sec",
        "tokens/sec",
    ),
}
_SAFE = re.compile(r"[^'\"`\\%\x00-\x1f\x7f-\x9f\u2028-\u202e]{1,250}")


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of a metric: seconds since the epoch, the step, the value (may be nan or inf)."""

    time: float
    step: int
    value: float


def choose_metrics(known: Iterable[str], own: Mapping[str, str]) -> Mapping[str, str]:
    """Return which of a run's metrics are the relevant measures: measure → metric. `own`: names configured by the site."""
    names = list(known)
    by_lower = {name.lower(): name for name in reversed(names)}
    found = {}
    for measure, usual in MEASURES.items():
        wanted = (own[measure],) if measure in own else usual
        name = next((by_lower[item.lower()] for item in wanted if item.lower() in by_lower), None)
        if name is not None:
            found[measure] = name
    return found


def tag_value(record: JobRecord, what: str) -> str | None:
    """Return what a tag is compared with: `id`, `name`, `namespace` or `owner` of the job; None if unknown.

    Raises:
        SourceFailed: It contains characters that no filter can quote.
    """
    job = record.job
    value = {"id": job.id, "name": job.name, "namespace": record.namespace, "owner": job.owner}.get(what)
    if value and not _SAFE.fullmatch(value):
        raise SourceFailed(
            "refused", f"a tracker cannot be queried for the name {value[:80]!r}: it cannot escape quotes"
        )
    return value or None


def log_lines(series: Mapping[str, Sequence[MetricPoint]]) -> bytes:
    """Return log lines ordered by time, one per step. A step repeated after a restart gets another line."""
    rows: list[tuple[float, int, dict[str, float]]] = []
    current: dict[int, dict[str, float]] = {}
    points = sorted(
        (point.time, point.step, measure, point.value) for measure, found in series.items() for point in found
    )
    for time, step, measure, value in points:
        row = current.get(step)
        if row is None or measure in row:
            row = current[step] = {}
            rows.append((time, step, row))
        row[measure] = value
    rows.sort(key=lambda item: item[:2])
    return "".join(f"{_stamp(time)} {json.dumps({'step': step, **row})}\n" for time, step, row in rows).encode()


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
