"""Lines at which a stage of a run begins."""

import re

import pytest

from kb.parsers.logs.stages import STAGES
from kb.rulebase import patterns

LINES = [
    (b"WARNING:torch.distributed.run:", "launch"),
    (b"W0209 17:40:08.1 4411 torch/distributed/run.py:793] ****", "launch"),
    (b"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default", "launch"),
    (b"srun: job 8123 has been allocated resources", "launch"),
    (b"> initializing torch distributed ...", "init"),
    (b"Added key: store_based_barrier_key:1 to store for rank: 3", "init"),
    (b"node-b:411:902 [3] NCCL INFO comm 0x5 rank 3 nranks 8 - Init COMPLETE", "init"),
    (b"building GPT model ...", "init"),
    (b"| distributed init (rank 3): env://", "init"),
    (b"Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8", "init"),
    (b"> building train, validation, and test datasets for GPT ...", "data_load"),
    (b"Map (num_proc=4):   0%|          | 0/900 [00:00<?, ? examples/s]", "data_load"),
    (b"Generating train split: 900 examples [00:00, 1000.00 examples/s]", "data_load"),
    (b" loading checkpoint from /ckpt at iteration 750", "checkpoint_load"),
    (b"Loading checkpoint shards:   0%|          | 0/4 [00:00<?, ?it/s]", "checkpoint_load"),
    (b"Resuming from checkpoint out/checkpoint-750", "checkpoint_load"),
    (b"***** Running training *****", "iterating"),
    (b"training ...", "iterating"),
    (b"***** Running Evaluation *****", "evaluating"),
    (b" validation loss at iteration 750 | lm loss value: 2.5E+00", "evaluating"),
    (b"Validation DataLoader 0:   0%|          | 0/9 [00:00<?, ?it/s]", "evaluating"),
    (b"saving checkpoint at iteration     750 to /ckpt", "saving"),
    (b"Saving model checkpoint to out/checkpoint-750", "saving"),
    (b"Sending process 411 closing signal SIGTERM", "teardown"),
    (b"WARNING: destroy_process_group() was not called before program exit", "teardown"),
    (b"Training completed", "teardown"),
    (b"exiting program at iteration 750", "teardown"),
]


def stage_of(line: bytes) -> str | None:
    """The stage of the first mark that the line holds."""
    return next((stage for stage, regex in STAGES if re.search(regex.encode(), line)), None)


@pytest.mark.parametrize(("line", "stage"), LINES)
def test_a_line_begins_its_stage(line: bytes, stage: str) -> None:
    """The marks of launchers, frameworks and libraries name their stage."""
    assert stage_of(line) == stage


@pytest.mark.parametrize(
    "line",
    [
        b" iteration       31/      80 | consumed samples:  9920 | elapsed time per iteration (ms): 450.1 | lm loss: 9.5E+00 |",
        b"{'loss': 1.25, 'learning_rate': 3e-05, 'epoch': 0.25}",
        b"  5%|5         | 45/900 [04:12<1:20:00,  5.50s/it]",
        b"step: 45  loss:  5.25000  grad_norm:  1.5000",
        b'  File "/srv/torch/distributed/run.py", line 866, in main',
        b"Loading checkpoint shards:  50%|#####     | 2/4 [00:02<00:02, 1.0s/it]",
        b"",
        b"\xff\xfe",
    ],
)
def test_iteration_lines_and_frames_begin_no_stage(line: bytes) -> None:
    """What repeats with every iteration, and what only names a file, marks nothing."""
    assert stage_of(line) is None


@pytest.mark.parametrize(("stage", "regex"), STAGES)
def test_a_mark_is_in_the_safe_subset(stage: str, regex: str) -> None:
    """The scanner can take the marks into its pass, none of them tied to a line's start."""
    assert patterns.check(regex) == (), stage
    assert not patterns.scan_form(regex).anchored
