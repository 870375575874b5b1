"""What an answer in Slack holds besides the report: who asked, what came before, how it was closed. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.policy.resolution_codes import Verdict


@dataclass(frozen=True, slots=True)
class Chain:
    """Attempts of one job that failed in a row: this one's number, and how often each fault ended an earlier one."""

    attempt: int
    earlier: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a person says an incident truly was.

    `by`: a Slack user id, or the login of the command line; `cause`: in words; `at`: seconds since the epoch.
    """

    by: str
    cause: str
    nodes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    note: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class IncidentStatus:
    """How far an incident is besides its close-out (bot.incidents.lifecycle). `assignee`: a Slack user id, or a name; `acked`: somebody is at it.

    `snoozed`: asleep until then, seconds since the epoch; `whole`: the incident as a part of which it counts, its job, and the
    address of its page; `parts`: those that are parts of it, each with its job; `reopened`: it was closed once.
    """

    acked: bool = False
    assignee: str | None = None
    snoozed: float | None = None
    whole: tuple[int, str, str | None] | None = None
    parts: tuple[tuple[int, str], ...] = ()
    reopened: bool = False


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """A node that the decision leaves out, as the bar list has it now. `told`: what holds, in words; `by`: who decided, or None."""

    node: str
    state: Literal["proposed", "barred", "refused", "lifted"]
    told: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What goes with a report into its message.

    `handle` names it in buttons; `number`: the incident's. `asked_by`: Slack user id; `why`: what made it known, where nobody
    asked. `closings`: what people said, the one that counts first; the others are shown where they disagree. `weak`: rules
    whose record is poor, with that record in words ("right in 4 of 11"). `owner`: Slack id of the user group or user who
    should act. `link`: address of the incident's page. `later`: attempts that failed after this one; `times`: how often the
    same failure came. `private`: only who asked sees it. `muted`: in words what is muted here and until when, by `muted_by`.
    `life`: who has it, and whether it sleeps or is a part of another one. `bars`: the nodes that it wants left out.
    """

    handle: str
    asked_by: str | None = None
    why: str = ""
    chain: Chain | None = None
    closings: tuple[Opinion, ...] = ()
    weak: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    link: str | None = None
    number: int | None = None
    later: int = 0
    times: int = 1
    private: bool = False
    muted: str = ""
    muted_by: str | None = None
    life: IncidentStatus = field(default_factory=IncidentStatus)
    bars: tuple[ExcludedNode, ...] = ()
