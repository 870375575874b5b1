"""The number of lines that a job has in Loki, by origin and time: from the index if it has the numbers, otherwise counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from connectors.base.contract import SourceFailed
from connectors.base.http import HttpRequest, url_path
from connectors.log_stores.line_buffer import LogOrigin
from connectors.log_stores.logql import Labels, selector, with_words
from connectors.log_stores.loki_answers import pairs_of, strings_of, unexpected_answer
from connectors.log_stores.loki_limits import is_series, too_much
from connectors.log_stores.loki_pace import SearchPace
from connectors.log_stores.loki_queries import LokiQueries
from connectors.log_stores.loki_settings import ROLES, LokiSettings, speaker_of
from connectors.log_stores.store_queries import NS, SIDE_BY_SIDE, Tally
from kb.model import Gap

SHOWN = 5  # clusters named in a gap
SERIES = 400  # label values in one count; max_query_series is 500
VOLUMES = 1000  # of one answer; volume_max_series by default
MOST_PARTS = 24  # of a count by origin, where the server allows few series
SPAN_STEP = 60  # seconds
READ_TO_COUNT = 64 << 20  # bytes; a count reads all lines, at some 50 MB/s
BYTES_OF_LINE = 120  # of a training log, about: volumes are in bytes


class LokiCounts:
    """Counts the lines of one job. `expected`: the number of origins that it is known to have."""

    def __init__(
        self, settings: LokiSettings, queries: LokiQueries, streams: Labels, pace: SearchPace, *, expected: int = 0
    ) -> None:
        self.limits = queries.limits
        self.speakers: tuple[LogOrigin, ...] = ()
        self._settings = settings
        self._queries = queries
        self._streams = streams
        self._pace = pace
        self._many = expected > SERIES

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time: from the index if it knows the origins, which costs nothing, otherwise by reading the lines.

        Counts are aligned to multiples of the bucket, like Loki's own splitting.
        """
        step = -(-bucket // NS)
        told = self._volumes(start, end, step)
        if told is None:
            size = self._size(start, end)
            if size > READ_TO_COUNT:
                return self._uncounted(size, start, end, step)
        counts = self._counts(start, end, step) if told is None else told
        if told is not None:
            self._pace.expect(sum(sum(held.values()) for held in told.values()) * BYTES_OF_LINE, end - start)
        self.speakers = tuple(sorted(counts))
        return Tally(step * NS, counts, exact=told is None)

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return about when the job wrote its first and last line within a window, in nanoseconds since the epoch.

        To the minute, from the index; None if it cannot tell.
        """
        if not self.limits.volume:
            return None
        label = min(self._streams)
        first, last = start // NS // SPAN_STEP * SPAN_STEP * NS, -(-end // NS // SPAN_STEP) * SPAN_STEP * NS
        form = {
            "query": selector(self._streams),
            "targetLabels": label,
            "aggregateBy": "series",
            "limit": "10",
            "start": str(first),
            "end": str(last),
            "step": str(SPAN_STEP),
        }
        try:
            result = self._split(
                form, SPAN_STEP, lambda part: self._queries.result("index/volume_range", part, "matrix")
            )
        except SourceFailed:
            return None
        ends = [int(float(at)) + 1 for entry in result for at, value in pairs_of(entry) if float(value) > 0]
        if not ends:
            return None
        return max(start, (min(ends) - SPAN_STEP) * NS), min(end, max(ends) * NS)

    def _size(self, start: int, end: int) -> int:
        """The approximate number of bytes that the job has in a window, from the index; 0 if unknown."""
        path = url_path("loki", "api", "v1", "index", "stats")
        most = self.limits.length or end - start
        size = 0
        for low in range(start, end, most):
            params = {"query": selector(self._streams), "start": str(low), "end": str(min(end, low + most))}
            try:
                stats = self._queries.json(HttpRequest(path, params=params))
            except SourceFailed:
                return 0
            told = stats.get("bytes") if isinstance(stats, dict) else None
            size += told if isinstance(told, int) else 0
        return size

    def _uncounted(self, size: int, start: int, end: int, step: int) -> Tally:
        """An estimate of the total number of lines, used if counting them by reading would take most of the time."""
        self._queries.gaps["not_by_origin"] = Gap(
            "not_by_origin",
            "loki",
            f"the index did not tell the volume of each source, and reading {size >> 20:,} MB to count the lines would take too long",
            rules_out="which origin went silent before the others",
        )
        self._pace.expect(size, end - start)
        last = end // NS // step * step * NS
        return Tally(step * NS, {LogOrigin(): {last: -(-size // BYTES_OF_LINE)}}, exact=False)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count the lines with any of these words: the bucket's start in nanoseconds → count."""
        step = -(-bucket // NS)
        query = f"sum(count_over_time({selector(self._streams)}{with_words(words)}[{step}s]))"
        result = self._matrix(query, start, end, step)
        found: dict[int, int] = {}
        for entry in result:
            for at, value in pairs_of(entry):
                when = (round(float(at)) - step) * NS
                found[when] = found.get(when, 0) + int(float(value))
        return found

    def _volumes(self, start: int, end: int, step: int) -> dict[LogOrigin, dict[int, int]] | None:
        """The approximate number of lines in the index, by origin and time; None if unknown."""
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
                result += self._split(
                    form, step, lambda part: self._queries.result("index/volume_range", part, "matrix")
                )
            except SourceFailed as failed:
                if failed.kind in ("refused", "missing", "server_error", "bad_answer"):
                    self.limits.volume = False
                    return None
                raise
        counts: dict[LogOrigin, dict[int, int]] = {}
        for entry in result:
            held = counts.setdefault(speaker_of(self._settings, entry.get("metric")), {})
            for at, value in pairs_of(entry):
                size = int(float(value))
                bucket = ((int(float(at) * 1000) + 1) // 1000 - step) // step * step * NS
                if size > 0:
                    held[bucket] = held.get(bucket, 0) + -(-size // BYTES_OF_LINE)
        counts = {who: held for who, held in counts.items() if held}
        return counts or None

    def _origins(self, start: int, end: int) -> tuple[list[str], list[Labels]]:
        """The labels of origins that all streams have, and groups of streams whose volumes fit into one answer.

        The index omits streams that lack a requested label.
        """
        path = url_path("loki", "api", "v1", "series")
        series = self._queries.listed(path, {"match[]": selector(self._streams)}, start, end)
        if not all(isinstance(entry, dict) for entry in series):
            raise unexpected_answer(HttpRequest(path), "a list of labels")
        self._note_clusters(series)
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

    def _note_clusters(self, series: Sequence[Mapping[str, Any]]) -> None:
        """Note that streams come from several clusters: jobs of one name, whose pods may have the same names, too."""
        for label in sorted({label for entry in series for label in entry if "cluster" in label}):
            values = sorted({str(entry[label]) for entry in series if entry.get(label)})
            if len(values) > 1 and label not in self._streams:
                shown = ", ".join(values[:SHOWN]) + (", …" if len(values) > SHOWN else "")
                self._queries.gaps["several_clusters"] = Gap(
                    "several_clusters",
                    "loki",
                    f"its lines come from {len(values)} clusters ({label}: {shown}) and were read as those of one job;"
                    f" `also: {{{label}: {values[0]}}}` of this connector selects one",
                    rules_out="whether all of these lines are of the same job",
                )

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
        """The count of a group of label values, in halves if it still has too many series."""
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
        """The lines by time alone, used if counting by origin would take too many queries."""
        self._queries.gaps["not_by_origin"] = Gap(
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
            for at, value in pairs_of(entry):
                bucket = (round(float(at)) - step) * NS
                held[bucket] = held.get(bucket, 0) + int(float(value))
        return counts

    def _matrix(self, query: str, start: int, end: int, step: int) -> list[Mapping[str, Any]]:
        form = {"query": query, **_steps(start, end, step)}
        return self._split(form, step, lambda part: self._queries.result("query_range", part, "matrix"))

    def _split(
        self, form: Mapping[str, str], step: int, ask: Callable[[Mapping[str, str]], list[Mapping[str, Any]]]
    ) -> list[Mapping[str, Any]]:
        """The series of a count, in parts of its window if the server does not accept the whole window.

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
            found = self._queries.listed(path, {"query": selector(self._streams)}, start, end)
            values = sorted({*strings_of(found, HttpRequest(path))})
            if len(values) > 1:
                yield from ({label: tuple(values[at : at + size])} for at in range(0, len(values), size))
                return
        raise SourceFailed("refused", "there are more streams than one query may count, and no label to divide them by")


def _steps(start: int, end: int, step: int) -> dict[str, str]:
    """Multiples of a step around a time range, like Loki's own splitting."""
    first, last = start // NS // step * step + step, -(-end // NS // step) * step
    return {"start": str(first * NS), "end": str(max(first, last) * NS), "step": str(step)}
