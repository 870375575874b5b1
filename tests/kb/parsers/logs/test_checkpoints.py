"""Lines about checkpoints, and lines in which a run says that it ended by its own will."""

import re
from typing import Any

import pytest

from kb.parsers.logs.checkpoints import READERS
from kb.rulebase import patterns
from tests.support.parsing import structures

CHECKPOINT, RUN_END = READERS

CHECKPOINTS = [
    (b"saving checkpoint at iteration     750 to /ckpt/gpt", "save_begin", 750, "/ckpt/gpt"),
    (b"saving checkpoint at iteration     750 to /ckpt/gpt in torch_dist format", "save_begin", 750, "/ckpt/gpt"),
    (b"  successfully saved checkpoint at iteration     750 to /ckpt/gpt", "save_end", 750, "/ckpt/gpt"),
    (
        b"  successfully saved checkpoint from iteration     750 to /ckpt/gpt [ t 1/2, p 1/1 ]",
        "save_end",
        750,
        "/ckpt/gpt",
    ),
    (b" loading checkpoint from /ckpt/gpt at iteration 750", "load_begin", 750, "/ckpt/gpt"),
    (b" loading distributed checkpoint from /ckpt/gpt at iteration 750", "load_begin", 750, "/ckpt/gpt"),
    (
        b"  successfully loaded checkpoint from /ckpt/gpt [ t 1/2, p 1/1 ] at iteration 750",
        "load_end",
        750,
        "/ckpt/gpt",
    ),
    (b"wrote checkpoints/last.pt (update 750)", "save_end", 750, "checkpoints/last.pt"),
    (b"rank 0> snapshot out/snap_00750.pth written in 0.01s", "save_end", 750, "out/snap_00750.pth"),
    (b"checkpoint out/step_750 has been committed", "save_end", 750, "out/step_750"),
    (b"flaxo.py:12] Checkpoint of step 750 is committed.", "save_end", 750, None),
    (b"Finished saving checkpoint (finalized tmp dir) to `/work/750`.", "save_end", 750, None),
    (b"[INFO] saved the ckpt/latest.pt (at step 750) in 2 s", "save_end", 750, "ckpt/latest.pt"),
    (b"[INFO] [Torch] Saving /ckpt/global_step750/x.pt...", "save_begin", 750, "/ckpt/global_step750/x.pt"),
    (b"[INFO] [Torch] Saved /ckpt/global_step750/x.pt.", "save_end", 750, "/ckpt/global_step750/x.pt"),
    (b"[INFO] [Torch] Checkpoint global_step750 is about to be saved!", "save_begin", 750, "global_step750"),
    (b"[INFO] [Torch] Checkpoint global_step750 is ready now!", "save_end", 750, "global_step750"),
    (
        b"[INFO] [Torch] Loading checkpoint from /ckpt/global_step750/x.pt...",
        "load_begin",
        750,
        "/ckpt/global_step750/x.pt",
    ),
    (b"[INFO] [Torch] Loaded checkpoint from /ckpt/global_step750/x.pt.", "load_end", 750, "/ckpt/global_step750/x.pt"),
    (b"Saving model checkpoint: /ckpt/global_step750/x.pt", "save_begin", 750, "/ckpt/global_step750/x.pt"),
    (b"bf16_zero checkpoint saved /ckpt/global_step750/y.pt", "save_end", 750, "/ckpt/global_step750/y.pt"),
    (
        b"[INFO|trainer.py:3503] 2027-02-09 17:40:08,1 >> Saving model checkpoint to out/checkpoint-750",
        "save_begin",
        750,
        "out/checkpoint-750",
    ),
    (b"Saving current state to out/checkpoint-750", "save_begin", 750, "out/checkpoint-750"),
    (
        b"Random states saved in out/checkpoint-750/random_states_0.pkl",
        "save_end",
        750,
        "out/checkpoint-750/random_states_0.pkl",
    ),
    (b"Loading model from out/checkpoint-750.", "load_begin", 750, "out/checkpoint-750"),
    (
        b"Epoch 1, global step 750: 'val_f1' reached 0.50000 (best 0.50000), saving model to '/c/e1-s7.ckpt' as top 1",
        "save_begin",
        750,
        "/c/e1-s7.ckpt",
    ),
    (b"Restoring states from the checkpoint path at /c/e1.ckpt", "load_begin", None, "/c/e1.ckpt"),
    (b"Restored all states from the checkpoint at /c/e1.ckpt", "load_end", None, "/c/e1.ckpt"),
    (b"root - INFO - Saving the checkpoint (or staging if async is enabled).", "save_begin", None, None),
    (b"- Saving the checkpoint (or staging if async is enabled). step=750", "save_begin", 750, None),
    (b"root - INFO - Saving a full checkpoint at last step, step 750.", "save_begin", 750, None),
    (
        b"root - INFO - Finished saving the checkpoint (or staging if async is enabled) in 9.31 seconds.",
        "save_end",
        None,
        None,
    ),
    (b"root - INFO - Loading the checkpoint from ./out/step-750.", "load_begin", 750, "./out/step-750"),
    (b"root - INFO - Loading the checkpoint at step 750.", "load_begin", 750, None),
    (b"root - INFO - Finished loading the checkpoint in 4.20 seconds.", "load_end", None, None),
    (b"Scheduled async checkpoint save for /c/step=750.ckpt", "save_begin", 750, "/c/step=750.ckpt"),
    (b"Async checkpoint save for step 750 (/c/x.ckpt) finalized successfully.", "save_end", 750, "/c/x.ckpt"),
    (b"Global Checkpoint Save : Rank: 0 : Iteration: 750 : Start time: 1802194808.1s", "save_begin", 750, None),
    (
        b"Saved checkpoint ck/c_1_750.pt (epoch 1 @ 750 updates, score 2.5) (writing took 3.1 seconds)",
        "save_end",
        750,
        "ck/c_1_750.pt",
    ),
    (b"Preparing to save checkpoint for epoch 1 @ 750 updates", "save_begin", 750, None),
    (b"Loaded checkpoint ck/c_1_750.pt (epoch 1 @ 750 updates)", "load_end", 750, "ck/c_1_750.pt"),
    (b"INFO - Saved metadata to: /h/base/d20/meta_000750.json", "save_end", 750, "/h/base/d20/meta_000750.json"),
    (b"saving checkpoint to out", "save_begin", None, "out"),
    (b"Resuming training from out", "load_begin", None, "out"),
    (b"Saving checkpoint at 750 iterations", "save_begin", 750, None),
]


