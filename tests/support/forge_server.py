"""The HTTP server under the doubles of forges: scripted faults, recorded requests, rate limits in headers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.doubles.listening import Answering, listening


@dataclass(frozen=True)
class Asked:
    """One request. `parts`: of its path, unquoted; `path`: as it came."""

    method: str
    path: str
    parts: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def words(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Said:
    """An answer. `body`: JSON, or bytes as they are; None for none."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Callable[
    [Asked], "Said | str | None"
]  # an answer in its place; "after": done, then no answer; "half": half of the answer


class Double:
    """What the doubles of forges share. `seen`: everything that was asked; `strange`: what no forge knows."""

    def __init__(self) -> None:
        self.seen: list[Asked] = []
        self.strange: list[str] = []
        self.fault: Fault = lambda _: None
        self.remaining = 5000
        self.url = ""

    def answer(self, asked: Asked) -> Said:
        """What the forge says."""
        raise NotImplementedError

    def limits(self) -> dict[str, str]:
        """The headers that tell of the rate limit."""
        raise NotImplementedError

    def undocumented(self, asked: Asked, said: Said) -> Iterator[str]:
        """What of a request and its answer the forge's own OpenAPI document does not know."""
        del asked, said
        yield from ()

    def served(self, asked: Asked) -> Said | str:
        """The answer, or how it fails."""
        self.seen.append(asked)
        self.remaining -= 1
        fault = self.fault(asked)
        if isinstance(fault, Said):
            return fault
        said = self.answer(asked)
        if said.status == 501:
            self.strange.append(asked.words)
        self.strange += self.undocumented(asked, said)
        if fault is not None:
            return fault
        if asked.method == "GET" and said.status == 200:
            etag = f'W/"{sha256(json.dumps(said.body, default=repr).encode()).hexdigest()[:32]}"'
            if asked.headers.get("if-none-match") == etag:
                return Said(304, None, {"ETag": etag})
            return Said(200, said.body, {**said.headers, "ETag": etag})
        return said

    def page(self, asked: Asked, found: list[Any]) -> Said:
        """A page of a list, with the links that lead on."""
        size, number = int(asked.query.get("per_page", 30)), int(asked.query.get("page", 1))
        more = len(found) > size * number
        link = {"Link": f'<{self.url}{asked.path}?page={number + 1}>; rel="next"'} if more else {}
        return Said(200, found[size * (number - 1) : size * number], link)


@contextmanager
def serving(double: Double) -> Iterator[str]:
    """The double as a server."""

    class Handler(Answering):
        methods = ("GET", "POST", "PUT", "PATCH", "DELETE")

        def reply(self) -> None:
            parts = urlsplit(self.path)
            raw = self.body()
            path = parts.path
            asked = Asked(
                self.command,
                path,
                tuple(unquote(text) for text in path.strip("/").split("/")),
                dict(parse_qsl(parts.query)),
                self.lowered(),
                json.loads(raw) if raw else None,
            )
            said = double.served(asked)
            if isinstance(said, Said):
                self.send(said.status, _bytes(said.body), "application/json", {**double.limits(), **said.headers})
                return
            self.close_connection = True
            if said == "half":
                with suppress(OSError):
                    self.wfile.write(
                        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n{"sha": "'
                    )
                    self.wfile.flush()

        do_PATCH = do_PUT = Answering.do_GET  # noqa: N815 - the server's own names

    with listening(Handler) as url:
        double.url = url
        yield url


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()
