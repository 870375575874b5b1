"""The wording of a report, shared by terminal, chat and pages: parts of sentences, without layout or markup.

Text from logs and names passes through unchanged: the caller escapes it (`shown`) and masks secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.render.text_format import at, clock, few, joined, many, size
from kb.precedents.phrases import sentences
from kb.report import BLOCKER_UNKNOWN, REPORTED, SCHEDULER_ENDED, WAITING, WHOLE_JOB, ranges

if TYPE_CHECKING:
    from kb.model import Gap
    from kb.report import (
        Diagnosis,
        EvidenceItem,
        Hang,
        Indicators,
        JobView,
        NotEvaluated,
        Progress,
        RemedyStep,
        Report,
        Suspect,
        TimeZone,
    )


def remembered(report: Report) -> list[str]:
    """Return hints from past runs, a sentence each; empty if there are none."""
    return list(sentences(report.memory))


# --- what ran, and how far -------------------------------------------------------------------------------------------


def job_names(job: JobView) -> str:
    """Return the job's name and id; only the id if it has the name in it."""
    name = "" if job.id and job.name and job.name in job.id else job.name or ""
    return joined([name, f"{'job ' if name else ''}{job.id}" if job.id else ""])


def job_facts(job: JobView) -> str:
    """Return the job's name, id, size, owner and state."""
    return joined(
        [
            job_names(job),
            f"attempt {job.attempt}" if job.attempt is not None else "",
            *size_facts(job),
            f"state {job.state}" if job.state else "",
        ]
    )


def size_facts(job: JobView) -> Iterator[str]:
    """Nodes, GPUs (ranks if GPUs are unknown) and owner."""
    if job.nodes is not None:
        yield many(job.nodes, "node")
    if job.gpus is not None:
        yield many(job.gpus, "GPU")
    elif job.ranks is not None:
        yield many(job.ranks, "rank")
    if job.owner:
        yield f"owner {job.owner}"


def attempts_before(job: JobView) -> str:
    """Return the number of earlier attempts and how they ended; empty if there were none."""
    before = job.attempts[:-1]
    if not before:
        return ""
    ends = Counter((attempt.state or "unknown").lower() for attempt in before)
    return f"{many(len(before), 'earlier attempt')}: {few([f'{count} {end}' for end, count in ends.items()])}"


def progress(report: Report) -> Iterator[str]:
    """Stage, last iteration with its time, last checkpoint."""
    reached = report.progress
    if reached.stage:
        yield f"stage {reached.stage}"
    if reached.last_iteration is not None:
        total = f" of {reached.total_iterations}" if reached.total_iterations else ""
        yield f"last iteration {reached.last_iteration}{total}{at(reached.last_progress, report.time_zone)}"
    elif reached.epoch_iteration is not None:
        yield f"last iteration {within_epoch(reached)}{at(reached.last_progress, report.time_zone)}"
    elif reached.last_progress is not None:
        yield f"last progress{at(reached.last_progress, report.time_zone)}"
    if reached.last_checkpoint is not None:
        yield f"last checkpoint {reached.last_checkpoint}"


def within_epoch(reached: Progress | Diagnosis) -> str:
    """Return the position within an epoch: `241 of 300 in epoch 10`; `11 of 11 in its epoch` without numbered epochs."""
    total = f" of {reached.epoch_iterations}" if reached.epoch_iterations else ""
    where = "its epoch" if reached.epoch is None else f"epoch {reached.epoch}"
    return f"{reached.epoch_iteration}{total} in {where}"


_PROBES = {"silence": "logs", "spin": "GPU load", "collective": "collectives"}  # what each of these looks at
_VOTED = {"yes": "seen in", "no": "not in", "not_observable": "no data on"}
VOTES = {"yes": "yes", "no": "no", "not_observable": "not observable"}


def hang(report: Report) -> str:
    """Return whether a hang is called, with the votes; empty if a hang was not considered."""
    lone = report.hang.lone is not None
    return voted(report.hang) if report.hang.called or lone or report.phase == "hung" else ""


def voted(hang: Hang) -> str:
    """Return the outcome and each probe's vote; empty if no probe voted."""
    if not hang.votes:
        return ""
    head = "confirmed" if hang.called else "suspected" if hang.lone is not None else "none detected"
    groups = (
        (word, [_PROBES.get(vote.probe, vote.probe) for vote in hang.votes if vote.vote == kind])
        for kind, word in _VOTED.items()
    )
    return f"{head} ({'; '.join(' '.join((word, ', '.join(names))) for word, names in groups if names)})"


