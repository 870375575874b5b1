"""Stage and step that a report gives for what ended a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job, Stage
from kb.report import Report
from kb.rulebase.rule import ExceptionTest, FaultClass, Pattern
from tests.support.kb_samples import CLOSED, OOM, ref, rule, rulebook, scanned

BOOK = rulebook(
    rule("own", "code_bug", Pattern("e", exception=ExceptionTest("KeyError|OSError"))),
    rule("spike", "loss_spike", Pattern("n", exception=ExceptionTest("AssertionError"))),
    rule("slow", "loss_spike", Pattern("s", regex="loss is high")),
)
STEPS = "".join(f"iteration {step:6d}/   60 | lm loss: 2.{step:03}E+00\n" for step in range(5, 40, 5))
LAST = "iteration     40/   60 | lm loss: 2.040E+00\n"


def raised(function: str, error: str = "KeyError: 'x'", path: str = "/app/train.py") -> str:
    """A traceback of rank 1 whose last frame is in a function."""
    return (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/app/train.py", line 9, in main\n[rank1]:     run()\n'
        f'[rank1]:   File "{path}", line 5, in {function}\n[rank1]:     go()\n[rank1]: {error}\n'
    )


def report_of(text: str, state: str | None = None) -> Report:
    """The report on a log."""
    return diagnose(Evidence(Job(state=state), streams=(scanned(text, BOOK, ref("logs/train.log")),)), BOOK)


@pytest.mark.parametrize(
    ("function", "path", "expected"),
    [
        ("evaluate", "/app/train.py", "evaluating"),
        ("save_checkpoint", "/app/train.py", "saving"),
        ("save", "/lib/torch/serialization.py", "saving"),
        ("load_checkpoint", "/app/train.py", "checkpoint_load"),
        ("save_last_checkpoint", "/app/train.py", "saving"),
        ("create_stream", "/lib/torch/distributed/checkpoint/filesystem.py", "iterating"),
        ("write_data", "/lib/torch/distributed/checkpoint/filesystem.py", "saving"),
        ("read_data", "/lib/torch/distributed/checkpoint/filesystem.py", "checkpoint_load"),
        ("save", "/lib/numpy/lib/_npyio_impl.py", "saving"),
        ("save", "/lib/paddle/framework/io.py", "saving"),
        ("save", "/app/models/gan_model.py", "saving"),
        ("save_network", "/app/base.py", "saving"),
        ("save", "/app/data/tokens.py", "iterating"),
        ("estimate_loss", "/app/train.py", "evaluating"),
        ("compute_loss", "/app/train.py", "iterating"),
        ("init_process_group", "/lib/torch/distributed/distributed_c10d.py", "init"),
        ("initialize", "/lib/deepspeed/__init__.py", "init"),
        ("__init__", "/lib/deepspeed/runtime/engine.py", "init"),
        ("__init__", "/app/engine.py", "iterating"),
        ("save", "/app/plots.py", "iterating"),
        ("evaluate_step_size", "/app/train.py", "iterating"),
        ("evaluate_core", "/app/train.py", "evaluating"),
        ("validate_one_epoch", "/app/train.py", "evaluating"),
        ("validate_args", "/app/train.py", "iterating"),
        ("nondist_validation", "/app/model.py", "evaluating"),
        ("init_device_graphs", "/lib/sglang/srt/model_executor/model_runner.py", "init"),
        ("capture", "/app/camera.py", "iterating"),
    ],
)
def test_a_traceback_names_the_stage(function: str, path: str, expected: Stage) -> None:
    """By the function that runs, whatever was logged last; the phase of the run names the same stage."""
    report = report_of(STEPS + LAST + raised(function, path=path))
    assert (report.diagnoses[0].stage, report.progress.stage) == (expected, expected)


@pytest.mark.parametrize(
    ("function", "call", "expected"),
    [
        ("save", "p = save(model, opt, step, rank, cfg)", "saving"),
        ("save", 'fabric.save(f"ckpt/run-{step}.ckpt", state)', "saving"),
        ("save", "figure.save(path)", "iterating"),
        ("write", "p = save(model, opt)", "iterating"),
        ("dice_eval", "dice_eval(model)", "evaluating"),
        ("literal_eval", "literal_eval(text)", "iterating"),
    ],
)
def test_what_a_call_passes_names_the_stage(function: str, call: str, expected: Stage) -> None:
    """A bare `save` saves a checkpoint where it is given a model, its state, or a checkpoint's name."""
    report = report_of(STEPS + LAST + raised(function).replace("run()", call))
    assert (report.diagnoses[0].stage, report.progress.stage) == (expected, expected)


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (("save_checkpoint", "save_model"), "saving"),
        (("save_checkpoint", "go"), "saving"),
        (("save_checkpoint", "evaluate"), None),
    ],
)
def test_the_ranks_that_waited_name_the_stage_of_a_line_without_frames(
    functions: tuple[str, str], expected: Stage | None
) -> None:
    """They lost the rank there, if they name the same one."""
    book = rulebook(OOM, CLOSED)
    lost = [raised(name, "RuntimeError: Connection closed by peer") for name in functions]
    text = (
        STEPS + LAST + "[rank2]: ERROR spindle 2 holds its thread\n" + lost[0] + lost[1].replace("[rank1]", "[rank0]")
    )
    report = diagnose(Evidence(Job(world_size=3), streams=(scanned(text, book, ref("logs/train.log")),)), book)
    assert report.diagnoses[0].fault == "unknown"
    assert report.diagnoses[0].stage == expected


