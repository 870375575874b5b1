"""What is known of earlier incidents and attempts, for rules that ask for history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal


@dataclass(frozen=True, slots=True)
class PastIncident:
    """One earlier diagnosis, for rules that ask for history."""

    rule: str
    fault: str
    days_ago: float
    node: str | None = None
    gpu: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An earlier try of the same job that ended badly. `faults`: found in it, the first cause first.

    `advice`: what was said to do then; `without`: the nodes to be left out; `ran_on`: a digest of those that it had
    (`nodes_digest`), "" where they are not known. `incident`: its number, None for an attempt that lies in the bundle.
    `reached`: its last iteration; `shards`: the data that it was at when it ended.
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
    """A node that people have barred, for the cluster or for this job. `since`: the day, as 2026-11-22; `who` confirmed it."""

    node: str
    scope: Literal["cluster", "job"]
    since: str
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What bot chose to tell of the past; bounded. `digest` stands in the report.

    `tries`: the job's own earlier tries, oldest first; `barred`: nodes of this job that are barred.
    """

    past: tuple[PastIncident, ...] = ()
    digest: str = ""
    tries: tuple[EarlierAttempt, ...] = ()
    barred: tuple[ExcludedNode, ...] = ()


def history_digest(*parts: object) -> str:
    """A digest of what was told of the past; "" for nothing."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if any(parts) else ""


def nodes_digest(nodes: Iterable[str]) -> str:
    """The same for the same nodes in any order; "" for none."""
    names = sorted(set(nodes))
    return sha256(repr(names).encode("utf-8", "surrogatepass")).hexdigest()[:16] if names else ""
