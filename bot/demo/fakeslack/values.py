"""Values of a workspace: people, channels, messages, files, views, and the record of calls and deliveries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SCOPES = ("commands", "chat:write", "files:write", "app_mentions:read", "usergroups:read", "users:read")


class ApiError(Exception):
    """A call that Slack rejects. `error`: Slack's code; `messages`: the reasons; `more`: other fields of the response."""

    def __init__(self, error: str, *messages: str, **more: Any) -> None:
        self.error = error
        self.messages = messages
        self.more = more
        super().__init__(f"{error}: {'; '.join(messages)}" if messages else error)

    def body(self) -> Json:
        """The JSON response."""
        content: Json = {"ok": False, "error": self.error, **self.more}
        if self.messages:
            content["errors"] = list(self.messages)
            content["response_metadata"] = {"messages": [f"[ERROR] {message}" for message in self.messages]}
        return content


class NotPossible(Exception):  # noqa: N818 - shown to users
    """Something that Slack's client would not let a user do, in words. `block`: the block of a modal that it is about."""

    def __init__(self, words: str, block: str = "") -> None:
        self.block = block
        super().__init__(words)


@dataclass(frozen=True, slots=True)
class App:
    """The app as configured at Slack.

    `commands`: its slash commands; `shortcuts`: its message shortcuts, callback_id to title; `scopes`: of the bot token.
    """

    id: str = "A0SIGNALBOX"
    name: str = "signalbox"
    user: str = "U0SIGNALBOX"
    bot: str = "B0SIGNALBOX"
    bot_token: str = "xoxb-local-double"  # noqa: S105 - only valid for the double
    app_token: str = "xapp-local-double"  # noqa: S105
    signing_secret: str = "signs what the local double sends"  # noqa: S105
    token: str = "local-verification"  # noqa: S105 - the old verification token, still in every payload
    scopes: tuple[str, ...] = SCOPES
    commands: tuple[str, ...] = ("/diagnose", "/signalbox")
    shortcuts: Mapping[str, str] = field(default_factory=lambda: {"diagnose_message": "Diagnose job in this message"})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody in a channel of the workspace. `guest`: a multi-channel guest; `team`: their own workspace, if another."""

    id: str
    name: str
    real_name: str = ""
    is_bot: bool = False
    tz: str = "Europe/Berlin"
    guest: bool = False
    team: str = ""


@dataclass(frozen=True, slots=True)
class UserGroup:
    """A user group; `handle` is what people type after the @."""

    id: str
    handle: str
    name: str
    members: tuple[str, ...] = ()
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Channel:
    """A conversation. `direct`: between the app and one user, who is its only other member."""

    id: str
    name: str
    members: frozenset[str] = frozenset()
    private: bool = False
    direct: bool = False
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `only_for`: the only user who sees it; `by_slack`: a notice by Slack itself, such as for a failed command."""

    channel: str
    ts: str
    user: str
    text: str
    blocks: tuple[Json, ...] = ()
    thread_ts: str | None = None
    edited: str | None = None
    files: tuple[str, ...] = ()
    metadata: Json | None = None
    only_for: str | None = None
    by_slack: bool = False
    by_app: bool = False


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file: announced with its `length`, then uploaded, then completed; `shared`: (channel, ts) of its messages."""

    id: str
    name: str
    length: int
    upload: str
    at: int
    title: str = ""
    data: bytes | None = None
    completed: bool = False
    shared: tuple[tuple[str, str], ...] = ()

    @property
    def mimetype(self) -> str:
        """The MIME type by file extension, as far as this double distinguishes types."""
        return {"png": "image/png", "json": "application/json", "html": "text/html", "pdf": "application/pdf"}.get(
            self.name.rpartition(".")[2].lower(), "text/plain"
        )


@dataclass(frozen=True, slots=True)
class View:
    """A modal or Home tab. `typed`: (block_id, action_id) to a value of `state.values`, as entered so far.

    `offered`: (block_id, action_id) to the options that the app suggested; `errors`: block_id to error text from the app.
    """

    id: str
    user: str
    source: Json
    hash: str
    root: str
    previous: str | None = None
    typed: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    offered: Mapping[tuple[str, str], tuple[Json, ...]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    trouble: str | None = None

    @property
    def blocks(self) -> list[Json]:
        """Its blocks."""
        blocks: list[Json] = self.source["blocks"]
        return blocks


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of the Web API (or of a response_url, or an upload), with its response."""

    at: float
    method: str
    arguments: Json
    status: int
    answer: Json

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return bool(self.answer.get("ok"))


@dataclass(frozen=True, slots=True)
class AppResponse:
    """The response of one app address to one delivery.

    Attributes:
        error: Slack's error code if it is no acknowledgement, else None.
        last: Whether it asked for no retry (X-Slack-No-Retry).
    """

    where: str
    seconds: float
    status: int | None = None
    body: bytes = b""
    content_type: str = ""
    error: str | None = None
    last: bool = False

    def json(self) -> Json:
        """The body as a JSON object; empty if it is none."""
        try:
            content = json.loads(self.body)
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A payload sent to the app, with the responses.

    Attributes:
        kind: slash_command, block_actions, view_submission, view_closed, block_suggestion, message_action, event_callback.
        payload: The decoded payload.
        answers: One for each attempt, at least one; more if it was duplicated or retried.
        trouble: What the user sees if it failed; None if it succeeded.
        options: The result of a block_suggestion.
    """

    id: str
    kind: str
    payload: Json
    answers: tuple[AppResponse, ...]
    trouble: str | None = None
    options: tuple[Json, ...] = ()

    @property
    def counted(self) -> AppResponse:
        """The first acknowledgement, else the first failure."""
        return next((answer for answer in self.answers if answer.error is None), self.answers[0])

    @property
    def acknowledged(self) -> bool:
        """Whether an attempt was acknowledged in time."""
        return self.counted.error is None

    @property
    def status(self) -> int | None:
        """The HTTP status that counts; None if there was no response."""
        return self.counted.status

    @property
    def seconds(self) -> float:
        """The duration of the response that counts."""
        return self.counted.seconds

    @property
    def body(self) -> bytes:
        """The body that counts."""
        return self.counted.body