# --- why -------------------------------------------------------------------------------------------------------------


def place(diagnosis: Diagnosis, zone: TimeZone = "utc") -> Iterator[str]:
    """Stage, iteration and time of its first occurrence; but for a change of a figure, the iteration is the last one logged before it."""
    if diagnosis.stage:
        yield f"stage {diagnosis.stage}"
    changed = bool(diagnosis.evidence) and diagnosis.evidence[0].kind == "series"
    after = "after " if diagnosis.stage not in (None, "iterating") else "" if changed else "last logged "
    if diagnosis.iteration is not None and (diagnosis.iteration or after != "after "):  # after 0, none was made
        yield f"{after}iteration {diagnosis.iteration}"
    elif diagnosis.epoch_iteration is not None:
        yield f"{after}iteration {within_epoch(diagnosis)}"
    if diagnosis.first_seen is not None:
        when = "first seen" if diagnosis.first_seen_own else "no earlier than"
        yield f"{'no later than' if diagnosis.first_seen_reported else when} {clock(diagnosis.first_seen, zone)}"


def source(item: EvidenceItem) -> str:
    """Return the location of evidence: source, line and writer."""
    line = f":{item.line}" if item.line is not None else ""
    byte = f" at byte {item.offset}" if item.line is None and item.offset is not None else ""
    who = joined([f"rank {item.rank}" if item.rank is not None else "", item.node or ""])
    return f"{item.source}{line}{byte}{f' ({who})' if who else ''}"


def explains(diagnosis: Diagnosis, limit: int | None = 3) -> str:
    """Return the symptoms that the fault accounts for: `Gloo connection closed by a peer (ranks 0-4, 6-7)`."""
    folded = [
        f"{item.title or _class_name(item.fault)}{f' ({_on_ranks(item.ranks)})' if item.ranks else ''}"
        for item in diagnosis.explains
    ]
    return few(folded, "; ", limit)


def _class_name(fault: str) -> str:
    """Return the name of a class, for reports stored before symptoms had titles."""
    return fault.replace("_", " ")


def _on_ranks(found: str) -> str:
    """`0-4,6-7` as `ranks 0-4, 6-7`."""
    return f"{'rank' if found.isdecimal() else 'ranks'} {_spaced(found)}"


def _spaced(found: str) -> str:
    return found.replace(",", ", ")


def confidence(diagnosis: Diagnosis, limit: int | None = None) -> str:
    """Return the confidence as a sentence, then its first reasons: `likely. The kernel names the GPU; …`."""
    reasons = "; ".join(diagnosis.reasons[:limit])
    return f"{diagnosis.band}{f'. {reasons[:1].upper()}{reasons[1:]}' if reasons else ''}"


GRADES = {
    "look": "read-only",
    "safe": "affects only this job",
    "disruptive": "disruptive: affects other jobs",
}


def grade(step: RemedyStep) -> str:
    """Return the risk of a step of the remedy in brackets; empty if there is none."""
    told = risk(step)
    return f"({told})" if told else ""


def risk(step: RemedyStep) -> str:
    """Return the risk of a step; empty for looks and changes of this job without a command, and for our own changes.

    A step without a command may ask people for anything, so it is not called read-only.
    """
    own = step.grade == "safe" and step.command and step.command.startswith("signalbox ")
    harmless = step.grade in ("look", "safe") and not step.command
    return "" if own or harmless else GRADES.get(step.grade, step.grade)


# --- who -------------------------------------------------------------------------------------------------------------


def suspected(suspects: Sequence[Suspect]) -> str:
    """Return the suspects by kind and reason: ranks as ranges with nodes, others by name."""
    kinds = dict.fromkeys((suspect.kind, suspect.why) for suspect in suspects if not _is_bare_job(suspect))
    groups = [[suspect for suspect in suspects if (suspect.kind, suspect.why) == kind] for kind in kinds]
    return few([f"{group_text(group)}{_reason(group)}" for group in groups], "; ")


def suspects_label(diagnosis: Diagnosis) -> str:
    """Return the label of the suspects. Those that only wait, or only ran into the fault, are not called suspects."""
    suspects = diagnosis.suspects
    if suspects and all(suspect.why == WAITING for suspect in suspects):
        return "Waiting"
    seen = all(suspect.kind == "job" or suspect.why == REPORTED for suspect in suspects)
    return "Seen on" if seen or diagnosis.lies_in or _is_place_of_unknown(diagnosis) else "Suspects"


