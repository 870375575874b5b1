"""The bpftrace programs that ship: whole, explained, understood by bpftrace and by the reader of their output."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from connectors.host.ebpf import PROGRAMS as FOLDER
from kb.parsers.artefacts.ebpf.read import read_ebpf

PROGRAMS = sorted(FOLDER.glob("*.bt"))
NAMES = ["cuda", "dstate", "gloo", "nccl", "offcpu", "step", "syscalls", "verbs"]
BPFTRACE = shutil.which("bpftrace")
# maps that only pass something from one probe to another
INNER = {"owner", "left", "locked", "ready", "last_ns"}


def parts(path):
    """A program's header, and the rest of it."""
    header, _, body = path.read_text("utf-8").partition("*/")
    return header, body


def can_trace():
    """Whether this machine lets bpftrace attach to system calls."""
    if BPFTRACE is None or os.geteuid() != 0 or not Path("/sys/kernel/tracing/events/raw_syscalls").is_dir():
        return False
    tried = subprocess.run([BPFTRACE, "-e", "BEGIN { exit(); }"], capture_output=True, timeout=60, check=False)
    return tried.returncode == 0


def test_the_programs_are_there():
    """Each of the programs ships."""
    assert [path.stem for path in PROGRAMS] == NAMES


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_header_says_what_it_costs_and_needs(path):
    """A program opens with what it does, costs, needs, how it is called, and which maps it gives."""
    header, body = parts(path)
    assert header.startswith(f"/*\n * {path.stem}: ")
    assert [word for word in ("What:", "Cost:", "Needs:", "Use:", "Gives:") if f" * {word}" not in header] == []
    gives = header.partition("Gives:")[2]
    printed = set(re.findall(r"print\(@(\w+)\)", body))
    assert printed == set(re.findall(r"@(\w+)", gives))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_nothing_grows_without_end(path):
    """Every map is cleared at the end, and those that gather are cleared at each tick; the output names the program."""
    _, body = parts(path)
    used = set(re.findall(r"@(\w+)", body))
    end = body.partition("END\n")[2]
    assert set(re.findall(r"clear\(@(\w+)\)", end)) == used
    tick = body.partition("interval:s:")[2].partition("END\n")[0]
    gathering = set(re.findall(r"@(\w+)\[[^\]]*\] = (?:hist|sum|count)\(", body))
    assert gathering <= set(re.findall(r"clear\(@(\w+)\)", tick))
    assert used - set(re.findall(r"print\(@(\w+)\)", tick)) <= INNER
    assert f'printf("signalbox {path.stem} 1\\n")' in body
    assert 'printf("tick %s %llu\\n", strftime("%s", nsecs), nsecs);' in tick


@pytest.mark.parametrize("name", ["step", "gloo"])
def test_no_probe_on_the_return_of_a_cpp_function(name):
    """An exception that passes a probed return kills the process, so C++ functions are probed at their entry only."""
    assert "uretprobe" not in parts(FOLDER / f"{name}.bt")[1]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_bpftrace_understands_it(path):
    """A dry run of bpftrace finds no fault."""
    if not can_trace():
        pytest.skip("bpftrace cannot run here (it needs root, tracefs and the package bpftrace)")
    shared = next(
        Path("/lib").glob("*-linux-gnu/libc.so.6")
    )  # any library: the names in it are not looked up before the run
    arguments = {"verbs": [str(shared), "write", "read"], "dstate": ["0"], "offcpu": ["0"], "syscalls": ["0"]}
    command = [str(BPFTRACE), "-d", str(path), *arguments.get(path.stem, [str(shared)])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert "syntax error" not in said
    assert len(said) > 1000  # what it would load


@pytest.mark.parametrize(("name", "series"), [("syscalls", "syscalls"), ("offcpu", "futex_us")])
def test_a_real_run_is_read(name, series, tmp_path):
    """What a program prints of a live process is read without a gap, and gives its series."""
    if not can_trace():
        pytest.skip("bpftrace cannot run here (it needs root, tracefs and the package bpftrace)")
    script = "import threading, time\nlock = threading.Lock(); lock.acquire()\nwhile True: lock.acquire(timeout=0.01)"
    quick = tmp_path / f"{name}.bt"
    quick.write_text((FOLDER / f"{name}.bt").read_text("utf-8").replace("interval:s:10", "interval:ms:1000"))
    with subprocess.Popen([sys.executable, "-c", script]) as busy:
        try:
            output = run_for(4, [BPFTRACE, "-q", "-f", "json", str(quick), str(busy.pid)])
        finally:
            busy.kill()
    reading, gaps = read_ebpf(output, "ebpf/x.json")
    assert gaps == ()
    assert reading.tool == name
    assert abs(reading.ticks[-1] - time.time()) < 60
    found = {series_item.name: series_item for series_item in reading.series}
    assert found[series].resource.pid == busy.pid
    assert sum(value for _, value in found[series].points) > 0


def run_for(seconds, command):
    """The output of a command that is stopped after some time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            return running.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            running.send_signal(2)
            return running.communicate(timeout=90)[0]
