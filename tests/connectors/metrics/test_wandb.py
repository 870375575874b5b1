"""Weights & Biases: bounded scans of a job's runs. A small class of the same shape replaces the library's interface."""

import sys
from dataclasses import dataclass, field

import pytest

from connectors.base.contract import CollectionRequest, Deadline, SourceFailed
from connectors.metrics.wandb import Wandb, WandbSettings
from kb.model import Job, JobRecord, Window
from kb.parsers.logs.progress.formats import read_line
from tests.support.contract.subject import END, START, Memory


@dataclass
class Run:
    """A run as the library gives it."""

    id: str
    name: str
    rows: list
    asked: list = field(default_factory=list)

    @property
    def summary(self):
        """The last value of each metric."""
        return {key: value for row in self.rows for key, value in row.items()}

    @property
    def lastHistoryStep(self):  # noqa: N802 - the library's own name
        """The last step."""
        return self.rows[-1]["_step"]

    def scan_history(self, keys=None, page_size=1000, min_step=0, max_step=None, use_cache=True):  # noqa: ARG002 - the library's own form
        """The rows that have all the keys."""
        self.asked.append((tuple(keys), min_step))
        return (row for row in self.rows if all(key in row for key in keys) and row["_step"] >= min_step)


@dataclass
class Door:
    """The library's Api."""

    listed: list
    filters: list = field(default_factory=list)
    error: Exception | None = None

    def runs(self, path=None, filters=None, order="+created_at", per_page=50):  # noqa: ARG002 - likewise
        """The runs of a project."""
        if self.error:
            raise self.error
        self.filters.append((path, filters, order))
        name = (filters or {}).get("displayName", {}).get("$eq")
        return [run for run in self.listed if filters is None or run.name == name]


def rows(count, **more):
    """Rows of a history: the loss at each step, the learning rate at each tenth."""
    return [
        {
            "_step": at,
            "_timestamp": START + at / 100,
            "train/loss": float(at),
            **({"lr": 0.1} if at % 10 == 0 else {}),
            **more,
        }
        for at in range(count)
    ]


def collected(door, name="llm-7b"):
    """What is written, and the gaps."""
    deadline = Deadline.within(60)
    spool = Memory(deadline)
    asked = CollectionRequest(JobRecord(Job(id="77", name=name), "test"), Window(START, END), deadline)
    connector = Wandb(WandbSettings("team/pretrain"), lambda *_: door)
    return spool, tuple(connector.collect(asked, spool))


def test_each_metric_is_scanned_by_itself():
    """A metric that is logged rarely takes nothing from the others."""
    run = Run("x1", "llm-7b", rows(20))
    spool, gaps = collected(Door([run, Run("x2", "other", rows(1))]))
    points = [read_line(line) for line in spool.logs["logs/wandb/llm-7b-x1.log"].splitlines()]
    assert [(point.step, point.loss) for point in points] == [(at, float(at)) for at in range(20)]
    assert [point.step for point in points if point.learning_rate] == [0, 10]
    assert run.asked == [(("_step", "_timestamp", "train/loss"), 0), (("_step", "_timestamp", "lr"), 0)]
    assert gaps == ()


def test_a_long_history_is_read_from_its_end():
    """Of a long run the last steps are scanned, and a gap says from where."""
    run = Run("x1", "llm-7b", rows(25_000))
    spool, gaps = collected(Door([run]))
    assert len(spool.logs["logs/wandb/llm-7b-x1.log"].splitlines()) == 20_000
    assert [gap.reason for gap in gaps] == ["only the last 20,000 steps were read, from step 5,000"]


def test_a_name_is_a_value_of_a_filter():
    """Names are passed to the library as values to compare, never as operators or query text."""
    door = Door([])
    with pytest.raises(SourceFailed, match="no run of this job"):
        collected(door, name="$ne")
    assert door.filters[0] == ("team/pretrain", {"displayName": {"$eq": "$ne"}}, "-created_at")


def test_what_the_library_raises_becomes_a_failure():
    """An error of the library is reported by its kind, also by check."""
    door = Door([], error=RuntimeError("permission denied"))
    with pytest.raises(SourceFailed, match="RuntimeError: permission denied"):
        collected(door)
    checked = Wandb(WandbSettings("team/pretrain"), lambda *_: door).check(Deadline.within(60))
    assert (checked.works, checked.words) == (False, "the wandb library failed: RuntimeError: permission denied")


def test_without_the_library(monkeypatch):
    """If the extra is not installed, this is reported, with what to install."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    checked = Wandb(WandbSettings("team/pretrain")).check(Deadline.within(60))
    assert (checked.works, checked.change) == (False, "pip install 'signalbox[wandb]'")