def test_behind_the_last_planned_step_no_step_need_have_been_running() -> None:
    """What failed may be a save, an evaluation or a summary."""
    ended = STEPS + LAST + "iteration     60/   60 | lm loss: 2.060E+00\n"
    report = report_of(ended + raised("main"))
    assert (report.diagnoses[0].stage, report.progress.stage) == (None, None)
    assert report_of(ended + raised("training_step")).progress.stage == "iterating"


def test_the_outer_frames_of_a_chain_name_the_stage() -> None:
    """The first exception of a chain has only the frames below the handler."""
    handled = "[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n"
    text = STEPS + LAST + raised("write", "OSError: disk full") + handled + raised("save_model", "OSError: disk full")
    assert report_of(text).diagnoses[0].stage == "saving"
    apart = STEPS + LAST + raised("write", "OSError: disk full") + raised("save_model", "OSError: disk full")
    assert report_of(apart).diagnoses[0].stage == "iterating"


def test_what_ended_the_run_came_after_the_last_step_of_all_ranks() -> None:
    """A line of another rank may follow it in the log."""
    report = report_of(STEPS + raised("step") + LAST)
    assert (report.diagnoses[0].iteration, report.progress.last_iteration) == (40, 40)


def test_a_state_that_lasts_is_placed_where_it_began() -> None:
    """A summary at the end of the run reports it again, by a rule that ranks before the one of the first line."""
    book = rulebook(
        rule("summary", "loss_spike", Pattern("s", regex="summary: loss is high")),
        rule("seen", "loss_spike", Pattern("s", regex="check: loss is high"), role="contributing"),
    )
    text = (
        STEPS.replace("iteration     20/", "check: loss is high\niteration     20/") + LAST + "summary: loss is high\n"
    )
    report = diagnose(Evidence(streams=(scanned(text, book, ref("logs/train.log")),)), book)
    (first,) = report.diagnoses
    assert (first.rule, first.iteration) == ("summary", 15)


def test_a_fault_that_a_run_survives_keeps_its_step() -> None:
    """The run goes on after it."""
    report = report_of(STEPS + "loss is high\n" + LAST)
    assert (report.diagnoses[0].iteration, report.phase) == (35, "degraded")


def test_an_exception_of_a_fault_that_others_survive_came_last() -> None:
    """It ended this run, so no rank did a step after it."""
    report = report_of(STEPS + raised("check", "AssertionError: loss is nan") + LAST)
    assert (report.diagnoses[0].iteration, report.phase) == (40, "failed")


def test_a_run_that_died_of_a_fault_that_others_survive_failed() -> None:
    """Its exception ended it; a scheduler that reports success says otherwise."""
    text = STEPS + LAST + raised("check", "AssertionError: loss is nan")
    assert report_of(text).phase == "failed"
    assert report_of(text, "COMPLETED").phase == "degraded"


