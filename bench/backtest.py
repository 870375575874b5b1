"""Measures the backtest of one candidate on 10,000 stored incidents: seconds, and whether its results are correct.

    .venv/bin/python bench/backtest.py [--incidents 10000] [--workers N] [--clean DIR ...]

The incidents are synthetic (bench/incidents.py): every kind in several variants, each text with its own names and
numbers, one in twenty padded to the stored maximum of 256 KB; two of three are closed with their true fault. The store
is created once in bench/data/ and kept. Candidates: rules of the base turned into drafts and re-added, rare and
frequent, on lines and on exceptions; and two that must be rejected as harmful. The budget is 30 s.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python bench/backtest.py`, from anywhere

from sqlalchemy import insert

from bench.incidents import make, plan
from bot.diagnosis.diagnose import diagnose_bundle
from bot.incidents.ledger import Ledger
from bot.learning.replay.backtest import Backtest, backtest
from bot.learning.replay.clean_corpus import clean_logs
from bot.learning.replay.trial import RuleFiles, Trial, base_of, trial
from bot.rulebase.loader import Knowledge, default_folder, engine, knowledge
from bot.store.packed_reports import file
from bot.store.tables import AnnotationRow, IncidentRow, ReplayRow
from kb.learning.yaml_edits import with_value
from kb.report import Report
from kb.scanning.plan_builder import plan as scan_plan

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
DATA = Path(__file__).parent / "data"
SHAPES = 3  # seeds of each kind
LARGE = 20  # one in so many is padded
MOST = 256 * 1024
BUDGET = 30.0
_NUMBER = re.compile(rb"(?<=[ =])\d{5,9}(?=[ ,)\n])")

RULE = """format: 1
id: {id}
title: A candidate of the benchmark
fault: {fault}
role: root_cause
status: draft
severity: high
summary: A candidate of the benchmark.
cause: Made up.
impact: Made up.
match:
  line:
    regex: '{regex}'
remediation:
  - action: look_at_logs
    text: Look at the lines quoted.
