"""Who is in the user groups that rights name: asked of Slack every few minutes, kept in the ledger for all replicas."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from sqlmodel import col, select

from bot.config.file import Config
from bot.store.database import Database
from bot.store.tables import MembersRow

FRESH = timedelta(minutes=10)
OLDEST = timedelta(days=7)  # what was told longer ago counts no more
_log = logging.getLogger(__name__)


def groups_of(config: Config) -> tuple[str, ...]:
    """The user groups that any tenant's rights name."""
    named = {
        item
        for tenant in config.tenants_of_chat.values()
        for ones in tenant.verbs.values()
        for item in ones
        if item.startswith("S")
    }
    return tuple(sorted(named))


def members(database: Database, group: str) -> frozenset[str]:
    """Who is in a group, as Slack told last; nobody where it never did."""
    with database.errors(), database.session() as session:
        row = session.get(MembersRow, group)
        if row is None or row.at < datetime.now(UTC) - OLDEST:
            return frozenset()
        return frozenset(msgspec.json.decode(row.members, type=list[str]))


def refresh(database: Database, client: WebClient, groups: Iterable[str]) -> None:
    """Ask Slack for those that were not asked for lately; what cannot be asked stays as it was, and is logged."""
    now = datetime.now(UTC)
    with database.errors(), database.session() as session:
        fresh = set(session.exec(select(MembersRow.group_id).where(col(MembersRow.at) > now - FRESH)))
    for group in groups:
        if group in fresh:
            continue
        try:
            told = client.api_call("usergroups.users.list", data={"usergroup": group})
        except (SlackApiError, SlackClientError, OSError) as error:
            _log.warning("failed to read user group %s: %s", group, error)
            continue
        users = [str(user) for user in told.get("users") or []]
        with database.errors(), database.session(write=True) as session:
            session.merge(MembersRow(group_id=group, members=msgspec.json.encode(users).decode(), at=now))
