"""Requests for diagnoses, recent jobs and digests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from sqlmodel import Session

from bot.incidents.ledger import Ledger
from bot.notify.requests import DiagnosisRequest, RequestOutcome, request_diagnosis
from bot.queue.payloads import DiagnosePayload, DigestPayload, RecentJobsPayload
from bot.slack.parsing.commands import DiagnoseCommand
from bot.slack.use_cases.access import AccessControl, NotAllowed, Person, Subject, is_direct
from kb.digest.weeks import week_named, week_of
from kb.errors import SignalboxError

EXPIRED = "This choice has expired. Run the command again."


@dataclass(slots=True)
class DiagnosisRequests:
    """Records who wants which diagnosis or digest."""

    ledger: Ledger
    access: AccessControl

    def diagnose(self, person: Person, asked: DiagnoseCommand, key: str, *, again: bool = False) -> RequestOutcome:
        """Record a diagnosis request."""
        tenant = self.access.allow(person, "diagnose", asked.job)
        order = DiagnosePayload(
            asked.job, tenant, source="slack", last=asked.last, deep=asked.deep,
            private_to=person.id if asked.private else None, state=asked.state,
        )  # fmt: skip
        return self._request(person, order, key, again=again)

    def diagnose_choice(self, person: Person, handle: str, key: str) -> tuple[RequestOutcome, str]:
        """Diagnose the selected job. Return the outcome and the job.

        Raises:
            NotAllowed: the person may not ask for diagnoses.
            SignalboxError: the choice has expired, or was offered to another person or tenant.
        """
        tenant, payload = self.ledger.choices.choice(handle) or ("", "{}")
        chosen: dict[str, Any] = msgspec.json.decode(payload)
        if "order" not in chosen:
            raise SignalboxError(EXPIRED)
        order = msgspec.convert(chosen["order"], DiagnosePayload)
        if chosen.get("private") and order.private_to is None:  # offered before private answers had separate tasks
            order = msgspec.structs.replace(order, private_to=person.id)
        if order.tenant != tenant or order.private_to not in (None, person.id):
            raise SignalboxError(EXPIRED)
        try:
            self.access.allow(person, "diagnose", order.job, Subject(None, None, tenant))
        except NotAllowed as refused:
            if refused.refused.why == "channel":  # belongs to another tenant
                raise SignalboxError(EXPIRED) from None
            raise
        return self._request(replace(person, thread_ts=chosen.get("thread_ts")), order, key), order.job

    def diagnose_again(self, person: Person, subject: Subject, key: str) -> RequestOutcome:
        """Diagnose the same job again.

        Raises:
            NotAllowed: the person may not ask for diagnoses.
            SignalboxError: the message has no job.
        """
        if subject.record is not None:
            incident = subject.record.incident
            job, cluster = incident.job_id or incident.job_name, incident.cluster
        else:
            job, cluster = str(subject.posting.facts.get("job") or "") if subject.posting else "", None
        if not job:
            raise SignalboxError("This message doesn't contain a job name or ID.")
        order = DiagnosePayload(job, subject.tenant, cluster, source="slack", private_to=_private_to(person, subject))
        self.access.allow(person, "diagnose", job, subject)
        thread = subject.posting.thread if subject.posting else None
        return self._request(replace(person, thread_ts=thread), order, key, again=True)

    def _request(self, person: Person, order: DiagnosePayload, key: str, *, again: bool = False) -> RequestOutcome:
        request = DiagnosisRequest(
            key=key,
            tenant=order.tenant,
            channel=person.channel,
            who=person.id,
            thread_ts=person.thread_ts,
            private=order.private_to is not None,
            again=again,
            reply_to=person.reply_to,
        )
        now, fold = self.access.time(), self.access.settings(order.tenant).fold

        def record(session: Session) -> RequestOutcome:
            outcome = request_diagnosis(session, request, order.request(), now, fold)
            if not outcome.second:
                session.add(self.access.audit_row(person, order.tenant, "diagnose", order.job))
            return outcome

        return self.ledger.database.write(record)

    def list_recent(self, person: Person, key: str) -> None:
        """List the person's recent failed jobs, because no job was named."""
        tenant = self.access.allow(person, "diagnose", "")
        users = tuple(name for name, who in self.access.settings(tenant).people.users.items() if who == person.id)
        order = RecentJobsPayload(tenant, person.id, users)
        request = DiagnosisRequest(key, tenant, person.channel, person.id, person.thread_ts, reply_to=person.reply_to)
        self.ledger.requests.request_diagnosis(request, order.request(), self.access.time(), 0.0)

    def request_digest(self, person: Person, week: str, key: str) -> str:
        """Request the digest of a week, by default the last full one. Return the name of the week.

        Raises:
            SignalboxError: there is no such week.
        """
        tenant = self.access.allow(person, "digest", week)
        zone = ZoneInfo(self.access.settings(tenant).zone)
        running = week_of(self.access.time(), zone)
        wanted = {"": running.shifted(-1), "now": running}.get(week.lower()) or week_named(week)
        request = DiagnosisRequest(
            key, tenant, person.channel, person.id, person.thread_ts, private=True, reply_to=person.reply_to
        )
        self.ledger.requests.request_diagnosis(
            request, DigestPayload(tenant, str(wanted)).request(), self.access.time(), 0.0
        )
        return str(wanted)


def _private_to(person: Person, subject: Subject) -> str | None:
    """Return the only person for whom to diagnose again: a private request stays private, even if it failed without a report."""
    if subject.record is not None:
        return person.id if subject.record.incident.private_to is not None else None
    return person.id if subject.posting is not None and is_direct(subject.posting.channel) else None