"""


_GONE = "deprecated:\n  date: '2026-11-23'\n  reason: for the benchmark\n"


def texts(shapes: int) -> Iterator[tuple[Report, bytes, str]]:
    """Yield synthetic incidents: the report, the stored text, the fault."""
    known = knowledge()
    for seed in range(shapes):
        for number, name in enumerate(plan()):
            with tempfile.TemporaryDirectory() as folder:
                bundle = Path(folder) / "bundle"
                bundle.mkdir()
                truth = make(name, number, 100 + seed, bundle)
                answer = diagnose_bundle(known, bundle, workers=1)
            yield answer.report, answer.replay, truth.fault


def fill(path: Path, count: int) -> None:
    """Create the store."""
    chance = random.Random(5)
    made = list(texts(SHAPES))
    incidents: list[dict[str, object]] = []
    replays: list[dict[str, object]] = []
    said: list[Mapping[str, object]] = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(f"sqlite:///{path}") as ledger:

        def flush() -> None:
            with ledger.database.session(write=True) as session:
                session.execute(insert(IncidentRow), incidents)
                session.execute(insert(ReplayRow), replays)
                if said:
                    session.execute(insert(AnnotationRow), said)
            for incident in (incidents, replays, said):
                incident.clear()

        for number in range(1, count + 1):
            report, text, fault = made[number % len(made)]
            at = NOW - timedelta(minutes=40 * (count - number))
            own = replace(report, id=f"{number:016x}")
            filed = file(b"{}", own, _another(text, number, chance), f"made-{number}", at)
            incidents.append({**filed.row, "id": number})
            replays.append({"incident_id": number, "text_zstd": filed.text_zstd, "size": filed.size, "cut": filed.cut})
            if chance.random() < 0.66:
                incidents[-1]["closed_at"] = at
                said.append(_said(number, at, report, fault))
            else:
                incidents[-1]["closed_at"] = None
            if len(incidents) == 500:
                flush()
        if incidents:
            flush()


def _another(text: bytes, number: int, chance: random.Random) -> bytes:
    """Return a copy of the incident with its own numbers; one in twenty is padded with its own lines."""
    text = _NUMBER.sub(lambda item: str(chance.randrange(10 ** (len(item[0]) - 1), 10 ** len(item[0]))).encode(), text)
    if number % LARGE == 0:
        lines = [b"worker %s: shard %x of %x read, cache %x" % (bytes([97 + n % 26]) * (n % 40), n, n * 7, n * number)
                 for n in range(6000)]  # fmt: skip
        text += b"#! source: logs/loader.log\n" + b"\n".join(lines)
    return text[:MOST]


def _said(number: int, at: datetime, report: Report, fault: str) -> Mapping[str, object]:
    right = bool(report.diagnoses) and report.diagnoses[0].fault == fault
    return {
        "incident_id": number, "version": 1, "key": f"made:{number}", "at": at, "who": "ada", "source": "cli",
        "verdict": "right" if right else "wrong", "cause": "shown" if right else "fault", "fault": fault, "rule": None,
        "nodes": "[]", "action": "", "lost_hours": None, "note": "", "propose_rule": False,
    }  # fmt: skip


def drafted(base: RuleFiles, path: str) -> RuleFiles:
    """Return the base with one rule turned into a draft, which never fires."""
    changed = trial(base, {path: with_value(base.files[path], "status", "deprecated") + _GONE})
    scanned = scan_plan(changed.new)
    known = Knowledge(changed.new, scanned, engine()(scanned.patterns).dump())
    return replace(base, known=known, files={**base.files, path: ""})


def _cpu() -> float:
    """Return the CPU seconds of this process and its finished children."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def tell(name: str, result: Backtest, spent: float) -> bool:
    """Print one candidate, and return whether it met the budget."""
    kinds = Counter(change.kind for change in result.changes)
    print(
        f"\n{name}: {result.seconds:.1f} s ({spent:.1f} s of processors); {result.incidents} texts, {result.cost.size / 1e6:.0f} MB; judged {result.judged}, "
        f"left out {result.unjudged}; hits {len(result.hits)}; {dict(kinds)}; better {sum(c.better for c in result.changes)}, "
        f"worse {sum(c.worse for c in result.changes)}"
    )
    print(f"  precision {result.precision.words}; recall {result.recall.words}; {result.cost.words}")
    print(
        f"  shadows {dict(list(result.shadowed.items())[:3])}; clean {len(result.clean_hits)} of {result.clean}; hurts: {list(result.hurts)}"
    )
    return result.seconds <= BUDGET


def main() -> int:
    """Create the store if missing, and test the candidates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--clean", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    path = DATA / f"backtest-{given.incidents}.db"
    if not path.exists():
        begun = time.perf_counter()
        unfinished = path.with_suffix(f".{os.getpid()}")
        fill(unfinished, given.incidents)
        unfinished.rename(path)
        print(f"made {given.incidents} incidents in {time.perf_counter() - begun:.0f} s")
    folder = default_folder()
    whole, known = base_of(folder), knowledge(folder)
    begun = time.perf_counter()
    clean = clean_logs(known, folder, given.clean)
    print(f"{len(clean)} clean logs in {time.perf_counter() - begun:.1f} s")
    kept = []

    def run(name: str, tried: Trial) -> bool:
        before = _cpu()
        result = backtest(tried, f"sqlite:///{path}", clean, workers=given.workers)
        return tell(name, result, _cpu() - before)

    for rule in ("shared-memory-exhausted", "cuda-out-of-memory", "rdma-completion-error", "classified-error"):
        found = next((item for item in known.rulebook.rules if item.id == rule), None)
        if found is None:
            continue
        text = whole.files[found.file]
        tried = trial(drafted(whole, found.file), {found.file: text})
        kept.append(run(f"{rule} ({found.fault})", tried))
    for name, fault, regex in (
        ("greedy-traceback", "data_error", "Traceback .most recent call last"),
        ("greedy-step", "straggler", "elapsed time per iteration"),
    ):
        tried = trial(whole, {f"python/{name}/rule.yaml": RULE.format(id=name, fault=fault, regex=regex)})
        kept.append(run(f"{name} ({fault})", tried))
    print(f"\nwithin {BUDGET:.0f} s: {sum(kept)} of {len(kept)}")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
