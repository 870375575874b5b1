"""Does the job hang? Four probes vote, each with its numbers; two or more in one window of five minutes make a hang.

After Baidu Baige's stability system: all ranks' logs silent; stacks unchanged; RDMA still while GPUs spin; a collective that
does not end. A probe that could not look says so and counts for neither side; where only one can look nothing is called,
and what to switch on is said. Limits are parameters of the rule `hang-called`, so a site sets its own in its overlay.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import nsmallest
from itertools import pairwise
from statistics import median
from typing import Literal

from kb.evidence import Facts, StreamFacts
from kb.model import ProgressPoint, Stage
from kb.report import Hang, Vote
from kb.rule import Rulebook

RULE = "hang-called"
LOGS = 32  # from so many logs the job's own pace and pauses are taken
SKEW = 5.0  # seconds by which a log's clock may be ahead of the collector's
Ballot = Literal["yes", "no", "not_observable"]
_SWITCH_ON: Mapping[str, str] = {
    "silence": "have every rank write a line with a time stamp for each step (torchrun --redirects, --log-dir)",
    "stacks": "sample stacks: `py-spy dump --json` of every rank, three times, 20 s apart",
    "spin": "collect DCGM_FI_DEV_GPU_UTIL, DCGM_FI_PROF_SM_ACTIVE and node_infiniband_port_data_transmitted_bytes_total",
    "collective": "keep TORCH_FR_BUFFER_SIZE on and dump the Flight Recorder, or poll `ncclras -f json` twice",
}


@dataclass(frozen=True, slots=True)
class HangLimits:
    """Seconds, but for the shares, `silence_gaps`, `stack_samples`, `pending_steps` and `phase_times`.

    `silence_gaps` counts the job's own 99th-percentile gap between steps, `stack_samples` rounds, `stack_share` is of the
    ranks, `timeout_share` of the collective time-out, below which silence must be told. `evaluating`, `saving`, `loading`,
    `starting` are how long these phases last where the job has not shown it; where it has, `phase_times` the longest that it
    took before, and `phase_least` at least, which is also for a phase that stacks alone tell of. Where stacks show that data are waited for
    and the job outlived a pause of `pause_least` or more before, such a pause may come again, for `phase_least` at most. A collective may pend for
    `pending`, and for `pending_steps` of the job's own steps where these are long.
    """

    silence_least: float = 120.0
    silence_most: float = 480.0
    silence_gaps: float = 3.0
    timeout_share: float = 0.8
    evaluating: float = 1800.0
    saving: float = 1800.0
    loading: float = 1800.0
    starting: float = 1800.0
    phase_least: float = 300.0
    phase_times: float = 2.0
    pause_least: float = 30.0
    stack_samples: float = 3.0
    stack_apart: float = 20.0
    stack_share: float = 0.9
    pending: float = 30.0
    pending_steps: float = 1.5
    window: float = 300.0


@dataclass(frozen=True, slots=True)
class Phase:
    """What a run was doing when it was last heard, and how long that is nothing special.

    `name`: "evaluating", "saving", "loading", "starting", or "" for none of them. `longest`: the seconds that it took at
    most, where the job was seen to do it before; of no phase, the longest pause that it outlived. `quiet`: seconds since the
    last progress, None where that is not known.
    """

    name: str = ""
    ceiling: float = 0.0
    longest: float | None = None
    quiet: float | None = None

    @property
    def held(self) -> bool:
        """Whether what the run does explains that it does not get on."""
        return self.quiet is not None and self.ceiling > 0.0 and self.quiet <= self.ceiling


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe's vote as it is counted: `since` when what it sees began, `at` when it looked (seconds since the epoch)."""

    name: str
    vote: Ballot
    detail: str
    since: float | None = None
    at: float | None = None


def limits_of(rulebook: Rulebook) -> HangLimits:
    """The limits of this rulebook: the parameters of its rule `hang-called`, which a site's overlay may set."""
    rule = next((one for one in rulebook.rules if one.id == RULE), None)
    known = {one.name for one in fields(HangLimits)}
    return HangLimits(**{name: value for name, value in (rule.params if rule else {}).items() if name in known})


