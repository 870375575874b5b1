"""Slack's Socket Mode client, changed so that a refresh delays no delivery and a lost connection is noticed immediately.

slack_sdk's built-in client (3.47) replaces a connection in the thread that hands out the deliveries, and closes the old
connection before it reads the new one. The close waits for a read with a timeout of three seconds, which is all the time
that Slack gives an acknowledgement: each refresh fails the commands of up to three seconds with `operation_timeout`. It
also reads the end of a connection as "no bytes yet", and turns in a loop until five pings have failed.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slack_bolt import App
from slack_bolt.adapter.socket_mode.internals import run_bolt_app, send_response
from slack_sdk.errors import SlackClientError
from slack_sdk.socket_mode.builtin import SocketModeClient
from slack_sdk.socket_mode.builtin.connection import Connection, ConnectionState
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

READ = 3.0  # seconds after which a read checks whether its connection is still needed; also the connection timeout
LINGER = 15.0  # seconds for which a refreshed connection is still read; Slack ends it after about ten
MOST_UNACKNOWLEDGED = 1000  # number of deliveries whose connection is remembered
_log = logging.getLogger(__name__)


class _Socket:
    """A socket that raises an error at its end, because the SDK mistakes an empty read for a pause."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def recv(self, size: int) -> bytes:
        """Read from the socket.

        Raises:
            ConnectionResetError: the other side has closed the connection.
        """
        received: bytes = self._inner.recv(size)
        if not received:
            raise ConnectionResetError("closed by Slack")
        return received

    def wake(self) -> None:
        """Close the connection, which also ends a read that is waiting in another thread."""
        with suppress(OSError):
            self._inner.shutdown(socket.SHUT_RDWR)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Connection(Connection):
    """A connection that two threads may close at once: its reader, and the monitor or `close`."""

    def disconnect(self) -> None:
        """Close the connection unless another thread just has: the SDK reads `sock` outside its locks."""
        with suppress(AttributeError):
            super().disconnect()


@dataclass(frozen=True, slots=True)
class _Reading:
    """A connection that is read by a thread."""

    connection: Connection
    state: ConnectionState
    socket: _Socket


