"""Names the actors of Ray, which are compared as ranks by their process ids, and tells their classes.

Ray prints `(RolloutWorker pid=8633, ip=10.0.4.18) ` before each line of an actor. Actors of one class do the same work, so they are each
other's peers. An actor that says its own name in its lines (`actor_1: …`) is called by it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from kb.anomalies.core.run import RANK
from kb.templates.table import TemplateTable

OFTEN = 0.8  # share of an actor's lines that name it
_ACTOR = re.compile(
    r"(?:\x1b\[[\d;]{1,8}m)?\((?P<of>[A-Za-z_][\w.:]{0,60}) pid=(?P<pid>\d{1,10})(?:, ip=[\w.:]{1,45})?\)"
)
_NAME = re.compile(r"(?<![\w./-])[A-Za-z]{2,24}[_-]\d{1,4}(?=: )")


def actors_in(tables: Iterable[TemplateTable]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """By unit ("rank 8633") the name of each actor whose process id stands for its rank, and its class."""
    classes: dict[int, str] = {}
    lines: Counter[int] = Counter()
    said: dict[int, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for seen in table.templates.values():
            for place in seen.places:
                match = _ACTOR.match(place.line)
                if match is not None and place.rank == int(match["pid"]):
                    classes[place.rank] = match["of"]
                    lines[place.rank] += 1
                    said[place.rank].update(set(_NAME.findall(place.line, match.end())))
    own = {pid: _own_name(pid, lines, said) for pid in classes}
    shared = Counter(own.values())
    names = {pid: name if name and shared[name] == 1 else f"{classes[pid]} pid={pid}" for pid, name in own.items()}
    return {f"{RANK}{pid}": name for pid, name in names.items()}, {f"{RANK}{pid}": of for pid, of in classes.items()}


def _own_name(pid: int, lines: Mapping[int, int], said: Mapping[int, Counter[str]]) -> str:
    """What nearly all lines of an actor call it, "" if nothing."""
    name, count = max(said[pid].items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return name if count >= OFTEN * lines[pid] else ""
