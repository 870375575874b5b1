"""Reads HTTP requests strictly: what two programs could read in two ways is refused, and bodies of strangers are not read.

waitress parses; this adds what it allows and a proxy in front could read differently (RFC 9112, sections 2.2, 5.2, 6.1 and 6.3).
A refused request ends its connection, so that nothing that follows it is answered.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import Error

from bot.server.credentials import Admission, HttpRefusal

MOST_HEADERS = 100
DRAINED = 64 << 10  # bytes of a refused body that are read and dropped, so that its sender gets to read the answer
_ONCE = frozenset((b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type", b"expect"))


class RefusedError(Error):  # type: ignore[misc]  # waitress has no types
    """The answer to a refused request, as JSON."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.code, self.reason = status.value, status.phrase

    def to_response(self, ident: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status, headers and body."""
        del ident
        return (
            f"{self.code} {self.reason}",
            [("Content-Type", "application/json")],
            msgspec.json.encode({"error": self.body}),
        )


class StrictParser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """A request while it is read. `admission` decides about its body as soon as its headers are complete."""

    error: Error | None
    content_length: int
    expect_continue: bool
    version: str

    def __init__(self, adj: Any, admission: Admission) -> None:
        super().__init__(adj)
        self._admission = admission
        self._refused: RefusedError | None = None

    def received(self, data: bytes) -> int:
        """Take bytes; return how many of them belong to this request."""
        if self.body_rcv is None and not self.header_plus and data[:1].isspace() and data[:1] not in b"\r\n":
            self.error, self.completed = RefusedError(HTTPStatus.BAD_REQUEST, "white space before the request"), True
            return len(data)
        taken = int(super().received(data))
        if self.completed and self._refused is not None and self.error is None:
            self.error = self._refused
        return taken

    def parse_header(self, header_plus: bytes) -> None:
        """Parse start line and headers.

        Raises:
            ParsingError: They are ambiguous or malformed.
        """
        lines = header_plus.split(b"\r\n")[1:]
        _check(lines)
        super().parse_header(header_plus)
        if self.version not in {"1.0", "1.1"}:
            raise ParsingError("the version is not 1.0 or 1.1")
        if self.version == "1.1" and "HOST" not in self.headers:
            raise ParsingError("Host is missing")
        if self.version == "1.0" and "TRANSFER_ENCODING" in self.headers:
            raise ParsingError("Transfer-Encoding in a request of version 1.0")
        self._admit()

    def _admit(self) -> None:
        """Decide about the body."""
        if not self.chunked and self.content_length == 0:
            return
        decided = self._admission(self.command, self.path, self.headers)
        if isinstance(decided, HttpRefusal):
            self._refuse(RefusedError(decided.status, decided.why))
        elif decided == 0:
            self._refuse(RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this address takes no body"))

    def _refuse(self, answer: RefusedError) -> None:
        """Answer at once, or after a body that is short."""
        if not self.chunked and self.content_length <= DRAINED and not self.expect_continue:
            self._refused = answer
            return
        self.error = answer
        self.body_rcv, self.content_length, self.expect_continue = None, 0, False


def _check(lines: list[bytes]) -> None:
    """Refuse ambiguous headers.

    Raises:
        ParsingError: with the reason.
    """
    if len(lines) > MOST_HEADERS:
        raise ParsingError(f"more than {MOST_HEADERS} headers")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        raise ParsingError("a folded header")
    names = [line.partition(b":")[0].lower() for line in lines]
    for name in _ONCE:
        if names.count(name) > 1:
            raise ParsingError(f"{name.decode()} is given twice")
    if b"content-length" in names and b"transfer-encoding" in names:
        raise ParsingError("both Content-Length and Transfer-Encoding")
