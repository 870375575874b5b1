"""Prefilled forms: close-out, merge, rule draft."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.incidents.ledger import Ledger
from bot.incidents.resolution import word
from bot.learning.drafts.edits import edited, wrong
from bot.learning.drafts.store import Draft, DraftEdits
from bot.render.report_json import from_json
from bot.rulebase.loader import default_folder
from bot.slack.blocks.limits import Json
from bot.slack.forms import rule as forms_rule
from bot.slack.forms.close_out import CloseOut, CloseOutForm, DiagnosisOption, close_out
from bot.slack.forms.lifecycle import MergeCandidate
from bot.store.incidents import Incident, IncidentFilter, ReportedIncident
from bot.store.run_names import run_name
from bot.store.visibility import Viewer
from kb.report import Report


@dataclass(slots=True)
class FormComposer:
    """Prefills forms. `now`: returns seconds since the epoch; `can_propose`: whether rules can be proposed here."""

    ledger: Ledger
    now: Callable[[], float] = time.time
    can_propose: bool = True

    def rule_form(
        self, draft: Draft, edits: DraftEdits | None = None, *, busy: bool = False, problem: str = ""
    ) -> Json:
        """Return the form of a draft, or a placeholder while there is no draft. `edits`: the values that were just typed."""
        record = self.ledger.incidents.answer(draft.incident_id)
        name = "this incident" if record is None else self.subject_words(record.incident)
        content = draft.content
        if content is None:
            return forms_rule.loading(draft.handle, name)
        if content.reasons:
            return forms_rule.refused(draft.handle, name, content.reasons)
        numbers = ", ".join(str(incident) for incident in content.incidents[:10])
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
                notes=(*content.notes, *content.questions),
                busy=busy,
                problem=problem,
            )
        )

    @staticmethod
    def rule_errors(draft: Draft, edits: DraftEdits) -> dict[str, str]:
        """Return the obvious errors in an edited draft, by field."""
        if draft.content is None or not draft.content.files:
            return {"title": "There is no draft yet. Wait until the form is filled in."}
        return wrong(edited(draft.content.files, edits), default_folder())

    @staticmethod
    def subject_words(incident: Incident) -> str:
        """Describe an incident in a few words."""
        return f"incident {incident.id} ({run_name(incident)})"

    def close_out(
        self,
        handle: str,
        record: ReportedIncident,
        known: CloseOut | None = None,
        *,
        wrong: bool = False,
        propose: bool = False,
    ) -> Json:
        """Return the prefilled close-out form. `wrong`: the person just pressed "Wrong"."""
        report = from_json(record.report_json)
        known = self.closing_known(record.incident.id, report, known)
        if wrong and known.cause in (None, "shown"):
            known = replace(known, verdict="wrong", cause=None, fault=None, rule=None, nodes=())
        if propose:
            known = replace(known, propose_rule=True)
        return close_out(replace(close_out_form(handle, report, known), can_propose=self.can_propose))

    def closing_known(self, incident: int, report: Report, known: CloseOut | None) -> CloseOut:
        """Return the values to prefill: the current choice, else the last close-out, else the findings of the report."""
        if known is not None:
            return known
        found = word(self.ledger.closings.annotations(incident))
        if found is not None:
            said = found.last.said
            return CloseOut(
                said.cause, said.fault, said.rule, said.verdict, said.nodes, said.action, said.lost_hours, said.note,
                said.propose_rule,
            )  # fmt: skip
        first = report.diagnoses[0] if report.diagnoses and report.verdict == "fault" else None
        if first is None:
            return CloseOut(cause=None)
        nodes = first.nodes_at_fault[:20]
        return CloseOut(cause="shown", fault=first.fault, rule=first.rule, verdict="right", nodes=nodes)

    def near(self, incident: Incident) -> list[MergeCandidate]:
        """Return the incidents that this one can be merged into: those with the same job or fault first, then the latest."""
        now = datetime.fromtimestamp(self.now(), UTC)
        since = now - timedelta(days=14)
        found = self.ledger.incidents.list(
            100, IncidentFilter(incident.tenant, now, since, awake=True, viewer=Viewer(incident.private_to))
        )
        likely = sorted(
            (
                diagnosis_option
                for diagnosis_option in found
                if diagnosis_option.id != incident.id and diagnosis_option.private_to == incident.private_to
            ),
            key=lambda diagnosis_option: (
                diagnosis_option.chain is None or diagnosis_option.chain != incident.chain,
                diagnosis_option.fault is None or diagnosis_option.fault != incident.fault,
                -diagnosis_option.id,
            ),
        )
        return [
            MergeCandidate(
                diagnosis_option.id,
                f"{run_name(diagnosis_option)}: {diagnosis_option.summary}",
            )
            for diagnosis_option in likely[:20]
        ]


def close_out_form(handle: str, report: Report, known: CloseOut) -> CloseOutForm:
    """Return the close-out form for a report."""
    job = report.job.name or report.job.id or report.bundle or "the job"
    return CloseOutForm(handle, f"{job}: {report.summary}", shown_of(report), known)


def shown_of(report: Report) -> tuple[DiagnosisOption, ...]:
    """Return the diagnoses that a person can pick, each fault once."""
    found: dict[str, DiagnosisOption] = {}
    for diagnosis in report.diagnoses:
        found.setdefault(
            diagnosis.fault, DiagnosisOption(diagnosis.rank, diagnosis.fault, diagnosis.rule, diagnosis.title)
        )
    return tuple(found.values())[:20]
