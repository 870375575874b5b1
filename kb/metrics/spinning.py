"""Probes for GPUs that spin in a stuck collective, from their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kb.metrics.medians import known_median
from kb.metrics.panel import Bools, Floats, Panel, Row
from kb.model import Event, Scalar
from kb.report import Ballot


@dataclass(frozen=True, slots=True)
class ProbeVote:
    """One probe's result: `detail` for people, its `numbers`, since when. `not_observable`: what is missing."""

    probe: str
    vote: Ballot
    detail: str
    numbers: Mapping[str, Scalar]
    since: float | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpinLimits:
    """When GPUs count as spinning in a stuck collective. Units: percent, bytes per second, seconds.

    `moved`: the share of the job's usual traffic that counts as none; `drawn`: the share of its usual power.
    """

    lasts: float = 180.0
    busy: float = 95.0
    sm: float = 30.0
    tensor: float = 1.0
    dram: float = 2.0
    drawn: float = 0.7
    moved: float = 0.01
    bytes_a_second: float = 10e6
    known: float = 0.6
    ranks: float = 0.8


SPIN = SpinLimits()
_LOW = (("sm_active", "sm"), ("tensor_active", "tensor"), ("dram_active", "dram"))


def spinning(panels: Mapping[str, Panel], now: float, limits: SpinLimits = SPIN) -> ProbeVote:
    """Probe (c): for some minutes RDMA traffic is about 0, GPU utilization near 100 %, and SM activity low.

    If SM activity is not collected, tensor or memory activity replaces it, or power relative to the job's usual power.
    A missing measurement never counts as 0: without traffic, utilization or any of these the probe cannot observe.
    """
    traffic = [panels[name] for name in ("rdma_tx", "rdma_rx") if name in panels]
    util = panels.get("gpu_util")
    low = next((name for name, _ in _LOW if name in panels and _recently_measured(panels[name], now, limits)), None)
    power = panels.get("gpu_power")
    numbers: dict[str, Scalar] = {"minutes": limits.lasts / 60}
    missing = [] if any(_recently_measured(item, now, limits) for item in traffic) else ["RDMA traffic"]
    if util is None or not _recently_measured(util, now, limits):
        missing.append("GPU utilisation")
    if low is None and (power is None or not _recently_measured(power, now, limits)):
        missing.append("SM activity, tensor activity or power")
    if missing or util is None:
        words = ", ".join(f"{text} not collected" for text in missing)
        return ProbeVote("spin", "not_observable", words, numbers, None, tuple(missing))
    moved, usual = (max(part) for part in zip(*(_traffic(item, now, limits) for item in traffic), strict=True))
    still = moved <= max(limits.bytes_a_second, limits.moved * usual)
    busy = _share_of_rows(util, now, limits, lambda cells: cells >= limits.busy)
    numbers |= {"rdma_bytes_a_second": moved, "rdma_usual": usual, "share_of_gpus_busy": busy}
    idle, how = _idle(panels, low, now, limits, numbers)
    if idle is None:
        return ProbeVote("spin", "not_observable", f"{how}: nothing to compare with", numbers, None, ("usual power",))
    numbers["judged_by"] = how
    stuck = still and busy >= limits.ranks and idle
    detail = f"RDMA {moved:.3g} bytes/s (usually {usual:.3g}), {busy:.0%} of GPUs at {limits.busy:.0f} % or more, {how}"
    if low != "sm_active":
        detail += " (SM activity not collected)"
    return ProbeVote("spin", "yes" if stuck else "no", detail, numbers, now - limits.lasts if stuck else None)


def _cells(panel: Panel, now: float, limits: SpinLimits) -> Floats:
    """Return the cells that begin in the last minutes before `now`."""
    times = panel.times
    inside = (times >= now - limits.lasts) & (times <= now)
    cells: Floats = panel.values[:, inside]
    return cells


def _recently_measured(panel: Panel, now: float, limits: SpinLimits) -> bool:
    """Whether most rows that ever had values were measured for most of the last minutes."""
    cells = _cells(panel, now, limits)
    ever = panel.mask.any(axis=1)
    wanted = limits.lasts / panel.step
    if not ever.any() or cells.shape[1] < max(1.0, limits.known * wanted):
        return False
    return bool((np.isfinite(cells[ever]).mean(axis=1) >= limits.known).mean() >= limits.known)


def _traffic(panel: Panel, now: float, limits: SpinLimits) -> tuple[float, float]:
    """Return the largest median traffic of a row in the last minutes, and the usual traffic of a row before."""
    cells = known_median(_cells(panel, now, limits), axis=1)
    moved = float(np.nanmax(cells)) if np.isfinite(cells).any() else math.nan
    past = panel.values[:, panel.times < now - limits.lasts]
    known = past[np.isfinite(past)]
    return moved, float(np.quantile(known, 0.75)) if known.size else 0.0


