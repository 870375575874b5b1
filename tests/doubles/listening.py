"""The HTTP server under the doubles: an address of this machine, answers as whole packets, no words of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(BaseHTTPRequestHandler):
    """What the doubles' handlers have in common: each says in `reply` what it answers, to requests of its `methods`."""

    methods: tuple[str, ...] = ("GET", "POST")
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: else each answer waits for the other side's delayed ACK
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def reply(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer, where it is a method that the double knows."""
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
        """The headers of the request by their names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        """Answer. `kind`: its Content-Type; `more`: further headers. Who has hung up meanwhile is let go."""
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
    """A server with this handler; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
