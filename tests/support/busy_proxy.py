"""A proxy that refuses some requests as a busy server does: 429 with Retry-After."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.doubles.listening import Answering, listening


@dataclass
class BusyProxy:
    """What it did. `refuse`: of so many requests, the first is refused; `seconds`: what Retry-After says."""

    target: str
    refuse: int
    seconds: int
    url: str = ""
    asked: int = 0
    refused: int = 0
    lock: Lock = field(default_factory=Lock)

    def refuses(self) -> bool:
        """Whether the next request is refused."""
        with self.lock:
            self.asked += 1
            refused = self.asked % self.refuse == 1 % self.refuse
            self.refused += refused
            return refused


@contextmanager
def busy(target: str, *, refuse: int, seconds: int = 1) -> Iterator[BusyProxy]:
    """A proxy in front of a server; its address is in its `url`."""
    proxy = BusyProxy(target, refuse, seconds)

    class Handler(Answering):
        def reply(self) -> None:
            body = self.body() or None
            if proxy.refuses():
                self.send(429, b"too many outstanding requests", "text/plain", {"Retry-After": str(proxy.seconds)})
                return
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            kept["Accept-Encoding"] = "identity"
            request = Request(proxy.target + self.path, body, kept, method=self.command)  # noqa: S310 - our own server
            try:
                with urlopen(request, timeout=120) as answer:  # noqa: S310
                    status, found, kind = answer.status, answer.read(), answer.headers["Content-Type"]
            except HTTPError as error:
                status, found, kind = error.code, error.read(), error.headers["Content-Type"]
            self.send(status, found, kind)

    with listening(Handler) as proxy.url:
        yield proxy
