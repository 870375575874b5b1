"""The plan of queries that fetches the lines of a job from a log store within limits, most relevant lines first.

Counts by origin and time come first. If there are few lines, all are fetched. Otherwise: the last lines of every origin,
the lines that rules look for, the context of the most informative ones, and a sample of the iteration lines. Lines are
written while others are still fetched, so that nothing is lost at the deadline. `store_queries` has what
the plan needs from a store.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from connectors.base.contract import CollectionRequest, SourceFailed, Spool
from connectors.base.iteration_lines import PROGRESS_WORDS, PROGRESS_WRITTEN
from connectors.log_stores.line_buffer import LineBuffer, LogOrigin, StoredLine
from connectors.log_stores.store_queries import NS, SIDE_BY_SIDE, LineQuery, LogStore, Tally
from kb.model import Gap
from kb.parsers.logs.progress.formats import read_line

ALL_LINES = 40_000  # jobs with fewer lines are fetched completely
HUGE = 2_000_000  # lines; of more, each query over all origins keeps a server busy for seconds
FEW_SIDE_BY_SIDE = 2  # of these queries
BUCKETS = 60  # parts of the window in which lines are counted
# Lines that rules look for: from the start, from their largest increase, from the end; and all lines, from the end.
FIRST_LINES, ONSET_LINES, LAST_LINES, TAIL_LINES = 10_000, 15_000, 20_000, 15_000
FULL_PAGE = 5000  # lines; a store with smaller pages is asked for more of them
MORE_PAGES = 3  # times as many at most
WRITE_EVERY = 8.0  # seconds after which what was fetched is written while more is fetched
WRITTEN_TOGETHER = 4 << 20  # bytes of logs that are masked and written at a time
AFTER_SEARCH = 0.4  # share of the time that searches by words leave for the context of what they found
AFTER_PROBE = 0.2  # share that the search for iteration lines leaves
SHOWN = 8  # origins named in a gap
STOPPED_GROUPS = 5  # times at which origins went silent before the end
SUSPICIOUS = 8  # origins whose context is fetched
AROUND = 200  # lines before and after a matching line
RARE = 3  # at most this many origins print a rare line
HEAD = 2000  # of the first lines
PROGRESS_PROBE, PROGRESS_LAST, PROGRESS_SAMPLE = 1000, 500, 1500  # iteration lines
PROGRESS_ENOUGH = 50  # of them tell who prints any, where a part of the window has so many
PRINTERS = 2  # origins whose iteration lines are sampled
_ROLES = ("rank", "node", "pod", "container")  # of an origin
_ESTIMATED_LINE = 120.0  # bytes, by which a store that only knows bytes estimates lines
_NOT_SEEN = "anything shown only by lines that no rule looks for, and how often lines came between those fetched"


_UNFINISHED = frozenset(
    {
        "source_timeout",
        "source_over_budget",
        "source_unreachable",
        "source_server_error",
        "source_rate_limited",
        "source_bad_answer",  # it closed the connection, for example
    }
)


def fetch_lines(
    store: LogStore, request: CollectionRequest, spool: Spool, folder: str, *, source: str, all_lines: int = ALL_LINES
) -> tuple[Gap, ...]:
    """Fetch what a diagnosis needs, write it as logs/<folder>/<origin>.log, and return the gaps.

    Raises:
        SourceFailed: Nothing could be fetched.
    """
    return _LineFetcher(store, request, spool, folder, source, all_lines).run()


@dataclass(slots=True)
class _LineFetcher:
    store: LogStore
    request: CollectionRequest
    spool: Spool
    folder: str
    source: str
    all_lines: int
    heard: LineBuffer = field(init=False)
    missed: list[Gap] = field(default_factory=list)
    progress: tuple[str, ...] = field(init=False)
    tally: Tally | None = None
    writing: threading.Lock = field(default_factory=threading.Lock)
    wrote: float = field(init=False)
    probed: list[StoredLine] = field(default_factory=list)  # iteration lines
    spare: float = 0.0  # seconds that searches by words leave for what comes after them
    spare_of_probe: float = 0.0
    start: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        window = self.request.window
        self.start, self.end = round((window.start or 0.0) * NS), round((window.end or 0.0) * NS)
        self.heard = LineBuffer(self.request.bounds.log_bytes, self.request.bounds.log_lines)
        self.progress = PROGRESS_WRITTEN if self.store.few_words else PROGRESS_WORDS
        self.wrote = self.request.deadline.clock()

    def run(self) -> tuple[Gap, ...]:
        if self.end <= self.start:
            raise SourceFailed("refused", "the window must have a start and an end, the end after the start")
        bucket = max(1, -(-(self.end - self.start) // (BUCKETS * NS))) * NS
        tally = self.tally = self.store.tally(self.start, self.end, bucket)
        total = tally.total()
        if not total:  # a count may exclude the very first nanosecond
            self._take("any lines", LineQuery(self.start, self.end, limit=1), 1)
        if not total and not self.heard.lines:
            return (self._no_lines(), *self.store.gaps())
        if not tally.exact and total <= self.all_lines:
            total = self._measured(total)
        if self.request.deep or total <= self.all_lines:
            self._everything(total)
        else:
            self._selection(tally, total)
        self._write(last=True)
        return (*self.missed, *self.store.gaps())

    def _no_lines(self) -> Gap:
        return Gap(
            "no_lines",
            self.source,
            f"it has no lines of this job from {_clock(self.start)} to {_clock(self.end)} (UTC);"
            " --window asks for a longer time before the end of the job",
            asked=f"{_iso(self.start)} to {_iso(self.end)}",
            rules_out="the job's output",
        )

    def _measured(self, total: int) -> int:
        """The number of lines, judged by the length of the last ones: their bytes are known, their number is estimated."""
        limit = min(self.store.page, HEAD)
        self._take("last lines", LineQuery(self.start, self.end, backward=True, limit=limit), 1)
        if self.heard.lines < limit:
            return self.heard.lines
        size = self.heard.bytes / self.heard.lines - 32
        return max(total, round(total * _ESTIMATED_LINE / max(1.0, size)))

    # -- all lines ---------------------------------------------------------------------------------------------------------

    def _everything(self, total: int) -> None:
        """Fetch all pages from the start."""
        pages = self.request.bounds.pages if self.request.deep else None
        self._take("all lines", LineQuery(self.start, self.end), pages)
        held = self.heard.lines
        if held < total and (self.heard.full or pages is not None):
            self.missed.append(self._cut("lines_cut", "not all lines were fetched: only the earliest", total, held))

    # -- relevant lines --------------------------------------------------------------------------------------------------------

    def _selection(self, tally: Tally, total: int) -> None:
        """Fetch the relevant lines, in parallel where possible."""
        known = self.request.prefilter
        words = (known.telling or known.words) if self.store.few_words else known.words
        left = self.request.deadline.left()
        self.spare, self.spare_of_probe = AFTER_SEARCH * left, AFTER_PROBE * left
        last = max(max(buckets) for buckets in tally.counts.values()) + tally.bucket
        end = min(self.end, last)
        first: list[Callable[[], object]] = [
            lambda: self._take("last lines", LineQuery(self.start, end, backward=True), self._pages(TAIL_LINES)),
            lambda: self._hits(words, end),
            lambda: self._take("first lines", LineQuery(self.start, self.end, limit=min(HEAD, self.store.page)), 1),
        ]
        self._together(first, side_by_side=SIDE_BY_SIDE if total < HUGE else FEW_SIDE_BY_SIDE)
        self.spare = 0.0
        self._write()
        after: list[Callable[[], object]] = [
            *(self._of_around(who, at) for who, at in self.heard.telling(SUSPICIOUS, RARE)),
            *(self._of_stopped(ask) for ask in self._stopped(tally)),
        ]
        self.probed = self.heard.with_words(self.progress)
        if not self._printers():  # a search over all origins costs much, and most jobs print such lines to their end
            self._together([*after, lambda: self._try("iteration lines", lambda: self._probe(end))])
            after = []
        self._together([*after, *(self._of_printer(who, end) for who in self._printers())])
        self.missed.append(
            self._cut(
                "not_line_by_line",
                "not compared line by line: only the first and last lines, and lines that rules look for with their context",
                total,
                self.heard.lines,
            )
        )
        left_out = known.left_out if self.store.few_words and known.telling else known.uncovered
        if left_out:
            self.missed.append(
                Gap(
                    "not_searched",
                    self.source,
                    f"{left_out} patterns have none of the {len(words)} words that were searched for;"
                    " they were matched only against the fetched lines",
                )
            )

    def _pages(self, lines: int) -> int:
        """The number of pages that hold this many lines, unless pages are much smaller than usual."""
        return min(-(-lines // self.store.page), MORE_PAGES * -(-lines // FULL_PAGE))

    def _hits(self, words: tuple[str, ...], end: int) -> None:
        """Fetch lines that rules look for: the first ones and, if there are more, those at their largest increase and the last ones."""
        if not words:
            return
        # From the end: if there are few, this is the only pass, and if the time does not suffice, the last ones are there.
        latest = LineQuery(self.start, end, backward=True, words=words, spare=self.spare)
        behind = self._take("lines that rules look for", latest, self._pages(LAST_LINES))
        if behind is None or behind <= self.start:
            return
        reached = self._take(
            "first lines that rules look for",
            LineQuery(self.start, behind, words=words, spare=self.spare),
            self._pages(FIRST_LINES),
        )
        if reached is None or reached >= behind:
            return
        onset = self._onset(reached, behind, words)
        met = self._take(
            "lines that rules look for, from their largest increase",
            LineQuery(onset, behind, words=words, spare=self.spare),
            self._pages(ONSET_LINES),
        )
        met = onset if met is None else met
        missing = [f"{_iso(low)} to {_iso(high)}" for low, high in ((reached, onset), (met, behind)) if low < high]
        if missing:
            self.missed.append(
                Gap(
                    "hits_cut",
                    self.source,
                    "more lines match the rules' words than can be fetched; those in the middle of the window are missing",
                    asked=", ".join(missing),
                    got="the first, those around the largest increase, and the last",
                    rules_out="lines in between",
                )
            )

    def _onset(self, start: int, end: int, words: tuple[str, ...]) -> int:
        """The time at which lines with these words increase most, refined once."""
        for _ in range(2):
            bucket = max(1, -(-(end - start) // (BUCKETS * NS))) * NS
            found = self._counted(start, end, bucket, words)
            rises = [(number - found.get(at - bucket, 0), -at) for at, number in found.items()]
            if not rises:
                break
            at = -max(rises)[1]
            start, end = max(start, at), min(end, at + bucket)
            if bucket == NS:
                break
        return start

    def _counted(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> dict[int, int]:
        found: dict[int, int] = {}
        self._try("when they came", lambda: found.update(self.store.histogram(start, end, bucket, words)))
        return found

    def _probe(self, end: int) -> None:
        """Fetch the last iteration lines, until there are enough to tell who prints any."""
        ask = LineQuery(
            self.start, end, backward=True, words=self.progress, limit=PROGRESS_PROBE, spare=self.spare_of_probe
        )
        for page in self.store.pages(ask):
            self.heard.add(page, backward=True)
            self.probed.extend(page)
            if len(self.probed) >= PROGRESS_ENOUGH and self._printers():
                break

    def _stopped(self, tally: Tally) -> Iterator[LineQuery]:
        """Queries for the last lines of origins that went silent early and were not fetched yet."""
        groups: dict[int, list[LogOrigin]] = {}
        last = {who: max(buckets) for who, buckets in tally.counts.items() if who != LogOrigin()}
        latest = _of_known({who: self.heard.last(who) or 0 for who in self.heard.counts()}, last)
        for who, bucket in last.items():
            if max(latest[who], default=0) < bucket:
                groups.setdefault(bucket, []).append(who)
        ordered = sorted(groups)
        for bucket in ordered[:STOPPED_GROUPS]:
            yield LineQuery(bucket, min(self.end, bucket + tally.bucket), backward=True, of=tuple(groups[bucket]))
        rest = [who for bucket in ordered[STOPPED_GROUPS:] for who in groups[bucket]]
        if rest:
            yield LineQuery(
                ordered[STOPPED_GROUPS], min(self.end, ordered[-1] + tally.bucket), backward=True, of=tuple(rest)
            )

    def _of_stopped(self, ask: LineQuery) -> Callable[[], object]:
        limited = ask._replace(limit=min(self.store.page, max(AROUND, 20 * len(ask.of))))
        return lambda: self._take("last lines of those that stopped", limited, 1)

    def _printers(self) -> list[LogOrigin]:
        """The origins that print iteration lines, most frequent first."""
        found: Counter[LogOrigin] = Counter()
        for line in self.probed:
            found[line.who] += read_line(line.text.encode("utf-8", "replace")[:4096]) is not None
        return [who for who in sorted(found, key=lambda who: (-found[who], who)) if found[who] >= 2][:PRINTERS]

    def _of_printer(self, who: LogOrigin, end: int) -> Callable[[], None]:
        def fetch() -> None:
            ask = LineQuery(
                self.start, end, words=self.progress, of=(who,), limit=min(PROGRESS_SAMPLE, self.store.page)
            )
            every = max(1, (end - self.start) // ask.limit) if ask.limit else 1
            self._try("a sample of the iteration lines", lambda: self.heard.add(self.store.sampled(ask, every)))
            self._take("last iteration lines", ask._replace(backward=True, limit=PROGRESS_LAST), 1)

        return fetch

    def _of_around(self, who: LogOrigin, at: int) -> Callable[[], None]:
        def fetch() -> None:
            before = LineQuery(self.start, at, backward=True, of=(who,), limit=AROUND)
            self._take("lines before a telling one", before, 1)
            self._take("lines after a telling one", LineQuery(at, self.end, of=(who,), limit=AROUND), 1)

        return fetch

    # -- how ---------------------------------------------------------------------------------------------------------

    def _take(self, what: str, ask: LineQuery, pages: int | None) -> int | None:
        """Fetch pages of a query. Return the time up to which (backward: down to which) all lines are there, None on failure."""
        reached: int | None = None

        def fetch() -> None:
            nonlocal reached
            at = ask.end if ask.backward else ask.start
            done = False
            for count, page in enumerate(self.store.pages(ask), 1):
                self.heard.add(page, backward=ask.backward, telling=bool(ask.words) and ask.words is not self.progress)
                at = page[-1].at if page else at
                if self.request.deadline.clock() - self.wrote > WRITE_EVERY:
                    self._write()
                if self.heard.full or count == pages or self.request.deadline.left() < self.spare:
                    break
            else:
                done = True
            reached = (ask.start if ask.backward else ask.end) if done else at

        self._try(what, fetch)
        return reached

    def _try(self, what: str, fetch: Callable[[], object]) -> None:
        """Run one part of the plan, which may fail on its own unless nothing was fetched yet."""
        try:
            fetch()
        except SourceFailed as failed:
            if not self.heard.lines:
                raise
            gap = failed.gap(self.source, scope=what, rules_out=what)
            self.missed.append(replace(gap, asked=gap.asked[:200]))

    def _together(self, fetches: Sequence[Callable[[], object]], *, side_by_side: int = SIDE_BY_SIDE) -> None:
        failures: list[SourceFailed] = []
        with ThreadPoolExecutor(side_by_side) as pool:
            for future in [pool.submit(fetch) for fetch in fetches]:
                try:
                    future.result()
                except SourceFailed as failed:
                    failures.append(failed)
        if failures and not self.heard.lines:
            raise failures[0]
        self.missed.extend(failed.gap(self.source) for failed in failures)

    def _write(self, *, last: bool = False) -> None:
        """Write the lines so far, one file per origin, and when each was last active."""
        counted = self.tally.counts if self.tally is not None else {}
        with self.writing:
            self.wrote = self.request.deadline.clock()
            try:
                for batch in _batches(self.heard.logs(), WRITTEN_TOGETHER):
                    self.spool.replace({self._path(who): text for who, text, _ in batch})
                    for who, _, at in batch:
                        # counts include lines that were not fetched; then the start of their bucket is the best known time
                        latest = max([at, *(counted.get(who) or {})])
                        self.spool.describe(self._path(who), resource=who.resource(), written=latest / NS)
            except SourceFailed as failed:
                self.missed.append(failed.gap(self.source, rules_out="the job's output"))
        if last and self.heard.full:
            bounds = self.request.bounds
            self.missed.append(
                Gap(
                    "logs_cut",
                    self.source,
                    f"the limit of {bounds.log_bytes:,} bytes and {bounds.log_lines:,} lines of logs for one source was reached",
                    got=f"{self.heard.lines} lines, {self.heard.bytes} bytes",
                    rules_out="later lines",
                )
            )
        if last and any(gap.code in _UNFINISHED for gap in self.missed):
            self._by_origin(counted)

    def _path(self, who: LogOrigin) -> str:
        return f"logs/{self.folder}/{who.name()}.log"

    def _by_origin(self, counted: Mapping[LogOrigin, Mapping[int, int]]) -> None:
        """Report how much was read of each origin if time or limits did not suffice."""
        of = {who: sum(buckets.values()) for who, buckets in counted.items() if who != LogOrigin()}
        if not of:
            return
        held = {who: sum(numbers) for who, numbers in _of_known(self.heard.counts(), of).items()}
        without = [who.name() for who in sorted(of) if not held.get(who)]
        shares = sorted((held[who] / max(of[who], held[who]), who.name()) for who in of if held.get(who))
        words = [f"{name}: {share:.0%}" for share, name in shares[:SHOWN]]
        more = f", and more of {len(shares) - SHOWN} others" if len(shares) > SHOWN else ""
        reason = f"read of each source: {', '.join(words)}{more}" if words else "nothing was read of any source"
        if without:
            others = f" and {len(without) - SHOWN} more" if len(without) > SHOWN else ""
            reason += f"; nothing of {', '.join(without[:SHOWN])}{others}"
        self.missed.append(Gap("read_in_part", self.source, reason, rules_out=_NOT_SEEN))

    def _cut(self, code: str, reason: str, total: int, held: int) -> Gap:
        return Gap(code, self.source, reason, asked=f"{total} lines", got=f"{held} lines", rules_out=_NOT_SEEN)


def _of_known(heard: Mapping[LogOrigin, int], known: Iterable[LogOrigin]) -> dict[LogOrigin, list[int]]:
    """Group the received lines by the origins in the counts. These may have fewer labels, because labels in metadata are not in the index."""
    found: dict[LogOrigin, list[int]] = {who: [] for who in known}
    shapes = {tuple(bool(getattr(who, role)) for role in _ROLES) for who in found}
    for who, value in heard.items():
        for shape in shapes:
            part = LogOrigin(*(getattr(who, role) if has else "" for role, has in zip(_ROLES, shape, strict=True)))
            if part in found:
                found[part].append(value)
    return found


def _batches(logs: Iterable[tuple[LogOrigin, bytes, int]], size: int) -> Iterator[list[tuple[LogOrigin, bytes, int]]]:
    """Group logs up to this many bytes."""
    batch: list[tuple[LogOrigin, bytes, int]] = []
    held = 0
    for log in logs:
        batch.append(log)
        held += len(log[1])
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _clock(at: int) -> str:
    """Format a time for people."""
    return datetime.fromtimestamp(at // NS, UTC).strftime("%Y-%m-%d %H:%M")


def _iso(at: int) -> str:
    return f"{at / NS:.3f}"
