"""What a workspace holds: people, channels, messages, files, views, and the record of what was sent where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SCOPES = ("commands", "chat:write", "files:write", "app_mentions:read", "usergroups:read", "users:read")


class ApiError(Exception):
    """A call that Slack refuses. `error`: Slack's word; `messages`: the reasons; `more`: other fields of the answer."""

    def __init__(self, error: str, *messages: str, **more: Any) -> None:
        self.error = error
        self.messages = messages
        self.more = more
        super().__init__(f"{error}: {'; '.join(messages)}" if messages else error)

    def body(self) -> Json:
        """The JSON that is answered."""
        told: Json = {"ok": False, "error": self.error, **self.more}
        if self.messages:
            told["errors"] = list(self.messages)
            told["response_metadata"] = {"messages": [f"[ERROR] {message}" for message in self.messages]}
        return told


class NotPossible(Exception):  # noqa: N818 - what a user is told
    """Something that Slack's own client would not let a user do; in words. `block`: of a modal, where it is about one."""

    def __init__(self, words: str, block: str = "") -> None:
        self.block = block
        super().__init__(words)


@dataclass(frozen=True, slots=True)
class App:
    """The app as configured on its page at Slack.

    `commands`: its slash commands; `shortcuts`: its message shortcuts, callback_id to title; `scopes`: of the bot token.
    """

    id: str = "A0SIGNALBOX"
    name: str = "signalbox"
    user: str = "U0SIGNALBOX"
    bot: str = "B0SIGNALBOX"
    bot_token: str = "xoxb-local-double"  # noqa: S105 - opens nothing but the double
    app_token: str = "xapp-local-double"  # noqa: S105
    signing_secret: str = "signs what the local double sends"  # noqa: S105
    token: str = "local-verification"  # noqa: S105 - the old verification token, still in every payload
    scopes: tuple[str, ...] = SCOPES
    commands: tuple[str, ...] = ("/diagnose", "/signalbox")
    shortcuts: Mapping[str, str] = field(default_factory=lambda: {"diagnose_message": "Diagnose job in this message"})


@dataclass(frozen=True, slots=True)
class User:
    """A member of the workspace."""

    id: str
    name: str
    real_name: str = ""
    is_bot: bool = False
    tz: str = "Europe/Berlin"


@dataclass(frozen=True, slots=True)
class UserGroup:
    """A user group; `handle` is what one types after the @."""

    id: str
    handle: str
    name: str
    members: tuple[str, ...] = ()
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Channel:
    """A conversation. `direct`: between the app and one user, whose id is then the only other member."""

    id: str
    name: str
    members: frozenset[str] = frozenset()
    private: bool = False
    direct: bool = False
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `only_for`: the user who alone sees it; `by_slack`: a notice of Slack itself, as on a failed command."""

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
        """Judged by the name's end, as far as this double tells kinds apart."""
        return {"png": "image/png", "json": "application/json", "html": "text/html", "pdf": "application/pdf"}.get(
            self.name.rpartition(".")[2].lower(), "text/plain"
        )


@dataclass(frozen=True, slots=True)
class View:
    """A modal or Home tab that a user sees. `typed`: (block_id, action_id) to a value of `state.values`, as entered so far.

    `offered`: (block_id, action_id) to the options that the app suggested; `errors`: block_id to the app's words.
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
    """One call of the Web API (or of a response_url, or an upload), as it was asked and answered."""

    at: float
    method: str
    arguments: Json
    status: int
    answer: Json

    @property
    def ok(self) -> bool:
        """Whether Slack did it."""
        return bool(self.answer.get("ok"))


@dataclass(frozen=True, slots=True)
class AppResponse:
    """What one address of the app said to one delivery.

    Attributes:
        error: Slack's word where it is no acknowledgement; None where it is one.
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
        """The body as a JSON object; empty where it is none."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A payload sent to the app, and what came back.

    Attributes:
        kind: slash_command, block_actions, view_submission, view_closed, block_suggestion, message_action, event_callback.
        payload: What was sent, decoded.
        answers: One for each sending, at least one; more where it was doubled or tried again.
        trouble: What the user is told where it failed; None where it went well.
        options: What a block_suggestion gave.
    """

    id: str
    kind: str
    payload: Json
    answers: tuple[AppResponse, ...]
    trouble: str | None = None
    options: tuple[Json, ...] = ()

    @property
    def counted(self) -> AppResponse:
        """The first acknowledgement; the first failure where there is none."""
        return next((answer for answer in self.answers if answer.error is None), self.answers[0])

    @property
    def acknowledged(self) -> bool:
        """Whether one sending was acknowledged in time."""
        return self.counted.error is None

    @property
    def status(self) -> int | None:
        """The HTTP status that counts; None where nothing came back."""
        return self.counted.status

    @property
    def seconds(self) -> float:
        """How long the answer that counts took."""
        return self.counted.seconds

    @property
    def body(self) -> bytes:
        """The body that counts."""
        return self.counted.body
