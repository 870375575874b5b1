"""Measures the vote of the four hang probes against each single probe, on simulated jobs (bench/hang_sim.py).

    python bench/hang.py [--hours 500] [--hangs 140] [--seed N] [--world first|second|third] [--processes N] [--json]

Three worlds of jobs: two used to fix the probes (hang_sim.FIRST, SECOND), and a held-out one (THIRD). Each simulated
job is sampled as by `signalbox watch`, every 20 s, through kb.hangs.observe.hang_votes. If the last three minutes
contain only short steps, one sample in six is taken: silence and spinning take longer to begin. False calls on a
healthy trace count once until ten minutes without one have passed. A hang is found if it is called before the
collective timeout (or 45 minutes in a phase with its own ceiling); its delay counts from the last progress. Precision
is over all traces, so it depends on the ratio of hangs to healthy hours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import hang_sim  # next to this script
from hang_sim import BASE, FIRST, KINDS, LOOK, SECOND, THIRD, Made, World, made_job

from bot.live.probe_cycle import HELD
from bot.rulebase.loader import knowledge
from kb.facts.job_facts import Facts
from kb.hangs.non_log_evidence import NonLogEvidence
from kb.hangs.observe import hang_votes
from kb.hangs.pace import Lateness
from kb.model import StackSample
from kb.parsers.nccl_ras.values import RasReport
from kb.report import Hang
from kb.rulebase.rule import Rulebook

ASKED_FALSE = 0.05  # calls per job-day
ASKED_DELAY = {"logs and stacks": 300.0, "logs, stacks and a recorder": 60.0}
HEALTHY_HOURS = 2.0
PROBES = ("silence", "stacks", "spin", "collective", "vote")
SELDOM = 6
REST = 600.0  # seconds without a call after which the next one counts again
PHASES = ("saving", "evaluating", "start")
DATA = "loader"
_BOOKS: list[Rulebook] = []


@dataclass(slots=True)
class Watched:
    """The result of one job: when each probe and the vote fired before the hang (episodes) and first after it."""

    seed: int
    hang: str | None
    hours: float
    group: str
    false: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    delay: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


def watch(job: Made, begin: float = 0.0) -> Watched:
    """Sample a job from its start (or from a time on) to its end."""
    book = _book()
    known = [name for name, there in (("stacks", job.stacks), ("a recorder", job.recorder != "none")) if there]
    sources = " and ".join((", ".join(["logs", *known[:-1]]), *known[-1:])) if known else "logs alone"
    if job.hang in PHASES:
        sources = f"in a phase, {sources}"
    elif job.hang == DATA:
        sources = f"waiting for data, {sources}"
    elif not job.timed or job.hang == "chatter":
        sources = f"logs of no use, {sources}"
    out = Watched(job.seed, job.hang, (min(job.end, job.since) - begin) / 3600, sources)
    rounds: deque[list[StackSample]] = deque(maxlen=HELD)
    late = Lateness()
    polls: deque[RasReport] = deque(maxlen=20)
    last: dict[str, float] = {}
    now, turn = begin, 0
    while now < job.end:
        turn += 1
        rounds.append(hang_sim.stacks(job, now))
        answer = hang_sim.ras(job, now)
        if answer is not None:
            polls.append(answer)
        if not job.ordinary(now) or turn % SELDOM == 0:
            evidence = hang_sim.evidence(job, now)
            parts = NonLogEvidence(
                stacks=tuple(item for each in rounds for item in each),
                rings=hang_sim.rings(job, now),
                ras=tuple(polls),
                panels=hang_sim.panels(job, now),
                late=late.seen(Facts(evidence).streams, BASE + now),
            )
            _note(job, now, hang_votes(evidence, parts, book), out, last)
        now += LOOK
    return out


def _note(job: Made, now: float, hang: Hang, out: Watched, last: dict[str, float]) -> None:
    yes = {vote.probe for vote in hang.votes if vote.vote == "yes"} | ({"vote"} if hang.called else set())
    out.seen |= {vote.probe for vote in hang.votes if vote.vote != "not_observable"}
    for probe in yes:
        if now < job.since:
            if now - last.get(probe, -1e9) > REST:
                out.false[probe].append(job.at(now).kind + (" alone" if job.at(now).alone else ""))
            last[probe] = now
        else:
            out.delay.setdefault(probe, now - job.since)


def _book() -> Rulebook:
    if not _BOOKS:
        _BOOKS.append(knowledge().rulebook)
    return _BOOKS[0]


def _healthy(asked: tuple[int, World]) -> Watched:
    seed, world = asked
    return watch(made_job(seed, hours=HEALTHY_HOURS, world=world))


def _hanging(asked: tuple[int, str, World]) -> Watched | None:
    """None for a job that ends before the phase in which it should hang."""
    seed, hang, world = asked
    job = made_job(seed, hang, world=world)
    return None if math.isinf(job.since) else watch(job, max(0.0, job.since - 900.0) // LOOK * LOOK)


def ablation(watched: Sequence[Watched]) -> dict[str, dict[str, float | int | None]]:
    """Return precision, recall, delay and false calls per job-day of each single probe and of the vote."""
    hangs = [item for item in watched if item.hang]
    days = sum(item.hours for item in watched) / 24
    table: dict[str, dict[str, float | int | None]] = {}
    for probe in PROBES:
        found = [hang.delay[probe] for hang in hangs if probe in hang.delay]
        false = sum(len(item.false[probe]) for item in watched)
        table[probe] = {
            "observed": sum(probe in hang.seen or probe == "vote" for hang in hangs),
            "precision": len(found) / (len(found) + false) if found or false else None,
            "recall": len(found) / len(hangs) if hangs else None,
            "median_delay": median(found) if found else None,
            "p90_delay": quantile(found, 0.9),
            "false": false,
            "false_a_day": false / days if days else 0.0,
        }
    return table


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return a quantile; None for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def delays(watched: Sequence[Watched]) -> dict[str, dict[str, float | int | None]]:
    """Return for the hangs by collected evidence how many the vote called, and how soon."""
    table = {}
    for group in sorted({item.group for item in watched if item.hang}):
        members = [item for item in watched if item.hang and item.group == group]
        found = [member.delay["vote"] for member in members if "vote" in member.delay]
        table[group] = {
            "hangs": len(members),
            "called": len(found),
            "median": median(found) if found else None,
            "p90": quantile(found, 0.9 * len(members) / len(found))
            if found and len(found) > 0.9 * len(members)
            else None,
            "worst": max(found, default=None),
        }
    return table


def run(hours: float, hangs: int, seed: int, world: World, processes: int) -> dict[str, Any]:
    """Return all figures of one world."""
    begun = time.monotonic()
    jobs = [(seed + at, world) for at in range(round(hours / HEALTHY_HOURS))]
    asked = [(seed + 100_000 + at, KINDS[at % len(KINDS)], world) for at in range(hangs)]
    with ProcessPoolExecutor(processes) as pool:
        healthy = list(pool.map(_healthy, jobs, chunksize=4))
        hung = [item for item in pool.map(_hanging, asked, chunksize=4) if item is not None]
    total = sum(item.hours for item in healthy)
    false = [kind for item in healthy for kind in item.false["vote"]]
    missed = Counter(f"{item.hang}, {item.group}" for item in hung if "vote" not in item.delay)
    low, high = interval(len(false))
    return {
        "ablation": ablation([*healthy, *hung]),
        "healthy": {
            "hours": total,
            "false": len(false),
            "false_a_day": 24 * len(false) / total,
            "low": 24 * low / total,
            "high": 24 * high / total,
            "while": dict(Counter(false)),
            "seeds": [item.seed for item in healthy if item.false["vote"]],
        },
        "delays": delays(hung),
        "missed": dict(missed),
        "seconds": time.monotonic() - begun,
    }


def interval(count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a Poisson mean of which `count` were seen."""
    return (_mean_at(count - 1, 0.975) if count else 0.0), _mean_at(count, 0.025)


