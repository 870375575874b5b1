"""The HTTP server: what it refuses, whom it closes at its limits, and that liveness is answered meanwhile."""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from flask import Flask

from bot.config.http import HttpLimits
from bot.config.settings import Webhook
from bot.queue.tasks import TaskQueue
from bot.server import http_server
from bot.server.alert_payloads import LARGEST
from bot.server.credentials import admission
from bot.server.http_server import Door, peer_of
from bot.server.webhooks import app
from connectors.base.secret import Secret
from tests.support.ambiguous_requests import ambiguous
from tests.support.common.served_bot import SECRET

Start = Callable[..., int]
LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /webhooks/alerts HTTP/1.1\r\nHost: x\r\n"
BEARER = b"Authorization: Bearer " + SECRET.encode() + b"\r\n"


@pytest.fixture
def start(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return what starts a server and returns its port; its limits are checked all the time."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setattr(http_server, "TICK", 0.02)
    doors: list[Door] = []

    def begin(*, threads: int = 2, web: Flask | None = None, **limits: float) -> int:
        hooks = {"alerts": Webhook("research", Secret(env="HOOK_SECRET"), job_labels=("run",))}
        web = web or app(lambda: TaskQueue(url), hooks)
        web.add_url_rule("/livez", "livez", lambda: "alive")
        door = Door(
            web,
            "127.0.0.1",
            0,
            threads=threads,
            largest=LARGEST,
            admission=admission(hooks, LARGEST, slack=True),
            limits=HttpLimits(**limits),  # type: ignore[arg-type]
        )
        doors.append(door)
        threading.Thread(target=door.run, daemon=True).start()
        return door.port

    yield begin
    for door in doors:
        door.close()


class Clock:
    """A clock that goes on, and can be put forward."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._looks = threading.Semaphore(0)

    def monotonic(self) -> float:
        """The time."""
        self._looks.release()
        return time.monotonic() + self._ahead

    def forward(self, seconds: float) -> None:
        """Put it forward when the server knows the state of its connections, and wait until it has looked again."""
        self._looked()
        self._ahead += seconds
        self._looked()

    def _looked(self) -> None:
        while self._looks.acquire(blocking=False):
            pass
        for _ in range(10):
            assert self._looks.acquire(timeout=60)


def connected(port: int, data: bytes = b"") -> socket.socket:
    """Return a connection on which the bytes were sent."""
    conn = socket.create_connection(("127.0.0.1", port), timeout=60)
    conn.sendall(data)
    return conn


def answer(conn: socket.socket, *, all_of_it: bool = False) -> bytes:
    """Return one response, or all until the server closes; nothing if it closed."""
    got = b""
    try:
        while part := conn.recv(65536):
            got += part
            head, _, body = got.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: ([0-9]+)", head)
            if not all_of_it and length is not None and len(body) >= int(length[1]):
                break
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize("name", list(ambiguous()))
def test_an_ambiguous_request_is_refused_and_what_follows_it_is_not_answered(start: Start, name: str) -> None:
    """A proxy in front may have read it differently: a second request could be smuggled past it."""
    with closing(connected(start(headers=0.2), ambiguous()[name])) as conn:
        told = answer(conn, all_of_it=True).split(b"HTTP/1.")[1:]
    assert [part[2:3] for part in told] in ([b"4"], [b"5"], [])
    assert not any(part[2:5] == b"500" for part in told)


def test_an_ordinary_request_is_answered_and_its_connection_kept(start: Start) -> None:
    """Chunked or not, one after another."""
    with closing(
        connected(
            start(), HEAD + BEARER + b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"alerts": []\r\n1\r\n}\r\n0\r\n\r\n'
        )
    ) as conn:
        assert answer(conn).startswith(b"HTTP/1.1 200")
        conn.sendall(HEAD + BEARER + b"Content-Length: 14\r\n\r\n" + b'{"alerts": []}')
        assert answer(conn).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"Authorization: Bearer wrong\r\n",
        b"Authorization: Basic \xff\xfe\x80\r\n",
        b"Authorization: Basic " + base64.b64encode(b"x:\xff\xfe") + b"\r\n",
        b"Authorization: \xff\r\n",
        b"Authorization: Digest x=\xe9\r\n",
    ],
)
def test_the_body_of_a_stranger_is_not_read(start: Start, headers: bytes) -> None:
    """The response comes before the body is read, whatever bytes are sent as the secret."""
    with closing(connected(start(), HEAD + headers + b"Content-Length: 900000\r\n\r\n")) as conn:
        assert answer(conn).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        (b"POST /slack/events", b"X-Slack-Signature: v0=1\r\nX-Slack-Request-Timestamp: \xb2\r\n", b"401"),
        (b"POST /webhooks/other", BEARER, b"401"),
        (b"POST /hooks/ended/alerts", b"", b"401"),
        (b"GET /livez", b"", b"413"),
        (b"POST /nowhere", b"", b"413"),
        (b"POST /webhooks/alerts", BEARER + b"X: y\r\n" * 120, b"400"),
        (b"POST /webhooks/alerts", BEARER + b"X: " + b"y" * (33 << 10) + b"\r\n", b"431"),
    ],
)
def test_a_body_is_read_only_where_one_is_expected(
    start: Start, request_line: bytes, headers: bytes, status: bytes
) -> None:
    """By address and credentials."""
    data = request_line + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"Content-Length: 900000\r\n\r\n"
    with closing(connected(start(), data)) as conn:
        assert answer(conn)[9:12] == status


def test_a_body_that_is_too_large_is_refused_at_once(start: Start) -> None:
    """Also with the secret."""
    with closing(connected(start(), HEAD + BEARER + b"Content-Length: 200000000\r\n\r\n")) as conn:
        assert answer(conn).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("limit", "data"),
    [
        ("headers", b""),
        ("headers", b"GET /livez HTTP/1.1\r\nHost: "),
        ("body", HEAD + BEARER + b"Content-Length: 100\r\n\r\n{"),
        ("body", HEAD + BEARER + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"),
        ("body", HEAD + b"Content-Length: 100\r\n\r\n{"),
    ],
)
def test_a_request_that_does_not_end_is_closed(start: Start, limit: str, data: bytes) -> None:
    """Each part has its time, however often a byte arrives."""
    with closing(connected(start(**{limit: 0.05}), data)) as conn:
        assert answer(conn) == b""


def test_a_connection_may_wait_for_its_next_request(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """That time is its own: neither that of headers, nor without end."""
    clock = Clock()
    monkeypatch.setattr(http_server, "time", clock)
    with closing(connected(start(headers=20, idle=60), LIVE)) as conn:
        assert answer(conn).startswith(b"HTTP/1.1 200")
        clock.forward(40)
        conn.sendall(LIVE)
        assert answer(conn).startswith(b"HTTP/1.1 200")
        clock.forward(70)
        assert answer(conn) == b""


def test_a_new_connection_takes_the_place_of_the_one_that_waited_longest(start: Start) -> None:
    """However many slow ones a peer opens, the next request is answered."""
    port = start(per_peer=5)
    slow = [connected(port, b"GET /livez HTTP/1.1\r\n") for _ in range(5)]
    with closing(connected(port, LIVE)) as conn:
        assert answer(conn).startswith(b"HTTP/1.1 200")
    assert answer(slow[0]) == b""
    slow[4].sendall(b"Host: x\r\n\r\n")
    assert answer(slow[4]).startswith(b"HTTP/1.1 200")
    for conn in slow:
        conn.close()


def test_liveness_is_answered_while_all_threads_wait(start: Start) -> None:
    """As when the store does not respond."""
    stuck, waits = threading.Event(), threading.Semaphore(0)
    web = Flask("stuck")

    @web.get("/stuck")
    def wait() -> str:
        waits.release()
        stuck.wait(30)
        return "at last"

    port = start(web=web)
    asked = [connected(port, b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(4)]
    assert all(waits.acquire(timeout=60) for _ in range(2))
    with closing(connected(port, LIVE)) as conn:
        assert b"alive" in answer(conn)
    stuck.set()
    assert all(b" 200 " in answer(conn) for conn in asked)
    for conn in asked:
        conn.close()


def test_requests_without_waiting_for_answers_are_not_served(start: Start) -> None:
    """A few are, as HTTP allows; hundreds would keep a thread."""
    port = start()
    with closing(connected(port, LIVE * 200)) as conn:
        assert answer(conn, all_of_it=True) == b""
    with closing(connected(port, LIVE + LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) as conn:
        assert answer(conn, all_of_it=True).count(b"HTTP/1.1 200") == 2


def test_who_counts_as_one_peer() -> None:
    """An IPv6 host has a whole network of addresses."""
    assert peer_of("10.0.0.7") == peer_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert peer_of("2001:db8::1") == peer_of("2001:db8::ffff") == "2001:db8::/64"
    assert peer_of("fe80::1%eth0") == "fe80::/64"
    assert peer_of("localhost") == "localhost"
