"""Limits of the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from connectors.base.contract import Seconds


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How many connections the HTTP server holds, and for how long each may take."""

    connections: int = 1000
    """The most open connections. A new one closes the one that has waited longest without a whole request."""
    per_peer: int = 250
    """The most open connections of one address (of one /64 network over IPv6). A proxy in front is one address."""
    headers: Seconds = 10.0
    """The time limit for receiving a request's headers."""
    body: Seconds = 30.0
    """The time limit for receiving a request's body."""
    sending: Seconds = 60.0
    """The time limit for the peer to read a response."""
    idle: Seconds = 75.0
    """How long a connection may stay idle before its next request."""

    def __post_init__(self) -> None:
        if self.connections < 10 or self.per_peer < 2:
            raise ValueError("at least 10 connections, and 2 of one address, are needed")
        if not all((self.headers, self.body, self.sending, self.idle)):
            raise ValueError("no time may be 0")

    def within(self, descriptors: int, each: int) -> HttpLimits:
        """Return the limits for a process that may open so many files, `each` of them for a connection."""
        return replace(self, connections=max(10, min(self.connections, descriptors // each)))
