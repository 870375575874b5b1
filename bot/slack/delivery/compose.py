"""What a message of ours says now: its row, its incident, what people said and what is muted, rendered.

Reads the ledger, writes nothing, speaks to nobody. Whoever sends a message asks here what it says at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.config.file import Config
from bot.digest.schedule import numbers_of
from bot.incidents.exclusions import in_words
from bot.incidents.handover import handover
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Annotation, word
from bot.learning.drafts.edits import edited, wrong
from bot.learning.drafts.store import Draft, Edits
from bot.learning.proposals.store import PROPOSAL, proposal_of
from bot.notify.messages import Posting
from bot.policy.notifications import Mute, Standing, muted, subject_of
from bot.policy.resolution_codes import nameless
from bot.render.phrases import clock
from bot.render.report_json import from_json
from bot.rulebase.loader import Knowledge, default_folder
from bot.slack.blocks.limits import Json, Message
from bot.slack.blocks.mrkdwn import is_person
from bot.slack.forms import rule as forms_rule
from bot.slack.forms.close_out import CloseOut, CloseOutForm, Shown, close_out
from bot.slack.forms.lifecycle import Near
from bot.slack.forms.rule import proposed
from bot.slack.messages import digest, notices, replies
from bot.slack.messages import handover as messages_handover
from bot.slack.messages.answer import answer_message
from bot.slack.messages.card import Barred, Card, Chain, Life, Said
from bot.slack.messages.lists import ClusterState, ConnectorState, ListedIncident, ListedRule
from bot.store.incident_state import state_of
from bot.store.incidents import Answered, Incident, Listing
from kb.model import Gap
from kb.report import Report

WHOLE_AT_ONCE = ("rest", "reminder", "digest", PROPOSAL)  # states whose opening words are all there is to say
HOUR, MINUTES = 3600.0, 60
STANDINGS = 60.0  # seconds for which the rules' records are taken as they were
Page = Callable[[str, int | None], str | None]  # tenant and incident → the address of its page; None: the overview


def no_page(_tenant: str, _incident: int | None) -> str | None:
    """Where incidents have no page."""
    return None


@dataclass(slots=True)
class Composer:
    """Renders messages from what is remembered. `page`: the address of an incident's page; `now`: seconds since the epoch."""

    ledger: Ledger
    known: Knowledge
    config: Config
    page: Page = no_page
    now: Callable[[], float] = time.time
    _records: dict[str, tuple[float, Mapping[str, Standing]]] = field(default_factory=dict)

    # -- messages ------------------------------------------------------------------------------------------------------

    def opening(self, posting: Posting) -> Message:
        """What is posted first; all that matters comes by an edit of it."""
        if posting.state in WHOLE_AT_ONCE:
            return self.message(posting)
        if posting.state == "collecting":
            return self._collecting(posting)
        record = self.ledger.answer(posting.incident_id) if posting.incident_id else None
        job = "A job" if record is None else record.incident.job_name or record.incident.job_id or "A job"
        called = [str(one["id"]) for one in posting.facts.get("mentions", []) if isinstance(one, dict)]
        return replies.opened(job, str(posting.facts.get("why") or ""), called)

    def wanted(self, posting: Posting) -> bool:
        """Whether it is still to be posted: a reminder is not, once somebody has said what it was."""
        if posting.state != "reminder" or posting.incident_id is None:
            return True
        record = self.ledger.answer(posting.incident_id)
        said = record is None or record.incident.closed_at is not None or record.incident.merged_into is not None
        return not said and not posting.facts.get("dismissed")

    def message(self, posting: Posting) -> Message:
        """What it says now."""
        besides: Mapping[str, Callable[[Posting], Message]] = {
            "reminder": self._reminder,
            "collecting": self._collecting,
            "digest": self._weekly,
            "rest": self._held_back,
            PROPOSAL: self._proposal,
        }
        if posting.state in besides:
            return besides[posting.state](posting)
        record = self.ledger.answer(posting.incident_id) if posting.incident_id else None
        if record is None:
            why = str(posting.facts.get("error") or "its report is not kept any more")
            job = str(posting.facts.get("job") or "The job")
            work = posting.facts.get("work")
            return notices.not_collected(job, why, f"work {work}" if work else "", posting.handle)
        report = from_json(record.report_json)
        return answer_message(report, self.card(posting, record.incident, report))

    def _held_back(self, posting: Posting) -> Message:
        """What was too much for the channel."""
        held = posting.facts.get("held", [])
        listed = [notices.Held(str(one["job"]), self.title(str(one["fault"]))) for one in held]
        return notices.held_back(listed, self._span(posting.tenant))

    def _proposal(self, posting: Posting) -> Message:
        """A proposed rule, in the thread of the incident that it came from."""
        found = proposal_of(self.ledger, int(posting.facts.get("proposal") or 0))
        return replies.said("This proposal is not kept any more.") if found is None else proposed(found)

    def _weekly(self, posting: Posting) -> Message:
        """The digest of a week, with a handle for the button that lists what nobody has closed."""
        week = str(posting.facts.get("week"))
        numbers = numbers_of(self.ledger, posting.tenant, week)
        if numbers is None:
            return digest.failed(week, str(posting.facts.get("error") or "unknown"))
        return digest.message_of(numbers, posting.handle)

    def _span(self, tenant: str) -> str:
        """For how long a channel's share is, in words."""
        settings = self.config.tenants_of_chat.get(tenant)
        minutes = round((settings.cap.span if settings is not None else HOUR) / 60)
        return "this hour" if minutes == MINUTES else f"in {minutes} minutes"

    def _reminder(self, posting: Posting) -> Message:
        record = self.ledger.answer(posting.incident_id or 0)
        job = "the job" if record is None else record.incident.job_name or record.incident.job_id or "the job"
        if not self.wanted(posting):
            return replies.said(f"Thank you: nothing more about {job}.")
        return notices.reminder(job, posting.asked_by or "", posting.handle)

    def _collecting(self, posting: Posting) -> Message:
        sources = [
            notices.SourceState(str(name), state if state in ("came", "failed") else "waiting", str(told))
            for name, state, told in posting.facts.get("sources", [])
        ]
        job = str(posting.facts.get("job") or "the job")
        return notices.collecting(job, sources, asked_by=posting.asked_by, seconds=self.config.collect.deadline)

    def reply(self, payload: Mapping[str, Any]) -> Message:
        """Words for one person alone."""
        form = payload.get("form")
        if form == "refused":
            return self.refused(str(payload["verb"]), tuple(payload.get("ask", ())))
        if form == "incident":
            return self._shown(payload)
        if form == "digest":
            numbers = numbers_of(self.ledger, str(payload["tenant"]), str(payload["week"]))
            if numbers is None:
                return replies.said("This digest is not kept any more: ask again.")
            return digest.message_of(numbers, str(payload["handle"]), alone=True)
        return self._told(payload)

    def _told(self, payload: Mapping[str, Any]) -> Message:
        form = payload.get("form")
        candidates = [
            notices.Candidate(one["handle"], one["name"], one.get("facts", "")) for one in payload.get("candidates", [])
        ]
        if form == "unknown":
            gaps = [Gap("source_failed", str(source), str(reason)) for source, reason in payload.get("gaps", [])]
            return notices.unknown_job(str(payload.get("job", "")), candidates, gaps)
        if form == "recent":
            return notices.recent_jobs(candidates)
        if form == "failed":
            return notices.not_done(str(payload.get("error", "")), f"work {payload.get('work')}")
        return Message(str(payload.get("text", "")), tuple(payload.get("blocks", ())))

    def _shown(self, payload: Mapping[str, Any]) -> Message:
        """An incident of a list."""
        record = self.ledger.answer(int(payload["incident"]))
        if record is None:
            return replies.said("This incident is not kept any more.")
        report = from_json(record.report_json)
        return answer_message(
            report, self._card(record.incident, report, str(payload["handle"]), str(payload["channel"]))
        )

    def refused(self, verb: str, ask: Sequence[str]) -> Message:
        """Somebody may not; whom to ask."""
        group = next((one for one in ask if one.startswith(("S", "U", "W"))), None)
        words = {
            "annotate": "say what an incident was",
            "mute": "mute",
            "propose_rule": "propose rules",
            "read": "see this",
            "admin": "change this",
        }
        return notices.refused(words.get(verb, verb.replace("_", " ")), group, "here" if verb != "read" else "")

    # -- what goes with a report ---------------------------------------------------------------------------------------

    def card(self, posting: Posting, incident: Incident, report: Report) -> Card:
        """What goes with the report of an incident in this message."""
        why = str(posting.facts.get("why") or "")
        return replace(
            self._card(incident, report, posting.handle, posting.channel),
            asked_by=posting.asked_by,
            why="" if posting.asked_by else why,
            later=self._later(posting, incident),
            times=int(posting.facts.get("times") or 1),
            chain=self._chain(incident) if posting.asked_by is None else None,
            owner=next((one["id"] for one in posting.facts.get("mentions", []) if isinstance(one, dict)), None),
            private=posting.channel.startswith(("D", "U", "W")),
        )

    def _card(self, incident: Incident, report: Report, handle: str, channel: str) -> Card:
        mute = self._muted(incident, report, channel)
        return Card(
            handle=handle,
            number=incident.id,
            closings=self.closings(incident.id),
            weak={one.rule: one.words for one in self._standings(incident.tenant).values() if one.weak},
            link=self.page(incident.tenant, incident.id),
            muted=mute_words(mute) if mute is not None else "",
            muted_by=mute.by or None if mute is not None else None,
            life=self._life(incident),
            bars=self.bars(incident.id),
        )

    def bars(self, incident: int) -> tuple[Barred, ...]:
        """The nodes that an incident's decision leaves out, as the bar list has them now."""
        now = datetime.fromtimestamp(self.now(), UTC)
        return tuple(
            Barred(one.node, one.state, in_words(one, now, named=False), one.decided_by if one.decided_at else None)
            for one in self.ledger.bars_of(incident)
        )

    def _life(self, incident: Incident) -> Life:
        family, until = self.ledger.family(incident.id), incident.snoozed_until
        state = state_of(incident, datetime.fromtimestamp(self.now(), UTC))
        whole = family.whole
        return Life(
            acked=incident.acked_at is not None,
            assignee=incident.assignee,
            snoozed=until.timestamp() if until is not None and state == "snoozed" else None,
            whole=None if whole is None else (*whole, self.page(incident.tenant, whole[0])),
            parts=family.parts,
            reopened=incident.reopened_at is not None and state != "closed",
        )

    def _later(self, posting: Posting, incident: Incident) -> int:
        """How many attempts failed after the one at the head of a thread."""
        head = posting.asked_by is None and posting.parent is None and incident.chain is not None
        return self.ledger.tried_after(incident) if head else 0

    def closings(self, incident: int) -> tuple[Said, ...]:
        """What people said of it, the word that counts first."""
        found = word(self.ledger.said(incident))
        return () if found is None else tuple(self._said(one) for one in (found.last, *found.against))

    def _said(self, one: Annotation) -> Said:
        said = one.said
        return Said(
            by=said.who,
            cause=nameless(said.cause) or self.title(said.fault or ""),
            nodes=said.nodes,
            verdict=said.verdict,
            note=said.note or said.action,
            at=one.at.timestamp(),
        )

    def title(self, fault: str) -> str:
        """A class of faults in words."""
        known = self.known.rulebook.faults.get(fault)
        return known.title if known is not None else fault.replace("_", " ")

    def _chain(self, incident: Incident) -> Chain | None:
        if incident.chain is None:
            return None
        before, faults = self.ledger.chain(incident)
        return Chain(before + 1, tuple((self.title(fault), count) for fault, count in faults)) if before else None

    def _standings(self, tenant: str) -> Mapping[str, Standing]:
        at, found = self._records.get(tenant, (0.0, {}))
        if self.now() - at > STANDINGS:
            bar = self.config.tenants_of_chat[tenant].bar if tenant in self.config.tenants_of_chat else None
            found = {one.rule: one for one in self.ledger.standings(tenant, bar)}
            self._records[tenant] = (self.now(), found)
        return found

    def standing(self, tenant: str, rule: str) -> Standing | None:
        """A rule's record in this tenant's close-outs."""
        return self._standings(tenant).get(rule)

    def _muted(self, incident: Incident, report: Report, channel: str) -> Mute | None:
        now = self.now()
        mutes = self.ledger.mutes(incident.tenant, datetime.fromtimestamp(now, UTC))
        if not mutes:
            return None
        job, name = incident.job_id or "", incident.job_name or ""
        return muted(mutes, subject_of(report, incident.tenant, incident.chain or "", job, name), channel, now)

    # -- forms and lists -----------------------------------------------------------------------------------------------

    def rule_form(self, draft: Draft, edits: Edits | None = None, *, busy: bool = False, problem: str = "") -> Json:
        """A draft as its form, or what the form says while there is none. `edits`: what was just typed."""
        record = self.ledger.answer(draft.incident_id)
        name = "this incident" if record is None else self.subject_words(record.incident)
        content = draft.content
        if content is None:
            return forms_rule.loading(draft.handle, name)
        if content.reasons:
            return forms_rule.refused(draft.handle, name, content.reasons)
        numbers = ", ".join(str(one) for one in content.incidents[:10])
        many = len(content.incidents) > 1
        return forms_rule.form(
            forms_rule.RuleForm(
                handle=draft.handle,
                subject=f"incidents {numbers}" if many else f"{name}, the only incident of its kind so far",
                edits=edits or content.edits,
                looks_for=content.looks_for,
                lines=content.lines,
                figures=content.figures,
                hurts=content.hurts,
                notes=content.notes,
                busy=busy,
                problem=problem,
            )
        )

    @staticmethod
    def rule_errors(draft: Draft, edits: Edits) -> dict[str, str]:
        """What of a draft as it was mended can be seen at once to be wrong, by field."""
        if draft.content is None or not draft.content.files:
            return {"title": "There is no draft yet; wait until the form is filled"}
        return wrong(edited(draft.content.files, edits), default_folder())

    @staticmethod
    def subject_words(incident: Incident) -> str:
        """An incident in a few words."""
        return f"incident {incident.id} ({incident.job_name or incident.job_id or 'a job'})"

    def close_out(
        self,
        handle: str,
        record: Answered,
        known: CloseOut | None = None,
        *,
        wrong: bool = False,
        propose: bool = False,
    ) -> Json:
        """The form to close an incident, with what is known filled in. `wrong`: somebody has just said so."""
        report = from_json(record.report_json)
        known = self.closing_known(record.incident.id, report, known)
        if wrong and known.cause in (None, "shown"):
            known = replace(known, verdict="wrong", cause=None, fault=None, rule=None)
        if propose:
            known = replace(known, propose_rule=True)
        return close_out(close_out_form(handle, report, known))

    def closing_known(self, incident: int, report: Report, known: CloseOut | None) -> CloseOut:
        """What is filled in: what was just chosen, else what was said before, else what the report found."""
        if known is not None:
            return known
        found = word(self.ledger.said(incident))
        if found is not None:
            said = found.last.said
            return CloseOut(
                said.cause, said.fault, said.rule, said.verdict, said.nodes, said.action, said.lost_hours, said.note,
                said.propose_rule,
            )  # fmt: skip
        first = report.diagnoses[0] if report.diagnoses and report.verdict == "fault" else None
        nodes = first.nodes if first else ()
        if first is None:
            return CloseOut(cause=None, nodes=nodes)
        return CloseOut(cause="shown", fault=first.fault, rule=first.rule, verdict="right", nodes=nodes[:20])

    def near(self, incident: Incident) -> list[Near]:
        """Incidents into which this one may be merged: those of the same job or fault first, then the latest."""
        now = datetime.fromtimestamp(self.now(), UTC)
        since = now - timedelta(days=14)
        found = self.ledger.list(100, Listing(incident.tenant, now, since, awake=True))
        likely = sorted(
            (one for one in found if one.id != incident.id),
            key=lambda one: (
                one.chain is None or one.chain != incident.chain,
                one.fault is None or one.fault != incident.fault,
                -one.id,
            ),
        )
        return [Near(one.id, f"{one.job_name or one.job_id or 'a job'}: {one.summary}") for one in likely[:20]]

    def handover(self, tenant: str, seconds: float) -> Message:
        """What the next shift must know."""
        now = datetime.fromtimestamp(self.now(), UTC)
        return messages_handover.message_of(handover(self.ledger, tenant, now - timedelta(seconds=seconds), now))

    def incidents(self, tenant: str, *, limit: int, skip: int = 0, to_do: bool = False) -> list[ListedIncident]:
        """The latest incidents of a tenant, each with a handle that opens it; without those that sleep or are merged."""
        found = self.ledger.list(limit, self.listing(tenant, to_do=to_do), skip=skip)
        payloads = [f'{{"incident":{one.id}}}' for one in found]
        handles = self.ledger.add_choices(tenant, payloads, datetime.fromtimestamp(self.now(), UTC))
        return [
            ListedIncident(
                handle,
                one.job_name or one.job_id or one.bundle or "a job",
                one.summary,
                one.created_at.timestamp(),
                self._closed(one),
            )
            for handle, one in zip(handles, found, strict=True)
        ]

    def listing(self, tenant: str, *, to_do: bool = False) -> Listing:
        """Which incidents stand in lists; `to_do`: those alone of which nobody has said what they were."""
        return Listing(tenant, datetime.fromtimestamp(self.now(), UTC), awake=True, to_do=to_do)

    def _closed(self, incident: Incident) -> str:
        if incident.closed_at is None:
            by = f" by {incident.assignee}" if incident.assignee and not is_person(incident.assignee) else ""
            return f"acknowledged{by}" if incident.acked_at is not None else ""
        said = self.closings(incident.id)
        return f"closed: {said[0].cause}" if said else "closed"

    def rules(self, tenant: str, asked: str) -> list[ListedRule]:
        """The rules whose id, title or fault has all these words; those with a poor record first."""
        wanted = asked.lower().split()
        book = self.known.rulebook
        found = []
        for one in book.rules:
            standing = self.standing(tenant, one.id)
            if all(word in f"{one.id} {one.title} {one.fault}".lower() for word in wanted):
                record = standing.words if standing is not None else ""
                weak = standing is not None and standing.weak
                found.append(ListedRule(one.id, book.versions.get(one.id, 1), one.title, one.fault or "", record, weak))
        return sorted(found, key=lambda one: (not one.weak, not one.record, one.id))

    def clusters(self, tenant: str) -> list[ClusterState]:
        """What a tenant sees."""
        return [
            ClusterState(one.name, tuple(ConnectorState(each.name, each.type) for each in one.connectors))
            for one in self.config.of_tenant(tenant)
        ]


def close_out_form(handle: str, report: Report, known: CloseOut) -> CloseOutForm:
    """The form for a report."""
    job = report.job.name or report.job.id or report.bundle or "the job"
    return CloseOutForm(handle, f"{job}: {report.summary}", shown_of(report), known)


def shown_of(report: Report) -> tuple[Shown, ...]:
    """The diagnoses that a person may pick, each fault once."""
    found: dict[str, Shown] = {}
    for one in report.diagnoses:
        found.setdefault(one.fault, Shown(one.rank, one.fault, one.rule, one.title))
    return tuple(found.values())[:20]


def mute_words(mute: Mute) -> str:
    """A mute in words."""
    where = "in this channel" if mute.channel else "everywhere"
    return f"{mute.kind} {mute.what} {where} until {clock(mute.until)}"
