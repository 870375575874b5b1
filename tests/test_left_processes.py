"""The plugin that kills what a test leaves behind, in test runs of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.support.paths import ROOT

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), inner.pid, flush=True)
time.sleep(600)
"""
TESTS = f"""
import subprocess, sys, time
from pathlib import Path
import pytest

def started():
    child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, text=True)
    with Path("pids").open("a") as file:
        file.write(child.stdout.readline())
    return child

@pytest.fixture(scope="module")
def shared():
    child = started()
    yield child
    child.kill()
    child.wait()
    child.stdout.close()

def test_passes():
    started()

def test_fails():
    with started():  # leaving the block waits for the child
        raise AssertionError("a failure")

def test_times_out():
    with started() as child:
        child.wait()

def test_uses_the_shared_one(shared):
    assert shared.poll() is None

def test_uses_it_again(shared):
    time.sleep(0.2)
    assert shared.poll() is None
"""


def test_nothing_outlives_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that ignore SIGINT and SIGTERM, and theirs in sessions of their own; a shared fixture keeps its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(TESTS)
    started = time.monotonic()
    ran = pytester.runpytest_subprocess(
        *("-p", "tests.support.left_processes", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=10"),
        timeout=100,
    )
    assert time.monotonic() - started < 90
    ran.assert_outcomes(passed=3, failed=2)
    ran.stdout.fnmatch_lines(["*Timeout*", "*Timeout (>10.0s) from pytest-timeout*"])
    ran.stdout.fnmatch_lines_random(["*AssertionError: a failure*"])
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert len(pids) == 8
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and os.getpid() != pid
    except psutil.NoSuchProcess:
        return False