def test_a_degraded_run_that_completed_is_no_contradiction() -> None:
    """Nothing in its logs reports a failure."""
    gaps = [gap.code for gap in report_of(STEPS + "loss is high\n" + LAST, "COMPLETED").gaps]
    assert "contradiction" not in gaps


def test_no_checkpoint_is_named_for_a_run_that_did_all_its_steps() -> None:
    """There is nothing to resume for."""
    saved = "successfully saved checkpoint at iteration      40 to /ckpt\n"
    whole = STEPS.replace("   60 ", "   40 ") + LAST.replace("   60 ", "   40 ") + saved + "loss is high\n"
    assert report_of(whole).decision.from_checkpoint is None
    assert report_of(whole).progress.stage is None
    part = STEPS + LAST + saved + "loss is high\n"
    assert report_of(part).progress.last_checkpoint == 40


def test_a_save_that_ended_is_not_the_stage_of_the_end() -> None:
    """After it, the run iterates."""
    begun = "saving checkpoint at iteration      40 to /ckpt in torch format\n"
    done = "  successfully saved checkpoint at iteration      40 to /ckpt\n"
    assert report_of(STEPS + LAST + begun + raised("step")).progress.stage == "saving"
    assert report_of(STEPS + LAST + begun + done + raised("step")).progress.stage == "iterating"


def test_a_loop_that_was_only_announced_is_no_stage() -> None:
    """The line before a loop, or its bar at 0, does not show that the loop made a step; frames of a step do."""
    for begun in ("Training starts at step 1\n", "  0%|          | 0/15 [00:00<?, ?it/s]\n"):
        found = report_of(begun + "RuntimeError: it broke\n")
        assert (found.diagnoses[0].stage, found.diagnoses[0].iteration, found.progress.stage) == (None, None, None)
        assert report_of(begun + raised("train_step")).diagnoses[0].stage == "iterating"


def test_a_launcher_that_stops_the_others_begins_no_teardown() -> None:
    """Its lines may come before the traceback of the rank that failed first."""
    stop = "W0420 08:33:44.940000 36108 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 36199 closing signal SIGTERM\n"
    assert report_of(STEPS + stop + raised("go")).diagnoses[0].stage == "iterating"
    assert report_of(stop + raised("train_step")).diagnoses[0].stage == "iterating"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("OSError: [Errno 13] Permission denied: 'checkpoints/iter_0000040'", "saving"),
        ("OSError: [Errno 28] No space left on device: '/out/global_step40/rank_0.pt'", "saving"),
        ("OSError: [Errno 2] No such file or directory: '/data/part-0040.parquet'", "iterating"),
        ("KeyError: 'checkpoints/iter_0000040'", "iterating"),
    ],
)
def test_a_refused_path_of_a_checkpoint_is_of_a_save(error: str, expected: Stage) -> None:
    """Between two steps, a checkpoint is written; before the first, one is read."""
    report = report_of(STEPS + LAST + raised("mkdir", error))
    assert report.diagnoses[0].stage == expected


def test_training_that_is_complete_is_not_resumed() -> None:
    """Only what follows it is left, unless the last checkpoint is older than the last step."""
    saved = "[INFO] saved checkpoint at iteration {} to /out\n"
    over = STEPS + LAST.replace("   60", "   40") + saved.format(40) + "End of training. Time consumed: 1:02:03\n"
    done = report_of(over + raised("evaluate")).decision
    assert (done.from_checkpoint, done.steps_lost) == (None, None)
    assert "only the evaluation is left to run" in done.why
    assert "no step has to run again" in report_of(over + raised("plot")).decision.why
    behind = report_of(over.replace(saved.format(40), saved.format(30)) + raised("evaluate")).decision
    assert (behind.from_checkpoint, behind.steps_lost) == (30, 10)
    assert "complete" not in behind.why


