"""Which processes write a job's logs: on a folder made like /proc, and on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from connectors.host.processes import Host, ProcessSelector
from tests.support.made_proc import Proc


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """An empty /proc, which psutil reads."""
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "stat").write_text("btime 1772622000\n")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
    return Proc(folder)


@pytest.fixture
def logs(tmp_path):
    """The folder of the logs."""
    folder = tmp_path / "job-4711" / "logs"
    folder.mkdir(parents=True)
    return folder


def found(logs, job=None):
    """Rank → pid, and the codes of the gaps."""
    ranks, gaps = Host().ranks(ProcessSelector(logs=logs, job=job))
    return {item.rank: item.main.pid for item in ranks}, [gap.code for gap in gaps]


def test_ranks_are_found_by_the_logs_that_they_write(proc, logs):
    """Each rank has its log open for writing; a reader of the log, with a rank in its environment too, is none."""
    for rank in (0, 1):
        proc.add(50 + rank, RANK=rank, WORLD_SIZE=2, MASTER_PORT=29500)
        proc.opens(50 + rank, 1, logs / f"rank-{rank}.log")
    proc.add(60, command="tail -f rank-0.log", RANK=7, MASTER_PORT=1)
    proc.opens(60, 3, logs / "rank-0.log", writes=False)
    proc.add(70, RANK=0, WORLD_SIZE=2, MASTER_PORT=29600)  # another job
    assert found(logs) == ({0: 50, 1: 51}, [])


@pytest.mark.parametrize(
    "command", ["python3 /opt/bin/signalbox watch a --logs {}", "python3 -m bot.cli watch a --logs {}"]
)
def test_another_watch_of_the_same_logs_is_no_rank(proc, logs, command):
    """It names the logs and runs Python, and its end is not the job's."""
    proc.add(50, command=command.format(logs))
    ranks, gaps = Host().ranks(ProcessSelector(logs=logs))
    assert (ranks, [gap.code for gap in gaps]) == ((), ["no_processes"])
    assert "no process on this host" in gaps[0].reason
    proc.add(60, command=f"python3 train.py {logs}")
    assert found(logs)[0] == {0: 60}
    named, _ = Host().ranks(ProcessSelector(pattern="watch|train.py"))
    assert [item.main.pid for item in named] == [60]


def test_a_rank_whose_output_goes_through_tee_is_found_with_the_others_of_its_job(proc, logs):
    """`train.py | tee log` on rank 0; rank 1 of the same job writes elsewhere."""
    proc.add(50, RANK=0, WORLD_SIZE=2, MASTER_PORT=29500)
    proc.opens(50, 1, "pipe:[4242]")
    proc.add(51, RANK=1, WORLD_SIZE=2, MASTER_PORT=29500)
    proc.add(40, command="tee train.log")
    proc.opens(40, 0, "pipe:[4242]", writes=False)
    proc.opens(40, 3, logs / "train.log")
    assert found(logs) == ({0: 50, 1: 51}, [])


def test_the_ranks_of_a_launcher_that_names_the_folder_are_found(proc, logs):
    """With `torchrun --log-dir`, ranks write below it or elsewhere; the launcher itself is never a rank."""
    proc.add(40, command=f"python -m torch.distributed.run --log-dir {logs} train.py")
    proc.opens(40, 1, logs / "launcher.log")
    assert found(logs) == ({}, ["no_processes"])
    proc.add(50, parent=40, RANK=3, WORLD_SIZE=8)
    proc.add(51, parent=50, RANK=3, WORLD_SIZE=8, command="python -c spawn_main")
    assert found(logs) == ({3: 50}, [])


def test_a_job_id_in_the_path_or_given_ties_ranks_to_their_logs(proc, logs):
    """Slurm's job id is part of the folder's name, or the name that the user gave."""
    proc.add(50, RANK=0, SLURM_JOB_ID=4711)
    proc.add(60, RANK=0, SLURM_JOB_ID=4712)
    assert found(logs) == ({0: 50}, [])
    assert found(logs, "4712") == ({0: 60}, [])
    other = logs.parent.parent / "other"
    other.mkdir()
    assert found(other) == ({}, ["no_processes"])


