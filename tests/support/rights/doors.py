"""Every way into the app: its requirements, what is delivered, and how to see that it opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.slack.use_cases.access import Person, Subject
from tests.support.rights.scene import OWN, Scene, Seen, Someone, Target, direct

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where somebody asks. `channel`: None for a direct message, "home" for the Home tab; `used`: a channel used lately."""

    channel: str | None
    used: str | None = None
    team: str = OWN

    def of(self, who: Someone) -> str:
        """The channel as Slack gives it; the Home tab has none."""
        return direct(who.id) if self.channel is None else "D" if self.channel == "home" else self.channel


@dataclass(frozen=True)
class Asked:
    """A delivery to make: by whom, where, about which incident."""

    scene: Scene
    who: Someone
    place: Place
    target: Target
    handle: str = ""

    @property
    def channel(self) -> str:
        """The channel of the delivery."""
        return self.place.of(self.who)

    def common(self, kind: str) -> Json:
        """What all interactions have."""
        body: Json = {
            "type": kind,
            "user": {"id": self.who.id, "team_id": OWN},
            "team": {"id": self.place.team},
            "enterprise": None,
            "trigger_id": self.scene.trigger(),
        }
        return body if self.place.channel == "home" else {**body, "channel": {"id": self.channel}}

    def opened(self, kind: str = "", who: Someone | None = None) -> str:
        """The handle of a form about the incident that somebody, by default this person, has open."""
        record = self.scene.ledger.incidents.answer(self.target.number)
        person = Person((who or self.who).id, self.channel)
        subject = Subject(None, record, self.target.tenant)
        return self.scene.use_cases.forms.save(person, self.target.tenant, subject, kind)


Made = Callable[[Asked], Json]
Shown = Callable[[Asked, Seen], bool]


def opens(asked: Asked, seen: Seen) -> bool:
    """Something was shown of the incident, a form opened, or something was stored."""
    return seen.wrote or seen.opened or any(item.marker in seen.text for item in asked.scene.targets)


def says(words: str) -> Shown:
    """These words were shown."""
    return lambda _, seen: words in seen.text


def changes(_: Asked, seen: Seen) -> bool:
    """Something was stored."""
    return seen.wrote


@dataclass(frozen=True)
class Door:
    """A way in. `kind`, `name`: as registered with the app; `part`: a subcommand or an option of a menu.

    `verb`: what one must be allowed, None for nothing in particular; `about`: an incident, or the tenant of the place; `to_owner`:
    only for whom it is addressed to; `shown`: whether it opened; `by`: which handle of the incident it carries.
    """

    kind: str
    name: str
    part: str
    verb: str | None
    made: Made
    about: str = "incident"
    to_owner: bool = False
    shown: Shown = opens
    by: tuple[str, ...] = ("message", "listed")

    def __str__(self) -> str:
        return " ".join(item for item in (self.kind, self.name, self.part) if item)


def command(name: str, text: str) -> Made:
    """A typed command."""
    return lambda asked: {
        "command": name, "text": text, "user_id": asked.who.id, "channel_id": asked.channel, "team_id": asked.place.team,
        "trigger_id": asked.scene.trigger(),
    }  # fmt: skip


def event(inner: Mapping[str, Any]) -> Made:
    """An event."""

    def made(asked: Asked) -> Json:
        told = {"user": asked.who.id, "channel": asked.channel, "ts": "1.2", **inner}
        return {
            "type": "event_callback", "event_id": asked.scene.trigger(), "team_id": asked.place.team,
            "authorizations": [{"team_id": asked.place.team, "user_id": "U0BOT", "is_bot": True}], "event": told,
        }  # fmt: skip

    return made


def button(action: str) -> Made:
    """A pressed button."""
    return lambda asked: {
        **asked.common("block_actions"),
        "actions": [
            {"type": "button", "action_id": action, "block_id": "b", "value": asked.handle, "action_ts": "1.3"}
        ],
    }


def menu(action: str, verb: str) -> Made:
    """A chosen option of a menu."""

    def made(asked: Asked) -> Json:
        chosen = {"value": f"{verb}:{asked.handle}", "text": {"type": "plain_text", "text": verb}}
        option = {
            "type": "overflow",
            "action_id": action,
            "block_id": "b",
            "selected_option": chosen,
            "action_ts": "1.3",
        }
        return {**asked.common("block_actions"), "actions": [option]}

    return made


