"""A pytest plugin: no process outlives the test that started it, whether the test passes, fails or times out.

Processes that fixtures of a wider scope start (a database, a browser) live as long as their fixture. A daemon that has
left its parent is adopted by the process of the tests (Linux only), so that it is found too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Generator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from types import FrameType
from typing import Any

import psutil
import pytest

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
AGAIN = 30.0  # seconds after a timeout until the next one, where a clean-up hangs too
_kept: set[int] = set()  # ids of processes of fixtures that several tests share


def pytest_configure() -> None:
    """Adopt the processes whose parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Keep what a shared fixture starts."""
    if fixturedef.scope == "function":
        return (yield)
    before = _children()
    try:
        return (yield)
    finally:
        children = _children()
        _kept.intersection_update(children)
        _kept.update(children - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """Kill what the test left, when all its fixtures are down."""
    try:
        return (yield)
    finally:
        kill_left()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Kill the processes of a test that fails before its fixtures wait for them."""
    report = yield
    if call.when == "call" and report.failed:
        left = kill_left()
        if left:
            report.sections.append(("Processes killed", "\n".join(left)))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, Any, Any]:
    """Kill the processes of a test that times out before its `with` blocks wait for them."""
    result = yield
    inner = signal.getsignal(signal.SIGALRM)
    if callable(inner):

        def handler(number: int, frame: FrameType | None) -> None:
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            kill_left()
            inner(number, frame)

        signal.signal(signal.SIGALRM, handler)
    return result


def kill_left() -> list[str]:
    """Kill every process below this one that no shared fixture owns; gives their commands."""
    killed: list[str] = []
    while left := [process for pid in _children() if (process := _owned_by_a_test(pid))]:
        for process in left:
            for each in (*_below(process), process):
                with suppress(psutil.Error):
                    killed.append(f"{each.pid}: {' '.join(each.cmdline())[:200]}")
                with suppress(psutil.Error, ProcessLookupError):
                    if os.getpgid(each.pid) == each.pid:
                        os.killpg(each.pid, signal.SIGKILL)
                    each.kill()
            with suppress(psutil.Error, psutil.TimeoutExpired):
                process.wait(5)  # what it had started is adopted now, and found in the next round
    return killed


def _owned_by_a_test(pid: int) -> psutil.Process | None:
    """The process with this id if it is to be killed; one that has ended is reaped here."""
    if pid in _kept:
        return None
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        elif pid not in _of_python():
            return process
    return None


def _of_python() -> set[int | None]:
    """The processes that multiprocessing starts once for all tests. Those of a killed service have their names, and do not stay."""
    return {resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid}  # type: ignore[attr-defined]


def _below(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _children() -> set[int]:
    """The ids of this process' own children: psutil would look at every process of the machine, after each test."""
    try:
        return {int(pid) for task in os.listdir("/proc/self/task") for pid in _children_of(task)}  # noqa: PTH208 - faster, after each test
    except OSError:  # not Linux, or a thread that ended meanwhile
        return {child.pid for child in psutil.Process().children()}


def _children_of(task: str) -> list[bytes]:
    file = os.open(f"/proc/self/task/{task}/children", os.O_RDONLY)
    try:
        return os.read(file, 1 << 16).split()
    finally:
        os.close(file)
