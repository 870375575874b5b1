"""Measures the digest over 100,000 incidents: seconds and memory from the store to the figures, the message, the page.

    .venv/bin/python bench/digest.py [--incidents 100000] [--weeks 52]

The incidents are made up (bot.demo.sample_incidents) and the same each time. With `--weeks 8` all of them lie in the
weeks that the digest reads. The store is made once in bench/data/ and kept; the figures are measured in separate
processes, whose memory is only theirs: first with no past day packed (bot.store.digest_days), then as they left them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlalchemy import delete, insert, text

from bot.demo.sample_incidents import MADE, incidents
from bot.digest.codec import dumps
from bot.digest.html import page
from bot.incidents.ledger import Ledger
from bot.rulebase.loader import knowledge
from bot.slack.messages.digest import message_of
from bot.store.digest_rows import compute
from bot.store.packed_reports import file
from bot.store.tables import AnnotationRow, DigestDayRow, IncidentRow
from kb.digest.weeks import week_named

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
DATA = Path(__file__).parent / "data"


def make(path: Path, count: int, weeks: int) -> None:
    """Fill a store, many rows at once."""
    book, days = knowledge().rulebook, weeks * 7
    pace = count / (4.5 * days)  # about 4.5 incidents a day at pace 1
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, said, number = [], [], 0
    with Ledger(f"sqlite:///{path}") as ledger:

        def flush() -> None:
            with ledger.database.session(write=True) as session:
                session.execute(insert(IncidentRow), rows)
                if said:
                    session.execute(insert(AnnotationRow), said)
            rows.clear()
            said.clear()

        for incident in incidents(book, NOW, days=days, seed=1, pace=pace):
            number += 1
            values = dict(file(b"{}", incident.report, b"", MADE, incident.at, origin=incident.origin).row)
            rows.append({**values, "id": number, "chain": f"{incident.origin.cluster}/{incident.report.job.id}"})
            for version, (at, word) in enumerate(incident.said, 1):
                rows[-1]["closed_at"] = at
                said.append({
                    "incident_id": number, "version": version, "key": f"{number}:{version}", "at": at, "who": word.who,
                    "source": word.source, "verdict": word.verdict, "cause": word.cause, "fault": word.fault, "rule": word.rule,
                    "nodes": json.dumps(word.nodes), "lost_hours": word.lost_hours, "action": "", "note": "", "propose_rule": False,
                })  # fmt: skip
            if len(rows) == 5000:
                flush()
            if number == count:
                break
        if rows:
            flush()


def measure(path: Path, week: str) -> None:
    """The figures of a week, timed; one line of JSON."""
    faults = knowledge().rulebook.faults
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with Ledger(f"sqlite:///{path}") as ledger:
        with ledger.database.session() as session:
            incidents = session.execute(text("SELECT count(*) FROM incident")).scalar_one()
            packed = session.execute(text("SELECT count(*) FROM digest_day")).scalar_one()
        start, cpu = time.perf_counter(), time.process_time()
        digest = compute(
            ledger.database, "default", week_named(week), ZoneInfo("Europe/Berlin"), until=NOW, faults=faults
        )
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    message_of(dumps(digest))
    message = time.perf_counter() - start
    start = time.perf_counter()
    size = len(page(digest))
    print(json.dumps({
        "incidents": incidents, "packed_days": packed, "week": week, "failures": digest.failures, "of_eight_weeks": sum(trend_point.failures for trend_point in digest.trend),
        "seconds": round(took, 2), "cpu_seconds": round(cpu, 2), "peak_mb": round(peak), "before_mb": round(before), "message_s": round(message, 3),
        "page_s": round(time.perf_counter() - start, 2), "page_kb": size // 1024,
    }))  # fmt: skip


def main() -> None:
    """Create the store if missing, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--week", default="2026-W47")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.week)
        return
    path = DATA / f"digest-{given.incidents}-{given.weeks}.db"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        make(unfinished, given.incidents, given.weeks)
        unfinished.rename(path)
    with Ledger(f"sqlite:///{path}") as ledger, ledger.database.session(write=True) as session:
        session.execute(delete(DigestDayRow))
    for _ in range(2):
        subprocess.run([sys.executable, __file__, "--measure", str(path), "--week", given.week], check=True)


if __name__ == "__main__":
    main()
