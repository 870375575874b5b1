"""The main use case: evidence from a bundle or from paths, a report, its lines resolved. Same for shell and chat."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.diagnosis.evidence import from_bundle, from_paths
from bot.diagnosis.line_numbers import resolve
from bot.diagnosis.replay_text import replay_text
from bot.diagnosis.scan_pool import Tell
from bot.rulebase.loader import Knowledge
from bot.runtime.errors import NothingCollected
from connectors.base.bundle_layout import ATTEMPTS
from kb.anomalies.core.run import has_failed
from kb.diagnosis.engine import diagnose
from kb.errors import SignalboxError
from kb.facts.evidence import Evidence
from kb.facts.history import EarlierAttempt, History, PastIncident, history_digest
from kb.model import Gap
from kb.plugin import wanted
from kb.report import Report, Suspect

if TYPE_CHECKING:
    from bot.diagnosis.comparison import Find
    from bot.diagnosis.template_pool import Engine
    from kb.precedents.report_section import Precedents

_log = logging.getLogger(__name__)
FEW = 5  # reasons in a message
MOST_ATTEMPTS = 5
Recall = Callable[[Evidence], "Precedents"]  # asks for what is remembered of other runs


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """How to look at what no rule knows (bot.diagnosis.comparison). `always`: also where the rules have an answer.

    `baseline`: the logs of a good run; `find`: asks for the good run that is kept of a job's family. `engine`: where all lines are
    read for it; `tell` is given the bytes that were.
    """

    always: bool = False
    baseline: Path | None = None
    find: Find | None = None
    workers: int | None = None
    engine: Engine = "local"
    tell: Tell | None = None


@dataclass(frozen=True, slots=True)
class DiagnosisResult:
    """A report with how long it took, and the text kept for replay. `root`: the folder that sources are relative to."""

    report: Report
    timing: dict[str, float]
    replay: bytes
    evidence: Evidence = field(default_factory=Evidence)
    root: Path | None = None

    def timeline(self) -> bytes:
        """Ranks over time as JSON (bot.render.timeline), to be drawn with the logs or without; looks into them once more."""
        from bot.render.timeline import dumps, timeline_of  # noqa: PLC0415 - an answer must not wait for it

        return dumps(timeline_of(self.evidence, self.report, self.root))


def diagnose_bundle(
    knowledge: Knowledge,
    folder: Path,
    *,
    workers: int | None = None,
    tell: Tell | None = None,
    compare: ComparisonOptions | None = None,
    recall: Recall | None = None,
) -> DiagnosisResult:
    """Diagnose a bundle, a folder that holds the evidence of one job.

    `compare`: how to look at what no rule knows; `recall`: asks for what is remembered of other runs.
    """
    begun = time.perf_counter()
    evidence = from_bundle(knowledge, folder, workers=workers, tell=tell)
    attempts = _earlier(knowledge, folder, workers)
    return _answer(knowledge, evidence, folder, begun, attempts, compare=compare, recall=recall)


def _earlier(knowledge: Knowledge, folder: Path, workers: int | None) -> History:
    """What earlier attempts of a bundle's job failed of: its `attempts/<n>/`, each a bundle, the last few."""
    try:
        with os.scandir(folder / ATTEMPTS) as entries:
            names = sorted((entry.name for entry in entries if entry.name.isdigit() and entry.is_dir()), key=int)
    except OSError:
        return History()
    reports = []
    for name in names[-MOST_ATTEMPTS:]:
        with suppress(SignalboxError, OSError):
            reports.append(
                diagnose(from_bundle(knowledge, folder / ATTEMPTS / name, workers=workers), knowledge.rulebook)
            )
    return remember(reports)


def remember(reports: Sequence[Report]) -> History:
    """Reports of earlier runs as history: each fault with the places that were suspected of it."""
    past = {
        PastIncident(
            diagnosis.rule,
            diagnosis.fault,
            0.0,
            node=who.node,
            gpu=who.gpu.pci if who.gpu else None,
            job=report.job.name,
        )
        for report in reports
        for diagnosis in report.diagnoses
        if diagnosis.band != "weak"
        for who in (diagnosis.suspects or (Suspect("job"),))
    }
    told = tuple(sorted(past, key=repr))
    tries = tuple(_tried(item) for item in reports)
    return History(told, history_digest(told, tries), tries)


def _tried(report: Report) -> EarlierAttempt:
    """An attempt as an earlier try. What would have been advised was told to nobody, so it was not tried."""
    faults = dict.fromkeys(diagnosis.fault for diagnosis in report.diagnoses if diagnosis.band != "weak")
    return EarlierAttempt(tuple(faults), reached=report.progress.last_iteration)


