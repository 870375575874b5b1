"""Decides by vote whether a job hangs: of four probes, each with its numbers, two must agree within five minutes.

Modelled on Baidu Baige's stability system: all ranks' logs silent; stacks unchanged; RDMA idle while GPUs spin; a
collective that does not end. A probe without data says so and abstains. If only one has data, no hang is
called, and the report says what to enable. The limits are parameters of the rule `hang-called`, so a site can set its
own in its overlay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from kb.facts.job_facts import Facts
from kb.facts.log.stream_facts import StreamFacts
from kb.hangs.checkpoint_saves import longest_save
from kb.hangs.pace import PHASES, pauses, usual_gap
from kb.report import Ballot, Hang, Vote
from kb.rulebase.rule import Rulebook
from kb.rulebase.yaml_nodes import nearest

RULE = "hang-called"
_SELDOM = 1.5  # of the gaps in the job's own logs
SKEW = 5.0  # seconds by which a log's clock may be ahead of the collector's
_SWITCH_ON: Mapping[str, str] = {
    "silence": "have every rank log a line with a timestamp for each step (torchrun --redirects, --log-dir)",
    "stacks": "sample stacks: run `py-spy dump --json` on every rank, three times, 20 s apart",
    "spin": "collect DCGM_FI_DEV_GPU_UTIL, DCGM_FI_PROF_SM_ACTIVE and node_infiniband_port_data_transmitted_bytes_total",
    "collective": "enable TORCH_FR_BUFFER_SIZE and dump the Flight Recorder, or poll `ncclras -f json` twice",
}


@dataclass(frozen=True, slots=True)
class HangLimits:
    """The limits of the vote.

    All are seconds, except the shares and `silence_gaps`, `stack_samples`, `stack_steps`, `pending_steps`,
    `phase_times`, `save_times`. `silence_gaps` counts the job's own 99th-percentile gap between steps, `stack_samples`
    rounds; `stack_share` is a share of the ranks; `stack_steps` is the number of the job's own steps that identical
    rounds must span, since ranks can look alike by chance in less time. Lines at least `late_least` late are buffered.
    Silence must be reported within `timeout_share` of the collective timeout.

    `evaluating`, `saving`, `loading` and `starting` are how long these phases last if the job has not shown it; if it
    has, a phase may last `phase_times` the longest that it took before (`save_times` for a checkpoint, since others use
    the storage too), and at least `phase_least`, which also holds for a phase that only stacks show.

    A collective may be pending for `pending`, and for `pending_steps` of the job's own steps if these are long. If no
    rank is missing in it, or that is unknown, it may be pending for `retry`, since the transport may retry that long. A
    rank that waits for its data without a stuck worker may wait for `data_wait`: storage stalls and recovers. The first
    rank of a job or node may work for `alone` while the others wait for it, any other rank for `data_wait`. If no stack
    shows what the ranks do, a pause of `pause_least` or more that the job outlived may recur, `phase_times` as long,
    `silence_most` at most.
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
    phase_times: float = 3.0
    save_times: float = 5.0
    pause_least: float = 30.0
    data_wait: float = 240.0
    alone: float = 1800.0
    stack_samples: float = 3.0
    stack_apart: float = 20.0
    stack_share: float = 0.9
    pending: float = 30.0
    pending_steps: float = 1.5
    stack_steps: float = 2.0
    late_least: float = 60.0
    retry: float = 60.0
    window: float = 300.0


LIMITS = frozenset(field.name for field in fields(HangLimits))
Params = Mapping[str, Mapping[str, float]]  # rule → parameter → number


@dataclass(frozen=True, slots=True)
class Phase:
    """The last known activity of a run, and how long it normally takes.

    `name`: "evaluating", "saving", "loading", "starting", or "" for none of them. `longest`: the longest that the job
    was seen to take for it before; for no phase, the longest pause that it outlived. `quiet`: seconds since the last
    progress, None if unknown.
    """

    name: str = ""
    ceiling: float = 0.0
    longest: float | None = None
    quiet: float | None = None

    @property
    def held(self) -> bool:
        """Whether the run's activity explains its lack of progress."""
        return self.quiet is not None and self.ceiling > 0.0 and self.quiet <= self.ceiling

    @property
    def known(self) -> bool:
        """Whether a phase shown by logs or stacks suspends the votes, rather than patience alone."""
        return self.held and bool(self.name)


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe's vote as counted. `since`: when its finding began; `at`: when it checked (seconds since the epoch)."""

    name: str
    vote: Ballot
    detail: str
    since: float | None = None
    at: float | None = None


