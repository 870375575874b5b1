"""The words that texts use of the first line of a fault: what it states, its log, process and place in the code, the loss at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from kb.diagnosis.context.bad_numbers import reports_bad_numbers
from kb.diagnosis.context.circumstances import OF_LINE
from kb.diagnosis.context.own_frame import CodePlace, own_frame, raising_frame
from kb.diagnosis.context.waits import different_waits
from kb.diagnosis.findings import chain_span
from kb.diagnosis.ranking import Ranked
from kb.facts.chained_exceptions import LINK, structure_start
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.facts.signals import Signal

_STACKS = ("native_crash", "stack_dump")  # structures of what a process prints of its own crash, often with frames


def first_place(ranked: Ranked, facts: Facts, asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return those words that are asked for of the first line of a finding: what it states, its log, process and frame."""
    best, first = ranked.best, ranked.best.first
    pid = first.resource.pid
    told = (
        first.kind in LAUNCHER_KINDS and sum(1 for _ in facts.of_kind("job")) > 1
    )  # the rank may have a log of its own
    place = own_frame(first, facts) if asked & {"frame", "calls"} else CodePlace()
    frame, calls = (place.caller, True) if place.caller and "raising" in asked else (place.frame, place.calls)
    found = {
        "log": "" if told else facts.streams[first.stream].summary.ref.uri,
        "pid": str(pid) if pid is not None else "",
        "frame": frame,
        "calls": "yes" if calls else "",
        "raising": raising_frame(first, facts) if "raising" in asked else "",
        "guard": "yes" if "guard" in asked and best.captures.get("type") == "AssertionError" else "",
    }
    if "numbers" in asked:
        found["numbers"] = "bad" if reports_bad_numbers(first, facts) else ""
    if "waits" in asked:
        found["waits"] = different_waits(first, facts)
    if "crash_stack" in asked:
        found["crash_stack"] = "" if any(facts.structures(kind) for kind in _STACKS) else "none"
    if "looked_for" in asked:
        found["looked_for"] = _looked_for(first, facts)
    if asked & OF_LINE:
        from kb.diagnosis.context.line_words import of_lines, with_end  # noqa: PLC0415 - few rules ask for what a line states

        found |= with_end(of_lines(best.signals, asked), _others(ranked))
    if "path" in asked and not found.get("path"):
        found["path"] = _saved_to(first, facts)
    if asked & {"installing", "install_error"}:
        from kb.diagnosis.context.installers import of_installer  # noqa: PLC0415 - only rules on installers ask for it

        found |= of_installer(first, facts)
    if "conflict" in asked and (package := best.captures.get("package")):
        from kb.diagnosis.context.installers import of_conflict  # noqa: PLC0415 - only rules on imports ask for it

        found["conflict"] = of_conflict(first, facts, package)
    if "loss" in asked or "last_loss" in asked:
        from kb.diagnosis.context.losses import of_losses  # noqa: PLC0415 - only rules on the loss ask for it

        found |= of_losses(first, facts)
    return {name: value for name, value in found.items() if value}


def _others(ranked: Ranked) -> Iterator[Signal]:
    """Yield the other signals of a fault and of what it explains, in the log of its first line."""
    for finding in (*ranked.findings, *ranked.folded):
        yield from (signal for signal in finding.signals if signal.stream == ranked.best.first.stream)


def _saved_to(first: Signal, facts: Facts) -> str:
    """Return the path of the save that had begun, and not ended, when the first line of a finding was written; empty without it."""
    saves = [item for item in facts.streams[first.stream].checkpoints if item.offset <= first.offset]
    return str(saves[-1].fields.get("path") or "") if saves and saves[-1].fields.get("event") == "save_begin" else ""


def _looked_for(first: Signal, facts: Facts) -> str:
    """Return the file that an exception before the first line of a finding, in its chain, says is missing; empty without one."""
    from kb.diagnosis.context.line_words import missing_in  # noqa: PLC0415 - few rules ask for it

    low = chain_span(first, facts)[0]
    for item in reversed(facts.streams[first.stream].exceptions):
        if item.end <= low and low - item.end < LINK and item.resource.rank == first.resource.rank:
            if item.fields.get("type") == "FileNotFoundError":
                return missing_in(f"{item.line}\n{item.fields.get('message') or ''}")
            low = structure_start(item)
    return ""
