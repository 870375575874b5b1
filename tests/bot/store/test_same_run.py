"""A run that is diagnosed again keeps its incident: by its logs, and by its job or, without times in them, by their path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps
from bot.store.packed_reports import Origin, PackedReport, file
from bot.store.report_writes import Stored, add_within, put_within
from kb.report import JobView, Report
from tests.support.bot_samples import FALLEN_GPU, UNKNOWN
from tests.support.common.incident_samples import NOW

LOGS = "a" * 32


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """The store."""
    with Ledger(url) as made:
        yield made


def filed(
    number: int,
    *,
    report: Report = UNKNOWN,
    job: str | None = None,
    attempt: int | None = None,
    bundle: str | None = None,
    source: str | None = None,
    ended: datetime | None = None,
    cluster: str | None = None,
    logs: str = LOGS,
    private_to: str | None = None,
) -> PackedReport:
    """A report on logs."""
    one = replace(report, id=f"{number:016x}", job=JobView(job, None, attempt))
    origin = Origin(cluster=cluster, ended_at=ended, logs=logs, source=source, private_to=private_to)
    return file(dumps(one), one, f"text {number}\n".encode(), bundle, NOW + timedelta(hours=number), origin=origin)


def put(ledger: Ledger, packed: PackedReport) -> tuple[int, Stored]:
    """Store it as the command line does."""
    return ledger.database.write(lambda session: put_within(session, packed))


@pytest.mark.parametrize(
    ("first", "second", "stored"),
    [
        ({"source": "/read/03/logs"}, {"source": "/read/03/logs"}, "updated"),
        ({"source": "/read/03/logs"}, {"bundle": "/read/03"}, "updated"),
        ({"source": "/read/03/logs"}, {"source": "/read/04/logs"}, "new"),  # the same text may be of another run
        ({"source": "/a", "ended": NOW}, {"source": "/b", "ended": NOW}, "updated"),  # the times in it tell
        ({"source": "/a", "logs": "b" * 32}, {"source": "/a"}, "new"),
        ({"source": "/a", "logs": ""}, {"source": "/a", "logs": ""}, "new"),  # without logs
        ({"job": "7", "source": "/a"}, {"job": "7", "bundle": "/b"}, "updated"),
        ({"job": "7", "ended": NOW}, {"job": "8", "ended": NOW}, "new"),
        ({"job": "7", "attempt": 1}, {"job": "7", "attempt": 2}, "new"),
        ({"job": "7", "bundle": "/a"}, {"job": "7", "cluster": "alpha"}, "updated"),
        ({"job": "7", "cluster": "alpha"}, {"job": "7", "bundle": "/a"}, "from cluster"),
        ({"source": "/a", "private_to": "U0ADA"}, {"source": "/a"}, "new"),
    ],
)
def test_which_reports_are_of_one_run(ledger: Ledger, first: dict, second: dict, stored: str) -> None:
    """The second report is a new incident only if another run may have written these logs."""
    put(ledger, filed(1, **first))
    assert put(ledger, filed(2, **second)) == (2 if stored == "new" else 1, stored)


def test_an_open_incident_gets_the_new_answer(ledger: Ledger) -> None:
    """Its report, text and columns are the new ones; its number and time stay, and so does what only the first report knew."""
    put(ledger, filed(1, job="7", source="/a", ended=NOW))
    assert put(ledger, filed(2, report=FALLEN_GPU, source="/a", ended=NOW)) == (1, Stored.UPDATED)

    record = ledger.incidents.get(1)
    assert record is not None
    told = record.incident
    assert (told.fault, told.job_id, told.source, told.created_at) == (
        "gpu_fell_off_bus",
        "7",
        "/a",
        NOW + timedelta(hours=1),
    )
    assert record.replay == b"text 2\n"
    assert b"gpu_fell_off_bus" in record.report_json
    assert put(ledger, filed(2, report=FALLEN_GPU, source="/a", ended=NOW)) == (1, Stored.KNOWN)


def test_a_closed_incident_keeps_the_answer_that_people_judged(ledger: Ledger) -> None:
    """Reopened, it gets the new one."""
    put(ledger, filed(1, source="/a"))
    ledger.closings.annotate(1, "default", "k", Closing("ada", "cli", "wrong", "fault", "host_oom"), NOW)

    assert put(ledger, filed(2, source="/a")) == (1, Stored.CLOSED)
    record = ledger.incidents.get(1)
    assert record is not None
    assert record.replay == b"text 1\n"


def test_the_service_takes_over_what_was_diagnosed_by_hand(ledger: Ledger) -> None:
    """A job of a scheduler that somebody diagnosed from its files is one incident; a second answer of the service is its own."""
    put(ledger, filed(1, job="7", bundle="/a"))

    def add(packed: PackedReport) -> int:
        return ledger.database.write(lambda session: add_within(session, packed))

    assert add(filed(2, job="7", cluster="alpha")) == 1
    assert add(filed(3, job="7", cluster="alpha")) == 2
    listed = {item.id: (item.cluster, item.bundle) for item in ledger.incidents.list()}
    assert listed == {1: ("alpha", "/a"), 2: ("alpha", None)}