def test_a_checkpoint_is_complete_with_a_part_of_each_rank() -> None:
    """One of two that are at work stored its part of the second."""
    steps = "".join(f"[rank{rank}]: iteration {step}/ 60 | lm loss: 2.0\n" for step in (20, 40) for rank in (0, 1))
    part = "[rank{0}]: stored out/iter_{1:07}/pp_rank_0{0}.pt\n"
    text = steps + part.format(0, 20) + part.format(1, 20) + part.format(0, 40)
    assert report_of(text + raised("go")).progress.last_checkpoint == 20
    assert report_of(text + part.format(1, 40) + raised("go")).progress.last_checkpoint == 40


def test_a_run_whose_end_is_unclear_shows_what_closes_it() -> None:
    """A summary of all steps and the exit of its ranks say more than its last line."""
    leaves = "1: [rank{}]: ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n"
    text = STEPS + LAST + "=== Summary over 40 iterations ===\n" + leaves.format(2) + leaves.format(3)
    report = report_of(text)
    assert (report.verdict, report.progress.stage) == ("insufficient_evidence", "teardown")
    assert [item.why for item in report.indicators.events][:2] == [
        "the training loop is over",
        "ranks 2-3 exit after the last step",
    ]


@pytest.mark.parametrize(
    ("label", "total"), [("Epoch 1/15: ", None), ("Epoch 0: ", None), ("", 1757), ("Training steps: ", 1757)]
)
def test_the_bar_of_an_epoch_is_not_as_long_as_the_run(label: str, total: int | None) -> None:
    """Its label names the epoch."""
    bars = "".join(f"\r{label} 23%|##    | {step}/1757 [02:20<05:49, 1.93it/s]" for step in (417, 418, 419))
    done = report_of(bars + "\n" + raised("go")).progress
    assert (done.last_iteration, done.total_iterations) == (419, total)


def test_a_run_that_its_user_stopped_or_that_reports_its_end_runs_no_more() -> None:
    """Whatever fault it lived with; the interrupt's frames show where it was."""
    interrupt = raised("evaluate", "KeyboardInterrupt", "/app/train.py")
    stopped = report_of("loss is high\n" + STEPS + LAST + interrupt)
    assert (stopped.diagnoses[0].fault, stopped.phase) == ("loss_spike", "stopped")
    ended = report_of("loss is high\n" + STEPS + LAST + "Training completed.\n")
    assert ended.phase == "completed"
    assert report_of("loss is high\n" + STEPS + LAST).phase == "degraded"


def test_a_worker_of_a_loader_fails_in_the_stage_of_its_process() -> None:
    """The frames of the worker, which follow, show none; a rule may know the message alone."""
    text = (
        'Traceback (most recent call last):\n  File "/app/train.py", line 9, in main\n    run()\n'
        '  File "/app/train.py", line 5, in validate\n    next(data)\n  File "/app/reraise.py", line 4, in reraise\n'
        "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "/lib/torch/worker.py", line 202, in _worker_loop\n'
        + "".join(f'  File "/app/data.py", line {line}, in collate_{line}\n' for line in range(20))
        + "KeyError: 'width'\n"
    )
    book = rulebook(rule("width", "code_bug", Pattern("w", regex="^KeyError: 'width'")))
    report = diagnose(Evidence(streams=(scanned(STEPS + LAST + text, book, ref("logs/train.log")),)), book)
    assert report.diagnoses[0].stage == "evaluating"


def test_the_frames_of_another_line_of_a_fault_show_its_stage() -> None:
    """A tracker's own log may report it first, without a traceback."""
    book = rulebook(rule("full", "code_bug", Pattern("f", regex="No space left on device")))
    tracker = scanned("error writing: No space left on device\n", book, ref("logs/debug-internal.log"))
    raising = scanned(STEPS + raised("save_model", "OSError: No space left on device"), book, ref("logs/train.log"))
    report = diagnose(Evidence(streams=(tracker, raising)), book)
    assert report.diagnoses[0].evidence[0].source == "logs/debug-internal.log"
    assert report.diagnoses[0].stage == "saving"


