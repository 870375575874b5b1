"""What may be posted automatically: mutes, a limit per channel, repeated failures, weak rules, a rollout channel.

Decisions only, over small values and a given time (seconds since the epoch). The caller stores the values.
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
    """How many automatic messages one channel gets."""

    posts: int = 6
    """The most messages within `span`; further ones are listed in a single message."""
    span: Seconds = HOUR
    """The time over which messages are counted."""

    def __post_init__(self) -> None:
        if self.posts < 1:
            raise ValueError("posts: must be at least 1; to turn a channel off, leave it out")


@dataclass(frozen=True, slots=True)
class Flapping:
    """When a failure that comes back is posted again.

    Not before `first` has passed since the last message, then twice that, up to `longest`. A failure that stays away for
    `forget` counts as new.
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
    """The rollout of a new installation: automatic messages go only to `channel`."""

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
    """When a rule is weak: in at least `close_outs` it was right so rarely that `precision` is out of reach (95 %)."""

    precision: float = 0.7
    """The share of close-outs in which a rule must be able to be right, with 95 % certainty."""
    close_outs: int = 3
    """The number of close-outs from which on a rule is judged."""


@dataclass(frozen=True, slots=True)
class Mute:
    """Mute a rule, job (a pattern of its name or id) or node until a time. `channel`: only there; None: everywhere."""

    kind: Literal["rule", "job", "node"]
    what: str
    until: float
    tenant: str = "default"
    channel: str | None = None
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a message is about: the rule (of the first diagnosis), the job, and the suspected nodes.

    `fingerprint`: the kind of failure; `chain`: the attempts of the job.
    """

    tenant: str
    fingerprint: str
    chain: str
    job: str
    name: str = ""
    rule: str | None = None
    nodes: tuple[str, ...] = ()


def subject_of(report: Report, tenant: str, chain: str, job: str, name: str) -> Subject:
    """Return the subject of a report."""
    first = report.diagnoses[0] if report.diagnoses else None
    rule, nodes = (first.rule or None, first.nodes) if first is not None else (None, ())
    return Subject(tenant, report.fingerprint, chain, job, name, rule, nodes)


@dataclass(frozen=True, slots=True)
class Flap:
    """The repeat state of one failure on one chain. `count`: how often it occurred; `seen`: when it last did.

    `said`: when it was last posted; `pause`: seconds after that without another post; 0 if it was never posted.
    """

    count: int
    said: float
    pause: float
    seen: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and why in words.

    `post`: a new message; `count`: update the count in the existing message; `hold`: a line in the channel's list of held-back
    failures; `drop`: nothing. `flap` must be stored.
    """

    do: Literal["post", "count", "hold", "drop"]
    why: str
    flap: Flap


@dataclass(frozen=True, slots=True)
class Verdict:
    """A close-out: whether the top rule was right, and when it was made."""

    rule: str
    right: bool
    at: float


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """How often a rule was right: of `n`, with the ends of Wilson's 95 % interval; whether it is shown as weak."""

    rule: str
    right: int
    n: int
    low: float
    high: float
    weak: bool

    @property
    def words(self) -> str:
        """The record in words."""
        return f"right in {self.right} of {self.n} close-outs (95 %: {self.low:.0%} to {self.high:.0%})"


# --- decisions -------------------------------------------------------------------------------------------------------


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
    """Decide what to do with an automatic answer in one channel.

    `before`: the stored repeat state of this failure; `posted`: when automatic messages went there. Muted and repeated failures
    are counted, too.
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
    """Return the mute that applies; None if there is none. If several nodes are suspected, all must be muted."""
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
    """Whether a channel can have one more message now."""
    return sum(now - cap.span < at <= now for at in posted) < cap.posts


def _matches(text: str, pattern: str) -> bool:
    return text == pattern or fnmatchcase(text, pattern)  # a name can itself contain pattern characters


def _repeated(before: Flap | None, now: float, flapping: Flapping) -> Flap:
    """Return the repeat state after a failure, posted or not."""
    if before is None or now - before.seen > flapping.forget:
        return Flap(1, now, 0.0, now)
    return Flap(before.count + 1, before.said, before.pause, max(now, before.seen))


def _announced(flap: Flap, now: float, flapping: Flapping) -> Flap:
    pause = min(max(flap.pause * 2, flapping.first), flapping.longest)
    return Flap(flap.count, now, pause, flap.seen)


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


# --- rule records ----------------------------------------------------------------------------------------------------


def rule_records(
    verdicts: Iterable[Verdict], looked_at: Mapping[str, float] | None = None, bar: WeakRuleThreshold | None = None
) -> tuple[RuleRecord, ...]:
    """Return how each rule did in close-outs, the worst first.

    `looked_at`: rule → when it was last reviewed; earlier close-outs no longer count.
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
    """Return the one channel that gets everything during the rollout; None after it, or if none is configured."""
    if start is None:
        return None
    confirmed = n >= start.close_outs and wilson(right, n)[0] >= start.precision
    return None if confirmed else start.channel
