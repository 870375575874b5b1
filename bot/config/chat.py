"""The chat configuration: how Slack is reached, and what each tenant allows and subscribes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.policy.notifications import Cap, Flapping, RolloutChannel, WeakRuleThreshold
from bot.policy.permissions import EVERYONE, GUESTS, VERBS, Rights
from bot.policy.routing import People, Subscription
from connectors.base.contract import Seconds
from connectors.base.http import Endpoint
from connectors.base.secret import Secret

_SCHEDULE: Final = re.compile(r"[A-Z0-9]{3,40}")
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,40}")
_GROUP: Final = re.compile(r"S[A-Z0-9]{2,40}")
_TEAM: Final = re.compile(r"[TE][A-Z0-9]{2,40}")
_CHANNEL: Final = re.compile(r"[CG][A-Z0-9]{1,40}")
_ALLOWED: Final = re.compile(rf"{EVERYONE}|{GUESTS}|[CGSUW][A-Z0-9]{{1,40}}")


@dataclass(frozen=True, slots=True)
class Slack:
    """The Slack app."""

    bot_token: Secret
    """The token of the installed app (xoxb-…)."""
    mode: Literal["socket", "http"] = "socket"
    """socket: over a connection opened from here; http: Slack posts to /slack/events at the address in `listen`."""
    app_token: Secret | None = None
    """The app-level token (xapp-…); required for mode socket."""
    signing_secret: Secret | None = None
    """The app's signing secret; required for mode http."""
    api: str = "https://slack.com/api/"
    """The address of Slack's API."""
    proxy: str | None = None
    """An HTTP proxy, if Slack can only be reached through one."""
    workspaces: tuple[str, ...] = ()
    """The workspaces (T…) and organisations (E…) whose people are answered; by default, the one of the bot token."""

    def __post_init__(self) -> None:
        if self.mode == "socket" and self.app_token is None:
            raise ValueError("mode socket needs `app_token`: an app-level token with connections:write")
        if self.mode == "http" and self.signing_secret is None:
            raise ValueError("mode http needs `signing_secret`: without it anybody could speak as Slack")
        if not self.api.startswith(("https://", "http://")):
            raise ValueError(f"api: {self.api[:80]!r} is no address")
        for team in self.workspaces:
            if _TEAM.fullmatch(team) is None:
                raise ValueError(f"workspaces: {team[:80]!r} is not the ID of a workspace (T…) or organisation (E…)")


@dataclass(frozen=True, slots=True)
class Linked:
    """Pages of incidents, served through signed links that expire."""

    base_url: str
    """The address at which people reach the service."""
    secret: Secret
    """The key that signs links, at least 32 characters."""
    expires: Seconds = 30 * 86400.0
    """How long a link is valid."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("https://", "http://")) or any(item in self.base_url for item in "?# "):
            raise ValueError(f"base_url: {self.base_url[:80]!r} is not an address like https://host/path")


@dataclass(frozen=True, slots=True)
class Grafana:
    """Grafana, which gets an annotation for each incident that is closed."""

    endpoint: Endpoint
    """The address of Grafana, and a service account's token for it."""
    tags: tuple[str, ...] = ()
    """Tags of an annotation besides `signalbox` and those of the incident."""


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """A schedule of PagerDuty."""

    schedule: str
    """The id of the schedule, such as `PI7DH85`."""
    token: Secret
    """A read-only API key."""
    url: str = "https://api.pagerduty.com"
    """The address of the API; https://api.eu.pagerduty.com for accounts in the EU."""
    people: Mapping[str, str] = field(default_factory=dict)
    """Id of a PagerDuty user → Slack user (U…). Others are shown by name."""

    def __post_init__(self) -> None:
        if _SCHEDULE.fullmatch(self.schedule) is None:
            raise ValueError(f"schedule: {self.schedule[:40]!r} is not the ID of a schedule (P…)")
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"url: {self.url[:80]!r} is no address")
        for user in self.people.values():
            if _USER.fullmatch(user) is None:
                raise ValueError(f"people: {user[:40]!r} is not the ID of a Slack user (U…)")


