"""The Web API: its methods, their arguments, and the scopes they need. Everything else is rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from bot.demo.fakeslack import chat_api, files_api, people_api, views_api
from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import ApiError, Json


@dataclass(frozen=True, slots=True)
class Method:
    """A method. `arguments`: space-separated names; `scope`: of the bot token, empty if none is needed."""

    do: Callable[[State, Arguments], Json]
    arguments: str = ""
    scope: str = ""


def _reaction(_: State, arguments: Arguments) -> Json:
    """reactions.add: accepted, shown nowhere."""
    for name in ("channel", "timestamp", "name"):
        arguments.required(name)
    return {"ok": True}


_POST = "channel text blocks attachments thread_ts reply_broadcast unfurl_links unfurl_media mrkdwn metadata parse link_names"
METHODS = MappingProxyType(
    {
        "auth.test": Method(people_api.who_am_i),
        "chat.postMessage": Method(chat_api.post, _POST, "chat:write"),
        "chat.postEphemeral": Method(
            chat_api.ephemeral, "channel user text blocks attachments thread_ts parse link_names", "chat:write"
        ),
        "chat.update": Method(
            chat_api.update,
            "channel ts text blocks attachments metadata parse link_names reply_broadcast",
            "chat:write",
        ),
        "chat.delete": Method(chat_api.delete, "channel ts", "chat:write"),
        "chat.getPermalink": Method(chat_api.permalink, "channel message_ts"),
        "views.open": Method(views_api.open_modal, "trigger_id view"),
        "views.push": Method(views_api.push, "trigger_id view"),
        "views.update": Method(views_api.update, "view_id external_id hash view"),
        "views.publish": Method(views_api.publish, "user_id view hash"),
        "files.getUploadURLExternal": Method(files_api.announce, "filename length alt_txt snippet_type", "files:write"),
        "files.completeUploadExternal": Method(
            files_api.complete, "files channel_id channels thread_ts initial_comment blocks", "files:write"
        ),
        "files.info": Method(files_api.details, "file", "files:read"),
        "usergroups.list": Method(people_api.groups, "include_count include_disabled include_users", "usergroups:read"),
        "usergroups.users.list": Method(people_api.group_members, "usergroup include_disabled", "usergroups:read"),
        "users.info": Method(people_api.user_of, "user include_locale", "users:read"),
        "conversations.open": Method(people_api.open_conversation, "users return_im prevent_creation", "im:write"),
        "reactions.add": Method(_reaction, "channel timestamp name", "reactions:write"),
        "team.info": Method(people_api.team, "team", "team:read"),
    }
)


def call(state: State, name: str, given: Json) -> Json:
    """Run a method with the scopes of the app's bot token.

    Raises:
        ApiError: as Slack rejects it. Unknown arguments are rejected too: Slack ignores them, but they are mistakes.
    """
    method = METHODS.get(name)
    if method is None:
        raise ApiError("unknown_method", req_method=name)
    if method.scope and method.scope not in state.app.scopes:
        raise ApiError("missing_scope", needed=method.scope, provided=",".join(state.app.scopes))
    for item in given:
        if item not in {"token", "team_id"} and item not in method.arguments.split():
            raise ApiError("invalid_arguments", f"no such argument of {name}: {item}")
    if given.get("team_id", state.team) != state.team:  # Bolt sends it with every call
        raise ApiError("invalid_arguments", "no such team [json-pointer:/team_id]")
    with state.lock:
        return method.do(state, Arguments(given))
