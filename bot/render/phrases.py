"""A report in words: what the answers on a terminal and in chat say alike. Parts of sentences; no layout, no markup.

What comes from logs and names passes through as it is: whoever shows it escapes it (`shown`) and masks secrets.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.render.report_json import iso
from kb.precedents.phrases import sentences
from kb.report import ranges

if TYPE_CHECKING:
    from kb.model import Gap
    from kb.report import (
        Decision,
        Diagnosis,
        EvidenceItem,
        Hang,
        Indicators,
        JobView,
        NotEvaluated,
        RemedyStep,
        Report,
        Suspect,
    )

_COLOUR = re.compile("\x1b\\[[0-9;:]{0,32}m")
_ODD = re.compile("[^ -~]")
_LEAST_HOURS = 0.05  # less is told in words


def shown(text: str) -> str:
    """The text with everything escaped that is not seen as it is: controls, bidi marks, zero-width characters.

    Colour sequences are dropped; tabs, line ends and odd spaces become spaces.
    """
    plain = uncoloured(text).rstrip("\r\n")
    return plain if plain.isprintable() else _ODD.sub(lambda hit: _visible(hit[0]), plain)


def uncoloured(text: str) -> str:
    """The text without colour sequences."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\t\n" or unicodedata.category(character) == "Zs":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# --- what to do ------------------------------------------------------------------------------------------------------

_ADVICE = {
    "requeue": "Requeue as it is",
    "requeue_without": "Requeue",
    "restart_in_place": "Restart in place, on the same nodes",
    "resubmit": "Submit anew with the change named below",
    "fix_first": "Do not requeue: mend the cause first",
    "wait": "Do not requeue yet: wait until the outside trouble is over",
}
_NO_ADVICE = {
    "fault": "No advice",
    "no_fault": "Nothing to do: nothing failed",
    "no_match": "No advice: something failed, and no rule says what",
    "insufficient_evidence": "No advice: not enough was seen to say what happened",
}
_BARE = ("requeue", "requeue_without", "restart_in_place", "resubmit")  # "... without node-3" reads on


def decided(report: Report) -> str:
    """The decision as one sentence: what to do, without whom, from where, what it costs."""
    decision = report.decision
    head = _ADVICE.get(decision.advice) or _NO_ADVICE.get(report.verdict, "No advice")
    if report.verdict == "no_fault" and report.hang.lone is not None:
        head = "Look closer and stop nothing yet: it is suspected to hang, and that is not sure"
    if decision.exclude:
        names = few(list(dict.fromkeys(exclusion.node for exclusion in decision.exclude)))
        head += f" without {names}" if decision.advice in _BARE else f"; leave out {names}"
    return f"{head}{_price(decision)}."


def _price(decision: Decision) -> str:
    """From where, and what it costs."""
    price = "" if decision.from_checkpoint is None else f", from checkpoint {decision.from_checkpoint}"
    lost = [] if decision.steps_lost is None else [f"{many(decision.steps_lost, 'step')} lost"]
    if decision.gpu_hours_lost is not None:
        hours = decision.gpu_hours_lost
        lost.append(f"{hours:.1f} GPU hours" if hours >= _LEAST_HOURS else "minutes of GPU time")
    if lost:
        price += f"; {lost[0]}" + (f" ({lost[1]})" if len(lost) > 1 else "")
    return price


def owned(decision: Decision) -> str:
    """Who should act: `Owner: hardware.`; nothing where nobody must."""
    return "" if decision.owner in ("none", "") else f"Owner: {decision.owner}."


def excluded(decision: Decision) -> list[str]:
    """Each node to leave out, for whom, and why."""
    return [
        f"{item.node}, {'for the whole cluster' if item.scope == 'cluster' else 'for this job only'}{tail(item.why)}"
        for item in decision.exclude
    ]


def remembered(report: Report) -> list[str]:
    """What earlier runs teach of this one, a sentence each; nothing where nothing is remembered."""
    return list(sentences(report.memory))


# --- what ran, and how far -------------------------------------------------------------------------------------------


def job_facts(job: JobView) -> str:
    """The job's name, id, size, owner and state."""
    return joined(
        [
            job.name or "",
            f"job {job.id}" if job.id else "",
            f"attempt {job.attempt}" if job.attempt is not None else "",
            *size_facts(job),
            f"state {job.state}" if job.state else "",
        ]
    )


