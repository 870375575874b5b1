"""What a listener does with what somebody wants: checks that they may, and writes it down.

No call to Slack and nothing slow: a listener has three seconds, and fifty of them come at once. What cannot be written down is
an error, whose words are for whoever asked. Every wish has Slack's own id as its key, so a second delivery changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from rapidfuzz import fuzz, process
from sqlmodel import Session

from bot.config.chat import Tenant
from bot.config.file import Config
from bot.handlers.diagnose import next_working_day
from bot.incidents.exclusions import Bar, command
from bot.incidents.grafana import owe_within
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import Step, step_within
from bot.incidents.lifecycle import Verb as StepVerb
from bot.incidents.resolution import Closing, annotate_within
from bot.learning.drafts.store import Draft, ask_draft_within, draft_of, wish_draft_within
from bot.learning.drafts.store import Wish as DraftWish
from bot.notify.messages import Posting, refresh_messages
from bot.notify.mutes import mute_within
from bot.notify.outbox import enqueue_item
from bot.notify.requests import DiagnosisRequest, RequestOutcome, request_diagnosis
from bot.policy.notifications import Mute
from bot.policy.permissions import Refusal, Verb, refusal
from bot.policy.resolution_codes import Verdict, implied
from bot.queue.payloads import DiagnosePayload, DigestPayload, RecentJobsPayload
from bot.render.report_json import from_json
from bot.runtime.paths import DEFAULT_TENANT
from bot.slack.forms.close_out import CloseOut
from bot.slack.forms.close_out import Mute as MuteForm
from bot.slack.forms.lifecycle import SPANS, Filled
from bot.slack.parsing.commands import Diagnose
from bot.store.incidents import Answered
from bot.store.tables import AuditRow, LookedRow
from kb.digest.weeks import week_named, week_of
from kb.errors import SignalboxError

_LISTED = 100
_NEAR = 55.0


class NotAllowed(SignalboxError):  # noqa: N818 - an outcome
    """Somebody may not do this."""

    def __init__(self, refused: Refusal) -> None:
        self.refused = refused
        super().__init__(f"{refused.verb} is not allowed ({refused.why})")


@dataclass(frozen=True, slots=True)
class Person:
    """Who wants something, and where: ids of Slack. `reply_to`: the address for words to this person alone."""

    id: str
    channel: str
    thread_ts: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a button is about: the message, and the incident with its report."""

    posting: Posting | None
    record: Answered | None
    tenant: str


