"""Annotations in Grafana: one for each resolved incident, updated when its resolution changes.

API: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Session

from bot.config.chat import Grafana
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import word
from bot.notify.outbox import enqueue_item
from bot.policy.resolution_codes import nameless
from bot.render.report_json import from_json
from bot.store.run_names import run_name
from connectors.base.contract import Deadline
from connectors.base.http import HttpClient, HttpRequest

SECONDS = 20.0
_MOST_TAGS = 20


def owe_within(session: Session, incident: int, tenant: str, key: str, now: datetime) -> None:
    """Queue the annotation of an incident, for `serve` to send. `key`: the key of the feedback."""
    enqueue_item(session, f"grafana:{incident}:{key}"[:200], tenant, "grafana", {"incident": incident}, now=now)


def annotate(grafana: Grafana, ledger: Ledger, incident: int) -> None:
    """Create or update the annotation of an incident.

    Raises:
        SignalboxError: Grafana is unreachable or rejects the request.
    """
    body = annotation(grafana, ledger, incident)
    if body is None:
        return
    deadline = Deadline.within(SECONDS)
    client = HttpClient(grafana.endpoint)
    marks = (("tags", "signalbox"), ("tags", f"incident-{incident}"), ("limit", "1"))
    there = client.json(HttpRequest("/api/annotations", params=marks), deadline)
    number = there[0].get("id") if isinstance(there, list) and there and isinstance(there[0], dict) else None
    if isinstance(number, int):
        client.json(HttpRequest(f"/api/annotations/{number}", body=body, method="PATCH"), deadline)
    else:
        client.json(HttpRequest("/api/annotations", body=body), deadline)


def annotation(grafana: Grafana, ledger: Ledger, incident: int) -> dict[str, Any] | None:
    """The request body of the annotation: times in milliseconds, tags, text. None if there is no confirmed cause or the incident is private."""
    record, close_out = ledger.incidents.answer(incident), word(ledger.closings.annotations(incident))
    if record is None or close_out is None or record.incident.private_to is not None:
        return None
    report = from_json(record.report_json)
    closing = close_out.last.said
    cause = closing.fault or nameless(closing.cause) or "closed"
    end = record.incident.ended_at or record.incident.created_at
    first = report.diagnoses[0].first_seen if report.diagnoses else None
    times = {
        "time": int((first if first is not None else end.timestamp()) * 1000),
        "timeEnd": int(end.timestamp() * 1000),
    }
    times["time"] = min(times["time"], times["timeEnd"])
    job = run_name(record.incident)
    nodes = f", nodes {', '.join(closing.nodes[:20])}" if closing.nodes else ""
    action = f". {closing.action}" if closing.action else ""
    tags = [
        "signalbox",
        f"incident-{incident}",
        f"fault-{cause}",
        *(f"node-{node}" for node in closing.nodes),
        *grafana.tags,
    ]
    return {**times, "tags": tags[:_MOST_TAGS], "text": f"{job}: {cause}{nodes}{action}"[:1000]}
