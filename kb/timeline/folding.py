"""Folds similar rows, so that the size of a timeline is bounded for any job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kb.report import ranges
from kb.timeline.picture import COLUMNS, LABEL, TEXT, TimelineRow
from kb.timeline.rows import RowActivity, cleaned, levels

LANES = 32  # ranks with a row of their own; with more, a row is a node, if that is known

# -- rows ----------------------------------------------------------------------------------------------------------------


def fold_rows(rows: Sequence[RowActivity], odd: Mapping[int, str], most: int) -> tuple[list[TimelineRow], str]:
    """Return the rows to show, and a description of what was folded."""
    first = [_row([rows[index]], why) for index, why in list(odd.items())[:most]]
    rest = [row for index, row in enumerate(rows) if index not in odd]
    room = max(1, most - len(first))
    if nodes := _nodes(rest, room):
        ranks = sum(len(group) for group in nodes if len(group) > 1)
        return [*first, *(_row(group) for group in nodes)], f"{ranks:,} of {len(rows):,} rows are folded by node"
    if len(rest) <= room:
        return [*first, *(_row([row]) for row in rest)], ""
    groups = list(_groups(rest, max(1, min(room, 64))))
    alike = max(len(group) for group in groups)
    told = f"{len(rest):,} of {len(rows):,} rows are folded into {len(groups)}, of up to {alike} each"
    return [*first, *(_row(group) for group in groups)], told


def _nodes(rows: Sequence[RowActivity], most: int) -> list[list[RowActivity]]:
    """Group ranks by node if there are many, and leave other rows as they are. Empty for few, or if nodes are unknown or too many."""
    ranks = [row for row in rows if row.key[0] == "rank"]
    if len(ranks) <= LANES or not all(row.place.node for row in ranks):
        return []
    groups: dict[object, list[RowActivity]] = {}
    for row in rows:
        groups.setdefault(row.place.node if row.key[0] == "rank" else row.key, []).append(row)
    return list(groups.values()) if len(groups) <= most and len(groups) < len(rows) else []


def _groups(rows: Sequence[RowActivity], most: int) -> Iterator[list[RowActivity]]:
    """Group neighbors of one kind, into at most so many groups; by whole nodes if ranks are numbered along them."""
    nodes = Counter(row.place.node for row in rows if row.key[0] == "rank" and row.place.node)
    whole = max(nodes.values(), default=1) if nodes else 8
    kinds = {kind: [row for row in rows if row.key[0] == kind] for kind in dict.fromkeys(row.key[0] for row in rows)}
    room = max(1, most - len(kinds))
    for kind, own in kinds.items():
        share = max(1, room * len(own) // len(rows))
        size = math.ceil(len(own) / share)
        if kind == "rank":
            span = max(row.key[2] for row in own) + 1
            size = math.ceil(math.ceil(max(size, span / share)) / whole) * whole
            if span > 4 * len(own):  # implausibly large numbers
                size = 0
        chunks: dict[int, list[RowActivity]] = {}
        each = math.ceil(len(own) / share)
        for at, row in enumerate(own):
            chunks.setdefault(row.key[2] // size if kind == "rank" and size else at // each, []).append(row)
        yield from chunks.values()


def _row(rows: Sequence[RowActivity], why: str = "") -> TimelineRow:
    """Fold rows into one."""
    first = rows[0]
    nodes = {row.place.node for row in rows}
    cells: dict[int, float] = {}
    for row in rows:
        for column, size in row.cells.items():
            cells[column] = cells.get(column, 0.0) + size
    steps = [(row.step, row.stepped) for row in rows if row.step is not None]
    step, stepped = min(steps, key=lambda pair: pair[0], default=(None, None))
    erred = [row.error for row in rows if row.error is not None]
    error = min(erred, key=lambda e: (math.inf if e.time is None else e.time, not e.cause), default=None)
    ranks = ranges(row.key[2] for row in rows if row.key[0] == "rank")
    return TimelineRow(
        label=row_label(rows, ranks),
        node=cleaned(next(iter(nodes)) or "", LABEL) if len(nodes) == 1 else f"{len(nodes)} nodes",
        ranks=ranks if len(ranks) <= LABEL else "",
        count=len(rows),
        heard=levels(cells, COLUMNS),
        first=min((row.first for row in rows if row.first is not None), default=None),
        last=max((row.last for row in rows if row.last is not None), default=None),
        step=step,
        stepped=stepped,
        error=None if error is None else replace(error, what=cleaned(error.what, TEXT)),
        erred=len(erred),
        suspect=why == "suspect",
        why=why,
        clock=round(first.clock, 3) if len(rows) == 1 else 0.0,
    )


def row_label(rows: Sequence[RowActivity], ranks: str) -> str:
    """Return the name of a row, or of several rows folded into one."""
    kind, name, number = rows[0].key
    if len(rows) > 1:
        if kind == "rank":
            if rows[0].place.node and len({row.place.node for row in rows}) == 1:
                return cleaned(rows[0].place.node, LABEL)
            edges = f"{number}-{rows[-1].key[2]}"
            return f"ranks {ranks}" if len(ranks) <= 16 else f"ranks {edges}"
        return cleaned(f"{len(rows)} {_MANY[kind]}", LABEL)
    if kind == "rank":
        return f"rank {number}"
    if kind == "process":
        return cleaned(f"{name or 'local rank'} #{number}", LABEL)
    return cleaned(name if kind == "node" else name.rpartition("/")[2], LABEL)


_MANY = {"process": "processes", "node": "nodes", "log": "logs"}
