"""Summaries of parts of a stream: any division of the same leaves gives the same whole, and the whole is bounded."""

from __future__ import annotations

import math
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.model import RESIZED, Gap, ProgressPoint, Resource, StreamRef, Structure
from kb.scanning.summary import (
    FIRST_PLACES,
    FIRST_STRUCTURES,
    LAST_PLACES,
    LAST_POINTS,
    LAST_STRUCTURES,
    MARKS,
    PLACES_A_RANK,
    POINTS,
    SIZED_POINTS,
    Series,
    StageMark,
    StreamSummary,
    first_places,
    fuller,
    is_finite,
    kept_lines,
    last_places,
    lines_between,
    merge,
    series_of,
    tail_lines,
)
from tests.support.kb_samples import hits, place, rulebook, scanned

REF = StreamRef("logs/train.log")
BOUND = POINTS + LAST_POINTS + SIZED_POINTS + 2  # a sample, the last few, those of sizes, the first, the first odd one
SPAN = 100_000  # bytes of one part
STAGES = ("launch", "init", "iterating", "saving")


@st.composite
def parts(draw: st.DrawFn) -> list[StreamSummary]:
    """Summaries of up to six parts of one stream, each of its own bytes."""
    return [_part(draw, index) for index in range(draw(st.integers(2, 6)))]


def _part(draw: st.DrawFn, index: int) -> StreamSummary:
    base = index * SPAN
    offsets = st.lists(st.integers(base, base + SPAN - 1), unique=True, max_size=12)
    found = {
        key: hits(*(place(at, rank=draw(st.sampled_from((None, 0, 1, 2)))) for at in sorted(draw(offsets))))
        for key in draw(st.sets(st.sampled_from(("a#x", "b#y"))))
    }
    points = [
        ProgressPoint(
            at, at, loss=draw(st.sampled_from((1.0, math.nan, None))), format=draw(st.sampled_from(("", RESIZED)))
        )
        for at in sorted(draw(offsets))
    ]
    odd = next((point for point in points if not is_finite(point)), None)
    kinds = st.sampled_from(("exception", "xid"))
    return StreamSummary(
        REF,
        SPAN,
        {key: item for key, item in sorted(found.items()) if item.count},
        tuple(
            sorted((Structure(draw(kinds), at, at + 9, "x") for at in draw(offsets)), key=lambda s: (s.offset, s.kind))
        ),
        Series(tuple(points), len(points), 0, points[0] if points else None, points[-1] if points else None, odd),
        tuple(StageMark(at, draw(st.sampled_from(STAGES))) for at in sorted(draw(offsets))),
        draw(st.none() | st.integers(0, 99).map(float)),
        draw(st.none() | st.integers(0, 99).map(float)),
        "the head" if index == 0 else "",
        f"tail {index}",
        base,
        (Gap("cut", "logs", f"part {draw(st.integers(0, 1))}"),),
    )


@settings(deadline=None, max_examples=20)
@given(parts(), st.randoms(use_true_random=False))
def test_joining_is_order_free_and_associative(leaves: list[StreamSummary], chance: object) -> None:
    """Any order of the parts and any way of pairing them gives one and the same summary."""
    expected = repr(reduce(merge, leaves))
    pool = list(leaves)
    chance.shuffle(pool)  # type: ignore[attr-defined]
    while len(pool) > 1:
        left = pool.pop(chance.randrange(len(pool)))  # type: ignore[attr-defined]
        right = pool.pop(chance.randrange(len(pool)))  # type: ignore[attr-defined]
        pool.append(merge(left, right))
    assert repr(pool[0]) == expected  # as text: nan is not equal to itself


@settings(deadline=None, max_examples=15)
@given(parts())
def test_counts_add_up(leaves: list[StreamSummary]) -> None:
    """What is counted is counted whole: bytes, hits, hits of each rank, iteration lines."""
    whole = reduce(merge, leaves)
    assert whole.size == len(leaves) * SPAN
    assert whole.series.seen == sum(leaf.series.seen for leaf in leaves)
    for key, found in whole.hits.items():
        assert found.count == sum(leaf.hits[key].count for leaf in leaves if key in leaf.hits)
        assert sum(tally.count for tally in found.ranks) == found.count


