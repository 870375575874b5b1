"""The stage that the frames of a traceback show."""

from __future__ import annotations

import pytest

from bot.render.phrases import place
from kb.diagnosis.context.activities import activity, start_activity
from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job, Stage
from kb.report import Report
from kb.rulebase.rule import ExceptionTest, Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("own", "code_bug", Pattern("e", exception=ExceptionTest("RuntimeError"))))
MODULE = "/lib/python3/site-packages/torch/nn/modules/module.py:915 in "


def frames(*functions: str) -> list[str]:
    """Frames as a traceback has them, outermost last: the main module's first, as each line names its file and function."""
    return ["/app/run.py:200 in <module>", *functions][::-1]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (["/app/run.py:9 in train", f"{MODULE}_call_impl", "/app/net.py:5 in forward"], "iterating"),
        (["/app/run.py:9 in pretrain", "/app/run.py:30 in evaluate", f"{MODULE}_call_impl"], "evaluating"),
        (["/app/run.py:9 in main", "/app/run.py:30 in model_evaluate", f"{MODULE}_call_impl"], "evaluating"),
        (["/app/run.py:9 in main", "/app/model_config.py:30 in model_validate"], None),
        (["/app/run.py:9 in score", f"{MODULE}_call_impl", "/app/net.py:5 in forward"], None),
        (["/app/run.py:9 in train", "/app/run.py:30 in prepare"], None),
        (["/app/run.py:9 in train", "/app/run.py:30 in predict", f"{MODULE}_call_impl"], "evaluating"),
        (["/app/run.py:9 in main", "/app/image.py:30 in calculate_psnr"], "evaluating"),
        (["/app/run.py:9 in main", "/app/configclass.py:30 in _validate"], None),
        (["/app/run.py:9 in main", "/app/run.py:30 in val", "/app/data.py:3 in collate"], "evaluating"),
        (["/app/run.py:9 in main", "/app/run.py:30 in predict", f"{MODULE}_call_impl"], None),
        (["/app/run.py:9 in main", "/lib/torch/_tensor.py:522 in backward"], "iterating"),
        (["/app/run.py:9 in main", "/lib/torch/optim/adamw.py:187 in step"], "iterating"),
        (["/app/run.py:9 in main", "/lib/paddle/fluid/dygraph/tensor_patch_methods.py:2 in backward"], "iterating"),
        (["/lib/lightning/pytorch/loops/training_epoch_loop.py:9 in advance", "/app/net.py:5 in go"], "iterating"),
        (["/lib/lightning/pytorch/loops/evaluation_loop.py:9 in run", "/app/net.py:5 in go"], "evaluating"),
    ],
)
def test_frames_show_the_activity(inner: list[str], expected: Stage | None) -> None:
    """A model that is called is trained under a training function; gradients are computed nowhere else."""
    assert activity(frames(*inner)) == expected


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (["/app/run.py:145 in main", f"{MODULE}to", f"{MODULE}_apply"], "init"),
        (["/app/run.py:145 in main", "/app/net.py:7 in __init__", "/app/net.py:8 in width"], "init"),
        (["/app/run.py:145 in main", "/app/speech_dataset.py:7 in __init__"], "data_load"),
        (["/app/run.py:145 in main", "/lib/site-packages/datasets/load.py:7 in load_dataset"], "data_load"),
        (["/app/run.py:145 in main", "/lib/site-packages/h5py/_hl/files.py:7 in __init__"], None),
        (["/app/run.py:145 in main", "/app/run.py:7 in __init__", "h5py/h5o.pyx:190 in h5py.h5o.open"], "data_load"),
        (["/app/run.py:145 in main", "/lib/site-packages/numpy/lib/_npyio_impl.py:463 in load"], "data_load"),
        (["/app/net.py:3 in <module>", "/app/ops.py:1 in <module>"], "init"),
        (["/app/run.py:145 in main", f"{MODULE}_call_impl", "/app/net.py:7 in __init__"], None),
        (["/app/run.py:145 in main", "/lib/torch/utils/data/dataloader.py:701 in __next__", f"{MODULE}to"], None),
        ([], None),
    ],
)
def test_frames_show_a_start(inner: list[str], expected: Stage | None) -> None:
    """What is built, placed or imported; not what a model or a loader does while it runs."""
    assert start_activity(frames(*inner)) == expected