def view(name: str, handle: str, values: Mapping[str, Any]) -> Json:
    """An open form."""
    state = {"values": {key: {key: value} for key, value in values.items()}}
    return {
        "id": f"V{handle}", "type": "modal", "callback_id": name, "private_metadata": handle, "state": state, "blocks": [],
        "hash": "h",
    }  # fmt: skip


def submitted(
    name: str, values: Mapping[str, Any], kind: str = "", handle: Callable[[Asked], str] | None = None
) -> Made:
    """A submitted form."""

    def made(asked: Asked) -> Json:
        about = handle(asked) if handle is not None else asked.opened(kind)
        body = asked.common("view_submission")
        body.pop("channel", None)
        return {**body, "view": view(name, about, values)}

    return made


def in_form(name: str, action: str, values: Mapping[str, Any], handle: Callable[[Asked], str] | None = None) -> Made:
    """An element used in an open form."""

    def made(asked: Asked) -> Json:
        about = handle(asked) if handle is not None else asked.opened()
        body = asked.common("block_actions")
        body.pop("channel", None)
        used = {"type": "button", "action_id": action, "block_id": "b", "value": about, "action_ts": "1.3"}
        return {**body, "view": view(name, about, values), "actions": [used]}

    return made


def typed_search(name: str) -> Made:
    """Text typed into the search of faults of a form."""

    def made(asked: Asked) -> Json:
        body = asked.common("block_suggestion")
        body.pop("channel", None)
        about = view(name, asked.handle or asked.opened(), {})
        return {**body, "action_id": "other_fault", "block_id": "other_fault", "value": "disk", "view": about}

    return made


def message_shortcut(text: str) -> Made:
    """The shortcut of a message."""
    return lambda asked: {
        **asked.common("message_action"), "callback_id": "diagnose_message", "channel": {"id": asked.channel},
        "message": {"type": "message", "text": text, "ts": "1.4", "user": "U0SOMEONE"}, "message_ts": "1.4",
    }  # fmt: skip


def _chosen(value: str) -> Json:
    return {"type": "static_select", "selected_option": {"value": value}}


def _typed(value: str) -> Json:
    return {"type": "plain_text_input", "value": value}


def _draft(asked: Asked) -> str:
    return asked.target.draft


