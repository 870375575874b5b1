"""The input of the digest: one row per stored report, with people's later feedback."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from kb.model import NOT_FAILED

UNKNOWN = "unknown"  # the class of a failure that nobody has named
SOUND = frozenset({"stopped", "completed"})  # phases of a run that ended without failing
JUDGED = ("right", "right_not_first", "wrong")


class AttemptTimes(NamedTuple):
    """One attempt of a job, times in seconds since the epoch; see `kb.model.Attempt`."""

    number: int
    queued: float | None = None
    scheduled: float | None = None
    initialised: float | None = None
    first_iterated: float | None = None
    last_iterated: float | None = None
    stopped: float | None = None


class DigestRow(NamedTuple):
    """A report. `at`: when the job ended, else when it was reported; seconds since the epoch.

    `nodes`: those at fault by the first diagnosis; `width`: on how many the job ran; `runs`: the job's attempts as this report knows
    them; `redone`: GPU-hours of steps that were lost with it; `saving`: seconds that the attempt spent writing checkpoints.

    What people said: `closed`, whether somebody named a cause; `cause` and `said_fault`, the last one named; `said_nodes`; `judged`, the
    last judgement of whether the bot was right, of `JUDGED` or abstained_rightly; `lost`, hours of wall time. `part_of`: the report
    as a part of which it counts; `quiet`: nobody is asked about it, because it is snoozed or was found in the past.
    `evidence`: of a job without an id, the same for all reports on one failure.

    It is a tuple because there may be a hundred thousand of them.
    """

    id: int
    at: float
    made: float
    verdict: str
    phase: str
    job: str | None = None
    name: str | None = None
    chain: str | None = None
    attempt: int | None = None
    fault: str | None = None
    rule: str | None = None
    cluster: str | None = None
    owner: str | None = None
    partition: str | None = None
    framework: str | None = None
    image: str | None = None
    gpus: int | None = None
    width: int | None = None
    nodes: tuple[str, ...] = ()
    runs: tuple[AttemptTimes, ...] = ()
    redone: float | None = None
    saving: float | None = None
    closed: bool = False
    cause: str | None = None
    said_fault: str | None = None
    said_nodes: tuple[str, ...] = ()
    judged: str | None = None
    lost: float | None = None
    part_of: int | None = None
    quiet: bool = False
    evidence: str | None = None

    @property
    def failed(self) -> bool:
        """Whether something failed, whether diagnosed or not. If that is unknown, the report counts neither way."""
        if self.verdict in NOT_FAILED:
            return self.overruled
        return self.phase not in SOUND and self.cause != "no_failure"

    @property
    def ended_well(self) -> bool:
        """Whether the run completed or was stopped from outside or as planned, or people say that nothing failed."""
        return self.cause == "no_failure" or (self.phase in SOUND and not self.overruled)

    @property
    def overruled(self) -> bool:
        """Whether people named a fault where the bot saw none."""
        return self.verdict in NOT_FAILED and said_to_fail(self.cause, self.said_fault) is True

    @property
    def false_alarm(self) -> bool:
        """Whether the bot named a fault where people say that nothing failed."""
        return self.verdict == "fault" and self.cause == "no_failure"

    @property
    def unanswered(self) -> bool:
        """Whether the bot had no diagnosis for it."""
        return self.verdict != "fault"

    @property
    def known(self) -> str:
        """Its class: the one given when it was closed, else that of the first diagnosis, else unknown."""
        if self.cause in ("shown", "fault"):
            return self.said_fault or UNKNOWN
        if self.cause is not None or self.unanswered:
            return UNKNOWN
        return self.fault or UNKNOWN

    @property
    def blamed(self) -> tuple[str, ...]:
        """The nodes at fault: those that people named; else, unless they refuted the diagnosis, those that it names."""
        if self.named_nodes:
            return self.said_nodes
        return () if self.cause is not None and self.judged == "wrong" else self.nodes

    @property
    def named_nodes(self) -> bool:
        """Whether people named the nodes at fault."""
        return self.cause is not None and bool(self.said_nodes)

    @property
    def one_job(self) -> str:
        """The same for all tries of a job."""
        if self.chain is not None:
            return f"chain {self.chain}"
        if self.job is not None:
            return f"job {self.cluster} {self.job}"
        return f"logs {self.cluster} {self.evidence}" if self.evidence is not None else f"report {self.id}"

    @property
    def one_end(self) -> tuple[str | None, str, float] | int:
        """The same for all reports on one end of a job, since it may be diagnosed repeatedly."""
        job, attempt = self.job, self.attempt
        if job is None:
            return self.id if self.evidence is None else (self.cluster, f"logs {self.evidence}", 0.0)
        return (self.cluster, job, float(attempt) if attempt is not None else self.at)


class JobEnd(NamedTuple):
    """One end of a job as it counts: its row, and those of other ends that people merged into it."""

    row: DigestRow
    parts: tuple[DigestRow, ...] = ()


def said_to_fail(cause: str | None, fault: str | None) -> bool | None:
    """Whether people closed a run as failed; None if that leaves it to the verdict. That it was cancelled overlooks no failure."""
    if cause == "no_failure":
        return False
    named = cause == "no_rule" or (cause == "fault" and fault not in (None, "cancelled"))
    return True if named else None


def ends(rows: Sequence[DigestRow]) -> list[DigestRow]:
    """The rows of `counted`."""
    return [item.row for item in counted(rows)]


def counted(rows: Sequence[DigestRow]) -> list[JobEnd]:
    """One row for each job end, in order of time: the latest report that people closed, else the latest report.

    An end whose row was merged into a report on another end counts with that one, which may not be among the rows.
    """
    best: dict[object, DigestRow] = {}
    merged = any(row.part_of is not None for row in rows)
    for row in rows:
        known = best.setdefault(row.one_end, row)
        if known is not row and (row.closed, row.made, row.id) > (known.closed, known.made, known.id):
            best[row.one_end] = row
    ordered = in_order(best.values())
    return _joined(rows, ordered) if merged else [JobEnd(row) for row in ordered]


def in_order(rows: Iterable[DigestRow], *, of: str = "at") -> list[DigestRow]:
    """Rows by a time, and by id where times are equal. As few are, a sort by both numbers would take three times as long."""
    time = attrgetter(of)
    ordered = sorted(rows, key=time)
    times = list(map(time, ordered))
    for equal in {before for before, after in pairwise(times) if before == after}:
        place = slice(bisect_left(times, equal), bisect_right(times, equal))
        ordered[place] = sorted(ordered[place], key=attrgetter("id"))
    return ordered


def _joined(rows: Sequence[DigestRow], ordered: Sequence[DigestRow]) -> list[JobEnd]:
    """The ends without those that count as parts of others."""
    end_of = {row.id: row.one_end for row in rows}
    parts: dict[object, list[DigestRow]] = {}
    alone: list[DigestRow] = []
    for row in ordered:
        whole = end_of.get(row.part_of) if row.part_of is not None else row.one_end
        if whole == row.one_end:
            alone.append(row)
        elif whole is not None:
            parts.setdefault(whole, []).append(row)
    return [JobEnd(row, tuple(parts.get(row.one_end, ()))) for row in alone]
