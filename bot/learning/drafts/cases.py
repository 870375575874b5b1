"""Resolved incidents from the store, as the miner expects them: the requested one, those of the same cause, and all others."""

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
from bot.store.visibility import PUBLIC, Viewer
from connectors.base.bundle_layout import PARTS
from kb.diagnosis.unknown import UNKNOWN
from kb.errors import UnreadableInput
from kb.learning.cases import Case, Observation
from kb.learning.negative_corpus import Background, background, negative_case, negative_text
from kb.report import Report

MOST_ALIKE = 8  # newest incidents of the same cause
MOST_OTHERS = 2000  # newest incidents to contrast with
LEAST_NAME = 3  # characters of a name to keep out of rules; shorter ones are parts of many words
_NO_FAULT = "no_fault"
_NO_LOGS = frozenset({*PARTS, "hang probes"})  # sources made by kb.hangs.observe


@dataclass(frozen=True, slots=True)
class DraftCases:
    """The miner's input: the cases, the requested one first, and those to contrast with."""

    cases: tuple[Case, ...]
    background: Background

    @property
    def names(self) -> frozenset[str]:
        """Return names that must not appear in any file of a rule."""
        return frozenset().union(*(case.names for case in self.cases))


def gathered(
    url: str,
    incident: int,
    tenant: str,
    *,
    alone: bool = False,
    clean: Mapping[str, Mapping[str, bytes]] | None = None,
    viewer: Viewer = PUBLIC,
) -> DraftCases | None:
    """Return the incident, those of its tenant closed as the same fault, and the others; None if it does not exist.

    All are those that the viewer sees: a proposal publishes lines of them.

    `alone`: those closed alike are left out, for where they are of another signature. `clean`: logs of runs that went well, by
    name, each with its streams.

    Raises:
        StoreError: the store cannot be used.
    """
    with IncidentStore(url) as store, Closings(url) as closings:
        record = store.get(incident)
        if record is None or record.incident.tenant != tenant or not viewer.sees(record.incident.private_to):
            return None
        first = _case(store, closings, record)
        alike: list[Case] = []
        others = []
        for other in store.list(MOST_OTHERS, IncidentFilter(tenant=tenant, viewer=Viewer(record.incident.private_to))):
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
    valid = tuple(annotation for annotation in closings.annotations(record.incident.id) if not annotation.void)
    kept: tuple[Observation, ...] = ()
    with suppress(UnreadableInput):
        kept = loads(store.kept(record.incident.id, OBSERVED))
    return case_of(record, valid, kept)


def case_of(record: IncidentRecord, said: Sequence[Annotation], observed: tuple[Observation, ...] = ()) -> Case:
    """Return an incident as a case. Parts that cannot be read are left out."""
    incident = record.incident
    report: Report | None = None
    with suppress(UnreadableInput):
        report = from_json(record.report_json)
    holds = word(said)
    last = holds.last.said if holds is not None else None
    against = {item.said.fault or item.said.cause or "" for item in (holds.against if holds is not None else ())}
    events = report.indicators.events if report is not None else ()
    unknown = [item for item in report.diagnoses if item.fault == UNKNOWN] if report is not None else []
    pointed = [item.text for diagnosis in unknown for item in diagnosis.evidence]
    return Case(
        id=incident.id,
        fault=last.fault if last is not None and last.cause in ("shown", "fault") else None,
        against=tuple(sorted(item for item in against if item)),
        said="\n".join(part for part in ((last.action, last.note) if last is not None else ()) if part),
        texts=logs_of(record.replay),
        names=frozenset(_names(record, report, said)),
        told=(*pointed, *(event.evidence.text for event in events if event.evidence is not None)),
        observed=observed,
        stage=report.progress.stage if report is not None else None,
        job=incident.job_id,
        family=incident.job_name,
        when=incident.created_at.timestamp(),
        gpu_hours=incident.gpu_hours_lost,
    )


def logs_of(replay: bytes) -> dict[str, str]:
    """Return the logs of a replay text by name, secrets masked again, without the sentences of comparisons."""
    hidden = redact_bytes(replay, emails=True)
    streams = {name: text.decode("utf-8", "replace") for name, text in streams_of(hidden).items()}
    return {name: text for name, text in streams.items() if name.partition("/")[0] not in _NO_LOGS}


def _names(record: IncidentRecord, report: Report | None, said: Iterable[Annotation]) -> Iterable[str]:
    """Return hosts, people and jobs of an incident, in lower case, with the parts of their names."""
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
    """Return names in lower case as they may appear in a line: whole, and in parts."""
    for name in names:
        if name and len(name) >= LEAST_NAME:
            yield name.lower()
            yield from (
                part for part in name.lower().replace("@", ".").replace(" ", ".").split(".") if len(part) >= LEAST_NAME
            )