def called(probes: Sequence[Probe], limits: HangLimits, phase: Phase | None = None) -> Hang:
    """Count the votes. In a `phase` that explains why nothing gets on they are shown, and nothing is called or suspected."""
    votes = tuple(Vote(one.name, one.vote, one.detail) for one in probes)
    yes = [one for one in probes if one.vote == "yes"]
    if phase is not None and phase.held:
        return Hang(False, votes)
    if phase is not None and phase.name and phase.quiet is None:  # who knows how long it has been at it
        return Hang(False, votes, bool(yes), (_SWITCH_ON["silence"],) if yes else ())
    together = max((_within(one, yes, limits.window) for one in yes), default=0)
    blind = [one.name for one in probes if one.vote == "not_observable"]
    suspected = bool(yes) and together < 2
    advice = tuple(_SWITCH_ON[name] for name in blind if name in _SWITCH_ON) if suspected else ()
    return Hang(together >= 2, votes, suspected, advice)


def _within(one: Probe, others: Sequence[Probe], window: float) -> int:
    """How many probes voted yes within a window of this one; where a time is not known it is taken to be the same."""
    return sum(one.at is None or other.at is None or abs(one.at - other.at) <= window for other in others)


def silence(
    facts: Facts, now: float | None, limits: HangLimits, timeout: float | None = None, phase: Phase | None = None
) -> Probe:
    """Probe (a): no rank's log has said anything for longer than this job's steps and its phase explain.

    `timeout`: seconds of the collectives' time-out where it is known; silence must be told before it strikes.
    """
    streams = [one.summary for one in facts.streams if one.summary.ref.kind == "job"]
    last = [one.last_time for one in streams if one.last_time is not None]
    if now is None or not last:
        why = "it is not known when the logs were taken (job.yaml: collected_at)" if now is None else "no log has times"
        return Probe("silence", "not_observable", why)
    sound = _sound(last, now, limits)
    if not sound:
        why = f"the logs' clock is {min(last) - now:.0f} s ahead of the collector's"
        return Probe("silence", "not_observable", why)
    newest = max(sound)
    age = now - newest
    told = f"{len(sound)} of {len(streams)} logs have times; the last line is {max(0.0, age):.0f} s old"
    if age <= min(limits.silence_least, limits.timeout_share * (timeout or math.inf)):
        return Probe("silence", "no", told, newest, now)  # no job's own history is needed to tell
    gap = usual_gap([point for one in _telling(facts.streams) for point in one.points])
    phase = phase or phase_of(facts, now, limits, timeout)
    ceiling = _ceiling(gap, phase, limits, timeout)
    told += f"; up to {ceiling:.0f} s is usual"
    known = [f"99 % of its steps follow within {gap:.1f} s"] if gap is not None else []
    known += [f"it is {phase.name}"] if phase.name else []
    known += [f"which took up to {phase.longest:.0f} s before"] if phase.name and phase.longest is not None else []
    return Probe(
        "silence", "yes" if age > ceiling else "no", told + (f" ({', '.join(known)})" if known else ""), newest, now
    )


def pace_of(facts: Facts) -> float | None:
    """Seconds that a step took lately, from the log that tells most; None for too few lines."""
    for one in _telling(facts.streams)[:1]:
        timed = [(p.step, p.time) for p in one.points[-64:] if p.step is not None and p.time is not None]
        paces = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(timed) if b[0] > a[0] and b[1] >= a[1]]
        if len(paces) >= 4:
            return median(paces)
    return None


def _telling(streams: Sequence[StreamFacts]) -> list[StreamFacts]:
    """The logs that tell most of steps: all ranks take the same ones, so a few logs of ten thousand will do."""
    some = [one for one in streams if one.points and one.summary.ref.kind == "job"]
    return nsmallest(LOGS, some, key=lambda one: (-len(one.summary.marks), -len(one.points), one.summary.ref.uri))


def _sound(times: Sequence[float], now: float, limits: HangLimits) -> list[float]:
    """The times that may be: not those of a clock ahead of the collector's, where others are not."""
    return [one for one in times if one <= now + SKEW] or [one for one in times if one <= now + limits.window]


def usual_gap(points: Sequence[ProgressPoint]) -> float | None:
    """The 99th percentile of the seconds between two iteration lines, from those that are neighbours; None for too few."""
    timed = sorted({(p.step, p.time) for p in points if p.step is not None and p.time is not None and not p.validation})
    pairs = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(timed)]
    apart = [steps for steps, seconds in pairs if steps > 0 and seconds >= 0]
    if len(apart) < 8:
        return None
    usual = sorted(apart)[len(apart) // 2]
    gaps = sorted(seconds for steps, seconds in pairs if steps == usual and seconds >= 0)
    return gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))] if gaps else None


