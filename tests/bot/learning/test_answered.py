"""A worker's other tasks: it counts shadow rules with the incident, and adapts its confidence to the rules' record."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlmodel import select

from bot.config.file import read
from bot.handlers.diagnose import DiagnoseHandler
from bot.incidents.ledger import Ledger
from bot.learning.replay.trial import base_of
from bot.queue.payloads import DIAGNOSE, DiagnosePayload
from bot.queue.worker import step
from bot.store.tables import ShadowHitRow
from tests.support.learning_views import LEASE, OOM, add, right, rule, wrong

CONFIG = """\
version: 1
collect: {{spool: {spool}}}
learning: {{calibrate: {calibrate}}}
clusters:
  main:
    connectors:
      recorded: {{type: bundles, folder: {runs}}}
tenants: {{default: {{}}}}
"""


@pytest.fixture
def base(few_rules, cache, monkeypatch):
    """Two shipped rules, and a shadow on revoked leases."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    path = few_rules / "storage" / "lease-revoked" / "rule.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(rule(status="shadow"))
    return base_of(few_rules)


def answered(database, base, folder, text, *, calibrate="false"):
    """A job whose log this is, diagnosed as a worker does it: the incident, its report, the shadows counted with it."""
    bundle = folder / "runs" / "demo"
    (bundle / "logs").mkdir(parents=True)
    (bundle / "logs" / "rank-0.log").write_text(text)
    (bundle / "job.yaml").write_text("id: '9001'\nname: demo\nstate: FAILED\n")
    (folder / "spool").mkdir()
    (folder / "signalbox.yaml").write_text(
        CONFIG.format(spool=folder / "spool", runs=folder / "runs", calibrate=calibrate)
    )
    config = read(folder / "signalbox.yaml")
    with Ledger(database) as ledger:
        ledger.enqueue(DiagnosePayload("demo", "default").request(), datetime.now(UTC))
        assert step(ledger.tasks, {DIAGNOSE: DiagnoseHandler(ledger, base.known, config).do}, "worker")
        with ledger.database.session() as session:
            hits = [(item.rule, item.incident_id, item.leads) for item in session.exec(select(ShadowHitRow))]
        newest = max(ledger.incidents.list(), key=lambda item: item.id)
        return newest, ledger.incidents.answer(newest.id).report_json.decode(), hits


def test_a_shadow_is_counted_with_the_live_incident(base, database, tmp_path):
    """In the transaction that keeps it; the report does not name it."""
    incident, report, hits = answered(database, base, tmp_path, LEASE)
    assert incident.verdict == "no_match"
    assert hits == [("lease-revoked", incident.id, True)]
    assert "lease-revoked" not in report


@pytest.mark.quick("true")
@pytest.mark.parametrize("calibrate", ["false", "true"])
def test_confidence_follows_close_outs_only_where_that_is_wanted(base, url, tmp_path, calibrate):
    """Else the report is as the rules judge it."""
    for at in range(10):
        add(url, base.known, OOM, job=f"{at}", said=right("cuda_oom") if at < 4 else wrong("disk_full"))
    incident, report, hits = answered(url, base, tmp_path, OOM, calibrate=calibrate)
    assert (incident.rule, hits) == ("cuda-out-of-memory", [])
    assert ("correct in 4 of 10 close-outs here" in report) is (calibrate == "true")
