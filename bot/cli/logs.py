"""`signalbox logs`: where the lines come from, and how they are shown."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from bot.cli.console import masked, printable_json
from bot.live.log_view import LineFilter, LogLine, Logs, end_of, lines_of, of_bundle, of_paths, ranks_of
from bot.live.tail import LogTail
from bot.render.report_json import iso
from bot.render.text_format import shown
from bot.runtime.safe_regex import search_of
from kb.errors import UnreadableInput
from kb.model import Gap

if TYPE_CHECKING:
    from bot.collection.find_job import LocatedJob
    from bot.config.settings import Config
    from bot.diagnosis.job import JobRequest
    from bot.live.job_tail import Reconnecting
    from bot.rulebase.loader import Knowledge

LOOK = 0.5  # seconds between checks of files
POLL = 10.0  # seconds between queries to connectors
OVERLAP = 60.0  # seconds of overlap between queries, since stores receive lines late
LATEST = 50  # lines shown initially
REMEMBERED = 200_000  # lines of that overlap
WIDEST = 24  # columns for the source
_SPAN = re.compile(r"\d{1,9}(?:\.\d{1,3})?\s*[smhd]?")
_FEW = 5  # gaps shown


@dataclass(frozen=True, slots=True)
class LogsOptions:
    """The options of `signalbox logs`. `request`: for a JOB; `limit`: seconds to follow, None for no limit."""

    targets: Sequence[str] = ()
    bundle: Path | None = None
    paths: bool = False
    config: Path | None = None
    request: JobRequest | None = None
    rank: str | None = None
    node: str | None = None
    since: str | None = None
    until: str | None = None
    grep: str | None = None
    ignore_case: bool = False
    follow: bool = False


def run(
    knowledge: Callable[[], Knowledge], asked: LogsOptions, *, as_json: bool, complain: Callable[[str], None]
) -> None:
    """Show the lines.

    Raises:
        SignalboxError: the options are not valid, or nothing can be read.
        BrokenPipeError: the reader is gone.
    """
    grep = search_of(asked.grep, ignore_case=asked.ignore_case) if asked.grep is not None else None
    wanted = LineFilter(ranks_of(asked.rank) if asked.rank else frozenset(), asked.node, grep=grep)
    _timed(wanted, asked, 0.0)  # report an invalid time before reading anything
    screen = Screen(sys.stdout, as_json=as_json)
    with ExitStack() as stack:
        source = _source(knowledge, asked, stack, complain)
        if asked.follow:
            for lines in source.follow(_timed(wanted, asked, time.time()), from_start=asked.since is not None):
                screen.show(lines)
            return
        logs = source.logs()
        if not logs.streams:
            raise UnreadableInput("no logs found" + _why(logs.gaps))
        found = _timed(wanted, asked, end_of(logs) or time.time())
        gaps: list[Gap] = []
        screen.columns(logs)
        screen.show(lines_of(logs, found, gaps))
        if not screen.count and (found.start is not None or found.end is not None):
            complain("no line has a time in that range" + _why(logs.gaps))
        for gap in (*logs.gaps, *gaps)[:_FEW]:
            if gap.code not in ("empty", "same_file"):
                complain(f"{gap.source}: {gap.reason}")


def request_of(job: str, tenant: str, cluster: str | None, namespace: str | None, since: str | None) -> JobRequest:
    """What to collect for a job: all its lines in the given time range."""
    from bot.diagnosis.job import JobRequest

    now = time.time()
    last = None if since is None else max(1.0, now - moment(since, now, "--since"))
    return JobRequest(job, tenant, cluster, namespace, last=last, deep=True)


def _timed(wanted: LineFilter, asked: LogsOptions, end: float) -> LineFilter:
    """Convert --since and --until to times; a duration counts back from `end`."""
    return replace(
        wanted,
        start=moment(asked.since, end, "--since") if asked.since else None,
        end=moment(asked.until, end, "--until") if asked.until else None,
    )


def moment(text: str, end: float, option: str) -> float:
    """A duration before the end such as `10m`, or a time in ISO 8601 (UTC by default), as seconds since the epoch.

    Raises:
        UnreadableInput: it is neither.
    """
    from bot.cli.watch import seconds

    if _SPAN.fullmatch(text.strip()):
        return end - seconds(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UnreadableInput(
            f"{option} {text[:40]!r}: expected a duration such as 10m, or a time such as 2026-11-20T03:04:05Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _why(gaps: Sequence[Gap]) -> str:
    return f": {'; '.join(f'{gap.source}: {gap.reason}' for gap in gaps[:_FEW])}" if gaps else ""


# -- where the lines come from -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _LocalLogs:
    """Local logs."""

    list_logs: Callable[[], Logs]

    def logs(self) -> Logs:
        """The current logs."""
        return self.list_logs()

    def follow(self, wanted: LineFilter, *, from_start: bool) -> Iterator[Iterator[LogLine]]:
        """Follow new lines, after the last lines before them."""
        tailing = LogTail(self.list_logs, wanted, from_start)
        while True:
            yield tailing.look()
            time.sleep(LOOK)


@dataclass(slots=True)
class _JobLogs:
    """Logs from connectors, collected into a spool folder, or into a temporary one while following."""

    knowledge: Knowledge
    config: Config
    request: JobRequest
    folder: Path
    complain: Callable[[str], None]
    _known: dict[bytes, None] = field(default_factory=dict)

    def logs(self) -> Logs:
        """All logs of the job's sources."""
        from bot.diagnosis.job import gather

        _, collected = gather(self.knowledge, self.config, self.request)
        return of_bundle(collected.folder)

    def follow(self, wanted: LineFilter, *, from_start: bool) -> Iterator[Iterator[LogLine]]:
        """Show the latest lines, then those that are new. The job is found once; one that is silent is waited for.

        A log store that can report new lines does so; otherwise, and while its connection is lost, it is asked for them.
        """
        from bot.live.job_tail import Reconnecting

        looks = _Looks(self, Reconnecting(self.config, self.request, self.complain))
        last = self.request.last if from_start and self.request.last else OVERLAP
        for number in range(1 << 30):
            began = time.monotonic()
            folder = self.folder / str(number)
            if looks.gathered(folder, last):
                new = self._new(of_bundle(folder), wanted)
                yield iter(deque(new, maxlen=LATEST)) if number == 0 and not from_start else new
            _emptied(folder)
            if looks.tails.is_open and looks.complete:
                for bundle in looks.tails.reports(self.folder / "tail"):
                    yield self._new(of_bundle(bundle), wanted)
                looks.until = looks.tails.until
            else:
                time.sleep(max(0.0, POLL - (time.monotonic() - began)))
            last = OVERLAP + (time.monotonic() - looks.until)

    def request_to(self, folder: Path, last: float) -> JobRequest:
        """The request for the last seconds, into a folder."""
        return replace(self.request, last=last, save=folder)

    def _new(self, logs: Logs, wanted: LineFilter) -> Iterator[LogLine]:
        for line in lines_of(logs, wanted, []):
            key = sha256(repr((line.source, line.time, line.whole)).encode("utf-8", "surrogateescape")).digest()[:12]
            if key not in self._known:
                self._known[key] = None
                yield line
        while len(self._known) > REMEMBERED:
            self._known.pop(next(iter(self._known)))


