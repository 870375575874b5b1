"""The different collectives in which the ranks of a job wait."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.waits import different_waits
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.model import Resource
from tests.support.kb_samples import rulebook, scanned


def timeout(rank: int, operation: str, number: int, before: str = "") -> str:
    """The report of a rank's watchdog; `before`: what another process wrote on the same line."""
    return (
        f"{before}[rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=8, NumelOut=16, Timeout(ms)=600000) ran for 600410 milliseconds before timing out.\n"
    )


def told(text: str) -> str:
    """What is told of the waits in a log."""
    return different_waits(
        Signal("", 0, 0, "", "watchdog", Resource()), Facts(Evidence(streams=(scanned(text, rulebook()),)))
    )


BAR = " 33%|###      | 575/1725 [3:03:39<6:06:20, 19.11s/it"


@pytest.mark.parametrize("before", ["", BAR, BAR + "]"])
def test_each_rank_is_told_with_its_own_collective(before: str) -> None:
    """Also where its report is glued behind a progress bar that has not ended."""
    text = timeout(1, "_ALLGATHER_BASE", 45, before) + timeout(0, "ALLGATHER", 66) * 2
    assert told(text) == "rank 0 in ALLGATHER (number 66), rank 1 in _ALLGATHER_BASE (number 45)"


def test_waits_that_agree_are_not_told() -> None:
    """Nor those of one rank, nor of more ranks than a sentence holds."""
    assert not told(timeout(1, "ALLREDUCE", 45) + timeout(0, "ALLREDUCE", 45))
    assert not told(timeout(1, "ALLREDUCE", 45))
    assert not told("".join(timeout(rank, "ALLREDUCE", 40 + rank) for rank in range(4)))


def test_numbers_of_several_groups_are_not_compared() -> None:
    """Lines that do not name their group are of several if a rank reports several numbers; ranks in one operation may be."""
    assert not told(timeout(0, "ALLREDUCE", 120) + timeout(7, "ALLREDUCE", 80))
    assert not told(timeout(0, "ALLREDUCE", 120) + timeout(0, "ALLREDUCE", 117) + timeout(7, "ALLGATHER", 80))
