"""Reads from the frames of exceptions in which stage the processes were: what they waited in says so, whatever the framework.

A rank that lost its peers was in the same stage as they were. The innermost frame whose function names a stage counts; of several ranks,
what most of them say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import LineRef, RunProfile, RunStack
from kb.anomalies.time.change_step import StepCourse

MOSTLY = 0.5  # share of the stacks that name a stage from which on they agree

# Parts of names of functions. What belongs to a training step is none: evaluations run the same functions.
_NAMED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("checkpoint_load", re.compile(r"(?i)(?:^|_)(?:load|restore|resume)(?:_\w*)?(?:check_?point|ckpt|state|weights|model|pretrained)|(?:check_?point|ckpt)_?(?:load|restore)|^from_pretrained\b")),
    ("saving", re.compile(r"(?i)(?:^|_)(?:save|saves|saving|dump)(?:_|\b)|(?:check_?point|ckpt)_?(?:save|write)|^write_(?:item|data|state)|^_?(?:async_)?save\w*\b|^torch_save")),
    ("evaluating", re.compile(r"(?i)(?:^|_)(?:eval|evals|evaluate|evaluation|validate|validation|valid|val)(?:_|\b)|^(?:test|predict)_(?:step|epoch|loop)\b")),
    ("init", re.compile(r"(?i)^init_(?:process_group|distributed|device_mesh|dist)|^_?new_(?:group|process_group)|^_?initiali[sz]e_(?:distributed|model_parallel|megatron)|^_setup_distributed|^setup_environment|^_?init_(?:backend|comm)")),
    ("data_load", re.compile(r"(?i)(?:^|_)(?:build|load|prepare|get|make|open)_\w*(?:dataset|dataloader|data|tokenizer|corpus|shard)s?\b|^load_dataset|^_?load_(?:data|shard)")),
)  # fmt: skip
BEFORE_STEPS = frozenset({"data_load", "checkpoint_load", "init"})
JUST_BEFORE = 3.0  # seconds before the last step in which the cause of the end may be raised


def stage_of_stack(frames: Sequence[str]) -> str | None:
    """The stage that the innermost telling frame names; None if none does."""
    return next((stage for frame in reversed(frames) if (stage := _stage(frame.partition(" ")[0])) is not None), None)


def _stage(function: str) -> str | None:
    return next((stage for stage, words in _NAMED if words.search(function)), None)


def stage_of_stacks(stacks: Iterable[RunStack]) -> str | None:
    """The stage that most of the stacks that name one do."""
    count = Counter(stage for stack in stacks if (stage := stage_of_stack(stack.frames)) is not None)
    stage, times = max(count.items(), key=lambda item: (item[1], item[0]), default=(None, 0))
    return stage if times > MOSTLY * count.total() else None


def stage_in_stacks(run: RunProfile, course: StepCourse, spot: LineRef | None, off: Mapping[str, float]) -> str | None:
    """The stage according to the stack of the line that reports the failure, else to all stacks since the last step; None if they do not show it.

    In a run that makes steps, data are read and states loaded within them.
    """
    own = [
        stack for stack in run.stacks if spot and (stack.spot.source, stack.spot.offset) == (spot.source, spot.offset)
    ]
    at = course.stopped
    late = [
        stack
        for stack in run.stacks
        if at is None or (time := corrected(stack.spot, off)) is None or time >= at - JUST_BEFORE
    ]
    for stacks in (own, late):
        stage = stage_of_stacks(stacks)
        if stage is not None and not (course.beats and stage in BEFORE_STEPS):
            return stage
    return None
