"""Composes the current text of a message from its row, its incident, close-outs and mutes.

This module reads the ledger, writes nothing and makes no calls. The sender uses it to get the current text of a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bot.config.settings import Config
from bot.digest.schedule import numbers_of
from bot.incidents.ledger import Ledger
from bot.learning.proposals.store import proposal_of
from bot.notify.messages import Posting
from bot.pages.attachments import read as page_attachments
from bot.policy.permissions import Refusal
from bot.render.report_json import from_json
from bot.rulebase.loader import Knowledge
from bot.slack.blocks.limits import Message
from bot.slack.delivery.cards import CardComposer, Page, no_page
from bot.slack.delivery.form_composer import FormComposer
from bot.slack.delivery.list_composer import ListComposer
from bot.slack.forms.rule import proposed
from bot.slack.messages import digest, notices, replies
from bot.slack.messages.answer import answer_message
from bot.slack.messages.answer_header import in_one_line
from bot.slack.messages.evidence import evidence_message
from bot.slack.use_cases.access import NOT_THERE
from bot.store.run_names import run_name
from bot.store.states import PostingState
from kb.model import Gap

WHOLE_AT_ONCE = (
    PostingState.HELD_BACK,
    PostingState.REMINDER,
    PostingState.ASSIGNED,
    PostingState.DIGEST,
    PostingState.PROPOSAL,
)  # states whose first post is complete
HOUR, MINUTES = 3600.0, 60


class Composer:
    """Renders messages from the store. `page`: returns the address of an incident page; `now`: returns seconds since the epoch."""

    def __init__(
        self,
        ledger: Ledger,
        known: Knowledge,
        config: Config,
        page: Page = no_page,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.ledger = ledger
        self.config = config
        self.page = page
        self.now = now
        self.cards = CardComposer(ledger, known, config, page, now)
        self.forms = FormComposer(ledger, now, can_propose=config.rules.pull_requests is not None)
        self.lists = ListComposer(ledger, config, self.cards, now)

    def use_rules(self, known: Knowledge) -> None:
        """Use this rule base from now on for the names of faults and rules."""
        self.cards.known = known

    def opening(self, posting: Posting) -> Message:
        """Return the opening text of a message. Everything that matters follows as an edit."""
        if posting.state in WHOLE_AT_ONCE:
            return self.message(posting)
        if posting.state == PostingState.COLLECTING:
            return self._collecting(posting)
        record = self.ledger.incidents.answer(posting.incident_id) if posting.incident_id else None
        job = "A job" if record is None else run_name(record.incident, "A job")
        called = [str(mention["id"]) for mention in posting.facts.get("mentions", []) if isinstance(mention, dict)]
        return replies.opening_words(job, str(posting.facts.get("why") or ""), called)

    def wanted(self, posting: Posting) -> bool:
        """Whether the message should still be posted. A reminder is dropped once somebody has closed the incident."""
        if posting.state != PostingState.REMINDER or posting.incident_id is None:
            return True
        record = self.ledger.incidents.answer(posting.incident_id)
        said = record is None or record.incident.closed_at is not None or record.incident.merged_into is not None
        return not said and not posting.facts.get("dismissed")

    def message(self, posting: Posting) -> Message:
        """Return the current text of the message."""
        besides: Mapping[str, Callable[[Posting], Message]] = {
            PostingState.REMINDER: self._reminder,
            PostingState.ASSIGNED: self._assigned,
            PostingState.COLLECTING: self._collecting,
            PostingState.DIGEST: self._weekly,
            PostingState.HELD_BACK: self._held_back,
            PostingState.PROPOSAL: self._proposal,
        }
        if posting.state in besides:
            return besides[posting.state](posting)
        record = self.ledger.incidents.answer(posting.incident_id) if posting.incident_id else None
        if record is None:
            why = str(posting.facts.get("error") or "its report is no longer stored")
            job = str(posting.facts.get("job") or "The job")
            work = posting.facts.get("work")
            return notices.not_collected(job, why, f"work {work}" if work else "", posting.handle)
        report = from_json(record.report_json)
        return answer_message(report, self.cards.card(posting, record.incident, report))

    def _held_back(self, posting: Posting) -> Message:
        """List the failures above the message limit of the channel."""
        held = posting.facts.get("held", [])
        listed = [notices.Held(str(item["job"]), self.cards.title(str(item["fault"]))) for item in held]
        return notices.held_back(listed, self._span(posting.tenant))

    def _proposal(self, posting: Posting) -> Message:
        """Return the status of a proposed rule, for the thread of its incident."""
        found = proposal_of(self.ledger.database, int(posting.facts.get("proposal") or 0))
        return replies.text_reply("This proposal is no longer stored.") if found is None else proposed(found)

    def _weekly(self, posting: Posting) -> Message:
        """Return the digest of a week, with a handle for the button that lists open incidents."""
        week = str(posting.facts.get("week"))
        numbers = numbers_of(self.ledger.database, posting.tenant, week)
        if numbers is None:
            return digest.failed(week, str(posting.facts.get("error") or "unknown"))
        return digest.message_of(numbers, posting.handle)

    def _span(self, tenant: str) -> str:
        """Describe the period of the message limit in words."""
        settings = self.config.tenants_of_chat.get(tenant)
        minutes = round((settings.cap.span if settings is not None else HOUR) / 60)
        return "this hour" if minutes == MINUTES else f"in {minutes} minutes"

    def _reminder(self, posting: Posting) -> Message:
        record = self.ledger.incidents.answer(posting.incident_id or 0)
        job = "the job" if record is None else run_name(record.incident, "the job")
        if not self.wanted(posting):
            return replies.text_reply(f"Thanks. No more questions about {job}.")
        return notices.reminder(job, posting.asked_by or "", posting.handle)

    def _assigned(self, posting: Posting) -> Message:
        record = self.ledger.incidents.answer(posting.incident_id or 0)
        if record is None:
            return replies.text_reply("This incident is no longer stored.")
        job = run_name(record.incident)
        by, note = (str(posting.facts.get(name) or "") for name in ("by", "note"))
        return replies.assigned(record.incident.id, job, by=by, note=note, handle=posting.handle)

    def _collecting(self, posting: Posting) -> Message:
        sources = [
            notices.SourceState(str(name), state if state in ("came", "empty", "failed") else "waiting", str(told))
            for name, state, told in posting.facts.get("sources", [])
        ]
        job = str(posting.facts.get("job") or "the job")
        return notices.collecting(
            job,
            sources,
            asked_by=posting.asked_by,
            seconds=self.config.collect.deadline,
            tries=int(posting.facts.get("tries") or 1),
            silent=bool(posting.facts.get("silent")),
        )

    def reply(self, payload: Mapping[str, Any]) -> Message:
        """Return a reply to one person."""
        special: Mapping[str, Callable[[Mapping[str, Any]], Message]] = {
            "refused": lambda told: self.refused(str(told["verb"]), tuple(told.get("ask", ()))),
            "incident": self._listed_incident,
            "evidence": lambda told: self.evidence(int(told["incident"])),
            "digest": self._asked_digest,
            "undelivered": lambda told: replies.undelivered(
                str(told.get("job") or "the job"), str(told.get("why") or "")
            ),
        }
        return special.get(str(payload.get("form")), self._simple_reply)(payload)

    def _asked_digest(self, payload: Mapping[str, Any]) -> Message:
        numbers = numbers_of(self.ledger.database, str(payload["tenant"]), str(payload["week"]))
        if numbers is None:
            return replies.text_reply("This digest is no longer stored. Run the command again.")
        return digest.message_of(numbers, str(payload["handle"]), alone=True)

    def _simple_reply(self, payload: Mapping[str, Any]) -> Message:
        form = payload.get("form")
        candidates = [
            notices.Candidate(candidate["handle"], candidate["name"], candidate.get("facts", ""))
            for candidate in payload.get("candidates", [])
        ]
        if form == "unknown":
            gaps = [Gap("source_failed", str(source), str(reason)) for source, reason in payload.get("gaps", [])]
            return notices.unknown_job(str(payload.get("job", "")), candidates, gaps)
        if form == "worker":
            return replies.text_reply(notices.lost_worker(int(payload.get("tries") or 1), bool(payload.get("silent"))))
        if form == "recent":
            return notices.recent_jobs(candidates)
        if form == "failed":
            return notices.not_done(str(payload.get("error", "")), f"work {payload.get('work')}")
        return Message(str(payload.get("text", "")), tuple(payload.get("blocks", ())))

    def _listed_incident(self, payload: Mapping[str, Any]) -> Message:
        """Return an incident that was opened from a list."""
        record = self.ledger.incidents.answer(int(payload["incident"]))
        if record is None:
            return replies.text_reply("This incident is no longer stored.")
        report = from_json(record.report_json)
        return answer_message(
            report, self.cards.card_for(record.incident, report, str(payload["handle"]), str(payload["channel"]))
        )

    def evidence(self, incident: int) -> Message:
        """Return the evidence of an incident, with the lines around it."""
        record = self.ledger.incidents.answer(incident)
        if record is None:
            return replies.text_reply("This incident is no longer stored.")
        kept = page_attachments(lambda name: self.ledger.incidents.kept(incident, name))
        return evidence_message(from_json(record.report_json), kept.passages)

    def ready(self, posting: Posting, who: Sequence[str]) -> Message:
        """Tell those who asked that the message has an answer now."""
        record = self.ledger.incidents.answer(posting.incident_id) if posting.incident_id else None
        report = None if record is None else from_json(record.report_json)
        return replies.answer_ready(who, "No diagnosis was possible." if report is None else in_one_line(report))

    def refusal(self, refused: Refusal) -> Message:
        """Say why a person cannot do something here. The text for a hidden item is the same as for one that never existed."""
        if refused.why in ("person", "guest"):
            return self.refused(refused.verb, refused.ask if refused.why == "person" else ())
        if refused.why in ("channel", "stranger"):
            return notices.not_here(refused.ask, direct=refused.why == "stranger")
        return replies.text_reply(
            {
                "workspace": "Signalbox does not answer people from this workspace.",
                "unknown": "Slack did not say who you are. Try again in a minute.",
            }.get(refused.why, NOT_THERE)
        )

    def refused(self, verb: str, ask: Sequence[str]) -> Message:
        """Say that a person lacks permission, and whom to ask."""
        group = next((text for text in ask if text.startswith(("S", "U", "W"))), None)
        words = {
            "annotate": "close incidents",
            "mute": "mute",
            "propose_rule": "propose rules",
            "read": "see this",
            "admin": "change this",
        }
        return notices.refused(words.get(verb, verb.replace("_", " ")), group, "here" if verb != "read" else "")
