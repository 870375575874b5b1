"""Everything collected about one job in one window: the input of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from typing import TYPE_CHECKING

from kb.model import Gap, Job, Window
from kb.plugin import Plugged
from kb.report import Hang
from kb.scanning.summary import StreamSummary
from kb.values import dataclass

if TYPE_CHECKING:
    from kb.collectives.sequence import GroupSequence
    from kb.metrics.panel import Panel


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything collected about one job in one window.

    `streams` are in a fixed order, without earlier attempts and baselines.

    `plugged`: the results of users' detectors (by kb.plugin.plugin_key). `panels`: the bundle's metrics by name; if
    there are any, a stream of the group "metrics" represents them. `sequences`: where the ranks of groups with unfinished
    collectives stand, for pictures.
    """

    job: Job = field(default_factory=Job)
    window: Window = field(default_factory=Window)
    streams: tuple[StreamSummary, ...] = ()
    gaps: tuple[Gap, ...] = ()
    bundle: str | None = None
    plugged: Mapping[str, Plugged] = field(default_factory=dict)
    panels: Mapping[str, Panel] = field(default_factory=dict)
    hang: Hang = field(default_factory=Hang)
    sequences: tuple[GroupSequence, ...] = ()


def logs_digest(evidence: Evidence) -> str:
    """A digest of the beginning, the end and the size of each log, whatever the place of the files; empty without logs."""
    if not evidence.streams:
        return ""
    told = sorted(f"{stream.size} {stream.head}\0{stream.tail}" for stream in evidence.streams)
    return sha256("\0".join(told).encode("utf-8", "surrogatepass")).hexdigest()[:32]
