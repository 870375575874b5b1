"""Times that ranks print under names of their own: the rank that holds the others back, and what healthy runs print."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kb.hangs.rank_fields import RankField, slow_fields
from kb.model import Resource, StreamRef
from kb.scanning.scanner import scan
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import PLAN, matcher

ENGINE = matcher()
FORMS = {
    "data": "step {step} loss 2.31 data {seconds:.3f} s",
    "data_time": "step {step}/60 loss: 2.31 data_time: {seconds:.3f}",
    "fetch": "iter {step} loss=2.31 fetch={seconds:.3f}s fwd=0.05s",
    "h2d": "step {step} h2d {ms:.1f}ms compute 50.0 ms",
    "io_wait": '{{"step": {step}, "loss": 2.31, "io_wait": {seconds:.4f}}}',
    "read_s": "11/22 23:59 - INFO - Epoch(train)  [1][ {step}/300]  lr: 6.0e-04  loss: 2.31  read_s: {seconds:.3f}",
    "tokenize": "update {step} of 300: loss 2.31, tokenize {ms:.0f} ms",
    "own part": "own part of step {step}: {ms:.0f} ms (input and forward)",
    "wait_next": "it {step} | mse 0.17 | 960 ms/it (wait_next {ms:.1f})",
    "augment_ms": "step={step} augment_ms={ms:.0f} loss=2.31",
}


def logs(
    form: str,
    seconds: Callable[[int, int], float],
    *,
    ranks: int = 8,
    steps: int = 60,
    stamped: bool = True,
    merged: bool = False,
    pace: float = 1.0,
) -> list[StreamSummary]:
    """A log a rank, or one of all, with a line a step; `seconds` of the field by rank and step, `pace` of a step."""
    chance = random.Random(7)
    lines: dict[int, list[str]] = {rank: [] for rank in range(ranks)}
    for step in range(1, steps + 1):
        for rank, own in lines.items():
            value = seconds(rank, step) * chance.uniform(0.9, 1.1)
            stamp = (
                datetime.fromtimestamp(1_790_000_000 + pace * step, UTC).strftime("%Y-%m-%d %H:%M:%S,%f INFO ")
                if stamped
                else ""
            )
            own.append(stamp + form.format(step=step, seconds=value, ms=1000 * value))
    if merged:
        rows = [f"[rank{rank}]: {own[at]}" for at in range(steps) for rank, own in lines.items()]
        return [read(StreamRef("train.log"), rows)]
    return [read(StreamRef(f"logs/rank-{rank}.log", Resource(rank=rank)), rows) for rank, rows in lines.items()]


def read(ref: StreamRef, rows: list[str]) -> StreamSummary:
    """The summary of a log with these lines."""
    return scan(PLAN, ENGINE, ref, ["\n".join(rows).encode() + b"\n"])


def ranks_of(found: tuple[RankField, ...]) -> list[tuple[str, int]]:
    """The names and the ranks."""
    return [(item.field, item.rank) for item in found]


@pytest.mark.quick(5)
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_a_rank_that_alone_has_a_far_higher_time_is_named(name: str, merged: bool) -> None:
    """Whatever the time is called, with its unit or without, in files of their own or in one."""
    found = slow_fields(logs(FORMS[name], lambda rank, _step: 0.9 if rank == 5 else 0.02, merged=merged))
    assert ranks_of(found) == [(name, 5)]
    assert found[0].value == pytest.approx(0.9, rel=0.1)
    assert (found[0].metric == "data_wait") == (name in {"data", "data_time", "fetch", "io_wait", "read_s", "tokenize"})


def test_the_sentence_tells_only_what_is_known() -> None:
    """The first step is compared too, and a printed step time may cover several steps."""
    (whole,) = slow_fields(logs(FORMS["fetch"], lambda rank, _step: 0.9 if rank == 5 else 0.02))
    assert "from the first step on; a step takes 1 s" in whole.text
    (later,) = slow_fields(logs(FORMS["fetch"], lambda rank, step: 0.9 if rank == 5 and step > 1 else 0.02))
    assert "since step 2; a step takes" in later.text
    form = "iter {step} time: 1.0 fetch={seconds:.3f}s"
    (printed,) = slow_fields(logs(form, lambda rank, _step: 0.9 if rank == 5 else 0.02, stamped=False))
    assert printed.text.endswith("the lines print a step time of 1 s")


@pytest.mark.parametrize("ranks", [2, 3, 4, 32])
def test_two_ranks_are_enough(ranks: int) -> None:
    """Of few ranks the one with several times as much as each other one is named."""
    assert ranks_of(slow_fields(logs(FORMS["fetch"], lambda rank, _step: 0.9 if rank == 1 else 0.02, ranks=ranks))) == [
        ("fetch", 1)
    ]


def test_a_rank_that_becomes_slow_is_reported_from_there_on() -> None:
    """The first steps are like those of the others."""
    (found,) = slow_fields(logs(FORMS["h2d"], lambda rank, step: 0.9 if rank == 2 and step > 35 else 0.02))
    assert (found.rank, found.since) == (2, 36)


HEALTHY: dict[str, Callable[[int, int], float]] = {
    "alike": lambda _rank, _step: 0.02,
    "all wait long": lambda _rank, _step: 0.9,
    "the first rank does a little more": lambda rank, _step: 0.25 if rank == 0 else 0.02,
    "the last stage does a little more": lambda rank, _step: 0.25 if rank == 7 else 0.02,
    "a large ratio of nearly nothing": lambda rank, _step: 0.05 if rank == 3 else 0.001,
    "warm-up": lambda rank, step: 5.0 if rank == 3 and step < 5 else 0.02,
    "a save every ten steps": lambda rank, step: 5.0 if rank == 0 and step % 10 == 0 else 0.02,
    "each rank now and then": lambda rank, step: 0.9 if (step + 3 * rank) % 11 == 0 else 0.02,
    "half of the ranks": lambda rank, _step: 0.9 if rank % 2 else 0.02,
    "done beside the step": lambda rank, _step: 9.0 if rank == 3 else 0.02,
}


@pytest.mark.parametrize(
    ("why", "ranks"),
    [(why, ranks) for why in HEALTHY for ranks in (2, 4, 8) if (why, ranks) != ("half of the ranks", 2)],
)
def test_what_healthy_runs_show_names_nobody(why: str, ranks: int) -> None:
    """Differences that delay nothing, that pass, or that are not of one rank."""
    assert slow_fields(logs(FORMS["fetch"], HEALTHY[why], ranks=ranks)) == ()


@pytest.mark.parametrize("name", ["allreduce", "barrier_time", "save", "eta", "backward"])
def test_times_that_say_nothing_of_the_rank_itself(name: str) -> None:
    """A rank that waits long for the others is one of those that are held up."""
    form = f"step {{step}} loss 2.31 {name} {{seconds:.3f}}s"
    assert slow_fields(logs(form, lambda rank, _step: 0.9 if rank == 5 else 0.02)) == ()


def test_without_the_length_of_a_step_nobody_is_named() -> None:
    """A time is large only in relation to the step; the step time in the lines is used where they have no timestamps."""
    assert slow_fields(logs(FORMS["fetch"], lambda rank, _step: 0.9 if rank == 5 else 0.02, stamped=False)) == ()
    form = "iter {step} fetch={seconds:.3f}s iter_time=1.0s"
    assert ranks_of(slow_fields(logs(form, lambda rank, _step: 0.9 if rank == 5 else 0.02, stamped=False))) == [
        ("fetch", 5)
    ]


def test_a_long_log_is_read_at_its_end() -> None:
    """Only the start and the end of a log are kept; a rank that is slow to the end is found there."""
    found = slow_fields(logs(FORMS["fetch"], lambda rank, step: 0.9 if rank == 5 and step > 400 else 0.02, steps=900))
    assert ranks_of(found) == [("fetch", 5)]
    assert found[0].steps > 50


def test_lines_without_a_rank_name_nobody() -> None:
    """One log of a job whose lines do not say who prints them."""
    rows = [f"step {step} fetch={0.9 if step % 8 == 5 else 0.02}s" for step in range(60)]
    assert slow_fields([read(StreamRef("train.log"), rows)]) == ()
    assert slow_fields([]) == ()
