"""Writes the report's section on the past: similar incidents, a recurring node, shard or step, how advice worked out.

These are hints beside the diagnoses: nothing here changes which rule comes first. Every sentence names the incidents behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from statistics import median

from kb.anomalies.runs.shared_settings import Witness, shared_settings
from kb.facts.evidence import Evidence
from kb.facts.history import EarlierAttempt, History
from kb.model import NOT_FAILED, OF_A_NODE, OF_MACHINES
from kb.precedents.advice_outcomes import AdviceStep, outcomes
from kb.precedents.data_shards import decisive, in_common, shards_of
from kb.precedents.history import DAY, EarlierIncident
from kb.precedents.incident_trace import installed_on, nodes_of
from kb.precedents.phrases import likeness
from kb.precedents.signature import FaultLibrary, SimilarIncident, Words, signature_of
from kb.report import Alike, Memory, Recalled, Report

WEEK = 7.0  # days
SURE = 0.6  # similarity below which an incident tells nothing new beside a likely cause
MOST_NODES = 5  # maximum number reported
MOST_NUMBERS = 8  # incidents named in a sentence
MOST_SHARED = 4
FEW_PARTS = 2  # of the data
MOST_FLEET = 3  # settings listed
FEW_FAILED = 3  # nodes that share one
FEW_TRIES = 3  # minimum number that ended at different steps
SHOWN = 160


@dataclass(frozen=True, slots=True)
class Precedents:
    """All that is remembered for one job. `at`: when it ended; `faults`: classes of faults with their titles and domains.

    `history` is the input of rules and the decision, made of `earlier` and the bundle's attempts.
    """

    at: float = 0.0
    earlier: tuple[EarlierIncident, ...] = ()
    history: History = field(default_factory=History)
    library: FaultLibrary = field(default_factory=lambda: FaultLibrary(()))
    steps: tuple[AdviceStep, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)


def remembered(report: Report, evidence: Evidence, past: Precedents) -> Report:
    """The report with what is remembered of other runs, under another id: that of both together."""
    if report.verdict in NOT_FAILED:
        return report
    alike = tuple(_alike(item, past) for item in past.library.alike(signature_of(report)) if _is_telling(item, report))
    sections = (
        *_barred(past.history),
        *_same_data(report, evidence, past.history.tries),
        *_same_step(report, evidence, past.history.tries),
        *_nodes(report, evidence, past),
        *_fleet(report, evidence, past),
    )
    found = report.verdict == "fault" and report.diagnoses and report.diagnoses[0].known
    first = report.diagnoses[0].fault if found else ""  # failures of unknown cause have no fault in common
    memory = Memory(alike, sections, outcomes(past.steps, first) if first else (), past.history.digest)
    if memory == Memory():
        return report
    number = sha256(repr((report.id, memory)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return replace(report, id=number, memory=memory, summary=_summary(report, alike))


def _is_telling(item: SimilarIncident, report: Report) -> bool:
    """Whether a similar incident is worth a line: beside a likely cause, a faint likeness is noise."""
    certain = report.verdict == "fault" and bool(report.diagnoses) and report.diagnoses[0].band == "likely"
    return item.similarity >= SURE or not certain


def _summary(report: Report, alike: Sequence[Alike]) -> str:
    """If no rule applies, a similar incident becomes the first lead."""
    if report.verdict != "no_match" or not alike:
        return report.summary
    return f"{report.summary} It {likeness(alike[0])}."


def _alike(similar_incident: SimilarIncident, past: Precedents) -> Alike:
    known = similar_incident.known
    title = past.titles.get(known.fault, known.closed_as) if known.fault else known.closed_as
    lines = tuple(_shown(words) for words in similar_incident.shared[:MOST_SHARED])
    return Alike(known.incident, similar_incident.similarity, known.fault, title, known.helped, lines)


def _shown(words: Words) -> str:
    text = " ".join(words)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


# --- nodes -----------------------------------------------------------------------------------------------------------


def _nodes(report: Report, evidence: Evidence, past: Precedents) -> Iterator[Recalled]:
    """Nodes on which other jobs failed too: those suspected now, or of all nodes of the job those that failed most."""
    suspected = tuple(dict.fromkeys(node for diagnosis in report.diagnoses[:2] for node in diagnosis.nodes))
    suspected = suspected or tuple(item.what for item in report.indicators.nodes)
    mine = frozenset(suspected) | frozenset(nodes_of(evidence))
    failures: dict[str, list[tuple[EarlierIncident, str]]] = {}
    for item in past.earlier:
        if item.own or not item.failed:
            continue
        faults: dict[str, str] = {}
        for place in item.places:
            domains = OF_A_NODE if place.node in suspected else OF_MACHINES
            named = place.node in suspected and item.row.named_nodes
            if place.node in mine and (named or past.domains.get(place.fault, "none") in domains):
                faults.setdefault(place.node or "", place.fault)
        for node, fault in faults.items():
            failures.setdefault(node, []).append((item, fault))
    told = [(node, of) for node, of in failures.items() if node in suspected or _jobs(of) > 1]
    told.sort(key=lambda item: (item[0] not in suspected, -_jobs(item[1]), item[0]))
    for node, of in told[:MOST_NODES]:
        yield _node(node, of, past)


def _fleet(report: Report, evidence: Evidence, past: Precedents) -> Iterator[Recalled]:
    """Settings that the failing nodes have and the others lack, over this job and those of the last weeks: a driver since a date."""
    suspected = frozenset(node for diagnosis in report.diagnoses[:2] for node in diagnosis.nodes)
    suspected = suspected or frozenset(item.what for item in report.indicators.nodes)
    here = installed_on(evidence)
    if not suspected & here.keys():
        return
    witnesses = [Witness(node, node in suspected, versions, past.at) for node, versions in here.items()]
    by_value: dict[tuple[str, str], list[int]] = {}
    for item in past.earlier:
        blamed = (
            {place.node for place in item.places if past.domains.get(place.fault) in OF_MACHINES}
            if item.failed
            else set()
        )
        for node, versions in item.trace.installed.items():
            witnesses.append(Witness(node, node in blamed, versions, item.row.at))
            for pair in versions.items() if node in blamed else ():
                by_value.setdefault(pair, []).append(item.row.id)
    mine = {pair for node in suspected & here.keys() for pair in here[node].items()}
    for found in shared_settings(witnesses)[:MOST_FLEET]:
        pair = found.name, found.value
        if pair in mine and found.failed >= FEW_FAILED:
            since = "" if found.since is None else f", seen since {datetime.fromtimestamp(found.since, UTC):%Y-%m-%d}"
            numbers = tuple(dict.fromkeys(reversed(by_value.get(pair, []))))[:MOST_NUMBERS]
            yield Recalled("fleet", f"{found.text()}{since}", numbers)


def _jobs(of: Sequence[tuple[EarlierIncident, str]]) -> int:
    return len({pair.row.one_job for pair, _ in of})


def _node(node: str, of: Sequence[tuple[EarlierIncident, str]], past: Precedents) -> Recalled:
    jobs = _jobs(of)
    late = [(pair, fault) for pair, fault in of if past.at - pair.row.at <= WEEK * DAY]
    week = _jobs(late)
    span = "in the 7 days before" if week == jobs else f"in the 30 days before ({week} in the last 7)"
    numbers = [pair.row.id for pair, _ in reversed(of)]
    latest = {fault: pair for pair, fault in of}
    faults = [f"{fault} {_ago(past.at - item.row.at)} (incident {item.row.id})" for fault, item in latest.items()][-3:]
    text = f"{node} also failed {jobs} other job{'' if jobs == 1 else 's'} {span}: {', '.join(reversed(faults))}"
    return Recalled("node", text, tuple(numbers[:MOST_NUMBERS]))


def _ago(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{max(0, round(seconds / 60))} min earlier"
    return f"{round(seconds / 3600)} h earlier" if seconds < 2 * DAY else f"{round(seconds / DAY)} days earlier"


def _barred(history: History) -> Iterator[Recalled]:
    """Yield the nodes of this job that people had excluded."""
    for item in history.barred[:MOST_NODES]:
        why = f": {item.why}" if item.why else ""
        scope = "for the cluster" if item.scope == "cluster" else "for this job"
        yield Recalled(
            "barred", f"{item.node} was excluded {scope} on {item.since} by {item.who}, but is in use again{why}"
        )


# --- the job's own tries ---------------------------------------------------------------------------------------------


def _same_data(report: Report, evidence: Evidence, tries: Sequence[EarlierAttempt]) -> Iterator[Recalled]:
    """The same part of the data at this end and at the ones before, for the last ones in a row.

    What the deciding lines name counts by itself; what was only being read counts if it is one or two parts: with as many readers as
    ranks some part is always the same.
    """
    decisive_shards = decisive(report)
    for names, most in ((decisive_shards, MOST_NUMBERS), (shards_of(report, evidence), FEW_PARTS)):
        same, count = names, 0
        for earlier_attempt in reversed(tries):
            both = in_common((same, earlier_attempt.shards))
            if not both:
                break
            same, count = both, count + 1
        if count and len(same) <= most:
            verb = "is named" if names is decisive_shards else "was being read"
            text = f"the same part of the data {verb} at the last {count + 1} failures: {', '.join(same[:3])}; check it first"
            yield Recalled("data", text, _numbers(tries[-count:]))
            return


def _same_step(report: Report, evidence: Evidence, tries: Sequence[EarlierAttempt]) -> Iterator[Recalled]:
    """The same step at each end points to the program or its data; never the same step points to the machines."""
    here = report.progress.last_iteration
    if not tries or here is None:
        return
    slack = _interval(evidence)
    count = 0
    for earlier_attempt in reversed(tries):
        if earlier_attempt.reached is None or abs(earlier_attempt.reached - here) > slack:
            break
        count += 1
    if count:
        text = (
            f"it ended at step {here}, like {'the try before' if count == 1 else f'the {count} tries before'}: "
            "a failure that recurs at the same step points to the program or its data rather than to the machines"
        )
        yield Recalled("iteration", text, _numbers(tries[-count:]))
        return
    steps = [earlier_attempt.reached for earlier_attempt in tries if earlier_attempt.reached is not None]
    if len(steps) + 1 >= FEW_TRIES and len({round(step / (slack + 1)) for step in (*steps, here)}) == len(steps) + 1:
        listed = ", ".join(str(step) for step in (*steps[-4:], here))
        text = f"each try ended at another step ({listed}), which points to the machines or their environment rather than to the program"
        yield Recalled("iteration", text, _numbers(tries))


def _interval(evidence: Evidence) -> int:
    """Steps between two iteration lines: the last reported step may be up to that many steps old."""
    best = max((stream.series.points for stream in evidence.streams), key=len, default=())
    steps = [item.step for item in best if item.step is not None and not item.validation]
    gaps = [after - before for before, after in pairwise(steps) if after > before]
    return max(0, int(median(gaps)) - 1) if gaps else 0


def _numbers(tries: Sequence[EarlierAttempt]) -> tuple[int, ...]:
    return tuple(
        earlier_attempt.incident for earlier_attempt in reversed(tries) if earlier_attempt.incident is not None
    )[:MOST_NUMBERS]