_NAMES: Mapping[Stage | None, str] = {
    "evaluating": "evaluating",
    "saving": "saving",
    "checkpoint_load": "loading",
    "data_load": "loading",
    "init": "starting",
    "launch": "starting",
}


def phase_of(facts: Facts, now: float | None, limits: HangLimits, timeout: float | None = None) -> Phase:
    """The phase that the run is in by its logs, with the ceiling that the job's own history, or else the limits, give it."""
    streams = [one for one in facts.streams if one.summary.ref.kind == "job"]
    name = _phase(facts, streams)
    longest = _pauses(streams).get(name)
    if name and longest is not None:
        ceiling = max(limits.phase_least, limits.phase_times * longest)
    elif name:
        ceiling = float(getattr(limits, name))
    else:
        ceiling = 0.0
    if timeout is not None and timeout > 0:
        ceiling = min(ceiling, limits.timeout_share * timeout)
    return Phase(name, ceiling, longest, _quiet(streams, now, limits))


def _quiet(streams: Sequence[StreamFacts], now: float | None, limits: HangLimits) -> float | None:
    """Seconds since the last line; where lines come on and steps do not, since the next step was due."""
    ends = [p.time for one in streams for p in one.points[-1:] if p.time is not None]
    steps = _sound(ends, now, limits) if now is not None else []
    lines = [one.summary.last_time for one in streams if one.summary.last_time is not None]
    if now is None or not (steps or lines):
        return None
    gap = usual_gap([point for one in _telling(streams) for point in one.points]) or 0.0
    due = max(steps) + gap if steps else 0.0
    return max(0.0, now - max(_sound(lines, now, limits), default=due), now - due if steps else 0.0)


def _phase(facts: Facts, streams: Sequence[StreamFacts]) -> str:
    """What the run was doing when it was last heard: a phase with a ceiling of its own, or nothing special."""
    if facts.end is not None:
        name = _NAMES.get(facts.end[0], "")
        return "" if name and any(_over(one, name) for one in streams) else name
    stages = [one.stage(one.summary.size) for one in streams]
    # before its first step a run compiles, reads, meets: all of that is its start
    return next((_NAMES[stage] for stage in stages if stage in _NAMES), "starting" if streams else "")


_OVER = {"saving": "save_end", "loading": "load_end"}


def _over(stream: StreamFacts, name: str) -> bool:
    """Whether a log tells of the end of a phase, and of no begin of it after that."""
    ends = [
        one.offset
        for one in stream.summary.structures
        if one.kind == "checkpoint" and one.fields.get("event") == _OVER.get(name)
    ]
    begun = [mark.offset for mark in stream.summary.marks if _NAMES.get(mark.stage) == name]
    return bool(ends and begun) and ends[-1] >= max(begun)


def _pauses(streams: Sequence[StreamFacts]) -> dict[str, float]:
    """The longest time that each phase took between two steps of one log, beyond what the steps took; "" for no phase."""
    longest: dict[str, float] = {}
    for one in _telling(streams):
        timed = [(p.offset, p.step, p.time) for p in one.points if p.step is not None and p.time is not None]
        pairs = [(a, b, b[1] - a[1], b[2] - a[2]) for a, b in pairwise(timed) if b[1] > a[1] and b[2] >= a[2]]
        if len(pairs) < 8:
            continue
        pace = median(seconds / steps for _, _, steps, seconds in pairs)
        marks = [(mark.offset, _NAMES[mark.stage]) for mark in one.summary.marks if mark.stage in _NAMES]
        places = [offset for offset, _ in marks]
        for before, after, steps, seconds in pairs:
            pause = seconds - pace * steps
            inside = marks[bisect_left(places, before[0]) : bisect_left(places, after[0])]
            for name in {name for _, name in inside} or {""}:
                longest[name] = max(longest.get(name, 0.0), pause)
    return longest


def _ceiling(gap: float | None, phase: Phase, limits: HangLimits, timeout: float | None) -> float:
    own = limits.silence_most if gap is None else limits.silence_gaps * gap
    ceiling = max(min(limits.silence_most, max(limits.silence_least, own)), phase.ceiling)
    if timeout is not None and timeout > 0:
        ceiling = min(ceiling, limits.timeout_share * timeout)
    return ceiling
