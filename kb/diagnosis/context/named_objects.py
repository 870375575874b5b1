"""What the lines of a fault name and its sentence does not: the place in the code, and what nearby lines name.

A sentence is only added where there is one candidate, and never where a rank, node or GPU is accused.
"""

from __future__ import annotations

import re

from kb.diagnosis.context.crash_frame import crash_frame
from kb.diagnosis.context.lines_beside import named_beside
from kb.diagnosis.context.own_frame import GENERAL, exceptions_at, first_frame, frames_of, own_frame
from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile

_FEW = 8  # signals of a finding that are looked at
# Classes whose culprit the run's own code leads to. Of a GPU, a link or a signal, a frame only shows who noticed.
_OF_CODE = frozenset(
    {
        "shape_or_dtype",
        "autograd_misuse",
        "code_bug",
        "config_error",
        "data_error",
        "checkpoint_load",
        "checkpoint_save",
        "device_assert",
        "cuda_oom",
        "gpu_library",
        "external_network",
        "access_denied",
        "disk_full",
        "storage_io",
        "dependency",
        "resource_limit",
        "shm_exhausted",
    }
)
_LATE = "cuda_memory_access"  # the host is told of it at a later call
_OF_SERVICES = frozenset({"external_network", "access_denied"})
_ASYNCHRONOUS = lazy_compile(r"might be asynchronously reported")
_PACKAGE = lazy_compile(r"(?:site|dist)-packages[/\\](\w{2,40})[/\\]")


def named_objects(ranked: Ranked, facts: Facts, told: str) -> str:
    """Return a sentence that names what the lines of a fault point at; empty if that is already said, unclear or missing.

    `told`: what the diagnosis already says.
    """
    best = ranked.best
    if best.is_symptom or best.only_warned:
        return ""
    place = (
        _own_code(best, facts, told)
        if best.fault.id in _OF_CODE
        else _reported_at(best, facts) or _of_crash(best, facts)
    )
    return " ".join(filter(None, (place, *named_beside(ranked, facts, told))))


def _own_code(best: Finding, facts: Facts, told: str) -> str:
    """Return the place in the code that the tracebacks of a finding point at, and whose package it calls."""
    raised = [signal for signal in best.signals[:_FEW] if signal.kind in ("line", "exception")]
    places = {place.frame: place for signal in raised if (place := own_frame(signal, facts)).frame}
    if len(places) != 1:
        return ""
    [place], packages = places.values(), {package for signal in raised if (package := _called(signal, facts))}
    package = packages.pop() if len(packages) == 1 else ""
    if _is_named(place.frame, told):
        return f"The line is `{place.source}`." if place.source and place.source not in told else ""
    if place.caller and _is_named(place.caller, told):
        return ""
    if _told_late(best):
        return f"It was reported at {place.frame}; an earlier call may have caused it."
    calls = f", calling {package}" if package and package not in told and best.fault.id in _OF_SERVICES else ""
    return f"The code was at {place.frame}{calls}{f': `{place.source}`' if place.source else ''}."


def _told_late(best: Finding) -> bool:
    """Whether a device tells its host of such an error at a later call, as far as kernels are not launched one by one."""
    told = f"{best.first.line}\n{best.first.captures.get('message', '')}"
    late = best.fault.id == "device_assert" or _ASYNCHRONOUS.search(told) is not None
    return late and best.captures.get("blocking") != "on"


def _is_named(frame: str, told: str) -> bool:
    """Whether a text names the file of a frame."""
    return re.split(r"[/\\]", frame.partition(" in ")[0])[-1] in told


def _reported_at(best: Finding, facts: Facts) -> str:
    """Return the line of the run that was told of a fault in a kernel, the first of its chain: the kernel was launched there or before."""
    if best.fault.id != _LATE:
        return ""
    raised = [signal for signal in best.signals[:_FEW] if signal.kind in ("line", "exception")]
    places = {place for signal in raised if (place := first_frame(signal, facts))}
    return f"It was reported at {places.pop()}; the kernel was launched there or before." if len(places) == 1 else ""


def _of_crash(best: Finding, facts: Facts) -> str:
    """Return the Python line of a native crash, as a sentence."""
    frame = crash_frame(best.first, facts)
    return f"The code was at {frame}." if frame else ""


def _called(signal: Signal, facts: Facts) -> str:
    """Return the package that the run's own code called; empty for those that every service is called through.

    Also empty where the place that is named is that package's own line.
    """
    parts = next(filter(None, map(frames_of, exceptions_at(signal, facts))), None)
    below = parts.below if parts is not None and parts.place is parts.own else []
    package = next(filter(None, (_PACKAGE.search(frame[0]) for frame in below)), None)
    return "" if package is None or package[1] in GENERAL else package[1]
