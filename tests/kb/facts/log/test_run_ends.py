"""Lines at the end of a log."""

from __future__ import annotations

# The parser of `re`: no public library gives its tree.
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

import pytest

from kb.facts.log import run_ends
from kb.facts.log.run_ends import closes, end_lines, is_fatal, is_frame, save_lost


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"level": "INFO", "msg": "run finished", "status": "success", "exit_code": 0}', "completed"),
        ("I0607 20:01:02.801901 140245 train.py:690] Finished training at step 9000.", "completed"),
        ("INFO:tensorflow:Loss for final step: 0.113.", "completed"),
        ("wandb: Waiting for W&B process to finish... (success).", "completed"),
        ("wandb: Run summary:", "completed"),
        ("Tuned model saved: out/probe_final.pth", "completed"),
        ("Checkpoint saved: out/probe_epoch7.pth", None),
        ("  predict_runtime                = 0:02:11.40", "completed"),
        ("{'predict_runtime': 41.2}", None),
        ("Job finished: state COMPLETED, exit code 0:0", "completed"),
        ("# Avg bus bandwidth    : 412.1", "completed"),
        ("Number of trials: 4/4 (4 TERMINATED)", "completed"),
        ("[I 04:11:09 r00] all 800 updates done, bye", "completed"),
        ("all actors returned, best score 0.5", "completed"),
        ("controller: all ranks ended with status 0", "completed"),
        ("controller: rank 3 ended with status 1", None),
        ("INFO     Done. Weights are in out.", "completed"),
        ("Training time: 91.50s", "completed"),
        ("INFO:root:Total pretraining time 15:26:40.498376", "completed"),
        ("Overall fine-tuning time elapsed: 4.2 h", "completed"),
        ("Training took 5230.1 s", "completed"),
        (':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success", "lineno": 90}}', "completed"),
        (':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "aborted", "lineno": 90}}', None),
        ("Final validation metrics: {'accuracy': 0.81}", "completed"),
        ("[Finished in 912.4s]", "completed"),
        ("[Finished in 912.4s with exit code 1]", None),
        ("End of epoch 400 / 400 \t Time Taken: 131 sec", "completed"),
        ("End of epoch 39 / 400 \t Time Taken: 131 sec", None),
        ("Estimated total training time: 5 h", None),
        ("# gang finished, all 4 members returned 0", "completed"),
        ("member 2 finished, status 0", "completed"),
        ("member 2 finished, status 1", None),
        ("reached step 40, final checkpoint is durable", "completed"),
        ("final checkpoint could not be written", None),
        ("Training Time: 04:44:00", "completed"),
        ("Time elapsed in training is: 6762.448", "completed"),
        ("Optimization complete with best validation score of 5.66 %, on iteration 36960", "completed"),
        ("The training code for file  ran for 330.08m", "completed"),
        ("Training finished after not improving. Early Stop!", "completed"),
        ("Epoch 00028: early stopping THR.", "completed"),
        ("Early stopping at epoch: 8", "completed"),
        ("Early stop count 5/5", "completed"),
        ("Early stop count 3/5", None),
        ("\x1b[1;34mwandb\x1b[0m: View run \x1b[33mx-1\x1b[0m at: https://wandb.ai/t/r/runs/m", "completed"),
        ("all 3 batches of this epoch are loaded", None),
        ("2023-06-07 15:09:58 INFO: End of training. Time consumed: 2 days, 15:54:28", "completed"),
        ("[run_clm][INFO] - [0] run_clm done", "completed"),
        ("train_one_epoch done", None),
        ("run_eval done", None),
        ("2025-01-02 训练完成", "completed"),
        ("INFO - 预训练任务圆满结束 (耗时 1.5 小时)", "completed"),
        ("微调已成功完成", "completed"),
        ("训练未完成", None),
        ("Training of the linear probe on frozen features completed.", "completed"),
        ("Training of fold 2 completed.", None),
        ("training of the model in stage 1 done", None),
        ("[train] done. best_val=2.71", "completed"),
        ("Training time: 14.3 min", "completed"),
        ("save checkpoint at runs/chest/final", "completed"),
        ("save checkpoint at runs/chest/final-3/epoch", None),
        ("stopping_early: wallclock_cap train_time:600031ms step:5100/20000", "completed"),
        ("stopping_early: False", None),
        ("Epoch 12: early stopping", "completed"),
        ("Early stopping: the metric has not improved for 5 evaluations. Stopping.", "completed"),
        ("Reached max_steps 5000, exiting", "completed"),
        ("Reached max_run_hours=4 set for this run, stopping", "planned"),
        ("Stopping training due to cumulative_training_time: 11.9 > stop_time_hours: 11.9 hour(s)", "planned"),
        ("Job finished at Mon Nov 2", None),
        ("training failed: job finished with errors", None),
        ("waiting for training to be finished", None),
        ("if training is done, call destroy_process_group", None),
        ("early stopping patience is 5", None),
        ("process exited with exit code 1", None),
        ("wandb: Waiting for W&B process to finish... (failed 1).", None),
        (">> training finished@20270209_174008 <<", "completed"),
        ("Training took 1h 2m", "completed"),
        ("Time taken for training: 812 s", "completed"),
        ("trainer: training is over", "completed"),
        ("17:40:08 INFO **********************End evaluation nets/b7(default)**********************", "completed"),
        ("train.py:409] [Timing] final eval finished (Took 322.18s).", "completed"),
        ("02/09 17:40:08 - mmengine - INFO - Epoch(test) [812/812]    time: 0.4", "completed"),
        ("02/09 17:40:08 - mmengine - INFO - Epoch(test) [800/812]    time: 0.4", None),
        ("save weights to out/model_final.pth", "completed"),
        ("saving weights to out/model_final.pth", None),
        ("Trial status: 4 TERMINATED", "completed"),
        ("Trial status: 3 TERMINATED | 1 ERROR", None),
        ("step 100 loss 2.1", None),
    ],
)
def test_what_is_a_normal_end(line: str, expected: str | None) -> None:
    """A program's own report; not a wrapper's word that something is over, nor a condition or a failure."""
    assert next((end.how for end in end_lines([(7, line)])), None) == expected


