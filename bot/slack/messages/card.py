"""What an answer in Slack shows besides the report: requester, history, close-outs. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.policy.console_links import ConsoleLink
from bot.policy.resolution_codes import Verdict


@dataclass(frozen=True, slots=True)
class Chain:
    """Consecutive failed attempts of one job: the number of this attempt, and how often each fault ended an earlier one."""

    attempt: int
    earlier: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Opinion:
    """A person's close-out of an incident.

    `by`: a Slack user id, or the login from the command line; `cause`: in words; `named`: whether it is a cause, or that nothing failed;
    `fault`: its class, if it names one; `action`: what was done; `at`: seconds since the epoch.
    """

    by: str
    cause: str
    nodes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    note: str = ""
    at: float | None = None
    named: bool = False
    fault: str | None = None
    action: str = ""


@dataclass(frozen=True, slots=True)
class IncidentStatus:
    """The lifecycle state of an incident (bot.incidents.lifecycle).

    `assignee`: a Slack user id or a name; `acked`: acknowledged, last by `acked_by`;
    `snoozed`: end of the snooze, seconds since the epoch; `whole`: the incident it was merged into, its job and page address;
    `parts`: incidents merged into this one, each with its job; `reopened`: it had been closed.
    """

    acked: bool = False
    acked_by: str | None = None
    assignee: str | None = None
    snoozed: float | None = None
    whole: tuple[int, str, str | None] | None = None
    parts: tuple[tuple[int, str], ...] = ()
    reopened: bool = False


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """A node that the decision excludes, and the state of the exclusion. `told`: its wording; `by`: who decided, or None."""

    node: str
    state: Literal["proposed", "barred", "refused", "lifted"]
    told: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What accompanies a report in its message.

    `handle` identifies it in buttons; `number`: the incident number. `asked_by`: Slack user id; `why`: the trigger of an
    automatic answer. `closings`: close-outs, the decisive one first; others are shown if they disagree. `weak`: rules with a poor
    record, and that record in words ("right in 4 of 11"). `owner`: Slack id of the user group or user that owns the fault. `link`:
    address of the incident page. `later`: attempts that failed after this one; `times`: how often the same failure occurred.
    `consoles`: links to dashboards and logs. `on_call`: Slack user ids, or names. `nowhere`: the channel in which it could not be posted. `private`: only the requester sees it. `can_propose`: rules can be proposed here. `muted`: what is muted here, until `muted_until` (epoch seconds), by
    `muted_by`. `life`: assignment, snooze
    and merge state. `bars`: the nodes that the report proposes to exclude.
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
    can_propose: bool = True
    muted: str = ""
    muted_until: float | None = None
    muted_by: str | None = None
    nowhere: str | None = None
    consoles: tuple[ConsoleLink, ...] = ()
    on_call: tuple[str, ...] = ()
    life: IncidentStatus = field(default_factory=IncidentStatus)
    bars: tuple[ExcludedNode, ...] = ()
