"""Answers to `/signalbox incidents|rules|config|help`, visible only to the requester, with five items per page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bot.render import text_format
from bot.render.text_format import joined, tail
from bot.slack.blocks.builders import button, channel, clocked, link, mention, note, paragraph, rich, section, words
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped

PAGE = 5
_NAME = 80
_SENTENCE = 300
_CONNECTORS = 20
_FALLBACK = 600
_T = TypeVar("_T")

COMMANDS = (
    ("/diagnose JOB", "diagnose a job by id or name; without one: list your recent failures"),
    ("/diagnose JOB last 2h", "look only at the last two hours"),
    ("/diagnose JOB state COMPLETED", "say how it ended, where no scheduler can be asked"),
    ("/diagnose JOB private", "show the result only to you"),
    ("/diagnose JOB deep", "read all log lines, not only those that rules need"),
    ("@signalbox diagnose JOB", "the same in a thread, where slash commands do not work; in a direct message just ask"),
    ("/signalbox incidents [page N]", "list recent incidents"),
    (
        "/signalbox handover [12h] [here]",
        "summarize the shift: open incidents, excluded nodes, pending work, changes; here: post it for everyone",
    ),
    ("/signalbox digest [2026-W47]", "failure statistics of a week; now: this week so far"),
    ("/signalbox rules [WORDS] [page N]", "list the rules and how accurate each one is"),
    ("/signalbox nodes", "list the nodes to leave out, proposed and confirmed"),
    ("/signalbox mutes [page N]", "list what is muted, until when and by whom, with a button to unmute"),
    ("/signalbox oncall", "who is on call"),
    ("/signalbox config", "list clusters and connected sources"),
)


@dataclass(frozen=True, slots=True)
class ListedIncident:
    """An incident in a list: handle, job, summary, time (seconds since the epoch), and how it was closed."""

    handle: str
    job: str
    said: str
    at: float | None = None
    closed: str = ""


@dataclass(frozen=True, slots=True)
class ListedRule:
    """A rule in a list. `record`: how often it was right, in words; `weak`: the record is poor."""

    id: str
    version: int
    title: str
    fault: str
    record: str = ""
    weak: bool = False


@dataclass(frozen=True, slots=True)
class ListedMute:
    """An active mute: the handle of its button, what is muted, where (None: everywhere), until when (epoch seconds), by whom."""

    handle: str
    what: str
    channel: str | None
    until: float
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node that is excluded, or whose exclusion is proposed. `told`: the state in words; `by`: who decided; `why`: the reason."""

    node: str
    told: str
    by: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """A source as of its last check: name, type, whether it responded (None: not checked), and the message."""

    name: str
    kind: str
    works: bool | None = None
    told: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster and its sources."""

    name: str
    connectors: tuple[ConnectorState, ...] = ()


def incidents(found: Sequence[ListedIncident], page: int, total: int, overview: str | None = None) -> Message:
    """Return one page of incidents, newest first. `found`: those of the page (counted from 1); `total`: their total number.

    `overview`: address of the page with all incidents.
    """
    message = _page("Incidents", found, page, total, row=incident, again="/signalbox incidents")
    return fit(Message(message.text, (*message.blocks, *all_of_them(overview))))


def all_of_them(overview: str | None) -> list[Json]:
    """Return a link to the page with all incidents; nothing if there is no page."""
    return rich(paragraph(link(overview, "All incidents, with filters and charts")))


def rules(found: Sequence[ListedRule], page: int, total: int, asked: str = "") -> Message:
    """Return one page of rules. `asked`: the search words."""
    again = f"/signalbox rules {asked}".rstrip()
    return _page(f"Rules{f' for “{asked}”' if asked else ''}", found, page, total, row=_rule, again=again)


def mutes(found: Sequence[ListedMute], page: int, total: int) -> Message:
    """Return one page of active mutes, each with a button that ends it."""
    head = _span("Muted", found, page, total)
    blocks = [*rich(paragraph(words(head, bold=True))), *(block for item in found[:PAGE] for block in _mute(item))]
    return fit(Message(escaped(head, _FALLBACK), (*blocks, *_next(found, page, total, "/signalbox mutes"))))


def _mute(listed_mute: ListedMute) -> list[Json]:
    where = channel(listed_mute.channel) if listed_mute.channel else words("everywhere")
    by = [*words(", by "), *mention(listed_mute.by)] if listed_mute.by else []
    return [
        section(listed_mute.what, button("unmute", "Unmute", listed_mute.handle), clocked("Until", listed_mute.until)),
        *rich(
            paragraph(
                [*words("In " if listed_mute.channel else ""), *where, *by, *words(tail(listed_mute.why), _SENTENCE)]
            )
        ),
    ]


def nodes(found: Sequence[ListedNode], page: int, total: int) -> Message:
    """Return one page of excluded nodes."""
    head = _span("Nodes to leave out", found, page, total)
    lines = [
        [*words(item.node, _NAME, bold=True), *words(f": {item.told}", _SENTENCE),
         *([*words(", by "), *mention(item.by)] if item.by else []), *words(tail(item.why), _SENTENCE)]
        for item in found[:PAGE]
    ]  # fmt: skip
    blocks = [*rich(paragraph(words(head, bold=True), *lines)), *_next(found, page, total, "/signalbox nodes")]
    return fit(Message(escaped(head, _FALLBACK), tuple(blocks)))


def config(clusters: Sequence[ClusterState]) -> Message:
    """Return the clusters and their sources."""
    blocks = [block for cluster_state in clusters[:PAGE] for block in cluster(cluster_state)] or rich(
        paragraph(words("No cluster that you have access to is configured."))
    )
    rest = len(clusters) - PAGE
    blocks.append(
        note(f"… {rest} more clusters" if rest > 0 else "", "To test all of them, run `signalbox config check`")
    )
    return fit(
        Message(
            escaped("Clusters: " + joined(cluster_state.name for cluster_state in clusters[:PAGE]), _FALLBACK),
            tuple(blocks),
        )
    )


def guide(about: str = "", problem: str = "") -> Message:
    """Return the usage guide. `about`: the start of a command, to explain only that one; `problem`: why it is shown."""
    head = f"How to use {about or 'Signalbox'}"
    return fit(
        Message(
            escaped(head, _FALLBACK),
            (
                *rich(paragraph(words(problem), words(head, bold=True))),
                *how_to(about),
                note("Signalbox only reads and advises. It never touches a job or node."),
            ),
        )
    )


# --- rows, also for the home tab -------------------------------------------------------------------------------------


def incident(listed_incident: ListedIncident) -> Json:
    """Return an incident as a row with a button that opens it."""
    said = f"{text_format.cut(listed_incident.job, _NAME)}{tail(text_format.cut(listed_incident.said, _SENTENCE))}"
    state = text_format.cut(listed_incident.closed, _SENTENCE) or "Not closed"
    opens = button("open_incident", "Open", listed_incident.handle)
    return section(said, opens, clocked("", listed_incident.at), state)


def cluster(cluster_state: ClusterState) -> list[Json]:
    """Return a cluster: each source with a mark and its message."""
    lines = [_connector(each) for each in cluster_state.connectors[:_CONNECTORS]]
    rest = len(cluster_state.connectors) - _CONNECTORS
    more = words(f"… and {rest} more" if rest > 0 else "" if lines else "no sources", italic=True)
    return rich(paragraph(words(cluster_state.name, _NAME, bold=True), *lines, more))


def how_to(about: str = "") -> list[Json]:
    """Return the commands that start with these words, one per line; all of them if none does."""
    chosen = [item for item in COMMANDS if item[0].startswith(about)] or COMMANDS
    lines = [[*words(command, _NAME, code=True), *words(f": {does}", _SENTENCE)] for command, does in chosen]
    return rich(paragraph(*lines))


_MARKS = {True: "✓", False: "✗", None: "…"}


def _connector(connector_state: ConnectorState) -> list[Json]:
    kind = f" ({connector_state.kind})" if connector_state.kind and connector_state.kind != connector_state.name else ""
    name = words(
        f"{_MARKS[connector_state.works]} {connector_state.name}{kind}", _NAME, bold=connector_state.works is False
    )
    return [*name, *words(tail(connector_state.told), _SENTENCE)]


def _rule(listed_rule: ListedRule) -> Json:
    record = f"{'⚠ weak: ' if listed_rule.weak else ''}{listed_rule.record or 'no record yet'}"
    return section(
        text_format.cut(
            f"{listed_rule.id}@{listed_rule.version}: {listed_rule.title} ({listed_rule.fault}); {record}",
            2 * _SENTENCE,
        )
    )


def _page(title: str, found: Sequence[_T], page: int, total: int, *, row: Callable[[_T], Json], again: str) -> Message:
    """Return one page of rows, with a title and a hint for the next page."""
    head = _span(title, found, page, total)
    more = _next(found, page, total, again)
    blocks = [*rich(paragraph(words(head, bold=True))), *(row(t) for t in found[:PAGE]), *more]
    return fit(Message(escaped(head, _FALLBACK), tuple(blocks)))


def _span(title: str, found: Sequence[object], page: int, total: int) -> str:
    """Return a title with the numbers of the rows on this page."""
    first, last = _numbers(found, page)
    return (
        f"{text_format.cut(title, _NAME)}{f': {first} to {last} of {max(total, last)}' if last >= first else ': none'}"
    )


def _next(found: Sequence[object], page: int, total: int, again: str) -> list[Json]:
    """Return the command for the next page; nothing on the last one."""
    first, last = _numbers(found, page)
    rest = total - last if last >= first else 0
    return [note(f"… {rest} more: {text_format.cut(again, _NAME)} page {max(page, 1) + 1}")] if rest > 0 else []


def _numbers(found: Sequence[object], page: int) -> tuple[int, int]:
    first = (max(page, 1) - 1) * PAGE + 1
    return first, first + min(len(found), PAGE) - 1
