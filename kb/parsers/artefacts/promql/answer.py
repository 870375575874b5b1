"""Reads one answer of query_range."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kb.model import Gap
from kb.parsers.artefacts.promql.known_metrics import (
    KNOWN_METRICS,
    KnownMetric,
    known_metric,
    metric_of_file,
    metric_of_query,
)
from kb.parsers.artefacts.promql.labels import part_of, read_labels, resource_of
from kb.parsers.artefacts.promql.series import MetricSeries, first_resources, sampling_interval, unit_factor

MOST_BYTES = 512 << 20
MOST_SERIES = 50_000
MOST_POINTS = 11_000  # Prometheus' own limit per series; an answer that reaches it may be truncated
MOST_ALL_POINTS = 40_000_000
_BROKEN = (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError)
_RATED = re.compile(r"\b(?:rate|irate|deriv)\s{0,8}\(")
_SUMMED = re.compile(r"\b(?:increase|delta|idelta|changes|resets)\s{0,8}\(")


def read_prometheus(
    data: bytes, source: str, query: str = "", unit: str = ""
) -> tuple[tuple[MetricSeries, ...] | None, tuple[Gap, ...]]:
    """Read one answer, optionally wrapped with its `query` and `unit`; None if there is nothing to read.

    `source`: the file name, whose stem names the metric if neither label nor query does. `unit`: the unit claimed by
    the query's author, used if the metric is unknown.
    """
    if len(data) > MOST_BYTES:
        return None, (
            Gap("metric_too_large", source, f"the response has {len(data)} bytes; at most {MOST_BYTES} are read"),
        )
    try:
        top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        status = decode_raw(top.get("status"))
        body = msgspec.json.decode(top["data"], type=dict[str, msgspec.Raw]) if "data" in top else {}
    except _BROKEN as error:
        return None, (Gap("metric_unreadable", source, f"not a Prometheus response: {str(error)[:200]}"),)
    if status not in {"success", None} or "result" not in body:
        said = [str(decode_raw(top.get(key)) or "")[:200] for key in ("errorType", "error")]
        reason = ": ".join(part for part in said if part) or f"status {str(status)[:40]!r} and no result"
        return None, (Gap("metric_refused", source, f"the query was refused: {reason}"),)
    asked = query or str(decode_raw(top.get("query")) or "")[:4096]
    answer = _AnswerReader(source, asked, unit or str(decode_raw(top.get("unit")) or "")[:40])
    answer.read_warnings(top)
    try:
        raw = msgspec.json.decode(body["result"], type=list[msgspec.Raw])
    except _BROKEN:
        kind = str(decode_raw(body.get("resultType")))[:40]
        return None, (Gap("metric_unreadable", source, f"the result is a {kind}, not a list of series"),)
    return answer.read(raw)


class _AnswerReader:
    """The parsed part of one answer, with counts of its defects, so that gaps stay few."""

    def __init__(self, source: str, query: str, unit: str) -> None:
        self.source, self.query, self.unit = source, query, unit
        self.odd: Counter[str] = Counter()
        self.gaps: list[Gap] = []
        self.points = 0
        self.named = metric_of_query(query) or metric_of_file(source)
        self.rated = bool(_RATED.search(query[:4096]))
        self.summed = bool(_SUMMED.search(query[:4096]))

    def read_warnings(self, top: Mapping[str, msgspec.Raw]) -> None:
        """Keep the server's warnings: each means that a part is missing."""
        warnings = decode_raw(top.get("warnings"))
        if isinstance(warnings, list) and warnings:
            text = "; ".join(str(warning)[:200] for warning in warnings[:3])
            self.gaps.append(
                Gap("metric_partial", self.source, f"the server warns: {text}", rules_out="that all series are here")
            )

    def read(self, raw: Sequence[msgspec.Raw]) -> tuple[tuple[MetricSeries, ...] | None, tuple[Gap, ...]]:
        """Read each series separately."""
        if len(raw) > MOST_SERIES:
            self.gaps.append(
                Gap("metric_series_left_out", self.source, "too many series", got=str(MOST_SERIES), asked=str(len(raw)))
            )
        found: list[MetricSeries] = []
        for item in raw[:MOST_SERIES]:
            series = self._series(item)
            if series is not None:
                found.append(series)
            if self.points >= MOST_ALL_POINTS:
                self.gaps.append(Gap("metric_points_left_out", self.source, "too many points; the rest was not read"))
                break
        settled = self._units(found)
        self._holes(settled)
        self.gaps += [
            Gap(code, self.source, f"{_ODD[code]} ({count} times)") for code, count in sorted(self.odd.items())
        ]
        if not settled:
            self.gaps.append(Gap("metric_empty", self.source, "the response has no series with a value"))
        return (tuple(settled) or None), tuple(self.gaps)

    def _series(self, raw: msgspec.Raw) -> MetricSeries | None:
        try:
            parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            labels = read_labels(decode_raw(parts.get("metric")))
            pairs = read_pairs(parts)
        except _BROKEN:
            self.odd["metric_series_broken"] += 1
            return None
        if len(pairs) > MOST_POINTS:
            self.odd["metric_series_cut"] += 1
            pairs = pairs[:MOST_POINTS]
        elif len(pairs) == MOST_POINTS:
            self.odd["metric_series_full"] += 1
        name = labels.get("__name__") or self.named
        known = known_metric(name)
        counter = known.counter and not self.rated and not self.summed
        factor = 1.0 if known.counter and self.summed else known.factor
        times, values = self._numbers(pairs, factor)
        self.points += len(times)
        if not times:
            return None
        unit = "" if known.counter and self.summed else known.unit or self.unit
        return MetricSeries(
            known.metric, resource_of(labels), times, values, unit, counter, part_of(labels, known.metric), self.source
        )

    def _numbers(self, pairs: Sequence[Any], factor: float) -> tuple[array[float], array[float]]:
        times, values = array("d"), array("d")
        for pair in pairs:
            try:
                time, value = float(pair[0]), float(pair[1]) * factor
            except (*_BROKEN, LookupError):
                self.odd["metric_point_broken"] += 1
                continue
            if not math.isfinite(value) or not math.isfinite(time):
                self.odd["metric_not_a_number"] += 1
                continue
            times.append(time / 1e3 if time > 1e11 else time)
            values.append(value)
            if time > 1e11:
                self.odd["metric_times_in_ms"] += 1
        return times, values

    def _units(self, found: Iterable[MetricSeries]) -> list[MetricSeries]:
        """Infer units from the values of a metric over all its series; drop values out of range."""
        metrics: dict[str, list[MetricSeries]] = {}
        for metric_series in found:
            metrics.setdefault(metric_series.metric, []).append(metric_series)
        tops = {known.metric: known for known in KNOWN_METRICS.values()}
        settled: list[MetricSeries] = []
        for metric, members in metrics.items():
            known = tops.get(metric)
            if known is None or math.isinf(known.top) or members[0].counter:
                settled += members
                continue
            factor = unit_factor(members, known)
            if factor != 1.0:
                reason = f"{metric} was not in {known.unit}; its values were multiplied by {factor:g}"
                self.gaps.append(Gap("metric_unit", self.source, reason, scope=metric))
                fixed = [replace(m, values=array("d", [v * factor for v in m.values])) for m in members]
            else:
                fixed = members
            settled += [
                metric_series
                for metric_series in (self._sensible(m, known) for m in fixed)
                if metric_series is not None
            ]
        return settled

    def _sensible(self, series: MetricSeries, known: KnownMetric) -> MetricSeries | None:
        if min(series.values) >= 0.0 and max(series.values) <= known.top:
            return series
        kept = [(t, v) for t, v in zip(series.times, series.values, strict=True) if 0.0 <= v <= known.top]
        self.odd["metric_out_of_range"] += len(series.values) - len(kept)
        if not kept:
            return None
        return replace(series, times=array("d", [t for t, _ in kept]), values=array("d", [v for _, v in kept]))

    def _holes(self, found: Sequence[MetricSeries]) -> None:
        """Return where points are missing, and which series ended before the others."""
        metrics: dict[str, list[MetricSeries]] = {}
        for metric_series in found:
            metrics.setdefault(metric_series.metric, []).append(metric_series)
        for metric, members in sorted(metrics.items()):
            last = max(max(m.times) for m in members)
            holed, ended = [], []
            for member in members:
                cadence, longest = sampling_interval(member.times)
                if cadence and longest > 3 * cadence:
                    holed.append((longest, member))
                if cadence and last - max(member.times) > 5 * cadence:
                    ended.append(member)
            if holed:
                longest = max(hole for hole, _ in holed)
                reason = f"{len(holed)} of {len(members)} series have gaps, the longest of {longest:.0f} s"
                who = first_resources(m for _, m in holed)
                self.gaps.append(Gap("metric_holes", self.source, f"{metric}: {reason}", scope=who))
            if ended:
                reason = f"{len(ended)} of {len(members)} series end before the others"
                self.gaps.append(
                    Gap(
                        "metric_ends",
                        self.source,
                        f"{metric}: {reason}",
                        scope=first_resources(ended),
                        rules_out="what those did afterwards",
                    )
                )


_ODD = {
    "metric_series_broken": "an invalid series was skipped",
    "metric_series_cut": f"a series had more than {MOST_POINTS} points and was cut",
    "metric_series_full": f"a series has {MOST_POINTS} points, the server's limit: it may have been cut",
    "metric_point_broken": "a point that is not a pair of numbers was skipped",
    "metric_not_a_number": "a value that is NaN or infinite was skipped",
    "metric_times_in_ms": "a time was in milliseconds",
    "metric_out_of_range": "a value outside the metric's range was skipped",
}


def decode_raw(raw: msgspec.Raw | None) -> Any:
    """Decode a part of the answer as plain values; None for a part that is absent."""
    return None if raw is None else msgspec.json.decode(raw)


def read_pairs(parts: Mapping[str, msgspec.Raw]) -> Sequence[Any]:
    """Return the (time, value) pairs of a range or instant series."""
    raw = parts.get("values")
    if raw is None:
        return [decode_raw(parts["value"])] if "value" in parts else []
    try:
        return msgspec.json.decode(raw, type=list[tuple[float, str]])
    except msgspec.ValidationError:
        loose = msgspec.json.decode(raw)
        return loose if isinstance(loose, list) else []