def test_a_checkpoint_that_cannot_be_loaded_is_loaded_at_the_start() -> None:
    """Whatever part of the start its frames show."""
    book = rulebook(rule("resume", "checkpoint_load", Pattern("r", regex="no checkpoint to resume")))
    book = replace(book, faults={**book.faults, "checkpoint_load": FaultClass("checkpoint_load", "software", "Load")})
    text = (
        'Traceback (most recent call last):\n  File "/app/a.py", line 9, in main\nValueError: no checkpoint to resume\n'
    )
    report = diagnose(Evidence(streams=(scanned(text, book, ref("logs/train.log")),)), book)
    assert report.diagnoses[0].stage == "checkpoint_load"


def test_long_after_the_launchers_lines_the_stage_is_not_known() -> None:
    """Its program has printed much since, which may be steps in a form that is not known."""
    launch = "W0503 23:17:25.004 4719 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment variable for each process\n"
    book = rulebook(rule("gone", "code_bug", Pattern("g", regex="^it is gone")))

    def stages(lines: int) -> tuple[str | None, str | None]:
        text = launch + "".join(f"gstep {line} of many\n" for line in range(lines)) + "it is gone\n"
        report = diagnose(Evidence(streams=(scanned(text, book, ref("logs/train.log")),)), book)
        return report.diagnoses[0].stage, report.progress.stage

    assert stages(4) == ("launch", "launch")
    assert stages(40) == (None, None)


def bar(done: int, total: int, label: str = "") -> str:
    """One state of a progress bar."""
    return f"{label}{100 * done // total:3}%|####      | {done}/{total} [00:{done % 60:02}<00:30,  1.50s/it]"


TRAINED = "\r".join(bar(done, 90, "Epoch 3 [Train]: ") for done in range(1, 91)) + "\n"
CALLED = (
    'Traceback (most recent call last):\n  File "/srv/fit.py", line 88, in train\n    out = net(ids)\n'
    "  File \"/opt/lib/torch/nn/modules/module.py\", line 1776, in _call_impl\n    return forward(*args)\nKeyError: 'x'\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRAINED + "\r".join(bar(done, 20, "Epoch 3 [Val]: ") for done in range(7)) + CALLED, "evaluating"),
        (TRAINED + CALLED, "iterating"),
        (TRAINED + "\r".join(bar(done, 20, "Epoch 3 [Val]: ") for done in range(21)) + "\n" + CALLED, "iterating"),
    ],
    ids=["in the bar of an evaluation", "in that of the training", "behind a complete evaluation"],
)
def test_a_function_that_trains_calls_its_model_in_an_evaluation_too(text: str, expected: Stage) -> None:
    """The bar that runs tells the two apart."""
    assert report_of(text).diagnoses[0].stage == expected


def test_a_call_that_was_refused_has_no_frame_and_still_names_the_stage() -> None:
    """The message names the function whose arguments do not fit."""
    book = rulebook(rule("own", "code_bug", Pattern("e", exception=ExceptionTest("TypeError"))))
    for message, expected in (
        ("save_checkpoint() got an unexpected keyword argument 'best'", "saving"),
        ("Trainer.evaluate() missing 1 required positional argument: 'loader'", "evaluating"),
        ("unsupported operand type(s)", "iterating"),
    ):
        text = STEPS + LAST + raised("main", f"TypeError: {message}")
        assert diagnose(Evidence(streams=(scanned(text, book),)), book).diagnoses[0].stage == expected, message


def test_an_unlabelled_bar_at_0_behind_a_traceback_is_no_evaluation() -> None:
    """It may be of any program whose output was appended."""
    train = "\n".join(f"{bar(done, 9, 'Train: ')}" for done in range(1, 7)) + "\n"
    first = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\nOSError: 500\n' + bar(
        6, 9, "Train: "
    )
    other = (
        f"\nat the server\n{bar(0, 8)}\n"
        'Traceback (most recent call last):\n  File "/srv/s.py", line 8, in go\nKeyError: 1\n'
    )
    assert {item.stage for item in report_of(train + first + other).diagnoses} == {"iterating"}


