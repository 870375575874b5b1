"""Lines that tempt to a sure or dangerous answer: what the vendor's text allows is said, and no more."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
XID = "[83410.220410] NVRM: Xid (PCI:0000:5d:00): {}, pid=20511, name=python3, {}\n"
STEPS = "".join(f"2026-03-02 11:{n:02d}:01 INFO step: {n} loss: {3 - n / 40:.4f}\n" for n in range(10, 40))
RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit/train.py", line 71, in main\n'
    "    for batch in loader:\n"
    '  File "/srv/fit/shards.py", line 12, in read\n'
    "    return handle.read(size)\n"
    "OSError: [Errno 116] Stale file handle\n"
)


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def report_on(engine: Matcher, name: str, text: str) -> Report:
    """The report on one log."""
    return diagnose(evidence_of(KNOWN, engine, {name: text.encode()}), KNOWN.rulebook)


@pytest.mark.parametrize(
    ("number", "said", "fault"),
    [
        (92, "High single-bit ECC error rate", "gpu_memory_ecc"),
        (121, "C2C Link corrected error", "nvlink_fault"),
        (137, "RXPIPE interrupt hit on link 3", "cuda_memory_access"),
    ],
)
def test_what_nvidia_ignores_takes_no_node_away(engine: Matcher, number: int, said: str, fault: str) -> None:
    """The catalogue says IGNORE for all three; the third needs its cause found in the program or on the peer."""
    report = report_on(engine, "node-a.dmesg.log", XID.format(number, said))
    assert report.diagnoses[0].fault == fault
    assert report.decision.advice == "fix_first"
    assert not report.decision.exclude
    assert (report.diagnoses[0].role == "root_cause") == (number == 137)


def test_a_clean_up_after_a_refused_peer_access_takes_no_node_away(engine: Matcher) -> None:
    """The same as the Xid that it names."""
    report = report_on(engine, "node-a.dmesg.log", XID.format(45, "Ch 00000010, caused by previous Xid 137"))
    assert report.diagnoses[0].fault == "cuda_memory_access"
    assert report.decision.advice == "fix_first"
    assert not report.decision.exclude


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("watchdog: BUG: soft lockup - CPU#31 stuck for 26s! [kworker/31:2:771]", "host_hardware"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "host_hardware"),
        ("nvme nvme2: I/O tag 41 (b029) opcode 0x2 (I/O Cmd) QID 9 timeout, aborting req_op:READ(0)", "host_hardware"),
        ("amdgpu 0000:85:00.0: amdgpu: RAS records:260 exceed threshold:256", "gpu_memory_ecc"),
        ("node-a:7120:7388 [1] NCCL WARN Could not find rev link for 2/7 -> 1/3", "gpu_peer_path"),
    ],
)
def test_what_a_node_survives_takes_no_node_away(engine: Matcher, line: str, fault: str) -> None:
    """The kernel, the driver or the vendor says that the node goes on; the cause of the end lies elsewhere."""
    report = report_on(engine, "node-a.dmesg.log", f"[8812.220114] {line}\n")
    assert report.diagnoses[0].fault == fault
    assert report.decision.advice == "fix_first"
    assert not report.decision.exclude


@pytest.mark.parametrize(
    "line",
    [
        "critical target error, dev sdb, sector 2048 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
        "mlx5_core 0000:9a:00.0: mlx5_sync_reset_now_event:610:(pid 88): Sync Reset now. Device is going to reset.",
        "mlx5_core 0000:9a:00.0: Health issue observed, firmware internal error, severity(6) INFO:",
        "amdgpu 0000:85:00.0: amdgpu: socket: 1, die: 0, 1 new deferred hardware errors detected in umc block",
    ],
)
def test_what_is_no_fault_is_not_named(engine: Matcher, line: str) -> None:
    """A command that a disk does not know, a reset that was asked for, a report of no weight."""
    assert not report_on(engine, "node-a.dmesg.log", f"[8812.220114] {line}\n").diagnoses


def test_a_bus_error_is_shared_memory_only_where_a_line_says_so(engine: Matcher) -> None:
    """The signal has several reasons; a loader's own message has one."""
    signal = "[node-a:4410] Signal: Bus error (7)\n"
    assert report_on(engine, "rank-0.log", STEPS + signal).diagnoses[0].fault == "segfault"
    worker = "RuntimeError: DataLoader worker (pid 771) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.\n"
    assert report_on(engine, "rank-0.log", STEPS + worker).diagnoses[0].fault == "shm_exhausted"


@pytest.mark.parametrize("steps", ["", STEPS])
def test_a_bare_system_error_of_nccl_is_no_failed_start(engine: Matcher, steps: str) -> None:
    """Without the stage, the frames or a call of the start, the text does not say when it happened."""
    line = "RuntimeError: NCCL error: unhandled system error, NCCL version 2.27.3\n"
    report = report_on(engine, "rank-0.log", steps + line)
    assert "nccl_bootstrap" not in [item.fault for item in report.diagnoses if item.role == "root_cause"]


@pytest.mark.parametrize("before", ["", "2026-03-02 11:00:01 INFO Restarting after failure, attempt 2 of 3\n"])
def test_a_stale_handle_is_not_answered_with_another_restart(engine: Matcher, before: str) -> None:
    """A mount that is stale stays so for the next run on the node."""
    report = report_on(engine, "rank-0.log", before + STEPS + RAISED)
    assert report.diagnoses[0].fault == "storage_io"
    assert report.decision.advice == "fix_first"
