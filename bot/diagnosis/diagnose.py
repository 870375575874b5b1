"""The main use case, shared by shell and Slack: from a bundle or paths to a report with line numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.diagnosis.evidence import from_bundle, from_paths
from bot.diagnosis.line_numbers import resolve
from bot.diagnosis.replay_text import replay_text
from bot.diagnosis.scan_pool import Tell, scan_all
from bot.rulebase.loader import Knowledge
from bot.runtime.errors import NothingCollected
from bot.runtime.redaction.structure import redacted
from connectors.base.bundle_layout import ATTEMPTS
from connectors.base.untrusted import is_within
from kb.diagnosis.engine import diagnose
from kb.errors import SignalboxError
from kb.facts.evidence import Evidence
from kb.facts.given_job import GivenJob
from kb.facts.history import EarlierAttempt, History, PastIncident, history_digest
from kb.model import Gap, ProgressPoint
from kb.plugin import wanted
from kb.report import Report, Suspect, leaves_open
from kb.values import dataclass

if TYPE_CHECKING:
    from bot.diagnosis.comparison import Find
    from bot.diagnosis.one_pass import OnePass
    from bot.diagnosis.template_pool import Engine
    from kb.precedents.report_section import Precedents
    from kb.timeline.heat import HeatMap

FEW = 5  # reasons shown in a message
MOST_ATTEMPTS = 5
Recall = Callable[[Evidence], "Precedents"]  # looks up the history of other runs


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """How to analyse failures that no rule covers (bot.diagnosis.comparison). `always`: also if the rules have an answer.

    `baseline`: the logs of a successful run; `find`: looks up the stored baseline of the job's family. `engine`: where all lines are read;
    `tell` receives the number of bytes read.
    """

    always: bool = False
    baseline: Path | None = None
    find: Find | None = None
    workers: int | None = None
    engine: Engine = "local"
    tell: Tell | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether to compare whatever the rules find."""
        return self.always or self.baseline is not None

    def one_pass(self) -> OnePass | None:
        """Return what scans logs and mines their templates in one pass, if it is already known that both are needed."""
        if not self.is_asked_for or self.engine != "local":
            return None
        from bot.diagnosis.one_pass import OnePass  # noqa: PLC0415 - numpy

        return OnePass()


@dataclass(frozen=True, slots=True)
class DiagnosisResult:
    """A report, its duration, and the evidence it is based on. `root`: the folder that sources are relative to."""

    report: Report
    timing: dict[str, float]
    evidence: Evidence = field(default_factory=Evidence)
    root: Path | None = None

    @property
    def replay(self) -> bytes:
        """The text kept for replay, generated on each access, because only stored reports need it."""
        return replay_text(self.evidence)

    def timeline(self) -> bytes:
        """Return the rank timeline as JSON (bot.render.pictures.timeline), which can be drawn without the logs. Reads the logs again."""
        from bot.render.pictures.timeline import dumps, timeline_of  # noqa: PLC0415 - an answer must not wait for it

        return dumps(redacted(timeline_of(self.evidence, self.report, self.root)))

    def heat(self) -> HeatMap | None:
        """Return which rank was slow in which steps; None where ranks log no times of their own, or none was slow."""
        if not _is_timed_by_rank(self.evidence):
            return None
        from kb.timeline.heat import heat_map  # noqa: PLC0415 - numpy

        return heat_map(self.with_onsets().evidence, self.report)

    def with_onsets(self) -> DiagnosisResult:
        """Return the answer with the lines at which ranks became slow in its evidence, for pictures. Reads them from the logs."""
        from bot.diagnosis.onset_lines import with_onsets  # noqa: PLC0415 - numpy

        return replace(self, evidence=with_onsets(self.evidence, self.report, self.root))


def _is_timed_by_rank(evidence: Evidence) -> bool:
    """Whether the logs of more than two streams or ranks may give times of steps, which is all that costs no numpy to tell."""
    series = [stream.series.points for stream in evidence.streams if stream.series.points]
    ranks = {(at, point.rank) for at, points in enumerate(series) for point in points if _has_time(point)}
    return len(ranks) > 2


def _has_time(point: ProgressPoint) -> bool:
    return point.compute is not None or point.seconds is not None


def diagnose_bundle(
    knowledge: Knowledge,
    folder: Path,
    *,
    workers: int | None = None,
    tell: Tell | None = None,
    compare: ComparisonOptions | None = None,
    recall: Recall | None = None,
    given: GivenJob | None = None,
) -> DiagnosisResult:
    """Diagnose a bundle, a folder that holds the evidence of one job.

    `compare`: how to analyse failures that no rule covers; `recall`: looks up the history of other runs; `given`: the job's
    state, which counts more than that of its description.
    """
    begun = time.perf_counter()
    both = compare.one_pass() if compare else None
    scan = both.scan_all if both else scan_all
    evidence = from_bundle(knowledge, folder, workers=workers, tell=tell, scan=scan, given=given)
    attempts = _earlier(knowledge, folder, workers)
    return _answer(knowledge, evidence, folder, begun, attempts, compare=compare, both=both, recall=recall)


