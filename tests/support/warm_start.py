"""`python -m bot.cli` from a process that has imported everything: a fork costs milliseconds, the imports a second or two.

It has also diagnosed what ships, so that the regexes that a diagnosis compiles are there. The command still has a process, an environment, a folder and standard streams of its own. It ends as Python ends, but for the
release of all that was imported, which takes as long as a short command. Its databases are made as those of the test process.
`python -m tests.support.warm_start FD` is the server; `WarmStart` is the end of the tests. What needs more than that (file
limits, other interpreters, variables that Python reads when it starts) starts the command cold.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from bot.store.database import Database
from tests.support.paths import BUNDLES, DEMO
from tests.support.quick_databases import quick_databases
from tests.support.quick_engines import quick_engines

AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OPENBLAS", "OMP_")  # variables that a fork reads too late
NOBODY = 65534
NOT_LOADED = ("bot.cli.__main__", "bot.store.migrations")  # run, not imported


@dataclass(frozen=True)
class Done:
    """What came of a run."""

    returncode: int
    stdout: bytes
    stderr: bytes


class WarmStart:
    """The server, as the tests use it. `cache`: a folder with the compiled rule base."""

    def __init__(self, cache: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm_start", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "SIGNALBOX_CACHE": str(cache)},
                stdin=subprocess.PIPE,  # the forks' streams are pipes, so that the streams of `sys` must be made for pipes
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self._server = ours

    def close(self) -> None:
        """End the server."""
        self._server.close()
        self._process.communicate(timeout=30)

    def can(self, env: Mapping[str, str]) -> bool:
        """Whether a run with this environment is the same as a cold one."""
        changed = {key for key in {*env, *os.environ} if env.get(key) != os.environ.get(key)}
        return not any(key.startswith(AT_START) for key in changed)

    def run(
        self,
        words: Sequence[str],
        stdin: bytes,
        cwd: Path,
        env: Mapping[str, str],
        seconds: float,
        *,
        stdout: int | None = None,
        without_rights: bool = False,
    ) -> Done:
        """Run `python -m bot.cli WORDS`. `stdout`: a descriptor to write to, which stays open here; `without_rights`: not as root.

        Raises:
            subprocess.TimeoutExpired: it took more than `seconds`; it was killed.
        """
        asked = {"words": list(words), "cwd": str(cwd), "env": dict(env), "without_rights": without_rights}
        request = json.dumps(asked).encode() + b"\n"
        mine, served = socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        given = theirs if stdout is None else [theirs[0], stdout, theirs[2]]
        with served:
            socket.send_fds(self._server, [b"run"], [*given, served.fileno()])
        for fd in theirs:
            os.close(fd)
        out, err = _Reader(pipes[1][0]), _Reader(pipes[2][0])
        for thread in (threading.Thread(target=_feed, args=(pipes[0][1], stdin), daemon=True), out, err):
            thread.start()
        with mine, mine.makefile("rb") as answers:
            mine.settimeout(seconds)
            mine.sendall(request)
            pid = int(answers.readline())
            try:
                status = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), seconds) from None
        for reader in (out, err):
            reader.join(seconds)
        return Done(status, out.data, err.data)


class _Reader(threading.Thread):
    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._fd = fd
        self.data = b""

    def run(self) -> None:
        with open(self._fd, "rb") as pipe:  # noqa: PTH123 - a descriptor
            self.data = pipe.read()


def _feed(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def _import_everything() -> None:
    """Import the product, and with it what it uses."""
    for package in ("kb", "connectors", "bot"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not module.name.startswith(NOT_LOADED):
                with contextlib.suppress(ImportError):  # of an optional part
                    importlib.import_module(module.name)
    _diagnose_what_ships()
    gc.collect()
    gc.freeze()  # or the first collection of each fork copies every page


def _diagnose_what_ships() -> None:
    """Compile what a diagnosis and its answer compile: half of the time that one of a small log takes."""
    from bot.diagnosis.diagnose import diagnose_bundle
    from bot.pages.attachments import small
    from bot.render.report_json import dumps
    from bot.render.terminal import plain
    from bot.rulebase.loader import knowledge

    known = knowledge()
    for bundle in (DEMO, BUNDLES / "rank-killed", BUNDLES / "healthy"):
        answer = diagnose_bundle(known, bundle, workers=1)
        assert answer.replay
        small(answer)
        plain(answer.report)
        dumps(answer.report)


def _serve(server: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request until the tests close their end. In the fork: its request, and its standard streams."""
    waiting = selectors.DefaultSelector()
    waiting.register(server, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of a process: its id, and whom to tell
    while True:
        for key, _ in waiting.select():
            if key.fileobj is server:
                message, fds, _, _ = socket.recv_fds(server, 16, 4)
                if not message:
                    return None
                client = socket.socket(fileno=fds[3])
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    server.close()
                    for _, other in running.values():
                        other.close()
                    with client:
                        client.sendall(f"{os.getpid()}\n".encode())
                        return _request(client), fds[:3]
                for fd in fds[:3]:
                    os.close(fd)
                watched = os.pidfd_open(pid)
                running[watched] = (pid, client)
                waiting.register(watched, selectors.EVENT_READ)
            else:
                pid, client = running.pop(key.fd)
                waiting.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError), client:
                    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _request(client: socket.socket) -> dict[str, Any]:
    with client.makefile("rb") as read:
        got: dict[str, Any] = json.loads(read.readline())
        return got


def main() -> None:
    """Serve; a fork returns from that, and becomes the command."""
    with quick_databases(), quick_engines():
        Database("sqlite://").close()  # records how tables are made, for all forks
        _import_everything()
        forked = _serve(socket.socket(fileno=int(sys.argv[1])))
        if forked is not None:
            _become(*forked)


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)  # the streams of `sys` write to these numbers, and have written nothing yet
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[0] = request["cwd"]  # as `python -m` does
    sys.argv = ["", *request["words"]]
    status = 0
    try:
        if request["without_rights"]:
            _drop_rights()
            importlib.import_module("bot.cli.main").main()
        else:
            runpy.run_module("bot.cli", run_name="__main__", alter_sys=True)
    except BaseException as error:  # noqa: BLE001 - it must never run on as a second server
        status = _status(error)
    _end(status)


def _drop_rights() -> None:
    """Become a user without rights. Its code is imported: root's own Python may lie where nobody else can read."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _status(error: BaseException) -> int:
    """The status with which Python ends by an exception; prints what Python prints."""
    code = error.code if isinstance(error, SystemExit) else error
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    if isinstance(code, BaseException):
        sys.excepthook(type(code), code, code.__traceback__)
    else:
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _end(status: int) -> NoReturn:
    """Wait for threads, call the exit functions and flush the streams, as Python does; 120 where stdout does not take it."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream, failed in ((sys.stdout, 120), (sys.stderr, status)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = failed
    os._exit(status)


if __name__ == "__main__":
    main()
