"""Evaluates a rule's condition as true, false or unknown, with the signals that support the result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kb.facts.history import History
from kb.facts.job_facts import CLOCK_SKEW
from kb.facts.patterns.lookup import PatternLookup
from kb.facts.patterns.signals import PatternResult, Signal
from kb.rulebase.condition_parts import names
from kb.rulebase.rule import Absent, All, Any, Condition, Count, Join, Name, Not, Past, Ranks, Rule, Span
from kb.rulebase.rule import Sequence as InOrder
from kb.values import dataclass

Truth = bool | None


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The result of a condition. `signals` support a true result; `needs` says what an unknown result lacks."""

    truth: Truth
    signals: tuple[Signal, ...] = ()
    needs: str = ""


NO = ConditionResult(False)


class Evaluator:
    """Evaluates one rule on the facts of one job."""

    def __init__(self, rule: Rule, lookup: PatternLookup, history: History) -> None:
        self._facts, self._history = lookup.facts, history
        self._seen: Mapping[str, PatternResult] = {
            pattern.name: lookup.look_up(rule, pattern) for pattern in rule.patterns
        }
        self._rule = rule

    def judge(self) -> ConditionResult:
        """Evaluate the rule's condition and its exceptions."""
        if not any(seen.count or seen.needs for seen in self._seen.values()):
            return NO
        answer = self.condition(self._rule.when)
        if answer.truth is not True:
            return answer
        for exception in self._rule.not_when:
            if self.condition(exception.condition).truth is True:
                return NO
        return answer

    def tally(self, signals: Iterable[Signal]) -> tuple[int, frozenset[int]]:
        """Return how often the patterns of these signals were found, and on which ranks.

        Counts all hits, not only those kept.
        """
        names = {signal.key.rpartition("#")[2] for signal in signals}
        seen = [self._seen[name] for name in sorted(names)]
        ranks = frozenset(rank for item in seen for rank in item.ranks if rank is not None)
        return sum(item.count for item in seen), ranks

    def condition(self, condition: Condition) -> ConditionResult:
        """Evaluate a condition by its type."""
        if isinstance(condition, Name):
            seen = self._seen[condition.name]
            if seen.needs:
                return ConditionResult(None, needs=seen.needs)
            return ConditionResult(True, seen.signals) if seen.count else NO
        if isinstance(condition, All):
            return self._all(condition)
        if isinstance(condition, Any):
            return _either([self.condition(part) for part in condition.parts])
        if isinstance(condition, Not):
            inner = self.condition(condition.part)
            return ConditionResult(None, needs=inner.needs) if inner.truth is None else ConditionResult(not inner.truth)
        return self._over_places(condition)

    def _over_places(self, condition: InOrder | Count | Absent | Ranks | Past) -> ConditionResult:
        lacking = [self._seen[name].needs for name in sorted(names(condition)) if self._seen[name].needs]
        if lacking:
            return ConditionResult(None, needs=lacking[0])
        if isinstance(condition, InOrder):
            return self._sequence(condition)
        if isinstance(condition, Count):
            return self._count(condition)
        if isinstance(condition, Absent):
            return self._absent(condition)
        if isinstance(condition, Ranks):
            return self._ranks(condition)
        return self._past(condition)

    def _all(self, condition: All) -> ConditionResult:
        answers = [self.condition(part) for part in condition.parts]
        joined = _both(answers)
        if joined.truth is not True or (condition.same is None and condition.within == Span()):
            return joined
        positive = [answer.signals for answer in answers if answer.signals]
        return _together(positive, condition.same, condition.within)

    def _sequence(self, condition: InOrder) -> ConditionResult:
        steps = [self._seen[name].signals for name in condition.order]
        if not all(steps):
            return NO
        groups = [group for group in _grouped(steps, condition.same) if all(group)]
        if not groups:
            return _apart(steps, condition.same)
        return _either([_in_order(group, condition.within) for group in groups])

    def _count(self, condition: Count) -> ConditionResult:
        seen = self._seen[condition.of]
        if condition.same is not None or condition.within != Span():
            groups = [group[0] for group in _grouped([seen.signals], condition.same)]
            if not groups:
                return _apart([seen.signals], condition.same)
            answer = _either([_dense(group, condition) for group in groups])
            partial = seen.count > len(seen.signals)
            if partial and (answer.truth is False if condition.at_most is None else answer.truth is True):
                return ConditionResult(None, needs="the places of all lines, not only the first and last few")
            return answer
        low = condition.at_least is None or seen.count >= condition.at_least
        high = condition.at_most is None or seen.count <= condition.at_most
        return ConditionResult(True, seen.signals) if low and high and seen.count else NO

    def _absent(self, condition: Absent) -> ConditionResult:
        anchors = self._seen[condition.anchor].signals
        others = self._seen[condition.of].signals
        if not anchors:
            return NO
        partial = self._seen[condition.of].count > len(others) and condition.within != Span()
        near = [(anchor, _any_of(_on_side(condition, anchor, other) for other in others)) for anchor in anchors]
        alone = tuple(anchor for anchor, truth in near if truth is False)
        if alone and not partial:
            return ConditionResult(True, alone)
        if alone:
            return ConditionResult(None, needs="the places of all lines, not only the first and last few")
        return ConditionResult(None, needs="times of the lines") if any(truth is None for _, truth in near) else NO

    def _ranks(self, condition: Ranks) -> ConditionResult:
        seen = self._seen[condition.of]
        ranks = {rank for rank in seen.ranks if rank is not None}
        if not seen.count:
            return NO
        if not ranks:
            return ConditionResult(None, needs="ranks of the lines")
        if condition.first:
            return ConditionResult(True, tuple(by_time(seen.signals)[:1]))
        enough = _of_total(condition, len(ranks), self._facts.ranks_known())
        if enough is None:
            return ConditionResult(None, needs="the number of ranks")
        return ConditionResult(True, seen.signals) if enough and _within(condition, len(ranks)) else NO

    def _past(self, condition: Past) -> ConditionResult:
        here = self._places(condition.same)
        matching = [
            past_incident
            for past_incident in self._history.past
            if past_incident.days_ago <= condition.within_days
            and (condition.fault is None or past_incident.fault == condition.fault)
            and (condition.rule is None or past_incident.rule == condition.rule)
        ]
        if not here and len(matching) >= condition.at_least:
            return ConditionResult(None, needs=f"the {condition.same} of each line")
        return ConditionResult(
            sum(getattr(past_incident, condition.same) in here for past_incident in matching) >= condition.at_least
        )

    def _places(self, same: str) -> set[str]:
        """Return the node (GPU, job) where the signal was found; None if unknown."""
        signals = [signal for seen in self._seen.values() for signal in seen.signals]
        if same == "job":
            found = {self._facts.evidence.job.name}
        elif same == "node":
            found = {signal.resource.node for signal in signals}
        else:
            found = {signal.captures.get("pci") or signal.resource.gpu for signal in signals}
        return {name for name in found if name is not None}


