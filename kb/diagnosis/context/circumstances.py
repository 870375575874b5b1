"""The circumstances of a finding, in words for the conditions of its texts: those of the run, and where it strikes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.facts.circumstances import RunCircumstances
from kb.model import Phase
from kb.report import REPORTED, WAITING, Suspect, ranges
from kb.rulebase.texts import names_in

OF_LINE = frozenset(
    {
        "to_host",
        "to_port",
        "path",
        "sender_uid",
        "worker_ip",
        "worker_pid",
        "worker_class",
        "connection",
        "memory",
        "memory_of",
        "package",
        "unused",
        "holder",
        "foreign",
        "cap",
        "missing",
        "temp",
        "device_name",
        "free",
        "says",
        "named",
        "service",
        "endpoint",
        "url",
        "repository",
        "shapes",
        "sizes",
        "absent",
        "absent_name",
        "absent_from",
    }
)  # of what the decisive line states (kb.diagnosis.context.line_words)


def asked_for(best: Finding) -> frozenset[str]:
    """Return the names that the sentences of a finding depend on."""
    parts = [part for part in (best.row, best.rule, best.fault) if part is not None]
    texts = [
        getattr(part, name, None)
        for part in parts
        for name in ("title", "summary", "cause", "impact", "because", "lies_in")
    ]
    names = set[str]()
    for part in parts:
        for step in getattr(part, "remediation", ()):
            texts += [step.text, step.command, step.verify, step.escalate]
            names.update(step.only)
    for text in filter(None, texts):
        names.update(names_in(text))
    return frozenset(names)


def circumstances(
    asked: Collection[str],
    run: RunCircumstances,
    suspects: Sequence[Suspect],
    place: tuple[str | None, int | None],
    phase: Phase,
    *,
    speakers: AbstractSet[int] = frozenset(),
) -> Mapping[str, str]:
    """Return what is known of those circumstances of a finding that are asked for, by name (kb.rulebase.circumstances).

    `run`: those of the run; `place`: stage and step. `peers`: the job has other processes, which do not fail in the same
    way. `first_step`: "before" if the run logs steps, and none came before the finding. `speakers`: the ranks whose lines the
    finding consists of; `suspect` names others only.
    """
    found = {name: run.get(name) for name in asked}
    stage, step = place
    if "peers" in asked and not (suspects and suspects[0].kind == "job"):
        found["peers"] = "yes" if run.get("processes") == "several" else ""
    if "suspect" in asked:
        found["suspect"] = _accused(suspects, speakers)
    if "reporters" in asked and speakers:
        found["reporters"] = "one" if len(speakers) == 1 else "several"
    if "first_step" in asked:
        found["first_step"] = "before" if run.get("steps") == "some" and step is None else ""
    found |= {"stage": stage or "", "phase": phase}
    return {name: value for name, value in found.items() if value}


def _accused(suspects: Sequence[Suspect], speakers: AbstractSet[int]) -> str:
    """Return the ranks that others accuse; empty if nodes are accused, or if the ranks only wait or reported it."""
    if any(item.rank is None or item.why in (WAITING, REPORTED) for item in suspects):
        return ""
    ranks = sorted({item.rank for item in suspects if item.rank is not None})
    if not speakers.isdisjoint(ranks):
        return ""
    return _named(ranks)


def neighbours(suspects: Sequence[Suspect], node_of: Callable[[int], str | None], ranks: Iterable[int]) -> str:
    """Return the ranks that share the node of a single suspected rank and are not suspects; empty if there are none."""
    accused = {item.rank for item in suspects}
    first = suspects[0] if len(suspects) == 1 else None
    if first is None or first.rank is None or first.node is None:
        return ""
    return _named(sorted(rank for rank in ranks if rank not in accused and node_of(rank) == first.node))


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}" if ranks else ""


def worded(ranked: Ranked, known: Mapping[str, str]) -> Ranked:
    """Return a fault whose texts know its circumstances. A captured word with the same name counts more, except a stage."""
    best = ranked.best
    own = {name: value for name, value in best.captures.items() if name != "stage" or "stage" not in known}
    return replace(ranked, findings=(replace(best, captures={**known, **own}), *ranked.findings[1:]))
