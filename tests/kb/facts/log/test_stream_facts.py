"""Stage and step of a place in a log."""

from __future__ import annotations

import pytest

from kb.facts.log.stream_facts import StreamFacts
from tests.support.kb_samples import BOOK, scanned

STEPS = "".join(
    f"2026-11-22 20:56:{n:02d},000 - INFO - trainer - step {n}/60 | loss 2.{n} | lr 0.002\n" for n in range(10, 26)
)
BEGIN = "2026-11-22 20:56:34,686 - INFO - trainer - saving checkpoint to checkpoints/step-000025.pt\n"
END = "2026-11-22 20:56:34,748 - INFO - trainer - saved checkpoint checkpoints/step-000025.pt in 0.06 s\n"


def stage_at_end(text: str) -> str | None:
    """The stage behind the last line."""
    return StreamFacts(scanned(text, BOOK)).stage(len(text))


def test_a_run_is_saving_until_the_save_ends() -> None:
    """Events between the end of a save and the next step are not part of the save."""
    assert stage_at_end(STEPS + BEGIN) == "saving"
    assert stage_at_end(STEPS + BEGIN + END) == "iterating"
    assert stage_at_end(STEPS + BEGIN + END + BEGIN) == "saving"


def thread_error(header: str) -> str:
    """What a side thread prints of an error that it does not handle."""
    return (
        f"{header}Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
        '  File "/srv/flush.py", line 9, in flush\n    send()\nOSError: [Errno 5] Input/output error\n'
    )


def test_threads_that_write_at_once_after_the_end_fail_no_run() -> None:
    """Of two tracebacks that are mixed line by line, the second is left without frames; it is the first one's twin."""
    error = thread_error("")
    lines = error.splitlines(keepends=True)
    mixed = STEPS + "Exception in thread flush:\nEnd training....\n" + "".join(line * 2 for line in lines)
    known = StreamFacts(scanned(mixed, BOOK))
    assert [known.went_on(item.offset) for item in known.exceptions] == [True, True]
    other = STEPS + "End training....\n" + error + "OSError: [Errno 28] No space left on device\n"
    known = StreamFacts(scanned(other, BOOK))
    assert [known.went_on(item.offset) for item in known.exceptions] == [True, False]


def test_a_worker_that_works_on_has_handled_its_exception() -> None:
    """A later step was logged, and workers print after it. An exception after the last step may have ended the run."""
    said = "(Rollout pid=811) parsing the answer\n"
    error = '(Rollout pid=811) Traceback (most recent call last):\n(Rollout pid=811)   File "/srv/act.py", line 3, in act\n(Rollout pid=811)     act()\n(Rollout pid=811) TypeError: no answer\n'

    def handled(text: str) -> list[bool]:
        known = StreamFacts(scanned(text, BOOK))
        return [known.went_on(item.offset) for item in known.exceptions]

    step = "step 7 loss 2.0\n"
    assert handled("step 6 loss 2.1\n" + error + step + said * 4) == [True]
    assert handled("step 6 loss 2.1\n" + error + step) == [False]
    assert handled("step 6 loss 2.1\n" + step + error + said * 4) == [False]
    assert handled("step 6 loss 2.1\n" + error + step + error + said * 4) == [True, True]


def test_silence_since_the_main_program_ended() -> None:
    """Nothing but the scheduler's own lines lies between its exception and the stop."""
    error = (
        "Traceback (most recent call last):\n  File \"/srv/fit.py\", line 3, in <module>\n    fit()\nKeyError: 'lr'\n"
    )
    stop = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n"

    def silent(text: str) -> bool:
        return StreamFacts(scanned(text + stop, BOOK)).silent_since_main(len(text))

    assert silent(error)
    assert silent(error + "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n")
    assert not silent(error + "trying the next configuration\n")
    assert not silent(STEPS)
    assert not silent(thread_error(""))


def test_a_thread_that_fails_after_the_end_fails_no_run() -> None:
    """It leaves the exit status alone; before the end, it can be what ended the run."""
    error = thread_error("Exception in thread flush:\n")
    over = "job finished, exit status 0\n"
    after = STEPS + over + error
    assert StreamFacts(scanned(after, BOOK)).went_on(after.index("OSError"))
    assert not StreamFacts(scanned(STEPS + error, BOOK)).went_on((STEPS + error).index("OSError"))
    main = error.replace("/usr/lib/python3.11/threading.py", "/srv/main.py")
    assert not StreamFacts(scanned(STEPS + over + main, BOOK)).went_on((STEPS + over + main).index("OSError"))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("=== Summary over 30 iterations ===\nStep time: 1.8s\n", "teardown"),
        ("2026-11-22 20:57:00,000 INFO: End of training. Time consumed: 2 days\n", "teardown"),
        ("Throughput statistics over 200 iterations\n", "teardown"),
        ("[trainer] Final Training Report\n", "teardown"),
        ("Fine-tuning is finished.\n", "teardown"),
        ("Saving the final weights to /out\n", "teardown"),
        ("Results of 30 steps follow when the run ends\n", "iterating"),
        ("Saving the latest weights, as after each epoch\n", "iterating"),
        ("Training complete!\n***** Running Evaluation *****\n", "evaluating"),
        ("Training complete!\n***** Running Evaluation *****\n***** eval metrics *****\n", "teardown"),
        ("***** Running Evaluation *****\n***** eval metrics *****\n", "evaluating"),
        ("End of training epoch 3\n", "iterating"),
        ("Segmentation fault (core dumped)\nTraining is done.\n", "iterating"),
        ("wandb: Run summary:\nwandb: Synced 6 W&B file(s)\nwandb: Find logs at: ./wandb\n", "iterating"),
    ],
)
def test_the_end_of_the_loop_ends_its_stage(after: str, expected: str) -> None:
    """What a program prints only behind its loop counts, not a rolling save or the end of an epoch."""
    assert stage_at_end(STEPS + after) == expected


