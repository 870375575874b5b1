"""From paths to evidence: discover the streams, scan them, read the bundle's description of the job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bot.diagnosis.rank_forms import found_streams
from bot.diagnosis.scan_pool import ScanAll, ScanOptions, Tell, scan_all
from bot.rulebase.loader import Knowledge
from connectors.base.bundle_layout import PARTS
from kb.facts.evidence import Evidence
from kb.facts.given_job import GivenJob
from kb.facts.scheduler_state import GIVEN
from kb.model import Event, Gap, Job, Resource, StreamRef
from kb.scanning.summary import StreamSummary

if TYPE_CHECKING:
    from kb.metrics.panel import Panel
    from kb.parsers.artefacts.promql.series import MetricSeries


def from_bundle(
    knowledge: Knowledge,
    folder: Path,
    *,
    workers: int | None = None,
    tell: Tell | None = None,
    scan: ScanAll = scan_all,
    given: GivenJob | None = None,
) -> Evidence:
    """Return the evidence of a bundle. `scan`: reads the streams; `given`: what whoever asks knows of the job."""
    from connectors.bundles.description import read_description, read_job  # noqa: PLC0415 - yaml

    job, gaps = read_job(folder)
    job = job if given is None else given.of(job)
    description, odd = read_description(folder)
    found = found_streams([folder], bundle=True)
    refs = tuple(_spoken(ref, description.speakers, folder) for ref in found.streams)
    summaries = scan(knowledge, refs, ScanOptions(_year(job), workers, tell))
    shown = tuple(
        _heard(
            replace(
                summary, ref=_relative(summary.ref, folder), gaps=tuple(_placed(gap, folder) for gap in summary.gaps)
            ),
            description.written,
        )
        for summary in summaries
    )
    gaps = tuple(_placed(gap, folder) for gap in (*gaps, *odd, *found.gaps, *description.gaps))
    name = Path(os.path.abspath(folder)).name  # noqa: PTH100 - of `.` too, and with no look at links
    evidence = Evidence(job=job, streams=shown, gaps=gaps, bundle=name)
    return _with_parts(knowledge, evidence, folder, description.written)


def _spoken(ref: StreamRef, speakers: Mapping[str, Resource], folder: Path) -> StreamRef:
    """Return a stream with its origin from bundle.yaml; missing parts come from the file name."""
    who = speakers.get(_inside(ref.uri, folder))
    if who is None:
        return ref
    known = {name: value for name in Resource.__slots__ if (value := getattr(who, name)) is not None}
    return replace(ref, resource=replace(ref.resource, **known))


def _heard(summary: StreamSummary, written: Mapping[str, float]) -> StreamSummary:
    """If the last lines of a log have no times, use the modification time of its file as the last activity."""
    when = written.get(summary.ref.uri)
    if when is None or (summary.last_time is not None and summary.last_time >= when):
        return summary
    return replace(summary, last_time=when)


def _with_parts(knowledge: Knowledge, evidence: Evidence, folder: Path, written: Mapping[str, float]) -> Evidence:
    """Return the evidence extended by stacks, recorders, metrics and events, if the bundle has any."""
    bare = not any(os.path.lexists(folder / name) for name in PARTS)
    stated = _stated_event(evidence.job)
    if bare and evidence.job.collected_at is None and stated is None:
        return _with_slow_ranks(evidence)
    from bot.diagnosis.flight_recorder_pool import read_dumps  # noqa: PLC0415 - most bundles are logs alone; a start must not wait for the rest
    from connectors.bundles.parts import read_parts  # noqa: PLC0415
    from kb.hangs.non_log_evidence import NonLogEvidence  # noqa: PLC0415
    from kb.hangs.observe import observe  # noqa: PLC0415

    read = read_parts(folder, evidence.job.id)
    events = read.events
    if stated is not None and not any("states" in event.fields and "step" not in event.fields for event in events):
        events = (*events, stated)  # no scheduler's answer describes it in more detail
    rings, odd = read_dumps(read.dumps) if read.dumps else ((), ())
    if read.metrics:
        from kb.metrics.fault_events import events_of_metrics  # noqa: PLC0415

        events = (*events, *events_of_metrics(read.metrics))
    panels, more = _panels(read.metrics)
    gaps = (*(_placed(gap, folder) for gap in (*read.gaps, *odd)), *more)
    rings = tuple(replace(ring, source=_inside(ring.source, folder)) for ring in rings)
    dumped = min((written[name] for ring in rings if (name := ring.source) in written), default=None)
    parts = NonLogEvidence(read.stacks, rings, read.ras, panels, events, gaps, dumped)
    return observe(evidence, parts, knowledge.rulebook)


def _stated_event(job: Job) -> Event | None:
    """Return the event that the job's state represents."""
    if job.state is None:
        return None
    from kb.parsers.schedulers.slurmjson import event_of_state  # noqa: PLC0415 - not for logs alone

    return event_of_state(job, GIVEN if job.state_given else "job.yaml")


def _with_slow_ranks(evidence: Evidence) -> Evidence:
    """Return the evidence from logs alone, with the ranks whose own log lines show that they are slow."""
    if sum(stream.ref.kind == "job" for stream in evidence.streams) == 0:
        return evidence
    from kb.hangs.rank_structures import compare_ranks  # noqa: PLC0415 - not for a start without logs

    return compare_ranks(evidence)


def _panels(series: Sequence[MetricSeries]) -> tuple[Mapping[str, Panel], tuple[Gap, ...]]:
    if not series:
        return {}, ()
    from kb.metrics.panel import panels_of  # noqa: PLC0415 - numpy

    return panels_of(series)


def from_paths(
    knowledge: Knowledge,
    paths: Sequence[Path],
    *,
    root: Path | None = None,
    workers: int | None = None,
    tell: Tell | None = None,
    scan: ScanAll = scan_all,
    given: GivenJob | None = None,
) -> Evidence:
    """Return the evidence from log files and folders.

    `root`: a temporary folder that source names omit; `scan`: reads the streams; `given`: what whoever asks knows of the job.
    """
    found = found_streams(paths)
    streams = scan(knowledge, found.streams, ScanOptions(workers=workers, tell=tell))
    job = Job() if given is None else given.of(Job())
    if root is None:
        return _with_state(knowledge, Evidence(job=job, streams=streams, gaps=found.gaps))
    named = tuple(
        replace(stream, ref=_relative(stream.ref, root), gaps=tuple(_placed(gap, root) for gap in stream.gaps))
        for stream in streams
    )
    gaps = tuple(_placed(gap, root) for gap in found.gaps)
    return _with_state(knowledge, Evidence(job=job, streams=named, gaps=gaps))


def _with_state(knowledge: Knowledge, evidence: Evidence) -> Evidence:
    """Return the evidence from logs alone, with the event that a given state represents."""
    stated = _stated_event(evidence.job)
    if stated is None:
        return _with_slow_ranks(evidence)
    from kb.hangs.non_log_evidence import NonLogEvidence  # noqa: PLC0415 - not for logs alone
    from kb.hangs.observe import observe  # noqa: PLC0415

    return observe(evidence, NonLogEvidence(events=(stated,)), knowledge.rulebook)


def _relative(ref: StreamRef, folder: Path) -> StreamRef:
    return replace(ref, uri=_inside(ref.uri, folder))


def _placed(gap: Gap, folder: Path) -> Gap:
    return replace(gap, source=_inside(gap.source, folder))


def _inside(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name


def _year(job: Job) -> int | None:
    known = job.start or job.end or job.collected_at
    return datetime.fromtimestamp(known, UTC).year if known else None
