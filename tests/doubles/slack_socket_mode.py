"""Socket Mode: a WebSocket server to which the app connects, instead of Slack calling request URLs.

Requires the `websockets` package, of the development environment only. Each delivery goes to one of the open connections in turn; one
that is not acknowledged in time is sent once more, to the next. A connection that is refreshed behaves as Slack documents it
(https://docs.slack.dev/apis/events-api/using-socket-mode/): the app gets a `disconnect` message, the connection keeps delivering
while the app opens its next one, and ends seconds later if the app has not closed it by then.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from bot.demo.fakeslack.values import AppResponse, Json
from bot.demo.fakeslack.workspace import Workspace

MOST_CONNECTIONS = 10
GRACE = 10.0  # seconds from the `disconnect` message to the end of the connection
TICKET_LIFE = 30.0  # seconds between apps.connections.open and the connection
ENVELOPES = {
    "slash_command": ("slash_commands", True),
    "event_callback": ("events_api", False),
}  # others: interactive, which accept a payload


@dataclass(slots=True)
class _Waiting:
    """An envelope that waits for its acknowledgement."""

    acked: threading.Event = field(default_factory=threading.Event)
    payload: Json | None = None
    asked_payload: bool = True


class SocketMode:
    """The server side. It delivers to the app in place of a request URL: `bot.demo.fakeslack.delivery.DeliveryTransport`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._tickets: dict[str, float] = {}
        self._open: list[ServerConnection] = []
        self._turn = 0
        self._waiting: dict[str, _Waiting] = {}
        self._ending: list[threading.Timer] = []
        self.address = ""
        self.accepted = 0
        """How many connections were accepted so far, including those that have ended."""

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._open)

    def ticket(self) -> str:
        """An address that is valid for one connection."""
        name = secrets.token_hex(16)
        with self._lock:
            now = self._workspace.state.clock()
            self._tickets = {item: at for item, at in self._tickets.items() if now - at < TICKET_LIFE}
            self._tickets[name] = now
        return f"{self.address}/link/?ticket={name}&app_id={self._workspace.app.id}"

    def send(self, kind: str, payload: Json, retry: tuple[int, str] | None = None) -> AppResponse:
        """Send an envelope to one connection and wait; send it to the next one if no acknowledgement comes."""
        name = secrets.token_hex(16)
        waiting = _Waiting(asked_payload=ENVELOPES.get(kind, ("interactive", True))[1])
        with self._lock:
            self._waiting[name] = waiting
        started = time.monotonic()
        try:
            for attempt in (0, 1):
                again = retry or ((attempt, "http_timeout") if attempt else None)
                if not self._to_one(_envelope(name, kind, payload, again)):
                    return AppResponse("socket", time.monotonic() - started, error="dispatch_failed")
                if waiting.acked.wait(self._workspace.patience):
                    body = b"" if waiting.payload is None else json.dumps(waiting.payload).encode()
                    return AppResponse("socket", time.monotonic() - started, 200, body, "application/json")
            return AppResponse("socket", time.monotonic() - started, error="operation_timeout")
        finally:
            with self._lock:
                self._waiting.pop(name, None)

    def _to_one(self, envelope: str) -> bool:
        """Whether a connection accepted it."""
        for _ in range(MOST_CONNECTIONS):
            with self._lock:
                if not self._open:
                    return False
                self._turn += 1
                one = self._open[self._turn % len(self._open)]
            try:
                one.send(envelope)
            except ConnectionClosed:
                self._gone(one)
            else:
                return True
        return False

    def disconnect(self, reason: str = "refresh_requested", grace: float = GRACE) -> None:
        """Refresh all connections: ask the app for new ones, and end these after `grace` seconds.

        A connection that is being refreshed still delivers, as Slack's does.
        """
        with self._lock:
            leaving = list(self._open)
        for connection in leaving:
            with suppress(ConnectionClosed):
                connection.send(_disconnect(reason))
            timer = threading.Timer(grace, connection.close)
            timer.daemon = True
            with self._lock:
                self._ending.append(timer)
            timer.start()

    def drop(self) -> None:
        """End all connections without notice."""
        with self._lock:
            leaving = list(self._open)
        for item in leaving:
            with suppress(OSError):
                item.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Forget the connections that are still to be ended."""
        with self._lock:
            ending, self._ending = self._ending, []
        for timer in ending:
            timer.cancel()

    def serve(self, connection: ServerConnection) -> None:
        """A connection, until it ends."""
        asked = parse_qs(urlsplit(connection.request.path if connection.request else "").query)
        with self._lock:
            at = self._tickets.pop(asked.get("ticket", [""])[0], None)
            full = len(self._open) >= MOST_CONNECTIONS
            if at is not None and not full:
                self._open.append(connection)
                self.accepted += 1
            count = len(self._open)
        if at is None or full:
            with suppress(ConnectionClosed):
                connection.send(_disconnect("too_many_websockets" if full else "link_disabled"))
            return
        try:
            connection.send(_hello(self._workspace.app.id, count))
            self._workspace.state.touch()
            for message in connection:
                self._acknowledged(message)
        except ConnectionClosed:
            pass
        finally:
            self._gone(connection)

    def _acknowledged(self, message: str | bytes) -> None:
        try:
            told = json.loads(message)
        except ValueError:
            return
        if not isinstance(told, dict):
            return
        with self._lock:
            waiting = self._waiting.get(str(told.get("envelope_id")))
        if waiting is not None and not waiting.acked.is_set():
            payload = told.get("payload")
            waiting.payload = payload if isinstance(payload, dict) and waiting.asked_payload else None
            waiting.acked.set()

    def _gone(self, connection: ServerConnection) -> None:
        with self._lock:
            if connection in self._open:
                self._open.remove(connection)
        self._workspace.state.touch()


def _hello(app: str, count: int) -> str:
    return json.dumps(
        {
            "type": "hello",
            "num_connections": count,
            "debug_info": {"host": "local", "build_number": 1, "approximate_connection_time": 18060},
            "connection_info": {"app_id": app},
        }
    )


def _envelope(name: str, kind: str, payload: Json, retry: tuple[int, str] | None) -> str:
    word, accepts = ENVELOPES.get(kind, ("interactive", True))
    told: Json = {"envelope_id": name, "type": word, "accepts_response_payload": accepts, "payload": payload}
    if word == "events_api":
        told["retry_attempt"], told["retry_reason"] = retry or (0, "")
    return json.dumps(told)


def _disconnect(reason: str) -> str:
    return json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": "local"}})


@contextmanager
def socket_mode(workspace: Workspace) -> Iterator[SocketMode]:
    """Enable Socket Mode for a workspace that is being served: from now on, deliveries go to connected apps."""
    mode = SocketMode(workspace)
    with serve(mode.serve, "127.0.0.1", 0, max_size=1_000_000) as server:
        host, port = server.socket.getsockname()[:2]
        mode.address = f"ws://{host}:{port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        workspace.open_socket = mode.ticket
        workspace.deliver_by((mode, mode) if workspace.post.duplicate else (mode,))
        try:
            yield mode
        finally:
            workspace.open_socket = None
            workspace.deliver_by(())
            mode.close()
            server.shutdown()
            thread.join(5)