def test_a_bar_that_is_drawn_again_behind_the_final_summary_ends_nothing_later() -> None:
    """The trainer prints its summary first, and closes its complete bar then; a bar that goes on is of another training."""
    summary = "{'train_runtime': 119.8, 'train_loss': 1.24, 'epoch': 2.57}\n"
    assert stage_at_end(summary + "\r100%|#| 9/9 [01:58<00:00, 13.1s/it]\nno answer from the store\n") == "teardown"
    assert stage_at_end(summary + "\r 44%|#| 4/9 [01:58<00:00, 13.1s/it]\nno answer from the store\n") == "iterating"


def test_a_step_after_a_closing_line_continues_the_loop() -> None:
    """The first part of a run in several parts ends, too."""
    assert stage_at_end(STEPS + "Training complete!\n" + STEPS) == "iterating"


def test_a_start_long_ago_is_no_stage() -> None:
    """A program of unknown form that has printed much since it loaded its data is past that; a summary of an epoch ends its steps."""
    loads = "Generating train split\n"
    assert stage_at_end(loads + "problem solved\n" * 9 + "Killed\n") == "data_load"
    assert stage_at_end(loads + "problem solved\n" * 40 + "Killed\n") is None
    assert stage_at_end("Running evaluation only...\nKilled\n") == "evaluating"
    assert stage_at_end(STEPS + "*** Training summary for epoch 0\nKilled\n") == "evaluating"


def test_an_exception_of_formatting_another_is_not_what_happened() -> None:
    """The text about the first one was to be printed; an exception in a method that formats counts where nothing came before it."""
    first = 'Traceback (most recent call last):\n  File "/srv/cfg.py", line 7, in build\n    raise TypeError(m)\nTypeError: no files\n'
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    shown = 'Traceback (most recent call last):\n  File "/srv/run.py", line 9, in main\n    print(f"{cfg}")\n  File "<string>", line 3, in __repr__\nAttributeError: no name\n'

    def survived(text: str) -> list[bool]:
        known = StreamFacts(scanned(text, BOOK))
        return [known.went_on(item.offset) for item in known.exceptions]

    assert survived(first + link + shown) == [False, True]
    assert survived(shown) == [False]


def test_a_save_right_before_a_failure_is_the_stage() -> None:
    """A few lines later the loop may have gone on in lines that nothing reads."""
    begun = "Saving the latest model checkpoint to /out\n"
    assert stage_at_end(begun + "watchdog: timeout\n") == "saving"
    assert stage_at_end(begun + "batch done\n" * 9 + "watchdog: timeout\n") is None
    begun = "Saving checkpoint to /out\n"
    assert stage_at_end(begun + "batch done\n" * 9 + "watchdog: timeout\n") == "saving"
    assert stage_at_end(begun + "batch done\n" * 40 + "watchdog: timeout\n") is None


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        (
            "[rank3]: RuntimeError: Detected mismatch between collectives on ranks.\n",
            True,
        ),  # only the end of its traceback is there
        ("[rank3]: 2026-03-01 INFO ValueError: counted 0\n", False),
        ("", False),
    ],
)
def test_an_error_that_nothing_caught_in_a_rank_after_the_end_fails_the_run(line: str, failed: bool) -> None:
    """Torch marks it with the rank, whatever is left of the traceback."""
    text = STEPS + "Training completed.\nevaluating\n" + line + "), requires_grad=false, memory_format=contiguous\n"
    assert StreamFacts(scanned(text, BOOK)).failed_after_end() is failed


def test_a_script_outlives_a_command_that_fails() -> None:
    """Many lines without trouble follow it; few, or an error, do not show that."""
    command = "mkdir: cannot create directory '/home/work/abacus': Permission denied\n"
    later = "".join(f"pass {n} took 0.{n} s\n" for n in range(40))

    def outlived(text: str, line: str = command) -> bool:
        return StreamFacts(scanned(line + text, BOOK)).outlives_command(0, line)

    assert outlived(later)
    assert not outlived(later[:200])
    assert not outlived(later + "Segmentation fault (core dumped)\n")
    assert not outlived(later, "PermissionError: [Errno 13] Permission denied: '/home/work'\n")


