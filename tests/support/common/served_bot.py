"""The server as a separate process, and how tests talk to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

SECRET = "s3cret-of-the-test"  # noqa: S105 - of the test


def bearer(secret: str = SECRET) -> dict[str, str]:
    """Return the header with the secret."""
    return {"Authorization": f"Bearer {secret}"}


def until(what: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@contextmanager
def served(folder: Path, cache: Path, port: int, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the service as a process. `more`: lines of its `serve` section."""
    path = folder / "signalbox.yaml"
    path.write_text(
        f"version: 1\nserve:\n  listen: 127.0.0.1:{port}\n  workers: 1\n{more}"
        "  webhooks:\n    alerts: {secret: {env: HOOK_SECRET}}\nclusters: {east: {}}\n"
    )
    known = {key: value for key, value in os.environ.items() if not key.startswith("SIGNALBOX_")}
    own = {"SIGNALBOX_STATE": str(folder / "state"), "SIGNALBOX_CACHE": str(cache), "HOOK_SECRET": SECRET}
    words = [sys.executable, "-m", "bot.cli.main", "serve", "--config", str(path)]
    with (folder / "serve.log").open("wb") as log:
        running = subprocess.Popen(words, env={**known, **own}, stderr=log, stdout=log)
        try:
            yield running
        finally:
            running.kill()
            running.wait()


def ok(port: int) -> bool:
    """Whether the service responds."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


def worker_of(pid: int) -> int:
    """Return the first process that the service has forked, a worker, when it is there."""
    found: list[psutil.Process] = []

    def forked() -> bool:
        with suppress(psutil.Error):  # one that ends just now
            server = server_of(pid)
            found[:] = sorted(server.children(), key=psutil.Process.create_time) if server else ()
        return bool(found)

    until(forked)
    return found[0].pid


def server_of(pid: int) -> psutil.Process | None:
    """Return the process that forks the others of the service."""
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # one that ends just now
            if any("multiprocessing.forkserver" in word for word in child.cmdline()):
                return child
    return None
