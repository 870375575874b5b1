"""The Bolt app: what Slack delivers, read, written down, acknowledged. Sync; Socket Mode or HTTP, the same listeners.

The manifest (deploy/slack/manifest.yaml) names what is registered here; a test compares the two.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import msgspec
from slack_bolt import Ack, App, BoltResponse
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from bot.incidents.lifecycle import NotNow
from bot.incidents.resolution import NoIncident
from bot.learning.drafts.store import Wish as DraftWish
from bot.notify.requests import RequestOutcome
from bot.render.report_json import from_json
from bot.slack.blocks.limits import Json, Message
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.form_composer import shown_of
from bot.slack.forms import lifecycle
from bot.slack.forms import rule as forms_rule
from bot.slack.forms.close_out import (
    broken,
    done,
    fault_options,
    mute,
    read_close_out,
    read_mute,
    read_which_job,
    which_job,
)
from bot.slack.messages import lists, notices, replies
from bot.slack.parsing.commands import Diagnose, Wrong, after_mention, plain, read_diagnose, read_shift
from bot.slack.parsing.job_names import jobs_named
from bot.slack.use_cases import Desk, NotAllowed, Person, Subject
from kb.errors import SignalboxError

THREADS = 24  # that listen: each writes a row, and may open a form
COMMANDS = ("/diagnose", "/signalbox")
VERBS = ("help", "incidents", "handover", "digest", "rules", "config")
USAGE = f"/signalbox {'|'.join(VERBS)}"
SHORTCUTS = ("diagnose_message",)
EVENTS = ("app_mention", "app_home_opened")
SCOPES = ("app_mentions:read", "chat:write", "commands", "files:write", "usergroups:read", "users:read")
_log = logging.getLogger(__name__)

Body = Mapping[str, Any]


def build(desk: Desk, composer: Composer, client: WebClient, *, signing_secret: str | None, team_url: str = "") -> App:
    """The app with all its listeners. Without a signing secret it is for Socket Mode only.

    `team_url`: the workspace's address, for links to messages.
    """
    app = App(
        client=client,
        signing_secret=signing_secret or secrets.token_hex(32),
        token_verification_enabled=False,
        listener_executor=ThreadPoolExecutor(THREADS, "slack"),
    )
    listeners = _Listeners(desk, composer, team_url)
    app.command("/diagnose")(listeners.diagnose)
    app.command("/signalbox")(listeners.signalbox)
    # Bolt acknowledges an event before its listener runs, and its middleware after: what must not be lost is done there
    app.event("app_mention", middleware=[listeners.mentioned])(_nothing_more)
    app.event("app_home_opened", middleware=[listeners.home_opened])(_nothing_more)
    app.shortcut("diagnose_message")(listeners.diagnose_message)
    for action, listener in listeners.actions().items():
        app.action(action)(listener)
    app.options("other_fault")(listeners.search)
    app.view("close_out")(listeners.closed)
    app.view("mute")(listeners.muted)
    app.view("propose_rule")(listeners.rule_sent)
    app.view(lifecycle.LIFE)(listeners.lived)
    app.view("diagnose_message")(listeners.which)
    app.error(_last_resort)
    return app


def _nothing_more() -> None:
    """All was done before the acknowledgement."""


def _last_resort(error: Exception) -> None:
    _log.error("a listener ended in an error of Signalbox itself", exc_info=error)


class _Press:
    """Somebody pressed something: its id, and Slack, which hears that it was heard before a form is opened."""

    def __init__(self, body: Body, client: WebClient, ack: Ack) -> None:
        self.body = body
        self.key = _key("action", body)
        self._client = client
        self._ack: Ack | None = ack

    def heard(self) -> None:
        """Acknowledge, once."""
        ack, self._ack = self._ack, None
        if ack is not None:
            ack()

    def open(self, view: Json) -> None:
        """Open a form: a trigger is good for three seconds."""
        self.heard()
        try:
            self._client.views_open(trigger_id=self.body["trigger_id"], view=view)
        except SlackApiError as error:
            said = error.response.get("error")
            if said == "expired_trigger_id":
                raise SignalboxError("Slack waits three seconds for a form, and they were over: press again") from None
            if said != "exchanged_trigger_id":  # then the form is open: this was delivered twice
                raise


Do = Callable[[Person, Subject, _Press], Message | None]


class _Listeners:
    """What is done with each delivery. Every public method is a listener of Bolt."""

    def __init__(self, desk: Desk, composer: Composer, team_url: str) -> None:
        self._desk = desk
        self._composer = composer
        self._team_url = team_url

    # -- commands ------------------------------------------------------------------------------------------------------

    def diagnose(self, ack: Ack, command: Body) -> None:
        """`/diagnose JOB [last 2h] [private] [deep]`."""
        person = Person(command["user_id"], command["channel_id"], reply_to=command.get("response_url"))
        _answer(
            ack,
            self._safely(person, lambda: self._diagnosed(person, command.get("text") or "", _key("command", command))),
        )

    def _diagnosed(self, person: Person, text: str, key: str) -> Message:
        asked = read_diagnose(text)
        if isinstance(asked, Wrong):
            return notices.usage(asked.problem)
        if not asked.job:
            self._desk.recent(person, key)
            return replies.looking()
        return self._taken(self._desk.diagnose(person, asked, key), asked)

    def _taken(self, taken: RequestOutcome, asked: Diagnose) -> Message:
        posting = taken.posting
        link = None
        if posting is not None and posting.ts is not None and self._team_url:
            link = f"{self._team_url.rstrip('/')}/archives/{posting.channel}/p{posting.ts.replace('.', '')}"
        return replies.taken(asked.job, private=asked.private, there=posting is not None, link_to=link)

    def signalbox(self, ack: Ack, command: Body) -> None:
        """`/signalbox help|incidents|handover|digest|rules|config`."""
        person = Person(command["user_id"], command["channel_id"], reply_to=command.get("response_url"))
        words = plain(command.get("text") or "")
        told = self._safely(person, lambda: self._listed(person, words, _key("command", command)))
        here = words.lower().startswith("handover") and words.lower().endswith(" here")
        _answer(ack, told, to_all=here)

    def _listed(self, person: Person, words: str, key: str) -> Message:
        verb, _, rest = words.partition(" ")
        asked, page = _paged(rest)
        does: dict[str, Callable[[], Message]] = {
            "": lists.guide,
            "help": lists.guide,
            "incidents": lambda: self._incidents(person, page),
            "handover": lambda: self._handover(person, rest),
            "digest": lambda: self._digest(person, rest, key),
            "rules": lambda: self._rules(person, asked, page),
            "config": lambda: lists.config(self._composer.lists.clusters(self._desk.allow(person, "read", "config"))),
        }
        does_this = does.get(verb.lower())
        return notices.usage(f"there is no “{verb[:40]}”", USAGE) if does_this is None else does_this()

    def _incidents(self, person: Person, page: int) -> Message:
        tenant = self._desk.allow(person, "read", "incidents")
        found = self._composer.lists.incidents(tenant, limit=lists.PAGE, skip=(page - 1) * lists.PAGE)
        total = self._desk.ledger.count(self._composer.lists.listing(tenant))
        return lists.incidents(found, page, total, self._composer.page(tenant, None))

    def _handover(self, person: Person, rest: str) -> Message:
        tenant = self._desk.allow(person, "read", "handover")
        return self._composer.lists.handover(tenant, read_shift(rest))

    def _digest(self, person: Person, rest: str, key: str) -> Message:
        week = self._desk.digest(person, rest.strip(), key)
        return replies.said(f"Working out the digest of {week}; it comes to you alone.")

    def _rules(self, person: Person, asked: str, page: int) -> Message:
        head, _, rule = asked.partition(" ")
        if head == "looked":
            tenant = self._desk.allow(person, "admin", f"rule {rule}")
            self._desk.look(person, tenant, rule)
            return replies.said(f"From now on {rule[:80]} is judged anew.")
        tenant = self._desk.allow(person, "read", "rules")
        found = self._composer.lists.rules(tenant, asked)
        return lists.rules(found[(page - 1) * lists.PAGE : page * lists.PAGE], page, len(found), asked)

    # -- events --------------------------------------------------------------------------------------------------------

    def mentioned(self, event: Body, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """`@signalbox diagnose JOB`, where commands do not work: in threads."""
        if not event.get("bot_id") and event.get("user"):  # two bots could talk for ever
            self._mentioned(event, body)
        return next_()

    def _mentioned(self, event: Body, body: Body) -> None:
        person = Person(event["user"], event["channel"], event.get("thread_ts"))
        key = f"event:{body['event_id']}"
        words = after_mention(str(event.get("text") or ""))
        verb, _, rest = words.partition(" ")
        if verb.lower() == "diagnose" or (words and verb.lower() not in VERBS):
            text = rest if verb.lower() == "diagnose" else words
            told = self._safely(person, lambda: self._diagnosed(person, text, key))
            if _is_answer(told):
                return  # the message itself is the answer
        else:
            told = self._safely(person, lambda: self._listed(person, words, key))
        self._desk.tell(person, key, {"form": "message", "text": told.text, "blocks": list(told.blocks)})

    def home_opened(self, event: Body, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """Somebody looks at the home tab."""
        if event.get("tab", "home") == "home":
            self._desk.home(event["user"], body["event_id"])
        return next_()

    # -- shortcuts and buttons -----------------------------------------------------------------------------------------

    def diagnose_message(self, ack: Ack, shortcut: Body, client: WebClient) -> None:
        """The shortcut "Diagnose job in this message": at once where it names one, else a form that asks which."""
        press = _Press(shortcut, client, ack)
        message = shortcut.get("message") or {}
        person = Person(
            shortcut["user"]["id"],
            shortcut["channel"]["id"],
            message.get("thread_ts") or message.get("ts"),
            shortcut.get("response_url"),
        )
        named = jobs_named(message)

        def opened() -> Message | None:
            if len(named) == 1:
                return self._taken(
                    self._desk.diagnose(person, Diagnose(named[0]), _key("shortcut", shortcut)), Diagnose(named[0])
                )
            place, handles = self._desk.offered(person, named)
            press.open(which_job(place, list(zip(handles, named, strict=True))))
            return None

        told = self._safely(person, opened)
        if told is not None and not (len(named) == 1 and _is_answer(told)):
            self._desk.tell(person, _key("shortcut", shortcut), {"text": told.text, "blocks": list(told.blocks)})
        press.heard()

    def actions(self) -> dict[str, Callable[..., None]]:
        """The listener of each button."""
        return {
            "right": self._pressed(self._right),
            "wrong": self._pressed(self._wrong),
            "evidence": self._pressed(self._evidence),
            "close_out": self._pressed(self._close_out),
            "propose_rule": self._pressed(self._propose),
            "bar_confirm": self._pressed(self._bar),
            "bar_refuse": self._pressed(self._bar_not),
            "more": self._more,
            "life": self._life,
            "open_incident": self._pressed(self._open),
            "digest_open": self._open_incidents,
            "remind_later": self._pressed(self._later),
            "remind_no": self._pressed(self._not_needed),
            "pick_job": self._pick,
            "home_refresh": self._refresh,
            "cause": self._cause,
            "try_rule": self._try_rule,
        }

    def _pressed(self, do: Do) -> Callable[..., None]:
        """A listener for a button whose value is the handle of a message or an incident."""

        def listener(ack: Ack, body: Body, action: Body, client: WebClient) -> None:
            self._about(_Press(body, client, ack), str(action.get("value") or ""), do)

        return listener

    def _about(self, press: _Press, handle: str, do: Do) -> None:
        """What is written is written before Slack hears that it was heard; a form opens after that."""
        person = _who(press.body)
        told = self._safely(person, lambda: do(person, self._desk.subject(person, handle), press))
        if told is not None:
            self._desk.tell(person, f"{press.key}:told", {"text": told.text, "blocks": list(told.blocks)})
        press.heard()

    def _right(self, person: Person, subject: Subject, press: _Press) -> None:
        self._desk.right(person, subject, press.key)

    def _wrong(self, person: Person, subject: Subject, press: _Press) -> None:
        # kept before the form opens: who closes it without a word has still said that it was wrong
        self._desk.wrong(person, subject, press.key)
        self._close_out(person, subject, press, wrong=True)

    def _close_out(
        self, person: Person, subject: Subject, press: _Press, *, wrong: bool = False, propose: bool = False
    ) -> None:
        if subject.record is None:
            raise SignalboxError("there is no report behind this message yet")
        self._desk.allow(person, "annotate", f"incident {subject.record.incident.id}")
        place = self._desk.place(person, subject)
        press.open(self._composer.forms.close_out(place, subject.record, wrong=wrong, propose=propose))

    def _propose(self, person: Person, subject: Subject, press: _Press) -> None:
        """Propose a rule: at once where it is known what the incident was, else what it was is asked first."""
        if subject.record is None or subject.record.incident.closed_at is None:
            self._close_out(person, subject, press, propose=True)
            return
        handle = self._desk.draft(person, subject, press.key)
        press.open(forms_rule.loading(handle, self._composer.forms.subject_words(subject.record.incident)))

    def _try_rule(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """The draft as it was changed in the form is replayed; the form says so, and is filled again."""
        ack()
        view, person = body.get("view") or {}, _who(body)
        try:
            draft = self._desk.drafted(person, str(action.get("value") or ""))
            edits, errors = forms_rule.read_form(view.get("state"))
            if errors:  # a button cannot say so beside the field
                form = self._composer.forms.rule_form(draft, edits, problem="; ".join(errors.values()))
            elif self._desk.redraft(draft, DraftWish("show", edits)):
                form = self._composer.forms.rule_form(draft, edits, busy=True)
            else:
                return  # pressed twice
        except SignalboxError as error:
            form = broken("Propose a rule", str(error))
        client.views_update(view_id=view["id"], view=form)

    def rule_sent(self, ack: Ack, body: Body, view: Body) -> None:
        """The draft is to be proposed. What can be seen at once to be wrong is told beside the field; a worker does the rest."""
        person = _who(body)

        def kept() -> Json:
            draft = self._desk.drafted(person, str(view.get("private_metadata") or ""))
            edits, errors = forms_rule.read_form(view.get("state"))
            errors |= self._composer.forms.rule_errors(draft, edits) if not errors else {}
            if draft.content is not None and draft.content.hurts and not edits.all_the_same and not errors:
                errors["all_the_same"] = "The replay speaks against it: mend it and try again, or tick this"
            if errors:
                return {"response_action": "errors", "errors": errors}
            self._desk.redraft(draft, DraftWish("propose", edits))
            told = "It is written down, replayed once more and proposed; a message here says where it stands."
            return {"response_action": "update", "view": done("Propose a rule", told)}

        self._submitted(ack, "Propose a rule", kept)

    def _bar(self, person: Person, subject: Subject, _press: _Press) -> Message:
        done, late = self._desk.bar(person, subject, "barred")
        return replies.barred([one.node for one in done], self._desk.drains(subject, done), late)

    def _bar_not(self, person: Person, subject: Subject, _press: _Press) -> Message | None:
        _, late = self._desk.bar(person, subject, "refused")
        return replies.said("; ".join(late)) if late else None

    def _evidence(self, person: Person, subject: Subject, press: _Press) -> None:
        self._desk.evidence(person, subject, press.key)

    def _open(self, person: Person, subject: Subject, press: _Press) -> None:
        if subject.record is None:
            raise SignalboxError("there is no report behind this")
        self._desk.allow(person, "read", f"incident {subject.record.incident.id}")
        self._desk.show(person, subject, press.key)

    def _open_incidents(self, ack: Ack, body: Body) -> None:
        """Of a digest: the incidents of which nobody has said what they were, to this person alone."""
        person = _who(body)

        def listed() -> Message:
            tenant = self._desk.allow(person, "read", "open incidents")
            found = self._composer.lists.incidents(tenant, limit=lists.PAGE, to_do=True)
            return lists.incidents(found, 1, self._desk.ledger.count(self._composer.lists.listing(tenant, to_do=True)))

        told = self._safely(person, listed)
        self._desk.tell(person, _key("action", body), {"text": told.text, "blocks": list(told.blocks)})
        ack()

    def _later(self, person: Person, subject: Subject, _press: _Press) -> Message:
        self._desk.postpone(person, subject)
        return replies.said("You will be asked once more, on the next working day.")

    def _not_needed(self, person: Person, subject: Subject, _press: _Press) -> None:
        self._desk.dismiss(person, subject)

    def _more(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """The overflow menu: `verb:handle`."""
        verb, _, handle = str((action.get("selected_option") or {}).get("value") or "").partition(":")

        def do(person: Person, subject: Subject, press: _Press) -> Message | None:
            if verb == "again":
                taken = self._desk.again(person, subject, press.key)
                return None if taken.second else replies.said("Looking again; the answer comes as a new message.")
            if verb.startswith("mute_"):
                kind = verb.removeprefix("mute_")
                what = self._desk.mutable(subject, kind)
                if what is None:
                    raise SignalboxError(f"there is no {kind} to mute")
                self._desk.allow(person, "mute", f"{kind} {what}")
                press.open(mute(self._desk.place(person, subject, kind), f"{kind} {what}"))
                return None
            if verb == "propose_rule":
                self._propose(person, subject, press)
                return None
            raise SignalboxError("this choice is not known any more")

        self._about(_Press(body, client, ack), handle, do)

    def _life(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """The menu of an incident's life: `verb:handle`. What needs no more words is done at once."""
        verb, _, handle = str((action.get("selected_option") or {}).get("value") or "").partition(":")

        def do(person: Person, subject: Subject, press: _Press) -> None:
            if verb in ("ack", "reopen"):
                self._desk.step(person, subject, press.key, verb)  # type: ignore[arg-type]
                return
            if verb not in ("assign", "snooze", "merge") or subject.record is None:
                raise SignalboxError("this choice is not known any more")
            incident = subject.record.incident
            self._desk.allow(person, "annotate", f"incident {incident.id}")
            near = self._composer.forms.near(incident) if verb == "merge" else ()
            told = f"incident {incident.id} ({incident.job_name or incident.job_id or 'a job'}: {incident.summary})"
            press.open(lifecycle.form(verb, self._desk.place(person, subject, verb), told, near, incident.assignee))

        self._about(_Press(body, client, ack), handle, do)

    def lived(self, ack: Ack, body: Body, view: Body) -> None:
        """The form of a step was sent."""
        place = self._desk.placed(str(view.get("private_metadata") or ""))
        person, verb = _who(body, place), str(place.get("kind") or "")

        def kept() -> Json:
            form, errors = lifecycle.read_form(verb, view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            subject = self._desk.subject(person, _about_of(place))
            try:
                self._desk.step(person, subject, f"view:{view['id']}", verb, form)  # type: ignore[arg-type]
            except (NoIncident, NotNow) as error:
                field = {"assign": "assignee", "snooze": "span"}.get(verb, "other")
                return {"response_action": "errors", "errors": {field: str(error)}}
            return {"response_action": "clear"}

        self._submitted(ack, "This incident", kept)

    def _pick(self, ack: Ack, body: Body, action: Body) -> None:
        """One of the jobs that may have been meant."""
        person = _who(body)

        def picked() -> Message | None:
            taken, job = self._desk.pick(person, str(action.get("value") or ""), _key("action", body))
            return None if taken.second else self._taken(taken, Diagnose(job))

        told = self._safely(person, picked)
        if told is not None:
            self._desk.tell(person, f"{_key('action', body)}:told", {"text": told.text, "blocks": list(told.blocks)})
        ack()

    def _refresh(self, ack: Ack, body: Body) -> None:
        self._desk.home(body["user"]["id"], _key("action", body))
        ack()

    def _cause(self, ack: Ack, body: Body, client: WebClient) -> None:
        """The cause was chosen in the form: the field for another fault comes, or goes."""
        ack()
        view = body.get("view") or {}
        place = self._desk.placed(str(view.get("private_metadata") or ""))
        person = _who(body, place)
        try:
            subject = self._desk.subject(person, _about_of(place))
            if subject.record is None:
                return
            shown = shown_of(from_json(subject.record.report_json))
            known, _ = read_close_out(view.get("state"), shown)
            form = self._composer.forms.close_out(str(view["private_metadata"]), subject.record, known)
        except SignalboxError as error:
            form = broken("Close out", str(error))
        client.views_update(view_id=view["id"], hash=view.get("hash"), view=form)

    def search(self, ack: Ack, payload: Body) -> None:
        """Other faults, for what was typed."""
        ack(**fault_options(self._desk.search(str(payload.get("value") or ""))))

    # -- forms ---------------------------------------------------------------------------------------------------------

    def closed(self, ack: Ack, body: Body, view: Body) -> None:
        """The close-out form was sent."""
        place = self._desk.placed(str(view.get("private_metadata") or ""))
        person = _who(body, place)

        def kept() -> Json:
            subject = self._desk.subject(person, _about_of(place))
            if subject.record is None:
                raise SignalboxError("its report is not kept any more")
            form, errors = read_close_out(view.get("state"), shown_of(from_json(subject.record.report_json)))
            if form.cause == "fault" and form.fault and form.fault not in self._desk.faults:
                errors["other_fault"] = "Choose one of the list"
            if errors:
                return {"response_action": "errors", "errors": errors}
            self._desk.close(person, subject, f"view:{view['id']}", form)
            if form.propose_rule and form.cause not in (None, "unknown") and self._desk.proposes:
                return {"response_action": "update", "view": self._drafted(person, subject, f"view:{view['id']}:rule")}
            return {"response_action": "clear"}

        self._submitted(ack, "Close out", kept)

    def _drafted(self, person: Person, subject: Subject, key: str) -> Json:
        """What comes after a close-out that wishes for a rule: its form, or why there is none; the close-out is kept either way."""
        try:
            handle = self._desk.draft(person, subject, key)
        except NotAllowed as refused:
            told = self._composer.refused(refused.refused.verb, refused.refused.ask)
            return done("Close out", f"It is closed. {told.text}")
        except SignalboxError as error:
            return done("Close out", f"It is closed. No rule is drafted: {error}")
        incident = subject.record.incident if subject.record is not None else None
        return forms_rule.loading(handle, "it" if incident is None else self._composer.forms.subject_words(incident))

    def muted(self, ack: Ack, body: Body, view: Body) -> None:
        """The form to mute was sent."""
        place = self._desk.placed(str(view.get("private_metadata") or ""))
        person = _who(body, place)

        def kept() -> Json:
            form, errors = read_mute(view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            subject = self._desk.subject(person, _about_of(place))
            self._desk.mute(person, subject, str(place["kind"]), form, f"view:{view['id']}")
            return {"response_action": "clear"}

        self._submitted(ack, "Mute", kept)

    def which(self, ack: Ack, body: Body, view: Body) -> None:
        """The form that asks which job was sent."""
        place = self._desk.placed(str(view.get("private_metadata") or ""))
        person = _who(body, place)

        def kept() -> Json:
            picked, errors = read_which_job(view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            key = f"view:{view['id']}"
            if picked.handle is not None:
                self._desk.pick(person, picked.handle, key)
                return {"response_action": "clear"}
            asked = read_diagnose(picked.text)
            if isinstance(asked, Wrong):
                return {"response_action": "errors", "errors": {"name": asked.problem}}
            self._desk.diagnose(person, asked, key)
            return {"response_action": "clear"}

        self._submitted(ack, "Diagnose a job", kept)

    def _submitted(self, ack: Ack, title: str, kept: Callable[[], Json]) -> None:
        try:
            ack(**kept())
        except NotAllowed as refused:
            told = self._composer.refused(refused.refused.verb, refused.refused.ask)
            ack(response_action="update", view=done(title, told.text))
        except SignalboxError as error:
            ack(response_action="update", view=broken(title, str(error)))
        except Exception:  # noqa: BLE001 - it is logged, and told to whoever asked
            number = _logged("a form could not be kept")
            ack(response_action="update", view=broken(title, "This did not work; it is a fault of Signalbox.", number))

    # -- errors reach whoever asked ------------------------------------------------------------------------------------

    def _safely(self, person: Person, do: Callable[[], Any]) -> Any:
        """What `do` says, or in words why it could not."""
        try:
            return do()
        except NotAllowed as refused:
            if refused.refused.why == "channel":
                return replies.said(
                    "This channel is none of those that Signalbox serves; " + _elsewhere(refused.refused.ask)
                )
            return self._composer.refused(refused.refused.verb, refused.refused.ask)
        except SignalboxError as error:
            return replies.said(str(error))
        except Exception:  # noqa: BLE001 - it is logged, and told to whoever asked
            return replies.broken(_logged(f"a wish of {person.id} could not be written down"))


def _elsewhere(channels: tuple[str, ...]) -> str:
    return "ask in " + ", ".join(f"<#{one}>" for one in channels[:3]) if channels else "ask who runs it here"


def _logged(told: str) -> str:
    """Log an error that is being handled; the number under which the log has it."""
    number = secrets.token_hex(4)
    _log.exception("%s (error %s)", told, number)
    return number


def _answer(ack: Ack, message: Message, *, to_all: bool = False) -> None:
    ack(text=message.text, blocks=list(message.blocks), response_type="in_channel" if to_all else "ephemeral")


def _is_answer(message: Message) -> bool:
    """Whether the words only say that an answer will come."""
    return message.text.startswith(replies.TAKEN)


def _key(kind: str, body: Body) -> str:
    """Slack's id of a delivery: the same when it comes a second time."""
    actions = body.get("actions") or [{}]
    parts = [body.get("trigger_id"), actions[0].get("action_ts"), actions[0].get("action_id")]
    if not any(parts):
        parts = [sha256(msgspec.json.encode(body)).hexdigest()]
    return f"{kind}:{':'.join(str(one) for one in parts if one)}"[:180]


def _about_of(place: Mapping[str, Any]) -> str:
    """The handle of what a form is about."""
    if not place:
        raise SignalboxError("this form is too old: open it again")
    return str(place["handle"])


def _who(body: Body, place: Mapping[str, Any] | None = None) -> Person:
    channel = (body.get("channel") or {}).get("id") or (place or {}).get("channel") or "D"
    message = body.get("message") or {}
    container = body.get("container") or {}
    thread = message.get("thread_ts") or container.get("thread_ts") or (place or {}).get("thread_ts")
    if thread == message.get("ts"):
        thread = None  # the head of a thread stands in the channel
    return Person(body["user"]["id"], channel, thread, body.get("response_url"))


def _paged(words: str) -> tuple[str, int]:
    """Words, and the page behind them."""
    head, _, number = words.rpartition(" ")
    first, _, last = head.rpartition(" ")
    if (last or head) == "page" and number.isdecimal() and len(number) < 6:
        return (first if last else ""), max(1, int(number))
    return words, 1