def _share_of_rows(panel: Panel, now: float, limits: SpinLimits, holds: Callable[[Floats], Bools]) -> float:
    """Return the share of measured rows for which the condition holds in nine of ten cells."""
    cells = _cells(panel, now, limits)
    known = np.isfinite(cells)
    rows = known.any(axis=1)
    with np.errstate(invalid="ignore"):
        count = (holds(cells) & known).sum(axis=1)
    return float((count[rows] >= 0.9 * known[rows].sum(axis=1)).mean()) if rows.any() else 0.0


def _idle(
    panels: Mapping[str, Panel], low: str | None, now: float, limits: SpinLimits, numbers: dict[str, Scalar]
) -> tuple[bool | None, str]:
    """Whether SM activity is low, and which signal shows it; None if no signal was measured."""
    if low is not None:
        top = float(getattr(limits, dict(_LOW)[low]))
        share = _share_of_rows(panels[low], now, limits, lambda cells: cells <= top)
        numbers[f"share_of_gpus_low_{low}"] = share
        return share >= limits.ranks, f"{low} at most {top:g} % on {share:.0%} of GPUs"
    panel = panels["gpu_power"]
    past = panel.values[:, panel.times < now - limits.lasts]
    known = past[np.isfinite(past)]
    if known.size < 10:
        return None, "power"
    usual = float(np.quantile(known, 0.75))
    share = _share_of_rows(panel, now, limits, lambda cells: cells <= limits.drawn * usual)
    numbers["share_of_gpus_low_power"] = share
    return share >= limits.ranks, f"power at most {limits.drawn:.0%} of the usual {usual:.0f} W on {share:.0%} of GPUs"


def idle_among_spinning(util: Panel, now: float, limits: SpinLimits = SPIN, most: int = 2) -> tuple[Row, ...]:
    """Return the one or two rows whose GPUs are at 0 % while nearly all others are at 100 %: the source of a hang.

    Empty if more rows are idle, the rest does not spin, or too little was measured. `util`: percent. `now`: Unix time.
    """
    if len(util.rows) < 4 or not _recently_measured(util, now, limits):
        return ()
    level = known_median(_cells(util, now, limits), axis=1)
    known = np.isfinite(level)
    idle = np.flatnonzero(known & (level <= 1.0))
    busy = int((level[known] >= limits.busy).sum())
    if not 1 <= idle.size <= most or busy < 0.9 * (int(known.sum()) - idle.size) or busy <= idle.size:
        return ()
    return tuple(util.rows[at] for at in idle)


def stalled_compound(
    sm: Panel | None,
    stalled: Sequence[Event],
    blocked: Sequence[Event],
    now: float,
    progress: float | None = None,
    *,
    lasts: float = 180.0,
    at_least: float = 70.0,
) -> ProbeVote:
    """Detect on one node a GPU that spins without progress, a queue pair without completions and a process in D state.

    `stalled`: events of queue pairs without a completion; `blocked`: events of tasks in uninterruptible sleep;
    `progress`: the time of the last step. If all three name a node, it must be the same. `now`: Unix time. `lasts`: seconds
    for which the GPU must spin. `at_least`: percent of SM activity.
    """
    missing = ["SM activity"] if sm is None or not _recently_measured(sm, now, SpinLimits(lasts=lasts)) else []
    missing += [] if progress is not None else ["time of the last step"]
    if missing or sm is None or progress is None:
        return ProbeVote(
            "stalled_compound", "not_observable", ", ".join(missing) + " unknown", {}, None, tuple(missing)
        )
    level = known_median(_cells(sm, now, SpinLimits(lasts=lasts)), axis=1)
    spins = {row.resource.node for row, at in zip(sm.rows, level.tolist(), strict=True) if at >= at_least}
    held = [{e.resource.node for e in events if _is_recent(e, now, 2 * lasts)} for events in (stalled, blocked)]
    nodes = [group for group in [spins, *held] if None not in group]
    together = set.intersection(*nodes) if nodes else {None}
    still = now - progress >= lasts
    yes = bool(still and spins and all(held) and together)
    numbers: dict[str, Scalar] = {
        "seconds_without_progress": now - progress,
        "nodes_spinning": len(spins),
        "nodes_with_stalled_queue_pair": len(held[0]),
        "nodes_with_blocked_task": len(held[1]),
    }
    where = ", ".join(sorted(str(item) for item in together if item)[:4])
    detail = f"{len(spins)} nodes spin, queue pairs stall on {len(held[0])}, tasks in D state on {len(held[1])}"
    return ProbeVote(
        "stalled_compound", "yes" if yes else "no", f"{detail}: {where}" if yes and where else detail, numbers
    )


def _is_recent(event: Event, now: float, lasts: float) -> bool:
    return event.time is None or now - lasts <= event.time <= now + 60.0
