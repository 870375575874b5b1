"""The digest worked out a second time, by other means: from the kept reports and annotations, loop by loop, with SQL for counts.

Slow and plain on purpose. It shares no code with the digest but the reading of a report and the names of weeks.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from bot.incidents.ledger import Ledger
from bot.render.report_json import from_json
from kb.digest.weeks import Week
from kb.report import REPORTED, WAITING, Report


@dataclass
class End:
    """One end of a job."""

    id: int
    report: Report
    made: float
    at: float
    row: Any
    said: list[Any] = field(default_factory=list)
    quiet: bool = False
    parts: list[End] = field(default_factory=list)

    @property
    def cause(self) -> Any:
        """The last word with a cause."""
        return next((item for item in reversed(self.said) if item.cause is not None), None)

    @property
    def judged(self) -> str | None:
        """The last word on whether the bot was right."""
        words = [item.verdict for item in self.said if item.cause != "unknown"]
        words = [word for word in words if word in ("right", "right_not_first", "wrong", "abstained_rightly")]
        return words[-1] if words else None

    @property
    def fault(self) -> str:
        """Its class."""
        if self.cause is not None:
            return self.cause.fault if self.cause.cause in ("shown", "fault") and self.cause.fault else "unknown"
        if self.report.verdict == "fault" and self.report.diagnoses:
            return self.report.diagnoses[0].fault
        return "unknown"

    @property
    def attempt(self) -> int | None:
        """Which one it was."""
        return self.report.job.attempts[-1].number if self.report.job.attempts else self.report.job.attempt

    @property
    def chain(self) -> str:
        """Whose tries it belongs to."""
        if self.row.chain:
            return f"c{self.row.chain}"
        return f"j{self.row.cluster}{self.row.job_id}" if self.row.job_id else f"r{self.id}"

    @property
    def nodes(self) -> list[str]:
        """Who is to blame: those that people named; else the diagnosed ones, if the answer was not wrong, without mere witnesses."""
        if self.cause is not None and (self.cause.nodes or self.judged == "wrong"):
            return list(self.cause.nodes)
        first = self.report.diagnoses[0] if self.report.diagnoses else None
        if first is None or first.lies_in:
            return []
        return [item.node for item in first.suspects if item.node and item.why not in (WAITING, REPORTED)]


def stamp(value: Any) -> float:
    """A time as SQLite or PostgreSQL gives it."""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    return when.replace(tzinfo=UTC).timestamp()


def every(ledger: Ledger, tenant: str, until: datetime) -> list[End]:
    """All reports, with the feedback given by then."""
    found = []
    with ledger.database.session() as session:
        rows = session.execute(
            text("SELECT * FROM incident WHERE tenant = :tenant ORDER BY id"), {"tenant": tenant}
        ).all()
    for row in rows:
        made = stamp(row.created_at)
        if made > until.timestamp():
            continue
        at = made if row.ended_at is None else min(made, stamp(row.ended_at))
        opened = None if row.reopened_at is None else stamp(row.reopened_at)
        since = opened if opened is not None and opened <= until.timestamp() else 0.0
        said = [
            annotation.said
            for annotation in ledger.closings.annotations(row.id)
            if since < annotation.at.timestamp() <= until.timestamp()
        ]
        asleep = (
            row.snoozed_until is not None and row.closed_at is None and stamp(row.snoozed_until) > until.timestamp()
        )
        record = ledger.incidents.get(row.id)
        assert record is not None
        found.append(End(row.id, from_json(record.report_json), made, at, row, said, asleep or bool(row.backfilled)))
    return found


def failures(ends: list[End], start: float, end: float) -> list[End]:
    """Those of a week, each end of a job once."""
    groups = defaultdict(list)
    for item in ends:
        unseen = item.report.verdict in ("no_fault", "insufficient_evidence")
        said = item.cause
        calm = item.report.phase in ("stopped", "completed") or (said is not None and said.cause == "no_failure")
        if not _named(item) if unseen else calm:
            continue
        job = item.row.job_id
        key = (
            item.id
            if job is None
            else (item.row.cluster, job, item.attempt if item.attempt is not None else f"at {item.at}")
        )
        groups[key].append(item)
    best = [max(group, key=lambda item: (item.cause is not None, item.made, item.id)) for group in groups.values()]
    best = _without_parts(best, list(groups.values()))
    return sorted((item for item in best if start <= item.at < end), key=lambda item: (item.at, item.id))


def _named(item: End) -> bool:
    """Whether people named a fault."""
    said = item.cause
    return said is not None and (
        said.cause == "no_rule" or (said.cause == "fault" and said.fault is not None and said.fault != "cancelled")
    )


def _without_parts(best: list[End], groups: list[list[End]]) -> list[End]:
    """Those that were merged into a report on another end are parts of it."""
    group_of = {each.id: number for number, group in enumerate(groups) for each in group}
    alone = {}
    for end in best:
        whole = end.row.merged_into
        if whole is None or group_of.get(whole) == group_of[end.id]:
            end.parts = []
            alone[group_of[end.id]] = end
    for end in best:
        if group_of[end.id] not in alone and group_of.get(end.row.merged_into) in alone:
            alone[group_of[end.row.merged_into]].parts.append(end)
    return list(alone.values())


def attempts(ends: list[End]) -> tuple[dict[Any, dict[str, float | None]], dict[str, list[Any]]]:
    """All attempts, a later report's word first; and those of each chain in order."""
    known: dict[Any, dict[str, float | None]] = {}
    chains: dict[str, list[Any]] = defaultdict(list)
    names = ("queued", "scheduled", "initialised", "first_iterated", "last_iterated", "stopped")
    for end in sorted(ends, key=lambda each: (each.made, each.id)):
        if end.row.job_id is None:
            continue
        for run in end.report.job.attempts:
            key = (end.row.cluster, end.row.job_id, run.number)
            slot = known.setdefault(key, dict.fromkeys(names))
            for name in names:
                if getattr(run, name) is not None:
                    slot[name] = getattr(run, name)
            if key not in chains[end.chain]:
                chains[end.chain].append(key)
    for keys in chains.values():
        keys.sort(key=lambda key: (_begun(known[key]), key[1], key[2]))
    return known, chains


