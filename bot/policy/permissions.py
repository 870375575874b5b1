"""Who may do what: the one decision behind every surface. Pure.

Slack's commands, buttons, forms, lists and Home tab, the pages, the digest, the comparison with earlier incidents and rule
proposals all ask here. Whatever nothing allows is refused:

- Deliveries and people of workspaces that are not allowed are refused, and people whom Slack does not identify.
- A tenant is used in its channels. In direct messages and on the Home tab, only people whom its configuration names, or who
  used it in one of its channels in the last days, are known to belong to it.
- What a person asked for as private is visible to that person, and to admins if the tenant allows it. To everybody else it
  does not exist.
- Of the people left, `verbs` says who may do what. Guests have only the rights that name them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["read", "diagnose", "annotate", "mute", "bar", "propose_rule", "digest", "admin"]
VERBS: tuple[Verb, ...] = ("read", "diagnose", "annotate", "mute", "bar", "propose_rule", "digest", "admin")
EVERYONE = "everyone"  # members of the allowed workspaces, without guests
GUESTS = "guests"

Standing = Literal["member", "guest", "outside", "unknown"]
Members = Callable[[str], Collection[str]]


@dataclass(frozen=True, slots=True)
class Rights:
    """What one tenant allows.

    `channels`: its channels. `anywhere`: also in any other channel and in direct messages, for a single tenant that names no
    channels. `verbs`: verb → everyone, guests, channels (C…, G…), user groups (S…) and people (U…, W…). A verb that is not
    listed is allowed to everyone, except `admin`, which is allowed to nobody. `people`: users that the configuration names
    elsewhere. `admins_see_private`: private answers are visible to admins.
    """

    channels: tuple[str, ...] = ()
    verbs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    people: tuple[str, ...] = ()
    anywhere: bool = False
    admins_see_private: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """What Slack says about a person: the ids of their workspaces and organisation, and whether they are a guest there."""

    teams: frozenset[str]
    guest: bool = False


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and where. `channel`: None or D… stand for the Home tab and direct messages."""

    user: str
    channel: str | None = None
    standing: Standing = "unknown"

    @property
    def direct(self) -> bool:
        """Whether no channel vouches for the person."""
        return self.channel is None or self.channel.startswith("D")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about.

    `private_to`: the only person who sees it; `only_for`: the only person whom it is addressed to, such as a reminder;
    `sent_here`: a message that Signalbox sent to the conversation in which the request was made; `sent_elsewhere`: one that it
    sent to another person's direct messages.
    """

    private_to: str | None = None
    only_for: str | None = None
    sent_here: bool = False
    sent_elsewhere: bool = False


NOTHING = Target()  # a request about no incident or message in particular


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and whom to ask: channels in which it is possible, or groups and people who may.

    `stranger`: in a direct message or on the Home tab, somebody who is not known to belong to the tenant.
    `hidden`: to this person it does not exist, and the words must not differ from those for what was never there.
    """

    verb: Verb
    why: Literal["workspace", "unknown", "guest", "channel", "stranger", "person", "hidden"]
    ask: tuple[str, ...] = ()


def standing(allowed: Collection[str], delivered: Iterable[str], profile: Profile | None) -> Standing:
    """Return what a person is to the allowed workspaces.

    `allowed`: ids of workspaces (T…) and organisations (E…); `delivered`: those that a delivery was made for; `profile`: None
    if Slack does not say who it is.
    """
    if not any(team in allowed for team in delivered):
        return "outside"
    if profile is None:
        return "unknown"
    if not any(team in allowed for team in profile.teams):
        return "outside"
    return "guest" if profile.guest else "member"


def refusal(
    rights: Rights,
    verb: Verb,
    asker: Asker,
    target: Target = NOTHING,
    *,
    members: Members,
    seen: Callable[[], bool] = lambda: False,
) -> Refusal | None:
    """Return why this person may not do this here; None if they may.

    `members`: returns the members of a user group; `seen`: whether the person used one of the tenant's channels lately.
    """
    return unreachable(rights, verb, asker, target, members=members, seen=seen) or _unauthorised(
        rights, verb, asker, members
    )


def unreachable(
    rights: Rights,
    verb: Verb,
    asker: Asker,
    target: Target = NOTHING,
    *,
    members: Members,
    seen: Callable[[], bool] = lambda: False,
) -> Refusal | None:
    """Return why this person cannot even know of the target here; None if they can. See `refusal`."""
    if asker.standing == "outside":
        return Refusal(verb, "workspace")
    if asker.standing == "unknown":
        return Refusal(verb, "unknown")
    if not _in_place(rights, asker, target, members, seen):
        ask = rights.channels if asker.standing == "member" else ()
        return Refusal(verb, "stranger" if asker.direct else "channel", ask)
    if target.sent_elsewhere or target.only_for not in (None, asker.user):
        return Refusal(verb, "hidden")
    if not may_see(target.private_to, asker.user, all_private=sees_all_private(rights, asker, members)):
        return Refusal(verb, "hidden")
    return None


def may_see(private_to: str | None, user: str | None, *, all_private: bool = False) -> bool:
    """Whether somebody sees an incident that is private to `private_to` (None: to nobody)."""
    return private_to is None or all_private or private_to == user


def sees_all_private(rights: Rights, asker: Asker, members: Members) -> bool:
    """Whether private answers of others are visible to this person: an admin, and the tenant says so."""
    return rights.admins_see_private and _unauthorised(rights, "admin", asker, members) is None


def _in_place(rights: Rights, asker: Asker, target: Target, members: Members, seen: Callable[[], bool]) -> bool:
    """Whether the tenant is used here by this person."""
    if rights.anywhere or (asker.direct and target.sent_here):
        return True
    if not asker.direct:
        return asker.channel in rights.channels
    named = {item for listed in rights.verbs.values() for item in listed}
    if asker.user in rights.people or asker.user in named:
        return True
    return any(asker.user in members(item) for item in named if item.startswith("S")) or seen()


def _unauthorised(rights: Rights, verb: Verb, asker: Asker, members: Members) -> Refusal | None:
    """Return why the person lacks the right, wherever they are; None if they have it."""
    if asker.standing not in ("member", "guest"):
        return Refusal(verb, "unknown")
    named = rights.verbs.get(verb, () if verb == "admin" else (EVERYONE,))
    guest = asker.standing == "guest"
    if asker.user in named or (GUESTS if guest else EVERYONE) in named:
        return None
    if any(asker.user in members(item) for item in named if item.startswith("S")):
        return None
    if guest:
        return Refusal(verb, "guest")
    if asker.channel is not None and asker.channel in named:
        return None
    return Refusal(verb, "person", named)