def _both(answers: Sequence[ConditionResult]) -> ConditionResult:
    if any(answer.truth is False for answer in answers):
        return NO
    unknown = [answer for answer in answers if answer.truth is None]
    if unknown:
        return ConditionResult(None, needs=unknown[0].needs)
    return ConditionResult(True, tuple(signal for answer in answers for signal in answer.signals))


def _either(answers: Sequence[ConditionResult]) -> ConditionResult:
    signals = tuple(signal for answer in answers if answer.truth for signal in answer.signals)
    if any(answer.truth for answer in answers):
        return ConditionResult(True, signals)
    unknown = [answer for answer in answers if answer.truth is None]
    return ConditionResult(None, needs=unknown[0].needs) if unknown else NO


def _any_of(truths: Iterable[Truth]) -> Truth:
    best: Truth = False
    for truth in truths:
        if truth:
            return True
        best = None if truth is None else best
    return best


def _of_total(condition: Ranks, number: int, total: int) -> Truth:
    """Whether this many ranks reach the share that a condition requires; None if the job's size is unknown."""
    low, high, but = condition.fraction_at_least, condition.fraction_at_most, condition.all_but
    if low is None and high is None and but is None:
        return True
    if not total:
        return None
    share = number / total
    return (low is None or share >= low) and (high is None or share <= high) and (but is None or number == total - but)


def _within(condition: Ranks, number: int) -> bool:
    low, high = condition.at_least, condition.at_most
    return (low is None or number >= low) and (high is None or number <= high)


def _key(signal: Signal, same: Join | None) -> object:
    if same is None:
        return ()
    if same == "stream":
        return signal.stream
    if same == "node":
        return signal.resource.node
    if same == "rank":
        return signal.resource.rank
    if same == "gpu":
        return signal.captures.get("pci") or signal.resource.gpu
    return signal.captures.get("comm") or signal.captures.get("pg")


def _grouped(lists: Sequence[Sequence[Signal]], same: Join | None) -> list[list[tuple[Signal, ...]]]:
    groups: dict[object, list[list[Signal]]] = {}
    for index, signals in enumerate(lists):
        for signal in signals:
            key = _key(signal, same)
            if key is not None:
                groups.setdefault(key, [[] for _ in lists])[index].append(signal)
    return [[tuple(signals) for signals in groups[key]] for key in sorted(groups, key=repr)]


def _apart(lists: Sequence[Sequence[Signal]], same: Join | None) -> ConditionResult:
    """Return the result when no node (rank, …) satisfies all parts; unknown if a line names no node (rank, …)."""
    unknown = same is not None and any(_key(s, same) is None for signals in lists for s in signals)
    return ConditionResult(None, needs=f"the {same} of each line") if unknown else NO


