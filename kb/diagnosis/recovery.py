"""Recovery advice: a table of advice by fault, and the conditions that escalate it.

The table is rules/faults.yaml; individual rules and rows can override it (see docs/advice.md). A plain requeue is
advised only if a retry fixes the fault, never for a symptom alone or an unknown failure: find the cause first.

Nodes are excluded by Baidu Baige's grades. For one explicit hardware or network fault, replace the node and exclude it
for the cluster. For one implicit fault (found by comparison, not reported by a device), replace it and exclude it for this
job. Without a single suspect, restart in place, or resubmit if an earlier attempt ended the same way. A program fault
stops the job until a person fixes it. Advice that has failed is not repeated: a restart in place is followed by
other nodes, and other nodes by a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from statistics import median, median_low

from kb.diagnosis.causal_order import STOPS
from kb.diagnosis.findings import Finding
from kb.diagnosis.owner import on_loopback, owner
from kb.diagnosis.ranking import Ranked
from kb.facts.gpus import gpu_count
from kb.facts.history import EarlierAttempt, History, nodes_digest
from kb.facts.job_facts import Facts
from kb.model import ProgressPoint
from kb.report import COMPLETED, ONE_END, Advice, Decision, Diagnosis, Exclusion, Option, Progress, RemedyStep, Suspect
from kb.rulebase.rule import Rulebook
from kb.values import dataclass

_BEGUN_AGAIN: tuple[Advice, ...] = ("requeue", "requeue_without", "restart_in_place", "resubmit")
_REPEATS: tuple[Advice, ...] = ("requeue", "restart_in_place", "resubmit")
_SYMPTOM = "Only a symptom is known; until you know the cause, a rerun may fail too"
_RESTARTS = frozenset({"restart_from_checkpoint", "restart_in_place", "resubmit", "exclude_node_job"})
_SPOILS = frozenset({"loss_not_finite", "silent_corruption", "lr_schedule"})  # from then on, the weights are wrong
SINGLE = 2  # up to this many nodes count as a single suspect (the two ends of a link)
POINTS = 32  # number of iteration lines used to compute the duration of a step


@dataclass(frozen=True, slots=True)
class Price:
    """The job's cost: GPUs, seconds per step (median of recent steps), and seconds from its start to its first step.

    `logged_every`: the steps from one logged step to the next.
    """

    gpus: int | None = None
    step: float | None = None
    start_up: float | None = None
    logged_every: int = 1

    def hours(self, steps: int | None, start_up: bool = False) -> float | None:
        """Return the GPU-hours to repeat this many steps, including the start-up if it is known; None if unknown."""
        if self.gpus is None or steps is None or (self.step is None and steps):
            return None
        seconds = steps * (self.step or 0.0) + ((self.start_up or 0.0) if start_up else 0.0)
        return round(seconds * self.gpus / 3600.0, 2)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run that a decision needs. `nodes` holds the known nodes that it ran on.

    `unexplained`: it failed and no rule explains why. `stopped`: the fault class that the scheduler gives as the reason
    for its end (kb.facts.scheduler_state.stop_reason), "" for none. `finished`: it did all its steps; `completed`: it provably completed. `left`: the stage
    after its training in which it failed, although the training is complete; "" if it is not. `saved`: its logs show a
    complete checkpoint, of whatever step. `stood`: for how long it took no step before it was ended, in words; "" if unknown.
    """

    progress: Progress = field(default_factory=Progress)
    price: Price = field(default_factory=Price)
    history: History = field(default_factory=History)
    nodes: frozenset[str] = frozenset()
    unexplained: bool = False
    stopped: str = ""
    finished: bool = False
    completed: bool = False
    left: str = ""
    saved: bool = False
    stood: str = ""


def price(facts: Facts) -> Price:
    """Return the cost of this job's time, as far as its logs and description reveal it."""
    job = facts.evidence.job
    points = max((stream.points for stream in facts.streams), key=len, default=[])
    told = [point.seconds for point in points[-POINTS:] if point.seconds and 0 < point.seconds < 1e6]
    timed = [(point.step, point.time) for point in points if point.step is not None and point.time is not None]
    step = median(told) if told else None
    if step is None and len(timed) > 1:
        (first, begun), (last, ended) = timed[max(0, len(timed) - POINTS)], timed[-1]
        step = (ended - begun) / (last - first) if last > first and ended > begun else None
    start_up = timed[0][1] - job.start if timed and job.start is not None and timed[0][1] > job.start else None
    return Price(gpu_count(facts), step, start_up, _logged_every(points[-POINTS:]))


