"""A Loki for tests: its HTTP API as documented, with the real server's refusals in the same words.

It supports the LogQL that a log reader needs (selectors, line filters, label filters, `sum by (…) (count_over_time(…))`) and refuses
everything else as a parse error. Entries of a stream with equal time and text are stored once.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice, repeat
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.doubles.listening import Answering, listening

NS = 1_000_000_000
Entry = tuple[int, str, Mapping[str, str]]  # time in nanoseconds, line, structured metadata
Match = Callable[[str], bool]


class Stored(Protocol):
    """The entries of one stream."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What identifies the stream."""

    def entries(self, start: int, end: int, words: LineFilter, *, backward: bool) -> Iterator[Entry]:
        """The entries with times in [start, end) that pass the filter, in order."""

    def count(self, start: int, end: int, words: LineFilter) -> int:
        """How many there are."""


@dataclass(frozen=True)
class LineFilter:
    """All filters of a query after its selector. `text` identifies them."""

    text: str
    lines: tuple[Match, ...] = ()
    labels: tuple[tuple[str, Match], ...] = ()

    def __call__(self, entry: Entry, labels: Mapping[str, str]) -> bool:
        """Whether an entry passes."""
        told = {**labels, **entry[2]} if self.labels else labels
        return all(match(entry[1]) for match in self.lines) and all(
            match(told.get(label, "")) for label, match in self.labels
        )


class Stream:
    """A stream in memory."""

    def __init__(self, labels: Mapping[str, str], entries: Sequence[tuple[Any, ...]]) -> None:
        assert labels, "Loki takes no stream without labels"
        self.labels = dict(labels)
        full = [(at, line, dict(rest[0]) if rest else {}) for at, line, *rest in entries]
        seen: set[tuple[int, str]] = set()
        self._entries: list[Entry] = []
        for entry in sorted(full, key=lambda item: item[0]):
            if entry[:2] not in seen:
                seen.add(entry[:2])
                self._entries.append(entry)

    def entries(self, start: int, end: int, words: LineFilter, *, backward: bool) -> Iterator[Entry]:
        """The entries with times in [start, end) that pass the filter, in order."""
        kept = [entry for entry in self._entries if start <= entry[0] < end and words(entry, self.labels)]
        return reversed(kept) if backward else iter(kept)

    def count(self, start: int, end: int, words: LineFilter) -> int:
        """How many there are."""
        return sum(1 for _ in self.entries(start, end, words, backward=False))


@dataclass
class Limits:
    """The default limits of a tenant, except `query_bytes`, which is off by default."""

    entries: int = 5000
    series: int = 500
    query_length: float = 721 * 3600.0
    query_bytes: int | None = None  # max_query_bytes_read: only of queries with a filter
    volume: bool = True
    told: bool = True  # whether the server publishes its limits
    searched: float = 0.0  # line-words a second, if searching takes time
    timeout: float = 60.0  # query_timeout, seconds

    def published(self) -> object:
        """The answer of the endpoint for limits."""
        if not self.told:
            raise Refused(404, "404 page not found")
        limits = {
            "max_entries_limit_per_query": self.entries,
            "max_query_series": self.series,
            "max_query_length": f"{self.query_length / 3600:.0f}h"
            if self.query_length >= 3600
            else f"{self.query_length:.0f}s",
            "max_query_bytes_read": f"{self.query_bytes or 0}B",
            "query_timeout": f"{self.timeout:.0f}s",
            "volume_enabled": self.volume,
        }
        return {"limits": limits, "pattern_ingester_enabled": False, "version": "3.5.0"}