def diagnose_paths(
    knowledge: Knowledge,
    paths: Sequence[Path],
    *,
    root: Path | None = None,
    workers: int | None = None,
    tell: Tell | None = None,
    compare: ComparisonOptions | None = None,
    recall: Recall | None = None,
) -> DiagnosisResult:
    """Diagnose log files and folders. `root`: a folder of ours that no source is named with; it stays until the answer is kept."""
    begun = time.perf_counter()
    evidence = from_paths(knowledge, paths, root=root, workers=workers, tell=tell)
    return _answer(knowledge, evidence, root, begun, compare=compare, recall=recall)


def _looked_deeper(report: Report, evidence: Evidence, root: Path | None, compare: ComparisonOptions | None) -> Report:
    """The report with what stands out by comparison, where the rules leave something to look for."""
    weak = bool(report.diagnoses) and all(diagnosis.band == "weak" for diagnosis in report.diagnoses)
    asked = compare is not None and (compare.always or compare.baseline is not None)
    unsaid = report.verdict == "no_fault" and has_failed(evidence.job)  # no rule saw why
    if report.verdict != "no_match" and not weak and not asked and not unsaid:
        return report
    from bot.diagnosis.comparison import compared  # noqa: PLC0415 - an ordinary diagnosis must not wait for it

    how = compare or ComparisonOptions()
    try:
        return compared(
            report,
            evidence,
            root,
            baseline=how.baseline,
            find=how.find,
            workers=how.workers,
            engine=how.engine,
            tell=how.tell,
        )
    except SignalboxError:
        raise
    except Exception as error:  # what the rules found must not be lost to it
        if asked:
            raise
        _log.exception("the comparison of runs, nodes and steps ended in an error of Signalbox itself")
        reason = f"an error of Signalbox itself ({type(error).__name__}); with --deep it shows itself"
        return replace(report, gaps=(*report.gaps, Gap("not_compared", "logs", reason, rules_out="what stands out")))


def _recalled(evidence: Evidence, recall: Recall | None) -> tuple[Precedents | None, Evidence]:
    """What is remembered; a gap more where that cannot be told, for the answer does not need it."""
    if recall is None:
        return None, evidence
    try:
        return recall(evidence), evidence
    except SignalboxError as error:
        gap = Gap("not_recalled", "store", str(error), rules_out="what earlier incidents teach of this one")
        return None, replace(evidence, gaps=(*evidence.gaps, gap))


def _joined(attempts: History | None, past: Precedents | None) -> History:
    """The history of both: of the bundle's attempts and of what is remembered."""
    if past is None:
        return attempts or History()
    from kb.precedents.history import with_attempts  # noqa: PLC0415 - only where there is a store

    return with_attempts(past.history, attempts or History())


def nothing_read(knowledge: Knowledge, folder: Path, reason: str) -> DiagnosisResult:
    """The report on a bundle of which nothing could be read, as one among many."""
    evidence = Evidence(gaps=(Gap("unreadable", str(folder), reason),), bundle=folder.name)
    return DiagnosisResult(diagnose(evidence, knowledge.rulebook), {}, b"")


def _answer(
    knowledge: Knowledge,
    evidence: Evidence,
    root: Path | None,
    begun: float,
    history: History | None = None,
    *,
    compare: ComparisonOptions | None = None,
    recall: Recall | None = None,
) -> DiagnosisResult:
    if not evidence.streams and evidence.bundle is None:
        told = [f"{gap.source}: {gap.reason}" for gap in evidence.gaps[:FEW]]
        more = [f"{len(evidence.gaps) - FEW} more"] if len(evidence.gaps) > FEW else []
        raise NothingCollected("; ".join((*told, *more)) or "there is no file in what was named")
    if wanted(knowledge.rulebook.rules):
        from bot.diagnosis.plugins import with_plugins  # noqa: PLC0415 - few sites have any; a start must not wait for it

        evidence = with_plugins(evidence, knowledge.rulebook)
    scanned = time.perf_counter()
    past, evidence = _recalled(evidence, recall)
    history = _joined(history, past)
    report = _looked_deeper(diagnose(evidence, knowledge.rulebook, history), evidence, root, compare)
    judged = time.perf_counter()
    report = resolve(report, root)
    if past is not None:
        from kb.precedents.report_section import remembered  # noqa: PLC0415 - only where there is a store

        report = remembered(report, evidence, replace(past, history=history))
    done = time.perf_counter()
    timing = {
        "scan_s": scanned - begun,
        "diagnose_s": judged - scanned,
        "resolve_s": done - judged,
        "total_s": done - begun,
    }
    taken = {name: round(value, 4) for name, value in timing.items()}
    return DiagnosisResult(report, taken, replay_text(evidence), evidence, root)
