"""MLflow: a job's runs by their tags, their metrics as lines of a training log."""

import json
import math
import os

import pytest

from connectors.base.budget import Load
from connectors.base.contract import Bounds, CollectionRequest, Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest, Login
from connectors.base.secret import Secret
from connectors.metrics.mlflow import Mlflow, MlflowSettings
from connectors.metrics.training_log import MEASURES, MetricPoint, choose_metrics, log_lines, tag_value
from kb.model import Job, JobRecord, Window
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress.formats import read_line
from tests.doubles.mlflow import Run, Tracker, serving
from tests.support.contract.subject import END, START, Memory, Subject, hasty
from tests.support.contract.suite import Contract

WINDOW = Window(START, END)


def tracker(**metrics):
    """A server with a run of the job, one of another, and an experiment without any."""
    metrics = metrics or {
        "train/loss": [(START + at, at, 9.0 - at) for at in range(5)],
        "lr": [(START + at + 0.1, at, 0.1) for at in range(0, 5, 2)],
        "system/gpu": [(START, 0, 1.0)],
    }
    tags = {"mlflow.runName": "llm-7b"}
    other = Run("bbbb", "1", {"mlflow.runName": "llm-8b"}, START, END, {"loss": [(START, 0, 1.0)]})
    return Tracker({"1": "pretrain", "2": "empty"}, [Run("aaaa", "1", tags, START, None, metrics), other])


def build(url, **more):
    """The connector."""
    endpoint = Endpoint(url, **more.pop("endpoint", {}))
    return Mlflow(MlflowSettings(endpoint, **more), hasty(endpoint))


def collected(server, *, window=WINDOW, bounds=None, **more):
    """What is written, and the gaps."""
    deadline = Deadline.within(60)
    spool = Memory(deadline)
    asked = CollectionRequest(
        JobRecord(Job(id="77", name="llm-7b"), "test"), window, deadline, bounds=bounds or Bounds()
    )
    with serving(server) as url:
        gaps = tuple(build(url, **more).collect(asked, spool))
    return spool, gaps


class TestContract(Contract):
    """MLflow under the contract of all connectors."""

    subject = Subject("mlflow", double=lambda: serving(tracker()), build=build)


def test_metrics_are_lines_that_the_readers_know():
    """One line per step with its measurements, which is read as progress of a training run."""
    spool, gaps = collected(tracker())
    (data,) = spool.logs.values()
    assert data.splitlines()[0] == b'2025-11-13T02:13:20.000000000Z {"step": 0, "loss": 9.0, "learning_rate": 0.1}'
    points = [read_line(line) for line in data.splitlines()]
    assert [(point.step, point.loss, point.learning_rate) for point in points] == [
        (0, 9.0, 0.1),
        (1, 8.0, None),
        (2, 7.0, 0.1),
        (3, 6.0, None),
        (4, 5.0, 0.1),
    ]
    assert [peel(line).time for line in data.splitlines()] == [START + at for at in range(5)]
    assert (list(spool.logs), gaps) == (["logs/mlflow/llm-7b-aaaa.log"], ())


def test_values_that_are_no_numbers():
    """What is nan or inf is what a diagnosis looks for: they come through."""
    values = [2.0, math.nan, math.inf]
    spool, _ = collected(tracker(loss=[(START + at, at, item) for at, item in enumerate(values)]))
    read = [read_line(line).loss for line in spool.logs["logs/mlflow/llm-7b-aaaa.log"].splitlines()]
    assert (read[0], math.isnan(read[1] or 0.0), read[2]) == (2.0, True, math.inf)


def test_histories_come_page_by_page():
    """No point is lost or repeated at page boundaries; of very many points the newest are kept, with a gap."""
    points = [(START + at / 100, at, float(at)) for at in range(45_000)]
    spool, gaps = collected(tracker(loss=points))
    steps = [read_line(line).step for line in spool.logs["logs/mlflow/llm-7b-aaaa.log"].splitlines()]
    assert steps == list(range(25_000, 45_000))
    assert [gap.reason for gap in gaps] == ["only the newest 20,000 points of loss are kept"]


def test_a_bound_on_pages_is_a_gap():
    """Where the bound on pages is reached, what came is kept and the gap says how much that is."""
    points = [(START + at / 100, at, 1.0) for at in range(45_000)]
    spool, gaps = collected(tracker(loss=points), bounds=Bounds(pages=1))
    assert len(spool.logs["logs/mlflow/llm-7b-aaaa.log"].splitlines()) == 20_000
    assert (gaps[0].code, gaps[0].got) == ("source_too_large", "20000 points")


def test_only_the_window():
    """Points before and after the window, and runs that ended before it, are not fetched."""
    spool, _ = collected(tracker(), window=Window(START + 1, START + 3))
    assert [read_line(line).step for line in spool.logs["logs/mlflow/llm-7b-aaaa.log"].splitlines()] == [1, 2]
    server = tracker()
    server.runs[0].end = START - 5
    with pytest.raises(SourceFailed, match="no run of this job"):
        collected(server)


