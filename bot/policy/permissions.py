"""Who may do what in a chat: verbs allowed to everyone, a channel, a user group or a person, per tenant. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["read", "diagnose", "annotate", "mute", "bar", "propose_rule", "digest", "admin"]
VERBS: tuple[Verb, ...] = ("read", "diagnose", "annotate", "mute", "bar", "propose_rule", "digest", "admin")
EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Rights:
    """What one tenant allows.

    `channels`: its channels; requests from elsewhere are refused, and none means all. `verbs`: verb → everyone, channels (C…,
    G…), user groups (S…) and people (U…, W…). A verb that is not listed is allowed to everyone, except `admin`, which is allowed
    to nobody.
    """

    channels: tuple[str, ...] = ()
    verbs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and whom to ask: groups and people in the chat who may."""

    verb: Verb
    why: Literal["channel", "person"]
    ask: tuple[str, ...] = ()


def refusal(
    rights: Rights, verb: Verb, user: str, channel: str | None, members: Callable[[str], Collection[str]]
) -> Refusal | None:
    """Return why this person may not do this here; None if they may. `members`: returns the members of a user group."""
    direct = channel is None or channel.startswith("D")
    if rights.channels and not direct and channel not in rights.channels:
        return Refusal(verb, "channel", rights.channels)
    named = rights.verbs.get(verb, () if verb == "admin" else (EVERYONE,))
    if EVERYONE in named or user in named or (channel is not None and channel in named):
        return None
    if any(user in members(item) for item in named if item.startswith("S")):
        return None
    return Refusal(verb, "person", named)
