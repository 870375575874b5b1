"""Words for rule sentences, taken from the first line of a fault: what it states, its log, process, place in the code, and the loss there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from kb.diagnosis.context.bad_numbers import reports_bad_numbers
from kb.diagnosis.context.circumstances import OF_LINE
from kb.diagnosis.context.crash_frame import crash_frame
from kb.diagnosis.context.own_frame import (
    CodePlace,
    asks_itself,
    loading_process,
    opens_store,
    own_folder,
    own_frame,
    raising_frame,
    shakes_hands,
)
from kb.diagnosis.context.waits import different_waits
from kb.diagnosis.findings import chain_span
from kb.diagnosis.ranking import Ranked
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.facts.log.chained_exceptions import LINK, structure_start
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import kept_lines, lines_between, tail_lines

# lines that no frames follow: a shell's, and those of the C library about its heap
_ALONE = lazy_compile(
    r"\(core dumped\)|\b(?:double free or corruption|corrupted (?:size|double-linked)|(?:free|malloc|realloc|malloc_consolidate|munmap_chunk)\(\): )"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected"
)
# frames as MPI, UCX, TVM, gdb and the C library print them
_FRAMES = lazy_compile(r"#\d{1,3} |\[ ?\d{1,3}\] /|==== backtrace|\b\d{1,3} {1,8}0x[0-9a-f]{6,}|\(\+0x[0-9a-f]{2,12}\)")
_NEAR = 4096  # bytes from the line that announces a download to that of its failure
_DIRECTIVE = 200  # characters of a directive of a job script, or of a line of the scheduler's report
_ASKED = lazy_compile(
    r"\s{0,8}#(?:BSUB|SBATCH|PBS|\$)\s{1,8}((?:-W|-t|--time|-l walltime|-l h_rt)[ =]{1,3}[\d:-]{1,20})(?=\s|$)"
)
_RAN = lazy_compile(r"\s{0,8}Run time ?:\s{1,60}(\d{1,9}) sec")
_TARGET = lazy_compile(
    r"\b(?i:(?:download|copy|extract|unpack|writ|sav)ing)\b.{1,300}? (?:to|into) [\"']?((?:/|\.{1,2}/|~/)[\w./~@%+=-]{1,200})"
)
_SOURCE = lazy_compile(
    r"(?i)\b(?:restor|resum|load)(?:e|es|ed|ing)\b (?:(?:from|the|checkpoint|state|model|weights|training) ){0,4}[\"']?"
    r"((?:/|\.{1,2}/|~/)[\w./~@%+=-]{1,200}|[\w.-]{1,80}/(?=[\w./-]{0,120}(?:ckpt|checkpoint|\.(?:pt|pth|bin|safetensors|npz)\b))[\w./~@%+=-]{1,200})"
)


def first_place(ranked: Ranked, facts: Facts, asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return the requested words about the first line of a finding: what it states, its log, process and frame."""
    best, first = ranked.best, ranked.best.first
    pid = first.resource.pid
    told = (
        first.kind in LAUNCHER_KINDS and sum(1 for _ in facts.of_kind("job")) > 1
    )  # the rank may have a log of its own
    place = own_frame(first, facts) if asked & {"frame", "at", "calls", "in_library"} else CodePlace()
    frame, calls = (place.caller, True) if place.caller and "raising" in asked else (place.frame, place.calls)
    found = {
        "log": "" if told else facts.streams[first.stream].summary.ref.uri,
        "pid": str(pid) if pid is not None else "",
        "frame": frame or (crash_frame(first, facts) if "crash_stack" in asked else ""),
        "at": _at(frame, raising_frame(first, facts), calls=calls) if "at" in asked else "",
        "calls": "yes" if calls else "",
        "raising": raising_frame(first, facts) if "raising" in asked else "",
        "in_library": "yes" if place.in_library and not place.caller else "",
        "guard": "yes" if "guard" in asked and best.captures.get("type") == "AssertionError" else "",
    }
    found |= {name: of(first, facts) for name, of in _LOOK_UPS.items() if name in asked}
    if asked & OF_LINE:
        from kb.diagnosis.context.line_words import of_lines, with_end, with_worker  # noqa: PLC0415 - few rules ask for what a line states

        others = list(_others(ranked))
        found |= with_worker(with_end(of_lines(best.signals, asked), others), others, asked)
    if found.get("connection") == "timed_out" and shakes_hands(first, facts):
        found["connection"] = "tls"
    if "path" in asked and not found.get("path"):
        loads = best.fault.id == "checkpoint_load"
        source = _named_above(first, facts, _SOURCE) if loads else _saved_to(first, facts)
        found["path"] = source or _written_to(first, facts)
    found |= _of_few(best.captures.get("package"), first, facts, asked)
    return {name: value for name, value in found.items() if value}


