"""Every reader of structures, in a fixed order: if two read the same line, the earlier one's structure is kept."""

from __future__ import annotations

from kb.parsers.logs import (
    checkpoints,
    condor_jobs,
    crashes,
    elastic,
    error_lines,
    failed_ranks,
    gputests,
    jobids,
    kernel,
    launchers,
    native_errors,
    nccl,
    process_starts,
    recoveries,
    slurm_jobs,
    stacks,
)
from kb.parsers.logs.exceptions.readers import READERS as EXCEPTION_READERS
from kb.parsers.reader import Reader

ALL_READERS: tuple[Reader, ...] = (
    *EXCEPTION_READERS,
    *elastic.READERS,
    *nccl.READERS,
    *kernel.READERS,
    *failed_ranks.READERS,
    *launchers.READERS,
    *process_starts.READERS,
    *checkpoints.READERS,
    *crashes.READERS,
    *native_errors.READERS,
    *stacks.READERS,
    *gputests.READERS,
    *recoveries.READERS,
    *jobids.READERS,
    *slurm_jobs.READERS,
    *condor_jobs.READERS,
    *error_lines.READERS,
)

# the kinds of docs/structures.md
KINDS: frozenset[str] = frozenset(
    {
        *("exception", "elastic_failure", "elastic_exit", "launcher_exit", "watchdog", "watchdog_status"),
        *("nccl_warn", "nccl_init", "ib_completion", "xid", "sxid", "oom_kill", "hung_task", "slurm_end", "signal"),
        *(
            "native_crash",
            "checkpoint",
            "run_end",
            "stack_dump",
            "p2p_bandwidth",
            "recovery",
            "job_id",
            "process_start",
            "progress",
            "error_line",
        ),
        *("hang", "stack_outlier", "collective_culprit", "peer_outlier", "slow_phase", "off_plan", "platform_event"),
    }
)