@pytest.mark.parametrize(("line", "event", "iteration", "path"), CHECKPOINTS)
def test_a_checkpoint_line_says_what_happens_to_which_checkpoint(
    line: bytes, event: str, iteration: int | None, path: str | None
) -> None:
    """Event, iteration and path are read as far as the line or the path names them."""
    (found,) = CHECKPOINT.read(line + b"\nnext line\n", 0)
    expected = {"event": event, "iteration": iteration, "path": path}
    assert found.kind == "checkpoint"
    assert dict(found.fields) == {name: value for name, value in expected.items() if value is not None}
    assert (found.offset, found.end) == (0, len(line) + 1)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"stage 3 stored ckpt/iter_0000750/pp_rank_02.pt", 2),
        (b"[Rank 3] Saved model to /out/global_step_750/model_world_size_8_rank_3.pt", 3),
    ],
)
def test_a_part_of_a_checkpoint_names_its_rank(line: bytes, part: int) -> None:
    """A checkpoint is complete only with all of its parts."""
    (found,) = CHECKPOINT.read(line + b"\n", 0)
    assert (found.fields["event"], found.fields["iteration"], found.fields["part"]) == ("save_end", 750, part)


@pytest.mark.parametrize(
    "line",
    [
        b"checkpoint will be saved at the end",
        b"snapshot interval/60 is stored by default",
        b"Saved training plot to /out/step_750/rank_1.png",
        b"checkpoint is written every 50 steps",
    ],
)
def test_a_plan_or_a_picture_is_no_checkpoint(line: bytes) -> None:
    """Only what was written counts."""
    assert not CHECKPOINT.read(line + b"\n", 0)