def _at(frame: str, raising: str, *, calls: bool) -> str:
    """Return where to look for what an exception is about: the run's own frame and, if it only calls what raised it, the innermost one."""
    if not frame or not raising or not calls or raising == frame:
        return frame or raising
    return f"{frame} (raised at {raising})"


def _of_few(package: str | None, first: Signal, facts: Facts, asked: AbstractSet[str]) -> Mapping[str, str]:
    """Return the words that only rules on installers, imports and the loss ask for."""
    found: dict[str, str] = {}
    if asked & {"installing", "install_error"}:
        from kb.diagnosis.context.installers import of_installer  # noqa: PLC0415 - only rules on installers ask for it

        found |= of_installer(first, facts)
    if "conflict" in asked and package:
        from kb.diagnosis.context.installers import of_conflict  # noqa: PLC0415 - only rules on imports ask for it

        found["conflict"] = of_conflict(first, facts, package)
    if "loss" in asked or "last_loss" in asked:
        from kb.diagnosis.context.losses import of_losses  # noqa: PLC0415 - only rules on the loss ask for it

        found |= of_losses(first, facts)
    return found


def _shows_stack(facts: Facts) -> bool:
    """Whether the logs hold what a process prints of its own crash, often with frames, or lines that look like frames."""
    if facts.structures("stack_dump"):
        return True
    if any(not _ALONE.search(item.line) for _, item in facts.structures("native_crash")):
        return True
    kept = (line for stream in facts.of_kind("job") for _, line in tail_lines(stream.summary))
    return any(_FRAMES.search(line) for line in kept)


def _crash_stack(_first: Signal, facts: Facts) -> str:
    return "" if _shows_stack(facts) else "none"


def _others(ranked: Ranked) -> Iterator[Signal]:
    """Yield the other signals of a fault and of what it explains, in the log of its first line."""
    for finding in (*ranked.findings, *ranked.folded):
        yield from (signal for signal in finding.signals if signal.stream == ranked.best.first.stream)


def _saved_to(first: Signal, facts: Facts) -> str:
    """Return the path of the save that had begun, and not ended, when the first line of a finding was written; empty without it."""
    saves = [item for item in facts.streams[first.stream].checkpoints if item.offset <= first.offset]
    return str(saves[-1].fields.get("path") or "") if saves and saves[-1].fields.get("event") == "save_begin" else ""


def _written_to(first: Signal, facts: Facts) -> str:
    """Return the file that the last line before a finding names as the target of a download or a copy; empty without one."""
    return _named_above(first, facts, _TARGET)


def _named_above(first: Signal, facts: Facts, form: re.Pattern[str]) -> str:
    """Return the file or folder that the last line of a form names before a finding; empty without one."""
    low = chain_span(first, facts)[0]
    near = lines_between(facts.streams[first.stream].summary, low - _NEAR, low)
    named = [found[1] for _, line in near if (found := form.search(line)) is not None]
    return named[-1].rstrip(".") if named else ""


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


def _missing_too(first: Signal, facts: Facts) -> str:
    """Return another file that an exception after the first line of a finding says is missing; empty without one."""
    from kb.diagnosis.context.line_words import missing_in  # noqa: PLC0415 - few rules ask for it

    known = missing_in(first.line)
    for item in facts.streams[first.stream].exceptions:
        if item.offset > first.offset:
            name = missing_in(item.line)
            if name and known and name.rstrip("/").rpartition("/")[2] != known.rstrip("/").rpartition("/")[2]:
                return name
    return ""


def _time_limit(first: Signal, facts: Facts) -> str:
    """Return what the start and the end of a log state of the job's time limit and of the time that it ran; empty without it."""
    summary = facts.streams[first.stream].summary
    lines = [line[:_DIRECTIVE] for _, line in kept_lines(summary)]
    asked = [found[1] for line in lines if (found := _ASKED.match(line)) is not None]
    ran = [found[1] for line in lines if (found := _RAN.match(line)) is not None]
    return ", ".join(filter(None, (asked[0] if len(set(asked)) == 1 else "", f"run time {ran[-1]} s" if ran else "")))


# what only some rules ask for, of the first line of a finding
_LOOK_UPS: Mapping[str, Callable[[Signal, Facts], str]] = {
    "loader": loading_process,
    "numbers": lambda first, facts: "bad" if reports_bad_numbers(first, facts) else "",
    "waits": different_waits,
    "asks": asks_itself,
    "time_limit": _time_limit,
    "store": opens_store,
    "own_folder": own_folder,
    "crash_stack": _crash_stack,
    "looked_for": _looked_for,
    "missing_too": _missing_too,
}
