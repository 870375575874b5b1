"""Reads one output file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kb.model import Gap, Resource
from kb.parsers.artefacts.ebpf.line_forms import decode_object
from kb.parsers.artefacts.ebpf.parser import EbpfParser
from kb.parsers.artefacts.ebpf.reading import MAX_BYTES, EbpfLimits, EbpfReading
from kb.parsers.schedulers.jsondocs import integer, string

MAX_LINES: Final = 200_000
SCHEMA: Final = "signalbox.ebpf/1"


def read_ebpf(
    data: bytes,
    source: str,
    resource: Resource | None = None,
    tool: str = "",
    limits: EbpfLimits | None = None,
) -> tuple[EbpfReading | None, tuple[Gap, ...]]:
    """Read one file. `resource` and `tool` are the caller's; an envelope in the file takes precedence."""
    gaps: list[Gap] = []
    if len(data) > MAX_BYTES:
        gaps.append(_gap("ebpf-cut", source, f"more than {MAX_BYTES >> 20} MiB; the rest was not read", str(len(data))))
    text = data[:MAX_BYTES].decode("utf-8", "replace")
    lines: list[Any] = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        gaps.append(_gap("ebpf-cut", source, f"more than {MAX_LINES} lines; the rest was not read"))
        del lines[MAX_LINES:]
    head, lines = _envelope(text, lines)
    reading = EbpfParser(
        source, _resource_of(head, resource or Resource()), string(head.get("tool"), 80) or tool, limits or EbpfLimits()
    )
    for line in lines:
        reading.feed(line)
    done = reading.close(head)
    if not (done.series or done.stacks or done.events or done.ticks or reading.known):
        return None, (*gaps, _gap("ebpf-unreadable", source, "not output of bpftrace or offcputime"))
    if reading.odd:
        gaps.append(_gap("ebpf-odd-lines", source, "lines of unknown form", str(reading.odd)))
    if reading.full:
        gaps.append(_gap("ebpf-cut", source, "too many series, stacks or lines to keep", str(reading.full)))
    if reading.lost:
        gaps.append(_gap("ebpf-lost", source, "the kernel lost events; counts are too low", str(reading.lost)))
    return done, tuple(gaps)


def _gap(code: str, source: str, reason: str, got: str = "") -> Gap:
    return Gap(code, source, reason, got=got, rules_out="where threads wait in the kernel, in locks and in calls")


def _envelope(text: str, lines: list[Any]) -> tuple[Mapping[str, Any], list[Any]]:
    """Remove our envelope: the first line, or the whole document."""
    if SCHEMA not in text[:4096]:
        return {}, lines
    first = decode_object(lines[0]) if lines else {}
    head = first if first.get("schema") == SCHEMA else decode_object(text)
    if head.get("schema") != SCHEMA:
        return {}, lines
    records = head.get("records")
    below = lines[1:] if head is first else []
    return head, [*(records[:MAX_LINES] if isinstance(records, list) else []), *below]


def _resource_of(head: Mapping[str, Any], known: Resource) -> Resource:
    node, pid, rank = string(head.get("host"), 253), integer(head.get("pid")), integer(head.get("rank"))
    return replace(
        known,
        node=node or known.node,
        pid=pid if pid is not None else known.pid,
        rank=rank if rank is not None else known.rank,
    )
