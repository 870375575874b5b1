"""How advice fared: did the next try come past the point of failure?"""

from __future__ import annotations

import pytest

from kb.precedents.advice_outcomes import AdviceStep, outcomes
from kb.precedents.phrases import advice_outcome
from kb.report import Outcomes


def step(**parts: object) -> AdviceStep:
    """A failure after which the job was tried again."""
    return AdviceStep(**{"fault": "hang", "advice": "restart_in_place", "tried": True, **parts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "helped"),
    [
        ({"reached": 100, "next_reached": 101}, True),
        ({"reached": 100, "next_reached": 100}, False),
        ({"reached": 100, "next_reached": 40}, False),
        ({"next_reached": 1}, True),
        ({"over": True}, True),
        ({"reached": 100, "next_fault": "hang"}, False),
        ({"reached": 100, "next_fault": "other"}, None),
    ],
    ids=["further", "the same step", "earlier", "it had no step before", "ended well", "the same fault", "not known"],
)
def test_whether_it_helped(parts: dict[str, object], helped: bool | None) -> None:
    """By how far both came, else by how the next one ended."""
    assert step(**parts).helped is helped


@pytest.mark.parametrize(
    ("advice", "nodes", "done"),
    [
        ("requeue_without", ("a", "a"), "restart_in_place"),
        ("restart_in_place", ("a", "b"), "resubmit"),
        ("requeue_without", ("a", "b"), "requeue_without"),
        ("requeue_without", ("", "b"), "requeue_without"),
        ("requeue", ("a", ""), "requeue"),
    ],
)
def test_what_was_done_is_reported_by_the_nodes(advice: str, nodes: tuple[str, str], done: str) -> None:
    """Advice that nobody followed is not counted for it."""
    assert step(advice=advice, ran_on=nodes[0], next_ran_on=nodes[1]).done == done


def test_advice_is_counted_for_this_fault_alone() -> None:
    """Untried advice proves nothing; unknown outcomes are counted separately."""
    steps = [
        *(step(reached=10, next_reached=20) for _ in range(7)),
        *(step(reached=10, next_reached=10) for _ in range(2)),
        step(reached=10, next_fault="other"),
        step(tried=False),
        step(fault="other", over=True),
        step(advice="requeue_without", over=True),
        step(advice="fix_first", over=True),
    ]
    found = outcomes(steps, "hang")
    assert found == (
        Outcomes("restart_in_place", "hang", 7, 9, 1),
        Outcomes("requeue_without", "hang", 1, 1, 0),
    )
    assert [advice_outcome(item) for item in found] == [
        "restarting in place helped 7 of 9 times for this fault here (1 more with unknown outcome)",
        "leaving the node out helped 1 of 1 time for this fault here",
    ]
    assert outcomes(steps, "unheard_of") == ()
