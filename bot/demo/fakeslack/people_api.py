"""Methods for people, groups, conversations and the app itself."""

from __future__ import annotations

from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import ApiError, Json, User, UserGroup


def who_am_i(state: State, _: Arguments) -> Json:
    """auth.test."""
    return {
        "ok": True,
        "url": f"{state.base_url}/",
        "team": state.domain,
        "user": state.app.name,
        "team_id": state.team,
        "user_id": state.app.user,
        "bot_id": state.app.bot,
        "is_enterprise_install": False,
    }


def user_of(state: State, arguments: Arguments) -> Json:
    """users.info."""
    user = state.users.get(arguments.required("user"))
    if user is None:
        raise ApiError("user_not_found")
    return {"ok": True, "user": user_json(state, user)}


def user_json(state: State, user: User) -> Json:
    """Return a user as the API does, without the e-mail address, which needs its own scope."""
    shown = user.real_name or user.name
    return {
        "id": user.id,
        "team_id": user.team or state.team,
        "name": user.name,
        "deleted": False,
        "is_restricted": user.guest,
        "is_ultra_restricted": False,
        "real_name": shown,
        "tz": user.tz,
        "profile": {"real_name": shown, "display_name": user.name},
        "is_bot": user.is_bot,
        "is_admin": False,
        "is_owner": False,
    }


def groups(state: State, arguments: Arguments) -> Json:
    """usergroups.list."""
    kept = [group for group in state.groups.values() if group.enabled or arguments.flag("include_disabled")]
    return {"ok": True, "usergroups": [_group(state, item, users=arguments.flag("include_users")) for item in kept]}


def _group(state: State, group: UserGroup, *, users: bool) -> Json:
    fields: Json = {
        "id": group.id,
        "team_id": state.team,
        "is_usergroup": True,
        "name": group.name,
        "handle": group.handle,
        "date_delete": 0 if group.enabled else 1,
        "user_count": len(group.members),
    }
    if users:
        fields["users"] = list(group.members)
    return fields


def group_members(state: State, arguments: Arguments) -> Json:
    """usergroups.users.list."""
    group = state.groups.get(arguments.required("usergroup"))
    if group is None or (not group.enabled and not arguments.flag("include_disabled")):
        raise ApiError("no_such_subteam")
    return {"ok": True, "users": list(group.members)}


def open_conversation(state: State, arguments: Arguments) -> Json:
    """conversations.open, with one user."""
    users = [text for text in arguments.text("users").split(",") if text]
    if len(users) != 1:
        raise ApiError("invalid_arguments", "this double opens conversations with one user only [json-pointer:/users]")
    if users[0] not in state.users:
        raise ApiError("user_not_found")
    return {"ok": True, "channel": {"id": state.direct(users[0]).id}}


def team(state: State, _: Arguments) -> Json:
    """team.info."""
    return {"ok": True, "team": {"id": state.team, "name": state.domain, "domain": state.domain}}
