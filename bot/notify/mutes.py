"""What limits notifications: mutes, repeated failures, and the records of rules in close-outs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import or_
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from bot.policy.notifications import Flap, Mute, RuleRecord, Verdict, WeakRuleThreshold, rule_records
from bot.policy.resolution_codes import JUDGED
from bot.store.database import Repository
from bot.store.states import PostingState
from bot.store.tables import AnnotationRow, AuditRow, FlapRow, IncidentRow, LookedRow, MuteRow, PostingRow
from bot.store.visibility import visible

MOST_VERDICTS = 20_000  # only the latest; more would not change any decision


class MuteStore(Repository):
    """Mutes and rule records in one database."""

    def add(self, key: str, mute: Mute, now: datetime) -> bool:
        """Mute something. Return whether the mute is new (deliveries of the same click share a `key`)."""
        with self.database.errors(), self.database.session(write=True) as session:
            return add_mute(session, key, mute, now)

    def active(self, tenant: str, now: datetime) -> tuple[Mute, ...]:
        """The active mutes."""
        with self.database.errors(), self.database.session() as session:
            return active_mutes(session, tenant, now)

    def listed(self, tenant: str, now: datetime) -> tuple[tuple[int, Mute], ...]:
        """The active mutes with their numbers, the one that ends first at the start."""
        with self.database.errors(), self.database.session() as session:
            rows = session.exec(_active(tenant, now).order_by(col(MuteRow.until), col(MuteRow.id)))
            return tuple((row.id or 0, _mute(row)) for row in rows)

    def add_from_shell(self, key: str, mute: Mute, now: datetime) -> int:
        """Mute something from the command line, with a row in the audit log. Return the number of the mute."""

        def muted(session: Session) -> int:
            if add_mute(session, key, mute, now):
                session.add(_audited(mute, mute.by, f"{mute.kind} {mute.what}", now))
            return session.exec(select(MuteRow.id).where(col(MuteRow.key) == key)).one() or 0

        return self.database.write(muted)

    def end_from_shell(self, tenant: str, number: int, who: str, now: datetime) -> Mute | None:
        """End an active mute from the command line, with a row in the audit log. Return it; None if it is not active."""

        def ended(session: Session) -> Mute | None:
            mute = end_mute(session, tenant, number, now)
            if mute is not None:
                session.add(_audited(mute, who, f"end mute of {mute.kind} {mute.what}", now))
            return mute

        return self.database.write(ended)

    def standings(self, tenant: str, bar: WeakRuleThreshold | None = None) -> tuple[RuleRecord, ...]:
        """Return each rule's record in the tenant's close-outs, the worst first."""
        with self.database.errors(), self.database.session() as session:
            return load_rule_records(session, tenant, bar)


def add_mute(session: Session, key: str, mute: Mute, now: datetime) -> bool:
    """Add a mute within a write transaction. Return whether it is new."""
    if session.exec(select(MuteRow.id).where(col(MuteRow.key) == key)).first() is not None:
        return False
    row = MuteRow(
        key=key,
        tenant=mute.tenant,
        kind=mute.kind,
        what=mute.what,
        channel=mute.channel,
        until=datetime.fromtimestamp(mute.until, UTC),
        at=now,
        who=mute.by,
        why=mute.why,
    )
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:  # a redelivery was faster
        return False
    return True


def active_mutes(session: Session, tenant: str, now: datetime) -> tuple[Mute, ...]:
    """Return the active mutes, within a transaction."""
    return tuple(_mute(row) for row in session.exec(_active(tenant, now)))


def end_mute(session: Session, tenant: str, number: int, now: datetime) -> Mute | None:
    """End an active mute now, within a write transaction. Return it; None if it was not active anymore."""
    row = session.exec(_active(tenant, now).where(col(MuteRow.id) == number).with_for_update()).first()
    if row is None:
        return None
    row.until = now
    session.add(row)
    return _mute(row)


def _audited(mute: Mute, who: str, what: str, now: datetime) -> AuditRow:
    return AuditRow(at=now, tenant=mute.tenant, who=who, verb="mute", what=what, allowed=True, why="from the shell")


def _active(tenant: str, now: datetime) -> SelectOfScalar[MuteRow]:
    return select(MuteRow).where(col(MuteRow.tenant) == tenant, col(MuteRow.until) > now)


def _mute(row: MuteRow) -> Mute:
    return Mute(row.kind, row.what, row.until.timestamp(), row.tenant, row.channel, row.who, row.why)  # type: ignore[arg-type]


def load_rule_records(session: Session, tenant: str, bar: WeakRuleThreshold | None = None) -> tuple[RuleRecord, ...]:
    """Return the rule records, within a transaction. The last close-out of each incident counts."""
    looked = {
        row.rule: row.at.timestamp() for row in session.exec(select(LookedRow).where(col(LookedRow.tenant) == tenant))
    }
    return rule_records(load_verdicts(session, tenant), looked, bar)


def load_verdicts(session: Session, tenant: str) -> Iterable[Verdict]:
    """Return, for each closed incident that is not private, its top rule and whether the last close-out says it was right."""
    rows = session.exec(
        select(AnnotationRow.incident_id, AnnotationRow.verdict, AnnotationRow.at, IncidentRow.rule)
        .join(IncidentRow, col(IncidentRow.id) == col(AnnotationRow.incident_id))
        .where(
            col(IncidentRow.tenant) == tenant,
            col(IncidentRow.rule).is_not(None),
            visible(),
            col(AnnotationRow.verdict).in_(JUDGED),
            or_(col(IncidentRow.reopened_at).is_(None), col(AnnotationRow.at) > col(IncidentRow.reopened_at)),
        )
        .order_by(col(AnnotationRow.id).desc())
        .limit(MOST_VERDICTS)
    )
    last: dict[int, Verdict] = {}
    for incident, verdict, at, rule in rows:
        last.setdefault(incident, Verdict(rule or "", verdict == "right", at.timestamp()))
    return last.values()


def load_flap(session: Session, channel: str, chain: str, fingerprint: str) -> Flap | None:
    """Return the repeat state of a failure on a chain in a channel."""
    row = session.get(FlapRow, (channel, chain, fingerprint), with_for_update=True)
    return None if row is None else Flap(row.count, row.said, row.pause, row.seen)


def save_flap(session: Session, channel: str, chain: str, fingerprint: str, flap: Flap) -> None:
    """Store the repeat state of a failure."""
    session.merge(
        FlapRow(
            channel=channel,
            chain=chain,
            fingerprint=fingerprint,
            count=flap.count,
            said=flap.said,
            pause=flap.pause,
            seen=flap.seen,
        )
    )


def notification_times(session: Session, channel: str, since: datetime) -> tuple[float, ...]:
    """Return when automatic messages went to a channel."""
    rows = session.exec(
        select(PostingRow.created_at).where(
            col(PostingRow.channel) == channel,
            col(PostingRow.asked_by).is_(None),
            col(PostingRow.state) == PostingState.ANSWERED,
            col(PostingRow.created_at) > since,
        )
    )
    return tuple(row.timestamp() for row in rows)
