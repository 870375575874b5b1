"""Builds PromQL safely from untrusted names: quoted label matchers, alternative spellings, steps and windows.

A matcher without a value would match the series of everybody, so it is never built: an empty selection queries nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kb.model import JobRecord, Window

MOST_POINTS = 10_000  # of a series in one response; the server refuses more than 11,000
LEAST_STEP = 15.0  # seconds; shorter scrape intervals are rare
POINTS = 1000  # points that suffice for a series
CELLS = 200_000  # points of all series in a response: about 5 MB
LEAST_POINTS = 60
NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "kubernetes_node", "exported_node", "instance")
POD_LABELS = (("namespace", "pod"), ("exported_namespace", "exported_pod"), ("pod_namespace", "pod_name"))
SLURM_LABEL = "hpc_job"  # set by dcgm-exporter from the scheduler's prolog
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_META = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

Labels = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Series that match any of several alternatives, each a set of labels with allowed values. Falsy if empty."""

    alternatives: tuple[Labels, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is selected."""
        return bool(self.alternatives)

    def selectors(self, name: str) -> tuple[str, ...]:
        """Return one instant selector per alternative. `name`: of a metric, or several joined by `|`.

        Raises:
            ValueError: A label or metric name is invalid.
        """
        return tuple(_selector(name, labels) for labels in self.alternatives)

    def each(self, name: str, form: str = "{}") -> str:
        """Return a vector of all alternatives; `form` wraps each selector, such as `rate({}[5m])`."""
        return " or ".join(form.replace("{}", selector) for selector in self.selectors(name))


def selection(
    alternatives: Iterable[Mapping[str, str | Sequence[str] | None]], also: Labels | None = None
) -> Selection:
    """Return the alternatives that have all values. `also`: labels that all of them must also have."""
    found: list[Labels] = []
    for alternative in alternatives:
        labels = {name: _values(value) for name, value in alternative.items()}
        if labels and all(labels.values()):
            found.append({**(also or {}), **labels})
    return Selection(tuple(found))


def job_selection(record: JobRecord, also: Labels | None = None) -> Selection:
    """Return the series with the job's own labels: its pods within their namespace, or its Slurm job id."""
    pods = tuple(dict.fromkeys(member.name for member in record.members if record.namespace))
    by_pod = [{space: record.namespace, pod: pods} for space, pod in POD_LABELS]
    number = record.job.id if not record.namespace else None
    return selection([*by_pod, {SLURM_LABEL: number}], also)


def node_selection(nodes: Iterable[str], also: Labels | None = None) -> Selection:
    """Return the series of these nodes, whatever label their exporters use; an `instance` may have any port."""
    names = tuple(dict.fromkeys(nodes))
    return selection([{label: names} for label in NODE_LABELS], also)


def nodes_of(record: JobRecord) -> tuple[str, ...]:
    """Return the nodes that the record of a job names."""
    last = record.attempts[-1].nodes if record.attempts else ()
    members = (member.node for member in record.members if member.node)
    return tuple(dict.fromkeys((*record.job.nodes, *last, *members)))


def _values(value: str | Sequence[str] | None) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else tuple(value or ())
    return tuple(text.encode("utf-8", "replace").decode() for text in values if text)  # before anything is escaped


def _selector(name: str, labels: Labels) -> str:
    names = name.split("|")
    if not all(_LABEL.fullmatch(text.replace(":", "_")) for text in names) or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"not a metric or label name: {name[:100]!r} {sorted(labels)!r:.200}")
    if not labels or not all(labels.values()):
        raise ValueError(f"{name[:100]}: a selector needs labels with values")
    several = [f"__name__=~{quoted(name)}"] if len(names) > 1 else []
    told = [_matcher(label, values) for label, values in sorted(labels.items())]
    return f"{'' if several else name}{{{','.join([*several, *told])}}}"


def _matcher(label: str, values: Sequence[str]) -> str:
    if label == "instance":
        return f"{label}=~{quoted(f'(?:{_either(values)})(?::[0-9]+)?')}"
    return f"{label}={quoted(values[0])}" if len(values) == 1 else f"{label}=~{quoted(_either(values))}"


def _either(values: Sequence[str]) -> str:
    """An RE2 regular expression that matches only these texts; the server anchors it."""
    return "|".join(_META.sub(r"\\\1", value) for value in values)


def quoted(text: str) -> str:
    """Return a text as a PromQL string."""
    return '"' + "".join(_ESCAPES.get(item, item) for item in text) + '"'


def step_of(window: Window, series: int, least: float = LEAST_STEP) -> float:
    """Return the step in whole seconds that keeps a response small; larger for many series."""
    span = _span(window)
    points = max(LEAST_POINTS, min(POINTS, CELLS // max(1, series)))
    return float(max(least, math.ceil(span / points)))


def split_window(window: Window, step: float) -> Iterator[Window]:
    """Yield the window in parts that a server accepts, aligned to the step, each starting where the last one ended."""
    start, end = window.start or 0.0, window.end or 0.0
    start = math.floor(start / step) * step
    while start <= end:
        last = min(end, start + (MOST_POINTS - 1) * step)
        yield Window(start, last)
        if last >= end:
            return
        start = last


def _span(window: Window) -> float:
    """The length of a window in seconds.

    Raises:
        ValueError: It lacks an end, or its ends are reversed.
    """
    if window.start is None or window.end is None or not 0 <= window.start <= window.end < 1e11:
        raise ValueError("a query needs a window with a start and an end, in order")
    return window.end - window.start
