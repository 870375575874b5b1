"""Phrases for the figures of a digest.

Numbers with their n, and changes since the previous week. No layout or markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kb.digest.digest import ClassLine, Digest, SizeClass
from kb.digest.statistics import LEAST, Rate, Share, Spread, Sum
from kb.digest.statistics import share as share_of
from kb.errors import UnreadableInput


def zone_named(name: str) -> ZoneInfo:
    """The time zone with this name.

    Raises:
        UnreadableInput: there is no such time zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnreadableInput(f"unknown time zone {name[:60]!r}; use a name such as Europe/Berlin") from error


def hours(value: float) -> str:
    """Hours, with one decimal for small values."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def lasting(seconds: float) -> str:
    """A duration in a readable unit."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def percent(value: float) -> str:
    """A share in whole per cent, with a non-breaking space."""
    return f"{100 * value:.0f}\u00a0%"


def short_week(name: str) -> str:
    """The short form of a week: "W47" for "2026-W47"."""
    return name.rpartition("-")[2]


def share(item: Share) -> str:
    """A share with its confidence interval and n; only the counts if n is too small."""
    if item.value is None or item.low is None or item.high is None:
        return f"{item.hits} of {item.n} (too few for a share)" if item.n else "no feedback yet"
    return f"{percent(item.value)} ({item.hits} of {item.n}; 95 %: {percent(item.low)} to {percent(item.high)})"


def spread(item: Spread) -> str:
    """Median and 90th percentile of durations."""
    if item.median is None or item.p90 is None:
        return f"not enough data (n = {item.n})"
    return f"median {lasting(item.median)}, p90 {lasting(item.p90)} (n = {item.n})"


def rate(item: Rate) -> str:
    """Hours per failure."""
    return f"not enough data (n = {item.n})" if item.value is None else f"{hours(item.value)} h (n = {item.n})"


def lost(item: Sum) -> str:
    """GPU-hours, and the number of cases for which they are known. Of cases of which none is known, the sum is unknown."""
    return f"{amount(item)} (n = {item.n} of {item.of})"


def amount(item: Sum) -> str:
    """A sum; "unknown" if none of its cases is known."""
    if not item.of:
        return "0"
    return hours(item.value) if item.n else "unknown"


def known_amount(item: Sum) -> float | None:
    """A sum; None if none of its cases is known."""
    return item.value if item.n or not item.of else None


def dearest_first(classes: Sequence[ClassLine]) -> list[ClassLine]:
    """The classes by known loss, the largest first; the page, the terminal and the chart show them in this order."""
    return sorted(classes, key=lambda line: (-line.gpu_hours.value, line.fault))


def gpu_hours(item: Sum) -> str:
    """GPU-hours inside a sentence; a lower bound where not all cases are known."""
    if not item.of:
        return "0 GPU-hours"
    if not item.n:
        return "an unknown number of GPU-hours"
    if item.n < item.of:
        return f"at least {hours(item.value)} GPU-hours (n = {item.n} of {item.of})"
    return f"{hours(item.value)} GPU-hours"


def gpus(size: SizeClass) -> str:
    """A range of job sizes."""
    return f"{size.low:,} or more GPUs" if size.high is None else f"{size.low:,} to {size.high:,} GPUs"


def arrow(now: float, before: float) -> str:
    """The change of a number since the previous week."""
    if now == before:
        return "→ unchanged"
    sign, way = ("↑", "up") if now > before else ("↓", "down")
    return f"{sign} {way} from {hours(before) if isinstance(before, float) else before}"


def moved(now: float | None, before: float | None, words: str = "") -> str:
    """The change of a number since the previous week, if both values are known."""
    return "" if now is None or before is None else f"{arrow(now, before)}{words}"


def span(digest: Digest) -> str:
    """The days of the week in the time zone of the team."""
    first, last = local(digest, digest.start), local(digest, digest.end - 1)
    return f"{first:%a %d %b} to {last:%a %d %b %Y}, {digest.zone}"


def local(digest: Digest, time: float) -> datetime:
    """A time in the time zone of the team."""
    return datetime.fromtimestamp(time, zone_named(digest.zone))


def unfinished(digest: Digest) -> str:
    """A note that the week is not over, or that the digest is late."""
    if digest.until < digest.end:
        return f"The week is not over; figures up to {local(digest, digest.until):%a %d %b %H:%M}."
    return "This digest is late: Signalbox was not running when it was due." if digest.late else ""


def notes(digest: Digest) -> tuple[str, ...]:
    """What a reader must know before the figures: that incidents are made up, that the week is not over, that the digest is late."""
    return tuple(filter(None, (made_up(digest), unfinished(digest))))


def made_up(digest: Digest) -> str:
    """A warning that figures rest on made-up incidents; empty if none does."""
    if not digest.made_up:
        return ""
    what = f"{digest.made_up:,} made-up {'incident' if digest.made_up == 1 else 'incidents'}"
    return f"Sample data: these eight weeks contain {what} (signalbox demo --fill). The figures are not measurements."


def none_at_all(digest: Digest) -> str:
    """The text for a week without failures."""
    if digest.reports == 1:
        asked = "1 job was diagnosed, and no failure was found in it"
    elif digest.reports:
        asked = f"{digest.reports} jobs were diagnosed, and no failure was found in any of them"
    else:
        asked = "no jobs were diagnosed"
    return f"No failures {'' if digest.reports else 'are known '}in {digest.week}: {asked}."


def news(digest: Digest) -> Iterator[tuple[str, str]]:
    """What is new this week, as (kind, names)."""
    if not digest.new.compared:
        yield "new", "no earlier week to compare with"
        return
    for kind, names in (("classes", digest.new.classes), ("nodes", digest.new.nodes), ("rules", digest.new.rules)):
        if names:
            yield kind, ", ".join(names)


def fine(value: float) -> str:
    """A share with one decimal, never rounded up to a whole."""
    return f"{math.floor(1000 * value) / 10:.1f}\u00a0%"


def unknown_of(digest: Digest) -> Share:
    """Failures for which no cause was named in all weeks of the digest."""
    return share_of(
        sum(trend_point.unknown.hits for trend_point in digest.trend),
        sum(trend_point.unknown.n for trend_point in digest.trend),
    )


def formula(digest: Digest) -> str:
    """The description of ineffective training time, with its numbers filled in."""
    ineffective = digest.ineffective
    if ineffective.value is None or ineffective.recovery is None:
        return (
            f"Not enough data: the recovery time is known for {ineffective.known} of {ineffective.interruptions} interruptions, "
            f"and a mean needs at least {LEAST}."
        )
    mean_recovery = (
        f"{ineffective.interruptions} interruptions x {lasting(ineffective.recovery * 3600)} + {hours(ineffective.saving.value)} h of writing "
        f"checkpoints (n = {ineffective.saving.n} of {ineffective.saving.of}) = {hours(ineffective.value)} hours of job time; "
        f"recovery time n = {ineffective.known}."
    )
    if ineffective.effective is None:
        return mean_recovery
    return (
        f"{mean_recovery} Effective ratio: 1 - {hours(ineffective.value)} / {hours(ineffective.wall)} h of wall time of {ineffective.jobs} jobs "
        f"= {fine(ineffective.effective)}."
    )