@dataclass
class LokiDouble:
    """The server's state. `tenant`: the required X-Scope-OrgID; `login`: the required user and password, or token."""

    streams: Sequence[Stored]
    limits: Limits = field(default_factory=Limits)
    tenant: str | None = None
    login: tuple[str, str] | str | None = None
    latency: float = 0.0
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    refusals: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)  # given first: status, text, headers
    sent: int = 0
    url: str = ""

    # -- endpoints ---------------------------------------------------------------------------------------------------

    def answer(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> object:
        """The JSON of an answer.

        Raises:
            Refused: the real server's message, with its status.
        """
        self._admit(headers)
        if path == "/loki/api/v1/query_range":
            return self._range(params, "categorize-labels" in headers.get("x-loki-response-encoding-flags", ""))
        if path == "/loki/api/v1/drilldown-limits":
            if self.tenant is None and not headers.get("x-scope-orgid"):
                raise Refused(401, "no org id")  # this endpoint wants a tenant even where there are none
            return self.limits.published()
        if path.startswith("/loki/api/v1/index/"):
            return self._index(path.rpartition("/")[2], params)
        if path == "/loki/api/v1/query":
            raise Refused(
                400,
                "log queries are not supported as an instant query type, please change your query to a range query type",
            )
        return self._listing(path, params)

    def _index(self, name: str, params: Mapping[str, str]) -> object:
        if name == "stats":
            return self._stats(params)
        if name in ("volume", "volume_range"):
            return self._volume(params, ranged=name == "volume_range")
        raise Refused(404, "404 page not found")

    def _listing(self, path: str, params: Mapping[str, str]) -> object:
        start, end = _bounds(params, 6 * 3600)
        self._not_longer(start, end)
        wanted = self._selected(params["query"]) if params.get("query") else list(self.streams)
        there = [stored for stored in wanted if stored.count(start, end, ALL)]
        if path == "/loki/api/v1/labels":
            return _success(sorted({label for stored in there for label in stored.labels}) or None)
        if found := re.fullmatch(r"/loki/api/v1/label/([^/]+)/values", path):
            return _success(sorted({stored.labels[found[1]] for stored in there if found[1] in stored.labels}) or None)
        if path == "/loki/api/v1/series":
            if not params.get("match[]"):
                raise Refused(400, "0 matcher sets provided: at least one is needed")
            chosen = self._selected(params["match[]"])
            return _success([dict(stored.labels) for stored in chosen if stored.count(start, end, ALL)])
        raise Refused(404, "404 page not found")

    def _admit(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", "")
        if isinstance(self.login, tuple):
            wanted = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        else:
            wanted = f"Bearer {self.login}" if self.login else ""
        if wanted and given != wanted:
            raise Refused(401, "Unauthorized")
        if self.tenant is not None and not headers.get("x-scope-orgid"):
            raise Refused(401, "no org id")
        if self.tenant is not None and headers["x-scope-orgid"] != self.tenant:
            raise Refused(403, "no access to this tenant")

    def _range(self, params: Mapping[str, str], categorised: bool) -> object:
        query = params.get("query", "")
        if len(query) >= 131072:
            raise Refused(400, f"parse error : input size too long ({len(query)} > 131072)")
        start, end = _bounds(params, 3600)
        if end < start:
            raise Refused(400, "end timestamp must not be before or equal to start time")
        self._not_longer(start, end)
        limit = int(params.get("limit") or 100)
        if limit <= 0:
            raise Refused(400, "limit must be a positive value")
        direction = params.get("direction", "backward").lower()
        if direction not in ("forward", "backward"):
            raise Refused(400, f"invalid direction '{direction}'")
        parsed = Parser(query).query()
        if isinstance(parsed, Counted):
            return self._matrix(parsed, start, end, params)
        if limit > self.limits.entries:
            told = f"limit > max_entries_limit_per_query ({limit} > {self.limits.entries})"
            raise Refused(400, f"max entries limit per query exceeded, {told}")
        chosen = self._matching(parsed)
        if parsed.words.text and self.limits.query_bytes is not None:
            size = sum(len(e[1]) for stored in chosen for e in stored.entries(start, end, ALL, backward=False))
            if size > self.limits.query_bytes:
                told = f"(query: {size}B, limit: {self.limits.query_bytes}B)"
                raise Refused(
                    400,
                    f"the query would read too many bytes {told}; consider adding more specific stream selectors or reduce the time range of the query",
                )
        self._search(parsed, start, end)
        interval = round(float(params.get("interval") or 0) * NS)
        return self._streams(parsed, chosen, (start, end, limit, direction == "backward", interval), categorised)

    def _not_longer(self, start: int, end: int) -> None:
        if (end - start) / NS > self.limits.query_length:
            told = f"(query length: {(end - start) // NS}s, limit: {self.limits.query_length:.0f}s)"
            raise Refused(400, f"the query time range exceeds the limit {told}")

    def _search(self, parsed: Selected, start: int, end: int) -> None:
        """Take the time that a search takes: the real server looks for each alternative of a filter in each line."""
        if not self.limits.searched or not parsed.words.text:
            return
        lines = sum(stored.count(start, end, ALL) for stored in self._matching(parsed))
        ignoring = 5 if "(?i)" in parsed.words.text else 1
        seconds = lines * ignoring * (parsed.words.text.count("|") + 1) / self.limits.searched
        time.sleep(min(seconds, self.limits.timeout))
        if seconds > self.limits.timeout:
            raise Refused(504, SLOW)

    def _stats(self, params: Mapping[str, str]) -> object:
        """Streams, chunks, bytes and entries of a window, without the envelope of other answers."""
        start, end = _bounds(params, 6 * 3600)
        self._not_longer(start, end)
        there = [[*item.entries(start, end, ALL, backward=False)] for item in self._selected(params["query"])]
        sizes = [sum(len(entry[1].encode("utf-8", "replace")) for entry in held) for held in there]
        streams = sum(1 for held in there if held)
        return {"streams": streams, "chunks": streams, "bytes": sum(sizes), "entries": sum(map(len, there))}

    def _volume(self, params: Mapping[str, str], *, ranged: bool) -> object:
        """Bytes by stream labels; per step in a range. The index knows no structured metadata."""
        if not self.limits.volume:
            raise Refused(404, "404 page not found")
        start, end = _bounds(params, 6 * 3600)
        self._not_longer(start, end)
        targets = [label for label in params.get("targetLabels", "").split(",") if label]
        step = round(float(params.get("step") or 60) * NS) if ranged else end - start
        sizes: dict[tuple[tuple[str, str], ...], dict[int, int]] = {}
        for stored in self._selected(params["query"]):
            named = targets or sorted(stored.labels)
            metric = tuple((label, stored.labels[label]) for label in named if label in stored.labels)
            if targets and len(metric) < len(targets):
                continue  # as the real one, which leaves out streams without a target label
            for first in range(start, end, step):
                inside = stored.entries(first, min(end, first + step), ALL, backward=False)
                if size := sum(len(entry[1].encode("utf-8", "replace")) for entry in inside):
                    held = sizes.setdefault(metric, {})
                    at = min(end, first + step) if ranged else end
                    held[at] = held.get(at, 0) + size
        chosen = sorted(sizes.items(), key=lambda item: -sum(item[1].values()))[: int(params.get("limit") or 100)]
        if ranged:
            result = [
                {
                    "metric": dict(metric),
                    "values": [[(at - 10**6) / NS, str(size)] for at, size in sorted(held.items())],
                }
                for metric, held in chosen
            ]
            return _success({"resultType": "matrix", "result": result, "stats": {}})
        vector = [{"metric": dict(metric), "value": [end / NS, str(sum(held.values()))]} for metric, held in chosen]
        return _success({"resultType": "vector", "result": vector, "stats": {}})

    def _streams(
        self, parsed: Selected, chosen: Sequence[Stored], how: tuple[int, int, int, bool, int], categorised: bool
    ) -> object:
        start, end, limit, backward, interval = how
        runs = [
            zip(item.entries(start, end, parsed.words, backward=backward), repeat(number))
            for number, item in enumerate(chosen)
        ]
        ordered = merge(*runs, key=lambda run: -run[0][0] if backward else run[0][0])
        found: dict[tuple[int, str], list[list[Any]]] = {}
        for (at, line, metadata), number in islice(_spaced(ordered, interval), limit):
            extra = "" if categorised else json.dumps(metadata, sort_keys=True)
            value: list[Any] = [str(at), line]
            if categorised and metadata:
                value.append({"structuredMetadata": dict(metadata)})
            found.setdefault((number, extra), []).append(value)
        result = [
            {"stream": {**chosen[number].labels, **(json.loads(extra) if extra else {})}, "values": values}
            for (number, extra), values in found.items()
        ]
        flags = {"encodingFlags": ["categorize-labels"]} if categorised else {}
        return _success({"resultType": "streams", "result": result, "stats": {}, **flags})

    def _matrix(self, parsed: Counted, start: int, end: int, params: Mapping[str, str]) -> object:
        step = round(float(params.get("step") or max(1, (end - start) // NS // 250)) * NS)
        if step <= 0:
            raise Refused(400, "zero or negative query resolution step widths are not accepted. Try a positive integer")
        if (end - start) / step > 11000:
            raise Refused(
                400,
                "exceeded maximum resolution of 11,000 points per time series. Try increasing the value of the step parameter",
            )
        start, end = start - start % step, -(-end // step) * step  # as the splitting by time does
        self._search(parsed.of, start, end)
        series: dict[tuple[tuple[str, str], ...], dict[int, int]] = {}
        for stored in self._matching(parsed.of):
            metric = tuple((label, stored.labels[label]) for label in parsed.by if label in stored.labels)
            for at in range(start, end + 1, step):
                count = stored.count(at - parsed.span + 1, at + 1, parsed.of.words)
                if count:
                    held = series.setdefault(metric, {})
                    held[at] = held.get(at, 0) + count
        if len(series) > self.limits.series:
            raise Refused(
                400,
                f"maximum number of series ({self.limits.series}) reached for a single query; consider reducing query cardinality by adding more specific stream selectors, reducing the time range, or aggregating results with functions like sum(), count() or topk()",
            )
        result = [
            {"metric": dict(metric), "values": [[at / NS, str(count)] for at, count in sorted(held.items())]}
            for metric, held in series.items()
        ]
        return _success({"resultType": "matrix", "result": result, "stats": {}})

    def _selected(self, query: str) -> list[Stored]:
        parsed = Parser(query).query()
        if isinstance(parsed, Counted) or parsed.words.text:
            raise Refused(400, "only label matchers are supported")
        return self._matching(parsed)

    def _matching(self, parsed: Selected) -> list[Stored]:
        return [
            stream
            for stream in self.streams
            if all(match(stream.labels.get(label, "")) for label, match in parsed.matchers)
        ]


class Refused(Exception):  # noqa: N818 - an answer, no fault of the double
    """An answer with an error status; the body is plain text."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


ALL = LineFilter("")
SLOW = (
    "request timed out, decrease the duration of the request or add more label matchers (prefer exact match over regex match)"
    " to reduce the amount of data processed"
)


def _spaced(entries: Iterator[tuple[Entry, int]], interval: int) -> Iterator[tuple[Entry, int]]:
    last: int | None = None
    for entry in entries:
        if not interval or last is None or abs(entry[0][0] - last) >= interval:
            last = entry[0][0]
            yield entry


def _success(data: object) -> object:
    return {"status": "success", "data": data}


def _bounds(params: Mapping[str, str], since: float) -> tuple[int, int]:
    end = _time(params.get("end", ""), time.time_ns())
    start = _time(params.get("start", ""), end - round(since * NS))
    return start, end


def _time(text: str, otherwise: int) -> int:
    if not text:
        return otherwise
    try:
        if "." in text:
            return round(float(text) * NS)
        return int(text) * (NS if len(text) <= 10 else 1)
    except ValueError:
        raise Refused(400, f'parsing time "{text}" as "2006-01-02T15:04:05.999999999Z07:00": cannot parse') from None


# -- LogQL -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selected:
    """A log query."""

    matchers: tuple[tuple[str, Match], ...]
    words: LineFilter


@dataclass(frozen=True)
class Counted:
    """`sum by (…) (count_over_time(…[span]))`."""

    by: tuple[str, ...]
    of: Selected
    span: int


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_UNITS = {"ms": 10**6, "s": NS, "m": 60 * NS, "h": 3600 * NS, "d": 86400 * NS}


class Parser:
    """Parses a query from left to right; everything unknown is a parse error."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def query(self) -> Selected | Counted:
        """The whole query."""
        found: Selected | Counted
        if self._take(r"sum\(count_over_time\("):
            inner = self._selected()
            found = Counted((), inner, self._span(r"\[([0-9]+(?:ms|s|m|h|d))\]\)\)"))
        elif self._take(r"sum by \("):
            by = tuple(
                text.strip()
                for text in self._need(r"([A-Za-z0-9_, ]*)\)\s*\(\s*count_over_time\(").split(",")
                if text.strip()
            )
            inner = self._selected()
            found = Counted(by, inner, self._span(r"\[([0-9]+(?:ms|s|m|h|d))\]\)\)"))
        else:
            found = self._selected()
        self._take(r"\s+")
        if self._at != len(self._text):
            self._fail()
        return found

    def _span(self, regex: str) -> int:
        digits = re.match(r"([0-9]+)(\w+)", self._need(regex))
        assert digits
        return int(digits[1]) * _UNITS[digits[2]]

    def _selected(self) -> Selected:
        self._need(r"\{\s*")
        matchers: list[tuple[str, Match]] = []
        plain: list[bool] = []
        while not self._take(r"\s*\}"):
            if matchers:
                self._need(r"\s*,\s*")
            label = self._need(r"([A-Za-z_][A-Za-z0-9_]*)")
            operator = self._need(r"(=~|!~|!=|=)")
            value = self._string()
            match = _label_match(operator, value)
            matchers.append((label, match))
            plain.append(operator in ("=", "=~") and not match(""))
        if not any(plain):
            raise Refused(
                400,
                'parse error : queries require at least one regexp or equality matcher that does not have an empty-compatible value. For instance, app=~".*" does not meet this requirement, but app=~".+" will',
            )
        begin = self._at
        lines: list[Match] = []
        labels: list[tuple[str, Match]] = []
        while True:
            if operator := self._take(r"\s*(\|=|!=|\|~|!~)\s*"):
                lines.append(_line_match(operator, self._string()))
            elif label := self._take(r"\s*\|\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?==)"):
                operator = self._need(r"\s*(=~|!~|!=|=)\s*")
                labels.append((label, _label_match(operator, self._string())))
            else:
                break
        return Selected(tuple(matchers), LineFilter(self._text[begin : self._at], tuple(lines), tuple(labels)))

    def _take(self, regex: str) -> str:
        found = re.compile(regex).match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return (found[1] if found.re.groups else found[0]) or " "

    def _need(self, regex: str) -> str:
        found = re.compile(regex).match(self._text, self._at)
        if found is None:
            self._fail()
        self._at = found.end()
        return found[1] if found.re.groups else found[0]

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail()
        self._at = found.end()
        if "\x00" in found[0]:
            self._fail()
        if found[0].startswith("`"):
            return found[0][1:-1]

        def one(match: re.Match[str]) -> str:
            if match[1] or match[2]:
                return chr(int(match[1] or match[2], 16))
            if match[3] not in _PLAIN:
                raise Refused(400, f"parse error at line 1, col {self._at + 1}: invalid char escape")
            return _PLAIN[match[3]]

        return _ESCAPE.sub(one, found[0][1:-1])

    def _fail(self) -> Any:
        rest = self._text[self._at : self._at + 10]
        raise Refused(400, f"parse error at line 1, col {self._at + 1}: syntax error: unexpected {rest!r}")


def _regex(text: str, flags: int = 0) -> re.Pattern[str]:
    if re.search(r"\(\?(?:[=!]|<[=!])|\\[1-9]", text):
        raise Refused(400, f"error parsing regexp: invalid or unsupported Perl syntax in `{text[:80]}`")
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise Refused(400, f"error parsing regexp: {error}") from None


def _label_match(operator: str, value: str) -> Match:
    if operator in ("=", "!="):
        return lambda text: (text == value) == (operator == "=")
    found = _regex(value)
    return lambda text: (found.fullmatch(text) is not None) == (operator == "=~")


def _line_match(operator: str, value: str) -> Match:
    if operator in ("|=", "!="):
        return lambda text: (value in text) == (operator == "|=")
    found = _regex(value)
    return lambda text: (found.search(text) is not None) == (operator == "|~")


# -- HTTP ------------------------------------------------------------------------------------------------------------------


@contextmanager
def serving(double: LokiDouble) -> Iterator[LokiDouble]:
    """The double behind a local address, which is in its `url`."""

    class Handler(Answering):
        def reply(self) -> None:
            body = self.body().decode()
            if self.headers.get("content-type") != "application/x-www-form-urlencoded":
                body = ""
            _, _, path, query, _ = urlsplit(self.path)
            query = "&".join(item for item in (query, body) if item)
            params = {key: values[0] for key, values in parse_qs(query, keep_blank_values=True).items()}
            double.asked.append((path, params))
            time.sleep(double.latency)
            more: Mapping[str, str] = {}
            try:
                if double.refusals:
                    code, words, more = double.refusals.pop(0)
                    raise Refused(code, words)  # noqa: TRY301 - as the double itself
                told = json.dumps(double.answer(path, params, self.lowered())).encode()
                status, kind = 200, "application/json; charset=UTF-8"
            except Refused as refused:
                told, status, kind = str(refused).encode(), refused.status, "text/plain; charset=utf-8"
            double.sent += len(told)
            self.send(status, told, kind, more)

    with listening(Handler) as double.url:
        yield double