def limits_of(rulebook: Rulebook, params: Params | None = None) -> HangLimits:
    """Return the limits of this rulebook: the parameters of its rule `hang-called`, which a site's overlay may set.

    `params`: the job's own numbers (`Job.params`), which take precedence over both.
    """
    rule = next((item for item in rulebook.rules if item.id == RULE), None)
    given = {**(rule.params if rule else {}), **(params or {}).get(RULE, {})}
    return HangLimits(**{name: value for name, value in given.items() if name in LIMITS})


def unknown_params(params: Params) -> Iterator[str]:
    """Return errors for job values that match no parameter, with the name that was probably meant."""
    for rule, numbers in params.items():
        if rule != RULE:
            yield f"params.{rule}: only rule {RULE} takes parameters from a job; for other rules use site.yaml"
            continue
        for name in numbers:
            if name not in LIMITS:
                yield f"params.{rule}.{name}: {RULE} has no such parameter; {nearest(name, LIMITS) or 'see its page'}"


def count_votes(probes: Sequence[Probe], limits: HangLimits, phase: Phase | None = None) -> Hang:
    """Count the votes. During a `phase` that explains the lack of progress, they are shown but no hang is called or suspected."""
    votes = tuple(Vote(probe.name, probe.vote, probe.detail, probe.since) for probe in probes)
    yes = [probe for probe in probes if probe.vote == "yes"]
    if phase is not None and phase.held:
        return Hang(False, votes)
    if phase is not None and phase.name and phase.quiet is None:  # it is unknown how long the phase has lasted
        return Hang(False, votes, bool(yes), (_SWITCH_ON["silence"],) if yes else ())
    together = max((_within(probe, yes, limits.window) for probe in yes), default=0)
    blind = [probe.name for probe in probes if probe.vote == "not_observable"]
    suspected = bool(yes) and together < 2
    advice = tuple(_SWITCH_ON[name] for name in blind if name in _SWITCH_ON) if suspected else ()
    return Hang(together >= 2, votes, suspected, advice)


def _within(probe: Probe, others: Sequence[Probe], window: float) -> int:
    """Return how many probes voted yes within one window; unknown times count as inside it."""
    return sum(probe.at is None or other.at is None or abs(probe.at - other.at) <= window for other in others)


def silence(
    facts: Facts,
    now: float | None,
    limits: HangLimits,
    timeout: float | None = None,
    phase: Phase | None = None,
    *,
    late: float = 0.0,
) -> Probe:
    """Probe (a): all ranks' logs have been silent for longer than the job's steps and phase explain.

    `timeout`: seconds of the collectives' timeout if known; silence must be reported before it strikes. `late`: seconds
    by which this job's lines arrive late (`kb.hangs.pace.Lateness`): a block of them may be on its way, whatever the
    timeout.
    """
    streams = [stream.summary for stream in facts.streams if stream.summary.ref.kind == "job"]
    last = [stream.last_time for stream in streams if stream.last_time is not None]
    if now is None or not last:
        why = (
            "the collection time of the logs is unknown (job.yaml: collected_at)"
            if now is None
            else "no log has timestamps"
        )
        return Probe("silence", "not_observable", why)
    sound = _sound(last, now, limits)
    if not sound:
        why = f"the clock of the logs is {min(last) - now:.0f} s ahead of the collector's"
        return Probe("silence", "not_observable", why)
    newest = max(sound)
    age = now - newest
    detail = f"{len(sound)} of {len(streams)} logs have timestamps; the last line is {max(0.0, age):.0f} s old"
    if age <= min(limits.silence_least, limits.timeout_share * (timeout or math.inf)):
        return Probe("silence", "no", detail, newest, now)  # this needs no history of the job
    gap = usual_gap(facts.streams)
    phase = phase or phase_of(facts, now, limits, timeout)
    slow = late if late >= limits.late_least else 0.0
    ceiling = _ceiling(gap, phase, limits, timeout) + slow
    detail += f"; the limit is {ceiling:.0f} s"
    known = [f"99 % of its steps follow within {gap:.1f} s"] if gap is not None else []
    known += [f"its lines arrive up to {slow:.0f} s late"] if slow else []
    known += [f"it is {phase.name}"] if phase.name else []
    known += [f"which previously took up to {phase.longest:.0f} s"] if phase.name and phase.longest is not None else []
    return Probe(
        "silence", "yes" if age > ceiling else "no", detail + (f" ({', '.join(known)})" if known else ""), newest, now
    )


