"""The first step of shipped rules on small logs: it names what the log names, and says what the log does not name."""

from __future__ import annotations

import pytest

from bot.rulebase.loader import Knowledge, knowledge
from kb.scanning.matcher import Matcher
from tests.kb.diagnosis.context.test_texts_of_a_run import GOES_ON, report, words


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def test_an_illegal_access_that_one_rank_reports_sends_nobody_to_look_for_the_first(
    base: tuple[Knowledge, Matcher],
) -> None:
    """Of several that report it, the first one counts; where one does, it is found."""
    error = "torch.AcceleratorError: CUDA error: misaligned address\n"
    begun = "world_size: 8\n"
    one = words(report(base, train=f"{begun}[rank6]: {error}"))
    two = words(report(base, train=f"{begun}[rank6]: {error}[rank3]: {error}"))

    assert "the others follow it" not in one
    assert "the others follow it" in two


def test_the_number_of_an_amd_gpu_is_called_no_host(base: tuple[Knowledge, Matcher]) -> None:
    """`node-6` is the number that the driver gives the device on its host."""
    text = words(report(base, train="HW Exception by GPU node-6 (Agent handle: 0x7f00) reason :GPU Hang\n"))

    assert "node-6: that is the number of the device on its host, not a host" in text
    assert "rocminfo" in text


@pytest.mark.parametrize(
    "died",
    [
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.\n",
        "SystemError: (Fatal) DataLoader process (pid 4711) exited is killed by signal: Killed. (at data_loader.cc:2)\n",
    ],
)
def test_a_loader_worker_that_was_killed_is_looked_up_by_its_number(base: tuple[Knowledge, Matcher], died: str) -> None:
    """With the command that shows OOM kills, and what to change then; a node that is not known is called so."""
    text = words(report(base, train=died))

    assert "process 4711" in text
    assert "dmesg -T | grep -iE" in text
    assert "These logs do not name the node" in text
    assert "num_workers" in text or "workers" in text


FULL_DISK = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/train.py", line 90, in main\n    save(state)\n'
    '  File "/opt/env/lib/python3.11/site-packages/shelf/writer.py", line 12, in put\n    f.write(obj)\n'
    "OSError: [Errno 28] No space left on device\n"
)


def test_the_path_of_a_full_file_system_is_that_of_the_save(base: tuple[Knowledge, Matcher]) -> None:
    """Where the message names none, and a save had begun; else it is said that no path is named."""
    begun = words(report(base, train=f"{GOES_ON}saving checkpoint to /data/out/step_5\n{FULL_DISK}"))
    unknown = words(report(base, train=GOES_ON + FULL_DISK))

    assert "df -h $(dirname /data/out/step_5)" in begun
    assert "do not name its path" in unknown
    assert "do not name its path" not in begun


def test_the_frame_that_raised_is_named_beside_the_line_of_the_run(base: tuple[Knowledge, Matcher]) -> None:
    """The run's own line calls a library, whose innermost frame raised the error."""
    raised = FULL_DISK.rpartition("OSError")[0] + "AttributeError: 'Shelf4' object has no attribute 'rows'\n"
    text = words(report(base, train=raised))

    assert "Open fit/train.py:90 in main" in text.replace("srv/", "")
    assert "at site-packages/shelf/writer.py:12 in put" in text


