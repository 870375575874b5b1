"""This host's processes, on a folder made like /proc and with programs made like py-spy; and on the real ones, if py-spy is available."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import connectors.host.processes
from connectors.base.commands import run_bounded
from connectors.host.ebpf import Probes
from connectors.host.kernel_log import KernelLog
from connectors.host.nccl_ras import RasSource
from connectors.host.processes import Host, ProcessSelector
from tests.support.made_proc import Proc

DUMP = '[{"pid": 1, "thread_id": 1, "thread_name": "MainThread", "frames": []}]'


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """An empty /proc, which psutil reads."""
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "stat").write_text("btime 1772622000\n")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
    return Proc(folder)


def program(path: Path, text: str) -> str:
    """A program in the shell's language."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ranks(**wanted):
    """Rank → (pid, pids of its children), and the codes of the gaps."""
    found, gaps = Host().ranks(ProcessSelector(**wanted))
    return {item.rank: (item.main.pid, [each.pid for each in item.children]) for item in found}, [
        gap.code for gap in gaps
    ]


# Who runs here


def test_a_launcher_is_no_rank_and_loader_workers_are_children(proc):
    """Of the processes that match a pattern, those with a RANK are ranks, and their descendants belong to them."""
    proc.add(40, command="python torchrun train.py", SLURM_PROCID=0)
    for rank in (0, 1):
        proc.add(50 + rank, parent=40, RANK=4 + rank, LOCAL_RANK=rank, WORLD_SIZE=16)
        proc.add(60 + rank, parent=50 + rank, RANK=4 + rank)
    assert ranks(pattern="train") == ({4: (50, [60]), 5: (51, [61])}, [])
    found, _ = Host().ranks(ProcessSelector(pids=(50,)))
    assert found[0].main.world_size == 16


def test_without_any_rank_they_are_numbered_and_that_is_reported(proc):
    """Processes that do not state their rank get numbers, and a gap says so."""
    proc.add(70)
    proc.add(71)
    proc.add(72, parent=71)
    assert ranks(pids=(71, 70, 72)) == ({0: (70, []), 1: (71, [72])}, ["ranks_by_pid"])


def test_children_of_one_launcher_are_the_ranks(proc):
    """If one process started all the others, it is their launcher."""
    proc.add(80)
    proc.add(81, parent=80)
    proc.add(82, parent=80)
    assert ranks(pattern="train")[0] == {0: (81, []), 1: (82, [])}


def test_two_that_claim_one_rank_are_reported(proc):
    """Of two unrelated processes with one rank the older is used, with a gap."""
    proc.add(90, started=900, RANK=3)
    proc.add(91, started=500, RANK=3)
    assert ranks(pids=(90, 91)) == ({3: (91, [])}, ["rank_twice"])


def test_nobody_there_is_a_gap(proc):
    """A pattern or a pid without a process is not an error; zombies are ignored."""
    proc.add(95, state="Z", RANK=0)
    assert ranks(pids=(95, 96)) == ({}, ["no_processes"])
    assert ranks(pattern="nothing like it") == ({}, ["no_processes"])


def test_odd_files_of_proc_are_nobody(proc):
    """Entries that are cut, empty or not text do not stop the scan."""
    for pid, text in ((11, b""), (12, b"12 (x"), (13, b"\xff\xfe) \xff"), (14, b"14 (a) S x y")):
        (proc.root / str(pid)).mkdir(parents=True)
        (proc.root / str(pid) / "stat").write_bytes(text)
    proc.add(15, RANK="9" * 40)
    assert ranks(pids=(11, 12, 13, 14, 15)) == ({0: (15, [])}, ["ranks_by_pid"])


def test_another_process_with_the_same_pid_is_not_the_same(proc):
    """A reused pid is not taken for the process that had it before."""
    proc.add(21, started=100)
    host = Host()
    old = host.ranks(ProcessSelector(pids=(21,)))[0][0].main
    assert host.alive(old)
    proc.add(21, started=200)
    assert not host.alive(old)


