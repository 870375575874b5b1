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
    raised = FULL_DISK.rpartition("OSError")[0] + "ArithmeticError: these rows cannot be scored\n"
    text = words(report(base, train=raised))

    assert "Open /srv/fit/train.py:90 in main" in text
    assert "at site-packages/shelf/writer.py:12 in put" in text


def test_the_line_of_the_run_is_named_however_deep_the_library_failed(base: tuple[Knowledge, Matcher]) -> None:
    """With the line of the program; the message of an assertion is not repeated, and a loop's own line says nothing."""
    site = "/opt/env/lib/python3.11/site-packages/scores"
    deep = "".join(f'  File "{site}/{name}.py", line 7, in {name}\n    go()\n' for name in "abcd")
    own = 'Traceback (most recent call last):\n  File "/srv/fit/rate.py", line 29, in rate\n    return score(a, b)\n'
    error = "ArithmeticError: these rows cannot be scored\n"
    text = words(report(base, train=own + deep + error))
    looped = words(report(base, train=own + deep.replace("in a", "in fit") + error))

    assert "Open /srv/fit/rate.py:29 in rate; what it calls raised the error, at scores/d.py:7 in d" in text.replace(
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

    assert "The gradient norm is not finite after step 40." in told
    assert "between step 40 and step 41" in told


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

    assert "It was reported at /srv/fit/timing.py:62 in measure" in said


FRAME = '  File "/srv/fit/rate.py", line 29, in rate\n    {line}\n'
HEAD = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ('left = table["shelf_id"]', "KeyError: 'shelf_id'", "See at /srv/fit/rate.py:29 in rate which keys there are: 'shelf_id' is not among them."),
        ("self.polish(rows)", "AttributeError: 'Rater' object has no attribute 'polish'", "where the Rater object comes from: it has no polish."),
        ("rate = base * scale", "NameError: name 'scale' is not defined", "Open /srv/fit/rate.py:29 in rate: scale has no value there."),
        ("return shelf.row(3)", "TypeError: row() got an unexpected keyword argument 'deep'", "with the parameters of row: it takes no argument deep."),
        ("return rows.mean()", "AttributeError: 'NoneType' object has no attribute 'mean'", "Find why the value whose mean is asked for at /srv/fit/rate.py:29 in rate is None"),
    ],
)  # fmt: skip
def test_what_an_exception_names_as_absent_is_what_the_first_step_looks_for(
    base: tuple[Knowledge, Matcher], line: str, error: str, said: str
) -> None:
    """With the line at which to look, in place of the values that the line had."""
    text = words(report(base, train=HEAD + FRAME.format(line=line) + error + "\n"))

    assert said in text
    assert "check which values" not in text


def test_a_file_that_is_missing_is_named_as_what_is_at_fault(base: tuple[Knowledge, Matcher]) -> None:
    """Not the settings as a whole; where a save fails, the folder is what is missing."""
    error = "FileNotFoundError: [Errno 2] No such file or directory: './shelves/rate_10.bin'\n"
    read = words(report(base, train=HEAD + FRAME.format(line='open("./shelves/rate_10.bin")') + error))

    assert "ls -ld ./shelves/rate_10.bin" in read
    assert "Look up the setting" not in read


def test_an_exception_without_a_message_sends_nobody_to_its_message(base: tuple[Knowledge, Matcher]) -> None:
    """Its line is what there is to read."""
    text = words(report(base, train=HEAD + FRAME.format(line="raise NotImplementedError") + "NotImplementedError\n"))

    assert "in the message" not in text


IMPORT = 'Traceback (most recent call last):\n  File "{file}", line 1, in <module>\n    {line}\n{error}\n'


def test_a_package_that_asks_itself_for_a_name_is_not_called_circular(base: tuple[Knowledge, Matcher]) -> None:
    """No other module is between; a file that finds itself has the name of a package, and a real cycle stays one."""
    words_of = "ImportError: cannot import name '{name}' from partially initialized module '{module}' (most likely due to a circular import) ({file})"
    own = IMPORT.format(
        file="/srv/fit/shelves/__init__.py",
        line="from shelves import oak, elm",
        error=words_of.format(name="elm", module="shelves", file="/srv/fit/shelves/__init__.py"),
    )
    itself = IMPORT.format(
        file="/srv/fit/numpy.py",
        line="from numpy import zeros",
        error=words_of.format(name="zeros", module="numpy", file="/srv/fit/numpy.py"),
    )
    cycle = IMPORT.format(
        file="/srv/fit/shelves/oak.py",
        line="from shelves import elm",
        error=words_of.format(name="elm", module="shelves", file="/srv/fit/shelves/__init__.py"),
    )

    assert "if it has no module elm, spelled so, add it" in words(report(base, train=own))
    assert "Rename the file" in words(report(base, train=itself))
    assert "move the import into the function" in words(report(base, train=cycle))


def test_a_script_below_the_folder_that_it_imports_is_started_from_above(base: tuple[Knowledge, Matcher]) -> None:
    """Python searches the folder of the script; steps of an earlier program are not its stage."""
    error = "ModuleNotFoundError: No module named 'shelves'"
    steps = "".join(f"step {n} loss {2.0 - n / 100:.3f}\n" for n in range(1, 40))
    below = report(
        base, train=steps + IMPORT.format(file="/srv/fit/shelves/rate.py", line="import shelves.oak", error=error)
    )
    apart = report(base, train=IMPORT.format(file="/srv/fit/rate.py", line="import shelves", error=error))

    assert "Start the script from there with python -m" in words(below)
    assert (below.diagnoses[0].stage, below.diagnoses[0].iteration) == ("init", None)
    assert "Start the script from there" not in words(apart)


