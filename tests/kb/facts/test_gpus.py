"""How many GPUs a job has: only where something shows that there are any."""

from __future__ import annotations

import pytest

from kb.facts.evidence import Evidence
from kb.facts.gpus import gpu_count, rank_count
from kb.facts.job_facts import Facts
from kb.model import Job
from tests.support.kb_samples import BOOK, scanned


def facts_of(text: str, job: Job) -> Facts:
    """The facts of one log."""
    return Facts(Evidence(job, streams=(scanned(text, BOOK),)))


def test_ranks_are_no_gpus() -> None:
    """A run on CPU has ranks, also one that says it found no GPU."""
    for text in ("step 1 loss 2.0\n", "GPU available: False, used: False\n", "CUDA is not available\n"):
        known = facts_of(text, Job(world_size=8))
        assert gpu_count(known) is None
        assert rank_count(known) == 8


@pytest.mark.parametrize(
    "line",
    [
        "node-a:71:71 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "[rank3]:[E101 ProcessGroupNCCL.cpp:616] timeout",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "model moved to cuda:3",
        "GPU available: True (cuda), used: True",
    ],
)
def test_each_rank_drives_one_where_a_line_shows_gpus(line: str) -> None:
    """NCCL, an error of a device, or a device by its number."""
    assert gpu_count(facts_of(f"{line}\n", Job(world_size=8))) == 8


def test_the_description_is_taken_at_its_word() -> None:
    """Whatever the number of ranks; without ranks and description nothing is known."""
    assert gpu_count(facts_of("step 1\n", Job(world_size=8, gpus=4))) == 4
    assert rank_count(facts_of("step 1\n", Job(nodes={"a": (0, 1), "b": (2, 3)}))) == 4
    assert gpu_count(facts_of("NCCL version 2.21.5+cuda12.4\n", Job())) is None
