"""`/signalbox`, mentions, which also work in threads, and direct messages."""

from __future__ import annotations

from collections.abc import Callable

from slack_bolt import Ack, BoltResponse

from bot.slack.blocks.limits import Message
from bot.slack.delivery.compose import Composer
from bot.slack.listeners.base import (
    Body,
    ListenerBase,
    acknowledge,
    delivery_key,
    is_acknowledgement,
    person_of_command,
    person_of_event,
)
from bot.slack.listeners.diagnose import DiagnoseListeners
from bot.slack.messages import lists, notices, replies
from bot.slack.parsing.commands import after_mention, asks_for_help, plain, read_shift
from bot.slack.parsing.questions import command_in, looks_like_a_job, request_in
from bot.slack.use_cases.access import Person
from bot.slack.use_cases.services import UseCases

VERBS = ("help", "incidents", "handover", "digest", "rules", "nodes", "mutes", "oncall", "config")
USAGE = f"/signalbox {'|'.join(VERBS)}"


class CommandListeners(ListenerBase):
    """Listeners for typed commands."""

    def __init__(self, use_cases: UseCases, composer: Composer, diagnose: DiagnoseListeners) -> None:
        super().__init__(use_cases, composer)
        self._diagnose = diagnose

    def signalbox(self, ack: Ack, command: Body) -> None:
        """`/signalbox help|incidents|handover|digest|rules|nodes|mutes|oncall|config`."""
        person = person_of_command(command)
        words = plain(command.get("text") or "")
        told = self.safely(person, lambda: self._run_verb(person, words, delivery_key("command", command)))
        here = words.lower().startswith("handover") and words.lower().endswith(" here")
        acknowledge(ack, told, to_all=here)

    def _run_verb(self, person: Person, words: str, key: str) -> Message:
        verb, _, rest = words.partition(" ")
        asked, page = _paged(rest)
        does: dict[str, Callable[[], Message]] = {
            "": lists.guide,
            "incidents": lambda: self._incidents(person, page),
            "handover": lambda: self._handover(person, rest),
            "digest": lambda: self._digest(person, rest, key),
            "rules": lambda: self._rules(person, asked, page),
            "nodes": lambda: self._composer.lists.nodes(self._use_cases.access.allow(person, "read", "nodes"), page),
            "mutes": lambda: self._composer.lists.mutes(self._use_cases.access.allow(person, "read", "mutes"), page),
            "oncall": lambda: self._on_call(person),
            "config": lambda: lists.config(
                self._composer.lists.clusters(self._use_cases.access.allow(person, "read", "config"))
            ),
        }
        if verb.lower() in does and asks_for_help(rest):
            return lists.guide(f"/signalbox {verb.lower()}")
        if asks_for_help(verb):
            return lists.guide()
        does_this = does.get(verb.lower())
        return notices.usage(f"Unknown command “{verb[:40]}”.", USAGE) if does_this is None else does_this()

    def _incidents(self, person: Person, page: int) -> Message:
        tenant = self._use_cases.access.allow(person, "read", "incidents")
        viewer = self._use_cases.access.viewer(person, tenant)
        found = self._composer.lists.incidents(tenant, viewer, limit=lists.PAGE, skip=(page - 1) * lists.PAGE)
        total = self._use_cases.ledger.incidents.count(self._composer.lists.listing(tenant, viewer))
        return lists.incidents(found, page, total, self._composer.page(tenant, None, None))

    def _on_call(self, person: Person) -> Message:
        tenant = self._use_cases.access.allow(person, "read", "on call")
        configured = self._use_cases.access.settings(tenant).on_call is not None
        return replies.on_call(self._composer.cards.on_call(tenant), configured=configured)

    def _handover(self, person: Person, rest: str) -> Message:
        tenant = self._use_cases.access.allow(person, "read", "handover")
        return self._composer.lists.handover(tenant, read_shift(rest))

    def _digest(self, person: Person, rest: str, key: str) -> Message:
        week = self._use_cases.diagnoses.request_digest(person, rest.strip(), key)
        return replies.text_reply(f"Preparing the digest for {week}. I'll send it only to you.")

    def _rules(self, person: Person, asked: str, page: int) -> Message:
        head, _, rule = asked.partition(" ")
        if head == "looked":
            tenant = self._use_cases.access.allow(person, "admin", f"rule {rule}")
            self._use_cases.rules.mark_reviewed(person, tenant, rule)
            return replies.text_reply(f"The record of {rule[:80]} starts over now.")
        tenant = self._use_cases.access.allow(person, "read", "rules")
        found = self._composer.lists.rules(tenant, asked)
        return lists.rules(found[(page - 1) * lists.PAGE : page * lists.PAGE], page, len(found), asked)

    def mentioned(self, event: Body, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """Handle `@signalbox diagnose JOB`: slash commands do not work in threads."""
        if not event.get("bot_id") and event.get("user"):  # two bots could talk to each other forever
            self._mentioned(event, body)
        return next_()

    def written(self, event: Body, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """Answer what a person writes to the app in a direct message: a command, or a question that names a job."""
        by_person = (
            event.get("user") and not event.get("bot_id") and not event.get("subtype")
        )  # not an edit, not a join
        if by_person and event.get("channel_type") == "im":
            self._mentioned(event, body)
        return next_()

    def _mentioned(self, event: Body, body: Body) -> None:
        person = person_of_event(event, body)
        key = f"event:{body['event_id']}"
        words = after_mention(str(event.get("text") or ""))
        verb, _, rest = words.partition(" ")
        text = rest if verb.lower() == "diagnose" else request_in(words) if verb.lower() not in VERBS else ""
        if verb.lower() != "diagnose" and text and not looks_like_a_job(words):
            told = self.safely(person, lambda: self._plain_word(person, text, key))
            if is_acknowledgement(told):
                return
        elif verb.lower() == "diagnose" or text:
            told = self.safely(person, lambda: self._diagnose.request(person, text, key))
            if is_acknowledgement(told):
                return  # the posted message is the answer
        elif verb.lower() not in VERBS and (asked := command_in(words)):
            told = self.safely(person, lambda: self._run_verb(person, asked, key))
        elif words and verb.lower() not in VERBS and not asks_for_help(words):
            told = lists.guide(problem="I couldn't find a job in your message. Enter its name or ID.")
        else:
            told = self.safely(person, lambda: self._run_verb(person, words, key))
        self._use_cases.replies.send(person, key, {"form": "message", "text": told.text, "blocks": list(told.blocks)})

    def _plain_word(self, person: Person, word: str, key: str) -> Message:
        """Diagnose a job that an incident knows by this word; else show the commands, for it may be no job at all."""
        tenant = self._use_cases.access.allow(person, "diagnose", word)
        viewer = self._use_cases.access.viewer(person, tenant)
        if self._use_cases.ledger.incidents.knows_job(tenant, word, viewer):
            return self._diagnose.request(person, word, key)
        return lists.guide(problem=f"I know no job “{word[:40]}”. If it is one: diagnose {word[:40]}")


def _paged(words: str) -> tuple[str, int]:
    """Split words from a page number at their end."""
    head, _, number = words.rpartition(" ")
    first, _, last = head.rpartition(" ")
    if (last or head) == "page" and number.isdecimal() and len(number) < 6:
        return (first if last else ""), max(1, int(number))
    return words, 1
