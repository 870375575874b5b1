"""Ends of tasks and jobs, and signals."""

import pytest

from kb.parsers.logs.launchers import READERS, signal_name
from tests.support.parsing import one, structures


def ends(text):
    """Structures of ended tasks."""
    return [each for each in structures(READERS, text) if each.kind == "launcher_exit"]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("srun: error: cn-b7: task 3: Killed", {"task": 3, "node": "cn-b7", "signal": "SIGKILL"}),
        ("srun: error: cn-b7: task 12: Exited with exit code 1", {"task": 12, "node": "cn-b7", "exitcode": 1}),
        ("srun: error: cn-b7: tasks 0-3,5: Exited with exit code 1", {"task": "0-3,5", "node": "cn-b7", "exitcode": 1}),
        (
            "srun: error: cn-b7: task 0: Segmentation fault (core dumped)",
            {"task": 0, "node": "cn-b7", "signal": "SIGSEGV"},
        ),
        ("srun: error: cn-b7: task 0: Out Of Memory", {"task": 0, "node": "cn-b7", "signal": "SIGKILL"}),
    ],
)
def test_srun(line, fields):
    """The report of srun on a task gives task, node and how it ended."""
    (found,) = ends(line + "\n")
    assert found.fields == {**fields, "launcher": "srun"}
    assert found.resource.node == "cn-b7"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "mpirun noticed that process rank 3 with PID 812 on node cn-b7 exited on signal 9 (Killed).\n",
            {"task": 3, "node": "cn-b7", "signal": "SIGKILL"},
        ),
        (
            "mpiexec noticed that process rank 3 with PID 812 on node cn-b7 exited on\nsignal 6 (Aborted).\n",
            {"task": 3, "node": "cn-b7", "signal": "SIGABRT"},
        ),
        (
            (
                "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
                "the job to be terminated. The first process to do so was:\n\n"
                "  Process name: [[5119,1],6]\n  Exit code:    2\n"
            ),
            {"task": 6, "exitcode": 2},
        ),
        (
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 21.\n",
            {"task": 3, "exitcode": 21},
        ),
        (
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n  Proc: [[31,1],3]\n  Errorcode: 21\n",
            {"task": 3, "exitcode": 21},
        ),
        (
            "Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n",
            {"task": 2, "exitcode": 7},
        ),
        ("application called MPI_Abort(comm=0x84000002, 7) - process 2\n", {"exitcode": 7}),
        (
            "[n4:5689] [[314,0],0] ORTE_ERROR_LOG: Data unpack had inadequate space in file ../orte/util/show_help.c at line 501\n",
            {},
        ),
        (
            (
                "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
                "=   RANK 5 PID 812 RUNNING AT cn-b7\n=   KILLED BY SIGNAL: 9 (Killed)\n"
            ),
            {"task": 5, "node": "cn-b7", "signal": "SIGKILL"},
        ),
        (
            (
                "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
                "=   PID 812 RUNNING AT cn-b7\n=   EXIT CODE: 1\n"
            ),
            {"node": "cn-b7", "exitcode": 1},
        ),
    ],
)
def test_mpirun(text, fields):
    """MPI launchers' sentences and blocks, also where they break over lines."""
    (found,) = ends(text)
    assert found.fields == {**fields, "launcher": "mpirun"}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "cn-b7: rank 21 died from signal 6 and dumped core",
            {"task": 21, "node": "cn-b7", "signal": "SIGABRT", "launcher": "pals"},
        ),
        ("cn-b7: rank 4 exited with code 1", {"task": 4, "node": "cn-b7", "exitcode": 1, "launcher": "pals"}),
        (
            "[2026-05-02 03:04:05,107] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 771",
            {"task": 771, "launcher": "deepspeed"},
        ),
        (
            "[2026-05-02 03:04:05,107] [ERROR] [launch.py:325:sigkill_handler] ['/opt/python', 'fit.py'] exits with return code = -9",
            {"exitcode": -9, "signal": "SIGKILL", "launcher": "deepspeed"},
        ),
        ("pdsh@head: worker-4: ssh exited with exit code 1", {"node": "worker-4", "exitcode": 1, "launcher": "pdsh"}),
        ("/bin/bash: line 1: 771 Killed                  python fit.py", {"signal": "SIGKILL", "launcher": "shell"}),
        (
            "run.sh: line 12: 771 Segmentation fault      (core dumped) python fit.py",
            {"signal": "SIGSEGV", "launcher": "shell"},
        ),
        ("Killed", {"signal": "SIGKILL", "launcher": "shell"}),
        (
            "fish: Job 1, 'python fit.py' terminated by signal SIGSEGV (Address boundary error)",
            {"signal": "SIGSEGV", "launcher": "shell"},
        ),
        (
            "fish: Process 4711, 'python' from job 2, 'python fit.py | tee log' terminated by signal SIGKILL (Forced quit)",
            {"signal": "SIGKILL", "launcher": "shell"},
        ),
        ("Segmentation fault (core dumped)", {"signal": "SIGSEGV", "launcher": "shell"}),
        ("Bus error", {"signal": "SIGBUS", "launcher": "shell"}),
    ],
)
def test_other_launchers(line, fields):
    """PALS, DeepSpeed's launcher, pdsh and shells."""
    (found,) = ends(line + "\n")
    assert found.fields == fields


