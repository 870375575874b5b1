"""Databases for tests: SQLite in a file, and a separate PostgreSQL where the program is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.support.ports import kept_port

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/local/pgsql/bin", "/usr/bin")
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps them out of the path."""
    found = [str(path) for place in PLACES for path in sorted(Path("/").glob(f"{place[1:]}/{name}"))]
    return found[-1] if found else shutil.which(name)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a server in its own folder and return its URL. It does not run as root, so root hands it to `nobody`."""
    initdb, server = program("initdb"), program("postgres")
    assert initdb is not None
    assert server is not None
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    data = folder / "data"
    data.mkdir(parents=True)
    if as_nobody:
        shutil.chown(data, 65534, 65534)
        for parent in (folder, *folder.parents):
            if parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o711)
    options = ["-A", "trust", "-U", "signalbox", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"]
    subprocess.run([*as_nobody, initdb, "-D", str(data), *options], check=True, **QUIET)
    with kept_port() as port:
        yield from _running([*as_nobody, server], data, port)


def _running(server: list[str], data: Path, port: int) -> Iterator[str]:
    settings = ["fsync=off", f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={data}"]
    flags = [word for setting in settings for word in ("-c", setting)]
    running = subprocess.Popen([*server, "-D", str(data), *flags], **QUIET)
    address = f"//signalbox@127.0.0.1:{port}/postgres"
    end = time.monotonic() + 90
    try:
        while not _answers(f"postgresql:{address}"):
            assert running.poll() is None, "PostgreSQL did not start"
            assert time.monotonic() < end, "PostgreSQL did not come up"
            time.sleep(0.05)
        yield f"postgresql+psycopg:{address}"
    finally:
        running.terminate()
        running.wait(60)


def _answers(url: str) -> bool:
    """Whether it takes queries: while it starts up it listens, and refuses."""
    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=5) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)
    return False
