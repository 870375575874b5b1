"""Earlier incidents and attempts, for rules that use history."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Literal

from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class PastIncident:
    """One earlier diagnosis, for rules that use history."""

    rule: str
    fault: str
    days_ago: float
    node: str | None = None
    gpu: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An earlier attempt of the same job that failed. `faults`: its diagnoses, the first cause first.

    `advice`: the advice given then; `without`: the nodes to leave out; `ran_on`: a digest of its nodes
    (`nodes_digest`), "" where they are unknown. `incident`: its number, None for an attempt inside the bundle.
    `reached`: its last iteration; `shards`: the data it was reading when it ended.
    """

    faults: tuple[str, ...]
    advice: str = "none"
    without: tuple[str, ...] = ()
    ran_on: str = ""
    incident: int | None = None
    reached: int | None = None
    shards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """A node that people have excluded, for the cluster or for this job.

    `since`: the day, such as 2026-11-22; `who` confirmed it.
    """

    node: str
    scope: Literal["cluster", "job"]
    since: str
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The bounded history passed to a diagnosis. `digest` is part of the report.

    `tries`: the job's own earlier attempts, oldest first; `barred`: excluded nodes of this job.
    """

    past: tuple[PastIncident, ...] = ()
    digest: str = ""
    tries: tuple[EarlierAttempt, ...] = ()
    barred: tuple[ExcludedNode, ...] = ()


def history_digest(*parts: object) -> str:
    """Return a digest of the history; "" for none."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if any(parts) else ""


def nodes_digest(nodes: Iterable[str]) -> str:
    """Return the same digest for the same nodes in any order; "" for none."""
    names = sorted(set(nodes))
    return sha256(repr(names).encode("utf-8", "surrogatepass")).hexdigest()[:16] if names else ""