CLOSED = {"cause": _chosen("unknown"), "note": _typed("seen")}
MUTED = {"until": _chosen("1d"), "where": _chosen("everywhere"), "why": _typed("known")}
DRAFTED = {"title": _typed("A title")}
TENANT = "tenant"
NOT_YET = "There is no draft yet"
DOORS: tuple[Door, ...] = (
    Door("command", "/diagnose", "JOB", "diagnose", command("/diagnose", "some-job"), TENANT),
    Door("command", "/diagnose", "private", "diagnose", command("/diagnose", "some-job private"), TENANT),
    Door("command", "/diagnose", "", "diagnose", command("/diagnose", ""), TENANT),
    Door("command", "/signalbox", "", None, command("/signalbox", ""), TENANT, shown=says("How to use")),
    Door("command", "/signalbox", "help", None, command("/signalbox", "help"), TENANT, shown=says("How to use")),
    Door("command", "/signalbox", "incidents", "read", command("/signalbox", "incidents"), TENANT),
    Door("command", "/signalbox", "handover", "read", command("/signalbox", "handover 3d here"), TENANT),
    Door("command", "/signalbox", "digest", "digest", command("/signalbox", "digest"), TENANT),
    Door("command", "/signalbox", "rules", "read", command("/signalbox", "rules"), TENANT, shown=says("Rules")),
    Door("command", "/signalbox", "rules looked", "admin", command("/signalbox", "rules looked xid"), TENANT),
    Door(
        "command", "/signalbox", "nodes", "read", command("/signalbox", "nodes"), TENANT, shown=says("Nodes to leave")
    ),
    Door("command", "/signalbox", "mutes", "read", command("/signalbox", "mutes"), TENANT, shown=says("Muted")),
    Door("command", "/signalbox", "oncall", "read", command("/signalbox", "oncall"), TENANT, shown=says("No rota")),
    Door("command", "/signalbox", "config", "read", command("/signalbox", "config"), TENANT, shown=says("-cluster")),
    Door(
        "event",
        "app_mention",
        "diagnose",
        "diagnose",
        event({"type": "app_mention", "text": "<@U0BOT> diagnose some-job"}),
        TENANT,
    ),
    Door(
        "event",
        "app_mention",
        "incidents",
        "read",
        event({"type": "app_mention", "text": "<@U0BOT> incidents"}),
        TENANT,
    ),
    Door(
        "event",
        "message",
        "diagnose",
        "diagnose",
        event({"type": "message", "channel_type": "im", "text": "why did some-job fail?"}),
        TENANT,
    ),
    Door(
        "event",
        "message",
        "incidents",
        "read",
        event({"type": "message", "channel_type": "im", "text": "incidents"}),
        TENANT,
    ),
    Door("event", "app_home_opened", "", "read", event({"type": "app_home_opened", "tab": "home"}), TENANT),
    Door("shortcut", "diagnose_message", "", "diagnose", message_shortcut("job_name=some-job"), TENANT),
    Door("shortcut", "diagnose_message", "which", "diagnose", message_shortcut("who broke it?"), TENANT),
    Door("action", "ack", "", "annotate", button("ack"), shown=changes),
    Door("action", "right", "", "annotate", button("right"), shown=changes),
    Door("action", "wrong", "", "annotate", button("wrong"), shown=changes),
    Door("action", "close_out", "", "annotate", button("close_out")),
    Door("action", "propose_rule", "", "annotate", button("propose_rule")),
    Door("action", "bar_confirm", "", "bar", button("bar_confirm"), shown=changes),
    Door("action", "bar_refuse", "", "bar", button("bar_refuse"), shown=changes),
    Door("action", "evidence", "", "read", button("evidence"), by=("message",)),
    Door("action", "open_incident", "", "read", button("open_incident")),
    Door("action", "remind_later", "", "read", button("remind_later"), to_owner=True, shown=changes, by=("reminder",)),
    Door("action", "remind_no", "", "read", button("remind_no"), to_owner=True, shown=changes, by=("reminder",)),
    Door("action", "more", "again", "diagnose", menu("more", "again"), shown=changes),
    Door("action", "more", "mute_rule", "mute", menu("more", "mute_rule")),
    Door("action", "more", "mute_job", "mute", menu("more", "mute_job")),
    Door("action", "more", "mute_node", "mute", menu("more", "mute_node")),
    Door("action", "more", "propose_rule", "annotate", menu("more", "propose_rule")),
    Door("action", "unmute", "", "mute", button("unmute"), shown=changes, by=("mute",)),
    Door("action", "digest_open", "", "read", button("digest_open"), TENANT),
    Door("action", "life", "ack", "annotate", menu("life", "ack"), shown=changes),
    Door("action", "life", "assign", "annotate", menu("life", "assign")),
    Door("action", "life", "snooze", "annotate", menu("life", "snooze")),
    Door("action", "life", "merge", "annotate", menu("life", "merge")),
    Door("action", "life", "reopen", "annotate", menu("life", "reopen"), shown=says("is open")),
    Door("action", "pick_job", "", "diagnose", button("pick_job"), shown=changes, by=("job",)),
    Door("action", "home_refresh", "", "read", button("home_refresh"), TENANT),
    Door("action", "cause", "", "annotate", in_form("close_out", "cause", CLOSED), by=("form",)),
    Door("action", "try_rule", "", "propose_rule", in_form("propose_rule", "try_rule", DRAFTED, _draft), by=("draft",)),
    Door("options", "other_fault", "", "annotate", typed_search("close_out"), shown=says("disk_full"), by=("form",)),
    Door(
        "options",
        "other_fault",
        "of a draft",
        "propose_rule",
        typed_search("propose_rule"),
        shown=says("disk_full"),
        by=("draft",),
    ),
    Door("view", "close_out", "", "annotate", submitted("close_out", CLOSED), shown=changes, by=("form",)),
    Door("view", "mute", "", "mute", submitted("mute", MUTED, "job"), shown=changes, by=("form",)),
    Door(
        "view",
        "propose_rule",
        "",
        "propose_rule",
        submitted("propose_rule", DRAFTED, handle=_draft),
        shown=says(NOT_YET),
        by=("draft",),
    ),
    Door(
        "view",
        "life",
        "snooze",
        "annotate",
        submitted("life", {"span": _chosen("1h")}, "snooze"),
        shown=changes,
        by=("form",),
    ),
    Door("view", "life", "assign", "annotate", submitted("life", {}, "assign"), shown=changes, by=("form",)),
    Door(
        "view", "diagnose_message", "", "diagnose", submitted("diagnose_message", {"name": _typed("some-job")}), TENANT
    ),
)
