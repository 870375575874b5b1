"""The HTTP server under the doubles: a local address, answers as whole packets, and no output."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(BaseHTTPRequestHandler):
    """The base of the doubles' handlers: each implements its answers in `reply`, for requests of its `methods`."""

    methods: tuple[str, ...] = ("GET", "POST")
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: otherwise each answer waits for the other side's delayed ACK
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def reply(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer, if the double supports the method."""
        if self.command in self.methods:
            self.reply()
        else:
            self.send_error(501)

    do_POST = do_GET  # noqa: N815 - the server's own names
    do_DELETE = do_GET  # noqa: N815

    def body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def lowered(self) -> dict[str, str]:
        """The headers of the request, with names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        """Send an answer. `kind`: its Content-Type; `more`: further headers. A client that has hung up meanwhile is ignored."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            for name, value in (more or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server with this handler; returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