def test_the_outer_parts_give_head_tail_and_times() -> None:
    """The head is the first part's, the tail the last part's, and the times span both."""
    first = StreamSummary(REF, 10, head="begin", tail="middle", tail_offset=0, first_time=5.0, last_time=6.0)
    last = StreamSummary(REF, 10, tail="end", tail_offset=10, last_time=9.0)
    for joined in (merge(first, last), merge(last, first)):
        assert (joined.head, joined.tail, joined.tail_offset) == ("begin", "end", 10)
        assert (joined.first_time, joined.last_time) == (5.0, 9.0)


def _crowd(index: int) -> StreamSummary:
    base = index * SPAN
    points = tuple(ProgressPoint(base + 10 * n, n) for n in range(5000))
    return StreamSummary(
        REF,
        SPAN,
        {"a#x": hits(*(place(base + n, rank=n) for n in range(0, 900, 3)))},
        tuple(Structure("exception", base + n, base + n + 1, "x") for n in range(300)),
        Series(points, len(points), 0, points[0], points[-1]),
        tuple(StageMark(base + n, "saving") for n in range(200)),
    )


def test_a_joined_summary_is_bounded_and_keeps_both_ends() -> None:
    """However many parts there are, only so much is kept; the first and the last of everything are among it."""
    whole = reduce(merge, [_crowd(index) for index in range(4)])
    found = whole.hits["a#x"]
    assert (len(found.first), len(found.last)) == (FIRST_PLACES, LAST_PLACES)
    assert (found.first[0].offset, found.last[-1].offset) == (0, 3 * SPAN + 897)
    assert len(whole.structures) == FIRST_STRUCTURES + LAST_STRUCTURES
    assert (whole.structures[0].offset, whole.structures[-1].offset) == (0, 3 * SPAN + 299)
    assert len(whole.marks) == 2 * MARKS
    assert len(whole.series.points) <= BOUND
    assert whole.series.seen == 20_000


def test_thinning_never_loses_the_edges() -> None:
    """After joining thinned parts the first, the last few and the first odd point are still among the points."""
    left, right = _crowd(0), _crowd(1)
    odd = ProgressPoint(SPAN + 5, 3, loss=math.nan)
    series = series_of((*right.series.points, odd), 5001, 1)
    joined = merge(left, StreamSummary(REF, SPAN, series=series)).series
    offsets = [point.offset for point in joined.points]
    assert offsets == sorted(set(offsets))
    assert {joined.first, joined.last, joined.nonfinite} <= set(joined.points)
    assert (joined.first, joined.last, joined.nonfinite) == (left.series.first, right.series.last, odd)
    assert set(right.series.points[-LAST_POINTS:]) <= set(joined.points)


