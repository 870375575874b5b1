"""Some months of made-up incidents to try the digest and the pages. The same seed gives the same incidents.

Each one says that it is made up: in its summary, evidence, bundle and versions. No number in here is a measurement.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import Session, col, select

from bot.demo.sample_catalogue import ACTIONS, FAULTS, JOB_KINDS, JobKind, SampleFault
from bot.incidents.lifecycle import LifecycleStep, step_within
from bot.incidents.resolution import Closing, annotate_within
from bot.render.report_json import dumps
from bot.store.database import Database
from bot.store.digest_rows import MADE_UP
from bot.store.packed_reports import Origin, file
from bot.store.report_writes import add_within
from bot.store.tables import IncidentRow
from kb.errors import SignalboxError
from kb.model import Attempt, Phase, Verdict
from kb.report import Decision, Diagnosis, EvidenceItem, Exclusion, JobView, Progress, Report, Suspect, Versions
from kb.rulebase.rule import Rulebook

LEMONS = ("gpu-017", "gpu-042")
STEP, SAVED_EVERY = 6, 1200  # seconds of a step, and steps between two checkpoints
_HOUR, _DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class SampleIncident:
    """An incident: its report, when it was stored, its origin, and later close-outs."""

    report: Report
    at: datetime
    origin: Origin
    said: tuple[tuple[datetime, Closing], ...] = ()


def fill_store(
    store: Database,
    rulebook: Rulebook,
    until: datetime,
    *,
    days: int = 140,
    seed: int = 7,
    pace: float = 1.0,
    tell: Callable[[int], None] | None = None,
) -> int:
    """Add made-up incidents of the last days to a store; return how many. `tell` receives the number of days that are filled.

    Raises:
        SignalboxError: the store has incidents that are not made up.
    """
    with store.errors(), store.session() as session:
        real = session.exec(
            select(IncidentRow.id)
            .where(col(IncidentRow.bundle).is_(None) | (col(IncidentRow.bundle) != MADE_UP))
            .limit(1)
        ).first()
    if real is not None:
        raise SignalboxError(
            "the store has real incidents, and made-up ones would distort their statistics: "
            "set SIGNALBOX_STATE to an empty folder"
        )
    count, still_open = 0, []
    with store.errors(), store.session(write=True) as session:
        for incident in incidents(rulebook, until, days=days, seed=seed, pace=pace):
            filed = file(
                dumps(incident.report),
                incident.report,
                _replay(incident.report),
                MADE_UP,
                incident.at,
                origin=incident.origin,
            )
            number = add_within(session, filed)
            row = session.get_one(IncidentRow, number)
            row.chain = row.link_job = f"{incident.origin.cluster}/{incident.report.job.id}"
            session.add(row)
            for place, (at, said) in enumerate(incident.said):
                key = f"made:{incident.report.id}:{place}"
                annotate_within(session, number, incident.origin.tenant, key=key, said=said, now=at)
            count += 1
            if tell is not None:
                tell(max(0, days - (until - incident.at).days))
            if row.closed_at is None and incident.report.verdict != "no_fault":
                still_open.append(number)
        _apply_steps(session, still_open[-5:], until)
    return count


def _apply_steps(session: Session, numbers: Sequence[int], now: datetime) -> None:
    """Acknowledge, assign, snooze and merge one each of the newest open incidents."""
    steps: Sequence[dict[str, Any]] = (
        {"verb": "ack"},
        {"verb": "assign", "assignee": "ben"},
        {"verb": "snooze", "until": now + timedelta(days=2)},
        {"verb": "merge", "other": numbers[0] if numbers else None},
    )
    for number, step in zip(numbers[1:], steps, strict=False):
        taken = LifecycleStep(who="ana", source="cli", note="(Made up)", **step)
        step_within(session, number, "default", key=f"made:life:{number}", step=taken, now=now - timedelta(hours=1))


def incidents(
    rulebook: Rulebook,
    until: datetime,
    *,
    days: int = 140,
    seed: int = 7,
    pace: float = 1.0,
    tenant: str = "default",
) -> Iterator[SampleIncident]:
    """Generate incidents in the order in which their jobs started. `pace`: 2 gives twice as many jobs."""
    chance = random.Random(seed)
    rules = _rules(rulebook)
    last = until.timestamp()
    start = last - days * _DAY
    number = 4000
    while start < last:
        start += chance.expovariate(pace / (11 * _HOUR))
        number += 1
        yield from _job(_Generator(chance, rules, rulebook, last, tenant), str(number), start)


@dataclass(frozen=True, slots=True)
class _Generator:
    chance: random.Random
    rules: Mapping[str, Sequence[str]]
    rulebook: Rulebook
    last: float
    tenant: str


def _rules(rulebook: Rulebook) -> Mapping[str, Sequence[str]]:
    """Return a few rules for each fault."""
    found: dict[str, list[str]] = {}
    for rule in rulebook.rules:
        if rule.fault and not rule.fallback:
            found.setdefault(rule.fault, []).append(rule.id)
    return {fault: ids[:3] for fault, ids in found.items()}


def _job(play: _Generator, number: str, start: float) -> Iterator[SampleIncident]:
    """Generate a job with all its attempts."""
    chance = play.chance
    kind = chance.choices(JOB_KINDS, (2, 3, 2, 3, 4, 2))[0]
    cluster, nodes = _place(chance, kind)
    runs: tuple[Attempt, ...] = ()
    now = start
    for attempt in range(1, 9):
        ill = _pick_fault(chance, nodes, attempt)
        run, redone = _attempt(chance, kind, ill, (attempt, now), nodes)
        if run.stopped is None or run.stopped > play.last:
            return
        runs = (*runs, run)
        if ill is None:
            if chance.random() < 0.5:
                yield _finished(play, kind, (number, cluster), runs)
            return
        yield _failed(play, kind, (number, cluster), runs, (ill, redone))
        if chance.random() < 0.12:
            return  # no further attempts
        now = run.stopped + chance.uniform(20, 240)
        if ill.node and chance.random() < 0.75:
            nodes = _without_bad_node(chance, nodes)


def _place(chance: random.Random, kind: JobKind) -> tuple[str, tuple[str, ...]]:
    cluster, first, many = ("alpha", 1, 64) if chance.random() < 0.7 or kind.nodes > 16 else ("beta", 101, 24)
    nodes = chance.sample([f"gpu-{at:03}" for at in range(first, first + many)], kind.nodes)
    if cluster == "alpha" and chance.random() < 0.4 and LEMONS[0] not in nodes:
        nodes[0] = LEMONS[0]
    return cluster, tuple(nodes)


def _without_bad_node(chance: random.Random, nodes: tuple[str, ...]) -> tuple[str, ...]:
    spare = f"gpu-{chance.randint(1, 64):03}" if nodes[0] < "gpu-100" else f"gpu-{chance.randint(101, 124):03}"
    return nodes if spare in nodes else (spare, *nodes[1:])


def _pick_fault(chance: random.Random, nodes: Sequence[str], attempt: int) -> SampleFault | None:
    """Return the fault of an attempt; None if it completes. Jobs on a bad node fail more often."""
    if attempt > 1 and chance.random() < 0.55:
        return None
    bad = [fault for fault in FAULTS if fault.node]
    if any(lemon in nodes for lemon in LEMONS) and chance.random() < 0.6:
        return chance.choice(bad[:3])
    return chance.choices(FAULTS, [fault.weight for fault in FAULTS])[0]


def _attempt(
    chance: random.Random, kind: JobKind, ill: SampleFault | None, begun: tuple[int, float], nodes: tuple[str, ...]
) -> tuple[Attempt, float | None]:
    """Return one run with its times, and the seconds of lost steps. `begun`: its number and queue time."""
    attempt, now = begun
    scheduled = now + chance.expovariate(1 / 900) + 15 * kind.nodes * chance.random()
    first = scheduled + chance.uniform(90, 300) + 12 * kind.nodes * chance.random()
    ran = min(chance.expovariate(1 / (kind.to_failure * _HOUR)), 6 * _DAY) + 600
    last = first + ran
    stopped = last + (chance.uniform(*ill.detection) if ill else 30.0)
    run = Attempt(
        attempt,
        "FAILED" if ill else "COMPLETED",
        queued=float(round(now)),
        scheduled=float(round(scheduled)),
        initialised=float(round(scheduled + 0.4 * (first - scheduled))),
        first_iterated=float(round(first)),
        last_iterated=float(round(last)) if chance.random() < 0.95 else None,
        stopped=float(round(stopped)),
        nodes=nodes[:16],
    )
    return run, min(chance.uniform(0, 1800), ran) if ill and chance.random() < 0.9 else None


def _failed(
    play: _Generator,
    kind: JobKind,
    job: tuple[str, str],
    runs: tuple[Attempt, ...],
    end: tuple[SampleFault, float | None],
) -> SampleIncident:
    """Return the incident of a failed run. `job`: its number and cluster; `end`: the fault, and the seconds of lost steps."""
    (number, cluster), (ill, redone) = job, end
    chance, run = play.chance, runs[-1]
    silent = chance.random() < 0.13
    blamed = _pick_blamed_node(chance, run.nodes) if ill.node else None
    rule = chance.choice(play.rules.get(ill.fault) or (ill.fault.replace("_", "-"),))
    found = [] if silent else [_diagnosis(play, ill, rule, blamed, run)]
    gpus, lost = kind.nodes * 8, None if redone is None else int(redone / STEP)
    verdict: Verdict = "no_match" if silent else "fault"
    report = _report(
        kind,
        number,
        runs,
        verdict=verdict,
        phase="hung" if ill.fault == "collective_timeout" else "failed",
        words="No rule matched." if silent else found[0].summary,
        found=tuple(found),
        lost=lost,
        decision=Decision(
            "requeue_without" if blamed and not silent else "requeue",
            (Exclusion(blamed, "cluster", ill.line),) if blamed and not silent else (),
            from_checkpoint=SAVED_EVERY * len(runs),
            steps_lost=lost,
            gpu_hours_lost=None if redone is None else round(redone * gpus / 3600, 2),
            owner="hardware" if ill.node else "user",
        ),
    )
    ended = datetime.fromtimestamp(run.stopped or 0.0, UTC)
    at = ended + timedelta(seconds=chance.uniform(20, 300))
    origin = Origin(
        play.tenant,
        cluster,
        ended,
        partition=kind.partition,
        framework=kind.framework,
        image=kind.image,
        saving=round(chance.uniform(8, 25) * max(1.0, ((run.stopped or 0) - (run.first_iterated or 0)) / 1800), 1),
    )
    return SampleIncident(report, at, origin, tuple(_close_outs(play, at, ill, rule, blamed, silent=silent)))


def _finished(play: _Generator, kind: JobKind, job: tuple[str, str], runs: tuple[Attempt, ...]) -> SampleIncident:
    """Return the incident of a completed run that somebody asked about."""
    number, cluster = job
    report = _report(kind, number, runs, verdict="no_fault", phase="completed", words="The run completed.")
    ended = datetime.fromtimestamp(runs[-1].stopped or 0.0, UTC)
    origin = Origin(play.tenant, cluster, ended, partition=kind.partition, framework=kind.framework, image=kind.image)
    return SampleIncident(report, ended + timedelta(seconds=60), origin)


def _pick_blamed_node(chance: random.Random, nodes: Sequence[str]) -> str:
    lemons = [node for node in nodes if node in LEMONS]
    return lemons[0] if lemons and chance.random() < 0.85 else chance.choice(nodes)


def _diagnosis(play: _Generator, ill: SampleFault, rule: str, blamed: str | None, run: Attempt) -> Diagnosis:
    known = play.rulebook.faults.get(ill.fault)
    title = known.title if known is not None else ill.fault
    suspects = (Suspect("node", blamed, why="its kernel log names the device"),) if blamed else ()
    return Diagnosis(
        1,
        ill.fault,
        rule,
        play.rulebook.versions.get(rule, 1),
        title,
        f"{title}{f', on {blamed}' if blamed else ''}.",
        round(play.chance.uniform(0.55, 0.97), 2),
        "likely",
        "root_cause",
        reasons=("made up",),
        suspects=suspects,
        first_seen=run.last_iterated,
        evidence=(
            EvidenceItem("e1", "line", f"{MADE_UP}/rank-0.log", ill.line, 812, time=run.last_iterated, node=blamed),
        ),
        owner="hardware" if ill.node else "user",
    )


def _report(
    kind: JobKind,
    number: str,
    runs: tuple[Attempt, ...],
    *,
    verdict: Verdict,
    phase: Phase,
    words: str,
    found: tuple[Diagnosis, ...] = (),
    decision: Decision | None = None,
    lost: int | None = None,
) -> Report:
    last = runs[-1]
    saved = SAVED_EVERY * last.number
    fingerprint = hashlib.sha256(f"{found[0].rule if found else words}".encode()).hexdigest()[:16]
    return Report(
        hashlib.sha256(f"{MADE_UP} {number} {last.number} {last.stopped}".encode()).hexdigest()[:32],
        fingerprint,
        verdict,
        phase,
        f"(Made up) {words}",
        Versions(MADE_UP, MADE_UP, MADE_UP, MADE_UP),
        MADE_UP,
        (runs[0].queued, last.stopped),
        JobView(
            number,
            kind.name,
            last.number,
            last.state,
            kind.nodes,
            kind.nodes * 8,
            kind.owner,
            runs,
        ),
        decision or Decision(),
        Progress(saved + (17 if lost is None else lost), last.last_iterated, saved, "iterating", 100_000),
        found,
    )


def _replay(report: Report) -> bytes:
    lines = [item.text for diagnosis in report.diagnoses for item in diagnosis.evidence]
    return "".join(f"{line}\n" for line in ("(made up)", *lines)).encode()


def _close_outs(
    play: _Generator, at: datetime, ill: SampleFault, rule: str, blamed: str | None, *, silent: bool
) -> Iterator[tuple[datetime, Closing]]:
    """Return close-outs for two of three incidents."""
    chance = play.chance
    if chance.random() > 0.66:
        return
    who, action = chance.choice(("ada", "grace", "tim")), chance.choice(ACTIONS)
    when = at + timedelta(hours=chance.expovariate(1 / 14))
    if when.timestamp() > play.last:
        return
    nodes = (blamed,) if blamed else ()
    lost = round(chance.uniform(0.5, 4), 1) if chance.random() < 0.1 else None
    if silent:
        named = chance.random() < 0.5
        closing = Closing(
            who,
            "cli",
            "wrong" if named else "abstained_rightly",
            "fault" if named else "no_rule",
            ill.fault if named else None,
            action=action,
            lost_hours=lost,
        )
    else:
        good = 0.55 if ill.fault == "collective_timeout" else 0.86
        drawn = chance.random()
        if drawn < good:
            closing = Closing(who, "cli", "right", "shown", ill.fault, rule, nodes, action, lost)
        elif drawn < good + 0.06:
            closing = Closing(who, "cli", "right_not_first", "shown", "storage_io", None, (), action, lost)
        else:
            other = chance.choice([fault.fault for fault in FAULTS if fault.fault != ill.fault])
            closing = Closing(who, "cli", "wrong", "fault", other, None, (), action, lost)
    yield when, closing
