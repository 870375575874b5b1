"""The overview: the incidents of the last weeks by fault, node, job and state, with links to their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from bot.digest.charts import Caption
from bot.pages.incident import RuleTexts
from bot.pages.incident_groups import GroupRow, IncidentGroup, group_rows, groups
from bot.pages.incident_list import (
    MOST_COUNTED,
    SORTS,
    STATES,
    USUAL_WEEKS,
    WEEKS,
    IncidentQuery,
    IncidentResults,
    ListedIncident,
    find,
)
from bot.pages.templates import render
from bot.policy.resolution_codes import nameless
from bot.render.text_format import cut
from bot.store.confirmed_fault import UNKNOWN_CAUSE
from bot.store.database import Database

LONGEST_NAME = 40  # characters of a node's name
MOST_NODES = 3
FIRST_GROUPS = 3  # causes above the list of failures, which is to begin on the first screen
VERDICTS = {
    "no_fault": "Nothing failed",
    "no_match": "Unknown cause",
    "insufficient_evidence": "No failure found, end unknown",
}


@dataclass(frozen=True, slots=True)
class DigestPreview:
    """The latest digest: its week, the URL of its page, and its pictures, each with the URLs of the light and the dark variant."""

    name: str
    address: str
    pictures: tuple[tuple[Caption, str, str], ...]


@dataclass(frozen=True, slots=True)
class _IncidentRow:
    """An incident as displayed. `fault`: its cause, as people confirmed it, else as diagnosed; `below`: what the line under it adds.

    `said`: what people closed it as, where that is not the cause; `against`: somebody disagrees.

    `whole`: the URL of the incident that it was merged into.
    """

    incident: ListedIncident
    address: str
    fault: str
    below: str
    nodes: tuple[str, ...]
    more: int
    said: str
    against: bool
    whole: str | None = None


def overview_page(
    store: Database,
    tenant: str,
    asked: Mapping[str, str],
    now: datetime,
    *,
    words: RuleTexts,
    to: Callable[[int | None], str],
    week: DigestPreview | None = None,
) -> str:
    """Render the page as HTML. `asked`: the fields of its form; `to`: returns the URL of an incident's page, of this page for None.

    `week`: the latest digest, whose pictures are shown below the list.

    Raises:
        StoreError: the store cannot be used.
    """
    wanted, home = _with_titles(IncidentQuery.of(asked), words), to(None)
    found = find(store, tenant, wanted, now)
    filtered = bool(wanted.fault or wanted.node or wanted.job or wanted.text or wanted.state != "any")
    return render(
        "overview.html",
        tenant=tenant,
        wanted=wanted,
        found=found,
        rows=[_row(incident, words, to) for incident in found.incidents if incident.failed],
        calm=[_row(incident, words, to) for incident in found.incidents if not incident.failed],
        groups=[]
        if filtered or wanted.page > 1
        else _groups(groups(store, tenant, wanted.weeks, now), wanted, words, home),
        first_groups=FIRST_GROUPS,
        sorts=SORTS,
        faults=_faults(found, wanted, words),
        states=STATES,
        weeks=[(item, _weeks(item)) for item in WEEKS],
        counted=f"more than {MOST_COUNTED:,}" if found.count >= MOST_COUNTED else f"{found.count:,}",
        filtered=filtered,
        span=_weeks(wanted.weeks),
        newer=_page(home, wanted, wanted.page - 1) if wanted.page > 1 else None,
        older=_page(home, wanted, wanted.page + 1) if wanted.page < found.pages else None,
        home=home,
        all_time=_page(home, replace(wanted, weeks=0), 1),
        now=now,
        week=week,
    )


def _with_titles(wanted: IncidentQuery, words: RuleTexts) -> IncidentQuery:
    """Return the query with the classes whose title has the text that is searched for: titles are what the page shows."""
    text = wanted.text.casefold()
    titled = [fault for fault, title in words.titles.items() if text and text in title.casefold()]
    return replace(wanted, titled=tuple(titled), fault=UNKNOWN_CAUSE if wanted.fault == "none" else wanted.fault)


def _groups(found: Sequence[IncidentGroup], wanted: IncidentQuery, words: RuleTexts, home: str) -> list[GroupRow]:
    return group_rows(found, words.title, lambda fault: _page(home, replace(wanted, fault=fault), 1))


def _row(listed_incident: ListedIncident, words: RuleTexts, to: Callable[[int | None], str]) -> _IncidentRow:
    fault = (
        words.title(listed_incident.fault)
        if listed_incident.fault
        else VERDICTS.get(listed_incident.verdict, listed_incident.verdict)
    )
    closed_as, against, below = "", False, "" if listed_incident.summary.startswith(fault) else listed_incident.summary
    if listed_incident.word is not None:
        last = listed_incident.word.last.said
        closed_as = nameless(last.cause) or "confirmed"
        against = bool(listed_incident.word.against)
        if not nameless(last.cause) and last.fault and last.fault != listed_incident.fault:
            fault, below = words.title(last.fault), f"Signalbox said: {fault}"
    nodes = tuple(cut(name, LONGEST_NAME) for name in listed_incident.nodes[:MOST_NODES])
    whole = None if listed_incident.merged_into is None else to(listed_incident.merged_into)
    return _IncidentRow(
        listed_incident,
        to(listed_incident.id),
        fault,
        below,
        nodes,
        len(listed_incident.nodes) - len(nodes),
        closed_as,
        against,
        whole,
    )


def _faults(found: IncidentResults, wanted: IncidentQuery, words: RuleTexts) -> list[tuple[str, str, int]]:
    """Return the classes to choose from: id, title and count, most frequent first."""
    choices = [(fault, words.title(fault), count) for fault, count in found.faults.items() if fault is not None]
    unlisted = {wanted.fault, UNKNOWN_CAUSE} - {"", *(fault for fault, _, _ in choices)}
    choices += [(fault, words.title(fault), 0) for fault in unlisted]
    return sorted(choices, key=lambda choice: (-choice[2], choice[1]))


def _weeks(weeks: int) -> str:
    return "all time" if weeks == 0 else "the last week" if weeks == 1 else f"the last {weeks} weeks"


def _page(home: str, wanted: IncidentQuery, page: int) -> str:
    """Return the URL of another page of the same list."""
    shown_page = replace(wanted, page=page)
    asked = {"fault": shown_page.fault, "node": shown_page.node, "job": shown_page.job}
    asked |= {
        "state": shown_page.state if shown_page.state != "any" else "",
        "weeks": "" if shown_page.weeks == USUAL_WEEKS else str(shown_page.weeks),
    }
    asked |= {"text": shown_page.text, "sort": "" if shown_page.sort == "open" else shown_page.sort}
    asked |= {"page": str(page) if page > 1 else ""}
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{home}?{query}" if query else home
