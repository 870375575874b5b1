"""What the lines of a fault name that its sentence does not: the place in the code, an adapter, a host.

A sentence is only added where there is one candidate, and never where a rank, node or GPU is accused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.diagnosis.context.own_frame import GENERAL, exceptions_at, frames_of, own_frame
from kb.diagnosis.findings import Finding, chain_span
from kb.diagnosis.ranking import Ranked
from kb.facts.job_facts import Facts
from kb.facts.signals import Signal
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import head_lines, tail_lines

_FEW = 8  # signals of a finding that are looked at
_NEAR = 2048  # bytes between a line and those of the same event
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
_OF_ADAPTERS = frozenset({"rdma_link", "rdma_setup"})
_OF_SERVICES = frozenset({"external_network", "access_denied"})
_ADAPTER = lazy_compile(
    r"(?<![\w/.])((?:mlx[45]_(?:bond_)?\d{1,2}|ib[ps]\d\w{1,12}|roce\w{2,12}|rdmap\w{2,12}|bnxt_re\d{1,2}|irdma\d{1,2}|ionic_\d{1,2}|hns_\d{1,2})(?::\d{1,2})?)(?![\w.])"
)
_HOST = lazy_compile(r"(?:\bhttps?://|\bhost=['\"])([\w-]{1,60}(?:\.[\w-]{1,60}){1,6})(?![\w@.-])")
_PACKAGE = lazy_compile(r"(?:site|dist)-packages[/\\](\w{2,40})[/\\]")


def named_objects(ranked: Ranked, facts: Facts, told: str) -> str:
    """Return a sentence that names what the lines of a fault point at; empty if it is told, unclear or not there.

    `told`: what the diagnosis says already.
    """
    best = ranked.best
    if best.is_symptom or best.only_warned:
        return ""
    found = []
    if best.fault.id in _OF_CODE and (place := _own_code(best, facts, told)):
        found.append(place)
    for faults, shape, words in (
        (_OF_ADAPTERS, _ADAPTER, "the adapter "),
        (_OF_SERVICES, _HOST, ""),
    ):
        if best.fault.id in faults and (name := _only(shape, ranked, facts, told)):
            found.append(f"A line beside it names {words}{name}.")
    return " ".join(found)


def _own_code(best: Finding, facts: Facts, told: str) -> str:
    """Return the place in the code that the tracebacks of a finding point at, and whose package it calls."""
    raised = [signal for signal in best.signals[:_FEW] if signal.kind in ("line", "exception")]
    places = {(own_frame(signal, facts), _called(signal, facts)) for signal in raised}
    places = {place for place in places if place[0]}
    if len(places) != 1:
        return ""
    [(frame, package)] = places
    file = re.split(r"[/\\]", frame.partition(" in ")[0])[-1]
    if file in told:
        return ""
    calls = f", calling {package}" if package and package not in told and best.fault.id in _OF_SERVICES else ""
    return f"The code was at {frame}{calls}."


def _called(signal: Signal, facts: Facts) -> str:
    """Return the package that the run's own code called; empty for those that every service is called through.

    Also empty where the place that is named is that package's own line.
    """
    parts = next(filter(None, map(frames_of, exceptions_at(signal, facts))), None)
    below = parts.below if parts is not None and parts.place is parts.own else []
    package = next(filter(None, (_PACKAGE.search(frame[0]) for frame in below)), None)
    return "" if package is None or package[1] in GENERAL else package[1]


def _only(shape: re.Pattern[str], ranked: Ranked, facts: Facts, told: str) -> str:
    """Return the one name of a shape in the lines around a fault; empty if its own line has one, or others differ."""
    first = ranked.best.first
    if shape.search(told) or shape.search(f"{first.line}\n{first.captures.get('message', '')}"):
        return ""
    names = {found[1] for line in _beside(ranked, facts) for found in shape.finditer(line)}
    return names.pop() if len(names) == 1 else ""


def _beside(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """Yield the lines of the same log and process near the first line of a fault, as far as they were kept."""
    first = ranked.best.first
    stream, (low, high) = facts.streams[first.stream], chain_span(first, facts)
    for signal in (item for finding in (*ranked.findings, *ranked.folded) for item in finding.signals):
        if signal.stream == first.stream and _close(signal.offset, low, high) and _same(signal, first):
            yield signal.line
    for item in stream.exceptions:
        if low <= item.offset < high:
            yield f"{item.line}\n{item.fields.get('message') or ''}"
    if first.resource.rank is None:  # lines of several ranks in one log would have to be told apart
        ends = (*head_lines(stream.summary), *tail_lines(stream.summary))
        yield from (line[:512] for offset, line in ends if _close(offset, low, high))


def _close(offset: int, low: int, high: int) -> bool:
    return low - _NEAR <= offset <= high + _NEAR


def _same(signal: Signal, first: Signal) -> bool:
    return signal.resource.rank == first.resource.rank and signal.resource.node == first.resource.node
