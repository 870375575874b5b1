"""Sends messages until Slack shows what the ledger says, even if a sender dies halfway.

It runs in a separate process, so no listener waits for Slack to answer. Uploads and calls to other systems have a thread of their own,
so no message waits for them. It respects the rate limits: one message per second and channel, and Retry-After. Anything that Slack rejects
permanently is logged and dropped.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.digest.attachments import DigestFile, files_of
from bot.digest.schedule import FILES, numbers_of
from bot.incidents.ledger import Ledger
from bot.learning.drafts.store import draft_of
from bot.notify.messages import Posting
from bot.notify.outbox import GIVEN_UP, OutboxItem
from bot.runtime import metrics
from bot.slack.blocks.limits import Message
from bot.slack.delivery.api_errors import NotSent, refused_call
from bot.slack.delivery.attachments import Attachment, attachments
from bot.slack.delivery.compose import WHOLE_AT_ONCE, Composer
from bot.slack.delivery.masked_client import masked_texts
from bot.slack.messages.home import home, no_home
from bot.store.change_watch import poll
from bot.store.database import StoreError
from bot.store.states import OutboxState, PostingState
from bot.store.visibility import Viewer

IDLE = 0.2  # seconds between polls of an idle ledger
A_CHANNEL = 1.1  # seconds between two new messages in one channel
SETTLE = 1.0  # seconds between checks for failed tasks and lost workers
LONGEST_PAUSE = 300.0
EDITS = 40  # progress edits per minute; Slack allows about 50 edits in total
TIMEOUT = 10.0
_UPLOADS = ("files", FILES)

_log = logging.getLogger(__name__)


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that httpx trusts, which it would otherwise read again for each request."""
    return httpx.create_ssl_context()


