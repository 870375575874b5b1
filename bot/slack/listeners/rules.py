"""Rule drafts: replay edits, propose."""

from __future__ import annotations

from slack_bolt import Ack
from slack_sdk import WebClient

from bot.learning.drafts.store import DraftRequest as DraftWish
from bot.slack.blocks.limits import Json
from bot.slack.forms import rule as forms_rule
from bot.slack.forms.close_out import done_view, error_view
from bot.slack.listeners.base import Body, ListenerBase, person_of
from bot.slack.use_cases.access import NotAllowed, Person, Subject
from kb.errors import SignalboxError


class RuleListeners(ListenerBase):
    """Listeners for the form of a rule draft."""

    def replay(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """Replay the edited draft. The form shows that it is busy and is updated later."""
        ack()
        view, person = body.get("view") or {}, person_of(body)
        try:
            draft = self._use_cases.rules.load_draft(person, str(action.get("value") or ""))
            edits, errors = forms_rule.read_form(view.get("state"))
            if errors:  # a button cannot show errors beside fields
                form = self._composer.forms.rule_form(draft, edits, problem="; ".join(errors.values()))
            elif self._use_cases.rules.update_draft(draft, DraftWish("show", edits)):
                form = self._composer.forms.rule_form(draft, edits, busy=True)
            else:
                return  # pressed twice
        except NotAllowed as refused:
            form = done_view("Propose a rule", self._composer.refusal(refused.refused).text)
        except SignalboxError as error:
            form = error_view("Propose a rule", str(error))
        client.views_update(view_id=view["id"], view=form)

    def submitted_draft(self, ack: Ack, body: Body, view: Body) -> None:
        """Propose the draft. Obvious errors appear beside their fields; a worker does the rest."""
        person = person_of(body)

        def kept() -> Json:
            draft = self._use_cases.rules.load_draft(person, str(view.get("private_metadata") or ""))
            edits, errors = forms_rule.read_form(view.get("state"))
            errors |= self._composer.forms.rule_errors(draft, edits) if not errors else {}
            if draft.content is not None and draft.content.hurts and not edits.force and not errors:
                errors["force"] = "The replay found problems. Edit the rule and try again, or tick this box."
            if errors:
                return {"response_action": "errors", "errors": errors}
            self._use_cases.rules.update_draft(draft, DraftWish("propose", edits))
            told = "Saved. Signalbox replays the rule once more and proposes it. A message here shows the progress."
            return {"response_action": "update", "view": done_view("Propose a rule", told)}

        self.submitted(ack, "Propose a rule", kept)

    def view_after_close_out(self, person: Person, subject: Subject, key: str) -> Json:
        """Return the view after a close-out that asks for a rule: its form, or why there is none.

        The close-out is stored either way.
        """
        try:
            handle = self._use_cases.rules.start_draft(person, subject, key)
        except NotAllowed as refused:
            told = self._composer.refusal(refused.refused)
            return done_view("Close out", f"The incident is closed. {told.text}")
        except SignalboxError as error:
            return done_view("Close out", f"The incident is closed. No rule was drafted: {error}")
        incident = subject.record.incident if subject.record is not None else None
        return forms_rule.loading(handle, "it" if incident is None else self._composer.forms.subject_words(incident))