def size_facts(job: JobView) -> Iterator[str]:
    """How large it is, and whose."""
    if job.nodes is not None:
        yield many(job.nodes, "node")
    if job.gpus is not None:
        yield many(job.gpus, "GPU")
    if job.owner:
        yield f"of {job.owner}"


def attempts_before(job: JobView) -> str:
    """How many attempts came before, and how they ended; nothing where there was none."""
    before = job.attempts[:-1]
    if not before:
        return ""
    ends = Counter((attempt.state or "of unknown end").lower() for attempt in before)
    return f"{many(len(before), 'earlier attempt')}: {few([f'{count} {end}' for end, count in ends.items()])}"


def progress(report: Report) -> Iterator[str]:
    """Stage, last iteration with its time, last checkpoint."""
    reached = report.progress
    if reached.stage:
        yield f"stage {reached.stage}"
    if reached.last_iteration is not None:
        total = f" of {reached.total_iterations}" if reached.total_iterations else ""
        yield f"last iteration {reached.last_iteration}{total}{at(reached.last_progress)}"
    elif reached.last_progress is not None:
        yield f"last progress{at(reached.last_progress)}"
    if reached.last_checkpoint is not None:
        yield f"last checkpoint {reached.last_checkpoint}"


VOTES = {"yes": "yes", "no": "no", "not_observable": "not observable"}


def hang(report: Report) -> str:
    """Whether a hang is called, with the votes; nothing where none is in question."""
    lone = report.hang.lone is not None
    return voted(report.hang) if report.hang.called or lone or report.phase == "hung" else ""


def voted(hang: Hang) -> str:
    """The outcome and each probe's vote; nothing where no probe voted."""
    if not hang.votes:
        return ""
    head = "called" if hang.called else "suspected" if hang.lone is not None else "not called"
    return f"{head}: {', '.join(f'{vote.probe} {VOTES[vote.vote]}' for vote in hang.votes)}"


# --- why -------------------------------------------------------------------------------------------------------------


def place(diagnosis: Diagnosis) -> Iterator[str]:
    """Stage, iteration and time at which it first showed."""
    if diagnosis.stage:
        yield f"stage {diagnosis.stage}"
    if diagnosis.iteration is not None:
        yield f"iteration {diagnosis.iteration}"
    if diagnosis.first_seen is not None:
        yield f"first seen {clock(diagnosis.first_seen)}"


def source(item: EvidenceItem) -> str:
    """Where a thing stands: source, line, and who wrote it."""
    line = f":{item.line}" if item.line is not None else ""
    byte = f" at byte {item.offset}" if item.line is None and item.offset is not None else ""
    who = joined([f"rank {item.rank}" if item.rank is not None else "", item.node or ""])
    return f"{item.source}{line}{byte}{f' ({who})' if who else ''}"


def explains(diagnosis: Diagnosis, limit: int | None = 3) -> str:
    """The symptoms that it accounts for."""
    folded = [
        f"{item.fault} x{item.count}{f' on ranks {item.ranks}' if item.ranks else ''}" for item in diagnosis.explains
    ]
    return few(folded, "; ", limit)


_GRADES = {
    "look": "changes nothing",
    "safe": "touches this job only",
    "disruptive": "others feel it",
}


def grade(step: RemedyStep) -> str:
    """How far a step of the remedy reaches."""
    return f"[{step.grade}: {_GRADES.get(step.grade, '')}]"


# --- who -------------------------------------------------------------------------------------------------------------


def suspected(suspects: Sequence[Suspect]) -> str:
    """Suspects by kind: ranks as ranges with their nodes, the rest by name, each kind with the first reason."""
    kinds = dict.fromkeys(suspect.kind for suspect in suspects)
    groups = [[suspect for suspect in suspects if suspect.kind == kind] for kind in kinds]
    return "; ".join(f"{_group(group)}{_reason(group)}" for group in groups)


def _group(group: Sequence[Suspect]) -> str:
    kind = group[0].kind
    if kind == "rank":
        return _ranks(group)
    if kind == "job":
        return "the job as a whole"
    return few(list(dict.fromkeys(f"{kind} {_thing(suspect)}".rstrip() for suspect in group)))


def _ranks(group: Sequence[Suspect]) -> str:
    ranks = sorted({suspect.rank for suspect in group if suspect.rank is not None})
    nodes = list(dict.fromkeys(suspect.node for suspect in group if suspect.node))
    text = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}" if ranks else "a rank"
    if len(group) == 1 and group[0].local_rank is not None:
        text += f" (local rank {group[0].local_rank})"
    pods = f" in pod {group[0].pod}" if len(group) == 1 and group[0].pod else ""
    return f"{text}{f' on {few(nodes)}' if nodes else ''}{pods}"


