"""List a tenant's incidents by fault, node, job and state, in pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, case, func
from sqlmodel import col, or_, select

from bot.incidents.resolution import Annotation, Resolution, annotations_within, word
from bot.store import incident_state
from bot.store.confirmed_fault import actual_nodes, has_cause, named_cause
from bot.store.database import Database
from bot.store.run_names import path_read, run_name
from bot.store.suspect_nodes import node_names, suspects
from bot.store.tables import AnnotationRow, IncidentRow
from bot.store.visibility import visible
from kb.digest.rows import said_to_fail
from kb.model import NOT_FAILED

SIZE = 50  # incidents a page
MOST_PAGES = 200  # beyond this, filters help more than paging
MOST_COUNTED = 10_000
LONGEST = 128  # characters of a search text
_DIGITS = 10  # of a number that may be an incident's
WEEKS = (1, 4, 12, 26, 52, 0)  # choices of age; 0: any
USUAL_WEEKS = 4
State = Literal["any", "open", "acknowledged", "snoozed", "closed", "merged", "pinned"]
STATES: tuple[State, ...] = get_args(State)
Sort = Literal["open", "newest", "cost"]
SORTS: tuple[tuple[Sort, str], ...] = (
    ("open", "open first"),
    ("newest", "newest first"),
    ("cost", "most GPU-hours first"),
)


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """A query. `fault`: a class, as people confirmed it where they did, or "unknown" for failures of unknown cause; `node`: its full name; `job`: part of a name, an id or a path.

    `text`: part of a summary, cause, job, node or path, of what people closed an incident with, or its number; `titled`: the classes whose
    title has the text. `sort`: "open" lists failures that need attention first and runs without a failure last.
    """

    fault: str = ""
    node: str = ""
    job: str = ""
    state: State = "any"
    weeks: int = USUAL_WEEKS
    page: int = 1
    text: str = ""
    sort: Sort = "open"
    titled: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> IncidentQuery:
        """Read a query from a form. Values that are not among the choices are ignored."""
        state, weeks, page = asked.get("state", ""), asked.get("weeks", ""), asked.get("page", "")
        known = int(weeks) if weeks.isascii() and weeks.isdigit() and len(weeks) < 4 else USUAL_WEEKS
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1
        return cls(
            fault=_clean(asked.get("fault", "")),
            node=_clean(asked.get("node", "")),
            job=_clean(asked.get("job", "")),
            state=next((item for item in STATES if item == state), "any"),
            weeks=known if known in WEEKS else USUAL_WEEKS,
            page=min(max(number, 1), MOST_PAGES),
            text=_clean(asked.get("text", "")),
            sort=next((item for item, _ in SORTS if item == asked.get("sort")), "open"),
        )


def _clean(text: str) -> str:
    """Return text that every database accepts."""
    return text.encode("utf-8", "replace").decode().replace("\0", "").strip()[:LONGEST]


@dataclass(frozen=True, slots=True)
class ListedIncident:
    """An incident of the list. `nodes`: those at fault, as people closed it, else the suspects; `word`: the actual cause according to people; `path`: what was read, if the job has no name."""

    id: int
    at: datetime
    job: str
    fault: str | None
    verdict: str
    summary: str
    nodes: tuple[str, ...]
    gpu_hours: float | None
    state: incident_state.State
    pinned: bool
    word: Resolution | None = None
    assignee: str | None = None
    snoozed_until: datetime | None = None
    merged_into: int | None = None
    backfilled: bool = False
    path: str = ""

    @property
    def failed(self) -> bool:
        """Whether the run failed: as people closed it, else by the verdict (`bot.store.confirmed_fault.actually_failed`)."""
        said = said_to_fail(self.word.last.said.cause, self.word.last.said.fault) if self.word is not None else None
        return self.verdict not in NOT_FAILED if said is None else said


@dataclass(frozen=True, slots=True)
class IncidentResults:
    """A page of incidents. `count`: all incidents that match, at most `MOST_COUNTED`.

    `faults`: class → number of incidents in these weeks, "unknown" for failures of unknown cause, None for what did not fail; with a filter by node or job, only of the matching ones.
    """

    incidents: tuple[ListedIncident, ...]
    count: int
    faults: Mapping[str | None, int]

    @property
    def pages(self) -> int:
        """Return the number of pages."""
        return min(MOST_PAGES, max(1, -(-self.count // SIZE)))


def find(store: Database, tenant: str, wanted: IncidentQuery, now: datetime) -> IncidentResults:
    """Return the requested page in the requested order. Everybody with the link sees it, so it has no private incidents."""
    era = [col(IncidentRow.tenant) == tenant, visible()]
    if wanted.weeks:
        era.append(col(IncidentRow.created_at) >= now - timedelta(weeks=wanted.weeks))
    asked = [*era, *_conditions(wanted, now)]
    # one query of the ids, in order, gives both the page and the count
    every = (
        select(IncidentRow.id, named_cause())
        .where(*asked)
        .order_by(
            *_numbered(wanted.text),
            *_order(wanted.sort, now),
            col(IncidentRow.created_at).desc(),
            col(IncidentRow.id).desc(),
        )
        .limit(MOST_COUNTED)
    )
    each = select(named_cause().label("fault")).where(*era).subquery()
    by_fault = select(each.c.fault, func.count()).group_by(each.c.fault)
    with store.errors(), store.session() as session:
        every_id = [(number, fault) for number, fault in session.exec(every) if number is not None]
        ids = [number for number, _ in every_id]
        shown = ids[(wanted.page - 1) * SIZE : wanted.page * SIZE]
        # a text search reads every row, so it runs only once
        once = wanted.node or wanted.job or wanted.text
        faults = Counter(fault for _, fault in every_id) if once else dict(session.exec(by_fault).all())
        named = select(IncidentRow, actual_nodes()).where(col(IncidentRow.id).in_(shown))
        rows = {row.id: (row, nodes) for row, nodes in session.exec(named)}
        said = annotations_within(session, shown)
        incidents = tuple(_listed(*rows[item], said.get(item, ()), now) for item in shown if item in rows)
    return IncidentResults(incidents, len(ids), faults)


def _listed(row: IncidentRow, nodes: str | None, said: Sequence[Annotation], now: datetime) -> ListedIncident:
    return ListedIncident(
        row.id or 0,
        row.created_at,
        run_name(row),
        row.fault,
        row.verdict,
        row.summary,
        node_names(nodes),
        row.gpu_hours_lost,
        incident_state.state_of(row, now),
        row.pinned,
        word(said),
        row.assignee,
        row.snoozed_until,
        row.merged_into,
        row.backfilled,
        path_read(row),
    )


def _order(sort: Sort, now: datetime) -> list[ColumnElement[Any]]:
    """What comes before the time in the order."""
    if sort == "open":
        failed = col(IncidentRow.verdict).not_in(NOT_FAILED)
        return [case((incident_state.to_do(now), 0), (failed, 1), else_=2)]
    return [func.coalesce(col(IncidentRow.gpu_hours_lost), -1.0).desc()] if sort == "cost" else []


def _conditions(wanted: IncidentQuery, now: datetime) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.fault:
        found.append(has_cause(wanted.fault))
    if wanted.node:
        found.append(suspects(wanted.node))
    if wanted.job:
        found.append(_contains(wanted.job, *_NAMES))
    if wanted.text:
        found.append(_mentions(wanted.text, wanted.titled))
    if wanted.state == "pinned":
        found.append(col(IncidentRow.pinned).is_(True))
    elif wanted.state != "any":
        found += incident_state.listed_in(wanted.state, now)
    return found


_NAMES = (IncidentRow.job_name, IncidentRow.job_id, IncidentRow.bundle, IncidentRow.source)


def _contains(text: str, *places: Any) -> ColumnElement[bool]:
    return or_(*(col(place).icontains(text, autoescape=True) for place in places))


def _mentions(text: str, titled: Sequence[str]) -> ColumnElement[bool]:
    """Whether an incident has the text in what is shown of it, in what people closed it with, or as its number."""
    row, note = IncidentRow, AnnotationRow
    said = select(note.id).where(
        col(note.incident_id) == col(row.id), _contains(text, note.note, note.action, note.fault, note.nodes)
    )
    found = [_contains(text, row.summary, row.fault, row.nodes, *_NAMES), said.correlate(IncidentRow).exists()]
    if titled:
        found.append(named_cause().in_(titled))
    number = _number(text)
    if number is not None:
        found.append(col(row.id) == number)
    return or_(*found)


def _number(text: str) -> int | None:
    """The number of an incident, as 4 or #4; None if the text is none."""
    number = text.removeprefix("#")
    return int(number) if number.isascii() and number.isdigit() and len(number) < _DIGITS else None


def _numbered(text: str) -> list[ColumnElement[Any]]:
    """What puts the incident first whose number is searched for."""
    number = _number(text)
    return [] if number is None else [case((col(IncidentRow.id) == number, 0), else_=1)]
