"""Corrects the model's estimates by what the order of a run proves, whatever the words of its lines.

An exception after which the job continued was caught. The first exception that nobody caught, the last line of a rank that then fell
silent, and a line that one rank repeats until the end are telling even if their words are mild. These are facts about who wrote a line
when, which synthetic runs, on which the model is fitted, show less often than real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kb.anomalies.core.run import LineRef, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, is_ordered, is_raised
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.nodes.absences import last_lines
from kb.anomalies.runs.baseline_diff import NEW

CAUGHT = 0.3  # share of the estimate that remains for an exception that was caught
MILD = 0.2  # harm of a line that says nothing bad
TROUBLE = 0.4  # harm from which on a line says that something failed
TWICE = 1.0  # powers of two by which an event must exceed the good run to count as more than chance
ORDERED = 0.75  # least estimate of what says why a scheduler ended the job
UNCAUGHT = 0.7  # least estimate of the first exception that nobody caught
FINAL = 0.6  # of the last line of one rank
REPEATED = 0.5  # of a line that one rank repeats
SAME_TIME = 2.0  # seconds within which exceptions are equally early
LEAST_REPEATED = 3
ONSET = 0.5  # of the first line that nothing before the turn, nor a good run, resembles
BEHIND = 0.3  # share of the estimate of what most ranks print after that
AT_ONCE = 0.3  # seconds within which ranks print the same
STRAY = 0.25  # such lines that may be expected by chance, as often as they come before the turn
FEW_FINAL = 2  # more ranks with a last line of their own are usual here
FEWEST_RANKS = 3
WARNED = frozenset({"warning", "error", "critical"})
MOMENT = 1.0  # seconds within which ranks print what happens to all of them
NEXT_LINES = 3  # lines of a log for each rank, likewise
TOGETHER = 1.5  # lines of each rank, at most, of what several print when they stop


@dataclass(frozen=True, slots=True)
class _Facts:
    """What holds for a run: the ranks that are compared, when the first uncaught exception came, which events are last lines.

    `ended`: the nodes that either is of. `onset`: events with which few began to print what is strange, when the run had turned; `behind`:
    those that most printed after it.

    A node has several speakers, and its last line is seldom a last word: only ranks count.
    """

    ranks: frozenset[str]
    first: float | None
    finals: frozenset[str]
    ended: frozenset[str]
    onset: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()


def corrected_scores(
    measured: Sequence[MeasuredEvent], scores: Sequence[float], run: RunProfile, *, filtered: bool
) -> tuple[float, ...]:
    """The estimates of events, corrected. `filtered`: a good run is known; without one, less is new for sure."""
    facts = _facts(measured, run, filtered)
    return tuple(_corrected(item, score, facts) for item, score in zip(measured, scores, strict=True))


def _facts(measured: Sequence[MeasuredEvent], run: RunProfile, filtered: bool) -> _Facts:
    ranks = run.ranks
    times = [item.when for item in measured if _is_uncaught(item) and item.when is not None]
    ends = [(voice.last, voice.node) for voice in run.voices if voice.last is not None]  # of each stream of a rank
    last = {(spot.source, spot.offset): node for spot, node in ends if node in ranks and not is_body(spot.text)}
    last |= {(spot.source, spot.offset): node for node, spot in last_lines(run).items() if node in ranks}
    finals = {item.event.id for item in measured if _is_final(item, last, NEW if filtered else NEW / 2)}
    most = FEW_FINAL if filtered else 1
    told = frozenset(finals if len(finals) <= most else ())
    if filtered and not told and not times:
        told = frozenset(_of_several(measured, run) or _of_all(measured, ranks) or _of_the_log(measured, run))
    first = min(times, default=None)
    ended = {node for item in measured if item.event.id in told or _is_first(item, first) for node in item.nodes}
    onset, behind = _strange(measured, ranks or run.heard) if filtered and not times else ((), ())
    return _Facts(ranks, first, told, frozenset(ended), frozenset(onset), frozenset(behind))


def _strange(measured: Sequence[MeasuredEvent], units: frozenset[str]) -> tuple[list[str], list[str]]:
    """The events with which few units began to print what is new when the run had turned, and those that most printed after it.

    There are none if new lines come now and then all the time: then some follow the turn by chance.
    """
    new = [item for item in measured if item.fresh >= NEW and not item.consequence and item.begun is not None]
    new = [item for item in new if item.event.nodes.keys() <= units or _is_exception(item)]
    few = [item for item in new if len(item.event.nodes) * 2 <= max(2, len(units))]
    sudden = [item for item in few if item.sudden]
    if not sudden:
        return [], []
    start = min(item.begun or 0.0 for item in sudden)
    last = max(item.begun or 0.0 for item in new)
    earlier = [item.begun or 0.0 for item in few if not item.sudden]
    if earlier and len(earlier) * (last - start + AT_ONCE) > STRAY * (start - min(earlier)):
        return [], []
    first = [item for item in sudden if (item.begun or 0.0) <= start + AT_ONCE]
    wide = [item for item in new if item not in few and (item.begun or 0.0) > start]
    return [item.event.id for item in first], [item.event.id for item in wide]


def _of_several(measured: Sequence[MeasuredEvent], run: RunProfile) -> list[str]:
    """The new event that several ranks printed with their last own words, if it is the only one: they stopped for the same reason."""
    some = [
        item
        for item in measured
        if item.fresh >= NEW
        and not (item.consequence or item.caught or item.raised)
        and len(item.event.nodes) > 1
        and item.event.nodes.keys() <= run.ranks
        and item.event.count <= TOGETHER * len(item.event.nodes)
    ]
    if not some:
        return []
    ends = [(voice.node, voice.last) for voice in run.voices if voice.last is not None]
    last = {
        (node, spot.source): spot.offset
        for node, spot in ends
        if not (is_consequence(spot.text) or is_raised(spot.text) or is_body(spot.text))
    }
    for item in measured:
        if not item.consequence and not item.raised:
            for node, seen in item.event.nodes.items():
                for spot in seen.spots[-1:]:
                    last[node, spot.source] = max(spot.offset, last.get((node, spot.source), -1))
    found = [
        item
        for item in some
        if all(last[node, seen.spots[-1].source] == seen.spots[-1].offset for node, seen in item.event.nodes.items())
    ]
    return [item.event.id for item in found] if len(found) == 1 else []


def _of_all(measured: Sequence[MeasuredEvent], ranks: frozenset[str]) -> list[str]:
    """The new events that all ranks printed once, at one moment, as a warning or worse: they have it from what they share."""
    return [
        item.event.id
        for item in measured
        if item.fresh >= NEW
        and not (item.consequence or item.caught or item.raised)
        and (item.harm >= MILD or item.event.level in WARNED)
        and len(ranks) >= FEWEST_RANKS
        and item.event.nodes.keys() == ranks
        and all(seen.count == 1 for seen in item.event.nodes.values())
        and _is_at_once([seen.spots[0] for seen in item.event.nodes.values()])
    ]


def _of_the_log(measured: Sequence[MeasuredEvent], run: RunProfile) -> list[str]:
    """In one log whose ranks are not known, the new event that reports trouble in its last lines, but for what follows from the end."""
    if len(run.heard) != 1:
        return []
    own = [item for item in measured if not item.consequence]
    last = max(own, key=lambda item: max(seen.spots[-1].offset for seen in item.event.nodes.values()), default=None)
    return [last.event.id] if last is not None and last.fresh >= NEW and last.harm >= TROUBLE else []


def _is_exception(item: MeasuredEvent) -> bool:
    """Whether it is the last line of a traceback, also of one that ended only a thread."""
    return is_raised(item.spot.text) or is_raised(item.event.text)


def _is_first(item: MeasuredEvent, first: float | None) -> bool:
    """Whether an event is an uncaught exception, as early as any."""
    return _is_uncaught(item) and (first is None or item.when is None or item.when <= first + SAME_TIME)


def _is_uncaught(item: MeasuredEvent) -> bool:
    return item.raised and not item.caught and not item.consequence and item.fresh >= NEW / 2


def _is_final(item: MeasuredEvent, last: Mapping[tuple[str, int], str], new: float) -> bool:
    """Whether an event is new, on one unit only, and that unit's last line."""
    if item.fresh < new or item.consequence or len(item.event.nodes) != 1:
        return False
    return any((spot.source, spot.offset) in last for seen in item.event.nodes.values() for spot in seen.spots)