def test_a_library_is_found_in_the_maps(proc, tmp_path):
    """The file of a library is the one that the process has mapped."""
    library = tmp_path / "libnccl.so.2.27"
    library.touch()
    proc.add(22)
    (proc.root / "22" / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 99    {library}\n7f02-7f03 rw-p 0 00:00 0\n")
    assert Host().library(22, "libnccl.so") == library
    assert Host().library(22, "libcudart.so") is None


# Their stacks


def stacks(spy, **wanted):
    """One round: (rank, child) of each dump, and the gaps by code."""
    host = Host(spy)
    dumps, gaps = host.stacks(host.ranks(ProcessSelector(**wanted))[0])
    return [(dump.rank, dump.child) for dump in dumps], {gap.code: gap.reason for gap in gaps}


def test_a_missing_py_spy_says_what_to_install(proc, tmp_path):
    """Without py-spy only the kernel's place is known, and the gap says how to install it."""
    proc.add(30, RANK=0)
    found, gaps = stacks(str(tmp_path / "none"), pids=(30,))
    assert found == [(0, False)]  # where the kernel holds it
    assert "pip install py-spy" in gaps["py_spy_missing"]


def test_ranks_come_with_their_python_children(proc, tmp_path):
    """Main processes with C frames, Python children without them, and no other processes."""
    proc.add(30, RANK=0)
    proc.add(31, parent=30, RANK=0)
    proc.add(32, parent=30, command="nvidia-smi dmon")
    said = tmp_path / "said"
    spy = program(tmp_path / "spy", f"echo \"$@\" >> {said}\necho '{DUMP}'")
    assert stacks(spy, pids=(30,)) == ([(0, False), (0, True)], {})
    assert sorted(said.read_text().splitlines()) == ["dump --json --native --pid 30", "dump --json --pid 31"]


def test_where_c_frames_fail_pythons_own_will_do(proc, tmp_path):
    """A process that cannot be unwound is asked again without --native, and from then on always so."""
    proc.add(30, RANK=0)
    said = tmp_path / "said"
    spy = program(tmp_path / "spy", f'echo "$@" >> {said}\ncase "$*" in *--native*) exit 1;; esac\necho \'{DUMP}\'')
    host = Host(spy)
    found, _ = host.ranks(ProcessSelector(pids=(30,)))
    for _ in range(2):
        dumps, gaps = host.stacks(found)
        assert (len(dumps), gaps) == (1, ())
    assert said.read_text().count("--native") == 1


@pytest.mark.parametrize("state", ["T", "D", "t"])
def test_a_process_that_is_stopped_or_blocked_is_not_attached_to(proc, tmp_path, state):
    """py-spy would fail on it or wait with it, so it is read from outside."""
    proc.add(30, state=state, RANK=0)
    spy = program(tmp_path / "spy", f"case \"$*\" in *--nonblocking*) echo '{DUMP}';; *) exit 1;; esac")
    assert stacks(spy, pids=(30,)) == ([(0, False)], {})


def test_a_refusal_says_what_is_needed(proc, tmp_path):
    """Permission denied is reported with the ways to obtain it."""
    proc.add(30, RANK=0)
    spy = program(tmp_path / "spy", "echo 'Error: Permission Denied: try again' >&2; exit 1")
    assert "CAP_SYS_PTRACE" in stacks(spy, pids=(30,))[1]["stacks_not_taken"]


def test_a_process_that_ends_on_the_way_is_a_gap(proc, tmp_path):
    """A process that is gone when its turn comes is reported, and the others are sampled."""
    proc.add(30, RANK=0)
    proc.add(31, RANK=1)
    host = Host(program(tmp_path / "spy", f"echo '{DUMP}'"))
    found, _ = host.ranks(ProcessSelector(pids=(30, 31)))
    proc.remove(30)
    dumps, gaps = host.stacks(found)
    assert ([dump.rank for dump in dumps], [gap.code for gap in gaps]) == ([1], ["process_gone"])


def test_a_wish_to_stop_ends_a_round(proc, tmp_path):
    """No more processes are sampled after a request to stop."""
    proc.add(30, RANK=0)
    host = Host(program(tmp_path / "spy", f"echo '{DUMP}'"))
    dumps, gaps = host.stacks(host.ranks(ProcessSelector(pids=(30,)))[0], lambda: True)
    assert (dumps, [gap.code for gap in gaps]) == ((), ["stacks_left_out"])


def test_a_dump_that_hangs_is_given_up(proc, tmp_path, monkeypatch):
    """py-spy has a time limit."""
    monkeypatch.setattr(connectors.host.processes, "DUMP_SECONDS", 0.2)
    proc.add(30, RANK=0)
    spy = program(tmp_path / "spy", "exec sleep 60")
    begun = time.monotonic()
    assert "timed out after" in stacks(spy, pids=(30,))[1]["stacks_not_taken"]
    assert time.monotonic() - begun < 40


def test_a_process_that_a_killed_py_spy_left_stopped_goes_on(tmp_path, monkeypatch):
    """A sampler must not stop the job: a process that it leaves stopped is sent SIGCONT."""
    monkeypatch.setattr(connectors.host.processes, "DUMP_SECONDS", 0.4)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={"RANK": "0"}) as child:
        try:
            spy = program(tmp_path / "spy", f"kill -STOP {child.pid}; exec sleep 20")
            host = Host(py_spy=spy, native=False)
            deadline = time.monotonic() + 60
            while not (found := host.ranks(ProcessSelector(pids=(child.pid,)))[0]) and time.monotonic() < deadline:
                time.sleep(0.02)
            host.stacks(found)
            state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state in "RS"
        finally:
            child.kill()