def test_epochs_are_not_told_as_steps(base: tuple[Knowledge, Matcher]) -> None:
    """A log that counts only epochs says after which epoch the loss broke."""
    text = "".join(
        f"Epoch: {n}/60 Train accuracy: 0.31 Loss {0.71 - n / 100:.3f} Time taken: 0:00:45\n" for n in range(1, 9)
    )
    text += "".join(f"Epoch: {n}/60 Train accuracy: 0.11 Loss nan Time taken: 0:00:45\n" for n in range(9, 61))
    told = words(report(base, train=text))

    assert "after epoch 8" in told
    assert "step 0" not in told


def test_a_gradient_that_never_was_finite_is_not_answered_with_a_lower_learning_rate(
    base: tuple[Knowledge, Matcher],
) -> None:
    """The first backward pass gave it, before any update."""
    text = "".join(
        f"{{'loss': 0.61, 'grad_norm': nan, 'learning_rate': 1e-06, 'epoch': {n / 100:.2f}}}\n" for n in range(1, 60)
    )
    told = words(report(base, train=text))

    assert "Find the first operation whose gradient is not finite" in told
    assert "learning rate" not in told


def test_what_the_shell_says_after_the_launcher_is_no_line_of_a_rank(base: tuple[Knowledge, Matcher]) -> None:
    """The launcher had reported the end of that rank."""
    block = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\nfit.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2024-05-02_10:11:12\n  host      : cn-7\n  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : 2 (pid: 4711)\n  error_file: <N/A>\n"
        "============================================================\n"
    )
    after = report(base, train=block + "./fit.sh: 15: --warmup: not found\n")

    assert after.diagnoses[0].rule == "script-line-broken"
    assert not after.diagnoses[0].suspects


def test_the_time_limit_names_what_the_log_states_of_it(base: tuple[Knowledge, Matcher]) -> None:
    """The directive of the job script, and the time that the scheduler counted."""
    text = (
        "#BSUB -W 90\n#BSUB -J rate\n\nTERM_RUNLIMIT: job killed after reaching LSF run time limit.\n"
        "    Run time :                                   5410 sec.\n"
    )

    assert "(-W 90, run time 5410 s)" in words(report(base, train=text))


def test_the_port_of_the_process_group_is_called_that(base: tuple[Knowledge, Matcher]) -> None:
    """Where the traceback ends in the store; another server's port stays one of several candidates."""
    store = (
        'Traceback (most recent call last):\n  File "/srv/fit/rate.py", line 29, in main\n    dist.init_process_group("gloo")\n'
        '  File "/opt/env/lib/python3.9/site-packages/torch/distributed/rendezvous.py", line 95, in _env_rendezvous_handler\n'
        "    store = TCPStore(host, port, size, True)\nRuntimeError: Address already in use\n"
    )
    other = "OSError: [Errno 98] Address already in use\n"

    assert "at which the ranks of the job meet" in words(report(base, train=store))
    assert "at which the ranks of the job meet" not in words(report(base, train=other))


def test_a_few_quick_units_of_a_bar_are_no_steps(base: tuple[Knowledge, Matcher]) -> None:
    """A bar over the two splits of a dataset counts no training."""
    text = (
        "  0%|          | 0/2 [00:00<?, ?it/s]100%|##########| 2/2 [00:00<00:00, 10.90it/s]\n"
        "Running tokenizer on dataset:  10%|#         | 80/814 [02:10<19:50,  1.62s/ba]\n"
        "[E ProcessGroupNCCL.cpp:821] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
        "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1805914 milliseconds before timing out.\n"
    )
    found = report(base, train=text)

    assert found.progress.epoch_iteration is None
    assert found.diagnoses[0].epoch_iteration is None


def test_what_a_server_has_no_space_for_is_not_sought_on_the_node(base: tuple[Knowledge, Matcher]) -> None:
    """The status of the answer is about the server's storage."""
    error = "requests.exceptions.HTTPError: 507 Server Error: Insufficient Storage for url: http://tracker.lab:8080/storage\n"
    text = words(report(base, train=HEAD + FRAME.format(line="answer.raise_for_status()") + error))

    assert "server tracker.lab:8080" in text
    assert "df -h" not in text


def test_a_folder_in_place_of_a_file_is_not_called_missing(base: tuple[Knowledge, Matcher]) -> None:
    """It is there."""
    raised = "Traceback (most recent call last):\n  File \"/srv/fit/train.py\", line 90, in main\n    read(path)\nIsADirectoryError: [Errno 21] Is a directory: '/data/set7'\n"
    folder = words(report(base, train=raised))

    assert "/data/set7 is a folder" in folder
    assert "exists" not in folder


def test_a_line_that_names_a_rank_accuses_no_more_than_that(base: tuple[Knowledge, Matcher]) -> None:
    """Its node alone would say less."""
    steps = "".join(f"iteration {n}/1000 loss 2.{n:03}\n" for n in range(1, 30))
    stopped = "srun: Terminating StepId=991.0\nsrun: error: cn10: tasks 0-3: Terminated\nsrun: error: cn12: tasks 4,6-7: Terminated\n"
    crash = f"{steps}srun: error: cn12: task 5: Segmentation fault (core dumped)\n{stopped}"
    suspects = report(base, train=crash).diagnoses[0].suspects

    assert [(item.rank, item.node) for item in suspects] == [(5, "cn12")]
