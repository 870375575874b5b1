"""What a digest says first: three sentences that can be read aloud, and what to do, each with its owner.

The sentences and actions are the same on the page, in the terminal and in Slack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.digest import phrases
from bot.render.text_format import few, many, short_title
from kb.digest.digest import ClassLine, Digest
from kb.digest.rows import UNKNOWN
from kb.digest.statistics import LEAST

ADMINS, ON_CALL = "Signalbox admins", "on call"
_NEW = 3  # classes named
_COSTLY = 2  # classes to act on
_LEMONS = 3
_OFTEN_WRONG = 0.3  # share of judged answers from which on a rule is worth a review


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do, as an order, and who should do it."""

    owner: str
    told: str


def sentences(digest: Digest) -> tuple[str, str, str]:
    """What cost most, what changed, what to do first. A quantity that nobody knows is called unknown, never zero."""
    return _cost(digest), _change(digest), _first(digest)


def actions(digest: Digest) -> tuple[Action, ...]:
    """What to do, the most urgent first: nodes, expensive causes, rules, failures that nobody has closed."""
    return tuple(_actions(digest))


def _cost(digest: Digest) -> str:
    if not digest.failures:
        return f"{phrases.none_at_all(digest)}{_ran_well(digest)}"
    lost = digest.gpu_hours
    dearest = _dearest(digest)
    if dearest is None:
        return f"{_most_frequent(digest)}; what they cost is unknown."
    share = f", {phrases.percent(dearest.gpu_hours.value / lost.value)} of the known loss" if lost.value > 0 else ""
    return f"{_cause(dearest)} cost most: {phrases.gpu_hours(dearest.gpu_hours)}{share}."


def _most_frequent(digest: Digest) -> str:
    """The most frequent cause; of several with as many failures, how many they are."""
    most = max(line.failures for line in digest.classes)
    often = sorted((line for line in digest.classes if line.failures == most), key=lambda line: line.fault)
    if len(often) > 1:
        names = few(["unknown cause" if line.fault == UNKNOWN else _quoted(line.title) for line in often], limit=_NEW)
        return f"No cause stands out, {many(most, 'failure')} each: {names}"
    verb = "were" if often[0].fault == UNKNOWN else "was"
    return f"{_cause(often[0])} {verb} most frequent: {most} of {many(digest.failures, 'failure')}"


def _ran_well(digest: Digest) -> str:
    ran = digest.ran_well
    if not ran.of:
        return ""
    return f" {many(ran.of, 'job')} completed or {'was' if ran.of == 1 else 'were'} stopped after {phrases.gpu_hours(ran)}."


def _change(digest: Digest) -> str:
    if not digest.new.compared:
        return "There is no earlier week to compare with."
    now, before = digest.failures, digest.before.failures
    if not now:
        told = f"The week before had {many(before, 'failure')}"
    elif now == before:
        told = f"There were as many failures as in the week before: {now}"
    else:
        told = (
            f"There {'was' if now == 1 else 'were'} {many(now, 'failure')}, "
            f"{abs(now - before)} {'more' if now > before else 'fewer'} than in the week before"
        )
    lost, earlier = digest.gpu_hours, digest.before.gpu_hours
    if lost.n and earlier.n:
        told += f"; the known loss went from {phrases.hours(earlier.value)} to {phrases.hours(lost.value)} GPU-hours"
    if digest.new.classes:
        told += f"; new: {few([_quoted(title) for title in digest.new.classes], limit=_NEW)}"
    return f"{told}."


def _first(digest: Digest) -> str:
    first = next(_actions(digest), None)
    return "There is nothing to do." if first is None else f"To do first: {first.told} ({first.owner})."


def _actions(digest: Digest) -> Iterator[Action]:
    lemons = [node for node in digest.offenders.nodes if node.lemon]
    for node in lemons[:_LEMONS]:
        jobs = many(node.jobs, "job")
        yield Action("hardware", f"take {node.name} out of service and test it: {jobs} failed on it in eight weeks")
    costly = [line for line in digest.classes if line.fault != UNKNOWN and line.domain != "none" and line.open != 0]
    costly.sort(key=lambda line: (-line.gpu_hours.value, -line.failures, line.fault))
    for line in costly[:_COSTLY]:
        still = f" ({line.open} open)" if line.open not in (None, line.failures) else ""
        yield Action(
            line.domain,
            f"fix {_quoted(line.title)}: {many(line.failures, 'failure')}{still}, {phrases.gpu_hours(line.gpu_hours)}",
        )
    if digest.open_all:
        known = [item for item in digest.open if item.gpu_hours is not None]
        start = max(known, key=lambda item: item.gpu_hours or 0.0) if known else next(iter(digest.open), None)
        where = "" if start is None else f", starting with incident {start.incident} ({start.job})"
        yield Action(ON_CALL, f"confirm the cause of {many(digest.open_all, 'failure')}{where}")
    unknown = next((line for line in digest.classes if line.fault == UNKNOWN), None)
    if unknown is not None:
        yield Action(
            ADMINS, f"write rules for {many(unknown.failures, 'failure')} of unknown cause (signalbox rules advise)"
        )
    for rule in digest.wrong[:1]:
        if rule.wrong.n >= LEAST and rule.wrong.hits >= _OFTEN_WRONG * rule.wrong.n:
            yield Action(
                ADMINS, f"review rule {rule.rule}: wrong in {rule.wrong.hits} of {rule.wrong.n} judged answers"
            )


def _dearest(digest: Digest) -> ClassLine | None:
    """The class with the largest known loss; None if no loss is known."""
    known = [line for line in digest.classes if line.gpu_hours.n and line.gpu_hours.value > 0]
    return max(known, key=lambda line: (line.gpu_hours.value, line.failures, line.fault), default=None)


def _cause(line: ClassLine) -> str:
    return "Failures of unknown cause" if line.fault == UNKNOWN else _quoted(line.title)


def _quoted(title: str) -> str:
    """Return the short title of a class within a sentence."""
    return f"“{short_title(title)}”"
