"""Feedback on an answer, and the close-out form."""

from __future__ import annotations

from slack_bolt import Ack
from slack_sdk import WebClient

from bot.render.report_json import from_json
from bot.slack.blocks.limits import Json
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.form_composer import shown_of
from bot.slack.forms.close_out import done_view, error_view, fault_options, read_close_out
from bot.slack.forms.rule import PROPOSE_RULE
from bot.slack.listeners.base import Body, ButtonPress, ListenerBase, handle_of
from bot.slack.listeners.rules import RuleListeners
from bot.slack.use_cases.access import NotAllowed, Person, Subject
from bot.slack.use_cases.services import UseCases
from kb.errors import SignalboxError


class CloseOutListeners(ListenerBase):
    """Listeners that record the cause of an incident."""

    def __init__(self, use_cases: UseCases, composer: Composer, rules: RuleListeners) -> None:
        super().__init__(use_cases, composer)
        self._rules = rules

    def right(self, person: Person, subject: Subject, press: ButtonPress) -> None:
        """The button "Right" of an answer."""
        self._use_cases.incidents.mark_right(person, subject, press.key)

    def wrong(self, person: Person, subject: Subject, press: ButtonPress) -> None:
        """The button "Wrong" of an answer: the click is recorded, then the form opens."""
        # recorded before the form opens: closing the form without submitting still counts as "wrong"
        self._use_cases.incidents.mark_wrong(person, subject, press.key)
        self.open_form(person, subject, press, wrong=True)

    def open_form(
        self, person: Person, subject: Subject, press: ButtonPress, *, wrong: bool = False, propose: bool = False
    ) -> None:
        """Open the close-out form. `wrong`: the person just pressed "Wrong"; `propose`: preselect the rule proposal."""
        if subject.record is None:
            raise SignalboxError("This message has no report yet.")
        self._use_cases.access.allow(person, "annotate", f"incident {subject.record.incident.id}", subject)
        place = self._use_cases.forms.save(person, subject.tenant, subject)
        press.open(self._composer.forms.close_out(place, subject.record, wrong=wrong, propose=propose))

    def cause_chosen(self, ack: Ack, body: Body, client: WebClient) -> None:
        """Redraw the form after the cause was chosen: the field for another fault appears or disappears."""
        ack()
        view = body.get("view") or {}
        person, place = self.opened(body, view)
        try:
            subject = self._use_cases.forms.subject(person, handle_of(place))
            if subject.record is None:
                return
            self._use_cases.access.allow(person, "annotate", f"incident {subject.record.incident.id}", subject)
            shown = shown_of(from_json(subject.record.report_json))
            known, _ = read_close_out(view.get("state"), shown)
            form = self._composer.forms.close_out(str(view["private_metadata"]), subject.record, known)
        except NotAllowed as refused:
            form = done_view("Close out", self._composer.refusal(refused.refused).text)
        except SignalboxError as error:
            form = error_view("Close out", str(error))
        client.views_update(view_id=view["id"], hash=view.get("hash"), view=form)

    def search(self, ack: Ack, body: Body, payload: Body) -> None:
        """Suggest other faults for typed text, in the close-out form and in the form of a rule draft."""
        try:
            self._may_use(body, body.get("view") or {})
        except SignalboxError:
            ack(**fault_options([]))
            return
        ack(**fault_options(self._use_cases.incidents.search_faults(str(payload.get("value") or ""))))

    def _may_use(self, body: Body, view: Body) -> None:
        """Raise `SignalboxError` unless the person may still use an open form."""
        person, place = self.opened(body, view)
        if view.get("callback_id") == PROPOSE_RULE:
            self._use_cases.rules.load_draft(person, str(view.get("private_metadata") or ""))
            return
        subject = self._use_cases.forms.subject(person, handle_of(place))
        self._use_cases.access.allow(person, "annotate", "faults", subject)

    def closed(self, ack: Ack, body: Body, view: Body) -> None:
        """Handle a submitted close-out form."""
        person, place = self.opened(body, view)

        def kept() -> Json:
            subject = self._use_cases.forms.subject(person, handle_of(place))
            if subject.record is None:
                raise SignalboxError("Its report is no longer stored.")
            form, errors = read_close_out(view.get("state"), shown_of(from_json(subject.record.report_json)))
            if form.cause == "fault" and form.fault and form.fault not in self._use_cases.incidents.faults:
                errors["other_fault"] = "Choose a fault from the list"
            if errors:
                return {"response_action": "errors", "errors": errors}
            self._use_cases.incidents.close(person, subject, f"view:{view['id']}", form)
            if form.propose_rule and form.cause not in (None, "unknown") and self._use_cases.rules.enabled:
                return {
                    "response_action": "update",
                    "view": self._rules.view_after_close_out(person, subject, f"view:{view['id']}:rule"),
                }
            return {"response_action": "clear"}

        self.submitted(ack, "Close out", kept)
