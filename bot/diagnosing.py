"""The main use case: evidence from a bundle or from paths, a report, its lines resolved. Same for shell and chat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.collect import from_bundle, from_paths
from bot.errors import NothingCollected
from bot.replay import replay_text
from bot.resolve import resolve
from bot.rulefiles import Knowledge
from bot.scanning import Tell
from kb.engine import diagnose
from kb.evidence import Evidence
from kb.model import Gap
from kb.report import Report

FEW = 5  # reasons in a message


@dataclass(frozen=True, slots=True)
class Answer:
    """A report with how long it took, and the text kept for replay."""

    report: Report
    timing: dict[str, float]
    replay: bytes


def diagnose_bundle(
    knowledge: Knowledge, folder: Path, *, workers: int | None = None, tell: Tell | None = None
) -> Answer:
    """Diagnose a bundle, a folder that holds the evidence of one job."""
    begun = time.perf_counter()
    evidence = from_bundle(knowledge, folder, workers=workers, tell=tell)
    return _answer(knowledge, evidence, folder, begun)


def diagnose_paths(
    knowledge: Knowledge, paths: Sequence[Path], *, workers: int | None = None, tell: Tell | None = None
) -> Answer:
    """Diagnose log files and folders."""
    begun = time.perf_counter()
    evidence = from_paths(knowledge, paths, workers=workers, tell=tell)
    return _answer(knowledge, evidence, None, begun)


def nothing_read(knowledge: Knowledge, folder: Path, reason: str) -> Answer:
    """The report on a bundle of which nothing could be read, as one among many."""
    evidence = Evidence(gaps=(Gap("unreadable", str(folder), reason),), bundle=folder.name)
    return Answer(diagnose(evidence, knowledge.rulebook), {}, b"")


def _answer(knowledge: Knowledge, evidence: Evidence, root: Path | None, begun: float) -> Answer:
    if not evidence.streams and root is None:
        told = [f"{gap.source}: {gap.reason}" for gap in evidence.gaps[:FEW]]
        more = [f"{len(evidence.gaps) - FEW} more"] if len(evidence.gaps) > FEW else []
        raise NothingCollected("; ".join((*told, *more)) or "there is no file in what was named")
    scanned = time.perf_counter()
    report = diagnose(evidence, knowledge.rulebook)
    judged = time.perf_counter()
    report = resolve(report, root)
    done = time.perf_counter()
    timing = {
        "scan_s": scanned - begun,
        "diagnose_s": judged - scanned,
        "resolve_s": done - judged,
        "total_s": done - begun,
    }
    return Answer(report, {name: round(value, 4) for name, value in timing.items()}, replay_text(evidence))
