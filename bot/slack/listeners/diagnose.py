"""Diagnosis requests: the command, the message shortcut, the choice among jobs."""

from __future__ import annotations

from slack_bolt import Ack
from slack_sdk import WebClient

from bot.notify.requests import RequestOutcome
from bot.slack.blocks.limits import Json, Message
from bot.slack.delivery.compose import Composer
from bot.slack.forms.close_out import read_which_job, which_job
from bot.slack.listeners.base import (
    Body,
    ButtonPress,
    ListenerBase,
    acknowledge,
    delivery_key,
    is_acknowledgement,
    person_of,
    person_of_command,
    workspaces_of,
)
from bot.slack.messages import lists, notices, replies
from bot.slack.parsing.commands import DiagnoseCommand, UsageError, asks_for_help, read_diagnose
from bot.slack.parsing.job_names import jobs_named
from bot.slack.use_cases.access import Person
from bot.slack.use_cases.services import UseCases
from kb.errors import SignalboxError


class DiagnoseListeners(ListenerBase):
    """Listeners for diagnosis requests. `team_url`: the address of the workspace, for links to messages."""

    def __init__(self, use_cases: UseCases, composer: Composer, team_url: str) -> None:
        super().__init__(use_cases, composer)
        self._team_url = team_url

    def diagnose(self, ack: Ack, command: Body) -> None:
        """`/diagnose JOB [last 2h] [state FAILED] [private] [deep]`, or `/diagnose help`."""
        person = person_of_command(command)
        acknowledge(
            ack,
            self.safely(
                person, lambda: self.request(person, command.get("text") or "", delivery_key("command", command))
            ),
        )

    def request(self, person: Person, text: str, key: str) -> Message:
        """Request a diagnosis as typed; return the acknowledgement or an error message."""
        if asks_for_help(text):
            return lists.guide("/diagnose")
        asked = read_diagnose(text)
        if isinstance(asked, UsageError):
            return notices.usage(asked.problem)
        if not asked.job:
            self._use_cases.diagnoses.list_recent(person, key)
            return replies.searching()
        return self.acknowledgement(self._use_cases.diagnoses.diagnose(person, asked, key), asked)

    def acknowledgement(self, taken: RequestOutcome, asked: DiagnoseCommand) -> Message:
        """Return the acknowledgement of a request, with a link to the message that already answers it."""
        posting = taken.posting
        link = None
        if posting is not None and posting.ts is not None and self._team_url:
            link = f"{self._team_url.rstrip('/')}/archives/{posting.channel}/p{posting.ts.replace('.', '')}"
        return replies.request_accepted(asked.job, private=asked.private, there=posting is not None, link_to=link)

    def diagnose_message(self, ack: Ack, shortcut: Body, client: WebClient) -> None:
        """Handle the shortcut "Diagnose job in this message". Ask which job if the message does not name exactly one."""
        press = ButtonPress(shortcut, client, ack)
        message = shortcut.get("message") or {}
        person = Person(
            shortcut["user"]["id"],
            shortcut["channel"]["id"],
            message.get("thread_ts") or message.get("ts"),
            shortcut.get("response_url"),
            workspaces_of(shortcut),
        )
        named = jobs_named(message)

        def opened() -> Message | None:
            if len(named) == 1:
                return self.acknowledgement(
                    self._use_cases.diagnoses.diagnose(
                        person, DiagnoseCommand(named[0]), delivery_key("shortcut", shortcut)
                    ),
                    DiagnoseCommand(named[0]),
                )
            place, handles = self._use_cases.forms.offer_jobs(person, named)
            press.open(which_job(place, list(zip(handles, named, strict=True))))
            return None

        told = self.safely(person, opened)
        if told is not None and not (len(named) == 1 and is_acknowledgement(told)):
            self._use_cases.replies.send(
                person, delivery_key("shortcut", shortcut), {"text": told.text, "blocks": list(told.blocks)}
            )
        press.acknowledge()

    def pick(self, ack: Ack, body: Body, action: Body) -> None:
        """Diagnose the job that was picked from a list."""
        person = person_of(body)

        def picked() -> Message | None:
            taken, job = self._use_cases.diagnoses.diagnose_choice(
                person, str(action.get("value") or ""), delivery_key("action", body)
            )
            return None if taken.second else self.acknowledgement(taken, DiagnoseCommand(job))

        told = self.safely(person, picked)
        if told is not None:
            self._use_cases.replies.send(
                person, f"{delivery_key('action', body)}:told", {"text": told.text, "blocks": list(told.blocks)}
            )
        ack()

    def which(self, ack: Ack, body: Body, view: Body) -> None:
        """Handle the form that asks for the job."""
        person, place = self.opened(body, view)

        def kept() -> Json:
            if not place:
                raise SignalboxError("This form has expired. Use the shortcut again.")
            picked, errors = read_which_job(view.get("state"))
            if errors:
                return {"response_action": "errors", "errors": errors}
            key = f"view:{view['id']}"
            if picked.handle is not None:
                self._use_cases.diagnoses.diagnose_choice(person, picked.handle, key)
                return {"response_action": "clear"}
            asked = read_diagnose(picked.text)
            if isinstance(asked, UsageError):
                return {"response_action": "errors", "errors": {"name": asked.problem}}
            self._use_cases.diagnoses.diagnose(person, asked, key)
            return {"response_action": "clear"}

        self.submitted(ack, "Diagnose a job", kept)
