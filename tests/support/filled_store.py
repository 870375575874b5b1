"""Stores with some weeks of incidents for tests: made up, then spoilt by chance as real ones are."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlmodel import Session

from bot.demo.sample_incidents import incidents
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep, StepNotAllowed, step_within
from bot.incidents.resolution import Closing, annotate_within
from bot.render.report_json import dumps
from bot.store.database import Repository
from bot.store.packed_reports import Origin, file
from bot.store.report_writes import add_within
from bot.store.tables import IncidentRow
from kb.report import Report
from kb.rulebase.rule import FaultClass, Rulebook
from tests.support.between_workers import made_once

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
FAULTS = {
    name: FaultClass(name, domain, name.replace("_", " ").capitalize())
    for domain, names in {
        "hardware": ("nvlink_fault", "gpu_memory_ecc", "gpu_fell_off_bus", "host_hardware", "node_lost"),
        "network": ("rdma_link",),
        "platform": ("storage_io", "checkpoint_save"),
        "software": ("cuda_oom", "code_bug", "config_error", "dataloader_fault"),
    }.items()
    for name in names
}
BOOK = Rulebook(version="1", digest="made", rules=(), faults=FAULTS, actions={}, owners={})


def fill(
    store: Repository,
    seed: int,
    *,
    days: int = 75,
    pace: float = 1.0,
    until: datetime = NOW,
    tenant: str = "default",
) -> int:
    """Spoilt incidents of some days; how many reports."""
    chance, numbers = Random(seed), []
    with store.database.session(write=True) as session:
        for incident in incidents(BOOK, until, days=days, seed=seed, pace=pace, tenant=tenant):
            for report, at in _reports_of(chance, incident.report, incident.at):
                origin = _origin(chance, incident.origin, at)
                filed = file(dumps(report), report, b"x\n", None, at, origin=origin)
                number = add_within(session, filed)
                row = session.get_one(IncidentRow, number)
                if chance.random() < 0.8:
                    row.chain = f"{origin.cluster}/{report.job.name}/{report.job.id}"
                session.add(row)
                for place, (when, said) in enumerate(_closings(chance, incident.said, at)):
                    annotate_within(session, number, tenant, key=f"{report.id}:{place}", said=said, now=when)
                numbers.append((number, at))
    with store.database.session(write=True) as session:
        _lived(session, chance, numbers, tenant)
    return len(numbers)


def filled(factory: pytest.TempPathFactory, seed: int, *, pace: float) -> str:
    """Return the address of a new store with the incidents of `fill`, which are made once for all test processes."""

    def make(path: Path) -> None:
        with Ledger(f"sqlite:///{path}") as ledger:
            fill(ledger, seed, pace=pace)

    path = factory.mktemp("store") / "signalbox.db"
    shutil.copyfile(made_once(factory, f"filled-{seed}-{pace}.db", make), path)
    return f"sqlite:///{path}"


def _lived(session: Session, chance: Random, numbers: list[tuple[int, datetime]], tenant: str) -> None:
    """What people do with some of them besides: merge, put off, open again; and some were found in the past."""
    for place, (number, at) in enumerate(numbers):
        roll = chance.random()
        who: dict[str, Any] = {"who": "eve", "source": "cli"}
        other, _ = numbers[max(0, place - chance.randint(1, 12))]
        step = None
        if roll < 0.07:
            step = LifecycleStep("merge", other=other, **who)
        elif roll < 0.14:
            step = LifecycleStep("snooze", until=at + timedelta(days=chance.uniform(5, 80)), **who)
        elif roll < 0.2:
            step = LifecycleStep("reopen", **who)
        elif roll < 0.23:
            session.get_one(IncidentRow, number).backfilled = True
        if step is not None:
            with suppress(StepNotAllowed):
                step_within(session, number, tenant, key=f"life:{number}", step=step, now=at + timedelta(days=3))


def _reports_of(chance: Random, report: Report, at: datetime) -> list[tuple[Report, datetime]]:
    """The reports on one end of a job: with holes, of odd phases, at times two of them."""
    job = report.job
    runs = tuple(
        replace(run, **dict[str, Any]((name, None) for name in ("queued", "scheduled", "first_iterated", "last_iterated", "stopped")
                                      if chance.random() < 0.07))
        for run in job.attempts
    )  # fmt: skip
    if chance.random() < 0.1:
        runs = runs[-1:]
    if chance.random() < 0.05:
        runs = ()
    job = replace(
        job,
        attempts=runs,
        attempt=job.attempt if chance.random() < 0.9 else None,
        gpus=None if chance.random() < 0.05 else job.gpus,
        id=None if chance.random() < 0.04 else job.id,
        owner=None if chance.random() < 0.1 else job.owner,
    )
    phase = chance.choice(("stopped", "completed", "degraded")) if chance.random() < 0.08 else report.phase
    verdict = "insufficient_evidence" if report.verdict == "no_match" and chance.random() < 0.3 else report.verdict
    first = replace(report, job=job, phase=phase, verdict=verdict)
    if chance.random() < 0.85:
        return [(first, at)]
    second = replace(first, id=f"{report.id}-again", verdict=chance.choice((verdict, "no_match")))
    return [(first, at), (second, at + timedelta(hours=chance.uniform(0, 60)))]


def _origin(chance: Random, origin: Origin, at: datetime) -> Origin:
    ended = origin.ended_at
    if chance.random() < 0.1:
        ended = None
    elif chance.random() < 0.05:
        ended = at + timedelta(minutes=5)  # clocks disagree
    return replace(
        origin,
        ended_at=ended,
        image=None if chance.random() < 0.3 else origin.image,
        saving=None if chance.random() < 0.3 else origin.saving,
    )


def _closings(
    chance: Random, said: tuple[tuple[datetime, Closing], ...], at: datetime
) -> list[tuple[datetime, Closing]]:
    """What people say, at times again and otherwise, or that they do not know."""
    found = list(said)
    if found and chance.random() < 0.2:
        found.append(
            (
                found[-1][0] + timedelta(hours=1),
                Closing("max", "slack", "wrong", "fault", "storage_io", nodes=("gpu-009",)),
            )
        )
    if chance.random() < 0.05:
        found.append((at + timedelta(days=20), Closing("eve", "slack", "wrong")))
    if chance.random() < 0.05:
        found.append((at + timedelta(days=2), Closing("eve", "slack", "not_looked_at", "unknown")))
    return found