def _begun(slot: dict[str, float | None]) -> float:
    for name in ("scheduled", "initialised", "first_iterated", "last_iterated", "stopped", "queued"):
        if slot[name] is not None:
            return slot[name]  # type: ignore[return-value]
    return float("-inf")


def terms(item: End, known: Any, chains: Any) -> tuple[bool, list[float | None]]:
    """Whether it ran again; detection, scheduling, initialisation, recomputation in seconds."""
    redone, gpus = item.report.decision.gpu_hours_lost, item.report.job.gpus
    recomputed = redone * 3600 / gpus if redone is not None and gpus else None
    key = (item.row.cluster, item.row.job_id, item.attempt)
    this = known.get(key) if item.row.job_id is not None and item.attempt is not None else None
    following = None
    for keys in chains.values():
        if key in keys and keys.index(key) + 1 < len(keys):
            following = known[keys[keys.index(key) + 1]]
    if this is None:
        return False, [None, None, None, recomputed]

    def gap(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None or b < a else b - a

    return following is not None, [
        gap(this["last_iterated"], this["stopped"]),
        gap(this["stopped"], following["scheduled"]) if following else None,
        gap(following["scheduled"], following["first_iterated"]) if following else None,
        recomputed,
    ]


def lost(item: End, found: list[float | None]) -> float | None:
    """GPU-hours."""
    gpus = item.report.job.gpus
    if item.cause is not None and item.cause.lost_hours is not None and gpus is not None:
        return item.cause.lost_hours * gpus
    seconds = [each for each in found if each is not None]
    if seconds and gpus:
        return sum(seconds) * gpus / 3600
    return item.report.decision.gpu_hours_lost


def lost_with_parts(item: End, known: Any, chains: Any) -> float | None:
    """GPU-hours of a failure and all that was merged into it."""
    each = [lost(part, terms(part, known, chains)[1]) for part in (item, *item.parts)]
    there = [hours for hours in each if hours is not None]
    return sum(there) if there else None


def middle(values: Sequence[float]) -> dict[str, Any]:
    """Median, nine-tenths mark and mean."""
    ordered = sorted(values)
    if len(ordered) < 5:
        return {"n": len(ordered), "median": None, "p90": None, "mean": None}
    place = next(at for at in range(len(ordered)) if (at + 1) * 10 >= 9 * len(ordered))
    return {
        "n": len(ordered),
        "median": statistics.median(ordered),
        "p90": ordered[place],
        "mean": sum(ordered) / len(ordered),
    }


def edges(week: Week, zone: Any) -> list[float]:
    """The Mondays of the eight weeks and the one after, by the calendar."""
    days = [week.monday + timedelta(days=7 * at) for at in range(-7, 2)]
    return [datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in days]
