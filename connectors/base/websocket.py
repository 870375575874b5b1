"""WebSocket connections to the servers of connectors, with the login, certificates and limits of their HTTP client.

`websockets` is imported when a connection is opened: only following a log store needs it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest
from connectors.base.http_response import MEANING_OF_STATUS, printable, shortened

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

LARGEST = 64 << 20  # bytes of a message
PING = 20.0  # seconds between pings; a server that leaves one unanswered for this long is considered gone


class WebSocket:
    """An open connection."""

    def __init__(self, inner: ClientConnection, stack: ExitStack, asked: str) -> None:
        self._inner = inner
        self._stack = stack
        self._asked = asked

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message, or None if none arrives within this many seconds.

        Raises:
            SourceFailed: The connection ended; the text has the server's reason.
        """
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - only following needs it

        try:
            message = self._inner.recv(timeout=max(0.0, seconds))
        except TimeoutError:
            return None
        except (ConnectionClosed, OSError) as error:
            closing = error.rcvd if isinstance(error, ConnectionClosed) else None
            told = shortened(printable((closing.reason if closing else str(error)).encode("utf-8", "replace")))
            raise SourceFailed("unreachable", f"the connection ended: {told}", asked=self._asked) from None
        return message.encode() if isinstance(message, str) else message

    def close(self) -> None:
        """Close the connection without waiting for the server."""
        self._inner.close_timeout = 0.5
        self._stack.close()


def websocket(client: HttpClient, call: HttpRequest, deadline: Deadline) -> WebSocket:
    """Open a connection to the server of a client.

    Raises:
        SourceFailed: No connection, or the server or a proxy refused to change the protocol.
    """
    from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI  # noqa: PLC0415 - only following needs it
    from websockets.sync.client import reconnect  # noqa: PLC0415

    class Connect(reconnect):
        """Follows no redirect: another host would get the headers of the login."""

        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    asked = call.summary()
    shake = client.handshake(call)
    secure = shake.url.startswith("https:")
    stack = ExitStack()
    try:
        inner = stack.enter_context(
            Connect(
                ("wss" if secure else "ws") + shake.url[shake.url.index(":") :],
                additional_headers=shake.headers,
                user_agent_header="signalbox",
                ssl=shake.certificates if secure else None,
                open_timeout=max(0.1, deadline.left()),
                ping_interval=PING,
                ping_timeout=PING,
                max_size=LARGEST,
            )
        )
    except InvalidStatus as error:
        status = error.response.status_code
        kind, hint = MEANING_OF_STATUS.get(status, ("server_error" if status >= 500 else "refused", ""))
        text = shortened(printable(bytes(error.response.body or b"")[:4096]))
        raise SourceFailed(
            kind, f"the server returned {status}{f': {text}' if text else ''}", asked=asked, hint=hint
        ) from None
    except (InvalidHandshake, InvalidURI) as error:
        raise SourceFailed("bad_answer", f"no WebSocket: {shortened(str(error))}", asked=asked) from None
    except (OSError, TimeoutError) as error:
        raise SourceFailed(
            "unreachable", f"the server cannot be reached: {shortened(str(error))}", asked=asked
        ) from None
    return WebSocket(inner, stack, asked)
