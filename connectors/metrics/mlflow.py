"""MLflow: loss, gradient norm, learning rate and throughput of a job's runs, through the documented REST API."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
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
from connectors.base.http import Endpoint, HttpClient, HttpRequest
from connectors.metrics.training_log import MOST_POINTS, MOST_RUNS, MetricPoint, choose_metrics, log_lines, tag_value
from kb.model import Gap, JobRecord, Window
from kb.parsers.schedulers.jsondocs import integer, mapping, objects, string

API = "/api/2.0/mlflow"
PAGE = 20_000  # points per response; a server returns at most 25,000
SEARCH_PAGE = 1000
LARGEST = 32 << 20
SOURCE = "mlflow"


@dataclass(frozen=True, slots=True)
class MlflowSettings:
    """An MLflow tracking server: the metrics of a job's runs."""

    endpoint: Endpoint
    """The tracking server."""
    experiments: tuple[str, ...] = ()
    """Names of the experiments to search; empty: the first thousand."""
    tags: Mapping[str, str] = field(
        default_factory=lambda: {"mlflow.runName": "name", "job_id": "id", "slurm_job_id": "id", "job_name": "name"}
    )
    """Run tag -> what it contains of the job: id, name, namespace or owner. A run that matches any of them belongs to the
    job.
    """
    metrics: Mapping[str, str] = field(default_factory=dict)
    """loss, grad_norm, learning_rate or throughput_tokens_per_sec -> the metric's name, if it is
    unusual.
    """


