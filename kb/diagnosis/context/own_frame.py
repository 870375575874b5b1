"""The innermost frame of the run's own code in the traceback of a finding."""

from __future__ import annotations

from kb.facts.chained_exceptions import structure_start
from kb.facts.job_facts import Facts
from kb.facts.signals import Signal
from kb.model import Structure
from kb.regex.lazy import lazy_compile

LIBRARY = lazy_compile(
    r"(?:site|dist)-packages[/\\]|/lib/python3|\\[Ll]ib\\[^\\]{1,60}\.py:\d|^<|[/\\](?:bin|Scripts)[/\\][^/\\]{1,60}:\d|/opt/conda/lib/|\.pyx:\d"
)
# without a function: where the source that a SyntaxError is about stands
_FRAME = lazy_compile(r"(?P<file>[^\n]{1,300}:\d{1,9})(?: in (?P<function>[^\n]{1,120}))?")
_NEAR = 400  # bytes between two exceptions of a chain
_SHOWN = 3  # parts of a path that are shown


def own_frame(signal: Signal, facts: Facts) -> str:
    """Return the innermost frame outside libraries as `folder/file.py:12 in function`; empty if there is none."""
    raised = facts.streams[signal.stream].exceptions
    own = [item for item in raised if structure_start(item) <= signal.offset < item.end]
    if any(item.fields.get("chained") == "cause" for item in own):  # raised again; the first of the chain says where
        own = [*(item for item in raised if item.fields.get("chain") == 0 and _beside(item, own[0])), *own]
    return next(filter(None, map(innermost, own)), "")


def _beside(first: Structure, last: Structure) -> bool:
    """Whether two exceptions of a chain follow each other directly."""
    gaps = structure_start(first) - last.end, structure_start(last) - first.end
    return first.resource.rank == last.resource.rank and any(0 <= gap < _NEAR for gap in gaps)


def innermost(exception: Structure) -> str:
    """Return the innermost frame of one exception outside libraries; empty if there is none."""
    frames = str(exception.fields.get("frames") or "").splitlines()
    own = [found for frame in reversed(frames) if not LIBRARY.search(frame) and (found := _FRAME.fullmatch(frame))]
    if not own:
        return ""
    between = "/" if "/" in own[0]["file"] else "\\"  # the latter on Windows
    file = between.join(own[0]["file"].split(between)[-_SHOWN:])
    return file if own[0]["function"] in (None, "<module>") else f"{file} in {own[0]['function']}"
