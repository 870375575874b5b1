"""Made metrics of training jobs, for bench/metrics.py: a panel of machines by time for each metric, and times of steps.

Written before the detectors and not touched since; its sha256 stands in bench/metrics.py. What a real cluster does to
the numbers is in here without being asked: machines that differ by design (head, pipeline stages, warm racks), noise with
memory and heavy tails, slow drift, evaluation and checkpoint phases that not all machines enter alike, stragglers that
come and go (some of them again and again), lost scrapes, exporters that die, pauses of the whole job. No phase is told to
the detector. Half of the jobs have one faulty machine, whose fault lasts to the end of the window, as before a crash; one
fault in eight is there from the start, so that there is no good time to compare with. A slow machine slows all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEP = 15.0  # seconds between scrapes


@dataclass(frozen=True, slots=True)
class Kind:
    """How one metric behaves: its level, how machines differ, noise, and the memory of the noise from scrape to scrape."""

    level: tuple[float, float]
    spread: float
    noise: float
    memory: float
    top: float = math.inf
    additive: bool = False  # spread and noise are in the metric's own unit, not shares of the level


KINDS = {
    "gpu_util": Kind((96.0, 99.5), 0.005, 0.008, 0.5, top=100.0),
    "sm_active": Kind((45.0, 80.0), 0.02, 0.03, 0.6, top=100.0),
    "tensor_active": Kind((20.0, 55.0), 0.02, 0.03, 0.6, top=100.0),
    "power": Kind((380.0, 620.0), 0.03, 0.02, 0.6),
    "gpu_temp": Kind((52.0, 68.0), 3.0, 0.5, 0.95, additive=True),
    "sm_clock": Kind((1500.0, 1900.0), 0.004, 0.003, 0.5),
    "nvlink_rate": Kind((40e9, 150e9), 0.02, 0.04, 0.6),
    "pcie_rate": Kind((4e9, 15e9), 0.05, 0.08, 0.6),
    "rdma_rate": Kind((10e9, 60e9), 0.03, 0.06, 0.6),
    "pfc_rate": Kind((5.0, 400.0), 0.5, 0.5, 0.7),
    "cpu_util": Kind((8.0, 35.0), 0.10, 0.08, 0.7, top=100.0),
    "host_memory": Kind((25.0, 60.0), 0.04, 0.003, 0.8, top=100.0),
    "disk_wait": Kind((0.2, 1.5), 0.4, 0.5, 0.7, top=100.0),
}
GPU = ("gpu_util", "sm_active", "tensor_active", "power", "gpu_temp", "sm_clock", "nvlink_rate", "pcie_rate")
FAULTS = (
    "throttle",
    "pcie_downgrade",
    "nic_down",
    "nvlink_down",
    "gpu_lost",
    "hang_one",
    "cpu_contention",
    "host_leak",
    "storage_slow",
    "gpu_errors",
    "unreachable",
)


@dataclass(frozen=True, slots=True)
class Made:
    """One made job: metric → machines x scrapes, NaN where nothing was scraped; the faulty machine and since which scrape."""

    seed: int
    metrics: dict[str, Floats] = field(default_factory=dict)
    fault: str | None = None
    machine: int | None = None
    start: int | None = None


def made_job(seed: int) -> Made:
    """One job; the same seed gives the same job."""
    chance = np.random.default_rng([seed, 4711])
    machines = int(chance.choice([8, 12, 16, 24, 32, 48, 64]))
    count = int(chance.integers(240, 481))
    metrics = {name: _healthy(kind, machines, count, chance) for name, kind in KINDS.items()}
    _differ_by_role(metrics, machines, chance)
    _drift(metrics, chance)
    _phases(metrics, chance)
    _stragglers(metrics, chance)
    fault, machine, start = None, None, None
    if chance.random() < 0.5:
        fault = str(chance.choice(FAULTS))
        machine = int(chance.integers(machines))
        lasts = int(math.exp(chance.uniform(math.log(5 * 4), math.log(30 * 4))))
        start = 0 if chance.random() < 0.125 and fault not in {"gpu_lost", "hang_one", "unreachable"} else count - lasts
        _break(metrics, fault, machine, start, chance)
    for name, kind in KINDS.items():
        np.clip(metrics[name], 0.0, kind.top, out=metrics[name])
    metrics["gpu_util"] = np.round(metrics["gpu_util"], 1)
    _lose(metrics, chance)
    if fault == "unreachable":
        for values in metrics.values():
            values[machine, start:] = np.nan
    return Made(seed, metrics, fault, machine, start)


def _memory_noise(shape: tuple[int, int], rho: float, chance: np.random.Generator) -> Floats:
    """Noise of unit spread in which each value keeps `rho` of the one before, with tails heavier than normal."""
    fresh = chance.standard_t(4, size=shape) / math.sqrt(2.0)
    noise = np.empty(shape)
    noise[:, 0] = fresh[:, 0]
    for at in range(1, shape[1]):
        noise[:, at] = rho * noise[:, at - 1] + math.sqrt(1 - rho * rho) * fresh[:, at]
    return noise


def _healthy(kind: Kind, machines: int, count: int, chance: np.random.Generator) -> Floats:
    level = chance.uniform(*kind.level)
    own = chance.standard_normal((machines, 1)) * kind.spread
    noise = _memory_noise((machines, count), kind.memory, chance) * kind.noise
    together = _memory_noise((1, count), 0.8, chance) * kind.noise * 0.5
    if kind.additive:
        return level + own + noise + together
    return level * np.exp(own + noise + together)


def _differ_by_role(metrics: dict[str, Floats], machines: int, chance: np.random.Generator) -> None:
    metrics["cpu_util"][0] *= chance.uniform(1.2, 2.0)  # the head coordinates, logs and keeps the store
    metrics["pcie_rate"][0] *= chance.uniform(1.0, 1.3)
    racks = np.arange(machines) // 8
    metrics["gpu_temp"] += chance.normal(0.0, 2.0, racks.max() + 1)[racks][:, None]
    hot = chance.random(machines) < 0.05
    metrics["gpu_temp"][hot] += chance.uniform(6.0, 10.0, (int(hot.sum()), 1))
    if chance.random() < 0.5:
        stages = int(chance.choice([2, 4]))
        stage = np.arange(machines) * stages // machines
        for name, by in (("tensor_active", 0.05), ("sm_active", 0.04), ("host_memory", 0.1), ("rdma_rate", 0.12)):
            metrics[name] *= chance.uniform(1 - by, 1 + by, stages)[stage][:, None]


def _drift(metrics: dict[str, Floats], chance: np.random.Generator) -> None:
    machines, count = metrics["power"].shape
    at = np.arange(count)
    for size, rows in ((2.0, 1), (1.0, machines)):
        turn, lag = chance.uniform(300, 1500, (rows, 1)), chance.uniform(0, 2 * np.pi, (rows, 1))
        metrics["gpu_temp"] += size * np.sin(2 * np.pi * at / turn + lag)
    metrics["host_memory"] += chance.uniform(0.0, 3.0, (machines, 1)) * at / 240  # page cache, points an hour
    metrics["cpu_util"] *= 1 + chance.uniform(-0.05, 0.05, (machines, 1)) * at / count


def _spans(starts: Floats, ends: Floats, count: int) -> NDArray[np.bool_]:
    at = np.arange(count)
    return (at >= starts[:, None]) & (at < ends[:, None])


def _phases(metrics: dict[str, Floats], chance: np.random.Generator) -> None:
    """Training, then an evaluation or a checkpoint, and so on; sometimes the whole job pauses."""
    machines, count = metrics["power"].shape
    evaluation = {"gpu_util": 0.92, "tensor_active": 0.6, "sm_active": 0.8, "rdma_rate": 0.3, "power": 0.8}
    saving = {
        "gpu_util": float(chance.choice([0.2, 1.0])),
        "tensor_active": 0.04,
        "sm_active": 0.3,
        "rdma_rate": 0.05,
        "nvlink_rate": 0.05,
        "pcie_rate": 0.7,
        "power": 0.45,
        "pfc_rate": 0.3,
    }
    writers = chance.random(machines) < chance.choice([1.0, 0.5, 0.25, 0.125])
    evaluates = chance.random() < 0.6
    at = float(chance.integers(10, 160))
    every = float(chance.integers(40, 160))
    while at < count:
        evaluating = evaluates and chance.random() < 0.5
        lasts = chance.uniform(4, 32) if evaluating else chance.uniform(2, 12)
        starts, ends = at + chance.uniform(0, 2, machines), at + lasts + chance.uniform(0, 2, machines)
        inside = _spans(starts, ends, count)
        for name, factor in (evaluation if evaluating else saving).items():
            metrics[name][inside] *= factor
        if not evaluating:
            late = ends + (chance.uniform(0, 6) if chance.random() < 0.4 else 0.0)  # uploads go on beside the training
            wrote = _spans(starts, late, count) & writers[:, None]
            metrics["cpu_util"][wrote] *= chance.uniform(1.2, 1.9)
            metrics["disk_wait"][wrote] *= chance.uniform(4, 25)
        at += lasts + every * chance.uniform(0.9, 1.1)
    if chance.random() < 0.06:
        begin = int(chance.integers(0, count - 40))
        idle = slice(begin, begin + int(chance.integers(8, 33)))
        for name, factor in (("gpu_util", 0.0), ("sm_active", 0.0), ("tensor_active", 0.0), ("power", 0.25)):
            metrics[name][:, idle] *= factor
        for name in ("nvlink_rate", "pcie_rate", "rdma_rate", "pfc_rate"):
            metrics[name][:, idle] *= 0.01


def _straggle(metrics: dict[str, Floats], machine: int, where: slice, what: int, chance: np.random.Generator) -> None:
    size = chance.uniform(0.1, 0.6)
    changes = (
        {"cpu_util": 1 + 4 * size, "gpu_util": 1 - 0.2 * size},
        {"rdma_rate": 1 - size, "pfc_rate": 1 + 40 * size},
        {"tensor_active": 1 - size, "sm_active": 1 - 0.8 * size, "power": 1 - 0.4 * size, "gpu_util": 1 - 0.3 * size},
        {"disk_wait": 1 + 50 * size, "gpu_util": 1 - 0.5 * size},
        {"pcie_rate": 1 - size, "pfc_rate": 1 + 40 * size},
        {"sm_clock": 1 - 0.3 * size, "power": 1 - 0.3 * size},
    )
    for name, factor in changes[what].items():
        metrics[name][machine, where] *= factor


def _stragglers(metrics: dict[str, Floats], chance: np.random.Generator) -> None:
    """Machines that are slow for a while and heal: 20 seconds to 4 minutes; in every fifth job one does so again and again."""
    machines, count = metrics["power"].shape
    for _ in range(chance.poisson(chance.uniform(0.0, 6.0) * count / 240)):
        lasts = max(1, round(math.exp(chance.uniform(math.log(1.3), math.log(16)))))
        begin = int(chance.integers(0, count))
        machine, what = int(chance.integers(machines)), int(chance.integers(6))
        _straggle(metrics, machine, slice(begin, begin + lasts), what, chance)
    if chance.random() < 0.2:
        begin, machine, what = int(chance.integers(0, count)), int(chance.integers(machines)), int(chance.integers(6))
        for _ in range(int(chance.integers(4, 11))):
            lasts = int(chance.integers(2, 9))
            _straggle(metrics, machine, slice(begin, begin + lasts), what, chance)
            begin += lasts + int(chance.integers(3, 16))


def _break(metrics: dict[str, Floats], fault: str, machine: int, start: int, chance: np.random.Generator) -> None:  # noqa: C901, PLR0912, PLR0915
    """Put one fault into one machine from a scrape on; what it does to all others comes with it."""
    here = (machine, slice(start, None))
    after = (slice(None), slice(start, None))
    count = metrics["power"].shape[1] - start

    def slow(share: float) -> None:
        for name in ("tensor_active", "rdma_rate", "nvlink_rate", "pcie_rate"):
            metrics[name][after] *= share
        metrics["power"][after] *= 0.5 + 0.5 * share

    def spin() -> None:
        metrics["gpu_util"][after] = 100.0
        for name, factor in (("sm_active", 0.5), ("tensor_active", 0.002), ("power", 0.55), ("pcie_rate", 0.02)):
            metrics[name][after] *= factor
        for name in ("rdma_rate", "nvlink_rate", "pfc_rate"):
            metrics[name][after] *= 0.001

    if fault == "throttle":
        clock = chance.uniform(0.6, 0.92)
        slow(1 - 0.8 * (1 - clock))
        metrics["sm_clock"][here] *= clock
        metrics["power"][here] *= chance.uniform(0.65, 0.95)
        metrics["sm_active"][here] *= chance.uniform(1.0, 1.12)
        if chance.random() < 0.5:
            metrics["gpu_temp"][here] += chance.uniform(4, 18) * (1 - np.exp(-np.arange(count) / 8))
    elif fault == "pcie_downgrade":
        slow(chance.uniform(0.6, 0.95))
        metrics["pcie_rate"][here] *= chance.uniform(0.25, 0.7)
        metrics["pfc_rate"][here] *= chance.uniform(3, 30)
    elif fault == "nic_down":
        slow(chance.uniform(0.6, 0.95))
        metrics["rdma_rate"][here] *= chance.uniform(0.4, 0.88)
        metrics["pfc_rate"][here] *= chance.uniform(2, 20)
    elif fault == "nvlink_down":
        slow(chance.uniform(0.7, 0.97))
        metrics["nvlink_rate"][here] *= chance.uniform(0.4, 0.88)
        metrics["sm_active"][here] *= chance.uniform(1.0, 1.1)
    elif fault == "gpu_lost":
        spin()
        for name in ("gpu_util", "sm_active", "tensor_active"):
            metrics[name][here] *= 0.875
        metrics["power"][here] *= 0.92
    elif fault in {"hang_one", "unreachable"}:
        spin()
        for name, factor in (("gpu_util", 0.02), ("sm_active", 0.02), ("power", 0.4)):
            metrics[name][here] *= factor
    elif fault == "cpu_contention":
        slow(chance.uniform(0.7, 0.95))
        metrics["cpu_util"][here] *= chance.uniform(1.6, 4.0)
        metrics["gpu_util"][here] *= chance.uniform(0.85, 0.99)
    elif fault == "host_leak":
        metrics["host_memory"][here] += chance.uniform(0.3, 1.5) * np.arange(count) / 4
    elif fault == "storage_slow":
        slow(chance.uniform(0.4, 0.9))
        metrics["disk_wait"][here] *= chance.uniform(5, 40)
        metrics["gpu_util"][here] *= chance.uniform(0.5, 0.95)
        metrics["cpu_util"][here] *= chance.uniform(0.7, 0.95)
    elif fault == "gpu_errors":
        slow(chance.uniform(0.6, 0.95))
        metrics["tensor_active"][here] *= chance.uniform(0.5, 0.9)
        metrics["sm_active"][here] *= chance.uniform(0.6, 0.92)
        metrics["power"][here] *= chance.uniform(0.7, 0.93)


def _lose(metrics: dict[str, Floats], chance: np.random.Generator) -> None:
    """Scrapes that are missing: single ones, minutes of one machine, and an exporter that dies and is not missed."""
    machines, count = metrics["power"].shape
    for values in metrics.values():
        values[chance.random(values.shape) < 0.01] = np.nan
    for _ in range(chance.poisson(machines / 16 * count / 240)):
        begin, machine = int(chance.integers(0, count)), int(chance.integers(machines))
        names = list(metrics) if chance.random() < 0.5 else list(GPU)
        for name in names:
            metrics[name][machine, begin : begin + int(chance.integers(4, 21))] = np.nan
    if chance.random() < 0.04:
        begin, machine = int(chance.integers(0, count)), int(chance.integers(machines))
        for name in GPU:
            metrics[name][machine, begin:] = np.nan


STEP_SECONDS = 6.0


def step_times(
    seed: int, count: int, sigma: float, onset: int | None = None, size: float = 0.05
) -> tuple[Floats, NDArray[np.bool_]]:
    """Seconds of each of `count` steps, and which of them logged an evaluation or a checkpoint.

    `sigma` is the share of noise; from step `onset` on steps are slower by `size`, for good. First steps are slow;
    single steps hang back; spells of 2 to 5 steps are slower by 3 to 15 %, four a day, and heal; the level wanders by
    half a per cent. Half of the runs count evaluations and checkpoints into a step's time, and half of those log them.
    """
    chance = np.random.default_rng([seed, count, round(sigma * 1e6), 815])
    shocks = np.where(chance.random(count) < 0.05, chance.standard_t(3, count), chance.standard_normal(count))
    noise = np.empty(count)
    last = 0.0
    for at in range(count):
        last = 0.2 * last + math.sqrt(1 - 0.04) * shocks[at]
        noise[at] = last
    at = np.arange(count)
    turn = chance.uniform(2400, 7200)
    times = STEP_SECONDS * (1 + sigma * noise) * (1 + 0.005 * np.sin(2 * np.pi * at / turn + chance.uniform(0, 6.28)))
    warm = int(chance.integers(5, 30))
    times[:warm] *= 1 + np.exp(-np.arange(warm) / 5) * chance.uniform(0.3, 4.0)
    single = chance.random(count) < 0.003
    times[single] *= chance.uniform(1.1, 3.0, int(single.sum()))
    for begin in chance.integers(0, count, chance.poisson(4 * count / 14400)):
        times[begin : begin + int(chance.integers(2, 6))] *= chance.uniform(1.03, 1.15)
    if onset is not None:
        times[onset:] *= 1 + size
    known = np.zeros(count, dtype=bool)
    if chance.random() < 0.5:
        tells = chance.random() < 0.5
        for every, least, most in (
            (int(chance.integers(200, 1001)), 20.0, 300.0),
            (int(chance.integers(250, 1501)), 5.0, 90.0),
        ):
            marked = np.arange(every - 1, count, every)
            times[marked] += chance.uniform(least, most) * chance.uniform(0.9, 1.1, marked.size)
            known[marked] |= tells
    return times, known