@dataclass(slots=True)
class Desk:
    """The use cases of the chat. `members`: who is in a user group, as it was last told."""

    ledger: Ledger
    config: Config
    members: Callable[[str], Collection[str]]
    faults: Mapping[str, str] = field(default_factory=dict)
    now: Callable[[], float] = time.time

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)

    # -- who, and where ------------------------------------------------------------------------------------------------

    def tenant_of(self, channel: str) -> str:
        """Whose channel it is. In direct messages, and where one tenant is all there is, that one."""
        tenants = self.config.tenants_of_chat
        for name, one in tenants.items():
            if channel in one.channels:
                return name
        return next(iter(tenants)) if len(tenants) == 1 else DEFAULT_TENANT

    def settings(self, tenant: str) -> Tenant:
        """What is configured of a tenant."""
        return self.config.tenants_of_chat.get(tenant, Tenant())

    def allow(self, person: Person, verb: Verb, what: str) -> str:
        """The tenant in which this person may do this here. A refusal is written into the audit.

        Raises:
            NotAllowed: they may not.
        """
        tenant = self.tenant_of(person.channel)
        refused = refusal(self.settings(tenant).rights, verb, person.id, person.channel, self.members)
        if refused is None and len(self.config.tenants_of_chat) > 1 and tenant not in self.config.tenants_of_chat:
            refused = Refusal(verb, "channel")
        if refused is not None:
            with self.ledger.errors(), self.ledger.session(write=True) as session:
                session.add(self._audit(person, tenant, verb, what, refused.why))
            raise NotAllowed(refused)
        return tenant

    def _audit(self, person: Person, tenant: str, verb: str, what: str, refused: str | None = None) -> AuditRow:
        told = "" if refused is None else f"no right of this {refused}"
        return AuditRow(
            at=self._time(), tenant=tenant, who=person.id, verb=verb, what=what[:300], allowed=refused is None, why=told
        )

    # -- diagnoses -----------------------------------------------------------------------------------------------------

    def diagnose(self, person: Person, asked: Diagnose, key: str, *, again: bool = False) -> RequestOutcome:
        """Write down a wish for a diagnosis."""
        tenant = self.allow(person, "diagnose", asked.job)
        order = DiagnosePayload(asked.job, tenant, source="slack", last=asked.last, deep=asked.deep)
        return self._wish(person, order, key, private=asked.private, again=again)

    def pick(self, person: Person, handle: str, key: str) -> tuple[RequestOutcome, str]:
        """One of several jobs was chosen; what became of it, and the job."""
        tenant = self.allow(person, "diagnose", handle)
        payload = self.ledger.choice(handle, tenant)
        if payload is None:
            raise SignalboxError("this choice is too old: ask again")
        chosen: dict[str, Any] = msgspec.json.decode(payload)
        order = msgspec.convert(chosen["order"], DiagnosePayload)
        at = replace(person, thread_ts=chosen.get("thread_ts"))
        return self._wish(at, order, key, private=bool(chosen.get("private"))), order.job

    def again(self, person: Person, subject: Subject, key: str) -> RequestOutcome:
        """The same job once more."""
        if subject.record is not None:
            incident = subject.record.incident
            job, cluster = incident.job_id or incident.job_name, incident.cluster
        else:
            job, cluster = str(subject.posting.facts.get("job") or "") if subject.posting else "", None
        if not job:
            raise SignalboxError("what it was about is not known by a name or an id")
        order = DiagnosePayload(job, subject.tenant, cluster, source="slack")
        self.allow(person, "diagnose", job)
        thread = subject.posting.thread if subject.posting else None
        return self._wish(replace(person, thread_ts=thread), order, key, again=True)

    def _wish(
        self, person: Person, order: DiagnosePayload, key: str, *, private: bool = False, again: bool = False
    ) -> RequestOutcome:
        wish = DiagnosisRequest(
            key=key,
            tenant=order.tenant,
            channel=person.channel,
            who=person.id,
            thread_ts=person.thread_ts,
            private=private,
            again=again,
            reply_to=person.reply_to,
        )
        now, fold = self._time(), self.settings(order.tenant).fold

        def wished(session: Session) -> RequestOutcome:
            taken = request_diagnosis(session, wish, order.request(), now, fold)
            if not taken.second:
                session.add(self._audit(person, order.tenant, "diagnose", order.job))
            return taken

        return self.ledger.write(wished)

    def recent(self, person: Person, key: str) -> None:
        """No job was named: a worker looks for those of this person that failed of late."""
        tenant = self.allow(person, "diagnose", "")
        users = tuple(name for name, who in self.settings(tenant).people.users.items() if who == person.id)
        order = RecentJobsPayload(tenant, person.id, users)
        wish = DiagnosisRequest(key, tenant, person.channel, person.id, person.thread_ts, reply_to=person.reply_to)
        self.ledger.request_diagnosis(wish, order.request(), self._time(), 0.0)

    def digest(self, person: Person, week: str, key: str) -> str:
        """A worker works out the digest of a week, the last whole one for no name; its name.

        Raises:
            SignalboxError: there is no such week.
        """
        tenant = self.allow(person, "digest", week)
        zone = ZoneInfo(self.settings(tenant).zone)
        running = week_of(self._time(), zone)
        wanted = {"": running.shifted(-1), "now": running}.get(week.lower()) or week_named(week)
        wish = DiagnosisRequest(
            key, tenant, person.channel, person.id, person.thread_ts, private=True, reply_to=person.reply_to
        )
        self.ledger.request_diagnosis(wish, DigestPayload(tenant, str(wanted)).request(), self._time(), 0.0)
        return str(wanted)

    # -- what a button is about ----------------------------------------------------------------------------------------

    def subject(self, person: Person, handle: str) -> Subject:
        """What a handle stands for.

        Raises:
            SignalboxError: nothing that is known here.
        """
        tenant = self.tenant_of(person.channel)
        posting = self.ledger.message_by_handle(handle)
        if posting is not None:
            direct = person.channel.startswith("D")
            if posting.tenant == tenant or (direct and posting.channel == person.channel):
                record = self.ledger.answer(posting.incident_id) if posting.incident_id else None
                return Subject(posting, record, posting.tenant)
            raise SignalboxError("this message is not of this channel")
        payload = self.ledger.choice(handle, tenant)
        chosen: dict[str, Any] = msgspec.json.decode(payload) if payload is not None else {}
        record = self.ledger.answer(int(chosen["incident"])) if "incident" in chosen else None
        if record is None or record.incident.tenant != tenant:
            raise SignalboxError("this is too old, or not of this channel: ask again")
        return Subject(None, record, tenant)

    def place(self, person: Person, subject: Subject | None = None, kind: str = "") -> str:
        """A handle for a form: what it is about and from where it was opened, which Slack does not tell when it is sent."""
        tenant = subject.tenant if subject is not None else self.tenant_of(person.channel)
        told = {"channel": person.channel, "thread_ts": person.thread_ts, "kind": kind}
        if subject is not None and subject.posting is not None:
            told["handle"] = subject.posting.handle
        elif subject is not None:
            told["incident"] = str(_record(subject).incident.id)
        (handle,) = self.ledger.add_choices(tenant, [msgspec.json.encode(told).decode()], self._time())
        return handle

    def placed(self, handle: str) -> dict[str, Any]:
        """What a form is about, by its handle; empty where that is too old."""
        found = self.ledger.any_choice(handle)
        return {} if found is None else {"handle": handle, **msgspec.json.decode(found)}

    def offered(self, person: Person, jobs: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """A form's handle, and one for each job that may be chosen in it."""
        tenant = self.allow(person, "diagnose", "")
        orders = [
            {"order": DiagnosePayload(one, tenant, source="slack"), "thread_ts": person.thread_ts} for one in jobs
        ]
        payloads = [msgspec.json.encode(one).decode() for one in orders]
        return self.place(person), self.ledger.add_choices(tenant, payloads, self._time())

    def show(self, person: Person, subject: Subject, key: str) -> None:
        """An incident of a list, to this person alone."""
        incident = _record(subject).incident.id
        (handle,) = self.ledger.add_choices(subject.tenant, [f'{{"incident":{incident}}}'], self._time())
        self.tell(person, key, {"form": "incident", "incident": incident, "handle": handle})

    def look(self, person: Person, tenant: str, rule: str) -> None:
        """Somebody has looked at a weak rule."""
        with self.ledger.errors(), self.ledger.session(write=True) as session:
            session.merge(LookedRow(tenant=tenant, rule=rule[:128], at=self._time(), who=person.id))
            session.add(self._audit(person, tenant, "admin", f"looked at rule {rule}"))

    # -- what people say -----------------------------------------------------------------------------------------------

    def right(self, person: Person, subject: Subject, key: str) -> bool:
        """The first diagnosis was the cause (or it was right that nothing failed); whether this is new."""
        report = from_json(_record(subject).report_json)
        first = report.diagnoses[0] if report.diagnoses and report.verdict == "fault" else None
        if first is None:
            return self._annotate(person, subject, key, Closing(person.id, "slack", "right", "unknown"))
        said = Closing(person.id, "slack", "right", "shown", first.fault, first.rule, first.nodes)
        return self._annotate(person, subject, key, said)

    def wrong(self, person: Person, subject: Subject, key: str) -> bool:
        """The answer was wrong: this is kept though no cause is named."""
        return self._annotate(person, subject, key, Closing(person.id, "slack", "wrong"))

    def close(self, person: Person, subject: Subject, key: str, form: CloseOut) -> bool:
        """Keep what was filled in."""
        said = Closing(
            who=person.id,
            source="slack",
            verdict=form.verdict or _implied(form, _record(subject)),
            cause=form.cause or "unknown",
            fault=form.fault,
            rule=form.rule,
            nodes=form.nodes,
            action=form.action,
            lost_hours=form.lost_hours,
            note=form.note,
            propose_rule=form.propose_rule,
        )
        return self._annotate(person, subject, key, said)

    def _annotate(self, person: Person, subject: Subject, key: str, said: Closing) -> bool:
        record = _record(subject)
        self.allow(person, "annotate", f"incident {record.incident.id}")
        now = self._time()

        def annotated(session: Session) -> bool:
            new = annotate_within(session, record.incident.id, subject.tenant, key=key, said=said, now=now)
            if new:
                session.add(self._audit(person, subject.tenant, "annotate", f"incident {record.incident.id}"))
            if new and said.cause is not None and self.settings(subject.tenant).grafana is not None:
                owe_within(session, record.incident.id, subject.tenant, key, now)
            return new

        return self.ledger.write(annotated)

    def step(self, person: Person, subject: Subject, key: str, verb: StepVerb, filled: Filled | None = None) -> bool:
        """A step in the incident's life; whether this is new."""
        incident = _record(subject).incident.id
        self.allow(person, "annotate", f"incident {incident}")
        now, filled = self._time(), filled or Filled()
        until = None
        if verb == "snooze":
            _, seconds = SPANS.get(filled.span, ("", None))
            zone = self.settings(subject.tenant).zone
            until = next_working_day(now, zone) if seconds is None else now + timedelta(seconds=seconds)
        step = Step(verb, person.id, "slack", filled.assignee, until, filled.other, filled.note)

        def taken(session: Session) -> bool:
            new = step_within(session, incident, subject.tenant, key=key, step=step, now=now)
            if new:
                session.add(self._audit(person, subject.tenant, "annotate", f"{verb} incident {incident}"))
            return new

        return self.ledger.write(taken)

    # -- rules ---------------------------------------------------------------------------------------------------------

    @property
    def proposes(self) -> bool:
        """Whether rules can be proposed here at all."""
        return self.config.rules.pull_requests is not None

    def draft(self, person: Person, subject: Subject, key: str) -> str:
        """A rule is drafted from an incident; the draft's handle, the same for a second delivery."""
        incident = _record(subject).incident.id
        self.allow(person, "propose_rule", f"incident {incident}")
        if not self.proposes:
            raise SignalboxError("rules cannot be proposed here: `rules: pull_requests:` is not configured")
        posting = subject.posting
        channel = posting.channel if posting is not None else person.id  # without a thread: to who asked
        parent = posting.id if posting is not None else None

        def asked(session: Session) -> str:
            handle, new = ask_draft_within(
                session, key, subject.tenant, incident, who=person.id, channel=channel, parent=parent, now=self._time()
            )
            if new:
                session.add(self._audit(person, subject.tenant, "propose_rule", f"incident {incident}"))
            return handle

        return self.ledger.write(asked)

    def drafted(self, person: Person, handle: str) -> Draft:
        """A draft of this person's tenant.

        Raises:
            SignalboxError: there is none of this handle.
        """
        found = draft_of(self.ledger, handle)
        if found is None:
            raise SignalboxError("this draft is too old: propose the rule once more")
        shared = found.channel.startswith(("C", "G"))
        at = replace(person, channel=found.channel if shared else "D")
        tenant = self.allow(at, "propose_rule", f"incident {found.incident_id}")
        if (found.tenant != tenant) if shared else (found.who != person.id):
            raise SignalboxError("this draft is somebody else's")
        return found

    def redraft(self, draft: Draft, wish: DraftWish) -> bool:
        """Something is to be done with a draft; whether it was still at the version that the person saw."""
        now = self._time()
        return self.ledger.write(
            lambda session: wish_draft_within(
                session, draft.handle, draft.tenant, version=draft.version, wish=wish, now=now
            )
        )

    def evidence(self, person: Person, subject: Subject, key: str) -> bool:
        """The files, once more; whether this is new."""
        record = _record(subject)
        self.allow(person, "read", f"incident {record.incident.id}")
        with self.ledger.errors(), self.ledger.session(write=True) as session:
            if subject.posting is None:
                return False
            payload = {"incident": record.incident.id, "asked": True}
            return enqueue_item(
                session,
                f"evidence:{key}",
                subject.tenant,
                "files",
                payload,
                now=self._time(),
                posting=subject.posting.id,
            )

    def postpone(self, person: Person, subject: Subject) -> None:
        """The reminder comes once more."""
        self.allow(person, "read", "a reminder")
        if subject.posting is not None and subject.posting.state == "reminder":
            zone = self.settings(subject.tenant).zone
            self.ledger.postpone_reminder(subject.posting.id, next_working_day(self._time(), zone))

    def dismiss(self, person: Person, subject: Subject) -> None:
        """The reminder is not needed."""
        self.allow(person, "read", "a reminder")
        if subject.posting is not None and subject.posting.state == "reminder":
            self.ledger.dismiss_reminder(subject.posting.id)

    # -- mutes ---------------------------------------------------------------------------------------------------------

    def mutable(self, subject: Subject, kind: str) -> str | None:
        """What of a message can be muted."""
        incident = _record(subject).incident
        if kind == "rule":
            return incident.rule
        if kind == "job":
            return incident.job_name or incident.job_id
        report = from_json(_record(subject).report_json)
        return next((node for one in report.diagnoses for node in one.nodes), None)

    def mute(self, person: Person, subject: Subject, kind: str, form: MuteForm, key: str) -> bool:
        """Be silent on a rule, job or node."""
        what = self.mutable(subject, kind)
        if what is None:
            raise SignalboxError(f"there is no {kind} to mute")
        self.allow(person, "mute", f"{kind} {what}")
        channel = None if form.everywhere else person.channel
        until = self.now() + form.seconds
        mute = Mute(kind, what, until, subject.tenant, channel, person.id, form.why)  # type: ignore[arg-type]

        def muted(session: Session) -> bool:
            new = mute_within(session, key, mute, self._time())
            if new:
                session.add(self._audit(person, subject.tenant, "mute", f"{kind} {what}"))
                refresh_messages(session, [_record(subject).incident.id])
            return new

        return self.ledger.write(muted)

    # -- nodes to be left out ------------------------------------------------------------------------------------------

    def bar(self, person: Person, subject: Subject, to: Literal["barred", "refused"]) -> tuple[list[Bar], list[str]]:
        """Confirm or refuse the bars that an answer proposes: those decided, and where somebody was faster, in words."""
        incident = _record(subject).incident
        self.allow(person, "bar", f"incident {incident.id}")
        found = self.ledger.bars_of(incident.id)
        if not found:
            raise SignalboxError("nothing is proposed here any more")
        open_ = [one for one in found if one.state == "proposed"]
        done, late = self.ledger.decide_all(open_ or found, to, person.id, self._time())
        return list(done), list(late)

    def drains(self, subject: Subject, bars: Sequence[Bar]) -> list[str]:
        """What would take barred nodes out of the cluster, for a person to run."""
        named = _record(subject).incident.cluster
        types = {
            each.type for one in self.config.of_tenant(subject.tenant) if one.name == named for each in one.connectors
        }
        system = "kubernetes" if any(one.startswith("kubernetes") for one in types) else "slurm"
        return [command(one, system) for one in bars if one.state == "barred" and one.scope == "cluster"]

    # -- lists ---------------------------------------------------------------------------------------------------------

    def search(self, text: str) -> list[tuple[str, str]]:
        """Classes of faults for what was typed: (id, title), the most alike first; all of them for nothing."""
        if not text.strip():
            return sorted(self.faults.items(), key=lambda one: one[1])[:_LISTED]
        words = {fault: f"{title} {fault.replace('_', ' ')}" for fault, title in self.faults.items()}
        hits = process.extract(text[:100], words, scorer=fuzz.WRatio, limit=_LISTED, score_cutoff=_NEAR)
        return [(fault, self.faults[fault]) for _, _, fault in hits]

    def home(self, user: str, key: str) -> None:
        """The home tab is drawn anew."""
        tenant = self.tenant_of("D")
        with self.ledger.errors(), self.ledger.session(write=True) as session:
            enqueue_item(session, f"home:{key}", tenant, "home", {"who": user}, now=self._time())

    def tell(self, person: Person, key: str, payload: Mapping[str, Any]) -> None:
        """Words for this person alone, from where no acknowledgement can carry them."""
        told = {**payload, "who": person.id, "channel": person.channel, "thread_ts": person.thread_ts}
        if person.reply_to:
            told["reply_to"] = person.reply_to
        with self.ledger.errors(), self.ledger.session(write=True) as session:
            enqueue_item(session, f"tell:{key}", self.tenant_of(person.channel), "reply", told, now=self._time())


def _record(subject: Subject) -> Answered:
    if subject.record is None:
        raise SignalboxError("there is no report behind this message")
    return subject.record


def _implied(form: CloseOut, record: Answered) -> Verdict:
    """Whether the bot was right, where the person named a cause and did not say."""
    report = from_json(record.report_json)
    faults = [one.fault for one in report.diagnoses] if report.verdict == "fault" else []
    return implied(form.cause, form.fault, faults)