def test_the_line_of_the_run_is_named_however_deep_the_library_failed(base: tuple[Knowledge, Matcher]) -> None:
    """With the line of the program; the message of an assertion is not repeated, and a loop's own line says nothing."""
    site = "/opt/env/lib/python3.11/site-packages/scores"
    deep = "".join(f'  File "{site}/{name}.py", line 7, in {name}\n    go()\n' for name in "abcd")
    own = 'Traceback (most recent call last):\n  File "/srv/fit/rate.py", line 29, in rate\n    return score(a, b)\n'
    error = "AttributeError: 'Shelf4' object has no attribute 'rows'\n"
    text = words(report(base, train=own + deep + error))
    looped = words(report(base, train=own + deep.replace("in a", "in fit") + error))

    assert "Open srv/fit/rate.py:29 in rate; what it calls raised the error, at scores/d.py:7 in d" in text.replace(
        "site-packages/", ""
    )
    assert "Open srv/fit/rate.py" not in looped
    check = own.replace("return score(a, b)", 'assert a <= b, f"{a} is above {b}"') + "AssertionError: 9 is above 4\n"
    assert "The line is `assert a <= b`." in words(report(base, train=check))


def test_the_steps_between_which_the_gradient_norm_broke_are_named(base: tuple[Knowledge, Matcher]) -> None:
    """Where the loss, if it is logged at all, stays finite."""
    text = "".join(
        f" iteration {n:8d}/    9000 | consumed samples: {n * 8:12d} | elapsed time per iteration (ms): 900.0 | "
        f"learning rate: 1.0E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: {1.5 if n < 41 else 'nan'} |\n"
        for n in range(1, 90)
    )
    told = words(report(base, train=text))

    assert "The gradient norm is NaN or infinite after step 40." in told
    assert "between the logged steps 40 and 41" in told


def test_nobody_is_sent_to_read_a_stack_that_no_log_has(base: tuple[Knowledge, Matcher]) -> None:
    """Of a crash that only a launcher reports; what a process prints of its own crash often has frames."""
    told = "srun: error: node-a: task 3: Exited with exit code 139\n"
    own = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0 (most recent call first):\n  <no Python frame>\n"
    without, printed = words(report(base, slurm=told)), words(report(base, slurm=told, rank_3=own))

    assert "No stack of the crash was recognised in these logs" in without
    assert "No stack of the crash" not in printed


def test_the_worker_that_tensorflow_waited_for_is_named(base: tuple[Knowledge, Matcher]) -> None:
    """The lines below the one that aborts name the remote end; without them, it is said how to find it."""
    abort = "2024-02-03 04:05:06.7: E tensorflow/core/x.cc:2] BaseCollectiveExecutor::StartAbort DEADLINE_EXCEEDED: Deadline\n"
    remote = "Additional GRPC error information from remote target /job:worker/replica:0/task:3:\n"

    assert "log of the worker /job:worker/replica:0/task:3" in words(report(base, worker=abort + remote))
    assert "its log ends before this time" in words(report(base, worker=abort))


def test_an_interrupted_run_says_whether_it_left_a_checkpoint(base: tuple[Knowledge, Matcher]) -> None:
    """Of a run with steps; one that ended before them has none to tell of."""
    stop = 'Traceback (most recent call last):\n  File "/srv/fit/train.py", line 9, in main\n    step()\nKeyboardInterrupt\n'

    assert "No saved checkpoint was recognised" in words(report(base, train=GOES_ON + stop))
    assert "No saved checkpoint was recognised" not in words(report(base, train=stop))
    saved = "saved checkpoint to /data/out/step_5\n"
    assert "from the last complete checkpoint" in words(report(base, train=GOES_ON + saved + stop))


def test_the_line_that_was_told_of_a_fault_in_a_kernel_is_the_first_of_its_chain(
    base: tuple[Knowledge, Matcher],
) -> None:
    """The calls that follow on the same device fail alike, wherever they stand."""
    error = "torch.AcceleratorError: CUDA error: misaligned address\n"
    first = 'Traceback (most recent call last):\n  File "/srv/fit/timing.py", line 62, in measure\n    sync()\n'
    then = 'Traceback (most recent call last):\n  File "/srv/fit/main.py", line 182, in main\n    sync()\n'
    handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
    said = report(base, train=first + error + handled + then + error).diagnoses[0].summary

    assert "It was reported at srv/fit/timing.py:62 in measure" in said.replace("at /srv", "at srv")
