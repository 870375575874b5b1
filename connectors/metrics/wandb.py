"""Weights & Biases: loss, gradient norm, learning rate and throughput of a job's runs, through its Python library.

That library is the only documented way to read histories, so it is an optional extra (`pip install signalbox[wandb]`). Each
metric is scanned separately, because the library only returns steps that have all requested metrics, and only over the last
steps within the limit. The library sends the requests itself, so the limits of our HTTP client do not apply. It runs with
its own timeout, and the deadline is checked after each row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    SourceFailed,
    Spool,
    safe_name,
)
from connectors.base.secret import Secret
from connectors.metrics.training_log import MOST_POINTS, MOST_RUNS, MetricPoint, choose_metrics, log_lines, tag_value
from kb.model import Gap, JobRecord

SOURCE = "wandb"
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """Weights & Biases: the metrics of a job's runs. Needs the extra `wandb`."""

    project: str
    """entity/project."""
    api_key: Secret | None = None
    """The API key."""
    url: str = "https://api.wandb.ai"
    """The address of your own server."""
    fields: Mapping[str, str] = field(
        default_factory=lambda: {"displayName": "name", "config.job_id": "id", "config.slurm_job_id": "id"}
    )
    """Run field -> what it contains of the job: id, name, namespace or owner. A run that matches any of them belongs to the
    job.
    """
    metrics: Mapping[str, str] = field(default_factory=dict)
    """loss, grad_norm, learning_rate or throughput_tokens_per_sec -> the metric's name, if it is
    unusual.
    """


ApiOpener = Callable[[WandbSettings, float], Any]


def open_api(settings: WandbSettings, seconds: float) -> Any:
    """Return the library's API object for the server.

    Raises:
        SourceFailed: The library is not installed, or the key is missing.
    """
    key = settings.api_key.value() if settings.api_key else None
    try:
        library = import_module("wandb")
    except ImportError:
        raise SourceFailed(
            "not_configured",
            "the Python library of Weights & Biases is not installed",
            hint="pip install 'signalbox[wandb]'",
        ) from None
    return library.Api(overrides={"base_url": settings.url}, timeout=max(1, int(seconds)), api_key=key)


class Wandb:
    """A project, as a source of metrics. `door`: opens the library."""

    def __init__(self, settings: WandbSettings, door: ApiOpener = open_api) -> None:
        self.settings = settings
        self._door = door

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Metrics."""
        return frozenset({"metrics"})

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write logs/wandb/<run>.log for each run of the job.

        Raises:
            SourceFailed: The server cannot be queried, or has no run of the job.
        """
        api = self._door(self.settings, request.deadline.left())
        runs = list(self._runs(api, request.record, request.deadline))
        if not runs:
            raise SourceFailed(
                "missing", "it has no run of this job", hint=f"runs are found by {', '.join(self.settings.fields)}"
            )
        if len(runs) > MOST_RUNS:
            yield Gap("runs_cut", SOURCE, f"only the newest {MOST_RUNS} runs were read", request.record.job.name or "")
        for run in runs[:MOST_RUNS]:
            yield from self._write(run, request, spool)

    def _write(self, run: Any, request: CollectionRequest, spool: Spool) -> Iterator[Gap]:
        name, run_id = str(run.name)[:250], str(run.id)[:100]
        metrics = choose_metrics([str(key) for key in dict(run.summary)], self.settings.metrics)
        if not metrics:
            yield Gap("metrics_unknown", SOURCE, "none of its metrics is a loss or similar; check `metrics`", name)
            return
        series: dict[str, deque[MetricPoint]] = {}
        for measure, key in metrics.items():
            found: deque[MetricPoint] = deque(maxlen=MOST_POINTS)
            series[measure] = found
            try:
                found.extend(self._points(run, key, request))
            except SourceFailed as failed:
                yield failed.gap(SOURCE, scope=f"{name}: {key}", got=f"{len(found)} points")
        first = _first_step(run)
        if first:
            yield Gap("points_cut", SOURCE, f"only the last {MOST_POINTS:,} steps were read, from step {first:,}", name)
        if told := log_lines(series):
            path = f"logs/{SOURCE}/{safe_name(name)}-{safe_name(run_id)}.log"
            spool.append(path, told)
            spool.describe(path, query=f"metrics {', '.join(metrics.values())} of run {run_id}")

    def _runs(self, api: Any, record: JobRecord, deadline: Deadline) -> Iterator[Any]:
        """The runs, newest first, each once, at most one more than are read.

        Filters are values rather than text; `$eq` keeps names from being interpreted as operators.
        """
        seen: set[str] = set()
        for where, what in self.settings.fields.items():
            value = tag_value(record, what)
            if value is None:
                continue
            for run in _guarded_scan(
                partial(api.runs, self.settings.project, {where: {"$eq": value}}, "-created_at"), deadline
            ):
                if len(seen) > MOST_RUNS:
                    return
                if str(run.id) not in seen:
                    seen.add(str(run.id))
                    yield run

    def _points(self, run: Any, key: str, request: CollectionRequest) -> Iterator[MetricPoint]:
        start, end = request.window.start or 0.0, request.window.end or float("inf")
        keys = ["_step", "_timestamp", key]
        for row in _guarded_scan(lambda: run.scan_history(keys=keys, min_step=_first_step(run)), request.deadline):
            step, time, value = row.get("_step"), row.get("_timestamp"), row.get(key)
            value = _SPECIAL.get(value) if isinstance(value, str) else value
            if not isinstance(time, int | float) or not isinstance(value, int | float) or not isinstance(step, int):
                continue
            if start <= time < end:
                yield MetricPoint(float(time), step, float(value))

    def check(self, deadline: Deadline) -> CheckResult:
        """Query one run of the project."""
        sent = f"runs of {self.settings.project} at {self.settings.url}"
        try:
            some = next(
                iter(
                    _guarded_scan(
                        lambda: self._door(self.settings, deadline.left()).runs(self.settings.project), deadline
                    )
                ),
                None,
            )
        except SourceFailed as failed:
            return CheckResult(False, str(failed), sent, failed.hint)
        return CheckResult(True, "its runs are readable" if some is not None else "readable, but it has no runs", sent)


def _first_step(run: Any) -> int:
    last = run.lastHistoryStep
    return max(0, last - MOST_POINTS + 1) if isinstance(last, int) else 0


def _guarded_scan(ask: Callable[[], Iterable[Any]], deadline: Deadline) -> Iterator[Any]:
    """The library's results one by one; anything that it raises becomes a failure of this source."""
    try:
        for pair in ask():
            deadline.check("a scan by the wandb library")
            yield pair
    except SourceFailed:
        raise
    except Exception as error:  # noqa: BLE001 - the library's errors have no common root that it documents
        raise SourceFailed(
            "server_error", f"the wandb library failed: {type(error).__name__}: {str(error)[:200]}"
        ) from None