def _mean_at(count: int, share: float) -> float:
    """Return the Poisson mean at which this share of samples is at most `count`."""
    low, high = 0.0, 10.0 * (count + 5)
    for _ in range(60):
        mean = (low + high) / 2
        seen = sum(math.exp(-mean + at * math.log(mean) - math.lgamma(at + 1)) for at in range(count + 1))
        low, high = (mean, high) if seen > share else (low, mean)
    return low


def show(name: str, answer: dict[str, Any]) -> None:
    """Print the figures of one world for people."""
    print(f"== {name}")
    for group, item in answer["delays"].items():
        print(
            f"{group}: {item['called']} of {item['hangs']} hangs called, after {_seconds(item['median'])}, "
            f"p90 {_seconds(item['p90'])}, worst {_seconds(item['worst'])}"
        )
    print(f"not called: {answer['missed']}")
    for group, half, most, limit, holds in asked_delays(answer):
        told = "reached" if holds else "NOT reached"
        print(f"asked of {group}: at most {limit:.0f} s; median {_seconds(half)}, p90 {_seconds(most)}: {told}")
    print("probe        observed  precision  recall  median delay  p90 delay  false calls a job-day")
    for probe, item in answer["ablation"].items():
        cells = [f"{item['observed']:8}", *(_cell(item[name]) for name in ("precision", "recall"))]
        cells += [_seconds(item["median_delay"]), _seconds(item["p90_delay"]), f"{item['false_a_day']:.2f}"]
        print(f"{probe:12} " + "  ".join(f"{cell:>9}" for cell in cells))
    well = answer["healthy"]
    print(
        f"healthy: {well['false']} false calls in {well['hours']:.0f} job-hours, {well['false_a_day']:.3f} a job-day, "
        f"95 % interval {well['low']:.3f} to {well['high']:.3f} (asked: {ASKED_FALSE}) {well['while'] or ''} {well['seeds'] or ''}"
    )
    print(f"{answer['seconds']:.0f} s")


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


def main() -> int:
    """Run everything; exit with status 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hours", type=float, default=500.0, help="healthy job-hours of each world")
    parser.add_argument("--hangs", type=int, default=140, help="of each world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", choices=("first", "second", "third"), help="one world only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    worlds = [item for item in (FIRST, SECOND, THIRD) if asked.world in (None, item.name)]
    answers = {world.name: run(asked.hours, asked.hangs, asked.seed, world, asked.processes) for world in worlds}
    if asked.json:
        print(json.dumps(answers))
    else:
        for name, answer in answers.items():
            show(name, answer)
    return 0 if all(reached(item) for item in answers.values()) else 1


def reached(answer: dict[str, Any]) -> bool:
    """Whether the targets for false calls and for the delay of nine in ten hangs are met."""
    return bool(answer["healthy"]["false_a_day"] <= ASKED_FALSE and all(ok for *_, ok in asked_delays(answer)))


def asked_delays(answer: dict[str, Any]) -> list[tuple[str, float | None, float | None, float, bool]]:
    """Return for each group with a target delay: median, 90th percentile over all hangs, target, whether it is met."""
    found = []
    for group, limit in ASKED_DELAY.items():
        one = answer["delays"].get(group)
        if one is not None:
            found.append((group, one["median"], one["p90"], limit, one["p90"] is not None and one["p90"] <= limit))
    return found


if __name__ == "__main__":
    sys.exit(main())