def _together(lists: Sequence[Sequence[Signal]], same: Join | None, within: Span) -> ConditionResult:
    groups = [group for group in _grouped(lists, same) if all(group)]
    if not groups:
        return _apart(lists, same)
    return _either([_close(group, within) for group in groups])


def _close(group: Sequence[Sequence[Signal]], within: Span) -> ConditionResult:
    everything = tuple(signal for signals in group for signal in signals)
    if within == Span():
        return ConditionResult(True, everything)
    unknown = False
    for anchor in group[0]:
        near = [[s for s in signals if _distance(anchor, s, within) is True] for signals in group[1:]]
        if all(near):
            return ConditionResult(True, (anchor, *(s for signals in near for s in signals)))
        unknown |= any(_distance(anchor, s, within) is None for signals in group[1:] for s in signals)
    return ConditionResult(None, needs="times of the lines") if unknown else NO


def _distance(left: Signal, right: Signal, within: Span) -> Truth:
    """Whether two signals lie within a span of each other; None if unknown."""
    if within.lines is not None:
        # assume 120 bytes per line, since exact line numbers would need a pass over the text
        return left.stream == right.stream and abs(left.offset - right.offset) <= within.lines * 120
    if within.seconds is None:
        return True
    if left.time is None or right.time is None:
        return None
    skew = CLOCK_SKEW if left.stream != right.stream else 0.0
    return abs(left.time - right.time) <= within.seconds + skew


def _before(left: Signal, right: Signal) -> Truth:
    if left.stream == right.stream:
        return left.offset < right.offset
    if left.time is None or right.time is None:
        return None
    return left.time <= right.time + CLOCK_SKEW


def _in_order(steps: Sequence[Sequence[Signal]], within: Span) -> ConditionResult:
    """Whether some path leads through all steps. Every signal that a step can reach is carried to the next."""
    unknown = False
    paths: list[tuple[Signal, ...]] = [(signal,) for signal in by_time(steps[0])]
    for signals in steps[1:]:
        reached: list[tuple[Signal, ...]] = []
        for signal in by_time(signals):
            truth, path = _reached(paths, signal, within)
            unknown |= truth is None
            if truth:
                reached.append((*path, signal))
        paths = reached
    if paths:
        return ConditionResult(True, paths[0])
    return ConditionResult(None, needs="times of the lines") if unknown else NO


def _reached(paths: Sequence[tuple[Signal, ...]], signal: Signal, within: Span) -> tuple[Truth, tuple[Signal, ...]]:
    """Whether a signal follows the end of some path, and the first such path."""
    best: Truth = False
    for path in paths:
        truth = _follows(path[-1], signal, within)
        if truth:
            return True, path
        best = None if truth is None else best
    return best, ()


def _follows(left: Signal, right: Signal, within: Span) -> Truth:
    before, near = _before(left, right), _distance(left, right, within)
    if before is False or near is False:
        return False
    return None if before is None or near is None else True


def _dense(signals: Sequence[Signal], condition: Count) -> ConditionResult:
    """Whether at least (at most) the required number of signals lies within the span."""
    low = condition.at_least or 1
    if condition.within.seconds is not None and any(signal.time is None for signal in signals):
        return ConditionResult(None, needs="times of the lines")
    ordered = by_time(signals)
    best: tuple[Signal, ...] = ()
    for index, first in enumerate(ordered):
        near = tuple(s for s in ordered[index:] if _distance(first, s, condition.within))
        best = max(best, near, key=len)
    enough = len(best) >= low and (condition.at_most is None or len(best) <= condition.at_most)
    return ConditionResult(True, best) if enough else NO


def _on_side(condition: Absent, anchor: Signal, other: Signal) -> Truth:
    if condition.side == "around":
        return _distance(anchor, other, condition.within)
    first, second = (anchor, other) if condition.side == "after" else (other, anchor)
    return _follows(first, second, condition.within)


def by_time(signals: Iterable[Signal]) -> list[Signal]:
    """Sort signals by time, then stream, then offset. Streams without times come last.

    A signal without a time takes the time of the one before it in its stream, or else of the one after it.
    """
    ordered = sorted(signals, key=lambda signal: (signal.stream, signal.offset))
    times: list[float | None] = [signal.time for signal in ordered]
    for places in (range(1, len(ordered)), range(len(ordered) - 2, -1, -1)):
        step = places.step
        for at in places:
            if times[at] is None and ordered[at].stream == ordered[at - step].stream:
                times[at] = times[at - step]
    known = [(math.inf if time is None else time, at) for at, time in enumerate(times)]
    return [ordered[at] for _, at in sorted(known)]