@dataclass(frozen=True, slots=True)
class OnCall:
    """Who is on call, shown with each failure and by `/signalbox oncall`."""

    group: str | None = None
    """A Slack user group (S…) that your rota keeps current."""
    pagerduty: PagerDuty | None = None
    """A PagerDuty schedule, read every five minutes."""

    def __post_init__(self) -> None:
        if (self.group is None) == (self.pagerduty is None):
            raise ValueError("on_call: give exactly one of group: and pagerduty:")
        if self.group is not None and _GROUP.fullmatch(self.group) is None:
            raise ValueError(f"group: {self.group[:40]!r} is not the ID of a user group (S…)")


@dataclass(frozen=True, slots=True)
class Weekly:
    """The weekly digest: its channel, and when it is posted. The tenant's `zone` sets the clock and the start of its weeks."""

    channel: str
    """The channel that the digest is posted to."""
    weekday: int = 1
    """1 for Monday to 7 for Sunday."""
    hour: int = 9
    """The hour of the day, 0 to 23."""

    def __post_init__(self) -> None:
        if not 1 <= self.weekday <= 7:
            raise ValueError("weekday: 1 for Monday to 7 for Sunday")
        if not 0 <= self.hour <= 23:
            raise ValueError("hour: 0 to 23")


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a tenant allows in the chat, and which messages it gets automatically."""

    channels: tuple[str, ...] = ()
    """The tenant's channels (C…); required with several tenants."""
    verbs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Who may read, diagnose, annotate, mute, bar, propose_rule, digest, admin: everyone, guests, or ids of channels,
    user groups (S…), people (U…). `everyone` does not include guests of the workspace."""
    admins_see_private: bool = False
    """Whether people with the verb admin see the private answers of others."""
    announce: str | None = None
    """The channel for failures that nobody subscribed to."""
    subscriptions: tuple[Subscription, ...] = ()
    """Who else is notified of which failures."""
    people: People = field(default_factory=People)
    """Which Slack users and groups stand for which users and owners."""
    cap: Cap = field(default_factory=Cap)
    """The most automatic messages that one channel gets."""
    flapping: Flapping = field(default_factory=Flapping)
    """When a recurring failure is posted again."""
    bar: WeakRuleThreshold = field(default_factory=WeakRuleThreshold)
    """Which rules are wrong too often to be posted automatically."""
    quiet: RolloutChannel | None = None
    """The start of a new installation, during which few messages are posted."""
    fold: Seconds = 300.0
    """How long the same question gets the existing diagnosis instead of a new one."""
    remind: bool = True
    """Ask once, on the next working day at ten in `zone`, what the cause was."""
    zone: str = "UTC"
    """The time zone of working days, reminders and digests, such as Europe/Berlin."""
    grafana: Grafana | None = None
    """The Grafana that gets annotations."""
    on_call: OnCall | None = None
    """Who is on call."""
    digest: Weekly | None = None
    """The weekly digest of failures."""

    def __post_init__(self) -> None:
        for verb in self.verbs:
            if verb not in VERBS:
                raise ValueError(f"verbs: there is no {verb[:40]!r}; they are {', '.join(VERBS)}")
        self._check_ids()
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"zone: {self.zone[:80]!r} is not a time zone; write one such as Europe/Berlin") from None

    def _check_ids(self) -> None:
        """Refuse names where Slack takes IDs: they would match nothing, without a word."""
        announced = {
            "announce": self.announce,
            "quiet: channel": self.quiet.channel if self.quiet else None,
            "digest: channel": self.digest.channel if self.digest else None,
        }
        named = [("channels", channel) for channel in self.channels]
        named += [(key, channel) for key, channel in announced.items() if channel is not None]
        for key, channel in named:
            if _CHANNEL.fullmatch(channel) is None:
                raise ValueError(
                    f"{key}: {channel[:80]!r} is not the ID of a channel (C…). Slack shows it under About."
                )
        for verb, allowed in self.verbs.items():
            for who in allowed:
                if _ALLOWED.fullmatch(who) is None:
                    raise ValueError(
                        f"verbs: {verb}: {who[:80]!r} is neither everyone, guests, nor the ID of a channel (C…), user group"
                        " (S…) or user (U…)"
                    )

    @property
    def rights(self) -> Rights:
        """Who may do what, as one of several tenants."""
        named = (
            *self.people.users.values(),
            *(item.to for item in self.subscriptions if item.to.startswith(("U", "W"))),
        )
        return Rights(
            self.channels,
            self.verbs,
            tuple(dict.fromkeys(named)),
            admins_see_private=self.admins_see_private,
        )
