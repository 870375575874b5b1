"""Who is on call: the members of a Slack user group, or the people whom a PagerDuty schedule names now.

API: https://developer.pagerduty.com/api-reference/3a6b910f11050-list-all-of-the-on-calls
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bot.config.chat import OnCall, PagerDuty
from bot.store.database import Database
from bot.store.tables import MembersRow
from connectors.base.contract import CheckResult, Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest
from kb.errors import SignalboxError

FRESH = timedelta(minutes=5)
OLDEST = timedelta(hours=1)  # a rota that could not be read for this long names nobody: the shift may have changed
GROUP_OLDEST = timedelta(days=1)
SECONDS = 10.0
MOST = 10  # people named
_LIMIT = 100  # entries of one answer
_log = logging.getLogger(__name__)


def on_call(database: Database, rota: OnCall | None, now: datetime) -> tuple[str, ...]:
    """Return who is on call, as last read: Slack user ids, or names of people without one; empty if nobody is known to be."""
    if rota is None:
        return ()
    if rota.pagerduty is None:
        return _stored(database, rota.group or "", now - GROUP_OLDEST)
    return _stored(database, _key(rota.pagerduty), now - OLDEST)


def refresh_on_call(database: Database, rotas: Iterable[OnCall | None], now: datetime) -> None:
    """Read the schedules that are stale. Log a failure and keep what was read before."""
    for schedule in (rota.pagerduty for rota in rotas if rota is not None):
        if schedule is None or _fresh(database, _key(schedule), now):
            continue
        try:
            people = scheduled(schedule)
        except SignalboxError as error:
            _log.warning("cannot read who is on call: %s", error)
            continue
        row = MembersRow(group_id=_key(schedule), members=msgspec.json.encode(people).decode(), at=now)
        with database.errors(), database.session(write=True) as session:
            session.merge(row)


def scheduled(schedule: PagerDuty) -> list[str]:
    """Ask PagerDuty who is on call now: by escalation level, each person once.

    Raises:
        SourceFailed: PagerDuty is unreachable, rejects the request, or sends something else.
    """
    headers = {
        "Authorization": f"Token token={schedule.token.value()}",
        "Accept": "application/vnd.pagerduty+json;version=2",
    }
    params = (("schedule_ids[]", schedule.schedule), ("limit", str(_LIMIT)))
    request = HttpRequest("/oncalls", params=params, headers=headers)
    told = HttpClient(Endpoint(schedule.url)).json(request, Deadline.within(SECONDS))
    entries = told.get("oncalls") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        raise SourceFailed("bad_answer", "PagerDuty sent no list of on-calls")
    users = [entry["user"] for entry in sorted(filter(_is_entry, entries), key=lambda entry: entry["escalation_level"])]
    names = (schedule.people.get(user["id"]) or str(user.get("summary") or user["id"])[:80] for user in users)
    return list(dict.fromkeys(names))[:MOST]


def check(schedule: PagerDuty) -> CheckResult:
    """Ask PagerDuty who is on call, and say whether that works."""
    try:
        people = scheduled(schedule)
    except SignalboxError as error:
        return CheckResult(
            False, str(error), f"{schedule.url}/oncalls", "give a read-only API key and the id of a schedule"
        )
    told = f"on call now: {', '.join(people)}" if people else "nobody is on call now, or there is no such schedule"
    return CheckResult(True, told, f"{schedule.url}/oncalls")


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("user"), dict):
        return False
    return isinstance(entry["user"].get("id"), str) and isinstance(entry.get("escalation_level"), int)


def _key(schedule: PagerDuty) -> str:
    return f"pagerduty:{schedule.schedule}"


def _fresh(database: Database, key: str, now: datetime) -> bool:
    with database.errors(), database.session() as session:
        row = session.get(MembersRow, key)
        return row is not None and row.at > now - FRESH


def _stored(database: Database, key: str, since: datetime) -> tuple[str, ...]:
    with database.errors(), database.session() as session:
        row = session.get(MembersRow, key)
        found = [] if row is None or row.at < since else msgspec.json.decode(row.members, type=list[str])
        return tuple(found[:MOST])
