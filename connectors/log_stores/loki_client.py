"""The streams of one job in Loki, as connectors.log_stores.query_plan asks for them: counts, pages, samples.

There is no cursor: a page that is full is followed by one that begins at its last time, and what stands on both is dropped.
Where the server says that a question is too large (entries, series, length of time, bytes) it is asked in parts.
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

PAGE = 5000  # max_entries_limit_per_query of a server that nobody changed
LEAST_PAGE = 50
SERIES = 400  # values of a label in one count; max_query_series is 500
QUERY_SECONDS = 30.0
LONGEST_URL = 4000  # characters of a query that is sent in the address; proxies refuse longer ones
LARGEST = 64 << 20  # bytes of an answer
MOST_JOBS = 2000
MOST_HALVED = 8  # times in a row that a question is asked for half the time
ROLES = ("rank", "node", "pod", "container")  # who speaks, in the order of how well it tells
_LIMIT = re.compile(r"limit > max_entries_limit(?:_per_query)? \((\d+) > (\d+)\)")
_TOO_MUCH = re.compile(
    r"time range exceeds the limit|would read too many bytes|too large|timed out|larger than max|ResourceExhausted"
)
_SERIES = re.compile(r"maximum (?:number )?of series")
_CATEGORIES = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}  # else metadata would make a stream of each line


@dataclass(frozen=True, slots=True)
class LokiSettings:
    """The lines of a job in Loki, by the labels of their streams."""

    endpoint: Endpoint
    """The server, with the path before /loki/api/v1 if any; a tenant's X-Scope-OrgID stands under `login:
    headers:`."""
    labels: Mapping[str, str] = field(default_factory=usual_names)
    """What the labels are called here: role → label. The role `job` names the job, `namespace` its namespace,
    `rank`, `node`, `pod` and `container` who speaks. Without `job` the pods are asked for that the cluster knows
    of."""
    job_is: tuple[str, ...] = ("id", "name")
    """Which of the job's words the label holds, id or name; with both, whichever fits."""
    also: Mapping[str, str] = field(default_factory=dict)
    """What every stream must match besides, as {cluster: east}."""
    folder: str = "loki"
    """The folder under logs/ of the bundle that its lines go to."""
    page: int = PAGE
    """The number of lines in one answer."""


class LokiStore:
    """The streams of one job as connectors.log_stores.query_plan asks for them. `speakers`: so many are known to be in it."""

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
        self._in_streams: set[str] = set()  # labels of who speaks that stand in streams, not in metadata
        self._span: int | None = None  # nanoseconds that one question may cover
        self._halved = 0
        self._gaps: dict[str, Gap] = {}

    def gaps(self) -> Iterable[Gap]:
        """What could not be had."""
        return tuple(self._gaps.values())

    # -- counts ------------------------------------------------------------------------------------------------------

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Lines by speaker and time. Counts stand on whole multiples of the bucket, as Loki's own splitting makes them."""
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
        """Lines with words by time."""
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
        """The values of the label that tells speakers apart best, in groups that one count may name."""
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
        """Page after page. A full page is followed from its last time on, without what was on it."""
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
        """One line in each so many nanoseconds, by `interval`."""
        lines = self._lines(ask, min(self.page, ask.limit or self.page), {"interval": f"{every / NS:.9f}"})
        return lines or ()

    def _within(self, low: int, high: int, backward: bool) -> tuple[int, int]:
        """The part of a stretch of time that one question may cover, from its start or its end."""
        if self._span is None or high - low <= self._span:
            return low, high
        return (high - self._span, high) if backward else (low, low + self._span)

    def _lines(self, ask: LineQuery, limit: int, more: Mapping[str, str] | None = None) -> list[StoredLine] | None:
        """The lines of one answer, in order of time; None where it must be asked again for less."""
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
        """Take the limit that the server names, or half the time.

        Raises:
            SourceFailed: that is no help.
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
        """All lines of one time that fill more than a page: by speakers, since time does not part them."""
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
        """The labels that pick these speakers, and maybe some others."""
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
        """The streams or series of an answer.

        Raises:
            SourceFailed: no answer, a refusal, or another shape than documented.
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
    """Whole multiples of a step around a stretch of time, as Loki's own splitting makes them."""
    first, last = start // NS // step * step + step, -(-end // NS // step) * step
    return {"start": str(first * NS), "end": str(max(first, last) * NS), "step": str(step)}


def fixed_labels(settings: LokiSettings) -> dict[str, Sequence[str]]:
    """What every stream must have."""
    return {label: (value,) for label, value in settings.also.items()}


def speaker_of(settings: LokiSettings, labels: object) -> LogOrigin:
    """Who speaks, by labels.

    Raises:
        SourceFailed: they are none.
    """
    if not isinstance(labels, Mapping):
        raise SourceFailed("bad_answer", "the response has a stream without labels")
    return LogOrigin(*(str(labels.get(settings.labels.get(role, ""), "")) for role in ROLES))


def _pairs(mapping: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The values of a stream or a series: time, then a text."""
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
    """What an answer holds.

    Raises:
        SourceFailed: it does not say that it went well.
    """
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise unexpected_answer(call, "status: success")
    return answer.get("data")


def strings_of(data: Any, call: HttpRequest) -> list[str]:
    """A list of texts, which may be null.

    Raises:
        SourceFailed: it is another thing.
    """
    if data is None:  # Loki's way of saying that there are none
        return []
    if not isinstance(data, list) or not all(isinstance(datum, str) for datum in data):
        raise unexpected_answer(call, "a list of strings")
    return data


def unexpected_answer(call: HttpRequest, wanted: str) -> SourceFailed:
    """The failure that an answer has not what the documentation promises."""
    return SourceFailed(
        "bad_answer", f"the response has no {wanted}", asked=call.summary(), hint="is this address a Loki?"
    )


def window_params(window: Window) -> dict[str, str]:
    """A window as parameters."""
    told = {"start": window.start, "end": window.end}
    return {name: str(round(value * NS)) for name, value in told.items() if value is not None}