# Commands, kernel log, RAS


def test_a_command_is_bounded_in_time_and_output(tmp_path):
    """A command that runs too long or prints too much is cut, which is reported; so is a missing command."""
    assert (
        run_bounded([program(tmp_path / "a", "yes | head -c 100000")], 5, 1000).trouble
        == "printed more than 1000 bytes"
    )
    slow = run_bounded([program(tmp_path / "b", "echo one; sleep 60")], 2.0)
    assert slow.output == b"one\n"
    assert "timed out" in slow.trouble
    assert "cannot be run" in run_bounded([str(tmp_path / "none")], 1).trouble
    assert run_bounded([program(tmp_path / "c", "echo why >&2; exit 3")], 5).trouble == "why"


def test_of_the_kernel_log_only_what_is_new_counts(tmp_path):
    """Lines from before the watch do not count; each new line is returned once."""
    log = tmp_path / "ring"
    line = "2026-03-04T11:%s,000000+00:00 NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    log.write_text(line % "00:00")
    begun = 1772622000.0 + 1800  # 11:30
    kernel = KernelLog(begun, command=["cat", str(log)], files=())
    assert not kernel.poll()
    log.write_text(line % "00:00" + line % "30:05")
    assert kernel.poll()
    assert kernel.text.decode() == line % "30:05"
    assert not kernel.poll()


