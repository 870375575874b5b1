"""The Python line of a native crash, in the stack that the interpreter prints of its thread."""

from __future__ import annotations

from kb.diagnosis.context.own_frame import shown_frame
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal

_BELOW = 512  # bytes between the interpreter's message and the stack of the thread


def crash_frame(first: Signal, facts: Facts) -> str:
    """Return the innermost frame of the stack below the first line of a crash, which the same process printed; empty without one."""
    if "Fatal Python error" not in first.line:
        return ""
    dumps = (item for index, item in facts.structures("stack_dump") if index == first.stream)
    below = next((item for item in dumps if first.offset < item.offset <= first.offset + _BELOW), None)
    own = below is not None and below.resource.rank == first.resource.rank
    frame = str(below.fields.get("frames") or "").partition("\n")[0] if below is not None and own else ""
    return shown_frame(frame) if frame else ""
