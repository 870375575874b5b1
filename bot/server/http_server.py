"""The HTTP server of the service: waitress with limits for callers that nobody knows yet (docs/decisions/0008-http-server.md).

Connections are limited in number, in all and per peer, and in the time that each state may take. At a limit, the connection that
has waited longest without a whole request gives way to a new one, so a flood of slow connections shuts nobody out. Requests for
liveness have a thread of their own, so they are answered while all others wait for the store.
"""

from __future__ import annotations

import heapq
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from bot.config.http import HttpLimits
from bot.runtime import metrics
from bot.server.credentials import Admission
from bot.server.http_parser import StrictParser

LIVE = "/livez"
HEADER_BYTES = 32 << 10
IN_MEMORY = 64 << 10  # bytes of a body that stay in memory; the rest goes to a temporary file
ANSWER_IN_MEMORY = 256 << 10  # likewise of a response
BODIES = 128 << 20  # bytes of unfinished bodies in all
PIPELINED = 4  # requests of a connection that wait for the answer to the first
ACCEPTED = 64  # new connections between two looks at the open ones
TICK = 1.0  # seconds between checks of times
PER_CONNECTION = 3  # file descriptors: the socket, and a temporary file each for request and response
RESERVED = 256  # file descriptors for everything else

State: TypeAlias = Literal["headers", "body", "serving", "sending", "idle"]


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection that knows in which state it is, and since when (`time.monotonic`)."""

    def __init__(self, server: Server, sock: socket.socket, addr: tuple[Any, ...], adj: Any, map: Any = None) -> None:  # noqa: A002 - waitress's name
        self.peer = peer_of(str(addr[0]))
        self.since = time.monotonic()
        self.parser_class = partial(StrictParser, admission=server.admission)
        self.asked = 0  # whole requests so far
        self._seen: tuple[State, object, int] = ("headers", None, 0)
        super().__init__(server, sock, addr, adj, map=map)

    def state(self, now: float) -> State:
        """Return the state, and note when it changed."""
        state: State
        request = self.request
        if self.requests:
            state = "serving"
        elif self.total_outbufs_len or self.close_when_flushed:
            state = "sending"
        elif request is not None:
            state = "body" if request.headers_finished else "headers"
        else:
            state = "idle" if self.asked else "headers"
        # the first bytes of the first request do not restart the time for its headers
        first = state == "headers" and not self.asked
        seen = (state, None if first else request, self.asked)
        if seen != self._seen:
            self._seen, self.since = seen, now
        return state

    def received(self, data: bytes) -> bool:
        """Take bytes. Clients that send many requests at once, without waiting for answers, are not served."""
        in_headers = self.request is None or not self.request.headers_finished
        if in_headers and data.count(b" HTTP/1.1\r\n") > PIPELINED:  # before time is spent on parsing them
            self.drop("pipelined")
            return False
        taken = bool(super().received(data))
        if len(self.requests) > PIPELINED:
            self.drop("pipelined")
        return taken

    def drop(self, why: str) -> None:
        """Close the connection, whatever is left to be sent."""
        metrics.count("http_dropped", why)
        self.will_close = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # so that it becomes writable, which is when waitress closes it


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """A listening socket. `channels` and `health` are shared by all sockets of a door."""

    channel_class = Channel

    def __init__(
        self,
        application: Any,
        *,
        limits: HttpLimits,
        admission: Admission,
        health: ThreadedTaskDispatcher,
        channels: dict[int, Channel],
        **known: Any,
    ) -> None:
        self.limits, self.admission, self.health = limits, admission, health
        super().__init__(application, **known)
        self.active_channels = channels

    def add_task(self, task: Channel) -> None:
        """Pass the next request of a connection to a thread."""
        task.asked += 1
        alive = getattr(task.requests[0], "path", "") == LIVE and task.requests[0].error is None
        (self.health if alive else self.task_dispatcher).add_task(task)

    def handle_accept(self) -> None:
        """Accept what waits, up to a number."""
        for _ in range(ACCEPTED):
            before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == before:
                return
            self._make_room()

    def _make_room(self) -> None:
        """If there are too many connections, close some that have waited longest; the newest if none waits."""
        open_ = [channel for channel in self.active_channels.values() if not channel.will_close]
        newest = open_[-1]
        crowd = [channel for channel in open_ if channel.peer == newest.peer]
        if len(crowd) <= self.limits.per_peer:
            if len(open_) <= self.limits.connections:
                return
            [(peer, _)] = Counter(channel.peer for channel in open_).most_common(1)
            crowd = [channel for channel in open_ if channel.peer == peer]
        now = time.monotonic()
        states = [(channel.state(now), channel) for channel in crowd if channel is not newest]
        # a connection between two requests loses nothing
        waiting = [(state != "idle", channel.since, channel) for state, channel in states if state != "serving"]
        if not waiting:
            newest.drop("crowded")
        # several at once, so that looking for them costs little in a flood
        for *_, channel in heapq.nsmallest(max(1, len(crowd) // 20), waiting, key=lambda found: found[:2]):
            channel.drop("crowded")

    def maintenance(self, now: float) -> None:
        """Close connections whose time is over. waitress calls this; its clock is not used."""
        del now
        at = time.monotonic()
        lasting = {
            "headers": self.limits.headers,
            "body": self.limits.body,
            "sending": self.limits.sending,
            "idle": self.limits.idle,
        }
        held = []
        for channel in list(self.active_channels.values()):
            state = channel.state(at)
            if channel.will_close or state == "serving":
                continue
            if at - channel.since > lasting[state]:
                channel.drop(state)
            elif state == "body":
                held.append(channel)
        held.sort(key=lambda channel: int(channel.request.body_bytes_received))
        while sum(int(channel.request.body_bytes_received) for channel in held) > BODIES:
            held.pop().drop("bodies")


class Door:
    """The listening server. `port`: the one it got."""

    def __init__(
        self,
        application: Any,
        host: str,
        port: int,
        *,
        threads: int,
        largest: int,
        admission: Admission,
        limits: HttpLimits,
    ) -> None:
        """Bind the address. `largest`: bytes of a body.

        Raises:
            OSError: The address cannot be bound.
        """
        limits = limits.within(_descriptors(limits.connections * PER_CONNECTION + RESERVED) - RESERVED, PER_CONNECTION)
        settings = Adjustments(
            listen=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            ident="signalbox",
            asyncore_use_poll=True,  # select() stops at 1,024 descriptors
            connection_limit=1 << 30,  # Server has limits of its own
            cleanup_interval=TICK,
            max_request_header_size=HEADER_BYTES,
            max_request_body_size=largest + 1,
            inbuf_overflow=IN_MEMORY,
            outbuf_overflow=ANSWER_IN_MEMORY,
            log_socket_errors=False,
        )
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a line for each request that waits for a thread
        self._map: dict[int, Any] = {}
        pools = [ThreadedTaskDispatcher(), ThreadedTaskDispatcher()]
        for pool, count in zip(pools, (threads, 1), strict=True):
            pool.set_thread_count(count)
        channels: dict[int, Channel] = {}
        self._servers = [
            Server(
                application,
                map=self._map,
                dispatcher=pools[0],
                health=pools[1],
                channels=channels,
                limits=limits,
                admission=admission,
                adj=settings,
                sockinfo=address,
            )
            for address in settings.listen
        ]
        self.port = int(self._servers[0].effective_port)

    def run(self) -> None:
        """Serve until the process ends."""
        wasyncore.loop(timeout=TICK, map=self._map, use_poll=True)

    def close(self) -> None:
        """Stop accepting."""
        for server in self._servers:
            server.close()


def peer_of(address: str) -> str:
    """Return what counts as one peer: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _descriptors(wanted: int) -> int:
    """Raise the limit of open files as far as wanted and allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
            )
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else soft
