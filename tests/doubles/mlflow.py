"""An MLflow tracking server over real HTTP: the part of its REST API that reads experiments, runs and metric histories.

Written from the REST API's documentation and compared with a real server: filters without OR, quoted constants, pages by tokens, at
most 25,000 points per answer, errors as error_code and message.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from tests.doubles.listening import Answering, listening

MOST_POINTS = 25_000
MOST_RESULTS = 50_000
_CLAUSE = re.compile(r"""\s*(?:tags|tag)\.(?:`([^`]+)`|"([^"]+)"|([\w.]+))\s*(=|!=)\s*(?:'([^']*)'|"([^"]*)")\s*""")


class Refused(Exception):  # noqa: N818 - an answer
    """A request that is refused."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.body = {"error_code": code, "message": message}
        super().__init__(message)


@dataclass(slots=True)
class Run:
    """A run: its tags (the name is one), times in seconds, and the points of its metrics: (seconds, step, value)."""

    id: str
    experiment: str
    tags: dict[str, str]
    start: float
    end: float | None = None
    metrics: dict[str, list[tuple[float, int, float]]] = field(default_factory=dict)


@dataclass(slots=True)
class Tracker:
    """What the server holds. `password`: of the user "reader", if one is required."""

    experiments: dict[str, str] = field(default_factory=dict)  # id → name
    runs: list[Run] = field(default_factory=list)
    password: str | None = None
    seen: list[tuple[str, dict]] = field(default_factory=list)

    def answer(self, verb: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict]:
        """The status and the body for a request."""
        parts = urlsplit(target)
        try:
            self._log_in(headers)
            told = json.loads(body) if verb == "POST" else dict(parse_qsl(parts.query, keep_blank_values=True))
            self.seen.append((parts.path, told))
            ask = self._asks().get((verb, parts.path.removeprefix("/api/2.0/mlflow")))
            return (
                (200, ask(told)) if ask else (404, {"error_code": "ENDPOINT_NOT_FOUND", "message": "no such endpoint"})
            )
        except Refused as refused:
            return refused.status, refused.body

    def _asks(self) -> dict:
        return {
            ("POST", "/experiments/search"): self._search_experiments,
            ("GET", "/experiments/get-by-name"): self._experiment,
            ("POST", "/runs/search"): self._search_runs,
            ("GET", "/metrics/get-history"): self._history,
        }

    def _log_in(self, headers: Mapping[str, str]) -> None:
        if self.password is None:
            return
        expected = base64.b64encode(f"reader:{self.password}".encode()).decode()
        if headers.get("authorization") != f"Basic {expected}":
            raise Refused(401, "UNAUTHENTICATED", "You are not authenticated.")

    def _search_experiments(self, told: dict) -> dict:
        limit = _limit(told, MOST_RESULTS, required=True)
        listed = [{"experiment_id": item, "name": name} for item, name in self.experiments.items()]
        return {"experiments": listed[:limit]} if listed else {}

    def _experiment(self, told: dict) -> dict:
        for item, name in self.experiments.items():
            if name == told.get("experiment_name"):
                return {"experiment": {"experiment_id": item, "name": name}}
        raise Refused(
            404, "RESOURCE_DOES_NOT_EXIST", f"Could not find experiment with name '{told.get('experiment_name')}'"
        )

    def _search_runs(self, told: dict) -> dict:
        ids = told.get("experiment_ids", [])
        if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
            raise Refused(400, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'experiment_ids' supplied.")
        wanted = _filter(told.get("filter", ""))
        limit = _limit(told, MOST_RESULTS, required=False)
        runs = [
            run
            for run in self.runs
            if run.experiment in ids and all((run.tags.get(tag) == value) == same for tag, same, value in wanted)
        ]
        runs.sort(key=lambda run: -run.start)
        return {"runs": [_shown(run) for run in runs[:limit]]} if runs else {}

    def _history(self, told: dict) -> dict:
        run = next((item for item in self.runs if item.id == told.get("run_id")), None)
        if not told.get("metric_key"):
            raise Refused(400, "INVALID_PARAMETER_VALUE", "Missing value for required parameter 'metric_key'.")
        limit = _limit(told, MOST_POINTS, required=False)
        start = _offset(told.get("page_token", ""))
        points = sorted(run.metrics.get(told["metric_key"], ()) if run else (), key=lambda metric: metric[:2])
        page = points[start : start + limit]
        answer: dict = {"metrics": [_point(told["metric_key"], *item) for item in page]} if page else {}
        if start + limit < len(points):
            answer["next_page_token"] = base64.b64encode(json.dumps({"offset": start + limit}).encode()).decode()
        return answer


def _limit(told: dict, most: int, *, required: bool) -> int:
    if "max_results" not in told:
        if required:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "Invalid value None for parameter 'max_results' supplied.")
        return 1000
    try:
        limit = int(told["max_results"])
    except ValueError:
        limit = -1
    if not 0 < limit <= most:
        raise Refused(
            400, "INVALID_PARAMETER_VALUE", f"Invalid value {told['max_results']} for parameter 'max_results' supplied."
        )
    return limit


def _offset(token: str) -> int:
    if not token:
        return 0
    try:
        return int(json.loads(base64.b64decode(token))["offset"])
    except (ValueError, KeyError, TypeError):
        raise Refused(400, "INVALID_PARAMETER_VALUE", "Invalid page token") from None


def _filter(text: str) -> list[tuple[str, bool, str]]:
    """The clauses of a filter: tag, whether it must be equal, value. OR and escaped quotes are not supported."""
    found, at = [], 0
    while text[at:].strip():
        match = _CLAUSE.match(text, at)
        if match is None:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"Invalid clause(s) in filter string: {text[at:]!r}")
        value = match[5] if match[5] is not None else match[6]
        found.append((match[1] or match[2] or match[3], match[4] == "=", value))
        at = match.end()
        if text[at:].strip():
            if not text[at : at + 4].upper().startswith("AND "):
                raise Refused(400, "INVALID_PARAMETER_VALUE", f"Invalid clause(s) in filter string: {text[at:]!r}")
            at += 4
    return found


def _shown(run: Run) -> dict:
    info = {
        "run_id": run.id,
        "experiment_id": run.experiment,
        "start_time": int(run.start * 1000),
        "status": "FINISHED",
    }
    info["run_name"] = run.tags.get("mlflow.runName", "")
    if run.end is not None:
        info["end_time"] = int(run.end * 1000)
    latest = [_point(key, *points[-1]) for key, points in run.metrics.items() if points]
    return {
        "info": info,
        "data": {"metrics": latest, "tags": [{"key": key, "value": item} for key, item in run.tags.items()]},
    }


def _point(key: str, time: float, step: int, value: float) -> dict:
    special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as JSON of protocol buffers has them
    return {"key": key, "value": special.get(str(value), value), "timestamp": int(time * 1000), "step": step}


@contextmanager
def serving(tracker: Tracker) -> Iterator[str]:
    """Serve a tracker; returns the address."""

    class Handler(Answering):
        def reply(self) -> None:
            """Answer."""
            body = self.body()
            status, told = tracker.answer(self.command, self.path, self.lowered(), body)
            self.send(status, json.dumps(told).encode(), "application/json")

    with listening(Handler) as url:
        yield url
