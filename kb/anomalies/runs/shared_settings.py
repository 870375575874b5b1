"""Compares runs: which setting the failed nodes share and the others lack ("6 of 6 failed nodes have driver X since yesterday")."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CHANCE = 0.05  # a split that is more likely by chance is not reported
FEWEST = 2  # nodes that failed


@dataclass(frozen=True, slots=True)
class Witness:
    """A node in a run: whether it failed, and what it ran with. `at`: the run's start, seconds since the epoch."""

    node: str
    failed: bool
    settings: Mapping[str, str]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class SharedSetting:
    """A setting that failed nodes share: on `failed` of `of_failed` of them, and on `well` of `of_well` of the others.

    `since`: the first run in which it was seen. `chance`: how likely such a split is by chance (one-sided Fisher's exact test).
    """

    name: str
    value: str
    failed: int
    of_failed: int
    well: int
    of_well: int
    since: float | None
    chance: float

    def text(self) -> str:
        """In words."""
        others = f", {self.well} of {self.of_well} others" if self.of_well else ""
        return f"{self.failed} of {self.of_failed} failed nodes have {self.name} {self.value}{others}"


def shared_settings(witnesses: Iterable[Witness]) -> tuple[SharedSetting, ...]:
    """Settings that failed nodes share and the others lack, the least likely by chance first.

    A node counts once for each value: as failed if it failed with it in any run.
    """
    nodes: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    told: dict[str, dict[str, bool]] = defaultdict(dict)
    since: dict[tuple[str, str], float] = {}
    for witness in witnesses:
        for name, value in witness.settings.items():
            key = name, value
            nodes[key][witness.node] = nodes[key].get(witness.node, False) or witness.failed
            told[name][witness.node] = told[name].get(witness.node, False) or witness.failed
            if witness.at is not None:
                since[key] = min(since.get(key, witness.at), witness.at)
    found = []
    for (name, value), having in nodes.items():
        all_failed = sum(told[name].values())
        all_well = len(told[name]) - all_failed
        failed = sum(having.values())
        well = sum(not told[name][node] for node in having)
        if failed >= FEWEST and all_well:
            chance = _fisher(failed, all_failed, well, all_well)
            if chance <= CHANCE:
                found.append(
                    SharedSetting(
                        name, value, failed, all_failed, well, all_well, since.get((name, value)), round(chance, 6)
                    )
                )
    return tuple(sorted(found, key=lambda item: (item.chance, item.name, item.value)))


def _fisher(failed: int, all_failed: int, well: int, all_well: int) -> float:
    """The chance that at least that many of those that have it are among the failed ones."""
    having, everybody = failed + well, all_failed + all_well
    ways = math.comb(everybody, having)
    most = min(having, all_failed)
    return sum(math.comb(all_failed, k) * math.comb(all_well, having - k) for k in range(failed, most + 1)) / ways
