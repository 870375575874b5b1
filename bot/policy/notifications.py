"""What may be said unasked: mutes, a cap for each channel, failures that come again and again, weak rules, a quiet start.

Decisions only, over small values and a time that is handed in (seconds since the epoch); who posts keeps the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from connectors.base.contract import Seconds
from kb.digest.statistics import wilson
from kb.report import Report

HOUR: Final = 3600.0
DAY: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Cap:
    """How much one channel gets unasked."""

    posts: int = 6
    """The most messages within `span`; further ones are listed in a single message."""
    span: Seconds = HOUR
    """The time over which messages are counted."""

    def __post_init__(self) -> None:
        if self.posts < 1:
            raise ValueError("posts: must be at least 1; to turn a channel off, leave it out")


@dataclass(frozen=True, slots=True)
class Flapping:
    """When a failure that comes again is news.

    Not before `first` has passed since it was said, then twice that, up to `longest`; after `forget` without it, it
    is new.
    """

    first: Seconds = HOUR
    """How soon after its first message a failure that comes back is posted again; the time doubles with each
    message."""
    longest: Seconds = DAY
    """The longest time between two messages about the same failure."""
    forget: Seconds = 7 * DAY
    """A failure that stayed away for this long counts as new."""


@dataclass(frozen=True, slots=True)
class RolloutChannel:
    """The quiet start of a new installation: unasked it posts only to `channel`."""

    channel: str
    """The only channel that is posted to unprompted."""
    close_outs: int = 20
    """The number of answers that people must have closed out before other channels are posted to."""
    precision: float = 0.7
    """The share of these that must have been right, with 95 % certainty."""

    def __post_init__(self) -> None:
        if not 0 <= self.precision < 1:
            raise ValueError("precision: must be at least 0 and below 1; no number of answers confirms 1")
        if self.close_outs < 1:
            raise ValueError("close_outs: must be at least 1")


@dataclass(frozen=True, slots=True)
class WeakRuleThreshold:
    """When a rule is weak: of at least `close_outs` it was right in so few that `precision` is out of reach (95 %)."""

    precision: float = 0.7
    """The share of close-outs in which a rule must be able to be right, with 95 % certainty."""
    close_outs: int = 3
    """The number of close-outs from which on a rule is judged."""


@dataclass(frozen=True, slots=True)
class Mute:
    """Be silent on a rule, job (a pattern of its name or id) or node, up to a time. `channel`: there only; None: everywhere."""

    kind: Literal["rule", "job", "node"]
    what: str
    until: float
    tenant: str = "default"
    channel: str | None = None
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be said: of which rule (that of the first diagnosis), which job, and which nodes it suspects.

    `fingerprint`: of the kind of failure; `chain`: of the job with its other tries.
    """

    tenant: str
    fingerprint: str
    chain: str
    job: str
    name: str = ""
    rule: str | None = None
    nodes: tuple[str, ...] = ()


def subject_of(report: Report, tenant: str, chain: str, job: str, name: str) -> Subject:
    """What is to be said by a report, of a job by its id and name."""
    first = report.diagnoses[0] if report.diagnoses else None
    rule, nodes = (first.rule, first.nodes) if first is not None else (None, ())
    return Subject(tenant, report.fingerprint, chain, job, name, rule, nodes)


@dataclass(frozen=True, slots=True)
class Flap:
    """One failure on one chain. `count`: how often it came; `seen`: when it last did.

    `said`: when it was last said; `pause`: seconds from then on in which it is not said again; 0 where it never was.
    """

    count: int
    said: float
    pause: float
    seen: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done, and why in words.

    `post`: a message of its own; `count`: the count in the message that is there; `hold`: a line in the channel's list of
    what was held back; `drop`: nothing. `flap` is to be kept.
    """

    do: Literal["post", "count", "hold", "drop"]
    why: str
    flap: Flap


@dataclass(frozen=True, slots=True)
class Verdict:
    """A close-out: whether the rule that came first was right, and when that was said."""

    rule: str
    right: bool
    at: float


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """How often a rule was right: of `n`, with the ends of Wilson's interval of 95 %; whether it is shown as weak."""

    rule: str
    right: int
    n: int
    low: float
    high: float
    weak: bool

    @property
    def words(self) -> str:
        """The standing in words."""
        return f"right in {self.right} of {self.n} close-outs (95 %: {self.low:.0%} to {self.high:.0%})"


