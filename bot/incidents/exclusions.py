"""Node exclusions, for a cluster or for one job. Diagnoses propose them; people confirm, refuse and lift them.

Signalbox changes nothing on a cluster: it shows the command to run. At most one exclusion per node, scope and job is
open. If two people decide at the same time, the second one learns what the first did.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from hashlib import sha256
from typing import Literal

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from bot.notify.messages import refresh_messages
from bot.runtime.redaction import redact
from bot.store.database import Repository, insert_new
from bot.store.tables import AuditRow, BarRow, IncidentRow
from bot.store.visibility import visible
from kb.errors import SignalboxError
from kb.report import Report

State = Literal["proposed", "barred", "refused", "lifted"]
Scope = Literal["cluster", "job"]
OPEN = ("proposed", "barred")
DIAGNOSIS = "signalbox"  # recorded as the one who proposed or ended it, if no person did
MOST_PROPOSED = 16  # nodes per incident: if there are more, nodes are not the cause
LONGEST_WHY = 300
LONGEST_JOB = 256
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")


class AlreadyDecided(SignalboxError):  # noqa: N818 - an outcome
    """Somebody else decided first. The message says who, and what."""


class ExclusionNotFound(SignalboxError):  # noqa: N818 - an outcome
    """The exclusion does not exist, or belongs to another tenant."""


@dataclass(frozen=True, slots=True)
class NodeExclusion:
    """An exclusion of a node; see `bot.store.tables.BarRow`."""

    id: int
    tenant: str
    cluster: str
    node: str
    scope: Scope
    job: str
    state: State
    since: datetime
    until: datetime | None
    who: str
    why: str
    incident_id: int | None
    decided_at: datetime | None
    decided_by: str | None

    def over(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.until is not None and self.until <= now


@dataclass(frozen=True, slots=True)
class ExclusionRequest:
    """A request to exclude a node. `job`: the job, if the scope is a job."""

    tenant: str
    cluster: str
    node: str
    scope: Scope = "cluster"
    job: str = ""
    until: datetime | None = None
    why: str = ""
    incident: int | None = None

    @property
    def key(self) -> str:
        """Identifies the node, scope and job."""
        identity = repr((self.tenant, self.cluster, self.node, self.scope, self.job))
        return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


class ExclusionList(Repository):
    """The exclusions in one database."""

    def list(
        self,
        tenant: str,
        *,
        cluster: str | None = None,
        node: str | None = None,
        states: Collection[State] = ("proposed", "barred"),
        limit: int = 100,
    ) -> tuple[NodeExclusion, ...]:
        """The newest exclusions of a tenant, including expired ones."""
        query = select(BarRow).where(col(BarRow.tenant) == tenant, col(BarRow.state).in_(states), shared())
        query = query if cluster is None else query.where(col(BarRow.cluster) == cluster)
        query = query if node is None else query.where(col(BarRow.node) == node)
        query = query.order_by(col(BarRow.since).desc(), col(BarRow.id).desc()).limit(max(0, limit))
        with self.database.errors(), self.database.session() as session:
            return tuple(_bar(row) for row in session.exec(query))

    def of_incident(self, incident: int) -> tuple[NodeExclusion, ...]:
        """The exclusions that the diagnosis of an incident proposed, in order, with their current status."""
        query = select(BarRow).where(col(BarRow.incident_id) == incident).order_by(col(BarRow.id))
        with self.database.errors(), self.database.session() as session:
            latest = {row.key: _bar(row) for row in session.exec(query.limit(10 * MOST_PROPOSED))}
            return tuple(latest.values())

    def decide_all(
        self, bars: Sequence[NodeExclusion], to: State, who: str, now: datetime
    ) -> tuple[tuple[NodeExclusion, ...], tuple[str, ...]]:
        """Decide on several exclusions in one transaction.

        Return the updated ones, and messages about those decided by others.
        """

        def decided(session: Session) -> tuple[tuple[NodeExclusion, ...], tuple[str, ...]]:
            done: list[NodeExclusion] = []
            late: list[str] = []
            for node_exclusion in sorted(
                bars, key=lambda bar: bar.id
            ):  # rows are locked in order, so that two people who decide on the same ones do not deadlock
                try:
                    done.append(
                        decide_within(session, node_exclusion.id, node_exclusion.tenant, to, who=who, now=now)[0]
                    )
                except AlreadyDecided as error:
                    late.append(str(error))
            return tuple(done), tuple(late)

        return self.database.write(decided)

    def add(self, wanted: ExclusionRequest, who: str, now: datetime) -> NodeExclusion:
        """Exclude a node. An existing proposal is confirmed.

        Raises:
            AlreadyDecided: the node is already excluded.
            SignalboxError: the node name is not valid, or the end lies in the past.
        """
        checked = replace(wanted, node=node_name(wanted.node), job=_text(wanted.job, LONGEST_JOB))
        if checked.until is not None and checked.until <= now:
            raise SignalboxError("the end of an exclusion must lie in the future")
        return self.database.write(lambda session: bar_within(session, checked, who, now))

    def decide(
        self, bar: int, tenant: str, to: State, who: str, now: datetime, *, until: datetime | None = None
    ) -> tuple[NodeExclusion, bool]:
        """Confirm, refuse or lift an exclusion.

        Return it, and whether it changed. Repeating a decision changes nothing.

        Raises:
            ExclusionNotFound: it does not exist for this tenant.
            AlreadyDecided: somebody made a different decision.
        """
        return self.database.write(
            lambda session: decide_within(session, bar, tenant, to, who=who, now=now, until=until)
        )


def node_name(text: str) -> str:
    """The validated name of a node.

    Raises:
        SignalboxError: it is not a valid name.
    """
    name = text.strip()
    if _NODE.match(name) is None:
        raise SignalboxError(
            f"{text[:80]!r} is not a valid node name: use at most 253 letters, digits, dots, hyphens and underscores"
        )
    return name


def propose_within(
    session: Session, report: Report, *, tenant: str, cluster: str | None, incident: int, now: datetime
) -> int:
    """Propose the exclusions of a decision. Return how many are new.

    Names that no scheduler allows are skipped. Existing exclusions and proposals stay. Exclusions that people refused or
    lifted for the same incident are not proposed again.
    """
    job = report.job.name or report.job.id or ""
    proposed = 0
    for item in report.decision.exclude[:MOST_PROPOSED]:
        if _NODE.match(item.node) is None:
            continue
        whose = _text(job, LONGEST_JOB) if item.scope == "job" else ""
        if item.scope == "job" and not whose:
            continue
        wanted = ExclusionRequest(tenant, cluster or "", item.node, item.scope, whose, None, item.why, incident)
        _close_over(session, wanted.key, now)
        before = select(BarRow.id).where(col(BarRow.key) == wanted.key, col(BarRow.incident_id) == incident)
        if session.exec(before).first() is None:
            values = _values(wanted, "proposed", DIAGNOSIS, now)
            proposed += insert_new(session, BarRow, values) is not None
    return proposed


def bar_within(session: Session, wanted: ExclusionRequest, who: str, now: datetime) -> NodeExclusion:
    """`ExclusionList.add` in a write transaction.

    Raises:
        AlreadyDecided: the node is excluded already.
        SignalboxError: several people decide on the node at once.
    """
    _close_over(session, wanted.key, now)
    for _ in range(3):
        row = session.exec(_open(wanted.key)).first()
        if row is None:
            number = insert_new(session, BarRow, _values(wanted, "barred", who, now))
            if number is None:
                continue  # somebody else was faster: the row now exists
            row = session.get_one(BarRow, number)
            _noted(session, row, who, now)
            return _bar(row)
        if row.state == "barred":
            raise AlreadyDecided(_already(row))
        row.why, row.until = _text(wanted.why, LONGEST_WHY) or row.why, wanted.until
        _decide(session, row, "barred", who, now)
        return _bar(row)
    raise SignalboxError("several people are deciding on this node right now; try again")


def decide_within(
    session: Session, bar: int, tenant: str, to: State, *, who: str, now: datetime, until: datetime | None = None
) -> tuple[NodeExclusion, bool]:
    """`ExclusionList.decide` in a write transaction.

    Raises:
        ExclusionNotFound: the tenant has no such exclusion.
        AlreadyDecided: somebody decided otherwise, or the exclusion has expired.
    """
    row = session.get(BarRow, bar, with_for_update=True) if 0 < bar < 2**31 else None
    if row is None or row.tenant != tenant:
        raise ExclusionNotFound(f"exclusion {bar} does not exist; see `signalbox nodes excluded`")
    if row.state == to:
        return _bar(row), False
    if row.state == "barred" and row.until is not None and row.until <= now:
        raise AlreadyDecided(f"the exclusion of {row.node} expired on {row.until:%Y-%m-%d}")
    allowed = {"proposed": ("barred", "refused"), "barred": ("lifted",)}
    if to not in allowed.get(row.state, ()):
        raise AlreadyDecided(_already(row))
    if until is not None:
        row.until = until
    _decide(session, row, to, who, now)
    return _bar(row), True


def in_force_within(
    session: Session, tenant: str, cluster: str | None, *, nodes: Collection[str], jobs: Collection[str], now: datetime
) -> tuple[NodeExclusion, ...]:
    """The confirmed, unexpired exclusions of these nodes, for the cluster or for one of these jobs."""
    names = sorted(set(nodes))[:4096]
    found: list[NodeExclusion] = []
    for start in range(0, len(names), 500):
        query = select(BarRow).where(
            col(BarRow.tenant) == tenant,
            col(BarRow.state) == "barred",
            col(BarRow.node).in_(names[start : start + 500]),
            or_(col(BarRow.until).is_(None), col(BarRow.until) > now),
            or_(col(BarRow.scope) == "cluster", col(BarRow.job).in_(sorted(set(jobs)))),
        )
        if cluster:
            query = query.where(col(BarRow.cluster).in_((cluster, "")))
        found += [_bar(row) for row in session.exec(query.order_by(col(BarRow.id)).limit(500))]
    return tuple({(node_exclusion.node, node_exclusion.scope): node_exclusion for node_exclusion in found}.values())


def shared() -> ColumnElement[bool]:
    """Condition for exclusions that everybody sees: omits those that a private answer proposed and nobody has decided on."""
    incident = col(BarRow.incident_id)
    seen = incident.in_(select(IncidentRow.id).where(visible()))
    return or_(incident.is_(None), col(BarRow.state) != "proposed", seen)


def in_words(bar: NodeExclusion, now: datetime, *, named: bool = True) -> str:
    """The status of an exclusion, as part of a sentence; `named`: include who decided."""
    by = f" by {bar.decided_by}" if named and bar.decided_by else ""
    scope = " for the cluster" if bar.scope == "cluster" else f" for {bar.job}"
    when = f" on {bar.decided_at or bar.since:%Y-%m-%d}"
    if bar.state == "proposed":
        return f"exclusion proposed{scope}{when}"
    if bar.state == "refused":
        return f"exclusion refused{when}{by}"
    if bar.state == "lifted":
        return f"exclusion lifted{when}{by}"
    if bar.until is not None and bar.over(now):
        return f"exclusion expired on {bar.until:%Y-%m-%d}"
    until = f", until {bar.until:%Y-%m-%d %H:%M}Z" if bar.until else ""
    return f"excluded{scope}{when}{by}{until}"


def command(bar: NodeExclusion, system: str = "slurm") -> str:
    """The command that drains the node, for a person to run; Signalbox never runs it. `system`: slurm or kubernetes."""
    if system == "kubernetes":
        return f"kubectl cordon {shlex.quote(bar.node)}"
    number = f" incident {bar.incident_id}" if bar.incident_id is not None else ""
    reason = "".join(
        sign if sign.isprintable() and sign not in "\"'`$\\" else " " for sign in f"signalbox{number}: {bar.why}"
    )
    return f"scontrol update NodeName={shlex.quote(bar.node)} State=DRAIN Reason={shlex.quote(reason[:120].strip())}"


def _values(wanted: ExclusionRequest, state: State, who: str, now: datetime) -> dict[str, object]:
    row = BarRow(
        key=wanted.key,
        tenant=wanted.tenant,
        cluster=wanted.cluster,
        node=wanted.node,
        scope=wanted.scope,
        job=wanted.job,
        state=state,
        since=now,
        until=wanted.until,
        who=_text(who, 128),
        why=_text(wanted.why, LONGEST_WHY),
        incident_id=wanted.incident,
        decided_at=now if state == "barred" else None,
        decided_by=_text(who, 128) if state == "barred" else None,
    )
    return row.model_dump(exclude={"id"})


def _open(key: str) -> SelectOfScalar[BarRow]:
    return select(BarRow).where(col(BarRow.key) == key, col(BarRow.state).in_(OPEN)).with_for_update()


def _close_over(session: Session, key: str, now: datetime) -> None:
    """Close an expired exclusion, to make room for a new one."""
    row = session.exec(_open(key)).first()
    if row is not None and row.until is not None and row.until <= now:
        row.state, row.decided_at, row.decided_by = "lifted", row.until, DIAGNOSIS
        row.version += 1
        session.add(row)
        session.flush()


def _decide(session: Session, row: BarRow, to: State, who: str, now: datetime) -> None:
    row.state, row.decided_at, row.decided_by = to, now, _text(who, 128)
    row.version += 1
    session.add(row)
    _noted(session, row, who, now)


def _noted(session: Session, row: BarRow, who: str, now: datetime) -> None:
    """Write the decision to the audit log, and update the messages about the incident."""
    word = "excluded" if row.state == "barred" else row.state
    what = f"{word} {row.node}{f' for {row.job}' if row.scope == 'job' else ''}"
    session.add(AuditRow(at=now, tenant=row.tenant, who=_text(who, 128), verb="bar", what=what[:300], allowed=True))
    if row.incident_id is not None:
        refresh_messages(session, [row.incident_id])


def _already(row: BarRow) -> str:
    by = f" by {row.decided_by}" if row.decided_by else ""
    when = f" on {row.decided_at:%Y-%m-%d %H:%M}Z" if row.decided_at else ""
    word = {
        "barred": "is already excluded",
        "refused": "was refused",
        "lifted": "was lifted",
        "proposed": "is only proposed",
    }
    return f"{row.node} {word[row.state]}{by}{when}"


def _text(text: str, most: int) -> str:
    clean = " ".join(redact(text).encode("utf-8", "replace").decode().replace("\0", "?").split())
    return clean[:most]


def _bar(row: BarRow) -> NodeExclusion:
    return NodeExclusion(**{field.name: getattr(row, field.name) for field in fields(NodeExclusion)})


def jobs_of(names: Sequence[str | None]) -> tuple[str, ...]:
    """The names under which exclusions may refer to a job."""
    return tuple(_text(name, LONGEST_JOB) for name in names if name)
