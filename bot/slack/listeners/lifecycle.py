"""The steps of an incident: acknowledge, assign, snooze, merge, reopen."""

from __future__ import annotations

from slack_bolt import Ack
from slack_sdk import WebClient

from bot.incidents.lifecycle import StepNotAllowed
from bot.incidents.resolution import IncidentNotFound
from bot.slack.blocks.limits import Json
from bot.slack.forms import lifecycle
from bot.slack.listeners.base import Body, ButtonPress, ListenerBase, handle_of
from bot.slack.use_cases.access import Person, Subject
from bot.store.run_names import run_name
from kb.errors import SignalboxError


class LifecycleListeners(ListenerBase):
    """Listeners for the menu of steps and its forms."""

    def acknowledge(self, person: Person, subject: Subject, press: ButtonPress) -> None:
        """The button "Acknowledge" of an answer."""
        self._use_cases.incidents.apply_step(person, subject, press.key, "ack")

    def menu(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """Handle the menu of steps (`verb:handle`). Steps that need no input are applied at once."""
        verb, _, handle = str((action.get("selected_option") or {}).get("value") or "").partition(":")

        def do(person: Person, subject: Subject, press: ButtonPress) -> None:
            if verb in ("ack", "reopen"):
                self._use_cases.incidents.apply_step(person, subject, press.key, verb)  # type: ignore[arg-type]
                return
            if verb not in ("assign", "snooze", "merge") or subject.record is None:
                raise SignalboxError("This option is no longer available.")
            incident = subject.record.incident
            self._use_cases.access.allow(person, "annotate", f"incident {incident.id}", subject)
            near = self._composer.forms.near(incident) if verb == "merge" else ()
            told = f"incident {incident.id} ({run_name(incident)}: {incident.summary})"
            press.open(
                lifecycle.form(
                    verb,
                    self._use_cases.forms.save(person, subject.tenant, subject, verb),
                    told,
                    near,
                    incident.assignee,
                )
            )

        self.on_subject(ButtonPress(body, client, ack), handle, do)

    def submitted_step(self, ack: Ack, body: Body, view: Body) -> None:
        """Handle the submitted form of a step."""
        person, place = self.opened(body, view)
        verb = str(place.get("kind") or "")

        def kept() -> Json:
            handle = handle_of(place)
            form, errors = lifecycle.read_form(verb, view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            subject = self._use_cases.forms.subject(person, handle)
            try:
                self._use_cases.incidents.apply_step(person, subject, f"view:{view['id']}", verb, form)  # type: ignore[arg-type]
            except (IncidentNotFound, StepNotAllowed) as error:
                field = {"assign": "assignee", "snooze": "span"}.get(verb, "other")
                return {"response_action": "errors", "errors": {field: str(error)}}
            return {"response_action": "clear"}

        self.submitted(ack, "This incident", kept)
