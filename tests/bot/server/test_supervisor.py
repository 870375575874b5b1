"""What the supervisor knows of dead workers: only those of this host, and only when they are gone."""

from __future__ import annotations

import os
import subprocess
import sys

from bot.queue.worker import worker_name
from bot.server.supervisor import _dead_here


def test_a_worker_of_this_host_that_is_gone_is_dead():
    """One that lives, one of another host, and a name that is none are not known to be dead."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert _dead_here(worker_name(child.pid))
    assert not _dead_here(worker_name(os.getpid()))
    for name in (f"another-host:{child.pid}", "worker", "", f"{worker_name(child.pid)}x", worker_name(10**12)):
        assert not _dead_here(name)
