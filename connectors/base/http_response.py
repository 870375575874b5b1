"""HTTP responses: read piece by piece up to a limit, with failures as SourceFailed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
import msgspec

from connectors.base.budget import Budget
from connectors.base.contract import Deadline, Failure, SourceFailed

AGAIN = frozenset({429, 500, 502, 503, 504})
SHOWN = 300  # characters of a request or response in messages


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response: status, headers (lower-case names), body. `cut`: the body was cut at the limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


class StreamedResponse:
    """A response whose body has not been read yet. It can be read once."""

    def __init__(self, response: httpx.Response, deadline: Deadline, asked: str, budget: Budget) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._deadline = deadline
        self._asked = asked
        self._budget = budget

    def pieces(self) -> Iterator[bytes]:
        """Yield the decoded body piece by piece.

        Raises:
            SourceFailed: The connection broke, the body was truncated, or the deadline passed.
        """
        try:
            for piece in self._response.iter_bytes():
                self._budget.read(len(piece))
                self._deadline.check(self._asked)
                yield piece
        except httpx.HTTPError as error:
            raise failure(error, self._asked, cut=True) from None
        except httpx.StreamError as error:
            raise SourceFailed("bad_answer", f"the response cannot be read: {error}", asked=self._asked) from None

    def whole(self, largest: int) -> HttpResponse:
        """Return the body as one, cut at `largest` bytes."""
        held = bytearray()
        for piece in self.pieces():
            held += piece
            if len(held) > largest:
                return HttpResponse(self.status, self.headers, bytes(held[:largest]), cut=True)
        return HttpResponse(self.status, self.headers, bytes(held))

    def lines(self, longest: int = 1 << 20) -> Iterator[bytes]:
        """Yield the lines of the body without line ends, cut at `longest` bytes."""
        held = bytearray()
        skipping = False
        for piece in self.pieces():
            held += piece
            *whole, rest = bytes(held).split(b"\n")
            held = bytearray(rest)
            for line in whole:
                if not skipping:
                    yield line[:longest]
                skipping = False
            if len(held) > longest:
                if not skipping:
                    yield bytes(held[:longest])
                held, skipping = bytearray(), True
        if held and not skipping:
            yield bytes(held)


MEANING_OF_STATUS: Mapping[int, tuple[Failure, str]] = {
    401: ("unauthorised", "the token or password is missing, wrong or expired: check `login` of this connector"),
    403: ("forbidden", "these credentials lack a permission: docs/privileges.md lists what is needed"),
    404: ("missing", ""),
    407: ("unauthorised", "a proxy requires credentials"),
    408: ("timeout", ""),
    429: ("rate_limited", "too many requests: lower `load` of this connector"),
    504: ("timeout", ""),
}


def failure(error: httpx.HTTPError, asked: str, *, cut: bool = False) -> SourceFailed:
    """Return the failure that an error of the HTTP library means. `cut`: the body had begun."""
    reason = shortened(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return SourceFailed("timeout", "the server did not respond in time", asked=asked)
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.DecodingError) and cut:
        return SourceFailed("bad_answer", f"the response ended early: {reason}", asked=asked)
    if isinstance(error, httpx.RemoteProtocolError | httpx.DecodingError):
        return SourceFailed("bad_answer", f"the server does not speak valid HTTP: {reason}", asked=asked)
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        detail = reason.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or reason
        hint = "check ca_file, which must hold the CA of this server (certificate-authority in a kubeconfig)"
        return SourceFailed("unreachable", f"the server's certificate is not trusted: {detail}", asked=asked, hint=hint)
    return SourceFailed(
        "unreachable", f"the server cannot be reached: {reason}", asked=asked, hint="check the address, port and TLS"
    )


def error_text(response: httpx.Response, deadline: Deadline) -> str:
    """Return the start of the body of an error response."""
    held = b""
    try:
        for piece in response.iter_bytes():
            held += piece
            if len(held) > 4096 or deadline.left() <= 0:
                break
    except (httpx.HTTPError, httpx.StreamError):
        pass
    status = _status_message(held)
    return shortened(printable(held[:4096])) if status is None else _without_middle(printable(status.encode()))


def _status_message(body: bytes) -> str | None:
    """Return the message of a Status object of the Kubernetes API, None if it is something else."""
    if not body.startswith(b'{"kind":"Status"'):
        return None
    try:
        return str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None


def _without_middle(text: str) -> str:
    """Return a text shortened for a message. Its end, which contains the first cause, is kept."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}…{text[-SHOWN // 2 :]}"


def printable(text: bytes) -> str:
    """Return bytes as one line of printable text."""
    decoded = text.decode("utf-8", errors="replace")
    return " ".join(re.sub(r"[^\x20-\x7e\u00a0-\uffff]+", " ", decoded).split())


def shortened(text: str) -> str:
    """Return a text shortened for a message."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to the Retry-After header. A date is compared with the server's own clock, which may be wrong."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    try:
        now = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        now = datetime.now(UTC)
    when, now = (item if item.tzinfo else item.replace(tzinfo=UTC) for item in (when, now))
    return max(0.0, (when - now).total_seconds())