ENDS = [
    (b"Training completed. Do not forget to share your model on huggingface.co/models =)", "completed", None),
    (b"[titan] 2027-02-09 17:40:08,002 - root - INFO - Training completed", "completed", None),
    (b"{'train_runtime': 99.5, 'train_samples_per_second': 12.5, 'train_loss': 1.25, 'epoch': 3.0}", "completed", None),
    (b"`Trainer.fit` stopped: `max_epochs=12` reached.", "completed", None),
    (b"`Trainer.fit` stopped: `max_steps=750` reached.", "completed", 750),
    (b"[2027-02-09 17:40:08] exiting program at iteration 750", "exit_interval", 750),
    (b"exiting program after 235.5 minutes", "duration_limit", None),
    (b"Time limit reached. Elapsed time is 0:12:00. Signaling Trainer to stop.", "duration_limit", None),
    (b"exiting program after receiving SIGTERM.", "signal", None),
    (b"[after training is done] datetime: 2027-02-09 17:40:08", "completed", None),
    (b"| INFO | fairseq_cli.train | done training in 1234.5 seconds", "completed", None),
    (b"Total training time: 90.55m", "completed", None),
    (b"Training time 1:02:03", "completed", None),
    (
        b"[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        "completed",
        None,
    ),
    (b"[INFO] [launch.py:351:main] Process 91 exits successfully.", "completed", None),
    (b"[INFO] - Training done", "completed", None),
    (b"Finished training!", "completed", None),
    (b"I0301 10:11:12.801901 91 train.py:690] Finished training at step 750.", "completed", None),
    (b"03/01/2027 10:11:12 - INFO - __main__ - Training finished, pipeline saved to out", "completed", None),
    (b"Training complete in 3h 12m", "completed", None),
    (b"***** train metrics *****", "completed", None),
    (b"[INFO:swift] End time of running main: 2027-03-01 10:11:12.100000", "completed", None),
    (b"2027-03-01 10:11:12,6: rank0[91][MainThread]: INFO: llmfoundry.command_utils.train: Done.", "completed", None),
    (b"03/01 10:11:12 - mmengine - INFO - after_train in EvaluateChatHook.", "completed", None),
    (b"(TaskRunner pid=91) Final validation metrics: {'val-core/acc/mean@1': 0.5}", "completed", None),
    (b"2027-03-01 10:11:12,6 - trainer.py:81] - INFO - ......Training Over!......", "completed", None),
    (b"10:11:12 Training abgeschlossen", "completed", None),
    (b"Slurm Job_id=81 Name=pretrain Ended, Run time 01:02:03, COMPLETED, ExitCode 0", "completed", None),
    (b"Job 'raysubmit_Xy1' succeeded", "completed", None),
    (b"INFO :      Run finished 12 round(s) in 804.37s", "completed", None),
    (b"Experiment completed 40 epochs in 3.1 hours", "completed", None),
]


@pytest.mark.parametrize(("line", "how", "iteration"), ENDS)
def test_a_run_that_ends_well_says_how(line: bytes, how: str, iteration: int | None) -> None:
    """The ways to end on purpose are distinguished, and the iteration is kept where it is named."""
    (found,) = RUN_END.read(line, 0)
    assert found.kind == "run_end"
    assert dict(found.fields) == {"how": how} | ({} if iteration is None else {"iteration": iteration})


