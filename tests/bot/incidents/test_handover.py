"""The handover of a shift, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.incidents.handover import (
    MOST,
    Handover,
    HandoverIncident,
    HandoverNode,
    HandoverProposal,
    HandoverSection,
    PendingWork,
    dumps,
    handover,
    text,
)
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps as dumps_report
from bot.store.packed_reports import Origin
from bot.store.tables import BarRow, PostingRow, ProposalRow, WorkRow
from tests.support.bot_samples import FALLEN_GPU, HEALTHY

NOW = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SINCE = NOW - 12 * HOUR


def add(ledger: Ledger, number: int, *, tenant: str = "default", past: bool = False, **more: object) -> int:
    """An incident of so many hours ago."""
    report = replace(FALLEN_GPU, id=f"r{number}", **{"summary": "GPU 3 fell off", **more})  # type: ignore[arg-type]
    origin = Origin(tenant, backfilled=past)
    return ledger.incidents.add(dumps_report(report), report, b"", None, NOW - number * HOUR, origin=origin)


def line(incident: int, hours: float, told: str = "GPU 3 fell off", **more: object) -> HandoverIncident:
    """As it is listed."""
    return HandoverIncident(incident, "llm-70b", "gpu_fell_off_bus", told, NOW - hours * HOUR, **more)  # type: ignore[arg-type]


def test_a_shift(database: str) -> None:
    """It lists the shift, and nothing of other tenants, of jobs that ended well, or of earlier times."""
    with Ledger(database) as ledger:
        for number in range(1, 8):
            add(ledger, 2 * number)  # incident n is 2n hours old
        hung = add(ledger, 3, phase="hung", summary="no rank steps")
        old = add(ledger, 99, phase="hung")
        add(ledger, 1, tenant="other")
        add(ledger, 5, past=True)
        ledger.incidents.add(dumps_report(HEALTHY), HEALTHY, b"", None, NOW - HOUR)
        steps = (
            (1, LifecycleStep("ack", "ana", "cli")),
            (2, LifecycleStep("snooze", "ana", "cli", until=NOW + HOUR)),
            (3, LifecycleStep("merge", "ben", "cli", other=4)),
            (7, LifecycleStep("assign", "ben", "cli", assignee="eve", note="knows it")),
        )
        for minutes, (number, step) in enumerate(steps):
            ledger.lifecycle.step(number, "default", str(number), step, NOW - HOUR + timedelta(minutes=minutes))
        closed = Closing("ana", "cli", "right", "shown", "gpu_fell_off_bus")
        ledger.closings.annotate(5, "default", "a", closed, NOW - 2 * HOUR)
        ledger.closings.annotate(5, "default", "b", replace(closed, who="ben", cause="unknown", fault=None), NOW - HOUR)
        ledger.closings.annotate(6, "default", "c", closed, NOW - 13 * HOUR)
        with ledger.database.session(write=True) as session:
            _waiting(session, hung)
        found = handover(ledger.database, "default", SINCE, NOW)
    open_ones = (
        line(1, 2, state="acknowledged", assignee="ana"),
        line(hung, 3, "no rank steps"),
        line(4, 8),
        line(7, 14, assignee="eve"),
        line(old, 99),
    )
    bar = HandoverNode("gpu-017", "main", "barred", "it left the bus twice", NOW - HOUR, NOW + HOUR)
    assert found == Handover(
        tenant="default",
        since=SINCE,
        until=NOW,
        open=HandoverSection(5, open_ones),
        snoozed=HandoverSection(1, (line(2, 4, state="snoozed"),)),
        barred=(bar,),
        more_barred=0,
        watched=HandoverSection(1, (open_ones[1],)),
        waiting=PendingWork(
            proposals=(HandoverProposal("nccl-x", "asked", "ana"),),
            nodes=(replace(bar, node="gpu-018", state="proposed"),),
            questions=HandoverSection(1, (replace(open_ones[1], by="U0ADA"),)),
            queued=1,
            failed=1,
        ),
        new=HandoverSection(7, found.new.lines),
        closed=HandoverSection(1, (line(5, 1, "unknown", state="closed", by="ben"),)),
        changed=HandoverSection(
            4,
            tuple(
                line(number, 1 - minutes / 60, told, by=who, **more)
                for number, minutes, told, who, more in (
                    (7, 3, "assigned to eve: knows it", "ben", {"assignee": "eve"}),
                    (3, 2, "merged into incident 4", "ben", {"state": "merged"}),
                    (2, 1, "snoozed until 2026-03-02 19:00Z", "ana", {"state": "snoozed"}),
                    (1, 0, "acknowledged", "ana", {"state": "acknowledged", "assignee": "ana"}),
                )
            ),
        ),
    )
    told = text(found)
    assert "Open: 5" in told
    assert "gpu-017 (main) until 2026-03-02 19:00Z: it left the bus twice" in told
    assert json.loads(dumps(found))["waiting"]["queued"] == 1


def _waiting(session, hung: int) -> None:
    """A barred and a proposed node, a proposed rule, a question without an answer, and work."""
    bar: dict[str, Any] = {
        "tenant": "default", "cluster": "main", "scope": "cluster", "job": "", "since": NOW - HOUR, "who": "x",
        "why": "it left the bus twice", "until": NOW + HOUR,
    }  # fmt: skip
    session.add(BarRow(key="1", node="gpu-017", state="barred", **bar))
    session.add(BarRow(key="2", node="gpu-018", state="proposed", **bar))
    session.add(BarRow(key="3", node="gpu-019", state="barred", **{**bar, "until": NOW - HOUR}))
    session.add(BarRow(key="4", node="gpu-020", state="barred", **{**bar, "tenant": "other"}))
    session.add(
        ProposalRow(
            key="p",
            tenant="default",
            rule="nccl-x",
            who="ana",
            branch="b",
            content_zstd=b"",
            created_at=NOW,
            ready_at=NOW,
        )
    )
    reminder: dict[str, Any] = {"tenant": "default", "channel": "U0ADA", "asked_by": "U0ADA", "state": "reminder", "sent": 1,
                "created_at": NOW, "ready_at": NOW}  # fmt: skip
    session.add(PostingRow(handle="1", once="1", incident_id=hung, **reminder))
    session.add(PostingRow(handle="2", once="2", incident_id=5, **reminder))  # it was closed
    session.add(PostingRow(handle="3", once="3", incident_id=1, **{**reminder, "facts": '{"dismissed":true}'}))
    work: dict[str, Any] = {
        "kind": "diagnose",
        "tenant": "default",
        "payload": "{}",
        "created_at": NOW,
        "asked_at": NOW,
    }
    session.add(WorkRow(key="1", state="waiting", **work))
    session.add(WorkRow(key="2", state="failed", done_at=NOW - HOUR, **work))
    session.add(WorkRow(key="3", state="failed", done_at=NOW - 20 * HOUR, **work))


def test_long_lists_have_an_end(url: str) -> None:
    """And say how much is left out; hostile words are harmless."""
    with Ledger(url) as ledger:
        for number in range(MOST + 5):
            add(ledger, number, summary=f"\x1b[2J{number} password=hunter2secret " + "x" * 999)
        found = handover(ledger.database, "default", NOW - 99 * HOUR, NOW)
    assert (found.open.count, len(found.open.lines)) == (MOST + 5, MOST)
    told = text(found)
    assert "... and 5 more" in told
    assert [word for word in ("\x1b", "hunter2secret") if word in told] == []


@pytest.mark.parametrize("tenant", ["default", "nobody"])
def test_nothing_is_reported_so(url: str, tenant: str) -> None:
    """An empty store: each list says none."""
    with Ledger(url) as ledger:
        told = text(handover(ledger.database, tenant, SINCE, NOW))
    assert told.count("none") == 6
    assert "Waiting:\n  nothing" in told