def test_where_dmesg_is_refused_the_loggers_file_is_followed(tmp_path):
    """New lines of the system logger's file are returned, even after it is rotated; earlier ones are not."""
    refused = program(
        tmp_path / "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    )
    log = tmp_path / "kern.log"
    log.write_text("old\n")
    kernel = KernelLog(0.0, command=[refused], files=(log,))
    kernel.poll()
    with log.open("a") as handle:
        handle.write("new\nhal")
    assert kernel.poll()
    log.rename(tmp_path / "kern.log.1")
    log.write_text("next\n")
    assert kernel.poll()
    assert kernel.text == b"new\nnext\n"


def test_no_kernel_log_at_all_is_a_gap(tmp_path):
    """If reading is not permitted, the gap says what would help."""
    kernel = KernelLog(0.0, command=[str(tmp_path / "none")], files=(tmp_path / "no.log",))
    assert not kernel.poll()
    assert [gap.code for gap in kernel.gaps] == ["kernel_log_unreadable"]


def test_ras_answers_come_from_a_folder_or_a_command(tmp_path):
    """Files of a folder are read once each, in order; a command's output at each look; its failure is a gap."""
    folder = tmp_path / "ras"
    folder.mkdir()
    for number, text in ((2, b"b"), (1, b"a")):
        (folder / f"{number}.json").write_bytes(text)
        os.utime(folder / f"{number}.json", (number, number))
    source = RasSource(str(folder))
    assert source.poll(9.0) == (((1.0, b"a"), (2.0, b"b")), ())
    assert source.poll(9.0) == ((), ())
    assert RasSource("echo hello").poll(9.0) == (((9.0, b"hello\n"),), ())
    assert [gap.code for gap in RasSource("/nowhere/ncclras -f json").poll(9.0)[1]] == ["ras_no_answer"]
    assert [gap.code for gap in RasSource('ncclras "').poll(9.0)[1]] == ["ras_no_answer"]


def test_ebpf_programs_run_where_they_may(tmp_path, monkeypatch):
    """Programs whose library is not loaded are reported; the others write to bounded files, and end with the watch."""
    monkeypatch.setattr("connectors.host.ebpf.os.geteuid", lambda: 0)
    monkeypatch.setattr("connectors.host.ebpf.MOST_OUTPUT", 100_000)
    spool = tmp_path / "spool"
    spool.mkdir()
    trace = program(
        tmp_path / "trace",
        "case \"$*\" in *offcpu*) echo no BTF >&2; exit 1;; *dstate*) yes;; esac\necho '{}'; exec sleep 60",
    )
    probes = Probes(tmp_path, spool, trace)
    gaps = probes.start({"libnccl.so": tmp_path / "libnccl.so"})
    assert {gap.source for gap in gaps} == {"ebpf/gloo", "ebpf/step", "ebpf/cuda"}
    told: dict[str, str] = {}
    deadline = time.monotonic() + 60
    while len(told) < 2 and time.monotonic() < deadline:
        told |= {gap.source: gap.code for gap in probes.poll()}
        time.sleep(0.05)
    assert told == {"ebpf/offcpu": "ebpf_ended", "ebpf/dstate": "ebpf_stopped"}
    probes.stop()
    found = probes.outputs()
    assert found["nccl"] == b"{}\n"
    assert len(found["dstate"]) <= 100_000
    assert [gap.code for gap in Probes(tmp_path, spool, "no-such-bpftrace").start({})] == ["ebpf_missing"]


def test_real_processes_are_sampled():
    """A real Python process that waits shows the function in which it waits."""
    spy = shutil.which("py-spy") or shutil.which(str(Path(sys.executable).with_name("py-spy")))
    if spy is None:
        pytest.skip("py-spy is not installed here")
    text = "import threading\ndef stands_here():\n    threading.Event().wait()\nstands_here()"
    with subprocess.Popen([sys.executable, "-c", text], env={"RANK": "6", "WORLD_SIZE": "8"}) as child:
        try:
            host = Host(py_spy=spy)
            deadline = time.monotonic() + 60
            functions: set[str] = set()
            gaps: tuple = ()
            while "stands_here" not in functions and time.monotonic() < deadline:
                dumps, gaps = host.stacks(host.ranks(ProcessSelector(pids=(child.pid,)))[0])
                functions = {
                    each["name"] for dump in dumps for thread in json.loads(dump.data) for each in thread["frames"]
                }
            if any("CAP_SYS_PTRACE" in gap.reason for gap in gaps):
                pytest.skip("py-spy may not read processes here")
            assert "stands_here" in functions
        finally:
            child.kill()
