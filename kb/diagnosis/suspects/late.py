"""The rank that others waited for without success: how it differs from them, and what it said last."""

from __future__ import annotations

from collections.abc import Sequence

from kb.anomalies.core.severity_words import skeleton
from kb.diagnosis.bad_events import BadEvents, TailLine, is_stack, tells_of_others
from kb.diagnosis.context.own_frame import LIBRARY
from kb.diagnosis.early_ends import FEWEST_WORDS, WORDS, is_trouble
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import WAITING_FAULTS
from kb.diagnosis.suspects.missing import SEVERAL, JobLayout
from kb.diagnosis.suspects.ranking import with_scores
from kb.diagnosis.symptoms import PEER_LOST
from kb.facts.topology import Places
from kb.parsers.logs.error_lines import message_of
from kb.parsers.logs.progress.formats import read_line
from kb.regex.lazy import lazy_compile
from kb.report import WAITING, Suspect

_ROUTINE = lazy_compile(r"(?i)(?:^|[\s\[(|<\"=])(?:info|debug|trace|notice)(?=[\s\])|>:,\"])")
INNERMOST_FIRST = "(most recent call first)"  # in the header of a stack that faulthandler dumps
TIMED_OUT = "collective_timeout"  # id of the fault class


def came_too_late(ranked: Ranked, layout: JobLayout) -> tuple[Suspect, ...]:
    """Return the one rank that did not time out where all others did, and that lost them when it came.

    A rank that comes after the others' timeout finds their connections closed.
    """
    places = layout.places
    timed_out = frozenset[int]().union(*(item.ranks for item in layout.findings if item.fault.id == TIMED_OUT))
    lost = frozenset[int]().union(*(item.ranks for item in layout.findings if item.fault.id == PEER_LOST)) - timed_out
    if ranked.best.fault.id != TIMED_OUT or len(timed_out) < SEVERAL or len(lost) != 1:
        return ()
    if len(timed_out | lost) != places.world:
        return ()
    (rank,) = lost
    why = f"{places.share(len(timed_out))} timed out; this one lost them later"
    return with_scores([Suspect("rank", places.node_of(rank), rank, why=why)])


def last_said(ranked: Ranked, suspects: Sequence[Suspect], layout: JobLayout) -> TailLine | None:
    """Return the last line unique to the only suspect of a wait that it wrote after its last step; None if there is none.

    Lines that report trouble come before others, and routine messages last. A line is of its own kind if no other rank wrote
    one of this form. Of a rank that ran another size than the others, the line that shows it.
    """
    if suspects and ranked.best.fault.id == "collective_desync":
        from kb.diagnosis.suspects.odd_sizes import odd_size  # noqa: PLC0415 - few failures have sizes

        odd = odd_size(ranked, layout.facts, layout.places)
        if odd is not None and odd.rank == suspects[0].rank:
            return odd.line
    best = ranked.best
    ranks = [item.rank for item in suspects if item.rank is not None and item.why != WAITING]
    if not (best.is_symptom or best.fault.id in WAITING_FAULTS) or len(ranks) != 1 or len(suspects) != 1:
        return None
    if ranks[0] in best.ranks:
        return None
    mine, others = _lines(BadEvents(layout.facts, layout.places), ranks[0], layout.places)
    told = {skeleton(message_of(item.line)) for item in others}
    own = [item for item in _after_steps(mine) if skeleton(message_of(item.line)) not in told and _is_message(item)]
    return max(own, key=_telling, default=None) or _frame_of_dump(_after_steps(mine))


def _frame_of_dump(lines: Sequence[TailLine]) -> TailLine | None:
    """Return the innermost frame of the run's own code in the last stack, innermost first, that a log ends with."""
    headers = [at for at, item in enumerate(lines) if INNERMOST_FIRST in item.message]
    frames = lines[headers[-1] + 1 :] if headers else ()
    found = (item for item in frames if item.message.lstrip().startswith('File "'))
    return next((item for item in found if LIBRARY.search(item.message) is None), None)


def _lines(bad: BadEvents, rank: int, places: Places) -> tuple[list[TailLine], list[TailLine]]:
    """Return the last lines of a rank, and those of all others."""
    mine: list[TailLine] = []
    others: list[TailLine] = []
    for index, stream in enumerate(bad.facts.streams):
        if stream.summary.ref.kind == "job":
            for item in bad.tail(index):
                (mine if places.place(index, item.resource).rank == rank else others).append(item)
    return mine, others


def _after_steps(lines: Sequence[TailLine]) -> Sequence[TailLine]:
    """Return the lines after the last that reports a step."""
    steps = [at for at, item in enumerate(lines) if read_line(item.line.encode("utf-8", "replace")) is not None]
    return lines[steps[-1] + 1 :] if steps else lines


def _telling(item: TailLine) -> tuple[bool, bool, int, int]:
    """Return how much a line tells; the later of two alike tells more."""
    return (is_trouble(item), _ROUTINE.search(item.line[:160]) is None, item.stream, item.offset)


def _is_message(item: TailLine) -> bool:
    said = message_of(item.line)
    return len(WORDS.findall(said)) >= FEWEST_WORDS and not (is_stack(item.message) or tells_of_others(said))
