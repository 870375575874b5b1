"""The contract of all connectors to live systems: requests, the spool that they write to, and failures.

A connector knows its system. It receives a request (`CollectionRequest`), writes what it finds as parts of an evidence
bundle (`Spool`), and returns what it lacks as gaps. It never decides what matters.
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

Seconds = Annotated[float, "seconds"]  # in settings: a number, or text such as "30s", "5m", "2h"
Size = Annotated[int, "bytes"]  # in settings: a number, or text such as "64MiB"

EvidenceKind = Literal["jobs", "logs", "metrics", "events", "stacks", "collectives", "hardware"]

LOGS_GONE = "logs_gone"  # gap code of a log source that lacks some pods or tasks: another source may have the rest

Failure = Literal[
    "unreachable",  # no connection, unknown host, TLS refused
    "timeout",
    "unauthorised",  # 401: authentication failed
    "forbidden",  # 403: permission denied
    "missing",  # 404: not found
    "refused",  # 400, 422: invalid request
    "rate_limited",  # 429 until the deadline
    "server_error",  # 5xx until the deadline
    "bad_answer",  # not as documented: broken JSON, a truncated body, another structure
    "too_large",
    "redirected",  # to another host
    "over_budget",  # Signalbox's own limit on this source
    "not_configured",
]


class SourceFailed(SignalboxError):  # noqa: N818 - an outcome that becomes a gap
    """A source did not return what was requested. `kind` is for programs, the text is for people, and `hint` says what to change."""

    def __init__(self, kind: Failure, message: str, *, asked: str = "", hint: str = "") -> None:
        self.kind = kind
        self.asked = asked
        self.hint = hint
        super().__init__(f"{message}; {hint}" if hint else message)

    def gap(self, source: str, *, scope: str = "", got: str = "", rules_out: str = "") -> Gap:
        """Return the failure as a gap in the evidence."""
        return Gap(
            f"source_{self.kind}", source, str(self), scope=scope, asked=self.asked, got=got, rules_out=rules_out
        )


OUT_OF_TIME = "no answer within the time limit of the collection"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock by which everything must be done."""

    at: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        """Return the deadline that is this many seconds ahead."""
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds left, 0 if it has passed."""
        return max(0.0, self.at - self.clock())

    def sooner(self, seconds: float) -> Deadline:
        """Return this deadline, or the one this many seconds ahead if that is earlier."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)

    def check(self, asked: str = "") -> None:
        """Raise SourceFailed("timeout") if it has passed."""
        if self.left() <= 0:
            raise SourceFailed("timeout", OUT_OF_TIME, asked=asked)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on what one source returns for one job: bytes and lines of logs, pages of responses, series of metrics."""

    log_bytes: int = 64 << 20
    log_lines: int = 400_000
    pages: int = 60
    series: int = 20_000
    part_bytes: int = 64 << 20  # bytes of one file that is not a log


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The job to find: its id or name as a person typed it (untrusted), and where to search."""

    text: str
    window: Window
    namespace: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job that a system lists, with enough to select it and to tell how it ended.

    `attempt`: how often it was restarted. `runs`: its runs in the window, oldest first; empty if the system only reports
    the last one.
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
    """One collection: the job, the time window, the deadline and the limits. `deep`: fetch all log lines, not only those that rules look for.

    `kinds`: the kinds of evidence wanted, empty for all. `window` has both ends. Text from people or systems (names, labels) is untrusted: quote it.
    """

    record: JobRecord
    window: Window
    deadline: Deadline
    prefilter: Prefilter = field(default_factory=Prefilter)
    bounds: Bounds = field(default_factory=Bounds)
    deep: bool = False
    kinds: frozenset[EvidenceKind] = frozenset()

    def wants(self, kind: EvidenceKind) -> bool:
        """Return whether this kind of evidence is wanted."""
        return not self.kinds or kind in self.kinds


class Spool(Protocol):
    """Where a connector writes the parts of one bundle. Thread-safe.

    Secrets are masked. Writing raises SourceFailed("timeout") after the deadline and SourceFailed("too_large") beyond the
    byte limit; what was written before is kept.
    """

    def append(self, path: str, lines: bytes) -> None:
        """Append whole lines (each ending in a newline) to a log such as `logs/<source>/rank-3.log`."""

    def replace(self, logs: Mapping[str, bytes]) -> None:
        """Write whole logs (path → lines) to replace what was written there before, because lines that arrive out of order are kept early."""

    def write(self, path: str, data: bytes) -> None:
        """Write a whole part that is not a log, such as `metrics/gpu_util.json`."""

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Record who wrote a file of the bundle, which query returned it, and when it was last modified at its source."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of `config check` for one source: whether it works, a message, the request that was sent, what to change."""

    works: bool
    words: str
    sent: str = ""
    change: str = ""


class Source(Protocol):
    """A system that holds evidence about jobs."""

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """The kinds of evidence that it may return."""

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write what there is, and return what is missing. A SourceFailed becomes a gap."""

    def check(self, deadline: Deadline) -> CheckResult:
        """Test address, credentials and permissions with the smallest possible request."""


class Finder(Protocol):
    """A system that knows jobs."""

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the jobs with exactly this id or name in the window, newest first; empty if there are none."""

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return a bounded number of jobs in the window, newest first, as suggestions for a mistyped name."""


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 80


def safe_name(text: str) -> str:
    """Turn any name into one path component: no separators, no leading dot, bounded; different names stay different."""
    plain = _UNSAFE.sub("_", text).lstrip(".")
    if plain == text and len(text) <= LONGEST_NAME:
        return text
    return f"{plain[:LONGEST_NAME]}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def first_label(names: Mapping[str, str], *wanted: str) -> str | None:
    """Return the first of the wanted labels that is set and not empty; systems spell them differently."""
    return next((names[name] for name in wanted if names.get(name)), None)
