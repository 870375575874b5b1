"""The mute form."""

from __future__ import annotations

from slack_bolt import Ack

from bot.slack.blocks.limits import Json, Message
from bot.slack.forms.close_out import mute_view, read_mute
from bot.slack.listeners.base import Body, ButtonPress, ListenerBase, delivery_key, handle_of, person_of
from bot.slack.messages import replies
from bot.slack.use_cases.access import Person, Subject
from kb.errors import SignalboxError


class MuteListeners(ListenerBase):
    """Listeners of the mute form."""

    def open_form(self, person: Person, subject: Subject, press: ButtonPress, kind: str) -> None:
        """Open the form to mute the rule, job or node of an incident."""
        what = self._use_cases.mutes.target(subject, kind)
        self._use_cases.access.allow(person, "mute", f"{kind} {what or ''}", subject)
        if what is None:
            raise SignalboxError(f"There is no {kind} to mute.")
        press.open(mute_view(self._use_cases.forms.save(person, subject.tenant, subject, kind), f"{kind} {what}"))

    def unmute(self, ack: Ack, body: Body, action: Body) -> None:
        """The button "Unmute" of the list of mutes."""
        person, key = person_of(body), delivery_key("action", body)

        def ended() -> Message:
            what = self._use_cases.mutes.end(person, str(action.get("value") or ""))
            return replies.text_reply(f"Automatic posts about {what} are on again.")

        told = self.safely(person, ended)
        self._use_cases.replies.send(person, key, {"text": told.text, "blocks": list(told.blocks)})
        ack()

    def muted(self, ack: Ack, body: Body, view: Body) -> None:
        """Handle the submitted mute form."""
        person, place = self.opened(body, view)

        def kept() -> Json:
            form, errors = read_mute(view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            subject = self._use_cases.forms.subject(person, handle_of(place))
            self._use_cases.mutes.mute(person, subject, str(place["kind"]), form, f"view:{view['id']}")
            return {"response_action": "clear"}

        self.submitted(ack, "Mute", kept)
