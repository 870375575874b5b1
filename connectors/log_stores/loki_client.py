"""The streams of one job in Loki: counts, pages and samples for the query plan.

Loki has no cursor. A full page is followed by one that starts at its last time, and lines on both are dropped. A query
that the server finds too large (entries, series, time range, bytes, seconds) is asked again, smaller. Lines with words
are searched in parts of the window, paced by how long the parts before took.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest, url_path
from connectors.log_stores.line_buffer import LogOrigin, StoredLine, usual_names
from connectors.log_stores.logql import Labels, selector, with_labels, with_words
from connectors.log_stores.loki_calls import LokiCalls
from connectors.log_stores.loki_limits import LEAST_PAGE, LokiLimits, is_series, too_much
from connectors.log_stores.query_plan import NS, SIDE_BY_SIDE, LineQuery, QueryMeter, Tally
from kb.model import Gap

PAGE = 5000  # max_entries_limit_per_query by default
SERIES = 400  # label values in one count; max_query_series is 500
VOLUMES = 1000  # of one answer; volume_max_series by default
MOST_PARTS = 24  # of a count by origin, where the server allows few series
BYTES_OF_LINE = 120  # of a training log, about: volumes are in bytes
LONGEST_URL = 4000  # characters of a query sent in the URL; proxies refuse longer ones
LEAST_SPAN = NS // 100  # a query is not divided below this
PART_SECONDS = 5.0  # a part of a search by words is to take so long
FIRST_PART = 8 << 20  # bytes of the first part of a search by words
ROLES = ("rank", "node", "pod", "container")  # labels that identify the origin of a line, most specific first
_CATEGORIES = {
    "X-Loki-Response-Encoding-Flags": "categorize-labels"
}  # otherwise metadata would turn each line into a stream


@dataclass(frozen=True, slots=True)
class LokiSettings:
    """The lines of a job in Loki, selected by stream labels."""

    endpoint: Endpoint
    """The server, including any path before /loki/api/v1. Set a tenant's X-Scope-OrgID under `login:
    headers:`.
    """
    labels: Mapping[str, str] = field(default_factory=usual_names)
    """The names of the labels: role → label. The role `job` names the job, `namespace` its namespace,
    `rank`, `node`, `pod` and `container` the origin of a line. Without `job`, the pods known to the cluster are
    used.
    """
    job_is: tuple[str, ...] = ("id", "name")
    """Whether the label contains the job's id, its name, or either."""
    also: Mapping[str, str] = field(default_factory=dict)
    """What every stream must also match, such as {cluster: east}."""
    folder: str = "loki"
    """The folder under logs/ of the bundle for its lines."""
    page: int = PAGE
    """Lines per response."""


class LokiStore:
    """The streams of one job, for the query plan. `speakers`: the expected number of origins."""

    few_words = True

    def __init__(
        self,
        settings: LokiSettings,
        client: HttpClient,
        streams: Labels,
        deadline: Deadline,
        *,
        speakers: int = 0,
        limits: LokiLimits | None = None,
    ) -> None:
        self.meter = QueryMeter()
        self.limits = limits or LokiLimits()
        self._settings = settings
        self._calls = LokiCalls(client, deadline, self.meter)
        self._streams = streams
        self._many = speakers > SERIES
        self._speakers: tuple[LogOrigin, ...] = ()
        self._in_streams: set[str] = set()  # labels of origins that are in streams rather than in metadata
        self._pace = SearchPace()
        self._gaps: dict[str, Gap] = {}

    @property
    def page(self) -> int:
        """Lines per full page."""
        return max(LEAST_PAGE, min(self._settings.page, self.limits.entries))

    @property
    def deadline(self) -> Deadline:
        """By when all queries end."""
        return self._calls.deadline

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched."""
        return tuple(self._gaps.values())

    # -- counts ------------------------------------------------------------------------------------------------------

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time: from the index where it knows the origins, which costs nothing, else by reading them.

        Counts are aligned to multiples of the bucket, like Loki's own splitting.
        """
        step = -(-bucket // NS)
        told = self._volumes(start, end, step)
        counts = self._counts(start, end, step) if told is None else told
        if told is not None:
            self._pace.expect(sum(sum(held.values()) for held in told.values()) * BYTES_OF_LINE, end - start)
        self._speakers = tuple(sorted(counts))
        return Tally(step * NS, counts, exact=told is None)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count lines with these words by time."""
        step = -(-bucket // NS)
        query = f"sum(count_over_time({selector(self._streams)}{with_words(words)}[{step}s]))"
        result = self._matrix(query, start, end, step)
        found: dict[int, int] = {}
        for entry in result:
            for at, value in _pairs(entry):
                when = (round(float(at)) - step) * NS
                found[when] = found.get(when, 0) + int(float(value))
        return found

    def _volumes(self, start: int, end: int, step: int) -> dict[LogOrigin, dict[int, int]] | None:
        """About how many lines the index has, by origin and time; None if it cannot tell."""
        labels, groups = self._origins(start, end) if self.limits.volume else ([], [])
        result: list[Mapping[str, Any]] = []
        for group in groups:
            form = {
                "query": selector({**self._streams, **group}),
                "targetLabels": ",".join(labels),
                "aggregateBy": "series",
                "limit": str(VOLUMES),
                "start": str(start // NS // step * step * NS),
                "end": str(-(-end // NS // step) * step * NS),
                "step": str(step),
            }
            try:
                result += self._split(form, step, lambda part: self._result("index/volume_range", part, "matrix"))
            except SourceFailed as failed:
                if failed.kind in ("refused", "missing", "server_error", "bad_answer"):
                    self.limits.volume = False
                    return None
                raise
        counts: dict[LogOrigin, dict[int, int]] = {}
        for entry in result:
            held = counts.setdefault(speaker_of(self._settings, entry.get("metric")), {})
            for at, value in _pairs(entry):
                size = int(float(value))
                bucket = ((int(float(at) * 1000) + 1) // 1000 - step) // step * step * NS
                if size > 0:
                    held[bucket] = held.get(bucket, 0) + -(-size // BYTES_OF_LINE)
        counts = {who: held for who, held in counts.items() if held}
        return counts or None

    def _origins(self, start: int, end: int) -> tuple[list[str], list[Labels]]:
        """The labels of origins that all streams have, and groups of streams whose volumes fit into one answer.

        The index leaves out streams without a label that is asked for.
        """
        path = url_path("loki", "api", "v1", "series")
        series = self._listed(path, {"match[]": selector(self._streams)}, start, end)
        if not all(isinstance(entry, dict) for entry in series):
            raise unexpected_answer(HttpRequest(path), "a list of labels")
        names = [label for role in ROLES if (label := self._settings.labels.get(role))]
        labels = [label for label in names if series and all(entry.get(label) for entry in series)]
        if not labels:
            return [], []
        origins = {tuple(entry[label] for label in labels) for entry in series}
        if len(origins) < VOLUMES:
            return labels, [{}]
        values = sorted({str(entry[labels[0]]) for entry in series})
        size = max(1, VOLUMES // 2 * len(values) // len(origins))
        return labels, [{labels[0]: tuple(values[at : at + size])} for at in range(0, len(values), size)]

    def _counts(self, start: int, end: int, step: int) -> dict[LogOrigin, dict[int, int]]:
        """The lines by origin and time, counted by reading them."""
        if not self._many:
            try:
                return self._count(start, end, step, {})
            except SourceFailed as failed:
                if not is_series(failed):
                    raise
        self._many = True
        counts: dict[LogOrigin, dict[int, int]] = {}
        groups = list(self._parts(start, end))
        if len(groups) > MOST_PARTS:
            return self._unparted(start, end, step)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for part in pool.map(lambda group: self._halved(start, end, step, group), groups):
                for who, held in part.items():
                    known = counts.setdefault(who, {})
                    for at, number in held.items():
                        known[at] = known.get(at, 0) + number
        return counts

    def _halved(self, start: int, end: int, step: int, part: Labels) -> dict[LogOrigin, dict[int, int]]:
        """The count of a group of label values, in halves where it still has too many series."""
        try:
            return self._count(start, end, step, part)
        except SourceFailed as failed:
            ((label, values),) = part.items()
            if not is_series(failed) or len(values) < 2:
                raise
            middle = len(values) // 2
            first = self._halved(start, end, step, {label: values[:middle]})
            return {**first, **self._halved(start, end, step, {label: values[middle:]})}

    def _unparted(self, start: int, end: int, step: int) -> dict[LogOrigin, dict[int, int]]:
        """The lines by time alone, where counting by origin would take too many queries."""
        self._gaps["not_by_origin"] = Gap(
            "not_by_origin",
            "loki",
            f"the server allows {self.limits.series} series per count, too few to count the lines of each origin",
            rules_out="which origin went silent before the others",
        )
        return {LogOrigin(): dict(self.histogram(start, end, step * NS, ()))}

    def _count(self, start: int, end: int, step: int, part: Labels) -> dict[LogOrigin, dict[int, int]]:
        by = ", ".join(label for role in ROLES if (label := self._settings.labels.get(role)))
        streams = selector({**self._streams, **part})
        counts: dict[LogOrigin, dict[int, int]] = {}
        for entry in self._matrix(f"sum by ({by}) (count_over_time({streams}[{step}s]))", start, end, step):
            held = counts.setdefault(speaker_of(self._settings, entry.get("metric")), {})
            for at, value in _pairs(entry):
                bucket = (round(float(at)) - step) * NS
                held[bucket] = held.get(bucket, 0) + int(float(value))
        return counts

    def _matrix(self, query: str, start: int, end: int, step: int) -> list[Mapping[str, Any]]:
        form = {"query": query, **_steps(start, end, step)}
        return self._split(form, step, lambda part: self._result("query_range", part, "matrix"))

    def _split(
        self, form: Mapping[str, str], step: int, ask: Callable[[Mapping[str, str]], list[Mapping[str, Any]]]
    ) -> list[Mapping[str, Any]]:
        """The series of a count; in parts of its window where the server takes no longer one.

        Raises:
            SourceFailed: A smaller part would not help either.
        """
        found: list[Mapping[str, Any]] = []
        parts = [(int(form["start"]) // NS, int(form["end"]) // NS)]
        while parts:
            first, last = parts.pop()
            most = self.limits.length and max(step, self.limits.length // NS // step * step - 2 * step)
            if most and last - first > most:
                parts += [(first + most + step, last), (first, first + most)]
                continue
            try:
                found += ask({**form, "start": str(first * NS), "end": str(last * NS)})
            except SourceFailed as failed:
                known = self.limits.length
                if not is_series(failed) and self.limits.learn(failed) and known != self.limits.length:
                    parts.append((first, last))
                elif too_much(failed) is not None and last - first > 2 * step:
                    middle = first + (last - first) // 2 // step * step
                    parts += [(middle + step, last), (first, middle)]
                else:
                    self.limits.learn(failed)
                    raise
        return found

    def _parts(self, start: int, end: int) -> Iterator[Labels]:
        """The values of the most specific label, in groups that fit into one query."""
        size = max(1, min(SERIES, self.limits.series))
        for role in ROLES:
            label = self._settings.labels.get(role)
            if not label:
                continue
            path = url_path("loki", "api", "v1", "label", label, "values")
            found = self._listed(path, {"query": selector(self._streams)}, start, end)
            values = sorted({*strings_of(found, HttpRequest(path))})
            if len(values) > 1:
                yield from ({label: tuple(values[at : at + size])} for at in range(0, len(values), size))
                return
        raise SourceFailed("refused", "there are more streams than one query may count, and no label to divide them by")

    def _listed(self, path: str, params: Mapping[str, str], start: int, end: int) -> list[Any]:
        """The entries of a list for a window; in parts where the server takes no longer one.

        Raises:
            SourceFailed: No response, a refusal, or another structure.
        """
        found: list[Any] = []
        parts = [(start, end)]
        while parts:
            low, high = parts.pop()
            most = self.limits.length
            if most and high - low > most:
                parts += [(low, high - most), (high - most, high)]
                continue
            call = HttpRequest(path, params={**params, "start": str(low), "end": str(high)})
            try:
                listed = data_of(self._json(call), call) or []  # Loki returns null for an empty list
            except SourceFailed as failed:
                if not self.limits.learn(failed) or self.limits.length == most:
                    raise
                parts.append((low, high))
                continue
            if not isinstance(listed, list):
                raise unexpected_answer(call, "a list")
            found += listed
        return found

    # -- lines -------------------------------------------------------------------------------------------------------

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield pages. A full page is continued from its last time, without the lines already returned."""
        low, high, left = ask.start, ask.end, ask.limit
        seen: set[Hashable] = set()
        part = _Part(self.limits, self._pace if ask.words else None, self.deadline)
        while low < high and (left is None or left > 0):
            first, last = part.of(low, high, backward=ask.backward)
            limit = self.page if left is None else min(self.page, left + len(seen))
            lines = self._lines(ask._replace(start=first, end=last), limit, part)
            if lines is None:
                continue
            part.done(first, last, full=len(lines) >= limit, reached=lines[-1].at if lines else None)
            fresh = [line for line in lines if (line.at, line.who, line.key) not in seen]
            fresh = fresh if left is None else fresh[:left]
            if fresh:
                yield fresh
                left = left if left is None else left - len(fresh)
            if len(lines) < limit:
                low, high, seen = (low, first, set()) if ask.backward else (last, high, set())
                continue
            border = lines[-1].at
            if lines[0].at == border:
                seen |= {(line.at, line.who, line.key) for line in lines}
                yield from self._one_time(ask, border, seen)
                low, high, seen = (low, border, set()) if ask.backward else (border + 1, high, set())
                continue
            seen = {(line.at, line.who, line.key) for line in lines if line.at == border}
            low, high = (low, border + 1) if ask.backward else (border, high)

    def border(self, window: tuple[int, int], *, backward: bool) -> int | None:
        """Return the time of the first line in a window, or of the last one."""
        found = next(self.pages(LineQuery(*window, backward=backward, limit=1)), None)
        return found[0].at if found else None

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds, by `interval`."""
        part = _Part(self.limits, None, self.deadline)
        first, last = part.of(ask.start, ask.end, backward=True)
        more = {"interval": f"{every / NS:.9f}"}
        return (
            self._lines(ask._replace(start=first, end=last), min(self.page, ask.limit or self.page), part, more) or ()
        )

    def _lines(
        self, ask: LineQuery, limit: int, part: _Part, more: Mapping[str, str] | None = None
    ) -> list[StoredLine] | None:
        """The lines of one response, ordered by time; None if the query must be repeated with a smaller size."""
        form = {
            "query": self._query(ask),
            "start": str(ask.start),
            "end": str(ask.end),
            "limit": str(limit),
            "direction": "backward" if ask.backward else "forward",
            **(more or {}),
        }
        try:
            result = self._result("query_range", form, "streams")
        except SourceFailed as failed:
            self._lessen(failed, ask, limit, part)
            return None
        lines = [line for entry in result for line in self._of_stream(entry)]
        lines.sort(key=lambda line: line.at, reverse=ask.backward)
        return lines

    def _lessen(self, failed: SourceFailed, ask: LineQuery, limit: int, part: _Part) -> None:
        """Apply the limit that the server names, or ask for less.

        Raises:
            SourceFailed: That would not help.
        """
        length = ask.end - ask.start
        if self.limits.learn(failed):
            if limit > self.limits.entries or (self.limits.length is not None and length > self.limits.length):
                return
        elif failed.kind == "too_large" and limit > LEAST_PAGE:
            self.limits.entries = max(LEAST_PAGE, limit // 4)
            return
        share = too_much(failed)
        if share is None or length < LEAST_SPAN:
            raise failed
        part.lessen(max(1, int(length * share)))

    def _one_time(self, ask: LineQuery, at: int, seen: set[Hashable]) -> Iterator[Sequence[StoredLine]]:
        """All lines with one timestamp that fill more than a page, divided by origin because time cannot divide them."""
        groups = [ask.of or self._speakers]
        part = _Part(self.limits, None, self.deadline)
        while groups:
            group = groups.pop()
            lines = None
            while lines is None:
                limit = self.page
                lines = self._lines(ask._replace(start=at, end=at + 1, of=group), limit, part)
            if len(lines) >= limit and len(group) > 1:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
                continue
            if len(lines) >= limit:
                self._gaps["one_time"] = Gap(
                    "lines_of_one_time",
                    "loki",
                    f"more lines of one source share a timestamp than fit into a response ({limit}); the rest is missing",
                    scope=", ".join(item.name() for item in group),
                )
            fresh = [line for line in lines if (line.at, line.who, line.key) not in seen]
            seen.update((stored_line.at, stored_line.who, stored_line.key) for stored_line in fresh)
            if fresh:
                yield fresh

    def _query(self, ask: LineQuery) -> str:
        streams: dict[str, Sequence[str]] = dict(self._streams)
        metadata: dict[str, Sequence[str]] = {}
        for label, values in self._told_by(ask.of).items():
            (streams if label in self._in_streams else metadata)[label] = values
        return f"{selector(streams)}{with_labels(metadata)}{with_words(ask.words)}"

    def _told_by(self, speakers: Sequence[LogOrigin]) -> Labels:
        """The labels that select these origins, and possibly some others."""
        if not speakers:
            return {}
        found: dict[str, Sequence[str]] = {}
        for role in ROLES:
            label = self._settings.labels.get(role)
            values = tuple(dict.fromkeys(getattr(speaker, role) for speaker in speakers))
            if label and all(values) and (label not in self._streams):
                found[label] = values
        return found

    def _of_stream(self, mapping: Mapping[str, Any]) -> Iterator[StoredLine]:
        labels = mapping.get("stream")
        if not isinstance(labels, dict):
            raise SourceFailed("bad_answer", "the response has a stream without labels")
        self._in_streams.update(labels)
        plain = speaker_of(self._settings, labels)
        stream = hash(tuple(sorted(labels.items())))
        for entry in _pairs(mapping):
            metadata = entry[2].get("structuredMetadata") if len(entry) > 2 and isinstance(entry[2], dict) else None
            who = speaker_of(self._settings, {**labels, **metadata}) if metadata else plain
            yield StoredLine(int(entry[0]), who, str(entry[1]), (stream, entry[1]))

    # -- calls -------------------------------------------------------------------------------------------------------

    def _result(self, how: str, form: Mapping[str, str], kind: str) -> list[Mapping[str, Any]]:
        """The streams or series of a response.

        Raises:
            SourceFailed: No response, a refusal, or an undocumented structure.
        """
        path = url_path("loki", "api", "v1", *how.split("/"))
        long = len(form["query"]) > LONGEST_URL
        call = (
            HttpRequest(path, form=form, headers=_CATEGORIES)
            if long
            else HttpRequest(path, params=form, headers=_CATEGORIES)
        )
        data = data_of(self._json(call), call)
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise unexpected_answer(call, "a result")
        result: list[Mapping[str, Any]] = data["result"]
        if result and data.get("resultType") != kind:
            raise unexpected_answer(call, kind)
        if not all(isinstance(entry, dict) for entry in result):
            raise unexpected_answer(call, kind)
        return result

    def _json(self, call: HttpRequest) -> Any:
        answer = self._calls.json(call)
        for warning in (answer.get("warnings") or ())[:5] if isinstance(answer, dict) else ():
            failed = SourceFailed("refused", str(warning)[:200], asked=call.summary())
            if is_series(failed):  # newer servers return a part of the series instead of refusing
                self.limits.learn(failed)
                raise failed
            self._gaps["warning"] = Gap("partial_answer", "loki", f"warning from the server: {str(warning)[:200]}")
        return answer


class SearchPace:
    """How fast the server searches lines by words, learned from the parts it has answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate: float | None = None  # nanoseconds of the window that are searched in a second
        self._first: int | None = None

    def expect(self, size: float, span: int) -> None:
        """Say how many bytes a window holds, for the length of the first part."""
        self._first = max(NS, int(span * FIRST_PART / size)) if size > FIRST_PART else None

    def learn(self, span: int, seconds: float) -> None:
        """Note how long a part of the window took."""
        rate = span / max(seconds, 0.01)
        with self._lock:
            self._rate = rate if self._rate is None else (self._rate + rate) / 2

    def slower(self) -> None:
        """Note that a part took too long."""
        with self._lock:
            self._rate = None if self._rate is None else self._rate / 2

    def seconds(self, span: int) -> float | None:
        """Return how long this part of the window would take; None if nothing is known."""
        return None if self._rate is None else span / self._rate

    def span(self, seconds: float) -> int | None:
        """Return the part of the window that takes so long; None for any."""
        return self._first if self._rate is None else max(1, int(self._rate * seconds))


class _Part:
    """How much of its window one query of a series covers."""

    def __init__(self, limits: LokiLimits, pace: SearchPace | None, deadline: Deadline) -> None:
        self._limits = limits
        self._pace = pace
        self._deadline = deadline
        self._most: int | None = None
        self._began, self._backward = 0.0, False

    def of(self, low: int, high: int, *, backward: bool) -> tuple[int, int]:
        """Return the part to ask next, from the end or the start of what is left.

        Raises:
            SourceFailed: It would not finish before the deadline.
        """
        spans = [high - low]
        spans += [span for span in (self._most, self._limits.length) if span is not None]
        if self._pace is not None:
            left = self._deadline.left()
            goal = min(PART_SECONDS, 0.4 * (self._limits.seconds or 1e9))
            if (paced := self._pace.span(min(goal, left / 2))) is not None:
                spans.append(paced)
            expected = self._pace.seconds(min(spans))
            if left < 0.2 or (expected is not None and expected > left):
                raise SourceFailed("timeout", f"the rest of the search would take longer than the {left:.0f} s left")
        span = max(1, min(spans))
        self._began, self._backward = self._deadline.clock(), backward
        return (high - span, high) if backward else (low, low + span)

    def lessen(self, span: int) -> None:
        """Ask for at most this much from now on; the window is in nanoseconds."""
        self._most = span
        if self._pace is not None:
            self._pace.slower()

    def done(self, first: int, last: int, *, full: bool, reached: int | None) -> None:
        """Note that a part was answered. `full`: it ended at `reached`, where its page was full."""
        span = last - first
        if full and reached is not None:
            span = max(1, last - reached if self._backward else reached - first)
        if self._pace is not None and (not full or span > (last - first) // 4):
            self._pace.learn(span, self._deadline.clock() - self._began)
        if self._most is not None and not full:
            self._most *= 2


def _steps(start: int, end: int, step: int) -> dict[str, str]:
    """Multiples of a step around a time range, like Loki's own splitting."""
    first, last = start // NS // step * step + step, -(-end // NS // step) * step
    return {"start": str(first * NS), "end": str(max(first, last) * NS), "step": str(step)}


def fixed_labels(settings: LokiSettings) -> dict[str, Sequence[str]]:
    """Return what every stream must match."""
    return {label: (value,) for label, value in settings.also.items()}


def speaker_of(settings: LokiSettings, labels: object) -> LogOrigin:
    """Return the origin that labels identify.

    Raises:
        SourceFailed: There are no labels.
    """
    if not isinstance(labels, Mapping):
        raise SourceFailed("bad_answer", "the response has a stream without labels")
    return LogOrigin(*(str(labels.get(settings.labels.get(role, ""), "")) for role in ROLES))


def _pairs(mapping: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The values of a stream or a series: time and text."""
    values = mapping.get("values")
    if not isinstance(values, list):
        raise SourceFailed("bad_answer", "the response has a stream without values")
    for entry in values:
        if not (isinstance(entry, list) and len(entry) >= 2 and isinstance(entry[1], str)):
            raise SourceFailed("bad_answer", "the response has an entry that is not a pair of time and text")
        try:
            float(entry[0]), entry[0].isdigit() if isinstance(entry[0], str) else None
        except (TypeError, ValueError):
            raise SourceFailed("bad_answer", "the response has an entry without a time") from None
        yield entry


def data_of(answer: Any, call: HttpRequest) -> Any:
    """Return the data of a response.

    Raises:
        SourceFailed: Its status is not success.
    """
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise unexpected_answer(call, "status: success")
    return answer.get("data")


def strings_of(data: Any, call: HttpRequest) -> list[str]:
    """Return a list of strings, which may be null.

    Raises:
        SourceFailed: It is something else.
    """
    if data is None:  # Loki returns null for an empty list
        return []
    if not isinstance(data, list) or not all(isinstance(datum, str) for datum in data):
        raise unexpected_answer(call, "a list of strings")
    return data


def unexpected_answer(call: HttpRequest, wanted: str) -> SourceFailed:
    """Return the failure for a response that is not as documented."""
    return SourceFailed(
        "bad_answer", f"the response has no {wanted}", asked=call.summary(), hint="is this address a Loki?"
    )
