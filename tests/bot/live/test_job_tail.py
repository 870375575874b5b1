"""A job is followed by the tail of its log store: nothing is asked meanwhile, and nothing is lost or doubled where it begins and ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from bot.cli import logs as module
from bot.config.settings import Cluster, Config, Connector
from bot.live import job_tail
from bot.live.log_view import LineFilter
from bot.rulebase.loader import Knowledge
from connectors.base.http import Endpoint
from connectors.log_stores.loki import LokiSettings
from tests.doubles.loki import LokiDouble, Stream
from tests.doubles.loki_tail import END, message, tailing

WHO = {"job": "llm", "rank": "0"}


class Followed:
    """A job that is followed; its lines are in the store, and some are reported."""

    def __init__(self, known: Knowledge, double: LokiDouble, folder: Path) -> None:
        self.lines: list[tuple[int, str]] = []
        self.complaints: list[str] = []
        self.double = double
        self.write("old", ago=3600.0)
        store = Connector("loki", "loki", LokiSettings(Endpoint(double.url)))
        request = module.request_of("llm", "default", None, None, None)
        config = Config((Cluster("east", connectors=(store,)),))
        following = module._JobLogs(known, config, request, folder, self.complaints.append)
        self.looks: Iterator[Iterator[Any]] = following.follow(LineFilter(), from_start=False)

    def write(self, text: str, *, ago: float = 0.0) -> tuple[int, str]:
        """Store a line."""
        line = (time.time_ns() - round(ago * 1e9), text)
        self.lines.append(line)
        self.double.streams = [Stream(WHO, self.lines)]
        return line

    def next(self) -> list[str]:
        """The next lines that are shown."""
        return [line.text for line in next(self.looks)]

    def queries(self) -> int:
        """How often the server was asked, but for tails."""
        return sum(1 for path, _ in self.double.asked if not path.endswith("/tail"))


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses."""
    monkeypatch.setattr(module, "POLL", 0.0)
    monkeypatch.setattr(job_tail, "WAIT", 0.05)
    monkeypatch.setattr(job_tail, "PAUSE", 0.0)


@pytest.mark.usefixtures("fast")
def test_reports_replace_queries(known: Knowledge, tmp_path: Path) -> None:
    """Lines of reports are shown, each once, whether or not an answer had them; while reports come, nothing is asked."""
    sent: Queue[Any] = Queue()
    with tailing(LokiDouble([]), sent) as double:
        job = Followed(known, double, tmp_path / "spool")
        assert job.next() == ["old"]
        early = job.write("early")
        sent.put(message(WHO, early, (early[0] + 1, "2026-11-23T03:00:00Z stderr P first half, ")))
        assert job.next() == ["early"]
        before = job.queries()
        sent.put(message(WHO, (early[0] + 2, "2026-11-23T03:00:00Z stderr F second half")))
        assert job.next() == ["first half, second half"]
        sent.put(message(WHO, early, job.write("late")))
        assert job.next() == ["late"]
        assert job.queries() == before
        assert job.complaints == []
        # the connection ends; what was written meanwhile is asked for, and then reported again
        job.write("between")
        sent.put(END)
        assert job.next() == ["between"]
        sent.put(message(WHO, job.write("again")))
        assert job.next() == ["again"]
    assert len(job.complaints) == 1


@pytest.mark.usefixtures("fast")
def test_dropped_lines_are_asked_for(known: Knowledge, tmp_path: Path) -> None:
    """And named."""
    sent: Queue[Any] = Queue()
    with tailing(LokiDouble([]), sent) as double:
        job = Followed(known, double, tmp_path / "spool")
        assert job.next() == ["old"]
        lost, kept = job.write("lost"), job.write("kept")
        sent.put(message(WHO, kept, dropped=[lost[0]]))
        assert job.next() == ["kept"]
        assert job.next() == ["lost"]
    assert "dropped 1 new line" in job.complaints[0]


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("status", [404, 403, 502])
def test_where_it_is_refused_the_store_is_asked(known: Knowledge, tmp_path: Path, status: int) -> None:
    """By the server or by a proxy; said once."""
    with tailing(LokiDouble([]), Queue(), refused=status) as double:
        job = Followed(known, double, tmp_path / "spool")
        assert job.next() == ["old"]
        for text in ("one", "two"):
            job.write(text)
            assert job.next() == [text]
    assert sum(str(status) in words for words in job.complaints) == 1
