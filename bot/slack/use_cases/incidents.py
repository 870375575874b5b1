"""What people do with an incident: feedback, close-out, lifecycle steps, evidence, reminders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rapidfuzz import fuzz, process
from sqlmodel import Session

from bot.handlers.diagnose import next_working_day
from bot.incidents.grafana import owe_within
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep, step_within
from bot.incidents.lifecycle import Verb as StepVerb
from bot.incidents.resolution import Closing, annotate_within
from bot.notify.messages import add_assignment
from bot.notify.outbox import enqueue_item
from bot.policy.resolution_codes import Verdict, implied
from bot.render.report_json import from_json
from bot.slack.forms.close_out import CloseOut
from bot.slack.forms.lifecycle import SPANS, StepForm
from bot.slack.use_cases.access import AccessControl, Person, Subject, record_of
from bot.store.incidents import ReportedIncident
from bot.store.states import PostingState
from kb.errors import SignalboxError

_LISTED = 100
_NEAR = 55.0


@dataclass(slots=True)
class IncidentActions:
    """Records feedback, close-outs and lifecycle steps. `faults`: titles of fault classes by id."""

    ledger: Ledger
    access: AccessControl
    faults: Mapping[str, str] = field(default_factory=dict)

    def mark_right(self, person: Person, subject: Subject, key: str) -> bool:
        """Record that the top diagnosis was right, or that nothing failed. Return whether this is new."""
        report = from_json(record_of(subject).report_json)
        first = report.diagnoses[0] if report.diagnoses and report.verdict == "fault" else None
        if first is None:
            return self._annotate(person, subject, key, Closing(person.id, "slack", "right", "unknown"))
        said = Closing(person.id, "slack", "right", "shown", first.fault, first.rule, first.nodes_at_fault)
        return self._annotate(person, subject, key, said)

    def mark_wrong(self, person: Person, subject: Subject, key: str) -> bool:
        """Record that the answer was wrong, even if no cause follows."""
        return self._annotate(person, subject, key, Closing(person.id, "slack", "wrong"))

    def close(self, person: Person, subject: Subject, key: str, form: CloseOut) -> bool:
        """Store a submitted close-out. Return whether it is new."""
        said = Closing(
            who=person.id,
            source="slack",
            verdict=form.verdict or _implied(form, record_of(subject)),
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
        record = record_of(subject)
        self.access.allow(person, "annotate", f"incident {record.incident.id}", subject)
        now = self.access.time()

        def annotated(session: Session) -> bool:
            new = annotate_within(session, record.incident.id, subject.tenant, key=key, said=said, now=now)
            if new:
                session.add(self.access.audit_row(person, subject.tenant, "annotate", f"incident {record.incident.id}"))
            shared = record.incident.private_to is None and self.access.settings(subject.tenant).grafana is not None
            if new and said.cause is not None and shared:
                owe_within(session, record.incident.id, subject.tenant, key, now)
            return new

        return self.ledger.database.write(annotated)

    def apply_step(
        self, person: Person, subject: Subject, key: str, verb: StepVerb, filled: StepForm | None = None
    ) -> bool:
        """Apply a lifecycle step to an incident. Return whether it is new."""
        incident = record_of(subject).incident.id
        self.access.allow(person, "annotate", f"incident {incident}", subject)
        now, filled = self.access.time(), filled or StepForm()
        until = None
        if verb == "snooze":
            _, seconds = SPANS.get(filled.span, ("", None))
            zone = self.access.settings(subject.tenant).zone
            until = next_working_day(now, zone) if seconds is None else now + timedelta(seconds=seconds)
        step = LifecycleStep(verb, person.id, "slack", filled.assignee, until, filled.other, filled.note)

        def taken(session: Session) -> bool:
            new = step_within(session, incident, subject.tenant, key=key, step=step, now=now)
            if new:
                session.add(self.access.audit_row(person, subject.tenant, "annotate", f"{verb} incident {incident}"))
                if step.verb == "assign":
                    self._tell_assignee(session, person, subject, key, step)
            return new

        return self.ledger.database.write(taken)

    def _tell_assignee(self, session: Session, person: Person, subject: Subject, key: str, step: LifecycleStep) -> None:
        """Send the new assignee a direct message, because the edit of a message notifies nobody.

        It names the job only: the button opens the incident if the assignee has the right to read it.
        """
        incident, assignee = record_of(subject).incident, step.assignee
        if assignee is None or assignee == person.id or incident.private_to not in (None, assignee):
            return
        add_assignment(
            session, f"assigned:{key}", subject.tenant, incident=incident.id, to=assignee, by=person.id, note=step.note,
            now=self.access.time(),
        )  # fmt: skip

    def send_evidence(self, person: Person, subject: Subject) -> bool:
        """Send the evidence to the thread of a message, once. Return whether it was not there yet.

        The files come too, unless they came with the answer.

        Raises:
            NotAllowed: the person may not read the incident.
            SignalboxError: there is no message.
        """
        record = record_of(subject)
        self.access.allow(person, "read", f"incident {record.incident.id}", subject)
        posting, now = subject.posting, self.access.time()
        if posting is None:
            raise SignalboxError("There is no message to send the evidence to.")
        payload = {"incident": record.incident.id, "asked": True}

        def enqueued(session: Session) -> bool:
            new = False
            for method in ("evidence", "files"):
                key = f"{method}:asked:{posting.id}:{record.incident.id}"
                new |= enqueue_item(session, key, subject.tenant, method, payload, now=now, posting=posting.id)
            return new

        return self.ledger.database.write(enqueued)

    def postpone_reminder(self, person: Person, subject: Subject) -> None:
        """Send the reminder again later."""
        self.access.allow(person, "read", "a reminder", subject)
        if subject.posting is not None and subject.posting.state == PostingState.REMINDER:
            zone = self.access.settings(subject.tenant).zone
            self.ledger.messages.postpone_reminder(subject.posting.id, next_working_day(self.access.time(), zone))

    def dismiss_reminder(self, person: Person, subject: Subject) -> None:
        """Dismiss the reminder."""
        self.access.allow(person, "read", "a reminder", subject)
        if subject.posting is not None and subject.posting.state == PostingState.REMINDER:
            self.ledger.messages.dismiss_reminder(subject.posting.id)

    def search_faults(self, text: str) -> list[tuple[str, str]]:
        """Search fault classes: (id, title), best match first; all of them for empty text."""
        if not text.strip():
            return sorted(self.faults.items(), key=lambda item: item[1])[:_LISTED]
        words = {fault: f"{title} {fault.replace('_', ' ')}" for fault, title in self.faults.items()}
        hits = process.extract(text[:100], words, scorer=fuzz.WRatio, limit=_LISTED, score_cutoff=_NEAR)
        return [(fault, self.faults[fault]) for _, _, fault in hits]


def _implied(form: CloseOut, record: ReportedIncident) -> Verdict:
    """Derive whether the answer was right if the person only named a cause."""
    report = from_json(record.report_json)
    faults = [diagnosis.fault for diagnosis in report.diagnoses] if report.verdict == "fault" else []
    return implied(form.cause, form.fault, faults)