def _logged_every(points: Sequence[ProgressPoint]) -> int:
    """Return the usual distance of logged steps; 1 if it is unknown."""
    steps = [point.step for point in points if point.step is not None]
    apart = [later - earlier for earlier, later in pairwise(steps) if later > earlier]
    return median_low(apart) if apart else 1


def decide(rulebook: Rulebook, ranked: Sequence[Ranked], suspects: Sequence[Suspect], run: RunFacts) -> Decision:
    """Decide whether to requeue, which nodes to exclude, which checkpoint to use, what is lost, and who owns the problem."""
    cost = run.price
    done = _before_it_went_wrong(run.progress, ranked[0]) if ranked else run.progress
    if run.finished:  # no steps remain, so there is nothing to resume
        done = replace(done, last_checkpoint=None)
    lost = None
    if done.last_iteration is not None and done.last_checkpoint is not None:
        lost = max(0, done.last_iteration - done.last_checkpoint)
    most = None if lost is None else lost + _unlogged(run)
    bare = Decision(
        from_checkpoint=done.last_checkpoint,
        steps_lost=lost,
        steps_lost_at_most=most,
        gpu_hours_lost=cost.hours(lost) if lost is not None else None,
    )
    if not ranked:
        unknown = rulebook.faults.get("unknown")
        why = unknown.because if unknown else _SYMPTOM
        return replace(bare, advice="fix_first", why=why, find_cause=True) if run.unexplained else bare
    best = _stopped_by_scheduler(ranked[0].best, rulebook, run.stopped)
    ranked = (replace(ranked[0], findings=(best, *ranked[0].findings[1:])), *ranked[1:])
    alike = _alike(run.history.tries, best.fault.id)
    wanted, _ = listed(best)
    named = _barred(ranked[0], suspects) if wanted == "requeue_without" else ()
    already = _already(named, run)
    barred = (*named, *already)
    advice, why = _graded(ranked[0], named, run)
    if wanted == "requeue_without" and not named and any(suspect.why == ONE_END for suspect in suspects):
        advice, why = "requeue_without", f"{listed(best)[1]}; the logs don't show which end is at fault"
    if best.fault.id not in STOPS:
        advice, why = _raised(advice, why, named, alike, run)
    if advice == "restart_in_place" and barred:
        advice, why = (
            "requeue_without",
            f"{why}; {_names(barred)} {'is' if len(barred) == 1 else 'are'} excluded already",
        )
    if run.left:
        advice, why = _after_training(advice, why, run.left)
    elif run.completed:
        why = f"{why}. {COMPLETED}"
    return Decision(
        advice=advice,
        exclude=barred if advice == "requeue_without" else already if advice in _BEGUN_AGAIN else (),
        from_checkpoint=bare.from_checkpoint,
        steps_lost=bare.steps_lost,
        steps_lost_at_most=bare.steps_lost_at_most,
        gpu_hours_lost=bare.gpu_hours_lost,
        owner=owner(best, rulebook),
        why=why,
        options=_options(barred, lost, cost) if wanted == "requeue_without" and advice in _BEGUN_AGAIN else (),
        find_cause=((best.is_symptom or bool(run.stood)) and advice == "fix_first")
        or (advice == "requeue_without" and not barred),
    )


def in_line(diagnoses: Sequence[Diagnosis], advice: Advice) -> tuple[Diagnosis, ...]:
    """Return the diagnoses; where the decision is not to start the job again yet, those after the first without steps that do."""
    if advice not in ("fix_first", "wait"):
        return tuple(diagnoses)
    return (*diagnoses[:1], *(replace(item, remediation=_without_restart(item)) for item in diagnoses[1:]))


def _without_restart(diagnosis: Diagnosis) -> tuple[RemedyStep, ...]:
    return tuple(step for step in diagnosis.remediation if step.action not in _RESTARTS)


def _after_training(advice: Advice, why: str, left: str) -> tuple[Advice, str]:
    """Decide for a run that failed after its training: at most what follows the training has to run again."""
    if left == "evaluating":
        return advice, f"{why}. The training itself is complete; only the evaluation is left to run"
    done = "The training itself is complete. Check that its result is saved; no step has to run again"
    return ("none", done) if advice in _REPEATS else (advice, f"{why}. {done}")


