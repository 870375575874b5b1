"""Sorts samples by rank and round, for the comparison, the merged view and the probe."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kb.model import StackSample


def rounds_of(samples: Iterable[StackSample]) -> dict[int, list[StackSample]]:
    """Return each rank's main processes, oldest first. A stack whose rank is unknown cannot be compared with others."""
    found: dict[int, dict[str, StackSample]] = {}
    for each in samples:
        if not each.child and each.resource.rank is not None and each.threads:
            rounds = found.setdefault(each.resource.rank, {})
            known = rounds.get(each.sample)
            if known is None or (each.time, each.source) > (known.time, known.source):  # the round occurs twice
                rounds[each.sample] = each
    return {rank: sorted(rounds.values(), key=_when) for rank, rounds in found.items()}


def _when(sample: StackSample) -> tuple[bool, float, tuple[tuple[int, str], ...]]:
    """Return a sort key: the time if known, then the round's name, in which numbers are compared as numbers."""
    parts = re.findall(r"\d{1,18}|\D+", sample.sample[:120])
    name = tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)
    return sample.time is not None, sample.time or 0.0, name


def children_of(samples: Iterable[StackSample]) -> dict[int, list[StackSample]]:
    """Return the samples of each rank's child processes, in the order given."""
    found: dict[int, list[StackSample]] = {}
    for each in samples:
        if each.child and each.resource.rank is not None and each.threads:
            found.setdefault(each.resource.rank, []).append(each)
    return found