def test_lines_that_change_the_size_of_a_step_outlast_thinning() -> None:
    """The first few of them are kept for any number of points, and no more, so that the size stays bounded."""
    lines = [ProgressPoint(7 * n + 1, format=RESIZED, validation=True) for n in range(0, 9000, 300)]
    series = series_of([*(ProgressPoint(7 * n, n) for n in range(9000)), *lines], 9030, 0)
    kept = [point for point in series.points if point.format == RESIZED]
    assert kept[:SIZED_POINTS] == lines[:SIZED_POINTS]
    assert len(series.points) <= BOUND


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5000), st.integers(0, 20_000), st.sampled_from((1, 2, 8, 100, 4096)))
def test_thinning_keeps_enough_whatever_the_period(start: int, count: int, every: int) -> None:
    """Few points are all kept; of many, at most the limit and not much less than half of it, for any distance."""
    found = series_of([ProgressPoint(start + every * n) for n in range(count)], count, 0)
    assert len(found.points) <= BOUND
    assert (len(found.points) == count) if count <= POINTS else (len(found.points) > POINTS // 3)
    assert (found.mask == 0) == (count <= POINTS)
    assert series_of(found.points, count, found.mask) == found


def test_first_places_are_shared_between_ranks() -> None:
    """A loud rank does not take the room of the others."""
    loud = [place(n, rank=0) for n in range(100)]
    quiet = [place(200 + n, rank=1 + n) for n in range(30)]
    kept = first_places([*quiet, *loud])
    assert [item.offset for item in kept[:3]] == [0, 1, 200]
    assert sum(item.resource.rank == 0 for item in kept) == PLACES_A_RANK
    assert len(kept) == FIRST_PLACES


def test_last_places_hold_each_place_once() -> None:
    """The same place added twice is one place."""
    assert [last_place.offset for last_place in last_places([place(3), place(1), place(3)])] == [1, 3]


def test_the_fuller_reading_of_a_place_wins_either_way_round() -> None:
    """A traceback says more than its last line alone."""
    bare = Structure("exception", 5, 20, "KeyError: 'a'", {"type": "KeyError", "frames": ""})
    full = Structure("exception", 5, 20, "KeyError: 'a'", {"type": "KeyError", "frames": "a.py:1 in f"})
    assert fuller(bare, full) is full
    assert fuller(full, bare) is full


def test_places_are_reported_once() -> None:
    """A hit that is among the first and the last is one place."""
    found = hits(place(1), place(2, rank=1))
    assert [item.offset for item in found.places()] == [1, 2]


def test_who_spoke_survives_joining() -> None:
    """The places keep their resources."""
    one = StreamSummary(REF, 1, {"a#x": hits(place(4, rank=7, node="node-b"))})
    joined = merge(one, StreamSummary(REF, 1)).hits["a#x"].first[0]
    assert joined.resource == Resource(rank=7, node="node-b")


@pytest.mark.parametrize(
    ("head", "tail", "offset", "expected"),
    [
        ("one\ntwo\n", "one\ntwo\n", 0, [(0, "one"), (4, "two"), (8, "")]),
        ("one\ntwo\nth", "one\ntwo\nthree", 0, [(0, "one"), (4, "two"), (8, "three")]),
        ("one\ntwo\nth", "wo\nthree\n", 5, [(0, "one"), (4, "two"), (8, "three"), (14, "")]),  # the head has it whole
        ("one\ntwo\nth", "three\nfour", 8, [(0, "one"), (4, "two"), (8, "three"), (14, "four")]),
        ("one\ntw", "o\nthree", 6, [(0, "one"), (8, "three")]),  # neither has it whole
        ("öne\ntwo\nth", "three\n", 9, [(0, "öne"), (5, "two"), (9, "three"), (15, "")]),  # offsets are of bytes
        ("one", "ne", 1, []),
    ],
)
def test_each_line_at_both_ends_once_and_whole(
    head: str, tail: str, offset: int, expected: list[tuple[int, str]]
) -> None:
    """A tail that begins within a line does not give its second half as a line."""
    summary = StreamSummary(REF, head=head, tail=tail, tail_offset=offset)
    assert list(kept_lines(summary)) == expected
    assert list(lines_between(summary, 4, 9)) == [item for item in expected if 4 <= item[0] < 9]


def test_invalid_bytes_move_no_line_and_binary_data_is_no_line() -> None:
    """Offsets are those in the log, whatever is not UTF-8 before them."""
    data = b"one\n\xff\xfe\x80\x00\x07\xc3\n" + "twö".encode() + b"\xff cups\nthree\n"
    kept = [(at, line) for at, line in tail_lines(scanned(data, rulebook())) if line]
    assert kept == [(0, "one"), (11, "twö\ufffd cups"), (data.index(b"three"), "three")]


def test_lines_of_a_scanned_log_are_whole() -> None:
    """Wherever its head and its tail end within their lines."""
    lines = [f"{number} {'x' * (number % 61)} é" for number in range(9000)]
    summary = scanned("\n".join(lines), rulebook())
    kept = [line for _, line in kept_lines(summary)]
    assert summary.tail_offset > 0
    assert set(kept) < set(lines)
    assert (kept[0], kept[-1], len(kept)) == (lines[0], lines[-1], len(set(kept)))