@pytest.mark.parametrize(
    ("failed", "later", "completed"),
    [("", "", True), ("-6", "", False), ("-6", "step 4/9 | loss 2.5\n", True)],
)
def test_one_process_that_failed_leaves_the_end_of_the_others_unproven(
    failed: str, later: str, completed: bool
) -> None:
    """Unless steps follow: then the launcher's word is of an earlier attempt."""
    head = "n{}: [2026-03-06 00:17:3{},100] [{}] [launch.py:{}] "
    end = head.format(2, 5, "INFO", "347:main") + "Process 4411 exits successfully.\n"
    exit_ = (
        head.format(3, 3, "ERROR", "321:sigkill_handler")
        + f"['/usr/bin/python3', '-u', 'fit.py'] exits with return code = {failed}\n"
    )
    steps = "".join(f"step {at}/9 | loss 2.5\n" for at in (1, 2, 3))
    known = StreamFacts(scanned(steps + (exit_ if failed else "") + later + end, BOOK))
    assert (known.completed is not None) is completed


@pytest.mark.parametrize(
    ("above", "steps", "went_on"),
    [
        ("ERROR:root:Unable to import plots.\n", 1, True),
        ("ERROR:root:Unable to import plots.\n", 0, False),
        ("reading the settings\n", 1, False),
    ],
)
def test_a_program_goes_on_without_a_module_whose_absence_it_logs(above: str, steps: int, went_on: bool) -> None:
    """One step shows it if a logger wrote the traceback; without that, the step may be another process's."""
    trace = 'Traceback (most recent call last):\n  File "/srv/log.py", line 3, in <module>\n    import plots\n'
    error = "ModuleNotFoundError: No module named 'plots'\n"
    known = StreamFacts(scanned(above + trace + error + "step 1/900 | loss 2.5\n" * steps, BOOK))
    assert known.went_on(len(above + trace)) is went_on


def after_cancellation(*seconds: int) -> bool:
    """Whether a run counts as continued after Slurm cancelled its job, with a step at each of these times."""
    steps = "".join(f"2026-03-02 10:{at // 60:02}:{at % 60:02} step {at}/9000 | loss 2.5\n" for at in (1, 2, 3))
    later = "".join(f"2026-03-02 10:{at // 60:02}:{at % 60:02} step {at}/9000 | loss 2.5\n" for at in seconds)
    line = "slurmstepd: error: *** JOB 4411 ON n7 CANCELLED AT 2026-03-02T10:00:04 ***\n"
    known = StreamFacts(scanned(steps + line + later, BOOK))
    return known.went_on(len(steps))


def test_steps_until_the_kill_do_not_survive_a_cancelled_job() -> None:
    """Slurm leaves the processes some time before it kills them; steps hours later are those of another attempt."""
    assert not after_cancellation(5, 10, 15, 20)
    assert after_cancellation(5, 10, 1200, 1210)


@pytest.mark.parametrize(
    ("later", "went_on"), [((80, 81, 81, 82, 83), False), ((1, 2, 3, 4), True), ((80, 95, 120), True)]
)
def test_an_undated_bar_goes_on_until_the_kill(later: tuple[int, ...], went_on: bool) -> None:
    """It counts on from where it was, for as long as a kill may take; one that begins again is another attempt's."""

    def drawn(*steps: int) -> str:
        return "".join(f"\rfit:  1%|#   | {at}/9000 [02:10<9:10:00,  1.9it/s, loss=2.5]" for at in steps)

    before = "\n" + drawn(78, 79, 80)
    line = "slurmstepd: error: *** JOB 4411 ON n7 CANCELLED AT 2026-03-02T10:00:04 ***\n"
    known = StreamFacts(scanned(before + line + drawn(*later) + "\n", BOOK))
    place = next(item.offset for item in known.summary.structures if item.kind == "slurm_end")
    assert known.went_on(place) is went_on


def after_driver(*later: str) -> bool:
    """Whether a run counts as continued after its driver's main program failed, with these lines behind."""
    error = 'Traceback (most recent call last):\n  File "/srv/drive.py", line 7, in <module>\n    get(parts)\nOSError: [Errno 5] x\n'
    return StreamFacts(scanned(STEPS + error + "".join(later), BOOK)).went_on(len(STEPS))


def test_lines_of_workers_do_not_survive_their_driver() -> None:
    """What a driver forwards can arrive after its failure; its own lines, or steps, show that it went on."""
    forwarded = [f"(work pid=77{n}) step {n}/9000 | loss 2.5\n" for n in range(4000, 4009)]
    assert not after_driver(*forwarded)
    assert after_driver(*(line.partition(") ")[2] for line in forwarded))
    assert after_driver(*forwarded, "driver: the part is computed again\n")
