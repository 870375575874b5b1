"""Whether a rule's condition holds: true, false or unknown, and the signals that make it so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kb.evidence import CLOCK_SKEW, Facts, History, Seen, Signal
from kb.rule import Absent, All, Any, Condition, Count, Join, Name, Not, Past, Ranks, Rule, Span
from kb.rule import Sequence as InOrder

Truth = bool | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a condition came to. `signals` support a true one; `needs` says what an unknown one lacks."""

    truth: Truth
    signals: tuple[Signal, ...] = ()
    needs: str = ""


NO = Answer(False)


class Evaluator:
    """Judges one rule on the facts of one job."""

    def __init__(self, rule: Rule, facts: Facts, history: History) -> None:
        self._facts, self._history = facts, history
        self._seen: Mapping[str, Seen] = {pattern.name: facts.seen(rule, pattern) for pattern in rule.patterns}
        self._rule = rule

    def judge(self) -> Answer:
        """The rule's condition, less its exceptions."""
        if not any(seen.count for seen in self._seen.values()):
            return NO
        answer = self.condition(self._rule.when)
        if answer.truth is not True:
            return answer
        for exception in self._rule.not_when:
            if self.condition(exception.condition).truth is True:
                return NO
        return answer

    def tally(self, signals: Iterable[Signal]) -> tuple[int, frozenset[int]]:
        """How often the patterns behind these signals were seen, and on which ranks: all of them, not only those kept."""
        names = {signal.key.rpartition("#")[2] for signal in signals}
        seen = [self._seen[name] for name in sorted(names)]
        ranks = frozenset(rank for one in seen for rank in one.ranks if rank is not None)
        return sum(one.count for one in seen), ranks

    def condition(self, condition: Condition) -> Answer:
        """Dispatch on the kind of condition."""
        if isinstance(condition, Name):
            seen = self._seen[condition.name]
            return Answer(True, seen.signals) if seen.count else NO
        if isinstance(condition, All):
            return self._all(condition)
        if isinstance(condition, Any):
            return _either([self.condition(part) for part in condition.parts])
        if isinstance(condition, Not):
            inner = self.condition(condition.part)
            return Answer(None, needs=inner.needs) if inner.truth is None else Answer(not inner.truth)
        if isinstance(condition, InOrder):
            return self._sequence(condition)
        if isinstance(condition, Count):
            return self._count(condition)
        if isinstance(condition, Absent):
            return self._absent(condition)
        if isinstance(condition, Ranks):
            return self._ranks(condition)
        return self._past(condition)

    def _all(self, condition: All) -> Answer:
        answers = [self.condition(part) for part in condition.parts]
        joined = _both(answers)
        if joined.truth is not True or (condition.same is None and condition.within == Span()):
            return joined
        positive = [answer.signals for answer in answers if answer.signals]
        return _together(positive, condition.same, condition.within)

    def _sequence(self, condition: InOrder) -> Answer:
        steps = [self._seen[name].signals for name in condition.order]
        if not all(steps):
            return NO
        answers = [_in_order(group, condition.within) for group in _grouped(steps, condition.same) if all(group)]
        return _either(answers) if answers else NO

    def _count(self, condition: Count) -> Answer:
        seen = self._seen[condition.of]
        if condition.same is not None or condition.within != Span():
            groups = [group[0] for group in _grouped([seen.signals], condition.same)]
            return _either([_dense(group, condition) for group in groups]) if groups else NO
        low = condition.at_least is None or seen.count >= condition.at_least
        high = condition.at_most is None or seen.count <= condition.at_most
        return Answer(True, seen.signals) if low and high and seen.count else NO

    def _absent(self, condition: Absent) -> Answer:
        anchors = self._seen[condition.anchor].signals
        others = self._seen[condition.of].signals
        if not anchors:
            return NO
        alone = [anchor for anchor in anchors if not any(_on_side(condition, anchor, other) for other in others)]
        return Answer(True, tuple(alone)) if alone else NO

    def _ranks(self, condition: Ranks) -> Answer:
        seen = self._seen[condition.of]
        ranks = {rank for rank in seen.ranks if rank is not None}
        if not seen.count:
            return NO
        if not ranks:
            return Answer(None, needs="ranks of the lines")
        total = self._facts.ranks_known()
        if condition.first:
            return Answer(True, tuple(sorted(seen.signals, key=_order)[:1]))
        if (
            condition.fraction_at_least is not None
            or condition.fraction_at_most is not None
            or condition.all_but is not None
        ):
            if not total:
                return Answer(None, needs="the number of ranks")
            share = len(ranks) / total
            if condition.fraction_at_least is not None and share < condition.fraction_at_least:
                return NO
            if condition.fraction_at_most is not None and share > condition.fraction_at_most:
                return NO
            if condition.all_but is not None and len(ranks) != total - condition.all_but:
                return NO
        if condition.at_least is not None and len(ranks) < condition.at_least:
            return NO
        if condition.at_most is not None and len(ranks) > condition.at_most:
            return NO
        return Answer(True, seen.signals)

    def _past(self, condition: Past) -> Answer:
        here = {s.resource.node for seen in self._seen.values() for s in seen.signals} - {None}
        matching = [
            one
            for one in self._history.past
            if one.days_ago <= condition.within_days
            and (condition.fault is None or one.fault == condition.fault)
            and (condition.rule is None or one.rule == condition.rule)
            and (condition.same != "node" or one.node in here)
            and (condition.same != "job" or one.job == self._facts.evidence.job.name)
        ]
        return Answer(len(matching) >= condition.at_least)