def test_a_thread_shows_no_start() -> None:
    """Its frames do not begin in a module."""
    assert start_activity([f"{MODULE}to", "/lib/python3/threading.py:973 in _bootstrap"]) is None


def report_of(text: str) -> Report:
    """The report on a log."""
    return diagnose(Evidence(Job(), streams=(scanned(text, BOOK, ref("logs/train.log")),)), BOOK)


def test_a_start_is_told_only_before_the_first_step() -> None:
    """Later, the same frames may be of any time."""
    raised = (
        'Traceback (most recent call last):\n  File "/app/run.py", line 200, in <module>\n    main()\n'
        '  File "/app/run.py", line 145, in main\n    net.to(device)\n'
        '  File "/lib/torch/nn/modules/module.py", line 1355, in to\n    return self._apply(convert)\n'
        "RuntimeError: CUDA error: out of memory\n"
    )
    first = report_of("reading the corpus\n" + raised)
    assert (first.diagnoses[0].stage, first.progress.stage) == ("init", "init")
    drawn = report_of("  0%|          | 0/15 [00:00<?, ?it/s]\n" + raised)
    assert drawn.diagnoses[0].stage is None  # its loop has begun, or is about to
    again = report_of("  0%|          | 0/15 [00:00<?, ?it/s]\nGenerating train split: 9 examples\n" + raised)
    assert list(place(again.diagnoses[0])) == ["stage init"]
    later = report_of("iteration      5/   60 | lm loss: 2.5E+00\n" + raised)
    assert (later.diagnoses[0].stage, later.progress.stage) == ("iterating", "iterating")


def test_a_position_within_an_epoch_is_that_of_the_failure() -> None:
    """The lines of this program only count from the start of each epoch."""
    lines = "".join(f"Epoch: [{epoch}][ {step}/500] loss 2.1\n" for epoch in (2, 3) for step in (0, 100, 200))
    (found,) = report_of(lines + "RuntimeError: it broke\n").diagnoses
    assert (found.iteration, found.epoch, found.epoch_iteration, found.epoch_iterations) == (None, 3, 200, 500)


def test_outside_the_loop_the_iteration_is_the_last_one_before() -> None:
    """An evaluation or a save belongs to no step."""
    steps = "".join(f"iteration {step:6d}/   60 | lm loss: 2.5E+00\n" for step in (5, 10))
    frames = (
        'Traceback (most recent call last):\n  File "/app/run.py", line 9, in {}\n    go()\nRuntimeError: it broke\n'
    )
    (saving,) = report_of(steps + frames.format("save_checkpoint")).diagnoses
    assert list(place(saving)) == ["stage saving", "after iteration 10"]
    (iterating,) = report_of(steps + frames.format("train_step")).diagnoses
    assert list(place(iterating)) == ["stage iterating", "last logged iteration 10"]


def test_a_model_that_is_called_under_a_launcher_shows_no_start() -> None:
    """What the program does with it is not known; a second program of the same log says nothing of it either."""
    launch = "W0503 23:17:25.004 4719 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment variable for each process\n"
    raised = (
        'Traceback (most recent call last):\n  File "/app/run.py", line 9, in <module>\n    decode()\n'
        '  File "{}", line 1518, in {}\n    go()\nRuntimeError: it broke\n'
    )
    later = "Generating train split: 0 examples\nMap: 0%|          | 0/1 [00:00<?, ?it/s]\n"
    called = report_of(launch + raised.format("/lib/torch/nn/modules/module.py", "_call_impl") + later)
    assert (called.diagnoses[0].stage, called.progress.stage, called.progress.last_iteration) == (None, None, None)
    assert report_of(launch + raised.format("/app/net.py", "width")).diagnoses[0].stage == "init"
