"""An answer of NCCL RAS as values, whichever form it came in."""

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
    """One rank of a communicator. `rank` counts within it; `gpu` is the number that NVML gives it.

    `state`: "missing" did not answer, "dead" has not answered for a minute, "absent" answered but is no member (yet or
    any more). `error` is the asynchronous NCCL error, 0 for none. `counts`: operation → how many were launched.
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
    """One communicator. `id`: its hash, without 0x. `partial`: only ranks that stand out are listed (text form)."""

    id: str
    size: int
    ranks: tuple[RasRank, ...] = ()
    levels: tuple[RasLevel, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RasReport:
    """One answer. `time`: seconds since the epoch. `dead`, `silent`: processes by (host, pid), from the text form.

    `communicators_count` counts those that there are; the text form names only those with something to say.
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
    """Return what of an answer could not be read."""
    return Gap(
        code,
        source,
        reason,
        asked=asked,
        got=got,
        rules_out="which communicators are stuck, and which ranks they wait for",
    )
