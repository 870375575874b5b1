"""Ports for the systems that tests start: no other process is given them before the system listens, nor later."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def kept_port() -> Iterator[int]:
    """A free port of 127.0.0.1 that the kernel gives to nobody else in this block.

    A socket that is bound to it and does not listen keeps it. The system can listen beside it, if it sets SO_REUSEADDR, as
    servers do (socket(7)); the kernel chooses only ports without any socket. A port that was free a moment ago
    may be another test's by the time a database has started.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])


@contextmanager
def kept_ports(*names: str) -> Iterator[dict[str, int]]:
    """Such a port for each name."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(kept_port()) for name in names}
