"""What a connector is asked, and what it may count on: the request, the place it writes to, and how it fails.

The ground of all connectors to live systems. A connector knows its system; it gets a request (`Asked`), writes what it
finds as parts of an evidence bundle (`Spool`), and returns what it lacks as gaps. It never decides what matters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Literal, Protocol

from kb.errors import SignalboxError
from kb.model import Attempt, Gap, JobRecord, Prefilter, Resource, Window

Seconds = Annotated[float, "seconds"]  # of settings: in the file a number, or text as "30s", "5m", "2h"
Size = Annotated[int, "bytes"]  # of settings: in the file a number, or text as "64MiB"

EvidenceKind = Literal["jobs", "logs", "metrics", "events", "stacks", "collectives", "hardware"]

Failure = Literal[
    "unreachable",  # no connection, no such host, TLS refused
    "timeout",
    "unauthorised",  # 401: who are you
    "forbidden",  # 403: you may not
    "missing",  # 404: no such thing here
    "refused",  # 400, 422: the request itself
    "rate_limited",  # 429 to the end of the deadline
    "server_error",  # 5xx to the end of the deadline
    "bad_answer",  # not what the documentation promises: broken JSON, a cut body, another shape
    "too_large",
    "redirected",  # to another host
    "over_budget",  # our own limit on this source
    "not_configured",
]


class SourceFailed(SignalboxError):  # noqa: N818 - an outcome that becomes a gap
    """A source did not give what it was asked for. `kind` for programs, the text for people, `hint`: what to change."""

    def __init__(self, kind: Failure, message: str, *, asked: str = "", hint: str = "") -> None:
        self.kind = kind
        self.asked = asked
        self.hint = hint
        super().__init__(f"{message}; {hint}" if hint else message)

    def gap(self, source: str, *, scope: str = "", got: str = "", rules_out: str = "") -> Gap:
        """The failure as something missing from the evidence."""
        return Gap(
            f"source_{self.kind}", source, str(self), scope=scope, asked=self.asked, got=got, rules_out=rules_out
        )


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point of the monotonic clock by which everything must be done."""

    at: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        """The deadline that lies so many seconds ahead."""
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds that are left; 0 where it has passed."""
        return max(0.0, self.at - self.clock())

    def sooner(self, seconds: float) -> Deadline:
        """This deadline, or the one so many seconds ahead where that is sooner."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)

    def check(self, asked: str = "") -> None:
        """Raise SourceFailed("timeout") where it has passed."""
        if self.left() <= 0:
            raise SourceFailed("timeout", "the time limit of the collection was reached", asked=asked)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one source may give for one job: bytes and lines of logs, pages of answers, series of metrics."""

    log_bytes: int = 64 << 20
    log_lines: int = 400_000
    pages: int = 60
    series: int = 20_000
    part_bytes: int = 64 << 20  # of one file that is no log


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which job is wanted: its id or name as a person typed it, not to be trusted, and where to look for it."""

    text: str
    window: Window
    namespace: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job that a system lists: enough to choose by, and to tell how it ended.

    `attempt`: how often it was started anew. `runs`: each of its runs that the system tells of in the window, oldest first;
    empty where it tells of the last one only.
    """

    id: str
    name: str
    state: str | None = None
    start: float | None = None
    end: float | None = None
    owner: str | None = None
    namespace: str | None = None
    partition: str | None = None
    gpus: int | None = None
    attempt: int | None = None
    runs: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    """One collection: whose evidence, of when, by when, how much. `deep`: all log lines, not only those that rules want.

    `kinds`: which kinds of evidence are wanted; empty: all that it has. `window` has both ends. What comes from a person or a system (names, labels) is not to be trusted: quote it.
    """

    record: JobRecord
    window: Window
    deadline: Deadline
    prefilter: Prefilter = field(default_factory=Prefilter)
    bounds: Bounds = field(default_factory=Bounds)
    deep: bool = False
    kinds: frozenset[EvidenceKind] = frozenset()

    def wants(self, kind: EvidenceKind) -> bool:
        """Whether this kind of evidence is wanted."""
        return not self.kinds or kind in self.kinds


class Spool(Protocol):
    """Where a connector writes: the parts of one bundle. Safe to share between threads.

    Secrets are masked on the way. After the deadline, writing raises SourceFailed("timeout"); beyond its share of bytes,
    SourceFailed("too_large"): what was written before stays.
    """

    def append(self, path: str, lines: bytes) -> None:
        """Add whole lines (each ends in a newline) to a log, as `logs/<source>/rank-3.log`."""

    def write(self, path: str, data: bytes) -> None:
        """Write a part that is no log, as `metrics/gpu_util.json`, whole."""

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Say of a file of the bundle who spoke, what was asked, and when it was last written to at its source."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What `config check` found of one source: whether it works, in words; the request that was sent; what to change."""

    works: bool
    words: str
    sent: str = ""
    change: str = ""


class Source(Protocol):
    """A system that holds evidence of jobs."""

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Which kinds of evidence it may give."""

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write what there is; return what there is not. May raise SourceFailed, which becomes a gap."""

    def check(self, deadline: Deadline) -> CheckResult:
        """Try it with the smallest request that shows whether address, credentials and rights are right."""


class Finder(Protocol):
    """A system that knows jobs."""

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """The jobs of exactly this id or name in the window, newest first; empty where it knows none."""

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Jobs of the window, newest first, a bounded number: what a mistyped name may have meant."""


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80


def safe_name(text: str) -> str:
    """A name from anywhere as one part of a path: no separators, no leading dot, bounded; unlike names stay unlike."""
    plain = _UNSAFE.sub("_", text).lstrip(".")
    if plain == text and len(text) <= LONGEST_NAME:
        return text
    return f"{plain[:LONGEST_NAME]}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def first_label(names: Mapping[str, str], *wanted: str) -> str | None:
    """The first of the wanted labels that is there and not empty: systems spell them differently."""
    return next((names[name] for name in wanted if names.get(name)), None)
