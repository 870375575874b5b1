"""The values of a NCCL RAS answer, of either format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kb.model import Gap

MAX_RANKS: Final = 500_000  # over all communicators of one answer
MAX_LINES: Final = 200_000  # of a text answer

RankState = Literal["running", "init", "error", "finalizing", "aborted", "missing", "dead", "absent"]
Counts = tuple[tuple[str, int], ...]
Process = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RasRank:
    """One rank of a communicator. `rank` counts within it; `gpu` is its NVML index.

    `state`: "missing" did not answer, "dead" has not answered for a minute, "absent" answered but is not a member (yet,
    or any more). `error` is the asynchronous NCCL error, 0 for none. `counts`: operation → number launched.
    """

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    state: RankState = "running"
    error: int = 0
    counts: Counts = ()


@dataclass(frozen=True, slots=True)
class RasLevel:
    """`ranks` ranks have launched `count` operations of kind `op`."""

    op: str
    count: int
    ranks: int


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator. `id`: its hash, without 0x. `partial`: only ranks that differ are listed (text format)."""

    id: str
    size: int
    ranks: tuple[RasRank, ...] = ()
    levels: tuple[RasLevel, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RasReport:
    """One answer. `time`: seconds since the epoch. `dead`, `silent`: processes by (host, pid), from the text form.

    `communicators_count`: all of them; the text format lists only those with a problem.
    """

    source: str
    time: float | None = None
    version: str = ""
    form: Literal["json", "text"] = "json"
    communicators: tuple[RasCommunicator, ...] = ()
    communicators_count: int = 0
    dead: tuple[Process, ...] = ()
    silent: tuple[Process, ...] = ()
    timeouts: int = 0
    collection_seconds: float | None = None


def gap(code: str, source: str, reason: str, asked: str = "", got: str = "") -> Gap:
    """Return the gaps: the parts of an answer that could not be read."""
    return Gap(
        code,
        source,
        reason,
        asked=asked,
        got=got,
        rules_out="which communicators are stuck, and which ranks they wait for",
    )
