"""What all processes of a job say last, and the even steps without which it proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.facts.completion.common_closing import common_closing, even_to_the_end
from kb.facts.completion.completion import completion
from kb.model import ProgressPoint
from tests.support.kb_samples import facts, stream


def log(*said: str) -> list[tuple[int, str]]:
    """Lines with made-up offsets."""
    return [(100 * place, line) for place, line in enumerate(said)]


def points(paces: list[float], *, rank: int = 0, rates: list[float] | None = None) -> list[ProgressPoint]:
    """Step lines that take so many seconds each."""
    return [
        ProgressPoint(
            step, step=step, time=sum(paces[:step]), rank=rank, learning_rate=rates[step - 1] if rates else None
        )
        for step in range(1, len(paces) + 1)
    ]


@pytest.mark.parametrize(
    "closing",
    [
        "[rank{}]: done",
        "[trainer{0}]:I1129 19:20:30.047 6687 agent.py:40] r{0} learner finished",
        "19:26:39 unit{} info  done",
        '{{"lvl": "info", "rank": {}, "msg": "training over"}}',
        '{{"src": "launcher", "ev": "child_exit", "rank": {}, "code": 0}}',
        "worker {} exited with code 0",
        "Rang {}: beendet",
        "[rank{}]: run complete in 83.2 s",
    ],
)
def test_all_processes_close_alike(closing: str) -> None:
    """Whoever they are called by."""
    ends = common_closing([log("step 10", closing.format(1), closing.format(0))], 2)
    assert {end.line for _, end in ends} == {closing.format(0), closing.format(1)}
    assert not common_closing([log("step 10", closing.format(1))], 2), "one of two says so"
    assert not common_closing([log("step 10", closing.format(1), closing.format(0))], 3), "a third is silent"
    assert not common_closing([log(closing.format(1), "step 10", closing.format(1), closing.format(0))], 2), (
        "said twice"
    )


@pytest.mark.parametrize(
    "closing",
    [
        "[rank{}]: saving checkpoint: done",
        "[rank{}]: eval - done",
        "[rank{}]: epoch 3 done",
        "[rank{}]: load finished",
        "[rank{}]: not finished",
        "worker {} exited with code 1",
        "worker {} exited with code 0.5",
        "[rank{}]: Abbruch",
    ],
)
def test_what_closes_a_part_or_fails_closes_no_job(closing: str) -> None:
    """A log may stop right behind it."""
    assert not common_closing([log("step 10", closing.format(1), closing.format(0))], 2)


def test_a_log_for_each_process() -> None:
    """Each must end with it."""
    assert len(common_closing([log("step 10", "done"), log("step 10", "done")], 2)) == 2
    assert not common_closing([log("step 10", "done"), log("step 10", "done", "step 11")], 2)


@pytest.mark.parametrize(
    ("series", "even"),
    [
        ([points([1.0] * 20)], True),
        ([points([1.0] * 10 + [3.0] * 10)], False),
        ([points([9.0] + [1.0] * 19)], True),
        ([points([1.0] * 4)], False),
        ([points([1.0] * 20, rates=[0.1 - 0.004 * step for step in range(20)])], True),
        ([points([1.0] * 20, rates=[0.1 - 0.004 * step for step in range(10)] + [0.01] * 10)], False),
        ([points([1.0] * 20, rates=[0.1] * 10 + [0.01] * 10)], True),
    ],
    ids=["even", "slower", "first step", "too few", "falls", "set again", "in stairs"],
)
def test_steps_are_even(series: list[list[ProgressPoint]], even: bool) -> None:
    """A pace that drops, or a rate that leaps, is a fault that ends in the same words."""
    assert even_to_the_end(series) is even


def test_a_rank_that_waits_for_its_data_stands_out() -> None:
    """Its peers wait for it at the end of each step."""
    slow = [replace(point, data=0.7, seconds=1.2) for point in points([1.2] * 20, rank=1)]
    quick = [replace(point, data=0.001, seconds=1.2) for point in points([1.2] * 20)]
    assert even_to_the_end([quick, quick])
    assert not even_to_the_end([quick, slow])


def test_it_proves_that_a_job_completed() -> None:
    """Unless its steps end well before the last."""
    whole = points([1.0] * 20)

    def ended(total: int) -> str:
        said = stream(points=[replace(point, total=total) for point in whole])
        return completion(facts(replace(said, tail="[rank0]: done\n[rank1]: done\n", tail_offset=8000))).how

    assert ended(20) == "completed"
    assert ended(40) == "unknown"
