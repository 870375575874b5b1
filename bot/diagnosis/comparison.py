"""Analyses failures that no rule covers: mines templates from a job's logs and compares runs, nodes and steps (kb.anomalies).

It is slow because it reads all lines, again unless it was asked for before the scan (bot.diagnosis.one_pass). It therefore runs only if
the rules have little to say, or on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from bot.diagnosis.event_model import event_model
from bot.diagnosis.rank_forms import found_streams
from bot.diagnosis.reread import bytes_of
from bot.diagnosis.scan_pool import Tell
from bot.diagnosis.template_pool import Engine, MinedTables, tables
from bot.store.healthy_baseline import healthy
from connectors.base.bundle_layout import BASELINE
from kb.anomalies.analyse import RunFindings, find_anomalies
from kb.anomalies.build_run import build_run
from kb.anomalies.core.run import RunProfile, has_failed
from kb.anomalies.indicators import shown
from kb.anomalies.runs.baseline_diff import Baseline, baseline_of
from kb.anomalies.time.failed_step import as_logged
from kb.anomalies.time.stage import INTERLUDES
from kb.diagnosis.endings import LAST_LINES
from kb.diagnosis.engine import identified
from kb.diagnosis.quotes import SHOWN_LINES
from kb.diagnosis.telling_lines import MANY, form_of
from kb.errors import SignalboxError
from kb.facts.evidence import Evidence
from kb.model import Gap, Job, StreamRef
from kb.report import Indicator, Indicators, Report

WORTH: Mapping[str, float] = {
    "likely": 0.3,
    "possible": 0.2,
    "weak": 0.05,
}  # weight of a line that a rule calls a root cause
FEWEST = 20  # minimum lines of a baseline; fewer do not count as a run


Find = Callable[[Job], Baseline | None]


class Mined(Protocol):
    """Tables that are known already."""

    def __call__(self, refs: Sequence[StreamRef], *, year: int | None) -> MinedTables | None:
        """Return the tables of streams; None if they are not known."""
        ...


def compared(
    report: Report,
    evidence: Evidence,
    root: Path | None,
    *,
    baseline: Path | None = None,
    find: Find | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    tell: Tell | None = None,
    mined: Mined | None = None,
) -> Report:
    """Return the report with the anomalies as indicators, or with a gap if they cannot be computed.

    `baseline`: the logs of a successful run; `find` looks up a stored one. For `workers`, `engine` and `tell`, see
    bot.diagnosis.template_pool. `mined`: returns the tables of streams if they are known already.
    """
    mine = partial(tables, workers=workers, engine=engine, tell=tell)
    run, unmined = _run(report, evidence, root, mine, mined)
    good, gaps = _good(root, evidence.job, baseline, find, mine)
    known = {
        (item.source, item.offset): WORTH[diagnosis.band]
        for diagnosis in report.diagnoses
        if diagnosis.role == "root_cause"
        for item in diagnosis.evidence
        if item.offset is not None
    }
    found = find_anomalies(
        run,
        good,
        model=event_model(),
        known=known,
        topology=evidence.job.topology,
        pool=None if good else healthy(),
        read=partial(bytes_of, root),
    )
    more = shown(found if good is not None else without_bare(found, report))
    own = report.indicators
    more = own if not more.events and not more.nodes else with_lines_of(more, report, filtered=good is not None)
    more = without_estimates(more, report)
    if baseline is not None and found.new:
        more = with_new_lines(more, found)
    unread = tuple(gap for gap in report.gaps if gap.source != BASELINE or good is None)
    told = tuple(Gap("not_compared", "logs", entry) for entry in found.said)
    return identified(replace(report, indicators=more, gaps=(*unread, *unmined, *gaps, *told)))


def _run(
    report: Report, evidence: Evidence, root: Path | None, mine: Callable[..., MinedTables], mined: Mined | None
) -> tuple[RunProfile, tuple[Gap, ...]]:
    """Return the run as the comparisons see it, and what could not be mined. The tables, one per rank, are not kept."""
    streams = [stream.ref for stream in evidence.streams if stream.ref.group == "logs"]
    files, year = [_found(ref, root) for ref in streams], _year(evidence)
    read = (mined(files, year=year) if mined else None) or mine(files, year=year)
    ours = [replace(table, ref=ref) for table, ref in zip(read.tables, streams, strict=True)]
    state = (evidence.job.state or "FAILED") if report.verdict in ("no_match", "fault") else evidence.job.state
    state = _state(state, report, evidence.job)
    run = build_run(ours, evidence.streams, evidence.job, state=state, uncompared=read.uncompared)
    return run, read.gaps


def without_bare(found: RunFindings, report: Report) -> RunFindings:
    """Return what stands out without a good run, without lines for which nothing but their words speaks beside a cause.

    Where ranks can be compared, a line that tells has more for it: who printed it, how often, or when.
    """
    lead = report.diagnoses[0] if report.diagnoses else None
    if found.peers < MANY or lead is None or not lead.evidence or lead.role == "symptom":
        return found
    return replace(found, events=tuple(event for event in found.events if event.why))


def with_lines_of(more: Indicators, report: Report, *, filtered: bool) -> Indicators:
    """Return indicators with the lines of an unknown failure that the report shows, as many as are left of the five.

    None if a good run filtered the lines (`filtered`) and left some: what else reports trouble is then usual.
    """
    if report.verdict == "no_fault" or (filtered and any(item.evidence for item in more.events)):
        return more
    quoted = report.diagnoses[0].evidence if report.diagnoses else ()
    shown = [*quoted, *(item.evidence for item in more.events if item.evidence is not None)]
    places = {(item.source, item.offset) for item in shown}
    forms = {form_of(line) for item in shown for line in item.text.split("\n")}
    left = [
        item
        for item in report.indicators.events
        if item.evidence is not None
        and (item.evidence.source, item.evidence.offset) not in places
        and form_of(item.evidence.text) not in forms
    ]
    lines = [item for item in more.events if item.evidence is not None]
    rest = [item for item in more.events if item.evidence is None]
    return replace(more, events=(*lines, *left[: max(0, SHOWN_LINES - len(places))], *rest))


def with_new_lines(more: Indicators, found: RunFindings) -> Indicators:
    """Return indicators with the last lines that the good run which the caller named has nothing like, up to five with those among them.

    They take the place of the last lines of the same logs.
    """
    lines = [item for item in more.events if item.evidence is not None]
    sources = {item.evidence.source for item in found.new if item.evidence is not None}
    lines = [
        item for item in lines if not (item.why == LAST_LINES and item.evidence and item.evidence.source in sources)
    ]
    texts = {item.evidence.text.strip() for item in lines if item.evidence is not None}
    left = [item for item in found.new if item.evidence is not None and item.evidence.text.strip() not in texts]
    left = left[max(0, len(lines) + len(left) - SHOWN_LINES) :]
    rest = [item for item in more.events if item.evidence is None]
    return replace(more, events=(*lines, *left, *rest), compared_with=found.compared_with)


def without_estimates(more: Indicators, report: Report) -> Indicators:
    """Return indicators whose stage is that of the failure's own lines, if they show one, for these say more than an estimate.

    An estimate that the progress of the run contradicts, or that only an earlier save or evaluation suggests, is left out.
    Of a known failure without a logged step, no step is estimated: the number may count something else. Where steps
    are logged, the last one is told, not an estimate.
    """
    stage = report.diagnoses[0].stage if report.diagnoses else None
    if stage and more.stages:
        more = replace(more, stages=(Indicator(stage, "the stage of the failure"),))
    elif more.stages and more.stages[0].what != report.progress.stage:
        over = report.progress.stage is not None or more.stages[0].what in INTERLUDES
        more = replace(more, stages=() if over else more.stages)
    if report.verdict == "fault" and report.progress.last_iteration is None:
        return replace(more, stages=more.stages if stage else (), iterations=())
    return replace(more, iterations=as_logged(more.iterations, report.progress))


def _state(state: str | None, report: Report, job: Job) -> str | None:
    """Return the state of the run: FAILED if the rules found a failure although the scheduler reports success, or if the exit code says so."""
    if report.verdict == "no_match" and (state or "").upper() in ("", "RUNNING", "COMPLETED"):
        return "FAILED"
    if not state and has_failed(job):
        return "FAILED"
    return state


def _good(
    root: Path | None, job: Job, baseline: Path | None, find: Find | None, mine: Callable[..., MinedTables]
) -> tuple[Baseline | None, tuple[Gap, ...]]:
    """Return the successful run to compare with: the given one, the one in the bundle, or the stored one."""
    own = root is not None and baseline is None and (root / BASELINE).is_dir()
    folder = root / BASELINE if root is not None and own else baseline
    if folder is None:
        return _kept(job, find)
    try:
        return _read([folder], mine, within=root if own else None, label=f"in {BASELINE}/" if own else "")
    except SignalboxError as error:
        return None, (Gap("no_baseline", str(folder), f"the good run could not be read: {error}"),)


def _kept(job: Job, find: Find | None) -> tuple[Baseline | None, tuple[Gap, ...]]:
    try:
        return (find(job) if find else None), ()
    except SignalboxError as error:
        return None, (Gap("no_baseline", "store", str(error)),)


def read_baseline(paths: Sequence[Path], *, workers: int | None = None) -> tuple[Baseline | None, tuple[Gap, ...]]:
    """Read what a comparison needs from the logs or the bundle of a successful run.

    Raises:
        UnreadableInput: a path does not exist.
    """
    return _read(paths, partial(tables, workers=workers))


def _read(
    paths: Sequence[Path], mine: Callable[..., MinedTables], within: Path | None = None, label: str = ""
) -> tuple[Baseline | None, tuple[Gap, ...]]:
    roots = [path / "logs" if (path / "logs").is_dir() else path for path in paths]
    found = found_streams(roots, within=within)
    if not found.streams:
        return None, (Gap("no_baseline", str(paths[0]), "the good run has no logs; nothing was compared with it"),)
    mined = mine(found.streams)
    good = baseline_of(build_run(mined.tables, uncompared=mined.uncompared), label or str(paths[0]))
    if good.lines < FEWEST:
        reason = f"the good run has only {good.lines} lines; nothing was compared with it"
        return None, (*mined.gaps, Gap("no_baseline", str(paths[0]), reason))
    return good, mined.gaps


def _found(ref: StreamRef, root: Path | None) -> StreamRef:
    return ref if root is None or Path(ref.uri).is_absolute() else replace(ref, uri=str(root / ref.uri))


def _year(evidence: Evidence) -> int | None:
    known = evidence.job.start or evidence.job.end or evidence.job.collected_at
    return datetime.fromtimestamp(known, UTC).year if known else None