def _is_place_of_unknown(diagnosis: Diagnosis) -> bool:
    """Whether no rule explains the failure, and its suspects are those that wrote its lines."""
    writers = {(item.rank, item.node if item.rank is None else None) for item in diagnosis.evidence}
    places = ((item.rank, item.node if item.rank is None else None) for item in diagnosis.suspects)
    return not diagnosis.known and any(place in writers for place in places)


def _is_bare_job(suspect: Suspect) -> bool:
    """Whether a suspect is the job, and nothing says where in it the fault was seen."""
    return suspect.kind == "job" and suspect.why in (WHOLE_JOB, SCHEDULER_ENDED)


def group_text(group: Sequence[Suspect], nodes: int | None = None) -> str:
    """Return the names of suspects of one kind. For ranks on more than `nodes` nodes, give the number of nodes instead of their names."""
    kind = group[0].kind
    if kind == "rank":
        return _ranks(group, nodes)
    if kind == "job":
        return group[0].why.removeprefix(_SEEN_ON) if group[0].why.startswith(_SEEN_ON) else "the whole job"
    name = "GPU" if kind == "gpu" else kind
    return few(list(dict.fromkeys(f"{name} {_thing(suspect)}".rstrip() for suspect in group)))


def _ranks(group: Sequence[Suspect], most: int | None) -> str:
    ranks = sorted({suspect.rank for suspect in group if suspect.rank is not None})
    nodes = list(dict.fromkeys(suspect.node for suspect in group if suspect.node))
    text = f"ranks {_spaced(ranges(ranks))}" if len(ranks) > 1 else f"rank {ranks[0]}" if ranks else _local_rank(group)
    if ranks and len(group) == 1 and group[0].local_rank is not None and most is None:  # a headline does without
        text += f" (local rank {group[0].local_rank})"
    pods = f" in pod {group[0].pod}" if len(group) == 1 and group[0].pod else ""
    on = f" on {few(nodes) if most is None or len(nodes) <= most else many(len(nodes), 'node')}" if nodes else ""
    return f"{text}{on}{pods}"


def _local_rank(group: Sequence[Suspect]) -> str:
    """Return a process by its number on its node, where its rank is unknown."""
    numbers = [suspect.local_rank for suspect in group if suspect.local_rank is not None]
    return f"local rank {numbers[0]}" if len(numbers) == 1 else "a rank"


def _thing(suspect: Suspect) -> str:
    """Return a node, GPU, port or switch by its names."""
    if suspect.gpu is None:
        return suspect.node or ""
    gpu = suspect.gpu
    names = [name for name in (gpu.pci, gpu.uuid) if name]
    index = str(gpu.index) if gpu.index is not None else ""
    other = (f"({', '.join(names)})" if index else ", ".join(names)) if names else ""
    text = " ".join(part for part in (index, other) if part)
    return f"{text}{f' on {suspect.node}' if suspect.node else ''}"


def _reason(group: Sequence[Suspect]) -> str:
    why = group[0].why
    if why == WAITING:  # the label says that they wait
        why = BLOCKER_UNKNOWN
    elif why == REPORTED or (group[0].kind == "job" and why.startswith(_SEEN_ON)):  # the label says so
        why = ""
    elif group[0].kind == "node":
        why = why.replace(" of its node", "").replace(" on its node", "")
    return f" ({why})" if why else ""


# --- what stands out, and what is missing ----------------------------------------------------------------------------


_SEEN_ON = "seen on "
REMEMBERED = "From past runs (hints only):"
MISSING = "Missing evidence:"
INCOMPLETE = "Missing or incomplete evidence:"
_EXCEPTED = "rule_excepted"
_READ = frozenset(
    (
        "clocks_apart", "dump_cut", "dump_duplicate", "dump_partial", "dump_rank_contradicted", "dump_version_unknown",
        "group_unreadable", "groups_inferred", "lines_only_counted", "metric_coarse", "metric_holes", "metric_partial",
        "metric_points_left_out", "metric_series_left_out", "metric_times", "metric_unit", "p2p_not_recorded",
    )
)  # codes of gaps in evidence that was read  # fmt: skip
_MISSING_NAMED = 4
_SOURCES = {"kernel": "kernel log", "flight_recorder": "Flight Recorder"}


_HEADINGS = {
    "no_match": "No rule explains this failure. What stands out:",
    "no_fault": "What shows it:",
    "insufficient_evidence": "How the logs end:",
}


def standing_out(report: Report) -> str:
    """Return the heading of the list of anomalies."""
    return _HEADINGS.get(report.verdict, "What stands out:")


