"""Incidents as they are put into a store."""

from __future__ import annotations

from datetime import UTC, datetime

from bot.render.report_json import dumps

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)


def put(store, report, replay=b"", bundle=None, now=NOW):
    """Add a report as the command does."""
    return store.add(dumps(report), report, replay, bundle, now)