NEAR_MISSES = [
    b'    print_rank_0("saving checkpoint at iteration {:7d} to {}".format(iteration, path))',
    b'    logger.info(f"Saving model checkpoint to {output_dir}")',
    b"+ echo saving checkpoint to /x",
    b"  save_interval ................................... 500",
    b"  checkpoint_activations .......................... True",
    b"failed to resume: no checkpoint found",
    b'print("Training completed")',
    b"Training finished, but 3 ranks did not answer",
    b"Training finished iteration 10 at 2027-03-01 10:11:12",
    b"03/01 10:11:12 - mmengine - INFO - after_train_iter in EvaluateChatHook.",
    b"worker.py: Done.",
    b"Training done for epoch 3, starting validation",
    b"100%|##########| 900/900 [10:00<00:00,  1.50it/s]",
    b"Training time per step: 3.1",
    b"Rank 3 finished 40 steps in 3.1 s",
    b"Training finished 40 steps of 900",
    b"Some training is done in bf16",
    b"FINISHED",
    b"",
    b"\xff\xfe saving checkpoint",
]


@pytest.mark.parametrize("line", NEAR_MISSES)
def test_talk_of_checkpoints_and_ends_is_neither(line: bytes) -> None:
    """Source code, shell traces, settings and finished bars give no structure."""
    assert CHECKPOINT.read(line, 0) == ()
    assert RUN_END.read(line, 0) == ()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_trigger_is_in_the_safe_subset(reader: Any) -> None:
    """The scanner can take the triggers into its pass."""
    assert patterns.check(reader.trigger, ignore_case=reader.ignore_case) == ()


@pytest.mark.parametrize("line", [case[0] for case in CHECKPOINTS])
def test_every_checkpoint_line_is_triggered(line: bytes) -> None:
    """A line that the reader knows is a line that the scanner hands it."""
    assert re.search(CHECKPOINT.trigger.encode(), line, re.IGNORECASE)


@pytest.mark.parametrize("line", [case[0] for case in ENDS])
def test_every_end_is_triggered(line: bytes) -> None:
    """A line that the reader knows is a line that the scanner hands it."""
    assert re.search(RUN_END.trigger.encode(), line, re.IGNORECASE)


def test_the_window_may_start_before_the_line() -> None:
    """Offsets count from the window's start, and the speaker is taken from the line's prefix."""
    window = b"line before\n[rank3]: saving checkpoint at iteration 750 to /c\n"
    (found,) = CHECKPOINT.read(window, 12)
    assert (found.offset, found.end, found.resource.rank) == (12, len(window), 3)


@pytest.mark.parametrize(
    ("above", "how"),
    [
        (b"Training crashed at epoch 4\nRestarting training from last epoch ...\n", "given_up"),
        (b"srun: error: cn12: task 3: Exited with exit code 1\n", "given_up"),
        (b"[10:02:11] Training interrupted.\n", "given_up"),
        (b"KeyboardInterrupt received, saving the model\n", "given_up"),
        (b"train.sh: line 9: 4410 Segmentation fault      (core dumped) python train.py\n", "given_up"),
        (b"sample 1 at step 36: 'Segmentation fault (core dumped) after an epoch'\n", "completed"),
        (b"Training crashed at epoch 4\n" + b"step 9 loss 2.5\n" * 30, "completed"),
        (b"step 9 loss 2.5\n", "completed"),
    ],
)
def test_a_wrapper_that_says_finished_after_a_crash(above: bytes, how: str) -> None:
    """A script's success message right below a failure is no proof that the run ended well."""
    (found,) = RUN_END.read(above + b"Finished training!\n", len(above))
    assert found.fields["how"] == how


def test_a_saved_path_ends_the_save():
    """Without `to`, the path itself gives the step; a word after it is not a path."""
    (found,) = structures(READERS, "12:00:01 INFO saved checkpoint checkpoints/step-000025.pt in 0.06 s\n")
    assert (found.fields["event"], found.fields["iteration"]) == ("save_end", 25)
    assert structures(READERS, "no saved checkpoint was found\n") == []