@dataclass(slots=True)
class _Looks:
    """The queries for the lines of a job that is followed. `until`: when all lines before had been asked for, on the monotonic clock."""

    logs: _JobLogs
    tails: Reconnecting
    complete: bool = False
    until: float = 0.0
    _job: LocatedJob | None = None
    _complained: str = ""

    def gathered(self, folder: Path, last: float) -> bool:
        """Collect the lines of the last seconds into a folder; whether there are any. The job is found once.

        Raises:
            SignalboxError: there is no such job.
        """
        from bot.diagnosis.job import gather
        from bot.runtime.errors import NothingCollected
        from kb.errors import SignalboxError

        began = time.monotonic()
        self.until = self.until or began
        known = None if self._job is None else running(self._job)
        if self._job is not None:
            self.tails.open(self._job)  # before asking, so that no line comes between the answer and the first report
        try:
            gather(
                self.logs.knowledge,
                self.logs.config,
                self.logs.request_to(folder, last),
                meet=self._met if known is None else None,
                located=known,
            )
        except NothingCollected as error:
            if not self._complained:
                self.logs.complain(f"no new lines; waiting for some ({error})")
            self._complained, self.until, self.complete = str(error), began, True
            return False
        except SignalboxError as error:
            if self._job is None:
                raise
            if str(error) != self._complained:
                self.logs.complain(str(error))
            self._complained, self.complete = str(error), False
            return False
        self._complained, self.until, self.complete = "", began, True
        return True

    def _met(self, located: LocatedJob) -> None:
        self._job = located
        self.tails.open(located)


