#!/usr/bin/python3 -IS
# ruff: noqa: EXE001, PTH109, SIM105 - copied as `python`; it imports as little as it can
"""Stands for `python`: hands its streams, arguments and environment to the warm Python, and ends as its child does.

Signals go on to the child; without RUN_ZYGOTE in the environment it becomes the real interpreter.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask, wait, end."""
    real = os.environ.get("RUN_PYTHON", "/usr/bin/python3")
    where = os.environ.get("RUN_ZYGOTE")
    if not where or "-c" in sys.argv[1:2]:
        os.execv(real, [real, *sys.argv[1:]])
    server = socket.socket(socket.AF_UNIX)
    server.connect(where)
    request = {
        "argv": sys.argv[1:],
        "env": dict(os.environ) | {"RUN_CLIENT": str(os.getpid())},
        "cwd": os.getcwd(),
        "executable": sys.argv[0],
    }
    socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
    answers = server.makefile()
    child = int(answers.readline() or 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, lambda got, _: forward(child, got))
    status = int(answers.readline() or 9)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def forward(child: int, number: int) -> None:
    """Pass a signal on."""
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass


main()