def _sound(times: Sequence[float], now: float, limits: HangLimits) -> list[float]:
    """Return the plausible times, without those of clocks ahead of the collector's if any other clock is not ahead."""
    return [time for time in times if time <= now + SKEW] or [time for time in times if time <= now + limits.window]


def phase_of(facts: Facts, now: float | None, limits: HangLimits, timeout: float | None = None) -> Phase:
    """Return the run's phase according to its logs, with a ceiling from the job's own history or else the limits.

    `now`: Unix time; None if nothing tells it. `timeout`: seconds after which the job's collectives time out.
    """
    streams = [stream for stream in facts.streams if stream.summary.ref.kind == "job"]
    name = _phase(facts, streams)
    longest = pauses(streams).get(name)
    if longest is None and name == "saving":  # one log may mention saves and another steps
        longest = longest_save(facts)
    return Phase(name, ceiling_of(name, longest, limits, timeout), longest, _quiet(streams, now, limits))


def ceiling_of(name: str, longest: float | None, limits: HangLimits, timeout: float | None = None) -> float:
    """Return how long a phase that took `longest` before (None if not seen) may last, below the collectives' timeout."""
    if not name:
        return 0.0
    times = limits.save_times if name == "saving" else limits.phase_times
    own = float(getattr(limits, name)) if longest is None else max(limits.phase_least, times * longest)
    return own if timeout is None or timeout <= 0 else min(own, limits.timeout_share * timeout)


def _quiet(streams: Sequence[StreamFacts], now: float | None, limits: HangLimits) -> float | None:
    """Return the seconds since the last line or, if lines continue but steps do not, since the next step was due."""
    ends = [p.time for stream in streams for p in stream.points[-1:] if p.time is not None]
    steps = _sound(ends, now, limits) if now is not None else []
    lines = [stream.summary.last_time for stream in streams if stream.summary.last_time is not None]
    if now is None or not (steps or lines):
        return None
    gap = usual_gap(streams) or 0.0
    due = max(steps) + gap if steps else 0.0
    return max(0.0, now - max(_sound(lines, now, limits), default=due), now - due if steps else 0.0)


def _phase(facts: Facts, streams: Sequence[StreamFacts]) -> str:
    """Return the run's last known activity, a phase with its own ceiling, or no phase."""
    if facts.end is not None:
        name = PHASES.get(facts.end[0], "")
        return "" if name and any(_over(stream, name) for stream in streams) else name
    stages = [stream.stage(stream.summary.size) for stream in streams]
    # compiling, reading and rendezvous before the first step all belong to the start
    return next((PHASES[stage] for stage in stages if stage in PHASES), "starting" if streams else "")


_OVER = {"saving": "save_end", "loading": "load_end"}


def _over(stream: StreamFacts, name: str) -> bool:
    """Whether a log reports the end of a phase, and no later start of it."""
    ends = [
        structure.offset
        for structure in stream.summary.structures
        if structure.kind == "checkpoint" and structure.fields.get("event") == _OVER.get(name)
    ]
    begun = [mark.offset for mark in stream.summary.marks if PHASES.get(mark.stage) == name]
    return bool(ends and begun) and ends[-1] >= max(begun)


def _ceiling(gap: float | None, phase: Phase, limits: HangLimits, timeout: float | None) -> float:
    own = limits.silence_most if gap is None else limits.silence_gaps * gap
    seldom = 0.0 if gap is None else _SELDOM * gap  # a job whose lines are further apart than the permitted silence
    ceiling = max(min(limits.silence_most, max(limits.silence_least, own)), seldom, phase.ceiling)
    if timeout is not None and timeout > 0:
        ceiling = min(ceiling, limits.timeout_share * timeout)
    return ceiling
