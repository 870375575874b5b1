"""Alerts as Alertmanager sends them."""

from __future__ import annotations

import json
from typing import Any


def alert(status: str = "firing", **labels: str) -> dict[str, Any]:
    """Return an alert as Alertmanager sends it."""
    return {
        "status": status,
        "labels": {"alertname": "GPUHang", **labels},
        "annotations": {"summary": "a GPU hangs"},
        "startsAt": "2026-03-04T05:06:07.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example/graph",
        "fingerprint": "0123456789abcdef",
    }


def payload(*alerts: dict[str, Any], **more: Any) -> bytes:
    """Return a whole request."""
    body = {"version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "signalbox"}
    return json.dumps({**body, "groupLabels": {}, "commonLabels": {}, "alerts": list(alerts), **more}).encode()
