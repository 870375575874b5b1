"""Reads what launchers report of the members that they started: who ended, and with which status.

A launcher writes in a log of its own, or between the lines of the ranks. That a member ended is a consequence of what the member says, and
what a launcher says after that follows from it; not so where a signal ended a member, which could not say why. Recognised are words, and
tables: lines of one kind with a different member in each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from kb.anomalies.core.run import JOB, RANK, LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import by_signal, is_raised
from kb.anomalies.core.stamps import STAMPS
from kb.anomalies.nodes.mentions import NodeNames
from kb.anomalies.nodes.peers import OddNode

FEWEST_MEMBERS = 3  # of a table
ALL_BUT_FEW = 0.7  # share of the ranks that a table names
_ENDED = re.compile(
    r"(?i)(?<![a-z])(?:exit(?:ed|s)?|ended|left|died|terminated|finished|stopped|returned|gone|quit|crashed)\b[^;]{0,80}?"
    r"(?:\b(?:status|code|rc|signal|with)|exit_?code)\b\W{0,3}-?\d+"
    r"|\bsubprocess \d{1,9}\b.{0,80}\bexits with return code"
)
_REPORT = re.compile(  # in a log that no member writes
    r"(?i)\b(?:workers?|process(?:es)?|containers?|pods?|tasks?|actors?|jobs?|children|child|instances?|replicas?|members?|trainers?|all)\b.{0,80}?"
    r"\b(?:died|killed|terminated|exited|ended|stopped|stopping|failed|lost|gone|evicted|removed|home|down|left|cancell?ed|empty)\b"
    r"|\b(?:killing|stopping|terminating|removing|cancell?ing|tearing down|sending (?:all|them))\b|\b(?:time|wall ?time|step) (?:limit|budget|is over)\b|\bTIMEOUT\b"
)
_STATUS = re.compile(
    r"(?i)(?:exit ?_?(?:code|status)|\bstatus|\bcode|\brc|\bsignal|exited with|return code)\b\W{0,4}(-?\d{1,3})\b"
)
ENDED_WELL, STOPPED = (0,), (15, -15, 143)  # a launcher stops the others, too
_PID = re.compile(r"(?i)\bpid\b\W{0,3}(\d{2,10})\b")
_RANK_LINE = re.compile(r"(?i)^[\W_]{0,40}(?:global_)?rank {0,10}[:=] {0,4}(\d{1,6})\b")
BLOCK = 200  # bytes between the two lines
_INTEGER = re.compile(r"(?<![\d.])-?\d{1,5}(?![\d.]*\d)")


def of_launchers(run: RunProfile, fresh: Mapping[str, float], new: float) -> frozenset[str]:
    """The events in which launchers report the end of members, and those that follow in the same log.

    `fresh`: by event, 0 to 1, how little the good run has of it; from `new` on it is new.
    """
    logs = launchers(run)
    own = [
        event
        for event in run.events.values()
        if event.nodes.keys() <= logs and fresh.get(event.id, 0.0) >= new and not by_signal(_spots(event)[0].text)
    ]
    reports = {event.id for event in own if reports_end(_spots(event)[0].text) or members_in(event, run)}
    first: dict[str, int] = {}
    for spot in (spot for event in own if event.id in reports for spot in _spots(event)):
        first[spot.source] = min(spot.offset, first.get(spot.source, spot.offset))
    behind = {
        event.id for event in own if all(spot.offset > first.get(spot.source, spot.offset) for spot in _spots(event))
    }
    loose = {event.id for event in own if _REPORT.search(_spots(event)[0].text) and not is_raised(event.text)}
    return frozenset(reports | behind | loose)


def reports_end(text: str) -> bool:
    """Whether a line reports that a member ended, with a status or signal."""
    return _ENDED.search(text) is not None


def first_report(run: RunProfile, rank: str | None = None) -> tuple[RunEvent, LineRef, str | None] | None:
    """The first line in which a launcher reports that a member failed, with the rank that it names, as "rank 3".

    That a signal ended one comes first, unless the launcher itself may have sent it. None is named if nearly all ended with one status. `rank`: of that rank only, whatever its status.
    """
    logs, names = launchers(run), NodeNames(run)
    members = _by_pid(run, logs)
    found: list[tuple[bool, LineRef, RunEvent, str | None]] = []
    alike: dict[str, set[str]] = defaultdict(set)
    for event in run.events.values():
        if not event.nodes.keys() <= logs or is_raised(event.text):
            continue
        for spot in _spots(event):
            status = _STATUS.search(STAMPS.sub(" ", spot.text))
            failed = status is not None and int(status[1]) not in (*ENDED_WELL, *STOPPED)
            signal = by_signal(spot.text)
            stopped = status is not None and int(status[1]) in STOPPED
            if not signal and (status is None or stopped or (rank is None and not failed)):
                continue
            named = accused(run, spot, names, members)
            if named and status and not signal:
                alike[status[1]].add(named)
            if rank is None or named == rank:
                found.append((not signal, spot, event, named))
    best = min(found, key=lambda item: (item[0], item[1].order), default=None)
    if best is None:
        return None
    status = None if best[0] is False else _STATUS.search(STAMPS.sub(" ", best[1].text))
    every = status is not None and len(alike[status[1]]) >= max(FEWEST_MEMBERS, ALL_BUT_FEW * len(run.ranks))
    return best[2], best[1], None if every and rank is None else best[3]


def _by_pid(run: RunProfile, logs: frozenset[str]) -> Mapping[str, str]:
    """By process id the rank that stands in a line of its own shortly above it, as in torchrun's report."""
    spots = [spot for event in run.events.values() if event.nodes.keys() <= logs for spot in _spots(event)]
    ranks = [(spot, match[1]) for spot in spots if (match := _RANK_LINE.match(spot.text))]
    found: dict[str, set[str]] = {}
    for spot in spots if ranks else ():
        for pid in _PID.findall(spot.text):
            above = [
                (other.offset, rank)
                for other, rank in ranks
                if other.source == spot.source and 0 < spot.offset - other.offset < BLOCK
            ]
            if above:
                found.setdefault(pid, set()).add(f"{RANK}{max(above)[1]}")
    return {pid: named for pid, (named, *more) in found.items() if not more and named in run.ranks}


