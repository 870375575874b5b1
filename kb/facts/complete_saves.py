"""The step of the last checkpoint that is complete and still there: what a run can resume from.

A line about a save proves little by itself: some programs log only its begin, some log each of its files, and some only
schedule it. Nothing here knows which framework a line is from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kb.facts.job_facts import Facts
from kb.facts.log.stream_facts import StreamFacts
from kb.model import Structure
from kb.regex.lazy import lazy_compile

_SCHEDULED = lazy_compile(r"(?i)\bschedul\w{1,4} (?:an? )?async")  # steps go on while it is written
_ONE_FILE = lazy_compile(r"\[Torch\] Saved |Saved (?:model|optimizer) (?:parameters|file|state) to: ")


def last_complete_save(facts: Facts) -> int | None:
    """Return the step of the last checkpoint whose end was logged or whose start was followed by steps, and not deleted since."""
    done: list[int] = []
    parts: dict[int, set[str]] = {}
    deleted: set[int] = set()
    for index, item in facts.structures("checkpoint"):
        stream, event = facts.streams[index], item.fields.get("event")
        number = _step_of(item, stream)
        if number is None:
            continue
        if event == "delete":
            deleted.add(number)
        elif event not in ("save_begin", "save_end"):
            continue
        elif _ONE_FILE.search(item.line):
            done.extend([number] if _went_on(item, number, stream) else [])
        elif item.fields.get("part") is not None:
            parts.setdefault(number, set()).add(str(item.fields.get("path")).replace(str(number), ""))
        elif event == "save_end" or _went_on(item, number, stream):
            done.append(number)
    return max((step for step in (*done, *_of_all_ranks(parts, facts)) if step not in deleted), default=None)


def _step_of(item: Structure, stream: StreamFacts) -> int | None:
    stated: object = item.fields.get("iteration")
    if stated is None and item.fields.get("event") == "save_end":
        stated = _begun(item, stream)
    if stated is None:
        return stream.run_iteration(item.offset)
    try:
        return int(str(stated))
    except ValueError:
        return None


def _begun(end: Structure, stream: StreamFacts) -> object:
    """Return the step that the begin of the save states that a line ends, if that line states none; None if it does not.

    A path says which of several saves ends; without one it is the last that began since the last logged step.
    """
    path, step = end.fields.get("path"), stream.run_iteration(end.offset)
    begun = [
        item
        for item in stream.checkpoints
        if item.offset < end.offset
        and item.fields.get("event") == "save_begin"
        and (path is None or item.fields.get("path") == path)
        and not _SCHEDULED.search(item.line)
        and stream.run_iteration(item.offset) == step
    ]
    return begun[-1].fields.get("iteration") if begun else None


def _went_on(item: Structure, number: int, stream: StreamFacts) -> bool:
    """Whether steps, or the removal of an older checkpoint to make room, show that a begun save has ended."""
    if _SCHEDULED.search(item.line):
        return False
    if stream.steps_after(item.offset) >= 2:
        return True
    removed = (
        other.offset > item.offset and other.fields.get("event") == "delete" and (_step_of(other, stream) or 0) < number
        for other in stream.checkpoints
    )
    return any(removed)


def _of_all_ranks(parts: Mapping[int, set[str]], facts: Facts) -> Iterator[int]:
    """Yield the steps of checkpoints that have as many files as any, and one for each rank that logs steps."""
    ranks = {point.rank for stream in facts.streams for point in stream.points} - {None}
    wanted = max((len(ranks), *map(len, parts.values())))
    return (step for step, files in parts.items() if len(files) == wanted)
