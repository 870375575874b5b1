"""Determines what a thread in uninterruptible sleep waits for, from its kernel stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kb.model import Resource, Scalar
from kb.parsers.artefacts.ebpf.reading import MAX_FRAMES


def stack_functions(text: str) -> tuple[str, ...]:
    """Return the functions of a bpftrace stack (one per line), innermost first, without offsets."""
    lines = (line.strip() for line in text.split("\n", MAX_FRAMES)[:MAX_FRAMES])
    return tuple(re.sub(r"\+(?:0x)?[0-9a-f]{1,8}$", "", line[:300]) for line in lines if line)


_BLOCKED_ON: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("gpu", re.compile(r"^(?:_?nv\d|nv_|nvidia|uvm_|rm_|os_acquire_|amdgpu|kfd_|_nv)")),
    (
        "network storage",
        re.compile(
            r"^_{0,2}(?:nfs|rpc_|xprt|ll_|ptlrpc|osc_|cl_(?:io|sync|lock)|ldlm|mdc_|ceph|fuse|request_wait_answer|gpfs|mm_?fs|cifs|smb|wekafs|beegfs|netfs)"
        ),
    ),
    (
        "storage",
        re.compile(
            r"^_{0,2}(?:io_schedule|blk_|bio_|submit_bio|nvme|ext4|xfs|btrfs|jbd2|folio_wait|wait_on_page|filemap_|sync_(?:inode|file)|dm_|md_|scsi)"
        ),
    ),
    ("network", re.compile(r"^_{0,2}(?:mlx[45]|ib_|rdma_|ucma|cma_|uverbs|efa_|irdma|bnxt)")),
    (
        "memory",
        re.compile(
            r"^_{0,2}(?:try_to_free|shrink_|mem_cgroup|do_swap|swap_|compact_|migrate_pages|reclaim|balance_dirty|oom_)"
        ),
    ),
    ("lock", re.compile(r"^_{0,2}(?:futex|mutex_lock|rwsem_|down_(?:read|write)|rt_mutex)")),
)


def blocked_on(frames: Iterable[str]) -> str:
    """Return what a kernel stack waits for: "gpu", "network storage", "storage", "network", "memory", "lock" or ""."""
    names = [frame.rpartition("`")[2].strip() for frame in frames]
    return next((what for what, pattern in _BLOCKED_ON if any(pattern.match(name) for name in names)), "")


def blocked_event(
    who: Resource, tid: int | None, command: str, seconds: float, stack: Sequence[str], *, ended: bool
) -> tuple[str, str, str, Resource, Mapping[str, Scalar]]:
    """Return kind, reason, message, resource and fields of a `d_state` event."""
    on = blocked_on(stack)
    fields: dict[str, Scalar] = {
        "seconds": seconds,
        "tid": tid,
        "comm": command[:64],
        "ended": ended,
        "blocked_on": on,
        "stack": "\n".join(stack[:60])[:6000],
    }
    message = f"{command[:64] or 'a thread'} was in uninterruptible sleep for {seconds:.1f} s" + (
        f", on {on}" if on else ""
    )
    return "d_state", on or "uninterruptible sleep", message, who, fields
