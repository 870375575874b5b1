"""Two tenants with shared and private incidents, and the app with its listeners, all in this process; Slack is a recorder."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import slack_bolt
from slack_bolt import BoltRequest
from slack_sdk import WebClient
from slack_sdk.web import SlackResponse

from bot.config.chat import Tenant
from bot.config.rules import PullRequests, Rules
from bot.config.settings import Cluster, Config
from bot.incidents.exclusions import propose_within
from bot.incidents.ledger import Ledger
from bot.notify.choices import add_choices
from bot.policy.permissions import Profile
from bot.queue.payloads import DiagnosePayload
from bot.render.report_json import dumps
from bot.rulebase.loader import Knowledge
from bot.slack import app as slack_app
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.sender import Sender
from bot.slack.presence import Presence
from bot.slack.use_cases.access import People
from bot.slack.use_cases.services import UseCases, use_cases
from bot.store.packed_reports import Origin
from bot.store.states import PostingState
from bot.store.tables import DraftRow, MuteRow, PostingRow
from tests.support.bot_samples import FALLEN_GPU

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
OWN, ELSE = "T0OWN", "T0ELSE"
RED, BLUE = "red", "blue"
CHANNELS = {RED: "C0RED", BLUE: "C0BLUE"}
UNLISTED = "C0UNLISTED"
VERBS = ("read", "diagnose", "annotate", "mute", "bar", "propose_rule", "digest", "admin")
GROUP = "S0ALL"


@dataclass(frozen=True)
class Someone:
    """A person. `kind`: as Slack knows them; `listed`: the verbs that name them in tenant red."""

    id: str
    kind: str = "member"
    listed: tuple[str, ...] = ()
    grouped: bool = False


ADA = Someone("U0ADA", listed=VERBS[:-1])  # asked privately in both tenants
BOSS = Someone("U0ADMIN", listed=VERBS)
NOBODY = Someone("U0NOBODY")
PEOPLE = (
    ADA,
    BOSS,
    NOBODY,
    *(Someone(f"U0ONLY{verb.replace('_', '').upper()}", listed=(verb,)) for verb in VERBS),
    Someone("U0GROUPED", listed=VERBS[:-1], grouped=True),
    Someone("U0GUEST", "guest"),
    Someone("U0GUESTNAMED", "guest", VERBS[:-1]),
    Someone("U0OUTSIDE", "outside", VERBS),
    Someone("U0UNKNOWN", "unknown", VERBS),
)
PROFILES = {
    "member": Profile(frozenset({OWN})),
    "guest": Profile(frozenset({OWN}), guest=True),
    "outside": Profile(frozenset({ELSE})),
    "unknown": None,
}
CONFIG = Config(
    clusters=(Cluster("red-cluster", RED), Cluster("blue-cluster", BLUE)),
    rules=Rules(pull_requests=PullRequests("local", "/nowhere/rules")),
    tenants_of_chat={
        RED: Tenant(
            channels=(CHANNELS[RED],),
            verbs={
                verb: (*(item.id for item in PEOPLE if verb in item.listed and not item.grouped), GROUP)
                if verb != "admin"
                else tuple(item.id for item in PEOPLE if verb in item.listed)
                for verb in VERBS
            },
            admins_see_private=True,
        ),
        BLUE: Tenant(channels=(CHANNELS[BLUE],)),  # nothing set: everyone may do everything but administer
    },
)


@dataclass(frozen=True)
class Target:
    """An incident with its handles. `marker`: a word that only its texts contain; `private_to`: who asked privately.

    `message`, `listed`, `reminder`, `draft`, `job`: handles of its message, of a row in a list, of a reminder to its owner, of a
    rule draft, of its job in a list of jobs, and of a mute in a list of mutes. `channel`: that of its message and draft.
    """

    marker: str
    tenant: str
    number: int
    channel: str
    private_to: str | None = None
    message: str = ""
    listed: str = ""
    reminder: str = ""
    draft: str = ""
    job: str = ""
    mute: str = ""


@dataclass
class Seen:
    """What came of a delivery: all texts that went out, whether a form opened, and whether a table changed."""

    status: int = 0
    texts: list[str] = field(default_factory=list)
    opened: bool = False
    wrote: bool = False

    @property
    def text(self) -> str:
        """All texts as one."""
        return "\n".join(self.texts)


class Inline(Executor):
    """Runs listeners at once: a delivery is over when the app has answered."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it."""
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Scene:
    """See the module. `listeners`: kind and name of everything that was registered with the app."""

    def __init__(self, folder: Path, known: Knowledge) -> None:
        self.folder = folder
        self.place = folder / "rights.db"
        self.ledger = Ledger(f"sqlite:///{self.place}")
        self.listeners: list[tuple[str, str]] = []
        self.seen = Seen()
        self._number = 0
        profiles = {item.id: PROFILES[item.kind] for item in PEOPLE}
        grouped = [item.id for item in PEOPLE if item.grouped]
        people = People(lambda group: grouped if group == GROUP else (), profiles.get, frozenset({OWN}))
        faults = {fault.id: fault.title for fault in known.rulebook.faults.values()}
        self.use_cases: UseCases = use_cases(self.ledger, CONFIG, people, faults, NOW.timestamp)
        composer = Composer(self.ledger, known, CONFIG, now=NOW.timestamp)
        client = WebClient("xoxb-nobody")
        with patch.object(slack_app, "App", self._recording()), patch.object(WebClient, "api_call", self._called):
            self.app = slack_app.build(self.use_cases, composer, client, signing_secret=None)
        self.app.listener_runner.listener_executor = Inline()
        self.sender = Sender(self.ledger, client, composer, clock=lambda: NOW, pace=0.0)
        self.targets = tuple(self._filled())
        with closing(sqlite3.connect(self.place)) as now:
            self._before = sqlite3.connect(":memory:")
            now.backup(self._before)
        self._watch = sqlite3.connect(self.place)
        self._tables = self._state()
        self._version = self._changes()

    def close(self) -> None:
        """Close the databases."""
        self._watch.close()
        self._before.close()
        self.ledger.close()

    def _recording(self) -> type[slack_bolt.App]:
        listeners = self.listeners

        class Recording(slack_bolt.App):
            """Notes what is registered."""

        for kind in ("command", "event", "shortcut", "action", "options", "view"):

            def register(app: Any, name: str, *more: Any, kind: str = kind, **options: Any) -> Any:
                listeners.append((kind, name))
                return getattr(slack_bolt.App, kind)(app, name, *more, **options)

            setattr(Recording, kind, register)
        return Recording

    # -- the store ----------------------------------------------------------------------------------------------------

    def _filled(self) -> Iterator[Target]:
        for tenant in (RED, BLUE):
            yield self._target(f"{tenant}-shared", tenant, CHANNELS[tenant])
            yield self._target(f"{tenant}-second", tenant, CHANNELS[tenant])
            yield self._target(f"{tenant}-private", tenant, direct(ADA.id), ADA.id)

    def _target(self, marker: str, tenant: str, channel: str, private_to: str | None = None) -> Target:
        job = replace(FALLEN_GPU.job, id=f"id-{marker}", name=marker)
        decision = replace(
            FALLEN_GPU.decision, exclude=(replace(FALLEN_GPU.decision.exclude[0], node=f"node-{marker}"),)
        )
        report = replace(FALLEN_GPU, id=marker, fingerprint=marker, job=job, decision=decision)
        origin = Origin(tenant, f"{tenant}-cluster", NOW, private_to=private_to)
        number = self.ledger.incidents.add(dumps(report), report, b"a line", None, NOW, origin=origin)
        rows = (
            ("message", channel, PostingState.ANSWERED, ADA.id),
            ("reminder", direct(ADA.id), PostingState.REMINDER, ADA.id),
        )
        with self.ledger.database.session(write=True) as session:
            for kind, where, state, asked_by in rows:
                session.add(
                    PostingRow(
                        handle=f"{kind}-{number}", once=f"{kind}-{number}", tenant=tenant, channel=where, ts=f"1.{number}",
                        incident_id=number, asked_by=asked_by, state=state, sent=1, created_at=NOW, ready_at=NOW,
                    )
                )  # fmt: skip
            session.add(
                DraftRow(
                    handle=f"draft-{number}", tenant=tenant, incident_id=number, who=ADA.id,
                    channel=channel if private_to is None else ADA.id, at=NOW,
                )
            )  # fmt: skip
            propose_within(session, report, tenant=tenant, cluster=f"{tenant}-cluster", incident=number, now=NOW)
            order = {"order": DiagnosePayload(f"job-{marker}", tenant, source="slack", private_to=private_to)}
            muted = MuteRow(
                key=f"mute-{number}", tenant=tenant, kind="job", what=f"muted-{number}", until=NOW + timedelta(days=1),
                at=NOW, who=ADA.id,
            )  # fmt: skip
            session.add(muted)
            session.flush()
            payloads = [
                json.dumps({"incident": number}),
                json.dumps(order, default=_plain),
                json.dumps({"mute": muted.id}),
            ]
            listed, job_handle, mute_handle = add_choices(session, tenant, payloads, NOW)
        return Target(
            marker, tenant, number, channel, private_to, f"message-{number}", listed, f"reminder-{number}",
            f"draft-{number}", job_handle, mute_handle,
        )  # fmt: skip

    def restore(self) -> None:
        """Put everything back as it was, but for the log of access."""
        with closing(sqlite3.connect(self.place, isolation_level=None)) as now:
            now.execute("PRAGMA synchronous = OFF")
            if self.seen.wrote:
                self._before.backup(now)
            else:
                now.executescript("BEGIN; DELETE FROM outbox; DELETE FROM presence; DELETE FROM seen; COMMIT")
        self.use_cases.access.presence = Presence(self.ledger.database)

    def mark(self) -> None:
        """What is stored now counts as unchanged."""
        if self._changes() != self._version:
            self._tables, self._version = self._state(), self._changes()

    def _changes(self) -> int:
        found: int = self._watch.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _state(self) -> list[Any]:
        """What is stored, but for replies, logs of access and handles."""
        found: list[Any] = [
            self._watch.execute("SELECT * FROM outbox WHERE method NOT IN ('reply', 'home')").fetchall()
        ]
        tables = ("annotation", "step", "mute", "bar", "draft", "request", "work", "looked", "incident")
        found += [self._watch.execute(f"SELECT * FROM {table}").fetchall() for table in tables]  # noqa: S608
        return [*found, self._watch.execute("SELECT id, state, facts, version, ready_at FROM posting").fetchall()]

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def trigger(self) -> str:
        """Return a new id of a delivery."""
        self._number += 1
        return f"trigger-{self._number}"

    def used(self, who: str, channel: str) -> None:
        """Let a person have used a channel a moment ago."""
        self.use_cases.access.presence.note(who, channel, NOW)

    def deliver(self, body: dict[str, Any]) -> Seen:
        """Deliver, send all that follows, and return what came of it."""
        self.seen = Seen()
        with patch.object(WebClient, "api_call", self._called), patch.object(httpx, "post", self._posted):
            answer = self.app.dispatch(BoltRequest(body=body, mode="socket_mode"))
            self.seen.status = answer.status
            self.seen.texts.append(str(answer.body))
            self._sent()
        if self._changes() != self._version:
            self.seen.wrote = self._state() != self._tables
        return self.seen

    def _sent(self) -> None:
        """Read the replies; let those that are composed when they are sent be composed."""
        for method, payload in self._watch.execute("SELECT method, payload FROM outbox").fetchall():
            self.seen.texts.append(payload)
            told = json.loads(payload)
            if method == "reply" and told.get("form") == "incident":
                self.seen.texts.append(repr(self.sender.composer.reply(told)))
            elif method == "home":
                self.sender.step()

    def _called(self, method: str, *, json: Any = None, data: Any = None, params: Any = None, **_: Any) -> Any:
        told = {"ok": True, "ts": "1.9", "channel": "C0", "team_id": OWN, "user_id": "U0BOT", "bot_id": "B0BOT"}
        told |= {"upload_url": "https://files.example/1", "file_id": "F1"}
        body = json or data or params or {}
        if method != "auth.test":
            self.seen.texts.append(repr(body))
            self.seen.opened |= method == "views.open"
        return SlackResponse(
            client=None, http_verb="POST", api_url=method, req_args={}, data=told, headers={}, status_code=200
        )

    def _posted(self, _address: str, **body: Any) -> httpx.Response:
        self.seen.texts.append(repr(body))
        return httpx.Response(200)


def direct(user: str) -> str:
    """The direct conversation of a person with the app."""
    return f"D{user[1:]}"


def _plain(item: Any) -> Any:
    return {name: getattr(item, name) for name in item.__struct_fields__}


@contextmanager
def scene(folder: Path, known: Knowledge) -> Iterator[Scene]:
    """A scene, until the block ends."""
    made = Scene(folder, known)
    try:
        yield made
    finally:
        made.close()