def test_where_two_jobs_may_write_the_logs_none_is_taken(proc, logs):
    """Two jobs that only share a working directory above the folder: neither is chosen, and a gap says so."""
    for pid, port in ((50, 29500), (60, 29600)):
        proc.add(pid, RANK=0, MASTER_PORT=port)
        proc.works_in(pid, logs.parent)
    assert found(logs) == ({}, ["processes_ambiguous"])
    proc.remove(60)
    assert found(logs) == ({0: 50}, [])


def test_a_single_process_without_a_rank_is_rank_0(proc, logs):
    """`python train.py > train.log`, with worker processes of its loader; the shell that started it is not a rank."""
    proc.add(40, command="bash run.sh")
    proc.opens(40, 1, logs / "train.log")
    proc.add(50, parent=40)
    proc.opens(50, 1, logs / "train.log")
    proc.add(51, parent=50)
    proc.opens(51, 1, logs / "train.log")
    proc.add(52, parent=50)
    proc.opens(52, 1, logs / "train.log")
    assert found(logs) == ({0: 50}, ["ranks_by_pid"])


def test_a_script_that_writes_its_log_is_a_process_of_the_job(proc, logs):
    """Not what copies lines to the log, what waits for a launcher, or what only names the folder."""
    proc.add(40, command="bash run.sh")
    proc.opens(40, 1, logs / "train.log")
    proc.add(41, command="sleep 1", parent=40)
    proc.opens(41, 1, logs / "train.log")
    assert found(logs) == ({0: 40}, ["ranks_by_pid"])

    proc.add(42, command="srun ./a.out", parent=40)
    assert found(logs) == ({}, ["no_processes"])


@pytest.mark.parametrize("command", ["tee {}/train.log", "/usr/bin/tee -a {}/train.log"])
def test_what_copies_lines_to_a_log_is_no_process_of_the_job(proc, logs, command):
    """Nor is a shell that names the folder and writes no log."""
    proc.add(40, command=command.format(logs))
    proc.opens(40, 3, logs / "train.log")
    proc.add(50, command=f"bash run.sh {logs}")
    assert found(logs) == ({}, ["no_processes"])


def test_a_shell_that_wraps_a_rank_gives_way_to_the_program(proc):
    """`srun bash -c "python train.py"`: both have the rank, and the stacks are those of Python."""
    proc.add(40, command="bash wrap.sh train", SLURM_PROCID=2)
    proc.add(50, parent=40, SLURM_PROCID=2)
    ranks, _ = Host().ranks(ProcessSelector(pattern="train"))
    assert [(item.rank, item.main.pid) for item in ranks] == [(2, 50)]


def test_a_pattern_may_end_a_word_of_the_command_line(proc):
    """`train.py$` matches the program of that name with any arguments; `^python` matches the start of the whole line."""
    proc.add(50, command="python /opt/job/train.py --lr 1e-4", RANK=0)
    proc.add(60, command="python /opt/job/train.pyx --lr 1e-4", RANK=1)
    for pattern in (r"train\.py$", r"^python .*train\.py --lr"):
        ranks, _ = Host().ranks(ProcessSelector(pattern=pattern))
        assert [item.main.pid for item in ranks] == [50], pattern


def test_real_processes_are_found_and_found_anew_after_a_restart(tmp_path):
    """Two real processes that write logs, one of them started again: the new one is the rank."""
    logs = tmp_path / "logs"
    logs.mkdir()
    host, wanted = Host(), ProcessSelector(logs=logs)

    def start(rank):
        with (logs / f"rank-{rank}.log").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-c", "import time; print('step 1', flush=True); time.sleep(120)"],
                stdout=out,
                env={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(os.getpid())},
            )

    def seen(wanted_pids):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pids = [item.main.pid for item in host.ranks(wanted)[0]]
            if pids == wanted_pids:
                return True
            time.sleep(0.3)  # each look goes through all processes of the machine
        return False

    children = [start(0), start(1)]
    try:
        assert seen([child.pid for child in children])
        children[1].kill()
        children[1].wait()
        assert seen([children[0].pid])
        children[1] = start(1)
        assert seen([child.pid for child in children])
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert host.ranks(wanted)[0] == ()