def test_the_farewell_of_an_interrupted_run_is_no_end() -> None:
    """A program that catches Ctrl-C leaves its loop the same way as after its last step."""
    farewell = "Training is done. Took 11.69 minutes."
    assert [end.offset for end in end_lines([(0, "step 9 of 800"), (20, farewell)])] == [20]
    assert not list(end_lines([(0, "step 9 of 800"), (20, "Training interrupted."), (50, farewell)]))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("F0311 12:00:00.000 123 loader.cc:52] Check failed: size == want (3 vs. 4)", True),
        ("libc++abi: terminating due to uncaught exception of type std::bad_alloc", True),
        ("python: symbol lookup error: libx.so: undefined symbol: foo", True),
        ("train: engine.c:81: step: Assertion `n > 0' failed.", True),
        ("bash: line 3: 91 Bus error  python train.py", True),
        ('{"level":"fatal","msg":"no device"}', True),
        ("child exited with status 139", True),
        ("exit code 0", False),
        ("the run is fatally slow", False),
        ("saved checkpoint 40", False),
    ],
)
def test_what_is_fatal(line: str, expected: bool) -> None:
    """Messages of the C library, of native checks, and of launchers about a program that was terminated."""
    assert is_fatal(line) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ERROR: could not save checkpoint: No space left on device", True),
        ("checkpoint upload failed after 3 attempts", True),
        ("saving model to out/error-analysis", False),
        ("Saved final checkpoint", False),
        ("the write of step 20 is not done after 4 s, TIMEOUT in 900 s", False),
        ("checkpoint write timed out after 900 s", True),
        ("checkpoint upload timed out", True),
    ],
)
def test_what_is_a_lost_save(line: str, expected: bool) -> None:
    """A name with the word error in it is none."""
    assert save_lost(line) is expected


def test_lines_of_a_native_stack_trace() -> None:
    """They follow the message that matters."""
    assert is_frame("    @     0x7f2a1c0d  c10::Error::Error()")
    assert is_frame("#4 0x00007f2a in main () at train.cc:9")
    assert not is_frame("loader.cc:52] Check failed: size == want")


def test_what_a_program_does_after_its_last_step() -> None:
    """It saves, measures, or cleans up."""
    assert closes("Model weights saved in out/model.safetensors")
    assert closes("destroying process group")
    assert not closes("Epoch 3 starts")


@pytest.mark.parametrize("name", ["_COMPLETED", "_EARLY", "_PLANNED", "_FATAL"])
def test_the_words_looked_for_first_leave_no_line_out(name: str) -> None:
    """Whatever an expression matches holds one of its words."""
    words = run_ends._FATAL_WORDS if name == "_FATAL" else run_ends._END_WORDS
    tree = sre_parse.parse(getattr(run_ends, name).pattern)
    assert _requires(list(tree), words)
    assert not _requires(list(tree), ("no such word",))


def test_a_line_of_a_step_has_none_of_the_words() -> None:
    """Or the look for them would save nothing."""
    line = "2026-11-03 04:10:37,126 [info] [rank 0] step 18061 | loss: 2.1 | lr: 1e-4 | forward 58.22 ms"
    assert not any(word in line for word in (*run_ends._FATAL_WORDS, *run_ends._END_WORDS))


def _requires(items: list[tuple[Any, Any]], words: tuple[str, ...]) -> bool:
    """Whether each match of a parsed expression holds one of these words, in lower case."""
    run = ""
    for op, argument in items:
        run += _letter(op, argument) or "\n"
    return any(word in run for word in words) or any(_part_requires(op, argument, words) for op, argument in items)


def _part_requires(op: Any, argument: Any, words: tuple[str, ...]) -> bool:
    if op is sre.BRANCH:
        return all(_requires(list(branch), words) for branch in argument[1])
    if op is sre.SUBPATTERN:
        return _requires(list(argument[3]), words)
    return op is sre.MAX_REPEAT and argument[0] > 0 and _requires(list(argument[2]), words)


def _letter(op: Any, argument: Any) -> str:
    """The character at this place, case-insensitive; empty where several are possible."""
    members = {chr(value).lower() for kind, value in argument if kind is sre.LITERAL} if op is sre.IN else set()
    if op is sre.IN and len(members) == 1 and all(kind is sre.LITERAL for kind, _ in argument):
        return members.pop()
    return chr(argument).lower() if op is sre.LITERAL else ""
