"""Settings that the logs show to be in force, so that no step asks for them."""

from __future__ import annotations

import pytest

from kb.facts.circumstances import RunCircumstances
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from tests.support.kb_samples import BOOK, scanned


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "segments", "on"),
        ("If reserved memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "segments", ""),
        ("Warning: expandable_segments not supported on this platform", "segments", "none"),
        ("1.00 GiB free; 9.00 GiB reserved in total by PyTorch) If reserved memory", "segments", "none"),
        ("RuntimeError: Rank 1 is running CollectiveFingerPrint(SequenceNumber=21", "detail", "on"),
        ("set TORCH_DISTRIBUTED_DEBUG=DETAIL to see which parameters", "detail", ""),
        ("CUDA_LAUNCH_BLOCKING=1", "blocking", "on"),
        ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", "blocking", ""),
        ("n1:77:77 [0] NCCL INFO Bootstrap : Using eth0", "verbose", "on"),
        ("Please run with NCCL_DEBUG=INFO for details", "verbose", ""),
        ('  "activation_checkpointing": true, "wrap": [', "recompute", "on"),
        ("gradient_checkpointing=False,", "recompute", ""),
        ("  recompute_granularity ..................... full", "recompute", "on"),
        ("run sh: sft.py --per_device_train_batch_size 1 --max_length 9", "micro_batch", "one"),
        ("  micro_batch_size ........................ 1", "micro_batch", "one"),
        ('  "train_micro_batch_size_per_gpu": 16,', "micro_batch", ""),
        ("per_device_eval_batch_size=1,", "micro_batch", ""),
        ("  rdzv_backend     : c10d", "elastic", "yes"),
        ("  rdzv_backend     : static", "elastic", ""),
        ("are you using PyTorch 1.1.0 or later?", "torch", ""),
        ("PyTorch version 1.9.0+cu111", "torch", "old"),
        ("distributed init: world_size=1, backend nccl", "processes", "one"),
        ("distributed init: world_size=16, backend nccl", "processes", "several"),
    ],
)
def test_what_is_in_force_is_not_what_is_advised(line: str, name: str, value: str) -> None:
    """Libraries name the same variables in their advice."""
    facts = Facts(Evidence(streams=(scanned(f"step 1 loss 2.0\n{line}\n", BOOK),)))
    assert RunCircumstances(facts, Places(facts)).get(name) == value


def test_any_setting_that_a_line_shows_is_in_force() -> None:
    """NCCL prints what it takes from the environment in words of its own; another value, or advice, is no setting in force."""
    lines = "n1:7:7 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n'num_workers': 0,\nconsider passing CUDA_LAUNCH_BLOCKING=1\n"
    facts = Facts(Evidence(streams=(scanned(f"step 1 loss 2.0\n{lines}", BOOK),)))
    run = RunCircumstances(facts, Places(facts))
    settings = (("NCCL_P2P_DISABLE", "1"), ("num_workers", "0"), ("num_workers", "4"), ("CUDA_LAUNCH_BLOCKING", "1"))
    assert [run.in_force(name, value) for name, value in settings] == [True, True, False, False]
