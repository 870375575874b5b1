"""Dates in messages, as Slack's clients show them: in the time zone of the reader.

https://docs.slack.dev/messaging/formatting-message-text#date-formatting
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

_TOKEN = re.compile(r"\{([a-z_]+)\}")


def dated(timestamp: str | int, form: str, fallback: str, zone: tzinfo | None, now: datetime | None = None) -> str:
    """Return a date as the reader sees it; the fallback if the timestamp or a token is not one that Slack knows.

    `zone`: the reader's, UTC if None; `now`: the current time, for “today”.
    """
    try:
        at = datetime.fromtimestamp(int(timestamp), zone or UTC)
    except (ValueError, OverflowError, OSError):
        return fallback
    days = (at.date() - (now or datetime.now(UTC)).astimezone(at.tzinfo).date()).days
    near = {-1: "yesterday", 0: "today", 1: "tomorrow"}.get(days)
    told = {
        "date_num": f"{at:%Y-%m-%d}",
        "date": f"{at:%B} {at.day}, {at.year}",
        "date_short": f"{at:%b} {at.day}, {at.year}",
        "date_long": f"{at:%A, %B} {at.day}, {at.year}",
        "time": f"{at:%H:%M}",
        "time_secs": f"{at:%H:%M:%S}",
    }
    told |= {f"{name}_pretty": near or told[name] for name in ("date", "date_short", "date_long")}
    if any(name not in told for name in _TOKEN.findall(form)):
        return fallback
    shown = _TOKEN.sub(lambda hit: told[hit[1]], form)
    return f"{shown[:1].upper()}{shown[1:]}" if form.startswith("{") else shown