def test_a_line_that_sets_the_loss_scale_is_no_evaluation() -> None:
    """It stands between the steps; a traceback without its end, glued to the bar, ends the run."""
    book = rulebook(rule("scale", "loss_spike", Pattern("s", regex="OVERFLOW")))
    overflow = "[2023-08-07 18:38:05,632] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 0, reducing to 0\n"
    text = f"{bar(4, 900)}\n{bar(5, 900)}{overflow}{bar(6, 900)}"
    cut = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 638, in <module>\n    main()\n'
    for end, expected in (("\n", "degraded"), (cut, "failed")):
        report = diagnose(Evidence(streams=(scanned(text + end, book),)), book)
        assert (report.diagnoses[0].stage, report.phase) == ("iterating", expected)


def test_lines_of_no_known_format_that_count_are_steps() -> None:
    """Also where another log has them; a line before them, or one that does not end the run, is at no such step."""
    laps = "".join(f"node7 lap {lap:4d} residue {9 - lap / 70:.3f}\n" for lap in (80, 90, 100))
    first = report_of(laps + raised("go")).diagnoses[0]
    assert (first.stage, first.iteration) == ("iterating", 100)
    streams = (scanned(laps, BOOK, ref("logs/out.log")), scanned(raised("go"), BOOK, ref("logs/err.log")))
    apart = diagnose(Evidence(streams=streams), BOOK).diagnoses[0]
    assert (apart.stage, apart.iteration) == ("iterating", 100)
    assert report_of(raised("go") + laps).diagnoses[0].iteration is None
    saved = report_of(laps + raised("save_checkpoint")).diagnoses[0]
    assert (saved.stage, saved.iteration) == ("saving", 100)


def test_what_is_refused_before_any_program_runs_is_of_the_launch() -> None:
    """By the class of the fault, the words of whoever refuses, or the frames of the launcher alone."""
    book = rulebook(
        rule("argument", "config_error", Pattern("a", regex="error: unrecognized")),
        rule("room", "unschedulable", Pattern("r", regex="no room")),
        rule("own", "rendezvous", Pattern("e", exception=ExceptionTest("KeyError|ChildFailedError"))),
        rule("met", "rendezvous", Pattern("m", regex="did not meet")),
    )
    faults = {name: FaultClass(name, "software", name) for name in ("config_error", "unschedulable", "rendezvous")}
    book = replace(book, faults={**book.faults, **faults})

    def stage(text: str) -> str | None:
        return (
            diagnose(Evidence(Job(state="FAILED"), streams=(scanned(text, book, ref("logs/a.log")),)), book)
            .diagnoses[0]
            .stage
        )

    agent = raised("next_rendezvous", path="/lib/torch/distributed/elastic/rendezvous/dynamic.py")
    assert stage("usage: fit.py [-h]\nfit.py: error: unrecognized arguments: --lenght 4\n") == "launch"
    assert stage("no room\n") == "launch"
    assert stage(agent) == "launch"
    assert stage(agent.replace("KeyError: 'x'", "ChildFailedError: x")) is None
    assert stage("4 processes did not meet\n") == "init"
    assert stage("torchrun: 4 agents did not meet\n") is None


def test_what_a_program_raises_before_it_states_any_value_is_of_its_start() -> None:
    """A missing file or module; what a step may raise as well, or comes behind values, has no stage."""
    files = rulebook(rule("own", "code_bug", Pattern("e", exception=ExceptionTest("FileNotFoundError|ValueError"))))
    text = 'ready\nTraceback (most recent call last):\n  File "/app/a.py", line 9, in <module>\n    main()\n  File "/app/a.py", line 5, in main\n    go()\n'

    def stage(text: str) -> str | None:
        return diagnose(Evidence(streams=(scanned(text, files, ref("logs/a.log")),)), files).diagnoses[0].stage

    assert stage(text + "FileNotFoundError: vocab\n") == "init"
    assert stage(text + "ValueError: vocab\n") is None
    assert stage("residue 0.25\n" + text + "FileNotFoundError: vocab\n") is None


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ("Starting training!", None),
        ("Starting...", None),
        ("Starting the server", "init"),
        ("Building the model", "init"),
    ],
)
def test_a_start_is_over_where_the_program_says_that_its_work_begins(said: str, stage: Stage | None) -> None:
    """No step is known then, and neither is the stage."""
    report = report_of(f"> initializing torch distributed ...\n{said}\n{raised('compute')}")
    assert (report.diagnoses[0].stage, report.progress.stage) == (stage, stage)