# --- one answer ------------------------------------------------------------------------------------------------------


def decide(
    subject: Subject,
    channel: str,
    now: float,
    *,
    mutes: Iterable[Mute] = (),
    before: Flap | None = None,
    posted: Iterable[float] = (),
    cap: Cap | None = None,
    flapping: Flapping | None = None,
) -> Decision:
    """What to do with an answer that nobody asked for in one channel.

    `before`: what is kept of this failure on this chain in this channel; `posted`: when messages went there unasked. What is
    muted, and what comes again too soon, is counted all the same.
    """
    flapping = flapping or Flapping()
    again = _repeated(before, now, flapping)
    mute = matching_mute(mutes, subject, channel, now)
    if mute is not None:
        return Decision("drop", f"{mute.kind} {mute.what} is muted" + (f" by {mute.by}" if mute.by else ""), again)
    if before is not None and again.count > 1 and now < before.said + before.pause:
        return Decision("count", f"the same failure for the {_ordinal(again.count)} time", again)
    if not room(posted, now, cap or Cap()):
        return Decision("hold", "the channel reached its message limit", again)
    why = "the first of its kind" if again.count == 1 else f"the same failure, now {again.count} times"
    return Decision("post", why, _announced(again, now, flapping))


def matching_mute(mutes: Iterable[Mute], subject: Subject, channel: str, now: float) -> Mute | None:
    """The mute that holds; None where there is none. Of several nodes that are suspected all must be muted."""
    held = [
        mute for mute in mutes if mute.until > now and mute.tenant == subject.tenant and mute.channel in (None, channel)
    ]
    for mute in held:
        if mute.kind == "rule" and subject.rule is not None and mute.what == subject.rule:
            return mute
        if mute.kind == "job" and any(_matches(text, mute.what) for text in (subject.job, subject.name) if text):
            return mute
    nodes = [mute for mute in held if mute.kind == "node"]
    hits = [next((mute for mute in nodes if mute.what == node), None) for node in subject.nodes]
    return hits[0] if hits and None not in hits else None


def room(posted: Iterable[float], now: float, cap: Cap) -> bool:
    """Whether a channel may have one more message now."""
    return sum(now - cap.span < at <= now for at in posted) < cap.posts


def _matches(text: str, pattern: str) -> bool:
    return text == pattern or fnmatchcase(text, pattern)  # a name itself may hold what means more in a pattern


def _repeated(before: Flap | None, now: float, flapping: Flapping) -> Flap:
    """What is kept after a failure came, whether it is said or not."""
    if before is None or now - before.seen > flapping.forget:
        return Flap(1, now, 0.0, now)
    return Flap(before.count + 1, before.said, before.pause, max(now, before.seen))


def _announced(flap: Flap, now: float, flapping: Flapping) -> Flap:
    pause = min(max(flap.pause * 2, flapping.first), flapping.longest)
    return Flap(flap.count, now, pause, flap.seen)


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


# --- how good the rules are ------------------------------------------------------------------------------------------


def rule_records(
    verdicts: Iterable[Verdict], looked_at: Mapping[str, float] | None = None, bar: WeakRuleThreshold | None = None
) -> tuple[RuleRecord, ...]:
    """How each rule did in the close-outs, the worst first.

    `looked_at`: rule → when somebody looked at it last: what was said before that counts no more.
    """
    bar, looked = bar or WeakRuleThreshold(), looked_at or {}
    told: dict[str, list[bool]] = {}
    for verdict in verdicts:
        if verdict.at > looked.get(verdict.rule, float("-inf")):
            told.setdefault(verdict.rule, []).append(verdict.right)
    found = []
    for rule, rights in told.items():
        low, high = wilson(sum(rights), len(rights))
        weak = len(rights) >= bar.close_outs and high < bar.precision
        found.append(RuleRecord(rule, sum(rights), len(rights), low, high, weak))
    return tuple(sorted(found, key=lambda item: (not item.weak, item.high, item.rule)))


def rollout_channels(start: RolloutChannel | None, right: int, n: int) -> str | None:
    """The one channel to which everything goes while the start is quiet; None where that is over, or was never wanted."""
    if start is None:
        return None
    confirmed = n >= start.close_outs and wilson(right, n)[0] >= start.precision
    return None if confirmed else start.channel