def _corrected(item: MeasuredEvent, score: float, facts: _Facts) -> float:
    if item.caught or _is_usual(item):
        return CAUGHT * score
    least = _least(item, facts)
    if least is not None:
        return max(score, least)
    if item.event.id in facts.behind or _is_after(item, facts) or _is_steady(item, facts):
        return BEHIND * score
    if _is_now_and_then(item, facts.ranks):
        return BEHIND * score
    return _of_ranks(item, score, facts) if len(facts.ranks) >= FEWEST_RANKS and item.nodes <= facts.ranks else score


def _least(item: MeasuredEvent, facts: _Facts) -> float | None:
    """The least estimate of what the order of the run proves to be telling."""
    if item.fresh >= NEW / 2 and is_ordered(item.spot.text):
        return ORDERED
    if _is_first(item, facts.first):
        return UNCAUGHT
    if item.event.id in facts.onset and not (item.passed and facts.finals):
        return FINAL if item.event.id in facts.finals and item.nodes <= facts.ranks else ONSET
    return FINAL if item.event.id in facts.finals and not facts.ranks else None


def _is_after(item: MeasuredEvent, facts: _Facts) -> bool:
    """Whether ranks other than those that ended first printed it, since an exception of those, or before, and continued."""
    if item.raised or item.nodes & facts.ended or not item.nodes <= facts.ranks:
        return False
    if facts.first is not None and item.begun is not None and item.begun > facts.first:
        return True
    return bool(facts.onset) and item.passed and not item.sudden


