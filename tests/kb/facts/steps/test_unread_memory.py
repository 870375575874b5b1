"""Memory in use is read from lines of forms that no format knows, if they count something beside it."""

from __future__ import annotations

import pytest

from kb.facts.steps.unread_memory import with_unread_memory
from kb.model import ProgressPoint, StreamRef
from kb.scanning.summary import Series, StreamSummary


def read(lines: list[str], *points: ProgressPoint) -> list[ProgressPoint]:
    """The points of a short log."""
    text = "\n".join([*lines, ""])
    size = len(text.encode())
    summary = StreamSummary(StreamRef("r.log", kind="job"), size=size, head=text, tail=text)
    return list(with_unread_memory(summary, Series(points=points)).points)


@pytest.mark.parametrize(
    "line",
    [
        "[EPOCH {n}] Allocated: 0.00 MB, CPU: {mb}.00 MB",
        '{{"@m": "memory", "At": {n}, "RssMb": {mb}}}',
        "step {n} host memory used {mb} MiB",
        "iter={n} rss_mb={mb}",
    ],
)
def test_a_number_named_as_memory(line: str) -> None:
    """With its unit behind it or in its name, and a step or an epoch on the line."""
    found = read([line.format(n=n, mb=400 + 30 * n) for n in range(1, 8)])
    assert [p.step for p in found] == list(range(1, 8))
    assert [p.memory for p in found] == [(400 + 30 * n) * 2.0**20 for n in range(1, 8)]


def test_each_rank_by_itself() -> None:
    """What several ranks print is not one series."""
    lines = [f"[rank{rank}]: step {n} rss_mb={400 + n + 100 * rank}" for n in range(1, 8) for rank in (0, 1)]
    found = read(lines)
    assert {p.rank for p in found} == {0, 1}
    assert [p.step for p in found if p.rank == 1] == list(range(1, 8))


@pytest.mark.parametrize(
    "lines",
    [
        [f"loading shard, rss {400 + n} MB" for n in range(9)],  # counts nothing
        [f"step {n} rss_mb={400 + n}" for n in range(5)],  # too few
        [f"step {9 - n} rss_mb={400 + n}" for n in range(9)],  # counts down
        [f"step {n} rss {400 + n}" for n in range(9)],  # without a unit
        [f"step {n} members {n} of 9, 3 MB" for n in range(9)],
    ],
)
def test_other_lines_tell_no_memory(lines: list[str]) -> None:
    """Nor what a start loads, nor a number without a unit."""
    assert read(lines) == []


def test_what_a_format_knows_is_not_read_again() -> None:
    """Its own numbers are enough."""
    known = ProgressPoint(0, step=1, memory=1e9, format="used memory", validation=True)
    assert read([f"step {n} rss_mb={400 + n}" for n in range(9)], known) == [known]


def test_a_count_on_the_line_above() -> None:
    """Memory that a known form reads gets the step from there, if no line of the log has one."""
    lines = [f"Iteration {n}/500\nCurrent memory usage: {760 + 25 * n}.0 MB" for n in range(1, 9)]
    at, points = 0, []
    for n, line in enumerate(lines, 1):
        points.append(
            ProgressPoint(at + line.index("Current"), memory=(760 + 25 * n) * 1e6, format="used Current memory usage")
        )
        at += len(line) + 1
    assert [p.step for p in read(lines, *points)] == list(range(1, 9))
    assert {p.step for p in read(lines[:4], *points[:4])} == {None}  # too few to count
    jumbled = [line.replace("Iteration 5/", "Iteration 2/") for line in lines]
    assert {p.step for p in read(jumbled, *points)} == {None}