def _thing(suspect: Suspect) -> str:
    """A node, GPU, port or switch by its names."""
    if suspect.gpu is None:
        return suspect.node or ""
    gpu = suspect.gpu
    names = [name for name in (gpu.pci, gpu.uuid) if name]
    index = str(gpu.index) if gpu.index is not None else ""
    other = (f"({', '.join(names)})" if index else ", ".join(names)) if names else ""
    text = " ".join(part for part in (index, other) if part)
    return f"{text}{f' of {suspect.node}' if suspect.node else ''}"


def _reason(group: Sequence[Suspect]) -> str:
    return f" ({group[0].why})" if group[0].why else ""


# --- what stands out, and what was not seen --------------------------------------------------------------------------


REMEMBERED = "What earlier runs teach (hints, no diagnoses):"


def standing_out(report: Report) -> str:
    """The head of the list of what stands out."""
    return "No rule says what failed; these stand out:" if report.verdict == "no_match" else "These stand out:"


def nothing_stands_out(found: Indicators) -> bool:
    """Whether the list is empty."""
    return not (found.events or found.nodes or found.stages or found.iterations)


def not_seen(report: Report) -> str:
    """The head of the list of gaps."""
    needed = report.verdict in ("insufficient_evidence", "no_match")
    return "Not seen, and would help:" if needed else "Not seen:"


def folded(gaps: Sequence[Gap], sources: int = 4) -> list[str]:
    """The gaps in their order, those that differ in their source alone as one line that names the first of them."""
    alike: dict[Gap, list[str]] = {}
    for gap in gaps:
        alike.setdefault(replace(gap, source=""), []).append(gap.source)
    return [missing(replace(gap, source=few(names, limit=sources))) for gap, names in alike.items()]


def missing(gap: Gap) -> str:
    """One gap: what gave less than asked, why, and what that keeps us from telling."""
    scope = f" ({gap.scope})" if gap.scope else ""
    amount = f", {gap.got} of {gap.asked}" if gap.got and gap.asked else ""
    effect = f"; cannot tell: {gap.rules_out}" if gap.rules_out else ""
    return f"{gap.source}{scope}: {gap.reason}{amount}{effect}"


def not_judged(rules: Sequence[NotEvaluated], limit: int | None) -> str:
    """How many rules could not be judged, and for want of what; nothing where all were."""
    if not rules:
        return ""
    needs = Counter(item.needs for item in rules).most_common()
    by_need = few([f"{need} ({count})" for need, count in needs], limit=limit)
    return f"{many(len(rules), 'rule')} not judged, for want of: {by_need}"


def versions(report: Report) -> str:
    """What gave this answer, and how much it read."""
    read = f"{many(report.streams, 'source')}, {size(report.bytes_read)} read" if report.streams else ""
    return joined([f"Report {report.id[:12]}", f"rulebook {report.versions.rulebook}", read])


# --- words -----------------------------------------------------------------------------------------------------------


def cut(text: str, limit: int | None) -> str:
    """The text, or its head with how much was left out."""
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]} ... ({len(text) - limit} more characters)"


def few(items: Sequence[str], glue: str = ", ", limit: int | None = 4) -> str:
    """The first few items, and how many more there are."""
    kept = items[:limit]
    rest = f" and {len(items) - len(kept)} more" if len(kept) < len(items) else ""
    return f"{glue.join(kept)}{rest}"


def joined(parts: Iterable[str]) -> str:
    """What is not empty, with commas."""
    return ", ".join(part for part in parts if part)


def tail(reason: str) -> str:
    """A reason behind what it is for."""
    return f": {reason}" if reason else ""


def many(count: int, thing: str, things: str = "") -> str:
    """A count with its noun."""
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def size(count: int) -> str:
    """Bytes in a unit that reads well."""
    for unit, amount in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= amount:
            return f"{count / amount:.1f} {unit}"
    return f"{count} bytes"


def at(time: float | None) -> str:
    """` at <time>`; nothing where it is not known."""
    return f" at {clock(time)}" if time is not None else ""


def clock(time: float) -> str:
    """A time to the second, UTC."""
    text = iso(time)
    return f"{text[:10]} {text[11:19]}Z" if text else "an unknown time"
