"""Reads the settings of a run from its job and its lines: options, and names with values that lines of a start print."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from kb.anomalies.core.run import RunEvent
from kb.model import Job

MOST_SETTINGS = 400
FEW_LINES = 16  # of an event on one node; more are not lines of a start
LONGEST_VALUE = 120
FEW_VALUES = 3  # values of a setting that may differ by node; more are individual numbers of each node

Printed = Mapping[str, Mapping[str, Collection[str]]]

_PAIR = re.compile(r"(?<![\w-])([A-Za-z][A-Za-z0-9_.-]{1,39})(?:=|: | version )['\"]?([A-Za-z0-9_./+-]{1,80})")
_SETTING = re.compile(
    r"(?i)version|driver|firmware|fw_ver|kernel|cuda|cudnn|nccl|torch|commit|image|batch|seq(?:uence)?_?len|learning_?rate|(?:^|_)lr$|precision|dtype|parallel|world_?size"
    r"|seed|optimi[sz]er|(?:^|_)(?:tp|pp|dp|ep|cp)$|hidden|layers|heads|model|dataset|data_?path|tokeni[sz]er|env|workers|interval"
)
_SECRET = re.compile(r"(?i)token|secret|passw|credential|api_?key|auth")
_OPTION = re.compile(r"--([A-Za-z][\w-]*)(?:[= ]([^\s-][^\s]*))?")


def settings_of(job: Job, printed: Printed) -> Mapping[str, str]:
    """The settings: the job's options, and pairs of a name and a value that its lines print, the same everywhere."""
    found = {
        f"--{name}": value or "given" for name, value in _OPTION.findall(job.args or "") if not _SECRET.search(name)
    }
    told = {"framework": job.framework, "image": job.image, "nodes": str(len(job.nodes) or "")}
    found |= {name: value[:LONGEST_VALUE] for name, value in told.items() if value}
    if job.world_size:
        found["world_size"] = str(job.world_size)
    for name, by_value in printed.items():
        if len(by_value) == 1:
            found.setdefault(name, next(iter(by_value)))
    return found


def own_settings(printed: Printed) -> Mapping[str, Mapping[str, str]]:
    """Settings that differ by node: by name and node, if several nodes each print one value and there are two or three values."""
    found = {}
    for name, by_value in printed.items():
        by_node: dict[str, set[str]] = defaultdict(set)
        for value, nodes in by_value.items():
            for node in nodes:
                by_node[node].add(value)
        if 1 < len(by_value) <= FEW_VALUES and all(len(values) == 1 for values in by_node.values()):
            found[name] = {node: next(iter(values)) for node, values in sorted(by_node.items())}
    return found


def printed_settings(events: Iterable[RunEvent]) -> Printed:
    """By name of a setting and value, the nodes that print it, from lines that occur about once."""
    printed: dict[str, dict[str, set[str]]] = {}
    for event in sorted(events, key=lambda run_event: run_event.id):
        if event.count > FEW_LINES * len(event.nodes):
            continue
        for node, seen in event.nodes.items():
            for name, value in settings_in(seen.spots[0].text):
                if name in printed or len(printed) < MOST_SETTINGS:
                    values = printed.setdefault(name, {})
                    if len(values) <= FEW_VALUES:
                        values.setdefault(value, set()).add(node)
    return printed


def settings_in(line: str) -> Iterator[tuple[str, str]]:
    """Names and values that a line reports as set or installed; nothing whose name suggests a secret."""
    for name, value in _PAIR.findall(line):
        if _SETTING.search(name) and not _SECRET.search(name) and not name.endswith(("Error", "Exception")):
            yield name, value[:LONGEST_VALUE]