def _unlogged(run: RunFacts) -> int:
    """Return the most steps that the run can have made after the last one that it logged."""
    done, more = run.progress, run.price.logged_every - 1
    if run.finished or done.total_iterations is None or done.last_iteration is None:
        return 0 if run.finished else more
    return max(0, min(more, done.total_iterations - done.last_iteration))


def _stopped_by_scheduler(best: Finding, rulebook: Rulebook, stopped: str) -> Finding:
    """Return the finding; for a bare external SIGTERM, with the reason that the scheduler gives for the job's end."""
    fault = rulebook.faults.get(stopped)
    if fault is None or not best.is_symptom or best.fault.id not in STOPS:
        return best
    return replace(best, role="root_cause", fault=fault)


def _before_it_went_wrong(done: Progress, ranked: Ranked) -> Progress:
    """Return the progress, minus any checkpoint written after the numbers went wrong, since it holds wrong values."""
    steps = [signal.iteration for signal in ranked.best.signals if signal.iteration is not None]
    if ranked.best.fault.id not in _SPOILS or done.last_checkpoint is None or not steps:
        return done
    return replace(done, last_checkpoint=None) if done.last_checkpoint > min(steps) else done


def listed(best: Finding) -> tuple[Advice, str]:
    """Return the table's advice and its reason, from the row, the rule or the fault class, in that order."""
    own = (best.row,) if best.row is not None and best.row.fault is not None else (best.row, best.rule)
    for part in own:
        if part is not None and part.advice is not None:
            return part.advice, best.fill(part.because or best.fault.title)
    if best.is_symptom and not best.fault.symptom:
        return "fix_first", _SYMPTOM
    advice = "fix_first" if best.fault.advice == "wait" and on_loopback(best) else best.fault.advice
    return advice, best.fill(best.fault.because or best.fault.title)


def _barred(ranked: Ranked, suspects: Sequence[Suspect]) -> tuple[Exclusion, ...]:
    """Return the nodes to exclude, and the scope of the exclusion."""
    best = ranked.best
    scope = "cluster" if best.fault.domain == "hardware" and _explicit(ranked) else "job"
    title = best.title
    named = {
        suspect.node: suspect
        for suspect in suspects
        if suspect.node and suspect.kind in ("rank", "node", "gpu", "port") and suspect.why != ONE_END
    }
    return tuple(Exclusion(node, scope, title) for node in named)  # type: ignore[arg-type]


def _already(named: Sequence[Exclusion], run: RunFacts) -> tuple[Exclusion, ...]:
    """Return the nodes of this run that people have excluded and that must not be assigned again."""
    new = {exclusion.node for exclusion in named}
    return tuple(
        Exclusion(
            item.node, item.scope, f"excluded since {item.since} by {item.who}{f': {item.why}' if item.why else ''}"
        )
        for item in run.history.barred
        if item.node in run.nodes and item.node not in new
    )


def _names(barred: Sequence[Exclusion]) -> str:
    names = [exclusion.node for exclusion in barred]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _alike(tries: Sequence[EarlierAttempt], fault: str) -> tuple[EarlierAttempt, ...]:
    """Return the last attempts in a row that ended with this fault, oldest first."""
    found: list[EarlierAttempt] = []
    for earlier_attempt in reversed(tries):
        if fault not in earlier_attempt.faults:
            break
        found.append(earlier_attempt)
    return tuple(reversed(found))


def _raised(
    advice: Advice, why: str, named: Sequence[Exclusion], alike: Sequence[EarlierAttempt], run: RunFacts
) -> tuple[Advice, str]:
    """Replace advice that has already failed: the same nodes by other nodes, and other nodes by a person."""
    if not alike or advice not in _BEGUN_AGAIN:
        return advice, why
    back = [node for node in alike[-1].without if node in run.nodes]
    if back:
        return advice, f"{why}; {back[0]} should have been excluded{_incidents(alike[-1:])} but was used again"
    own = nodes_digest(run.nodes)
    after = (*(earlier_attempt.ran_on for earlier_attempt in alike[1:]), own)
    moved = [item for item, place in zip(alike, after, strict=True) if _moved(item, place)]
    stayed = [item for item, place in zip(alike, after, strict=True) if _stayed(item, place)]
    if moved and not named:
        return (
            "fix_first",
            f"{why}; the failure recurred on other nodes{_incidents(moved)}. Have a person investigate and fix it",
        )
    if moved:
        return advice, f"{why}; the failure recurred on other nodes{_incidents(moved)}. Look for what they share"
    if stayed and advice in ("restart_in_place", "requeue"):
        return (
            "requeue_without" if named else "resubmit",
            f"{why}; a restart on the same nodes did not help{_incidents(stayed)}. Use other nodes",
        )
    return advice, why


