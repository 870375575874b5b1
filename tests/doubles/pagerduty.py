"""PagerDuty's REST API over real HTTP: the on-calls of schedules, as its reference describes them, strictly.

https://developer.pagerduty.com/api-reference/3a6b910f11050-list-all-of-the-on-calls: a key in the form `Token token=…`, the
Accept header of version 2, known parameters only, classic pagination, errors as {"error": {"message", "code", "errors"}}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.doubles.listening import Answering, listening

KNOWN = {
    "schedule_ids[]", "escalation_policy_ids[]", "user_ids[]", "include[]", "since", "until", "earliest", "time_zone", "limit",
    "offset", "total",
}  # fmt: skip
ACCEPT = "application/vnd.pagerduty+json;version=2"


@dataclass(frozen=True, slots=True)
class Shift:
    """Somebody who is on call now, by a schedule, at an escalation level of a policy."""

    schedule: str
    user: str
    name: str
    level: int = 1
    policy: str = "PPOLICY"


@dataclass(slots=True)
class Account:
    """An account: its key, and who is on call. `seen`: the requests; `down`: answer with 503."""

    key: str = "y_NbAkKc66ryYTWUXYEu"
    shifts: list[Shift] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    down: bool = False

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, Any]:
        """The status and the body for a request."""
        parts = urlsplit(target)
        self.seen.append(target)
        if self.down:
            return 503, _error("Service unavailable", 2000)
        if headers.get("authorization") != f"Token token={self.key}":
            return 401, _error("Unauthorized", 2006)
        if headers.get("accept") != ACCEPT:
            return 406, _error("Not Acceptable", 2001)
        if parts.path != "/oncalls":
            return 404, _error("Not Found", 2100)
        asked = parse_qsl(parts.query, keep_blank_values=True)
        if unknown := {name for name, _ in asked} - KNOWN:
            return 400, _error(f"Unknown parameters {sorted(unknown)}", 2001)
        schedules = {value for name, value in asked if name == "schedule_ids[]"}
        limit = min(int(dict(asked).get("limit", "25")), 100)
        found = [shift for shift in self.shifts if not schedules or shift.schedule in schedules]
        return 200, {
            "oncalls": [_entry(shift) for shift in found[:limit]],
            "limit": limit,
            "offset": 0,
            "more": len(found) > limit,
            "total": None,
        }


def _error(message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "errors": []}}


def _entry(shift: Shift) -> dict[str, Any]:
    def reference(kind: str, name: str, summary: str) -> dict[str, str]:
        where = f"/{kind}s/{name}"
        return {
            "id": name, "type": f"{kind}_reference", "summary": summary, "self": f"https://api.pagerduty.com{where}",
            "html_url": f"https://site.pagerduty.com{where}",
        }  # fmt: skip

    return {
        "escalation_policy": reference("escalation_policy", shift.policy, "Training"),
        "escalation_level": shift.level,
        "schedule": reference("schedule", shift.schedule, "Primary"),
        "user": reference("user", shift.user, shift.name),
        "start": "2026-11-23T08:00:00Z",
        "end": "2026-11-30T08:00:00Z",
    }


@contextmanager
def served(account: Account) -> Iterator[str]:
    """Serve an account; returns the address."""

    class Handler(Answering):
        methods = ("GET",)

        def reply(self) -> None:
            """Answer."""
            status, body = account.answer(self.path, self.lowered())
            self.send(status, json.dumps(body).encode(), "application/json")

    with listening(Handler) as address:
        yield address