def running(located: LocatedJob) -> LocatedJob:
    """The job as one that may still write: what is collected ends now, not with the last line that was seen."""
    record = located.record
    return replace(located, record=replace(record, job=replace(record.job, end=None), seen=None))


def _emptied(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _source(
    knowledge: Callable[[], Knowledge], asked: LogsOptions, stack: ExitStack, complain: Callable[[str], None]
) -> _LocalLogs | _JobLogs:
    if asked.bundle is not None:
        folder = asked.bundle
        return _LocalLogs(lambda: of_bundle(folder))
    if asked.paths:
        paths = [Path(target) for target in asked.targets]
        return _LocalLogs(lambda: of_paths(paths))
    from bot.config.file import read

    if asked.request is None:
        raise UnreadableInput("nothing to read; give a JOB, --bundle DIR, or --logs PATH…")
    folder = (
        Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-logs-"))) if asked.follow else Path()
    )
    return _JobLogs(knowledge(), read(asked.config), asked.request, folder, complain)


# -- how they are shown --------------------------------------------------------------------------------------------------


class Screen:
    """Shows lines in columns of time, source and text; or as JSON, one object per line."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self.count = 0
        self._out = out
        self._json = as_json
        self._day: float | None = None
        self._width = 4

    def columns(self, logs: Logs) -> None:
        """Set the width of the source column."""
        names = (_who(ref.resource.rank, ref.resource.node, ref.uri) for ref in logs.streams[:5000])
        self._width = min(WIDEST, max((len(name) for name in names), default=4))

    def show(self, lines: Iterator[LogLine]) -> None:
        """Write the lines."""
        for line in lines:
            self.count += 1
            self._out.write(self._as_json(line) if self._json else self._as_text(line))
        self._out.flush()

    def _as_json(self, line: LogLine) -> str:
        body: dict[str, Any] = {
            "time": iso(line.time),
            "rank": line.rank,
            "node": _name(line.node),
            "source": _name(line.source),
            "line": line.number or None,
            "text": _clean(line.whole),
        }
        return printable_json(msgspec.json.encode(body), self._out).decode() + "\n"

    def _as_text(self, line: LogLine) -> str:
        head = clock = ""
        if line.time is not None:
            day, second = divmod(line.time, 86400.0)
            if day != self._day:
                self._day = day
                head = f"-- {(iso(line.time) or '')[:10]} (UTC)\n"
            whole = int(second)
            clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
            clock += f".{int((second - whole) * 1000 + 0.01):03d}" if second != whole else ""
        name = shown(_name(_who(line.rank, line.node, line.source)) or "")
        self._width = max(self._width, min(WIDEST, len(name)))
        who = name if len(name) <= self._width else f"…{name[1 - self._width :]}"
        return f"{head}{clock:<12} {who:<{self._width}}  {line.text if line.text.isprintable() else shown(line.text)}\n"


def _who(rank: int | None, node: str | None, source: str) -> str:
    if rank is not None:
        return f"rank {rank}"
    return node or source.rsplit("/", 1)[-1]


@lru_cache(maxsize=4096)
def _name(text: str | None) -> str | None:
    """The name of a node or file, with secrets masked; the lines themselves are masked where they are read."""
    return None if text is None else masked(_clean(text) or "")


def _clean(text: str | None) -> str | None:
    """Text that UTF-8 can encode: undecodable bytes become escapes."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
