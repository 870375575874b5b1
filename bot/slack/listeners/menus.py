"""The overflow menu of an answer: run again, mute, propose a rule."""

from __future__ import annotations

from slack_bolt import Ack
from slack_sdk import WebClient

from bot.render.report_json import from_json
from bot.slack.blocks.limits import Message
from bot.slack.delivery.compose import Composer
from bot.slack.forms import rule as forms_rule
from bot.slack.listeners.base import Body, ButtonPress, ListenerBase
from bot.slack.listeners.close_out import CloseOutListeners
from bot.slack.listeners.mutes import MuteListeners
from bot.slack.messages import replies
from bot.slack.use_cases.access import Person, Subject
from bot.slack.use_cases.services import UseCases
from bot.store.incidents import ReportedIncident
from kb.errors import SignalboxError, UnreadableInput
from kb.report import is_unexplained


class MenuListeners(ListenerBase):
    """Listeners for the overflow menu and the button that proposes a rule."""

    def __init__(
        self, use_cases: UseCases, composer: Composer, close_out: CloseOutListeners, mutes: MuteListeners
    ) -> None:
        super().__init__(use_cases, composer)
        self._close_out = close_out
        self._mutes = mutes

    def propose(self, person: Person, subject: Subject, press: ButtonPress) -> None:
        """Propose a rule if the incident is closed or its failure unknown; otherwise open the close-out form first.

        The lines of an unknown failure are the seed of its rule, and the form of the rule asks for the fault.
        """
        record = subject.record
        if record is None or (record.incident.closed_at is None and not _is_unexplained(record)):
            self._close_out.open_form(person, subject, press, propose=True)
            return
        handle = self._use_cases.rules.start_draft(person, subject, press.key)
        press.open(forms_rule.loading(handle, self._composer.forms.subject_words(record.incident)))

    def more(self, ack: Ack, body: Body, action: Body, client: WebClient) -> None:
        """Handle the overflow menu (`verb:handle`)."""
        verb, _, handle = str((action.get("selected_option") or {}).get("value") or "").partition(":")

        def do(person: Person, subject: Subject, press: ButtonPress) -> Message | None:
            if verb == "again":
                taken = self._use_cases.diagnoses.diagnose_again(person, subject, press.key)
                return (
                    None
                    if taken.second
                    else replies.text_reply("Running again. I'll post the result as a new message.")
                )
            if verb.startswith("mute_"):
                self._mutes.open_form(person, subject, press, verb.removeprefix("mute_"))
                return None
            if verb == "propose_rule":
                self.propose(person, subject, press)
                return None
            raise SignalboxError("This option is no longer available.")

        self.on_subject(ButtonPress(body, client, ack), handle, do)


def _is_unexplained(record: ReportedIncident) -> bool:
    try:
        return is_unexplained(from_json(record.report_json))
    except UnreadableInput:
        return False