def _moved(earlier_attempt: EarlierAttempt, place: str) -> bool:
    """Whether the next attempt ran on other nodes, judged by the nodes of both, or by the advice if those are unknown."""
    if earlier_attempt.ran_on and place:
        return earlier_attempt.ran_on != place
    return earlier_attempt.advice in ("requeue_without", "resubmit")


def _stayed(earlier_attempt: EarlierAttempt, place: str) -> bool:
    if earlier_attempt.ran_on and place:
        return earlier_attempt.ran_on == place
    return earlier_attempt.advice == "restart_in_place"


def _incidents(tries: Sequence[EarlierAttempt]) -> str:
    numbers = [str(earlier_attempt.incident) for earlier_attempt in tries if earlier_attempt.incident is not None]
    if not numbers:
        return ""
    return f" (incident{'' if len(numbers) == 1 else 's'} {', '.join(numbers[-3:])})"


def _explicit(ranked: Ranked) -> bool:
    """Whether a device or program reported the fault, as opposed to a comparison finding it."""
    return ranked.best.first.kind != "series" and not ranked.best.first.compared


def _graded(ranked: Ranked, barred: Sequence[Exclusion], run: RunFacts) -> tuple[Advice, str]:
    """Return the table's advice, adjusted for the suspects, the checkpoint and earlier attempts."""
    best = ranked.best
    wanted, why = listed(best)
    again = any(best.fault.id in earlier_attempt.faults for earlier_attempt in run.history.tries)
    if wanted == "none" and best.captures.get("numbers") == "bad":
        return "fix_first", why  # somebody stopped a run that was broken
    if run.stood and best.fault.id in STOPS and wanted in ("none", "requeue"):
        return (
            "fix_first",
            f"It took no step for {run.stood} before its end; until you know why, a rerun may stand still too",
        )
    if wanted == "requeue_without":
        return _without(ranked, barred, why, again=again)
    if best.fault.id == "time_limit" and wanted == "requeue":
        return _past_the_limit(why, run)
    if again and wanted == "requeue" and best.fault.id not in STOPS:
        return "fix_first", f"{why}; but an earlier attempt ended the same way, so a rerun will not help"
    return wanted, why


def _past_the_limit(why: str, run: RunFacts) -> tuple[Advice, str]:
    """Decide for a run that hit its time limit. A retry gets further only from a newer checkpoint."""
    done = run.progress
    last = run.history.tries[-1] if run.history.tries else None
    if done.last_checkpoint is None and not run.saved:
        return (
            "resubmit",
            "No complete save was recognised in these logs; without one, a rerun starts over and may hit the limit again",
        )
    if last is None or "time_limit" not in last.faults or last.reached is None or done.last_iteration is None:
        return "requeue", why
    if done.last_iteration > last.reached:
        return "requeue", why
    return "resubmit", f"The run came no further than the attempt before{_incidents([last])}"


def _without(ranked: Ranked, barred: Sequence[Exclusion], why: str, *, again: bool) -> tuple[Advice, str]:
    """Decide for a fault that requires excluding a node, depending on whether the node is known."""
    if len(barred) > SINGLE:
        return "requeue_without", f"{why}; {len(barred)} nodes are suspects. Look for what they share"
    if barred:
        return "requeue_without", why
    if _explicit(ranked):
        return (
            "requeue_without",
            f"{why}; the node is not known. Find it before you restart, among those that the scheduler lists for the job",
        )
    if ranked.best.fault.outlives:
        return "fix_first", f"{why}; the node is not known. Find it first"
    if again:
        return "resubmit", "An earlier attempt ended the same way, and the node is not known"
    return "restart_in_place", "The node is not known; if the failure recurs, use other nodes"


def _options(barred: Sequence[Exclusion], lost: int | None, cost: Price) -> tuple[Option, ...]:
    """Return the alternatives, each with its cost in GPU-hours if known."""
    redo = cost.hours(lost if lost is not None else 0, start_up=True)
    some = redo if lost is not None or cost.start_up is not None else None
    choices: list[Option] = []
    if barred:
        choices.append(Option("requeue_without", some, "repeated steps and start-up, plus the wait for a spare node"))
    choices += [
        Option("restart_in_place", some, "repeated steps and start-up, lost once more if the same node fails"),
        Option("resubmit", some, "repeated steps and start-up, plus the wait in the queue"),
    ]
    return tuple(choices)
