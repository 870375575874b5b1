"""What is configured of the chat: how Slack is reached, and what each tenant allows and wants to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.policy.notifications import Bar, Cap, Flapping, Quiet
from bot.policy.permissions import VERBS, Rights
from bot.policy.routing import People, Subscription
from connectors.base.contract import Seconds
from connectors.base.http import Endpoint
from connectors.base.secret import Secret


@dataclass(frozen=True, slots=True)
class Slack:
    """The Slack app.

    `bot_token`: of the installed app (xoxb-…). `mode`: socket, over a connection that is opened from here, or http, to the
    address /slack/events of `listen`. `app_token`: for socket (xapp-…). `signing_secret`: for http. `api`: another address of
    Slack's API. `proxy`: of HTTP, where Slack is only reached through one.
    """

    bot_token: Secret
    mode: Literal["socket", "http"] = "socket"
    app_token: Secret | None = None
    signing_secret: Secret | None = None
    api: str = "https://slack.com/api/"
    proxy: str | None = None

    def __post_init__(self) -> None:
        if self.mode == "socket" and self.app_token is None:
            raise ValueError("mode socket needs `app_token`: an app-level token with connections:write")
        if self.mode == "http" and self.signing_secret is None:
            raise ValueError("mode http needs `signing_secret`: without it anybody could speak as Slack")
        if not self.api.startswith(("https://", "http://")):
            raise ValueError(f"api: {self.api[:80]!r} is no address")


@dataclass(frozen=True, slots=True)
class Linked:
    """Pages of incidents, behind links that are signed and expire.

    `base_url`: the address under which people reach the service. `secret`: what links are signed with, at least 32 characters.
    `expires`: how long a link holds.
    """

    base_url: str
    secret: Secret
    expires: Seconds = 30 * 86400.0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("https://", "http://")) or any(one in self.base_url for one in "?# "):
            raise ValueError(f"base_url: {self.base_url[:80]!r} is no address like https://host/path")


@dataclass(frozen=True, slots=True)
class Grafana:
    """Grafana, which gets an annotation for each incident that is closed. `tags`: beside signalbox and the incident's own."""

    endpoint: Endpoint
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weekly:
    """The weekly digest: into which channel, and when by the clock of the tenant's `zone`, which its weeks are counted in too.

    `weekday`: 1 for Monday to 7 for Sunday. `hour`: 0 to 23.
    """

    channel: str
    weekday: int = 1
    hour: int = 9

    def __post_init__(self) -> None:
        if not 1 <= self.weekday <= 7:
            raise ValueError("weekday: 1 for Monday to 7 for Sunday")
        if not 0 <= self.hour <= 23:
            raise ValueError("hour: 0 to 23")


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a tenant allows in the chat, and what it is told unasked.

    `channels`: its channels (C…); with several tenants a must. `verbs`: who may read, diagnose, annotate, mute, bar, propose_rule,
    digest, admin: everyone, or ids of channels, user groups (S…), people (U…). `announce`: the channel for failures that
    nobody subscribed. `subscriptions`: who else hears of what. `people`: who is who. `cap`, `flapping`, `bar`, `quiet`:
    against noise. `fold`: for so long a diagnosis is shown again in place of a new one. `remind`: who asked is asked once, on the
    next working day at ten in `zone`, what it was. `grafana`: annotations go there. `digest`: the week's failures in figures.
    """

    channels: tuple[str, ...] = ()
    verbs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    announce: str | None = None
    subscriptions: tuple[Subscription, ...] = ()
    people: People = field(default_factory=People)
    cap: Cap = field(default_factory=Cap)
    flapping: Flapping = field(default_factory=Flapping)
    bar: Bar = field(default_factory=Bar)
    quiet: Quiet | None = None
    fold: Seconds = 300.0
    remind: bool = True
    zone: str = "UTC"
    grafana: Grafana | None = None
    digest: Weekly | None = None

    def __post_init__(self) -> None:
        for verb in self.verbs:
            if verb not in VERBS:
                raise ValueError(f"verbs: there is no {verb[:40]!r}; they are {', '.join(VERBS)}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"zone: {self.zone[:80]!r} is no time zone; write one as Europe/Berlin") from None

    @property
    def rights(self) -> Rights:
        """Who may do what."""
        return Rights(self.channels, self.verbs)
