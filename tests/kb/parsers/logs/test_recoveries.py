"""Recoveries: lines that say that trouble is over, and those that only sound so."""

from __future__ import annotations

import pytest

from kb.parsers.logs.recoveries import READERS, quoted


def reads(line: bytes) -> int:
    """How many recoveries the reader finds in one line."""
    return len(READERS[0].read(line + b"\n", 0))


@pytest.mark.parametrize(
    "line",
    [
        b"2026-02-02 10:00:00 upload: attempt 3 succeeded",
        b"NFS: server vault3 not answering was resolved, link re-established",
        b"WARN shard 0017 unreadable, continuing without it",
        b"INFO tracker: Network error resolved after 0:00:42, resuming normal operation.",
        b"connection error to the store recovered after 3 retries",
        b"Access to model acme/base is restricted. Please log in. - silently ignoring the lookup for the file config.json in acme/base.",
        b"round 2 lost an actor, starting over at it=30",
    ],
)
def test_trouble_that_is_over(line: bytes) -> None:
    """A retry that worked, a link that came back, a part that is done without."""
    assert reads(line) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"[ 8121.77] Memory failure: 0x5f0c11: recovery action for dirty LRU page: Recovered",
        b"NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        b"state recovered from the last checkpoint",
        b"upload failed after 5 attempts",
    ],
)
def test_what_only_sounds_like_it(line: bytes) -> None:
    """A page that the kernel gave up, an action that is asked for, a restart: none of them undoes the fault above it."""
    assert reads(line) == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'[selftest] simulating a fault: raise RuntimeError("NCCL error: unhandled system error")', True),
        (b"[rank2]: [smoke-test] RuntimeError: NCCL error: unhandled system error", True),
        (b"preflight: injected OSError: caught as expected", True),
        (b"RuntimeError: NCCL error: unhandled system error", False),
        (b"RuntimeError: the simulation of step 4 failed", False),
    ],
)
def test_what_a_program_raises_to_test_itself_is_no_event(line: bytes, expected: bool) -> None:
    """It says so in a tag, or in words before the error."""
    assert quoted(line) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"  --on-nan {raise,skip} what to do if the loss is NaN", True),
        (b"    --timeout=1800 \\", True),
        (b'  "restart_on": ["NCCL_TIMEOUT", "Xid 79"],', True),
        (b'  "on_nan": "abort: Loss is NaN"', True),
        (b'    "message": "OOMKilled",', False),
        (b'    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},', False),
        (b'{"level": "error", "event": "Loss is NaN, stopping"}', False),
        (b"  - RuntimeError: NCCL error", False),
        (b"-bash: python: command not found", False),
        (b"assistant:     FAILED tests/test_a.py::test_sum - AssertionError", True),
        (
            b"E0502 12:11:00.121212    4411 server.cc:213] Failed accept4: Too many open files (monitor port, ignored)",
            True,
        ),
        (b"OSError: [Errno 30] Read-only file system: '/ro/x' (expected)", True),
        (b"RuntimeError: size 4 (expected) does not match 5", False),
        (b"received SIGHUP, ignored (nohup)", True),
        (b"RuntimeError: shapes differ (got 3, expected 4)", False),
        (b"completion queue of lane 2: overrun by 300 entries", False),
        (b"completion 2: the queue was full", True),
    ],
)
def test_helps_and_configurations_report_nothing(line: bytes, expected: bool) -> None:
    """An indented option or member is one; what a program or a cluster says of its state is an event."""
    assert quoted(line) is expected