def test_a_step_that_came_again():
    """Steps that repeat after a restart are separate lines, in order of time."""
    told = log_lines({"loss": [MetricPoint(10.0, 5, 1.0), MetricPoint(11.0, 6, 2.0), MetricPoint(20.0, 5, 3.0)]})
    assert [json.loads(line.split(b" ", 1)[1]) for line in told.splitlines()] == [
        {"step": 5, "loss": 1.0},
        {"step": 6, "loss": 2.0},
        {"step": 5, "loss": 3.0},
    ]


def test_runs_by_tags_of_the_site():
    """A site says which tag holds what of a job, in which experiments, and what its metrics are called."""
    server = tracker(our_loss=[(START, 0, 1.0)])
    server.runs[0].tags = {"site.job": "77"}
    spool, _ = collected(server, tags={"site.job": "id"}, experiments=("pretrain",), metrics={"loss": "our_loss"})
    assert [read_line(line).loss for line in next(iter(spool.logs.values())).splitlines()] == [1.0]
    assert [told["filter"] for path, told in server.seen if path.endswith("runs/search")] == ["tags.`site.job` = '77'"]


def test_metrics_of_unknown_names_are_listed():
    """A run whose metrics say nothing that is known is a gap that names them."""
    _, gaps = collected(tracker(accuracy=[(START, 0, 1.0)]))
    assert [gap.reason for gap in gaps] == ["none of its metrics is a loss or similar: accuracy; check `metrics`"]


def test_logging_in(monkeypatch):
    """A server that wants a user and password gets them."""
    server = tracker()
    server.password = "secret"  # noqa: S105 - of the double
    monkeypatch.setenv("MLFLOW_PASSWORD", "secret")
    login = Login(user="reader", password=Secret(env="MLFLOW_PASSWORD"))
    assert collected(server, endpoint={"login": login})[0].logs
    with pytest.raises(SourceFailed, match="401"):
        collected(server)


@pytest.mark.parametrize("name", ["a'b", "a`b", 'a"b', "a\\b", "a\nb", "a%"])
def test_names_that_cannot_be_quoted(name):
    """A name that no filter can hold is refused, since it would be another filter."""
    with pytest.raises(SourceFailed, match="quotes"):
        tag_value(JobRecord(Job(name=name), "test"), "name")


def test_the_usual_names_of_metrics():
    """The first of the usual names that a run has is used, case-insensitive; the site's own name takes precedence."""
    assert choose_metrics(["Train/Loss", "loss", "LR"], {}) == {"loss": "loss", "learning_rate": "LR"}
    assert choose_metrics(["loss", "xent"], {"loss": "xent"}) == {"loss": "xent"}
    assert all(read_line(f'{{"step": 1, "loss": 1.0, "{name}": 2.5}}'.encode()) for name in MEASURES)


@pytest.mark.skipif(
    "SIGNALBOX_MLFLOW" not in os.environ, reason="needs SIGNALBOX_MLFLOW: the address of a real MLflow server"
)
def test_a_real_server():
    """A real MLflow server returns what was logged to it, page by page."""
    client = HttpClient(Endpoint(os.environ["SIGNALBOX_MLFLOW"], load=Load(requests=10_000)))

    def post(path, **body):
        return client.json(HttpRequest(f"/api/2.0/mlflow{path}", body=body), Deadline.within(20))

    name = f"signalbox-{os.getpid()}"
    experiment = post("/experiments/create", name=name)["experiment_id"]
    run = post(
        "/runs/create",
        experiment_id=experiment,
        start_time=int(START * 1000),
        run_name=name,
        tags=[{"key": "job_id", "value": "77"}],
    )
    run_id = run["run"]["info"]["run_id"]
    for first in range(0, 24_000, 1000):
        points = [
            {"key": "loss", "value": float(at), "timestamp": int(START * 1000) + at, "step": at}
            for at in range(first, first + 1000)
        ]
        post("/runs/log-batch", run_id=run_id, metrics=points)
    post(
        "/runs/log-batch",
        run_id=run_id,
        metrics=[{"key": "loss", "value": "NaN", "timestamp": int(START * 1000) + 24_000, "step": 24_000}],
    )
    deadline = Deadline.within(60)
    spool = Memory(deadline)
    asked = CollectionRequest(JobRecord(Job(id="77", name="x"), "test"), Window(START, END), deadline)
    gaps = tuple(Mlflow(MlflowSettings(client.endpoint), client).collect(asked, spool))
    (data,) = [data for path, data in spool.logs.items() if name in path]
    steps = [read_line(line) for line in data.splitlines()]
    assert [step.step for step in steps] == list(range(4001, 24_001))
    assert math.isnan(steps[-1].loss or 0.0)
    assert {gap.code for gap in gaps} <= {"points_cut"}
