"""Names of people for the ids that the store keeps: pages and the terminal show `ada`, not `U0ADA1B2C`.

Slack shows mentions by itself. The names are read from Slack by the sender, a few a minute, and kept with the user groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import or_, union
from sqlmodel import col, select

from bot.runtime.redaction import redact
from bot.store.database import Database
from bot.store.tables import AnnotationRow, BarRow, IncidentRow, MembersRow, StepRow

FRESH = timedelta(days=7)
LONGEST = 80  # characters of a name
_PREFIX = "person:"
_ID = re.compile(r"[UW][A-Z0-9]{4,30}\Z")
_IN_TEXT = re.compile(r"\b[UW][A-Z0-9]{4,30}\b")


def names(database: Database) -> dict[str, str]:
    """Return the known names of people by their Slack ids."""
    wanted = select(MembersRow).where(col(MembersRow.group_id).startswith(_PREFIX, autoescape=True))
    with database.errors(), database.session() as session:
        rows = [(row.group_id, row.members) for row in session.exec(wanted)]
    found = ((key.removeprefix(_PREFIX), msgspec.json.decode(told, type=list[str])) for key, told in rows)
    return {key: told[0] for key, told in found if told}


def unnamed(database: Database, now: datetime, limit: int = 20) -> tuple[str, ...]:
    """Return ids of people who did something with an incident and whose names are unknown or old."""
    sources = (IncidentRow.assignee, StepRow.who, AnnotationRow.who, BarRow.decided_by)
    people = [
        select(col(source)).where(or_(col(source).startswith("U"), col(source).startswith("W"))) for source in sources
    ]
    fresh = select(MembersRow.group_id).where(
        col(MembersRow.group_id).startswith(_PREFIX, autoescape=True), col(MembersRow.at) > now - FRESH
    )
    with database.errors(), database.session() as session:
        known = {key.removeprefix(_PREFIX) for key in session.exec(fresh)}
        found = {str(value) for (value,) in session.execute(union(*people))}
    return tuple(sorted(user for user in found - known if _ID.match(user)))[:limit]


def store_names(database: Database, found: Mapping[str, str], now: datetime) -> None:
    """Store names by ids. An empty name means that Slack does not know the person; it is not requested again soon."""
    with database.errors(), database.session(write=True) as session:
        for user, name in found.items():
            clean = redact(" ".join(name.split()))[:LONGEST]
            told = msgspec.json.encode([clean] if clean and clean.isprintable() else []).decode()
            session.merge(MembersRow(group_id=f"{_PREFIX}{user}"[:64], members=told, at=now))


def with_names(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the ids of people replaced by their names, where these are known."""
    return _IN_TEXT.sub(lambda hit: known.get(hit[0], hit[0]), text) if known else text