@pytest.mark.parametrize(
    "line",
    [
        "Killed process 3 (python)",
        "the worker was Killed",
        "Terminated workers: 3",
        "Segmentation fault: address not mapped",
        "srun: error: Nodes cn-b7 are still not ready",
    ],
)
def test_no_end(line):
    """The words within other sentences end nothing."""
    assert ends(line + "\n") == []


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "slurmstepd: error: *** JOB 9912 ON cn-b7 CANCELLED AT 2026-05-02T03:04:05 DUE TO TIME LIMIT ***",
            {"what": "JOB", "job": "9912", "why": "TIME LIMIT"},
        ),
        (
            "0: slurmstepd: error: *** STEP 9912.0 ON cn-b7 CANCELLED AT 2026-05-02T03:04:05 ***",
            {"what": "STEP", "job": "9912.0", "why": ""},
        ),
        (
            "*** JOB 9912_4 ON cn-b7 CANCELLED AT 2026-05-02T03:04:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            {"what": "JOB", "job": "9912_4", "why": "NODE FAILURE"},
        ),
        (
            "*** JOB 9912 ON cn-b7 CANCELLED AT 2026-05-02T03:04:05 DUE TO PREEMPTION ***",
            {"what": "JOB", "job": "9912", "why": "PREEMPTION"},
        ),
    ],
)
def test_slurm_end(line, fields):
    """Slurm's last word on a job or step, with its reason."""
    found = one(READERS, line + "\n")
    assert found.fields == {"node": "cn-b7", "at": "2026-05-02T03:04:05", **fields}
    assert found.resource.node is None  # the batch host, from which the message comes


def test_end_of_a_job_after_a_progress_bar_on_the_same_line():
    """The quoted part of a long line contains Slurm's last word, and begins with a whole character."""
    said = "slurmstepd: error: *** JOB 9912 ON cn-b7 CANCELLED AT 2026-05-02T03:04:05 DUE TO TIME LIMIT ***"
    for more in range(4):
        bars = " ".join(f"{step}%|{'█' * 20}| {step}/90 [00:11]" for step in range(20)) + "#" * more
        found = one(READERS, f"{bars}{said}\n")
        assert said in found.line
        assert "\ufffd" not in found.line
        assert found.fields["why"] == "TIME LIMIT"


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("x.api.SignalException: Process 771 got signal: 15", {"signal": "SIGTERM", "number": 15, "pid": 771}),
        ("Main process received SIGTERM, exiting", {"signal": "SIGTERM", "number": 15}),
        ("[rank: 0] Received SIGUSR1: 10", {"signal": "SIGUSR1", "number": 10}),
        (
            "[cn-b7:771:2:790] Caught signal 11 (Segmentation fault: address not mapped)",
            {"signal": "SIGSEGV", "number": 11, "pid": 771},
        ),
        ("Received signal 15, stopping", {"signal": "SIGTERM", "number": 15}),
        ("Received Signals.SIGTERM death signal, shutting down workers", {"signal": "SIGTERM", "number": 15}),
        (
            "RuntimeError: DataLoader worker (pid 771) is killed by signal: Bus error.",
            {"signal": "SIGBUS", "number": 7, "pid": 771},
        ),
        (
            "WARNING:x.api:Sending process 771 closing signal SIGTERM",
            {"signal": "SIGTERM", "number": 15, "pid": 771, "from": "agent"},
        ),
        ("*** SIGABRT received at time=1777691045 on cpu 3 ***", {"signal": "SIGABRT", "number": 6}),
        ("exiting program after receiving SIGTERM.", {"signal": "SIGTERM", "number": 15}),
    ],
)
def test_signal(line, fields):
    """A process that says which signal it got, or was sent."""
    (found,) = [each for each in structures(READERS, line + "\n") if each.kind == "signal"]
    assert found.fields == fields


@pytest.mark.parametrize(
    ("word", "value", "name"), [(b"Killed", None, "SIGKILL"), (None, -11, "SIGSEGV"), (None, 999, "")]
)
def test_signal_name(word, value, name):
    """A signal's name follows from its words or number; unknown ones have none."""
    assert signal_name(word, value) == name


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "10:00:01 boss | replica 3 on cn-b7 (pid 812) left with status 21 after 3.0s",
            {"task": 3, "node": "cn-b7", "exitcode": 21},
        ),
        ("[boss] rank 3 was killed by signal 9", {"task": 3, "signal": "SIGKILL"}),
        ('level=error msg="worker 3 (pid 812) exited with exit code 7"', {"task": 3, "exitcode": 7}),
        ("boss: trainer 3 died with signal SIGSEGV", {"task": 3, "signal": "SIGSEGV"}),
    ],
)
def test_launchers_of_a_site(line, fields):
    """A sentence with the process's number and how it ended, whatever the words."""
    (found,) = ends(line + "\n")
    assert found.fields == {**fields, "launcher": "own"}
    assert found.resource.rank == 3


@pytest.mark.parametrize(
    "text",
    [
        "boss: rank 3 exited with status 0\n",
        "DataLoader worker 3 (pid 812) exited with status 1\n",
        "worker 3 exited with status 1\n",
        "[rank1]: child: rank 3 exited with status 1\n",
        "boss: stopping 2 remaining ranks\nboss: rank 3 was ended by signal 15\n",
    ],
)
def test_other_ends_of_a_site(text):
    """Good ends, workers that may be no ranks, a rank's own children, and what the launcher stopped itself."""
    assert ends(text) == []
