"""What to do now, by the grade of the fault, and what each choice costs.

A single explicit fault of hardware or network: replace the node and bar it for the cluster. A single implicit one (seen by
comparison, not said by a device): replace it and bar it for this job. Nobody singled out: restart in place, and submit anew
where an earlier attempt ended alike. The program's own fault: stop, a person must mend it. (Baidu Baige's grades.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from kb.evidence import Facts, History
from kb.ranking import Ranked
from kb.report import Advice, Decision, Exclusion, Option, Progress, Suspect
from kb.rule import Rulebook

SINGLE = 2  # so many nodes named are still "single": the two ends of a link
POINTS = 32  # iteration lines from which the length of a step is taken


@dataclass(frozen=True, slots=True)
class Price:
    """What the job costs: GPUs, seconds of a step (median of the last ones), seconds from its start to its first step."""

    gpus: int | None = None
    step: float | None = None
    start_up: float | None = None

    def hours(self, steps: int | None, start_up: bool = False) -> float | None:
        """GPU-hours of so many steps done again, with the start-up where it is known; None where it cannot be told."""
        if self.gpus is None or steps is None or (self.step is None and steps):
            return None
        seconds = steps * (self.step or 0.0) + ((self.start_up or 0.0) if start_up else 0.0)
        return round(seconds * self.gpus / 3600.0, 2)


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of the run that a decision hangs on."""

    progress: Progress = field(default_factory=Progress)
    price: Price = field(default_factory=Price)
    history: History = field(default_factory=History)


def price(facts: Facts) -> Price:
    """The price of this job's time, as far as its logs and its description tell."""
    job = facts.evidence.job
    gpus = job.gpus or job.world_size or sum(len(ranks) for ranks in job.nodes.values()) or None
    points = max((stream.points for stream in facts.streams), key=len, default=[])
    told = [one.seconds for one in points[-POINTS:] if one.seconds and 0 < one.seconds < 1e6]
    timed = [(one.step, one.time) for one in points if one.step is not None and one.time is not None]
    step = median(told) if told else None
    if step is None and len(timed) > 1:
        (first, begun), (last, ended) = timed[max(0, len(timed) - POINTS)], timed[-1]
        step = (ended - begun) / (last - first) if last > first and ended > begun else None
    start_up = timed[0][1] - job.start if timed and job.start is not None and timed[0][1] > job.start else None
    return Price(gpus, step, start_up)


def decide(rulebook: Rulebook, ranked: Sequence[Ranked], suspects: Sequence[Suspect], run: Run) -> Decision:
    """Requeue or not, without whom, from where, how much is lost, and who owns it."""
    done, cost = run.progress, run.price
    lost = None
    if done.last_iteration is not None and done.last_checkpoint is not None:
        lost = max(0, done.last_iteration - done.last_checkpoint)
    bare = Decision(
        from_checkpoint=done.last_checkpoint,
        steps_lost=lost,
        gpu_hours_lost=cost.hours(lost) if lost is not None else None,
    )
    if not ranked:
        return bare
    best = ranked[0].best
    again = any(one.fault == best.fault.id for one in run.history.past)
    barred = _barred(ranked[0], suspects)
    advice, why = _graded(ranked[0], barred, again=again)
    return Decision(
        advice=advice,
        exclude=barred if advice == "requeue_without" else (),
        from_checkpoint=bare.from_checkpoint,
        steps_lost=bare.steps_lost,
        gpu_hours_lost=bare.gpu_hours_lost,
        owner=best.rule.owner or rulebook.owners.get(best.fault.domain, "none"),
        why=why,
        options=_options(advice, barred, lost, cost),
    )


def _barred(ranked: Ranked, suspects: Sequence[Suspect]) -> tuple[Exclusion, ...]:
    """The nodes to leave out, and for whom."""
    best = ranked.best
    if best.fault.domain not in ("hardware", "network"):
        return ()
    scope = "cluster" if best.fault.domain == "hardware" and _explicit(ranked) else "job"
    title = best.row.title if best.row else best.rule.title
    named = {one.node: one for one in suspects if one.node and one.kind in ("rank", "node", "gpu", "port")}
    return tuple(Exclusion(node, scope, title) for node in named)  # type: ignore[arg-type]


def _explicit(ranked: Ranked) -> bool:
    """Whether a device or a program said it, rather than a comparison."""
    return ranked.best.first.kind != "series" and not ranked.best.first.compared


def _graded(ranked: Ranked, barred: Sequence[Exclusion], *, again: bool) -> tuple[Advice, str]:
    best = ranked.best
    wanted: Advice = best.fault.advice  # type: ignore[assignment]
    if wanted == "requeue_without":
        return _without(ranked, barred, again=again)
    if again and best.fault.domain == "software" and wanted == "requeue":
        return "fix_first", f"{best.fault.title}; an earlier attempt ended alike, so it will again"
    if again and best.is_symptom and wanted in ("requeue", "restart_in_place"):
        return "resubmit", "an earlier attempt ended alike"
    return wanted, best.fault.title


def _without(ranked: Ranked, barred: Sequence[Exclusion], *, again: bool) -> tuple[Advice, str]:
    """A node is to be left out: is it known which?"""
    if len(barred) > SINGLE:
        return "requeue_without", f"{ranked.best.fault.title}; {len(barred)} nodes are named, look for what they share"
    if barred:
        return "requeue_without", ranked.best.fault.title
    if _explicit(ranked):
        return "requeue_without", "the node at fault is not named in what was seen: find it before the run starts again"
    if again:
        return "resubmit", "an earlier attempt ended alike, and the node at fault is not named in what was seen"
    return "restart_in_place", "the node at fault is not named in what was seen"


def _options(advice: Advice, barred: Sequence[Exclusion], lost: int | None, cost: Price) -> tuple[Option, ...]:
    """The choices open besides, each with what it costs in GPU-hours as far as that can be told."""
    if advice in ("none", "fix_first", "wait"):
        return ()
    redo = cost.hours(lost if lost is not None else 0, start_up=True)
    some = redo if lost is not None or cost.start_up is not None else None
    choices: list[Option] = []
    if barred:
        choices.append(
            Option("requeue_without", some, "steps done again and start-up; waiting for a spare node comes on top")
        )
    choices += [
        Option("restart_in_place", some, "steps done again and start-up; lost again if the same node fails again"),
        Option("resubmit", some, "steps done again and start-up; waiting in the queue comes on top"),
    ]
    return tuple(choices)