def _is_steady(item: MeasuredEvent, facts: _Facts) -> bool:
    """Whether most ranks print it, long before the turn as well, below the level of a warning."""
    most = len(item.event.nodes.keys() & facts.ranks) * 2 > max(2, len(facts.ranks))
    calm = item.event.level in ("debug", "info") and item.harm < TROUBLE and not item.raised
    return most and calm and item.begun is not None and not item.sudden and not item.higher


def _is_now_and_then(item: MeasuredEvent, ranks: frozenset[str]) -> bool:
    """Whether several ranks printed it, each by itself and before the run turned: what happens to any of them now and then tells no end."""
    nodes = item.event.nodes
    if item.raised or item.sudden or item.higher or len(nodes) < 2 or len(item.nodes) < len(nodes):
        return False
    alike = len({seen.count for seen in nodes.values()}) == 1
    return nodes.keys() <= ranks and not (alike and _is_at_once([seen.spots[0] for seen in nodes.values()]))


def _is_at_once(firsts: Sequence[LineRef]) -> bool:
    """Whether lines of several ranks stand for one moment: by their times, else as nearly the next lines of their log."""
    times = [spot.time for spot in firsts if spot.time is not None]
    if len(times) == len(firsts) and any(spot.dated for spot in firsts):
        return max(times) - min(times) <= MOMENT
    lines = [spot.line for spot in firsts if spot.line is not None]
    one = len({spot.source for spot in firsts}) == 1
    return not one or len(lines) < len(firsts) or max(lines) - min(lines) <= NEXT_LINES * len(firsts)


def _of_ranks(item: MeasuredEvent, score: float, facts: _Facts) -> float:
    if item.event.id in facts.finals:
        return max(score, FINAL)
    if _is_repeated(item):
        return max(score, REPEATED)
    elsewhere = bool(facts.ended) and not item.nodes & facts.ended
    mild = item.harm < MILD or (bool(facts.finals) and not item.raised)
    return CAUGHT * score if item.passed and mild and elsewhere else score


def _is_usual(item: MeasuredEvent) -> bool:
    """Whether a healthy run prints it, too, no less often, and it says nothing bad, or several ranks said it long before the turn."""
    mild = item.harm < MILD or (len(item.event.nodes) > 1 and (item.passed or not item.sudden))
    return item.fresh == 0.0 and mild and item.features["excess"] < TWICE and not item.higher


def _is_repeated(item: MeasuredEvent) -> bool:
    """Whether one unit prints it several times up to the turn, and others hardly."""
    if item.consequence or len(item.nodes) != 1:
        return False
    seen = item.event.nodes[next(iter(item.nodes))]
    rare = item.fresh >= NEW and len(item.event.nodes) == 1
    excess = item.fresh > 0.0 and item.features["excess"] >= 1.0 and item.features["peers"] >= 1.0
    return seen.count >= LEAST_REPEATED and item.ends_near and (rare or excess)