def places(found: Indicators) -> str:
    """Return the heading of the places that stand out: ranks or nodes, or logs if their writers are unknown."""
    names = [item.what for item in found.nodes]
    if names and all(name.startswith("rank ") for name in names):
        return "Ranks"
    return (
        "Logs" if names and all("/" in name or name.endswith((".log", ".out", ".err")) for name in names) else "Nodes"
    )


def nothing_stands_out(found: Indicators) -> bool:
    """Whether the list is empty."""
    return not (found.events or found.nodes or found.stages or found.iterations)


def folded(gaps: Sequence[Gap], sources: int = 4) -> list[str]:
    """Return the gaps in order. Those that differ only in their source share a line with the first few sources."""
    alike: dict[Gap, list[str]] = {}
    for gap in gaps:
        alike.setdefault(replace(gap, source=""), []).append(gap.source)
    return [missing(replace(gap, source=few(names, limit=sources))) for gap, names in alike.items()]


def missing(gap: Gap) -> str:
    """Return one gap: what is missing or incomplete, why, and what stays unknown without it."""
    scope = f" ({gap.scope})" if gap.scope else ""
    amount = f", {gap.got} of {gap.asked}" if gap.got and gap.asked else ""
    effect = f"; cannot tell: {gap.rules_out}" if gap.rules_out else ""
    read = "read, but " if gap.code in _READ else ""
    return f"{gap.source}{scope}: {read}{gap.reason}{amount}{effect}"


def _source_name(source: str) -> str:
    """Return what lacks something. Process ids are called "processes"."""
    name = source if source.startswith("/") else source.partition("/")[0]
    return "processes" if name.replace(",", "").isdigit() else _SOURCES.get(name, name)


def missing_heading(gaps: Sequence[Gap]) -> str:
    """Return the heading of the list of all gaps, some of which concern evidence that was read or that the site excludes."""
    return INCOMPLETE if any(gap.code in _READ or gap.code == _EXCEPTED for gap in gaps) else MISSING


def missing_in_short(report: Report) -> str:
    """Return one line for all gaps: what is missing, with the number of rules skipped, what was read in part, what the site excepts."""
    absent = [gap for gap in report.gaps if gap.code not in {*_READ, _EXCEPTED, "contradiction"}]
    skipped = f"{many(len(report.not_evaluated), 'rule')} skipped" if report.not_evaluated else ""
    missing = "; ".join(part for part in (_sources_of(absent), skipped) if part)
    partly = _sources_of([gap for gap in report.gaps if gap.code in _READ])
    excepted = few([_exception(gap) for gap in report.gaps if gap.code == _EXCEPTED])
    lone = absent[0].rules_out if len(absent) == 1 and not skipped else ""
    parts = (
        f"{MISSING} {missing}{f'; cannot tell: {lone}' if lone else ' (-v says what it would show)'}"
        if missing
        else "",
        f"Read with limits: {partly} (-v says which)" if partly else "",
        f"Excepted by your site: {excepted}" if excepted else "",
    )
    return ". ".join(part for part in parts if part)


def _exception(gap: Gap) -> str:
    """Return what a site excepted: the rule, how many of its signals, until when and why."""
    return f"{gap.source} ({gap.reason.replace(' excepted by the site', '')})"


def _sources_of(gaps: Sequence[Gap]) -> str:
    """Return the sources of gaps, each with the number of its gaps if it has several."""
    sources = Counter(_source_name(gap.source) for gap in gaps)
    return few([f"{name} ({count})" if count > 1 else name for name, count in sources.items()], limit=_MISSING_NAMED)


def not_judged(rules: Sequence[NotEvaluated], limit: int | None) -> str:
    """Return the number of rules skipped, and what they need; empty if none was."""
    if not rules:
        return ""
    needs = Counter(item.needs for item in rules).most_common()
    by_need = few([f"{need} ({count})" for need, count in needs], limit=limit)
    return f"{many(len(rules), 'rule')} skipped; missing: {by_need}"


def versions(report: Report) -> str:
    """Report, rulebook, and how much was read."""
    read = f"{many(report.streams, 'source')}, {size(report.bytes_read)} read" if report.streams else ""
    mixed = "some logs state no time zone" if report.time_zone == "mixed" else ""
    return joined([f"Report {report.id[:12]}", f"rulebook {report.versions.rulebook}", read, mixed])


def time_zone(report: Report) -> str:
    """What is known about the zone of the times, as a sentence."""
    if report.time_zone == "utc":
        return "Times are UTC."
    which = "Some logs state" if report.time_zone == "mixed" else "The logs state"
    return f"Times with Z are UTC. {which} no time zone."
