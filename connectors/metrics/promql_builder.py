"""PromQL that is safe to build from strangers' names: label matchers quoted, alternatives of spelling, steps and pieces.

A matcher without a value would match every series of everybody, so there is none: a selection of nothing is empty, and
who asks with an empty selection asks nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kb.model import JobRecord, Window

MOST_POINTS = 10_000  # of a series in one answer; the server refuses more than 11,000
LEAST_STEP = 15.0  # seconds; scrapes are seldom closer
POINTS = 1000  # so many of a series are enough
CELLS = 200_000  # points of all series of an answer: some 5 MB
LEAST_POINTS = 60
NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "kubernetes_node", "exported_node", "instance")
POD_LABELS = (("namespace", "pod"), ("exported_namespace", "exported_pod"), ("pod_namespace", "pod_name"))
SLURM_LABEL = "hpc_job"  # dcgm-exporter's, from the scheduler's prolog
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_META = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

Labels = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """The series that satisfy one of some alternatives: for each label one of the values. Falsy where there are none."""

    alternatives: tuple[Labels, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is selected."""
        return bool(self.alternatives)

    def selectors(self, name: str) -> tuple[str, ...]:
        """One instant selector for each alternative. `name`: of a metric, or several joined by `|`.

        Raises:
            ValueError: a label's or a metric's name is none.
        """
        return tuple(_selector(name, labels) for labels in self.alternatives)

    def each(self, name: str, form: str = "{}") -> str:
        """A vector of all of them; `form` is put around each selector, as `rate({}[5m])`."""
        return " or ".join(form.replace("{}", selector) for selector in self.selectors(name))


def selection(
    alternatives: Iterable[Mapping[str, str | Sequence[str] | None]], also: Labels | None = None
) -> Selection:
    """Alternatives without those that lack a value. `also`: labels that all of them must have besides."""
    found: list[Labels] = []
    for alternative in alternatives:
        labels = {name: _values(value) for name, value in alternative.items()}
        if labels and all(labels.values()):
            found.append({**(also or {}), **labels})
    return Selection(tuple(found))


def job_selection(record: JobRecord, also: Labels | None = None) -> Selection:
    """The series that carry the job's own name: its pods within their namespace, or its number at Slurm."""
    pods = tuple(dict.fromkeys(member.name for member in record.members if record.namespace))
    by_pod = [{space: record.namespace, pod: pods} for space, pod in POD_LABELS]
    number = record.job.id if not record.namespace else None
    return selection([*by_pod, {SLURM_LABEL: number}], also)


def node_selection(nodes: Iterable[str], also: Labels | None = None) -> Selection:
    """The series of these nodes, however their exporters spell it; of an `instance` with any port."""
    names = tuple(dict.fromkeys(nodes))
    return selection([{label: names} for label in NODE_LABELS], also)


def nodes_of(record: JobRecord) -> tuple[str, ...]:
    """The nodes of a job as far as its record tells them."""
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
    """A regular expression of RE2 that matches these texts alone; the server anchors it."""
    return "|".join(_META.sub(r"\\\1", value) for value in values)


def quoted(text: str) -> str:
    """A text as PromQL's string."""
    return '"' + "".join(_ESCAPES.get(item, item) for item in text) + '"'


def step_of(window: Window, series: int, least: float = LEAST_STEP) -> float:
    """Seconds between the points of a series, so that an answer stays small: whole ones, wider for many series."""
    span = _span(window)
    points = max(LEAST_POINTS, min(POINTS, CELLS // max(1, series)))
    return float(max(least, math.ceil(span / points)))


def split_window(window: Window, step: float) -> Iterator[Window]:
    """The window in parts that a server answers, each beginning where the one before ended, on multiples of the step."""
    start, end = window.start or 0.0, window.end or 0.0
    start = math.floor(start / step) * step
    while start <= end:
        last = min(end, start + (MOST_POINTS - 1) * step)
        yield Window(start, last)
        if last >= end:
            return
        start = last


def _span(window: Window) -> float:
    """Seconds of a window that has both ends.

    Raises:
        ValueError: it has not, or they are the wrong way round.
    """
    if window.start is None or window.end is None or not 0 <= window.start <= window.end < 1e11:
        raise ValueError("a query needs a window with a start and an end, in order")
    return window.end - window.start