def _earlier(knowledge: Knowledge, folder: Path, workers: int | None) -> History:
    """Return why earlier attempts of the bundle's job failed: the last few of `attempts/<n>/`, each a bundle."""
    try:
        with os.scandir(folder / ATTEMPTS) as entries:
            names = sorted(
                (entry.name for entry in entries if entry.name.isdigit() and entry.is_dir() and _inside(entry, folder)),
                key=int,
            )
    except OSError:
        return History()
    reports = []
    for name in names[-MOST_ATTEMPTS:]:
        with suppress(SignalboxError, OSError):
            reports.append(
                diagnose(from_bundle(knowledge, folder / ATTEMPTS / name, workers=workers), knowledge.rulebook)
            )
    return remember(reports)


def _inside(entry: os.DirEntry[str], folder: Path) -> bool:
    return not entry.is_symlink() or is_within(os.path.realpath(entry.path), folder)


def remember(reports: Sequence[Report]) -> History:
    """Return reports of earlier runs as history: each fault with its suspects."""
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
    """Return an attempt as an earlier run. The attempt's advice was never shown, so it counts as not tried."""
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
    given: GivenJob | None = None,
) -> DiagnosisResult:
    """Diagnose log files and folders.

    `root`: a temporary folder that source names omit; it exists until the answer is stored. `given`: what whoever asks knows of the job.
    """
    begun = time.perf_counter()
    both = compare.one_pass() if compare else None
    scan = both.scan_all if both else scan_all
    evidence = from_paths(knowledge, paths, root=root, workers=workers, tell=tell, scan=scan, given=given)
    return _answer(knowledge, evidence, root, begun, compare=compare, both=both, recall=recall)


def _looked_deeper(
    report: Report, evidence: Evidence, root: Path | None, compare: ComparisonOptions | None, both: OnePass | None
) -> Report:
    """Return the report, with the result of the comparison if the rules leave something unexplained."""
    asked = compare is not None and compare.is_asked_for
    if report.verdict != "no_match" and not leaves_open(report) and not asked:
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
            mined=both.tables if both else None,
        )
    except SignalboxError:
        raise
    except Exception as error:  # a failed comparison must not discard what the rules found
        if asked:
            raise
        import logging  # noqa: PLC0415 - an ordinary answer does without

        logging.getLogger(__name__).exception("internal error in the comparison of runs, nodes and steps")
        reason = f"internal error in Signalbox ({type(error).__name__}); --deep shows it"
        return replace(
            report, gaps=(*report.gaps, Gap("not_compared", "logs", reason, rules_out="what differs from other runs"))
        )


def _recalled(evidence: Evidence, recall: Recall | None) -> tuple[Precedents | None, Evidence]:
    """Return the history. If it cannot be read, add a gap instead of failing, because the answer does not depend on it."""
    if recall is None:
        return None, evidence
    try:
        return recall(evidence), evidence
    except SignalboxError as error:
        gap = Gap("not_recalled", "store", str(error), rules_out="precedents among earlier incidents")
        return None, replace(evidence, gaps=(*evidence.gaps, gap))


def _joined(attempts: History | None, past: Precedents | None) -> History:
    """Merge the history of the bundle's attempts with that of the store."""
    if past is None:
        return attempts or History()
    from kb.precedents.history import with_attempts  # noqa: PLC0415 - only where there is a store

    return with_attempts(past.history, attempts or History())


def nothing_read(knowledge: Knowledge, folder: Path, reason: str) -> DiagnosisResult:
    """Return the report on an unreadable bundle in a batch."""
    evidence = Evidence(gaps=(Gap("unreadable", str(folder), reason),), bundle=folder.name)
    return DiagnosisResult(resolve(diagnose(evidence, knowledge.rulebook), None), {})


def _answer(
    knowledge: Knowledge,
    evidence: Evidence,
    root: Path | None,
    begun: float,
    history: History | None = None,
    *,
    compare: ComparisonOptions | None = None,
    both: OnePass | None = None,
    recall: Recall | None = None,
) -> DiagnosisResult:
    if not evidence.streams and evidence.bundle is None:
        told = [f"{gap.source}: {gap.reason}" for gap in evidence.gaps[:FEW]]
        more = [f"{len(evidence.gaps) - FEW} more"] if len(evidence.gaps) > FEW else []
        raise NothingCollected("; ".join((*told, *more)) or "no file in the given paths")
    if wanted(knowledge.rulebook.rules):
        from bot.diagnosis.plugins import with_plugins  # noqa: PLC0415 - few sites have any; a start must not wait for it

        evidence = with_plugins(evidence, knowledge.rulebook)
    scanned = time.perf_counter()
    past, evidence = _recalled(evidence, recall)
    history = _joined(history, past)
    report = _looked_deeper(diagnose(evidence, knowledge.rulebook, history), evidence, root, compare, both)
    judged = time.perf_counter()
    report = resolve(report, root)
    if past is not None:
        from kb.precedents.report_section import remembered  # noqa: PLC0415 - only where there is a store

        report = remembered(report, evidence, replace(past, history=history))
        report = replace(report, memory=redacted(report.memory))  # also secrets in an old store
    done = time.perf_counter()
    timing = {
        "scan_s": scanned - begun,
        "diagnose_s": judged - scanned,
        "resolve_s": done - judged,
        "total_s": done - begun,
    }
    taken = {name: round(value, 4) for name, value in timing.items()}
    return DiagnosisResult(report, taken, evidence, root)
