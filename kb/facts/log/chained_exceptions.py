"""Exceptions that belong to another one: raised before it in its chain, printed again right below it, or like it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kb.model import Structure
from kb.parsers.logs.exceptions.survived import reported_as_skipped
from kb.regex.lazy import lazy_compile

LINK = 400  # bytes between two exceptions of a chain
TWIN = 400  # bytes between the last lines of two exceptions that threads write at the same time
_QUOTES = " raised:"  # the exception in the next line is the one that this one wraps
_FORMATS = lazy_compile(r" in __(?:repr|str|format)__$")


def structure_start(structure: Structure) -> int:
    """Return the byte at which a structure begins, which can be before its decisive line."""
    start = structure.fields.get("start")
    return structure.offset if start is None else int(start)


def wrapped_in(exceptions: Sequence[Structure], inner: Structure) -> list[Structure]:
    """Return the exceptions of a stream that were raised from one, each from the one before, or quote it as the one that they wrap."""
    found: list[Structure] = []
    last = inner
    for item in exceptions:
        if item.offset <= last.offset:
            continue
        level = int(item.fields.get("chain") or 0)
        near = 0 <= structure_start(item) - last.end < LINK and item.resource.rank == inner.resource.rank
        if not near or item.fields.get("chained") != "cause" or level != int(last.fields.get("chain") or 0) + 1:
            break
        found.append(item)
        last = item
    quoting = [
        item
        for item in exceptions
        if item.end == inner.offset and str(item.fields.get("message") or "").endswith(_QUOTES)
    ]
    return [*found, *quoting]


def twins_of(exceptions: Sequence[Structure], excused: Sequence[Structure]) -> list[Structure]:
    """Return the exceptions without frames right below an excused one that says the same: two threads wrote at once."""
    told = {(item.fields.get("type"), item.fields.get("message"), item.end) for item in excused}
    bare = [item for item in exceptions if not item.fields.get("frames")] if told else []
    return [
        item
        for item in bare
        if any(
            (item.fields.get("type"), item.fields.get("message")) == (kind, message) and 0 <= item.offset - end <= TWIN
            for kind, message, end in told
        )
    ]


def contexts_of(exceptions: Sequence[Structure], excused: Sequence[Structure]) -> list[Structure]:
    """Return the exceptions during whose handling an excused one was raised."""
    found: list[Structure] = []
    handled = {item.offset for item in excused}
    for later, earlier in pairwise(reversed(exceptions)) if excused else ():
        linked = later.offset in handled and int(later.fields.get("chain") or 0) > 0
        beside = 0 <= structure_start(later) - earlier.end < LINK and earlier.resource.rank == later.resource.rank
        if linked and beside and earlier.offset not in handled:
            handled.add(earlier.offset)
            found.append(earlier)
    return found


def raised_in_message(exceptions: Sequence[Structure]) -> list[Structure]:
    """Return the exceptions that were raised while the text about an earlier one was formatted; that one is what happened."""
    later = (
        item for item in exceptions if int(item.fields.get("chain") or 0) > 0 and item.fields.get("chained") != "cause"
    )
    return [item for item in later if _FORMATS.search(str(item.fields.get("last_frame") or ""))]


def raised_at(item: Structure) -> tuple[object, str]:
    """Return the class of an exception and the place that raised it, without Ray's count of repetitions."""
    return item.fields.get("type"), str(item.fields.get("last_frame") or "").partition(" [repeated ")[0]


def skipped_again(
    exceptions: Sequence[Structure], excused: Sequence[Structure], tail: str, first: int
) -> list[Structure]:
    """Return the exceptions that their program reports as skipped, as it did with an excused one of the same place.

    `tail`: the end of the log; `first`: its offset.
    """
    known = {raised_at(item) for item in excused if item.fields.get("last_frame")}
    alike = [item for item in exceptions if raised_at(item) in known and structure_start(item) > first] if known else []
    text = tail.encode("utf-8", "replace") if alike else b""
    return [item for item in alike if reported_as_skipped(text, structure_start(item) - first)]