class OverlappingClient(SocketModeClient):
    """A client that reads each connection in a separate thread, so that the old one keeps delivering while the next one opens.

    Deliveries are acknowledged on the connection that they arrived on or, if it has ended, on the current one.
    """

    def __init__(self, app_token: str, **options: Any) -> None:
        super().__init__(app_token, **options)
        self.current_session_runner.shutdown()  # type: ignore[no-untyped-call] # it reads a single connection
        self._came_by: dict[str, Connection] = {}
        self._reading: list[_Reading] = []
        self._guard = threading.Lock()

    def connect(self) -> None:
        """Open the next connection and make it the current one. If that fails, the previous connection stays."""
        if self.wss_uri is None:
            self.wss_uri = self.issue_new_wss_url()
        state = ConnectionState()  # type: ignore[no-untyped-call]
        connection = self._connection(state)
        connection.connect()
        if connection.is_active():
            reading = _Reading(connection, state, _Socket(connection.sock))
            connection.sock = reading.socket  # type: ignore[assignment]
            with self._guard:
                before, self._reading = self._reading, [*self._reading, reading]
            threading.Thread(target=self._read, args=(connection, state), daemon=True).start()
            for old in before:
                _later(LINGER, old.state)
        if connection.is_active() or self.current_session is None:
            self.current_session, self.current_session_state = connection, state
        self.auto_reconnect_enabled = self.default_auto_reconnect_enabled and not self.closed
        if not self.current_app_monitor_started:
            self.current_app_monitor_started = True
            self.current_app_monitor.start()

    def close(self) -> None:
        """Close all connections without waiting for reads to time out."""
        self.auto_reconnect_enabled = self.default_auto_reconnect_enabled = False
        with self._guard:
            reading = list(self._reading)
        for each in reading:
            each.state.terminated = True
            each.socket.wake()
        super().close()

    def send_socket_mode_response(self, response: dict[str, Any] | SocketModeResponse) -> None:
        """Acknowledge a delivery, on the connection that it arrived on if that is open."""
        content = response.to_dict() if isinstance(response, SocketModeResponse) else response
        with self._guard:
            connection = self._came_by.pop(str(content.get("envelope_id")), None)
        text = json.dumps(content)
        if connection is not None and connection.is_active():
            with suppress(SlackClientError):
                connection.send(text)
                return
        self.send_message(text)

    def _connection(self, state: ConnectionState) -> Connection:
        connection: Connection
        connection = _Connection(
            url=str(self.wss_uri),
            logger=self.logger,
            ping_interval=self.ping_interval,
            receive_timeout=READ,
            trace_enabled=self.trace_enabled,
            receive_buffer_size=self.receive_buffer_size,
            proxy=self.proxy,
            proxy_headers=self.proxy_headers,
            on_message_listener=lambda text: self._arrived(connection, text),
            on_error_listener=lambda error: None if state.terminated else self._failed(connection, error),
            on_close_listener=lambda code, reason: _log.debug("Slack closed a connection: %s %s", code, reason),
            ssl_context=self.web_client.ssl,
        )
        return connection

    def _read(self, connection: Connection, state: ConnectionState) -> None:
        """Pass on what a connection delivers until it ends."""
        try:
            connection.run_until_completion(state)
            with suppress(OSError):
                connection.disconnect()
        finally:
            with self._guard:
                self._reading = [each for each in self._reading if each.connection is not connection]
                self._came_by = {name: by for name, by in self._came_by.items() if by is not connection}

    def _failed(self, connection: Connection, error: Exception) -> None:
        level = logging.WARNING if connection is self.current_session else logging.DEBUG
        _log.log(level, "a Socket Mode connection ended: %s: %s", type(error).__name__, error)

    def _arrived(self, connection: Connection, text: str) -> None:
        """Queue a message. If it announces the end of the connection, open the next one in the meantime."""
        try:
            message = json.loads(text) if text.startswith("{") else {}
        except ValueError:
            message = {}
        if message.get("type") == "disconnect":
            reason = str(message.get("reason"))
            threading.Thread(target=self._replace, args=(connection, reason), daemon=True).start()
            return
        if "envelope_id" in message:
            with self._guard:
                if len(self._came_by) >= MOST_UNACKNOWLEDGED:
                    self._came_by.pop(next(iter(self._came_by)))
                self._came_by[str(message["envelope_id"])] = connection
        self._on_message(text)

    def _replace(self, connection: Connection, reason: str) -> None:
        """Open the next connection, once for each connection whose end Slack announces."""
        _log.info("Slack is closing a Socket Mode connection: %s", reason)
        if reason == "too_many_websockets":  # without a pause, this would loop
            time.sleep(self.ping_interval)
        with self.connect_operation_lock:
            if self.closed or connection is not self.current_session:
                return
            try:
                self.wss_uri = self.issue_new_wss_url()
                self.connect()
            except (SlackClientError, OSError) as error:  # the monitor tries again once the connection has ended
                _log.warning("failed to open a new Socket Mode connection: %s", error)


def _later(seconds: float, state: ConnectionState) -> None:
    """Stop reading a connection after a while."""

    def end() -> None:
        state.terminated = True

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def client_for(
    app: App, app_token: str, *, proxy: str | None, ping_interval: float, concurrency: int
) -> OverlappingClient:
    """Return a client that passes deliveries to the app. It is not connected yet."""
    client = OverlappingClient(
        app_token,
        logger=app.logger,
        web_client=app.client,
        proxy=proxy,
        ping_interval=ping_interval,
        concurrency=concurrency,
    )

    def handle(by: BaseSocketModeClient, request: SocketModeRequest) -> None:
        started = time.time()
        send_response(by, request, run_bolt_app(app, request), started)

    client.socket_mode_request_listeners.append(handle)
    return client
