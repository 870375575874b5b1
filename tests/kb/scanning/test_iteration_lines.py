"""Iteration lines and the lines beside them in long logs: what is kept of them."""

from __future__ import annotations

import random

import pytest

from kb.model import OWN, Resource, StreamRef
from kb.scanning.scanner import AFTER, BEFORE, Scanner, scan
from kb.scanning.summary import LAST_POINTS, Series, merge
from tests.support.kb_samples import PLAN, matcher

ENGINE = matcher()
STEPS = 4_500


def rank_log(rank: int) -> bytes:
    """A log of one rank, long enough to be sampled: three micro-batches a step, of which the last one takes as many ms as the step's last digit."""
    chance = random.Random(rank)
    lines = []
    for step in range(STEPS):
        lines += [
            f"step {step} micro-batch {n}: forward 3.5 ms, backward 7.5 ms{'.' * chance.randint(0, 40)}\n"
            for n in (0, 1)
        ]
        lines.append(f"step {step} micro-batch 2: forward 1{step % 10} ms, backward 5 ms\n")
    return "".join(lines).encode()


def ref(rank: int | None, size: int) -> StreamRef:
    """The stream of a rank's log, or of one that many ranks share."""
    return StreamRef(f"rank-{rank}.log", resource=Resource(rank=rank), size=size)


def series(text: bytes, rank: int | None = 0, step: int = 1 << 30) -> Series:
    """The series of a log fed in pieces."""
    scanner = Scanner(PLAN, ENGINE, ref(rank, len(text)))
    for start in range(0, len(text), step):
        scanner.feed(text[start : start + step])
    return scanner.finish().series


def own_steps(found: Series) -> set[int]:
    """The steps of the lines beside the iterations."""
    return {point.step for point in found.points if point.format == OWN and point.step is not None}


def test_ranks_keep_the_same_steps() -> None:
    """Their lines begin at other offsets, but most steps that are kept of one rank, from the start and the end, are kept of another."""
    first, second = own_steps(series(rank_log(0))), own_steps(series(rank_log(1)))
    assert len(first & second) > 0.7 * max(len(first), len(second))
    assert min(first & second) == 0
    assert max(first & second) == STEPS - 1


def test_of_a_step_the_last_line_counts() -> None:
    """A long log of one rank gives one line a step, save at its end, and few in all."""
    found = [point for point in series(rank_log(0)).points if point.format == OWN]
    assert len(found) < 400
    steps = [point.step for point in found[:-LAST_POINTS]]
    assert len(steps) == len(set(steps))
    other = [p for p in found[:-LAST_POINTS] if p.compute != pytest.approx((15 + (p.step or 0) % 10) / 1000)]
    assert len(other) <= 2  # where what is sampled ends within a step


@pytest.mark.parametrize("rank", [0, None])
def test_pieces_do_not_change_what_is_kept(rank: int | None) -> None:
    """Fed whole or in pieces, the series is the same."""
    text = rank_log(3)
    assert series(text, rank, 200_003) == series(text, rank)


def test_shards_keep_what_the_whole_keeps() -> None:
    """Two shards together have the lines of the whole, but for a few where they meet."""
    text = rank_log(2)
    where, cut = ref(0, len(text)), 300_001
    left = Scanner(PLAN, ENGINE, where, own_stop=cut)
    left.feed(text[: cut + AFTER])
    right = Scanner(PLAN, ENGINE, where, origin=cut - BEFORE, own_start=cut)
    right.feed(text[cut - BEFORE :])
    joined, whole = merge(left.finish(), right.finish()).series, scan(PLAN, ENGINE, where, [text]).series
    assert own_steps(joined) == own_steps(whole)
    assert joined.seen == whole.seen


def test_many_lines_beside_the_iterations_do_not_displace_these() -> None:
    """The last steps are kept, whatever else is printed with each."""
    lines = (
        f" iteration {n:8d}/ 9000 | elapsed time per iteration (ms): 10.0 | lm loss: 1.5E+00 |\n"
        + "".join(f"step {n} micro-batch {m}: forward 3.5 ms, backward 7.5 ms\n" for m in range(9))
        for n in range(900)
    )
    points = series("".join(lines).encode()).points
    assert [point.step for point in points if point.format == "megatron"] == list(range(900))
