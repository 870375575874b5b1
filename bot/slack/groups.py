"""Members of the user groups named in access rights, and names of people. They are read from Slack and stored for all replicas."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from sqlmodel import col, select

from bot.config.settings import Config
from bot.incidents.names import store_names, unnamed
from bot.store.database import Database
from bot.store.tables import MembersRow

FRESH = timedelta(minutes=10)
OLDEST = timedelta(days=7)  # memberships older than this are ignored
_log = logging.getLogger(__name__)


def groups_of(config: Config) -> tuple[str, ...]:
    """Return the user groups that appear in the access rights or the rota of any tenant."""
    named = {
        item
        for tenant in config.tenants_of_chat.values()
        for ones in tenant.verbs.values()
        for item in ones
        if item.startswith("S")
    }
    rotas = {tenant.on_call.group for tenant in config.tenants_of_chat.values() if tenant.on_call is not None}
    return tuple(sorted(named | {group for group in rotas if group is not None}))


def members(database: Database, group: str) -> frozenset[str]:
    """Return the members of a group as last read; empty if it was never read."""
    with database.errors(), database.session() as session:
        row = session.get(MembersRow, group)
        if row is None or row.at < datetime.now(UTC) - OLDEST:
            return frozenset()
        return frozenset(msgspec.json.decode(row.members, type=list[str]))


def refresh(database: Database, client: WebClient, groups: Iterable[str]) -> None:
    """Read stale groups from Slack. Log a failure and keep the old members."""
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


def read_names(database: Database, client: WebClient) -> None:
    """Read the names of people who did something with an incident, for pages and the terminal. Log a failure and try later."""
    now, found = datetime.now(UTC), {}
    for user in unnamed(database, now):
        try:
            told = client.api_call("users.info", data={"user": user}).get("user") or {}
        except SlackApiError as error:
            if error.response.get("error") != "user_not_found":
                _log.warning("failed to read the name of user %s: %s", user, error.response.get("error"))
                break
            told = {}
        except (SlackClientError, OSError) as error:
            _log.warning("failed to read the name of user %s: %s", user, type(error).__name__)
            break
        profile = told.get("profile") or {}
        found[user] = str(profile.get("display_name") or told.get("name") or told.get("real_name") or "")
    if found:
        store_names(database, found, now)
