"""A server in front of a double that misbehaves on request: the same faults for every connector over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.doubles.listening import Answering, listening

Fault = Literal[
    "none",
    "silent",  # accepts the request and never answers
    "refuse_401",
    "refuse_403",
    "refuse_404",
    "limit_then_well",  # 429 with Retry-After: 1 on the first request, normal afterwards
    "limit_always",  # 429 with a Retry-After beyond any deadline
    "error_then_well",  # 500 on the first request, normal afterwards
    "error_always",
    "broken_json",
    "cut",  # announces more bytes than it sends, and hangs up
    "drip",  # one byte at a time, forever
    "wrong_clock",  # its Date is a day old
    "huge",  # an answer without an end
    "elsewhere",  # redirects to another host
    "no_http",
]
_STATUS: Mapping[str, tuple[int, bytes, Mapping[str, str]]] = {
    "refuse_401": (401, b'{"message": "no"}', {}),
    "refuse_403": (403, b'{"message": "no"}', {}),
    "refuse_404": (404, b'{"message": "no"}', {}),
    "limit_then_well": (429, b"too many", {"Retry-After": "1"}),
    "limit_always": (429, b"too many", {"Retry-After": "3600"}),
    "error_then_well": (500, b"oh", {}),
    "error_always": (500, b"oh <b>no</b>\x1b[31m", {}),
    "broken_json": (200, b'{"data": [', {}),
    "elsewhere": (302, b"", {"Location": "http://169.254.169.254/latest/meta-data/"}),
}
_ENDLESS: Mapping[str, tuple[bytes, float]] = {"drip": (b" ", 0.05), "huge": (b'["' + b"x" * 65536 + b'",', 0.0)}
NEVER = 30.0  # seconds for which a silent server is silent: longer than any deadline of the suite


@dataclass(slots=True)
class Hostile:
    """The server: its address, the fault it plays, and the requests it has seen (method, target, body)."""

    url: str
    inner: str
    fault: Fault = "none"
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hostile(inner: str) -> Iterator[Hostile]:
    """A hostile server in front of the one at `inner` (scheme, host and port)."""

    class Handler(_Handler):
        state: Hostile

    with listening(Handler) as url:
        Handler.state = Hostile(url, inner)
        try:
            yield Handler.state
        finally:
            Handler.state.stop.set()


class _Handler(Answering):
    state: Hostile

    methods = ("GET", "POST", "DELETE")

    def reply(self) -> None:
        """Play the fault, or forward the request."""
        body = self.body()
        self.state.seen.append((self.command, self.path, body))
        with suppress(BrokenPipeError, ConnectionResetError):
            self._play(body)

    def _play(self, body: bytes) -> None:
        fault = self.state.fault
        first = len(self.state.seen) == 1
        if fault in _STATUS and (first or not fault.endswith("_then_well")):
            status, content, headers = _STATUS[fault]
            self._answer(status, content, **dict[str, Any](headers))
        elif fault in _ENDLESS:
            self._endless(*_ENDLESS[fault])
        elif fault in ("silent", "cut", "no_http"):
            self.close_connection = True
            if fault == "silent":
                self.state.stop.wait(NEVER)
            elif fault == "cut":
                self._answer(200, b'{"data": [1, 2', length=4096)
            else:
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        else:
            self._pass_on(body, late=-86400.0 if fault == "wrong_clock" else 0.0)

    def _answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _endless(self, piece: bytes, pause: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + NEVER
        while time.monotonic() < end and not self.state.stop.is_set():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(pause)
        self.close_connection = True

    def _pass_on(self, body: bytes, late: float) -> None:
        parts = urlsplit(self.state.inner)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=NEVER)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date"):
                self.send_header(name, value)
        self.send_header("Date", self.date_time_string(time.time() + late))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()
