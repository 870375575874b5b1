"""Parses stacks of running processes: py-spy (JSON and text), pystack, faulthandler, torch's debug server.

All become threads with the innermost frame first. Variables of frames are dropped unread: they may be secret.
A main thread that its tool did not name is called "MainThread"; where pystack says that a thread waits for the
interpreter's lock, a frame `take_gil` says so.
"""

from __future__ import annotations

from kb.model import Gap, Resource, StackSample
from kb.parsers.artefacts.pystacks.frames import (
    MOST_BYTES,
    stack_gap,
)
from kb.parsers.artefacts.pystacks.pyspy_json import read_json
from kb.parsers.artefacts.pystacks.text import StackTextReader


def read_stacks(
    data: bytes, source: str, resource: Resource, sample: str, time: float | None, *, child: bool = False
) -> tuple[StackSample | None, tuple[Gap, ...]]:
    """Return the stacks of the process in `data`, or of the first if there are several (py-spy's --subprocesses).

    `sample` names the round; `time` is when it was taken (seconds since the epoch). None if there is no stack, with a
    gap that says why.
    """
    found, gaps = read_all_stacks(data, source, resource, sample, time, child=child)
    if len(found) > 1:
        reason = f"the file holds {len(found)} processes; the first is used"
        gaps += (Gap("stacks_more_processes", source, reason, got="1", asked=str(len(found))),)
    return (found[0] if found else None), gaps


def read_all_stacks(
    data: bytes, source: str, resource: Resource, sample: str, time: float | None, *, child: bool = False
) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
    """Return the stacks of every process in `data`, in order: children, and ranks if the file covers a whole job."""
    base = StackSample(source, resource, sample, time, (), child)
    if not data.strip():
        return (), (stack_gap("stacks_empty", source, "the file is empty"),)
    if data.lstrip()[:1] in {b"[", b"{"} and b'"frames"' in data:
        return read_json(data, base)
    cut = len(data) > MOST_BYTES
    found, gaps = StackTextReader(base).read(data[:MOST_BYTES])
    if cut:
        gaps += (stack_gap("stacks_cut", source, f"only the first {MOST_BYTES} bytes were read"),)
    return found, gaps
