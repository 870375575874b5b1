"""What it means that Slack did not accept a call: whether a retry can help, and whether another place can."""

from __future__ import annotations

import logging
from typing import Any

import httpx
from slack_sdk.errors import SlackApiError

_NO_PLACE = frozenset(
    {"channel_not_found", "not_in_channel", "is_archived", "restricted_action", "restricted_action_thread_locked",
     "restricted_action_read_only_channel", "messages_tab_disabled", "cannot_dm_bot", "user_not_found", "user_disabled"}
)  # fmt: skip
_DELETED = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
_TOO_MUCH = frozenset({"invalid_blocks", "msg_too_long", "msg_blocks_too_long", "invalid_blocks_format"})
_log = logging.getLogger(__name__)


class NotSent(Exception):  # noqa: N818 - an outcome
    """Slack did not accept a call.

    `kind`: place, deleted, blocks, refused (for good), or later (a retry can help). `said`: Slack's word for the error.
    """

    def __init__(self, kind: str, why: str, pause: float | None = None, said: str = "") -> None:
        self.kind = kind
        self.pause = pause
        self.said = said
        super().__init__(why)


def refused_call(method: str, error: SlackApiError) -> NotSent:
    """Return what an error of Slack means for the call."""
    response: Any = error.response
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        pause = min(float(response.headers.get("Retry-After", 1) or 1), 3600.0)
        return NotSent("later", "Slack's rate limit", pause)
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        return NotSent("later", f"{method}: {response.status_code}")
    said = str(response.data.get("error", "")) if isinstance(response.data, dict) else ""
    for kind, words in (("place", _NO_PLACE), ("deleted", _DELETED), ("blocks", _TOO_MUCH)):
        if said in words:
            return NotSent(kind, f"{method}: {said} {_messages(response.data)}".strip(), said=said)
    if said in (
        "ratelimited",
        "rate_limited",
        "internal_error",
        "fatal_error",
        "service_unavailable",
        "request_timeout",
    ):
        return NotSent("later", f"{method}: {said}")
    if said in (
        "invalid_auth",
        "not_authed",
        "token_revoked",
        "token_expired",
        "account_inactive",
        "missing_scope",
    ):
        _log.error("%s: %s; see docs/slack-setup.md", method, said)
        return NotSent("later", f"{method}: {said}", 60.0)
    return NotSent("refused", f"{method}: {said or response.status_code}")


def _messages(data: Any) -> str:
    """Return why Slack rejected blocks."""
    told = data.get("response_metadata", {}).get("messages", []) if isinstance(data, dict) else []
    return "; ".join(str(item)[:200] for item in told[:3])