class Mlflow:
    """A tracking server, as a source of metrics."""

    def __init__(self, settings: MlflowSettings, client: HttpClient | None = None) -> None:
        self.settings = settings
        self._client = client or HttpClient(settings.endpoint)

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Metrics."""
        return frozenset({"metrics"})

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write logs/mlflow/<run>.log for each run of the job.

        Raises:
            SourceFailed: The server cannot be queried, or has no run of the job.
        """
        runs = [item for item in self._runs(request.record, request.deadline) if _within(item, request.window)]
        if not runs:
            tags = ", ".join(self.settings.tags)
            raise SourceFailed(
                "missing",
                "it has no run of this job in the window",
                hint=f"runs are found by the tags {tags}; check `tags`",
            )
        runs.sort(key=lambda item: -_started(item))
        if len(runs) > MOST_RUNS:
            yield Gap(
                "runs_cut",
                SOURCE,
                f"only the newest {MOST_RUNS} of {len(runs)} runs were read",
                request.record.job.name or "",
            )
        pages = count(1)
        for run in runs[:MOST_RUNS]:
            yield from self._write(run, request, spool, pages)

    def _write(
        self, run: Mapping[str, Any], request: CollectionRequest, spool: Spool, pages: Iterator[int]
    ) -> Iterator[Gap]:
        run_id, name = string(mapping(run.get("info")).get("run_id"), 100), _name(run)
        known = [string(metric.get("key"), 250) for metric in objects(mapping(run.get("data")).get("metrics"), 100_000)]
        metrics = choose_metrics(known, self.settings.metrics)
        if not metrics:
            names = ", ".join(known[:10]) or "none"
            yield Gap(
                "metrics_unknown", SOURCE, f"none of its metrics is a loss or similar: {names}; check `metrics`", name
            )
            return
        series: dict[str, deque[MetricPoint]] = {}
        for measure, key in metrics.items():
            series[measure] = deque(maxlen=MOST_POINTS)
            try:
                series[measure].extend(self._history(run_id, key, request, pages))
            except SourceFailed as failed:
                yield failed.gap(SOURCE, scope=f"{name}: {key}", got=f"{len(series[measure])} points")
            if len(series[measure]) == MOST_POINTS:
                yield Gap("points_cut", SOURCE, f"only the newest {MOST_POINTS:,} points of {key} are kept", name)
        path = f"logs/{SOURCE}/{safe_name(name)}-{safe_name(run_id)[:8]}.log"
        if told := log_lines(series):
            spool.append(path, told)
            spool.describe(path, query=f"metrics {', '.join(metrics.values())} of run {run_id}")

    # -- what is asked ---------------------------------------------------------------------------------------------

    def _runs(self, record: JobRecord, deadline: Deadline) -> list[Mapping[str, Any]]:
        wanted = [(tag, value) for tag, what in self.settings.tags.items() if (value := tag_value(record, what))]
        found: dict[str, Mapping[str, Any]] = {}
        ids = self._experiments(deadline)
        for tag, value in wanted if ids else ():
            body = {"experiment_ids": ids, "filter": f"tags.`{tag}` = '{value}'", "max_results": SEARCH_PAGE}
            answer = self._post("/runs/search", {**body, "order_by": ["attributes.start_time DESC"]}, deadline)
            for run in objects(answer.get("runs"), SEARCH_PAGE):
                found.setdefault(string(mapping(run.get("info")).get("run_id"), 100), run)
        return [run for run_id, run in found.items() if run_id]

    def _experiments(self, deadline: Deadline) -> list[str]:
        if not self.settings.experiments:
            answer = self._post("/experiments/search", {"max_results": SEARCH_PAGE}, deadline)
            return [
                string(experiment.get("experiment_id"), 40)
                for experiment in objects(answer.get("experiments"), SEARCH_PAGE)
            ]
        found = []
        for name in self.settings.experiments:
            call = HttpRequest(f"{API}/experiments/get-by-name", {"experiment_name": name})
            answer = mapping(self._client.json(call, deadline, largest=LARGEST))
            found.append(string(mapping(answer.get("experiment")).get("experiment_id"), 40))
        return found

    def _history(
        self, run_id: str, key: str, request: CollectionRequest, pages: Iterator[int]
    ) -> Iterator[MetricPoint]:
        """The points of a metric within the window, ordered by time."""
        token: str | None = None
        start, end = request.window.start or 0.0, request.window.end or float("inf")
        while True:
            if next(pages) > request.bounds.pages:
                raise SourceFailed("too_large", f"the limit of {request.bounds.pages} pages was reached", asked=key)
            params: dict[str, str | int | None] = {
                "run_id": run_id,
                "metric_key": key,
                "max_results": PAGE,
                "page_token": token,
            }
            call = HttpRequest(f"{API}/metrics/get-history", params)
            answer = mapping(self._client.json(call, request.deadline, largest=LARGEST))
            for metric in objects(answer.get("metrics"), PAGE):
                time, value = integer(metric.get("timestamp")), _number(metric.get("value"))
                if time is not None and value is not None and start <= time / 1000 < end:
                    yield MetricPoint(time / 1000, integer(metric.get("step")) or 0, value)
            token = string(answer.get("next_page_token"), 10_000)
            if not token:
                return

    def _post(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> Mapping[str, Any]:
        answer = self._client.json(HttpRequest(API + path, body=body), deadline, largest=LARGEST)
        if not isinstance(answer, dict):
            raise SourceFailed("bad_answer", "the response is not an object", asked=path)
        return answer

    def check(self, deadline: Deadline) -> CheckResult:
        """List the experiments."""
        sent = f"POST {API}/experiments/search"
        try:
            found = self._experiments(deadline)
        except SourceFailed as failed:
            return CheckResult(False, str(failed), failed.asked or sent, failed.hint)
        return CheckResult(
            bool(found), f"{len(found)} experiments are readable", sent, "" if found else "check `experiments`"
        )


def _name(run: Mapping[str, Any]) -> str:
    info = mapping(run.get("info"))
    return string(info.get("run_name"), 250) or string(info.get("run_id"), 100)


def _started(run: Mapping[str, Any]) -> float:
    return (integer(mapping(run.get("info")).get("start_time")) or 0) / 1000


def _within(run: Mapping[str, Any], window: Window) -> bool:
    ended = integer(mapping(run.get("info")).get("end_time"))
    late = window.end is not None and _started(run) >= window.end
    return not late and (window.start is None or not ended or ended / 1000 >= window.start)


def _number(value: Any) -> float | None:
    """A JSON value as a number, including the words for NaN and infinity."""
    if isinstance(value, str):
        return {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
