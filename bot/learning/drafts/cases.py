"""Resolved incidents out of the store, as the miner sees them: the one asked about, those closed alike, and all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bot.diagnosis.observations import OBSERVED, loads
from bot.diagnosis.replay_text import streams_of
from bot.incidents.resolution import Annotation, Closings, word
from bot.render.report_json import from_json
from bot.runtime.redaction import redact_bytes
from bot.store.incidents import IncidentFilter, IncidentRecord, IncidentStore
from connectors.base.bundle_layout import PARTS
from kb.errors import UnreadableInput
from kb.learning.cases import Case, Observation
from kb.learning.negative_corpus import Background, background, negative_case, negative_text
from kb.report import Report

MOST_ALIKE = 8  # incidents that sharpen a rule, the newest
MOST_OTHERS = 2000  # that it is held against, the newest
LEAST_NAME = 3  # characters of a name that is kept out of rules; shorter ones are parts of many words
_NO_FAULT = "no_fault"
_NO_LOGS = frozenset({*PARTS, "hang probes"})  # sources that kb.hangs.observe makes


@dataclass(frozen=True, slots=True)
class DraftCases:
    """What the miner is given: the cases, the asked one first, and what they are held against."""

    cases: tuple[Case, ...]
    background: Background

    @property
    def names(self) -> frozenset[str]:
        """Names that may stand in no file of a rule."""
        return frozenset().union(*(case.names for case in self.cases))


def gathered(
    url: str,
    incident: int,
    tenant: str,
    *,
    alone: bool = False,
    clean: Mapping[str, Mapping[str, bytes]] | None = None,
) -> DraftCases | None:
    """The incident, those of its tenant that were closed as the same fault, and the others; None where there is none of that number.

    `alone`: those closed alike are left out, for where they are of another signature. `clean`: logs of runs that went well, by
    name, each with its streams.

    Raises:
        StoreError: the store cannot be used.
    """
    with IncidentStore(url) as store, Closings(url) as closings:
        record = store.get(incident)
        if record is None or record.incident.tenant != tenant:
            return None
        first = _case(store, closings, record)
        alike: list[Case] = []
        others = []
        for other in store.list(MOST_OTHERS, IncidentFilter(tenant=tenant)):
            if other.id == incident or other.merged_into is not None or (found := store.get(other.id)) is None:
                continue
            case = _case(store, closings, found)
            if case.fault is not None and case.fault == first.fault and len(alike) < MOST_ALIKE and not alone:
                alike.append(case)
            elif other.verdict == _NO_FAULT and case.fault is None:
                others.append(negative_text(case.id, "healthy", case.texts, stage=case.stage, observed=case.observed))
            else:
                others.append(negative_case(case))
    for number, streams in enumerate((clean or {}).values(), start=1):
        others.append(
            negative_text(-number, "healthy", {name: text.decode("utf-8", "replace") for name, text in streams.items()})
        )
    return DraftCases((first, *alike), background(others))


def _case(store: IncidentStore, closings: Closings, record: IncidentRecord) -> Case:
    said = tuple(annotation for annotation in closings.annotations(record.incident.id) if not annotation.void)
    kept: tuple[Observation, ...] = ()
    with suppress(UnreadableInput):
        kept = loads(store.kept(record.incident.id, OBSERVED))
    return case_of(record, said, kept)


def case_of(record: IncidentRecord, said: Sequence[Annotation], observed: tuple[Observation, ...] = ()) -> Case:
    """An incident as a case. What cannot be read of it is as if it were gone."""
    incident = record.incident
    report: Report | None = None
    with suppress(UnreadableInput):
        report = from_json(record.report_json)
    holds = word(said)
    last = holds.last.said if holds is not None else None
    against = {item.said.fault or item.said.cause or "" for item in (holds.against if holds is not None else ())}
    events = report.indicators.events if report is not None else ()
    return Case(
        id=incident.id,
        fault=last.fault if last is not None and last.cause in ("shown", "fault") else None,
        against=tuple(sorted(item for item in against if item)),
        said="\n".join(part for part in ((last.action, last.note) if last is not None else ()) if part),
        texts=logs_of(record.replay),
        names=frozenset(_names(record, report, said)),
        told=tuple(event.evidence.text for event in events if event.evidence is not None),
        observed=observed,
        stage=report.progress.stage if report is not None else None,
        job=incident.job_id,
        family=incident.job_name,
        when=incident.created_at.timestamp(),
        gpu_hours=incident.gpu_hours_lost,
    )


def logs_of(replay: bytes) -> dict[str, str]:
    """The logs of a replay text by name, secrets masked once more; what comparisons said of stacks and the like is no log."""
    hidden = redact_bytes(replay, emails=True)
    streams = {name: text.decode("utf-8", "replace") for name, text in streams_of(hidden).items()}
    return {name: text for name, text in streams.items() if name.partition("/")[0] not in _NO_LOGS}


def _names(record: IncidentRecord, report: Report | None, said: Iterable[Annotation]) -> Iterable[str]:
    """Hosts, people and jobs of an incident, in lower case, and the parts of their names."""
    found: set[str | None] = {record.incident.owner, record.incident.job_name, record.incident.job_id}
    for annotation in said:
        found |= {annotation.said.who, *annotation.said.nodes}
    if report is not None:
        found |= {report.job.owner, report.job.name, report.job.id}
        for diagnosis in report.diagnoses:
            found |= {*diagnosis.nodes, *(item.node for item in diagnosis.evidence)}
        found |= {entry.node for entry in report.decision.exclude}
    yield from parted(found)


def parted(names: Iterable[str | None]) -> Iterator[str]:
    """Names in lower case as they may stand in a line: whole, and their parts."""
    for name in names:
        if name and len(name) >= LEAST_NAME:
            yield name.lower()
            yield from (
                part for part in name.lower().replace("@", ".").replace(" ", ".").split(".") if len(part) >= LEAST_NAME
            )