def accused(
    run: RunProfile, spot: LineRef, names: NodeNames | None = None, members: Mapping[str, str] | None = None
) -> str | None:
    """The rank, as "rank 3", that a launcher's line is about: by its words, by its process id, else by the first number.

    `members`: the ranks by process id, if they are known.
    """
    pids = _by_pid(run, launchers(run)) if members is None else members
    who = (names or NodeNames(run)).of(spot, ranks=True) & run.ranks
    who = who or frozenset({pids[pid] for pid in _PID.findall(spot.text) if pid in pids})
    who = who or frozenset({f"{RANK}{abs(number)}" for number in _integers(spot.text)[:1]} & run.ranks)
    return next(iter(who)) if len(who) == 1 else None


def launchers(run: RunProfile) -> frozenset[str]:
    """The units that are neither a rank nor a node, if others are."""
    kinds = run.kinds
    logs = frozenset(unit for unit, kind in kinds.items() if kind == "log") | {JOB}
    return logs if any(kind == "rank" for kind in kinds.values()) else frozenset()


def members_in(event: RunEvent, run: RunProfile) -> Mapping[int, LineRef]:
    """The table row of each rank; empty if the lines are not a table of the ranks."""
    ranks = {int(unit.removeprefix(RANK)) for unit, kind in run.kinds.items() if kind == "rank"}
    spots = _spots(event)
    if len(spots) < max(FEWEST_MEMBERS, ALL_BUT_FEW * min(len(ranks), len(spots) + 1)):
        return {}
    rows = [_integers(spot.text) for spot in spots]
    for place in range(min(map(len, rows))):
        told = [row[place] for row in rows]
        if len(set(told)) == len(told) and set(told) <= ranks:
            return dict(zip(told, spots, strict=True))
    return {}


def odd_status(run: RunProfile) -> OddNode | None:
    """The one rank that a launcher's table reports with a different status than all others."""
    logs = launchers(run)
    for event in sorted(run.events.values(), key=lambda item: item.id):
        if not event.nodes.keys() <= logs:
            continue
        table = members_in(event, run)
        ends = {rank: _integers(spot.text)[-1] for rank, spot in table.items()}
        usual = Counter(ends.values()).most_common(1)
        odd = [rank for rank, status in ends.items() if status != usual[0][0]]
        if len(ends) > FEWEST_MEMBERS and len(odd) == 1:
            why = f"the launcher reports status {ends[odd[0]]} for it, {usual[0][0]} for the others"
            return OddNode(f"{RANK}{odd[0]}", 0.8, why, (event.id,), table[odd[0]])
    return None


def _integers(line: str) -> list[int]:
    return [int(number) for number in _INTEGER.findall(STAMPS.sub(" ", line))]


def _spots(event: RunEvent) -> list[LineRef]:
    return [spot for seen in event.nodes.values() for spot in seen.spots]
