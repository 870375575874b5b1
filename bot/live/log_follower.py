"""Follows growing logs: each poll scans new lines with the whole rule base and keeps a bounded summary of every log.

Whenever a log grows, its last 64 KiB are scanned again (fewer if they contain only progress), so that anything that began
before a poll and ended after it is read whole. Everything before that is settled and never read again. The summary equals that
of a scan of the whole file. A file is identified by its inode, not its name, so a rotated file keeps its summary under its new name.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bot.rulebase.loader import Knowledge
from connectors.bundles.streams import StreamReader, discover, is_plain
from kb.errors import SignalboxError
from kb.model import Gap, ProgressPoint, StreamRef
from kb.scanning.scanner import AFTER, BEFORE, Scanner, scan
from kb.scanning.summary import StreamSummary, merge

MOST_STREAMS = 4096
MANY = 512  # with more files than this, the search for new ones runs less often
SELDOM = 120.0  # seconds
LARGEST_PACKED = 64 << 20
MARKS = 4096
QUIET = 8192  # bytes scanned again if the last poll saw only progress
_LOGS = "logs"
_FEWER = frozenset({"empty", "same_file"})  # gaps that mean nothing while a job has only just begun to write


@dataclass(slots=True)
class _FollowedFile:
    """One file. Bytes [0, own) are final in `settled`, and [0, end) have been scanned; `marks`: the size of the file over time."""

    ref: StreamRef
    plain: bool
    own: int = 0
    end: int = 0
    settled: StreamSummary | None = None
    view: StreamSummary | None = None
    arrived: float | None = None
    quiet: bool = False
    marks: list[tuple[int, float]] = field(default_factory=list)


class LogFollower:
    """Follows the logs under a path: call `look(now)` repeatedly, then read `streams` and `gaps`."""

    def __init__(self, knowledge: Knowledge, root: Path) -> None:
        self.root = root if root.is_dir() else root.parent
        self.gaps: tuple[Gap, ...] = ()
        self._path, self._knowledge, self._matcher = root, knowledge, knowledge.matcher()
        self._files: dict[tuple[int, int], _FollowedFile] = {}
        self._shown: list[tuple[int, int]] = []
        self._listed = self._looked = float("-inf")
        self._lost: dict[str, Gap] = {}

    @property
    def streams(self) -> tuple[StreamSummary, ...]:
        """The summaries, with sources named as in a bundle. The last time of a log is the arrival time of its last bytes."""
        views = (self._files[key].view for key in self._shown if key in self._files)
        return tuple(view for view in views if view is not None)

    @property
    def files(self) -> tuple[tuple[StreamRef, float | None], ...]:
        """The files, each with the time at which it last grew."""
        return tuple((self._files[key].ref, self._files[key].arrived) for key in self._shown if key in self._files)

    def look(self, now: float) -> bool:
        """Read new lines (`now`: seconds since the epoch). Return whether there were any."""
        if len(self._shown) <= MANY or now - self._listed >= SELDOM:
            self._list(now)
        grew = [self._grow(key, now) for key in self._shown]
        self._looked = now
        return any(grew)

    def scan_text(self, ref: StreamRef, text: bytes, now: float) -> StreamSummary:
        """Summarise a text held in memory."""
        year = datetime.fromtimestamp(now, UTC).year
        return scan(self._knowledge.plan, self._matcher, replace(ref, size=len(text)), [text], year)

    def _list(self, now: float) -> None:
        self._listed = now
        try:
            found = discover([self._path])
        except SignalboxError as error:
            self.gaps = (Gap("vanished", str(self._path), str(error)), *self._lost.values())
            return
        more = len(found.streams) - MOST_STREAMS
        cut = (Gap("too_many_files", str(self._path), f"{more} more files are not followed"),) if more > 0 else ()
        self.gaps = (*(gap for gap in found.gaps if gap.code not in _FEWER), *cut, *self._lost.values())
        self._shown = []
        for ref in found.streams[:MOST_STREAMS]:
            with suppress(OSError):
                status = Path(ref.uri).stat()
                key = (status.st_dev, status.st_ino)
                known = self._files.get(key)
                if known is None:
                    self._files[key] = _FollowedFile(ref, is_plain(ref))
                elif known.ref != ref:
                    known.ref = ref
                    known.view = _named(known.view, ref, self.root) if known.view is not None else None
                self._shown.append(key)
        kept = set(self._shown)
        self._files = {key: item for key, item in self._files.items() if key in kept}

    def _grow(self, key: tuple[int, int], now: float) -> bool:
        followed = self._files[key]
        try:
            status = Path(followed.ref.uri).stat()
        except OSError:
            return False  # the file is gone; its summary stays until the files are listed again
        if (status.st_dev, status.st_ino) != key:
            return False  # replaced by another file, which is found when the files are next listed
        if status.st_size < followed.end:
            reason = f"the file became shorter: it had {followed.end} bytes, now {status.st_size}; read again"
            self._lost[followed.ref.uri] = Gap("shrunk", followed.ref.uri, reason)
            self._files[key] = followed = _FollowedFile(followed.ref, is_plain(followed.ref))
        if status.st_size == followed.end:
            return False
        fresh = self._looked < status.st_mtime <= now or (followed.view is None and status.st_mtime <= now)
        followed.arrived = status.st_mtime if fresh else now
        known, followed.end = followed.end, status.st_size
        if known:  # the arrival time of its first part is unknown
            followed.marks.append((followed.end, followed.arrived))
            followed.marks = (
                followed.marks[:1] + followed.marks[1::2] if len(followed.marks) > MARKS else followed.marks
            )
        else:
            followed.marks.append((followed.end, 0.0))
        self._read(followed, now)
        return True

    def _read(self, followed_file: _FollowedFile, now: float) -> None:
        year = datetime.fromtimestamp(now, UTC).year
        if not followed_file.plain:
            followed_file.view = self._packed(followed_file, year)
            return
        keep = QUIET if followed_file.quiet else AFTER
        if followed_file.end - followed_file.own > 2 * keep:
            cut = followed_file.end - keep
            part = self._part(followed_file, followed_file.own, cut, year)
            followed_file.settled = part if followed_file.settled is None else merge(followed_file.settled, part)
            followed_file.own = cut
        rest = self._part(followed_file, followed_file.own, None, year)
        followed_file.quiet = not rest.structures and "Traceback" not in rest.tail
        followed_file.view = _as_heard(
            followed_file, rest if followed_file.settled is None else merge(followed_file.settled, rest), self.root
        )

    def _part(self, followed_file: _FollowedFile, start: int, stop: int | None, year: int) -> StreamSummary:
        ref = replace(followed_file.ref, size=followed_file.end)
        origin = max(0, start - BEFORE)
        reading = StreamReader(ref, origin, None if stop is None else stop + AFTER)
        scanner = Scanner(
            self._knowledge.plan, self._matcher, ref, origin=origin, own_start=start, own_stop=stop, year=year
        )
        for again, block in reading.overlapping(BEFORE + AFTER):
            scanner.feed(block, again)
        for gap in reading.gaps:
            if gap.code != "growing":
                self._lost[followed_file.ref.uri] = gap
        return scanner.finish()

    def _packed(self, followed_file: _FollowedFile, year: int) -> StreamSummary:
        """Read a compressed file, which is a rotated log, once and in full."""
        if followed_file.end > LARGEST_PACKED:
            gap = Gap("too_large", followed_file.ref.uri, f"packed, {followed_file.end} bytes; it is not followed")
            return _as_heard(followed_file, StreamSummary(followed_file.ref, gaps=(gap,)), self.root)
        reading = StreamReader(replace(followed_file.ref, size=followed_file.end))
        found = scan(self._knowledge.plan, self._matcher, followed_file.ref, reading, year)
        return _as_heard(followed_file, replace(found, gaps=tuple(reading.gaps)), self.root)


def placed(uri: str, root: Path) -> str:
    """The path of a log in a bundle."""
    path = Path(uri)
    inside = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    return f"{_LOGS}{os.sep}{inside}"


def _named(summary: StreamSummary, ref: StreamRef, root: Path) -> StreamSummary:
    return replace(summary, ref=replace(ref, uri=placed(ref.uri, root)))


def _as_heard(followed_file: _FollowedFile, summary: StreamSummary, root: Path) -> StreamSummary:
    """The summary with arrival times: the last line of a live log arrived with its last byte."""
    points = tuple(_timed(summary.series.points, followed_file.marks))
    series = replace(summary.series, points=points)
    last = followed_file.arrived if followed_file.arrived is not None else summary.last_time
    heard = replace(summary, series=series, last_time=last)
    return _named(heard, replace(followed_file.ref, size=followed_file.end), root)


def _timed(points: Iterable[ProgressPoint], marks: list[tuple[int, float]]) -> Iterable[ProgressPoint]:
    """Points without a time get the time of the poll at which they arrived; points from the first poll get none."""
    ends = [end for end, _ in marks]
    for point in points:
        at = bisect_right(ends, point.offset)
        if point.time is not None or at == 0 or at >= len(marks):
            yield point
        else:
            yield replace(point, time=marks[at][1])
