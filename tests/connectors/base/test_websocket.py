"""WebSocket connections with the login of the HTTP client, refused clearly and redirected nowhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import Endpoint, HttpClient, HttpRequest, Login
from connectors.base.websocket import WebSocket, websocket


@contextmanager
def server(answer: Response | None, seen: list[Request], reason: str = "") -> Iterator[str]:
    """A server that refuses with an answer, or echoes one message and closes with a reason."""

    def http(_: ServerConnection, request: Request) -> Response | None:
        seen.append(request)
        return answer

    def echo(connection: ServerConnection) -> None:
        connection.send(connection.recv())
        connection.close(1011, reason)

    with serve(echo, "127.0.0.1", 0, process_request=http) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.socket.getsockname()[1]}"
        found.shutdown()
        thread.join(5)


def opened(url: str) -> WebSocket:
    """A connection with a login."""
    client = HttpClient(Endpoint(url, Login(headers={"X-Scope-OrgID": "team"})))
    return websocket(client, HttpRequest("/tail", params={"query": '{a="b c"}'}), Deadline.within(60))


def test_messages_come_until_the_connection_ends() -> None:
    """With the headers and the query of the request; none in time is None; the end has the server's reason."""
    seen: list[Request] = []
    with server(None, seen, "max concurrent tail requests limit exceeded") as url:
        found = opened(url)
        assert found.receive(0.01) is None
        found._inner.send("hello")
        assert found.receive(5) == b"hello"
        with pytest.raises(SourceFailed, match="max concurrent tail requests"):
            found.receive(5)
        found.close()
    assert seen[0].headers["X-Scope-OrgID"] == "team"
    assert seen[0].path.startswith("/tail?query=")


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "missing"), (401, "unauthorised"), (500, "server_error"), (200, "refused")]
)
def test_a_refusal_is_a_clear_failure(status: int, kind: str) -> None:
    """By its status and text."""
    body = b"not here"
    answer = Response(status, HTTPStatus(status).phrase, Headers({"Content-Length": "8"}), body)
    with server(answer, []) as url, pytest.raises(SourceFailed, match=f"{status}.*not here") as failed:
        opened(url)
    assert failed.value.kind == kind


def test_a_redirect_is_not_followed() -> None:
    """The other host would get the login."""
    other: list[Request] = []
    with server(None, other) as elsewhere:
        headers = Headers({"Location": elsewhere.replace("http", "ws"), "Content-Length": "0"})
        with server(Response(302, "Found", headers, b""), []) as url, pytest.raises(SourceFailed, match="302"):
            opened(url)
    assert other == []


def test_nobody_listens() -> None:
    """A failure that says so."""
    with pytest.raises(SourceFailed, match="cannot be reached"):
        opened("http://127.0.0.1:9")