@dataclass(slots=True)
class Sender:
    """Sends messages, files, replies to one person and home tabs.

    `more`: senders for other outbox methods, by name. `pace`: seconds between two new messages in one channel.
    """

    ledger: Ledger
    client: WebClient
    composer: Composer
    more: dict[str, Callable[[OutboxItem], None]] = field(default_factory=dict)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    pace: float = A_CHANNEL
    _posted: dict[str, float] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)
    _edits: list[float] = field(default_factory=list)
    _settled: float = 0.0

    def run(self, stop: Callable[[], bool]) -> None:
        """Send until stopped. Retry when the store is unavailable."""
        over, slow = threading.Event(), (*_UPLOADS, *self.more)
        with suppress(StoreError):
            self.ledger.messages.release_edits()
        beside = threading.Thread(
            target=self._repeat, args=(lambda: self._next_item(self.clock(), only=slow), over.is_set), daemon=True
        )
        beside.start()
        try:
            self._repeat(lambda: self._messages(without=slow), stop)
        finally:
            over.set()
            beside.join(TIMEOUT)

    def _repeat(self, send: Callable[[], bool], stop: Callable[[], bool]) -> None:
        poll(self.ledger.database, send, stop, idle=IDLE, what="send messages")

    def step(self) -> bool:
        """Send one message and one outbox item of any kind. Return whether there was anything to send."""
        return self._messages()

    def _messages(self, without: Collection[str] = ()) -> bool:
        """Send one message and one outbox item, but none of the methods `without`."""
        now = self.clock()
        if time.monotonic() - self._settled > SETTLE:
            self._settled = time.monotonic()
            self.ledger.requests.answer_failed(now)
            self.ledger.lost_workers.show(now)
        posting = self.ledger.messages.claim_message(now)
        if posting is not None:
            self._post(posting, now)
        return self._next_item(now, without=without) or posting is not None

    def _next_item(self, now: datetime, *, only: Collection[str] | None = None, without: Collection[str] = ()) -> bool:
        """Send one outbox item; whether there was one."""
        item = self.ledger.outbox.claim_outbox_item(now, only=only, without=without)
        if item is not None:
            self._send_item(item, now)
        return item is not None

    # -- messages ------------------------------------------------------------------------------------------------------

    def _post(self, posting: Posting, now: datetime) -> None:
        try:
            if posting.ts is None:
                self._open(posting, now)
            else:
                self._edit(posting, now)
        except NotSent as problem:
            self._not_posted(posting, problem, now)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - top-level handler: one failure must not stop the others
            _log.exception("failed to compose message %d", posting.id)
            self.ledger.messages.retry_later(
                posting, now + self._pause(posting.tries), f"{type(error).__name__}: {error}"
            )

    def _open(self, posting: Posting, now: datetime) -> None:
        if not self.composer.wanted(posting):
            self.ledger.messages.mark_gone(posting, "no longer needed")
            return
        wait = self._posted.get(posting.channel, 0.0) + self.pace - time.monotonic()
        if wait > 0:
            self.ledger.messages.retry_later(posting, now + timedelta(seconds=wait), "")
            return
        message = self.composer.opening(posting)
        self._posted[posting.channel] = time.monotonic()
        answer = self._message("chat.postMessage", message, channel=posting.channel, thread_ts=posting.thread)
        # These messages are complete when posted. All others are edited afterwards.
        sent = posting.version if posting.state in WHOLE_AT_ONCE else 0
        ts, channel = str(answer["ts"]), str(answer["channel"])
        if not self.ledger.messages.mark_delivered(posting, ts, channel, sent, self.clock()):
            with suppress(NotSent):  # if it cannot be deleted, the opening text stays
                self._call("chat.delete", {"channel": channel, "ts": ts})

    def _edit(self, posting: Posting, now: datetime) -> None:
        if posting.state == PostingState.COLLECTING and not self._room(now) and not posting.facts.get("at_once"):
            self.ledger.messages.retry_later(posting, now + timedelta(seconds=3), "")
            return
        message = self.composer.message(posting)
        self._message("chat.update", message, channel=posting.channel, ts=posting.ts)
        self.ledger.messages.mark_delivered(posting, posting.ts or "", posting.channel, posting.version, self.clock())

    def _room(self, now: datetime) -> bool:
        """Whether the rate limit allows an edit that only shows progress."""
        at = now.timestamp()
        self._edits = [edit for edit in self._edits if at - edit < 60.0]
        if len(self._edits) >= EDITS:
            return False
        self._edits.append(at)
        return True

    def _message(self, method: str, message: Message, **where: Any) -> Any:
        body: dict[str, Any] = {"text": message.text, **where}
        if method == "chat.postMessage":
            body |= {"unfurl_links": False, "unfurl_media": False}
        body = {key: value for key, value in body.items() if value is not None}
        try:
            return self._call(method, {**body, "blocks": list(message.blocks)})
        except NotSent as problem:
            if problem.kind != "blocks":
                raise
            # Slack has a rule that the renderer does not know about: send the text without blocks
            _log.error("%s refused blocks: %s", method, problem)
            return self._call(method, {**body, "blocks": []} if method == "chat.update" else body)

    def _not_posted(self, posting: Posting, problem: NotSent, now: datetime) -> None:
        if problem.kind == "later" and now - posting.created_at < GIVEN_UP:
            pause = timedelta(seconds=problem.pause) if problem.pause is not None else self._pause(posting.tries)
            self.ledger.messages.retry_later(posting, now + pause, str(problem))
        elif (
            problem.kind == "place" and posting.ts is None and posting.asked_by and posting.channel != posting.asked_by
        ):
            note = {"nowhere": posting.channel}  # the answer goes to the requester instead and says why
            self.ledger.messages.redirect(posting, posting.asked_by, note, now)
        else:
            _log.warning("giving up on message %d in %s: %s", posting.id, posting.channel, problem)
            self.ledger.messages.mark_gone(posting, str(problem))
            if problem.kind == "place":
                self.ledger.requests.tell_undelivered(posting, problem.said, now)

    # -- outbox items --------------------------------------------------------------------------------------------------

    def _send_item(self, item: OutboxItem, now: datetime) -> None:
        send = {
            "reply": self._reply,
            "ready": self._ready,
            "evidence": self._evidence,
            "files": self._files,
            FILES: self._files,
            "home": self._home,
            "view": self._view,
            **self.more,
        }.get(item.method)
        if send is None:
            self.ledger.outbox.set_item_state(item, OutboxState.FAILED, f"unknown outbox method {item.method!r}")
            return
        try:
            if item.state == OutboxState.COMPLETING:
                # Slack received everything it needed. It is unknown whether it finished, and a retry could post twice.
                self.ledger.outbox.set_item_state(item, OutboxState.SENT, "the sender died while Slack processed it")
                return
            send(item)
        except NotSent as problem:
            if problem.kind == "later" and now - item.created_at < GIVEN_UP:
                pause = timedelta(seconds=problem.pause) if problem.pause is not None else self._pause(item.tries)
                self.ledger.outbox.set_item_state(item, OutboxState.WAITING, str(problem), now + pause)
            else:
                _log.warning("giving up on %s %d: %s", item.method, item.id, problem)
                self.ledger.outbox.set_item_state(item, OutboxState.FAILED, str(problem))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - as above; errors of other systems (SourceFailed) are retried
            _log.exception("failed to prepare %s %d", item.method, item.id)
            if item.tries >= 5:
                self.ledger.outbox.set_item_state(item, OutboxState.FAILED, f"{type(error).__name__}: {error}")
            else:
                self.ledger.outbox.set_item_state(
                    item, OutboxState.WAITING, type(error).__name__, now + self._pause(item.tries)
                )
        else:
            self.ledger.outbox.set_item_state(item, OutboxState.SENT)

    def _reply(self, item: OutboxItem) -> None:
        """Reply to one person: through the reply URL if there is one, else as an ephemeral message."""
        message = self.composer.reply(item.payload)
        address = item.payload.get("reply_to")
        if isinstance(address, str):
            body = {"response_type": "ephemeral", "text": message.text, "blocks": list(message.blocks)}
            try:
                told = self._post_to(address, json=masked_texts(body), timeout=TIMEOUT)
            except httpx.HTTPError as error:
                raise NotSent("later", f"the reply URL: {type(error).__name__}") from None
            if told.status_code == httpx.codes.OK:
                return
            if told.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                raise NotSent("later", f"the reply URL: {told.status_code}")
        who, channel = str(item.payload["who"]), str(item.payload["channel"])
        if channel.startswith("D"):  # "D" alone stands for the Home tab
            self._message("chat.postMessage", message, channel=channel if channel != "D" else who)
            return
        try:
            self._message(
                "chat.postEphemeral", message, channel=channel, user=who, thread_ts=item.payload.get("thread_ts")
            )
        except NotSent as problem:
            if problem.kind != "place":
                raise
            self._message("chat.postMessage", message, channel=who)

    def _ready(self, item: OutboxItem) -> None:
        """Tell those who asked that the answer is there, in the thread of its message."""
        if item.posting is not None:
            who = [str(name) for name in item.payload.get("who", ())]
            self._post_below(item, item.posting, self.composer.ready(item.posting, who))

    def _evidence(self, item: OutboxItem) -> None:
        """Post the evidence in the thread of a message."""
        if item.posting is not None:
            self._post_below(item, item.posting, self.composer.evidence(int(item.payload["incident"])))

    def _post_below(self, item: OutboxItem, posting: Posting, message: Message) -> None:
        """Post in the thread of a message, at most once: what is said twice is worse than what the message itself says."""
        if posting.ts is None:
            raise NotSent("refused", "its message does not exist")
        self.ledger.outbox.set_item_state(item, OutboxState.COMPLETING)
        where = {"channel": posting.channel, "thread_ts": posting.thread or posting.ts}
        self._message("chat.postMessage", message, **where)

    def _home(self, item: OutboxItem) -> None:
        tenant, user = item.tenant, str(item.payload["who"])
        if not item.payload.get("shown"):
            view = no_home(tuple(item.payload.get("ask") or ()))
        else:
            viewer = Viewer(user, everything=bool(item.payload.get("all_private")))
            view = home(
                self.composer.lists.incidents(tenant, viewer, limit=10),
                self.composer.lists.clusters(tenant),
                now=self.composer.now(),
                total=self.ledger.incidents.count(self.composer.lists.listing(tenant, viewer)),
                overview=self.composer.page(tenant, None, None),
            )
        self._call("views.publish", {"user_id": user, "view": view})

    def _view(self, item: OutboxItem) -> None:
        """Update a form that was opened before its draft existed."""
        draft = draft_of(self.ledger.database, str(item.payload["draft"]))
        if draft is None or draft.version != item.payload["version"]:
            return  # the draft has changed in the meantime
        self._call("views.update", {"external_id": draft.handle, "view": self.composer.forms.rule_form(draft)})

    def _files(self, item: OutboxItem) -> None:
        """Upload the evidence and the timeline to the thread of a message."""
        posting = item.posting
        if posting is None or posting.ts is None:
            raise NotSent("refused", "its message does not exist")
        files = self._wanted(item)
        if not files:
            return
        uploaded = [self._upload(file) for file in files]
        self.ledger.outbox.set_item_state(item, OutboxState.COMPLETING)
        self._call(
            "files.completeUploadExternal",
            {"files": uploaded, "channel_id": posting.channel, "thread_ts": posting.thread or posting.ts},
        )

    def _wanted(self, item: OutboxItem) -> Sequence[Attachment | DigestFile]:
        """Return the files of an incident or a digest."""
        if item.method == FILES:
            numbers = numbers_of(self.ledger.database, item.tenant, str(item.payload["week"]))
            return files_of(numbers) if numbers is not None else ()
        incident, asked = int(item.payload["incident"]), bool(item.payload.get("asked"))
        if asked and attachments(self.ledger, incident):
            return ()  # they came with the answer
        return attachments(self.ledger, incident, asked=asked)

    def _upload(self, file: Attachment | DigestFile) -> dict[str, str]:
        asked = {"filename": file.name, "length": len(file.content), "alt_txt": file.alt or None}
        given = self._call("files.getUploadURLExternal", {key: value for key, value in asked.items() if value})
        try:
            told = self._post_to(given["upload_url"], content=file.content, timeout=60.0)
        except httpx.HTTPError as error:
            raise NotSent("later", f"the upload of {file.name}: {type(error).__name__}") from None
        if told.status_code != httpx.codes.OK:
            raise NotSent("later", f"the upload of {file.name}: {told.status_code}")
        return {"id": str(given["file_id"]), "title": file.title}

    def _post_to(self, url: str, **options: Any) -> httpx.Response:
        return httpx.post(url, proxy=self.client.proxy, verify=_certificates(), **options)

    # -- API calls -----------------------------------------------------------------------------------------------------

    def _call(self, method: str, body: dict[str, Any]) -> Any:
        """Call a method of the Slack API.

        Raises:
            NotSent: Slack did not accept the call.
        """
        held = self._held.get(method, 0.0) - time.monotonic()
        if held > 0:
            raise NotSent("later", "Slack's rate limit", held)
        began, outcome = time.perf_counter(), "ok"
        try:
            if method == "files.getUploadURLExternal":
                return self.client.api_call(method, data=body)
            return self.client.api_call(method, json=body)
        except SlackApiError as error:
            refused = refused_call(method, error)
            if refused.pause is not None and error.response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                self._held[method] = time.monotonic() + refused.pause
            outcome = refused.kind
            raise refused from None
        except (SlackClientError, OSError, httpx.HTTPError) as error:
            outcome = "unreachable"
            raise NotSent("later", f"{method}: {type(error).__name__}") from None
        finally:
            metrics.count("slack_calls", method, outcome)
            metrics.timed("slack_seconds", time.perf_counter() - began, method)

    @staticmethod
    def _pause(tries: int) -> timedelta:
        return timedelta(seconds=min(2.0 ** min(tries, 9), LONGEST_PAUSE))