def _both(answers: Sequence[Answer]) -> Answer:
    if any(answer.truth is False for answer in answers):
        return NO
    unknown = [answer for answer in answers if answer.truth is None]
    if unknown:
        return Answer(None, needs=unknown[0].needs)
    return Answer(True, tuple(signal for answer in answers for signal in answer.signals))


def _either(answers: Sequence[Answer]) -> Answer:
    signals = tuple(signal for answer in answers if answer.truth for signal in answer.signals)
    if any(answer.truth for answer in answers):
        return Answer(True, signals)
    unknown = [answer for answer in answers if answer.truth is None]
    return Answer(None, needs=unknown[0].needs) if unknown else NO


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
    keys = sorted({_key(signal, same) for signals in lists for signal in signals}, key=repr)
    return [[tuple(s for s in signals if _key(s, same) == key) for signals in lists] for key in keys if key is not None]


def _together(lists: Sequence[Sequence[Signal]], same: Join | None, within: Span) -> Answer:
    groups = [group for group in _grouped(lists, same) if all(group)]
    if not groups:
        unknown = same is not None and any(_key(s, same) is None for signals in lists for s in signals)
        return Answer(None, needs=f"which {same} each line came from") if unknown else NO
    return _either([_close(group, within) for group in groups])


def _close(group: Sequence[Sequence[Signal]], within: Span) -> Answer:
    everything = tuple(signal for signals in group for signal in signals)
    if within == Span():
        return Answer(True, everything)
    unknown = False
    for anchor in group[0]:
        near = [[s for s in signals if _distance(anchor, s, within) is True] for signals in group[1:]]
        if all(near):
            return Answer(True, (anchor, *(s for signals in near for s in signals)))
        unknown |= any(_distance(anchor, s, within) is None for signals in group[1:] for s in signals)
    return Answer(None, needs="times of the lines") if unknown else NO


def _distance(left: Signal, right: Signal, within: Span) -> Truth:
    """Whether two signals stand within a span of each other; None where that cannot be told."""
    if within.lines is not None:
        # a line is taken as 120 bytes: exact numbers would cost a pass over the text
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


def _in_order(steps: Sequence[Sequence[Signal]], within: Span) -> Answer:
    unknown = False
    for first in steps[0]:
        path = [first]
        for signals in steps[1:]:
            following = [s for s in signals if _before(path[-1], s) and _distance(path[-1], s, within)]
            unknown |= any(_before(path[-1], s) is None or _distance(path[-1], s, within) is None for s in signals)
            if not following:
                break
            path.append(following[0])
        if len(path) == len(steps):
            return Answer(True, tuple(path))
    return Answer(None, needs="times of the lines") if unknown else NO


def _dense(signals: Sequence[Signal], condition: Count) -> Answer:
    """Whether enough (few enough) of the signals stand within the span."""
    low = condition.at_least or 1
    if condition.within.seconds is not None and any(signal.time is None for signal in signals):
        return Answer(None, needs="times of the lines")
    ordered = sorted(signals, key=_order)
    best: tuple[Signal, ...] = ()
    for index, first in enumerate(ordered):
        near = tuple(s for s in ordered[index:] if _distance(first, s, condition.within))
        best = max(best, near, key=len)
    enough = len(best) >= low and (condition.at_most is None or len(best) <= condition.at_most)
    return Answer(True, best) if enough else NO


def _on_side(condition: Absent, anchor: Signal, other: Signal) -> bool:
    if _distance(anchor, other, condition.within) is False:
        return False
    if condition.side == "around":
        return True
    first, second = (anchor, other) if condition.side == "after" else (other, anchor)
    return _before(first, second) is not False


def _order(signal: Signal) -> tuple[float, int, int]:
    return (signal.time if signal.time is not None else float("inf"), signal.stream, signal.offset)


def by_time(signals: Iterable[Signal]) -> list[Signal]:
    """Signals in order of time where known, then stream, then offset."""
    return sorted(signals, key=_order)


def grouped_by(signals: Iterable[Signal], key: Callable[[Signal], str]) -> dict[str, tuple[Signal, ...]]:
    """Signals by a text key, keys in order."""
    ordered = sorted(signals, key=key)
    return {name: tuple(group) for name, group in groupby(ordered, key=key)}
