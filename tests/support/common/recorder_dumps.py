"""Dumps of a flight recorder, well made and hostile."""

from __future__ import annotations

import os

MADE = 1_795_000_000_000_000_000


def dump(rank, world=4, stopped=2):
    """A rank of a world in which one stopped before number 3."""
    last = 2 if rank == stopped else 3
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
        "pg_status": {
            "0": {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": 2}
        },
        "entries": [
            {
                "record_id": seq,
                "pg_id": 0,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": MADE + seq,
                "input_sizes": [[16]],
                "input_dtypes": ["Float"],
                "output_sizes": [[16]],
                "output_dtypes": ["Float"],
                "state": "completed" if seq < 3 else "started",
                "retired": seq < 3,
                "is_p2p": False,
                "frames": [{"name": "step", "filename": "/srv/a.py", "line": seq}],
            }
            for seq in range(1, last + 1)
        ],
    }


class Evil:
    """Makes a folder when it is loaded by the default loader."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))
