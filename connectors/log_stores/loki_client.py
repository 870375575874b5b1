"""The streams of one job in Loki: counts, pages and samples for the query plan.

Loki has no cursor. A full page is followed by one that starts at its last time, and lines on both are dropped. A query
that the server finds too large (entries, series, time range, bytes) is split.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest, url_path
from connectors.log_stores.line_buffer import LogOrigin, StoredLine, usual_names
from connectors.log_stores.logql import Labels, selector, with_labels, with_words
from connectors.log_stores.query_plan import NS, SIDE_BY_SIDE, LineQuery, QueryMeter, Tally
from kb.model import Gap, Window

PAGE = 5000  # max_entries_limit_per_query by default
LEAST_PAGE = 50
SERIES = 400  # label values in one count; max_query_series is 500
QUERY_SECONDS = 30.0
LONGEST_URL = 4000  # characters of a query sent in the URL; proxies refuse longer ones
LARGEST = 64 << 20  # bytes of an answer
MOST_JOBS = 2000
MOST_HALVED = 8  # how often in a row the time range of a query is halved
ROLES = ("rank", "node", "pod", "container")  # labels that identify the origin of a line, most specific first
_LIMIT = re.compile(r"limit > max_entries_limit(?:_per_query)? \((\d+) > (\d+)\)")
_TOO_MUCH = re.compile(
    r"time range exceeds the limit|would read too many bytes|too large|timed out|larger than max|ResourceExhausted"
)
_SERIES = re.compile(r"maximum (?:number )?of series")
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

    def __init__(
        self, settings: LokiSettings, client: HttpClient, streams: Labels, deadline: Deadline, *, speakers: int = 0
    ) -> None:
        self.page = max(LEAST_PAGE, settings.page)
        self.meter = QueryMeter()
        self._settings = settings
        self._client = client
        self._streams = streams
        self._deadline = deadline
        self._many = speakers > SERIES
        self._speakers: tuple[LogOrigin, ...] = ()
        self._in_streams: set[str] = set()  # labels of origins that are in streams rather than in metadata
        self._span: int | None = None  # nanoseconds that one query may cover
        self._halved = 0
        self._gaps: dict[str, Gap] = {}

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched."""
        return tuple(self._gaps.values())

    # -- counts ------------------------------------------------------------------------------------------------------

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time. Counts are aligned to multiples of the bucket, like Loki's own splitting."""
        step = -(-bucket // NS)
        counts: dict[LogOrigin, dict[int, int]] = {}
        if not self._many:
            try:
                counts = self._count(start, end, step, {})
            except SourceFailed as failed:
                if not _SERIES.search(str(failed)):
                    raise
                self._many = True
        if self._many:
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                parts = pool.map(lambda part: self._count(start, end, step, part), self._parts(start, end))
                for who, held in (item for part in parts for item in part.items()):
                    known = counts.setdefault(who, {})
                    for at, number in held.items():
                        known[at] = known.get(at, 0) + number
        self._speakers = tuple(sorted(counts))
        return Tally(step * NS, counts)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count lines with these words by time."""
        step = -(-bucket // NS)
        query = f"sum(count_over_time({selector(self._streams)}{with_words(words)}[{step}s]))"
        result = self._result("query_range", {"query": query, **_steps(start, end, step)}, "matrix")
        return {(round(float(at)) - step) * NS: int(float(value)) for entry in result for at, value in _pairs(entry)}

    def _count(self, start: int, end: int, step: int, part: Labels) -> dict[LogOrigin, dict[int, int]]:
        by = ", ".join(label for role in ROLES if (label := self._settings.labels.get(role)))
        streams = selector({**self._streams, **part})
        form = {"query": f"sum by ({by}) (count_over_time({streams}[{step}s]))", **_steps(start, end, step)}
        counts: dict[LogOrigin, dict[int, int]] = {}
        for entry in self._result("query_range", form, "matrix"):
            held = counts.setdefault(speaker_of(self._settings, entry.get("metric")), {})
            for at, value in _pairs(entry):
                bucket = (round(float(at)) - step) * NS
                held[bucket] = held.get(bucket, 0) + int(float(value))
        return counts

    def _parts(self, start: int, end: int) -> Iterator[Labels]:
        """The values of the most specific label, in groups that fit into one query."""
        for role in ROLES:
            label = self._settings.labels.get(role)
            if not label:
                continue
            params = {"start": str(start), "end": str(end), "query": selector(self._streams)}
            call = HttpRequest(url_path("loki", "api", "v1", "label", label, "values"), params=params)
            values = sorted(strings_of(data_of(self._json(call), call), call))
            if len(values) > 1:
                yield from ({label: tuple(values[at : at + SERIES])} for at in range(0, len(values), SERIES))
                return
        raise SourceFailed("refused", "there are more streams than one query may count, and no label to divide them by")

    # -- lines -------------------------------------------------------------------------------------------------------

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield pages. A full page is continued from its last time, without the lines already returned."""
        low, high, left = ask.start, ask.end, ask.limit
        seen: set[Hashable] = set()
        while low < high and (left is None or left > 0):
            first, last = self._within(low, high, ask.backward)
            limit = self.page if left is None else min(self.page, left + len(seen))
            lines = self._lines(ask._replace(start=first, end=last), limit)
            if lines is None:
                continue
            fresh = [line for line in lines if (line.at, line.who, line.key) not in seen]
            fresh = fresh if left is None else fresh[:left]
            if fresh:
                yield fresh
                left = left if left is None else left - len(fresh)
            if not lines and self._span is not None:
                self._span *= 2
            if len(lines) < limit:
                low, high = (low, first) if ask.backward else (last, high)
                seen = set()
                continue
            border = lines[-1].at
            if lines[0].at == border:
                seen |= {(line.at, line.who, line.key) for line in lines}
                yield from self._one_time(ask, border, seen)
                low, high, seen = (low, border, set()) if ask.backward else (border + 1, high, set())
                continue
            seen = {(line.at, line.who, line.key) for line in lines if line.at == border}
            low, high = (low, border + 1) if ask.backward else (border, high)

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds, by `interval`."""
        lines = self._lines(ask, min(self.page, ask.limit or self.page), {"interval": f"{every / NS:.9f}"})
        return lines or ()

    def _within(self, low: int, high: int, backward: bool) -> tuple[int, int]:
        """The part of a time range that one query may cover, from its start or its end."""
        if self._span is None or high - low <= self._span:
            return low, high
        return (high - self._span, high) if backward else (low, low + self._span)

    def _lines(self, ask: LineQuery, limit: int, more: Mapping[str, str] | None = None) -> list[StoredLine] | None:
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
            self._lessen(failed, ask)
            return None
        self._halved = 0
        lines = [line for entry in result for line in self._of_stream(entry)]
        lines.sort(key=lambda line: line.at, reverse=ask.backward)
        return lines

    def _lessen(self, failed: SourceFailed, ask: LineQuery) -> None:
        """Apply the limit that the server names, or halve the time range.

        Raises:
            SourceFailed: That would not help.
        """
        told = str(failed)
        named = _LIMIT.search(told)
        if failed.kind == "refused" and named and LEAST_PAGE <= int(named[2]) < self.page:
            self.page = int(named[2])
        elif failed.kind == "too_large" and self.page > LEAST_PAGE:
            self.page = max(LEAST_PAGE, self.page // 4)
        elif (failed.kind in ("timeout", "server_error") or _TOO_MUCH.search(told)) and self._halved < MOST_HALVED:
            self._halved += 1
            self._span = (ask.end - ask.start) // 2
        else:
            raise failed

    def _one_time(self, ask: LineQuery, at: int, seen: set[Hashable]) -> Iterator[Sequence[StoredLine]]:
        """All lines with one timestamp that fill more than a page, divided by origin because time cannot divide them."""
        groups = [ask.of or self._speakers]
        while groups:
            group = groups.pop()
            lines = None
            while lines is None:
                lines = self._lines(ask._replace(start=at, end=at + 1, of=group), self.page)
            if len(lines) >= self.page and len(group) > 1:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
                continue
            if len(lines) >= self.page:
                self._gaps["one_time"] = Gap(
                    "lines_of_one_time",
                    "loki",
                    f"more lines of one source share a timestamp than fit into a response ({self.page}); the rest is missing",
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
        path = url_path("loki", "api", "v1", how)
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
        self.meter.spend(call.summary())
        answer = self._client.json(call, self._deadline.sooner(QUERY_SECONDS), largest=LARGEST)
        for warning in (answer.get("warnings") or ())[:5] if isinstance(answer, dict) else ():
            self._gaps["warning"] = Gap("partial_answer", "loki", f"warning from the server: {str(warning)[:200]}")
        return answer


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


def window_params(window: Window) -> dict[str, str]:
    """Return a window as request parameters."""
    told = {"start": window.start, "end": window.end}
    return {name: str(round(value * NS)) for name, value in told.items() if value is not None}
