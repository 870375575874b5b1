"""The input of advice: incidents with their feedback, summaries of their reports, and their stored text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec
import zstandard
from sqlalchemy import select
from sqlmodel import Session, col

from bot.incidents.resolution import annotations_within
from bot.learning.drafts.cases import logs_of, parted
from bot.learning.outcomes import ReviewedIncident
from bot.learning.replay.trial import RuleFiles
from bot.store.packed_reports import REPLAY_BYTES
from bot.store.tables import IncidentRow, ReplayRow, ReportRow
from kb.learning.cases import Case
from kb.rulebase.rule import Rule

_T = TypeVar("_T")
_BATCH = 500
_NAMING = (
    IncidentRow.nodes,
    IncidentRow.job_name,
    IncidentRow.job_id,
    IncidentRow.owner,
    IncidentRow.cluster,
    IncidentRow.partition,
)


class StoredLine(msgspec.Struct, frozen=True):
    """A line that a diagnosis quotes."""

    text: str = ""


class StoredDiagnosis(msgspec.Struct, frozen=True):
    """A diagnosis of a report; `first_seen` as RFC 3339 in UTC."""

    fault: str
    rule: str
    role: str = "root_cause"
    first_seen: str | None = None
    evidence: tuple[StoredLine, ...] = ()


class StoredEvent(msgspec.Struct, frozen=True):
    """A line that stood out where no rule fired."""

    what: str = ""


class StoredIndicators(msgspec.Struct, frozen=True):
    """What stood out."""

    events: tuple[StoredEvent, ...] = ()


_NONE = StoredIndicators()


class StoredReport(msgspec.Struct, frozen=True):
    """The parts of a stored report that advice needs."""

    diagnoses: tuple[StoredDiagnosis, ...] = ()
    indicators: StoredIndicators = _NONE


class _NodeReference(msgspec.Struct, frozen=True):
    """A reference to a node."""

    node: str | None = None


class _DiagnosisNodes(msgspec.Struct, frozen=True):
    """The nodes of a diagnosis."""

    nodes: tuple[str, ...] = ()
    evidence: tuple[_NodeReference, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    """The owner of the job."""

    id: str | None = None
    name: str | None = None
    owner: str | None = None


class _Decision(msgspec.Struct, frozen=True):
    """The nodes to exclude."""

    exclude: tuple[_NodeReference, ...] = ()


_NO_JOB, _NO_DECISION = _Job(), _Decision()


class _ReportNames(msgspec.Struct, frozen=True):
    """The names in a stored report."""

    job: _Job | None = _NO_JOB
    diagnoses: tuple[_DiagnosisNodes, ...] = ()
    decision: _Decision | None = _NO_DECISION

    def names(self) -> Iterator[str | None]:
        """Hosts, people and jobs."""
        if self.job is not None:
            yield from (self.job.id, self.job.name, self.job.owner)
        for diagnosis in self.diagnoses:
            yield from (*diagnosis.nodes, *(item.node for item in diagnosis.evidence))
        yield from (entry.node for entry in (self.decision or _NO_DECISION).exclude)


_DECODER = msgspec.json.Decoder(StoredReport)
_NAMING_DECODER = msgspec.json.Decoder(_ReportNames)


@dataclass(frozen=True, slots=True)
class AdviceHistory:
    """The input of advice."""

    session: Session
    base: RuleFiles
    told: Mapping[int, ReviewedIncident]
    reports: Mapping[int, StoredReport]
    now: datetime

    def rule(self, name: str | None) -> Rule | None:
        """Return a rule of the base."""
        return next((rule for rule in self.base.known.rulebook.rules if rule.id == name), None)

    def text(self, rule: Rule) -> str | None:
        """Return the text of a rule's file, or None if the rule is in the site's overlay."""
        return self.base.files.get(rule.file)

    def cases(self, numbers: Iterable[int]) -> list[Case]:
        """Return the incidents with stored text, as the miner expects them."""
        found = []
        wanted = list(numbers)
        names = _names(self.session, wanted)
        for at in range(0, len(wanted), _BATCH):
            query = select(col(ReplayRow.incident_id), col(ReplayRow.text_zstd)).where(
                col(ReplayRow.incident_id).in_(wanted[at : at + _BATCH])
            )
            for number, packed in self.session.execute(query):
                try:
                    text = zstandard.decompress(packed, max_output_size=REPLAY_BYTES)
                except zstandard.ZstdError:
                    continue
                told = names.get(number, frozenset())
                found.append(Case(number, self.told[number].truth, texts=logs_of(text), names=told))
        return sorted(found, key=lambda group: wanted.index(group.id))


def _names(session: Session, numbers: Sequence[int]) -> Mapping[int, frozenset[str]]:
    """Return the names of hosts, people and jobs of each incident, in lower case. They must not appear in patterns."""
    found: dict[int, set[str | None]] = {number: set() for number in numbers}
    for at in range(0, len(numbers), _BATCH):
        some = numbers[at : at + _BATCH]
        query = select(col(IncidentRow.id), *(col(item) for item in _NAMING)).where(col(IncidentRow.id).in_(some))
        for number, nodes, *told in session.execute(query):
            found[number] |= {*msgspec.json.decode(nodes or "[]", type=list[str]), *told}
        for number, said in annotations_within(session, some).items():
            found[number] |= {name for item in said for name in (item.said.who, *item.said.nodes)}
    for number, report in _reports(session, numbers, _NAMING_DECODER):
        found[number].update(report.names())
    return {number: frozenset(parted(names)) for number, names in found.items()}


def reports_of(session: Session, numbers: Sequence[int]) -> Mapping[int, StoredReport]:
    """Return the stored reports of some incidents."""
    return dict(_reports(session, numbers, _DECODER))


def _reports(session: Session, numbers: Sequence[int], decoder: msgspec.json.Decoder[_T]) -> Iterator[tuple[int, _T]]:
    for at in range(0, len(numbers), _BATCH):
        query = select(col(ReportRow.incident_id), col(ReportRow.json_zstd)).where(
            col(ReportRow.incident_id).in_(numbers[at : at + _BATCH])
        )
        for number, packed in session.execute(query):
            try:
                yield number, decoder.decode(zstandard.decompress(packed))
            except (zstandard.ZstdError, msgspec.MsgspecError):
                continue
