"""Which failures the set holds: symptoms in the paper's shares, decisive events at its levels, jobs of all sizes and styles.

Shares are from L4 (arXiv 2503.20263): 21.3 % of failures show at launch, 57.5 % as a crash, 16.6 % as abnormal behaviour, 4.7 %
otherwise; failure-indicating lines stand at error in 54.8 %, warning in 23.1 %, info in 13.6 %, debug in 8.5 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from bench.l4set.faults import ABNORMAL, CRASH_HARDWARE, CRASH_SOFTWARE, LAUNCH, OTHER, Event, Fault
from bench.l4set.styles import STYLES, WEIGHTS

ROUND = 100
SYMPTOMS = {"launch": 21, "crash": 57, "abnormal": 17, "other": 5}
LEVEL_SHARES = {"error": 0.548, "warning": 0.231, "info": 0.136, "debug": 0.085}
RECORDED = {  # real runs that are dressed anew, by symptom
    "launch": ("import", "load", "port", "missing-node"),
    "crash": ("raise", "kill", "segv", "worker-raise", "save-full", "stuck", "worker-kill", "eval-assert"),
    "abnormal": ("slow",),
    "other": (),
}
RECORDED_LEVELS = {
    "import": {"error": 1}, "load": {"error": 1}, "port": {"error": 1}, "raise": {"error": 1}, "kill": {"error": 2},
    "segv": {"error": 2}, "worker-raise": {"error": 2}, "save-full": {"error": 2}, "stuck": {"debug": 1},
    "worker-kill": {"error": 1}, "missing-node": {"error": 1}, "eval-assert": {"error": 1}, "slow": {"info": 1, "debug": 1},
}  # fmt: skip
SIZES = (2, 4, 4, 6, 8, 8, 12, 16, 16, 16, 24, 32, 32, 48, 64)  # nodes, where a failure needs several
SWEEPS = 4
KINDS = {
    "launch": (LAUNCH,),
    "crash": (CRASH_HARDWARE, CRASH_HARDWARE, CRASH_SOFTWARE),
    "abnormal": (ABNORMAL,),
    "other": (OTHER,),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One case of the plan. `number` seeds it; `recorded` names a real run; `fault` is None for a healthy pair."""

    number: int
    symptom: str
    fault: Fault | None = None
    recorded: str = ""
    events: tuple[Event, ...] = ()
    style: str = ""
    nodes: int | None = None
    stage: str = ""


def plan(seed: int, cases: int, healthy: int) -> list[Planned]:
    """Failures, then healthy pairs, each list in an order by chance. The first 100 failures hold the shares."""
    planned: list[Planned] = []
    for start in range(0, cases, ROUND):
        planned += _round(seed, start)
    quiet = [
        Planned(1_000_000 + number, "healthy", style=_style(Random(f"{seed}/healthy/{number}"), None))
        for number in range(healthy)
    ]
    return planned[:cases] + quiet


def _round(seed: int, start: int) -> list[Planned]:
    chance = Random(f"{seed}/plan/{start}")
    chosen: list[tuple[str, Fault | None, str]] = []
    for symptom, count in SYMPTOMS.items():
        chosen += [(symptom, None, name) for name in RECORDED[symptom]]
        chosen += [(symptom, fault, "") for fault in _faults(symptom, count - len(RECORDED[symptom]), chance)]
    chance.shuffle(chosen)
    told = Counter(level for _, _, name in chosen if name for level in Counter(RECORDED_LEVELS[name]).elements())
    events: dict[int, tuple[Event, ...]] = {}
    for _ in range(SWEEPS):  # each failure again, given all others
        for offset, (_, fault, _) in enumerate(chosen):
            if fault is not None:
                told.subtract(event.level for event in events.get(offset, ()))
                events[offset] = _events(fault, told, chance)
                told.update(event.level for event in events[offset])
    found = []
    for offset, (symptom, fault, recorded) in enumerate(chosen):
        if fault is None:
            found.append(Planned(start + offset, symptom, recorded=recorded))
            continue
        nodes = None if fault.least_nodes < 2 else chance.choice([one for one in SIZES if one >= fault.least_nodes])
        found.append(
            Planned(
                start + offset,
                symptom,
                fault,
                "",
                events[offset],
                _style(chance, fault),
                nodes,
                chance.choice(fault.stages),
            )
        )
    return found


def _faults(symptom: str, count: int, chance: Random) -> list[Fault]:
    """`count` faults of a symptom; none twice before all of its group were there."""
    piles: list[list[Fault]] = [[] for _ in KINDS[symptom]]
    found: list[Fault] = []
    while len(found) < count:
        for number, group in enumerate(KINDS[symptom]):
            shared = next(
                (pile for pile, other in zip(piles[:number], KINDS[symptom], strict=False) if other is group),
                piles[number],
            )
            if not shared:
                shared.extend(chance.sample(group, len(group)))
            if len(found) < count:
                found.append(shared.pop())
    return found


def _style(chance: Random, fault: Fault | None) -> str:
    fitting = [name for name in WEIGHTS if fault is None or fault.accelerator in ("", STYLES[name].accelerator)]
    return chance.choices(fitting, [WEIGHTS[name] for name in fitting])[0]


def _events(fault: Fault, told: Counter[str], chance: Random) -> tuple[Event, ...]:
    """The first event and those of the others that bring the levels of the whole set nearest to the shares."""
    first, rest = fault.events[0], fault.events[1:]
    forced = tuple(event for event in rest if event.channel == "turn")
    free = tuple(event for event in rest if event not in forced)
    choices = [(first, *forced, *some) for size in range(len(free) + 1) for some in combinations(free, size)]
    chance.shuffle(choices)
    return tuple(sorted(min(choices, key=lambda some: _distance(told, some)), key=fault.events.index))


def _distance(told: Counter[str], events: Sequence[Event]) -> float:
    after = told + Counter(event.level for event in events)
    total = sum(after.values())
    return sum(abs(after[level] - share * total) for level, share in LEVEL_SHARES.items()) - 0.3 * len(events)
