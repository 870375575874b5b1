"""Slurm's states of a job, and what each of them means to the three readers that ask.

Source: https://slurm.schedmd.com/job_state_codes.html (as of October 2024), and the
states in src/common of Slurm (2026-08-20), which has the same. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kb.values import dataclass

Outcome = Literal["succeeded", "failed", "stopped", "running", "waiting"]
End = Literal["bad", "bad unless time limits are left out", "fine", "as it exited", "none"]


@dataclass(frozen=True, slots=True)
class SlurmState:
    """One base state or flag.

    `kind`: the kind of its event (kb.parsers.schedulers.slurmjson); `outcome`: what became of the job, which a requeued
    job does not know yet; `end`: whether a run that left the job in this state failed, which decides whether it is
    diagnosed unasked ("as it exited": the exit code and the signal tell; "none": no run has ended).
    """

    kind: str
    outcome: Outcome
    end: End


_FAILED: Final = SlurmState("exit", "failed", "bad")
_NODE: Final = SlurmState("node_failure", "failed", "bad")
_START: Final = SlurmState("start_failed", "failed", "bad")
_CANCELLED: Final = SlurmState("cancelled", "stopped", "fine")
_WAITING: Final = SlurmState("not_scheduled", "waiting", "none")
_REQUEUED: Final = SlurmState("requeued", "waiting", "as it exited")
_RUNNING: Final = SlurmState("running", "running", "none")

SLURM_STATES: Final[Mapping[str, SlurmState]] = {
    "COMPLETED": SlurmState("completed", "succeeded", "fine"),
    "FAILED": _FAILED,
    "OUT_OF_MEMORY": SlurmState("oom_kill", "failed", "bad"),
    "NODE_FAIL": _NODE,
    "BOOT_FAIL": _NODE,
    "LAUNCH_FAILED": _START,
    "RECONFIG_FAIL": _START,
    "TIMEOUT": SlurmState("time_limit", "stopped", "bad unless time limits are left out"),
    "DEADLINE": SlurmState("time_limit", "stopped", "bad"),
    "CANCELLED": _CANCELLED,
    "REVOKED": _CANCELLED,  # its sibling of a federation runs on another cluster
    "PREEMPTED": SlurmState("preemption", "stopped", "fine"),
    "PENDING": _WAITING,
    "RESV_DEL_HOLD": _WAITING,
    "REQUEUED": _REQUEUED,
    "REQUEUE_FED": _REQUEUED,
    "REQUEUE_HOLD": _REQUEUED,
    "EXPEDITING": _REQUEUED,
    "SPECIAL_EXIT": SlurmState(
        "requeued", "failed", "bad"
    ),  # held for a person after the exit that the site declared special
    "RUNNING": _RUNNING,
    "COMPLETING": _RUNNING,
    "CONFIGURING": _RUNNING,
    "POWER_UP_NODE": _RUNNING,
    "RESIZING": _RUNNING,
    "SIGNALING": _RUNNING,
    "STAGE_OUT": _RUNNING,
    "STOPPED": _RUNNING,  # by SIGSTOP; it keeps its nodes
    "SUSPENDED": _RUNNING,
}
