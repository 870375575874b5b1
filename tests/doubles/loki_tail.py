"""Loki's tail for tests: the double's HTTP API with a WebSocket at /loki/api/v1/tail, which sends what the test puts into a queue."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from queue import Empty, Queue
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from tests.doubles.loki import LokiDouble, Refused

END = None  # in the queue: the server closes the connection, as after tail_max_duration


def message(labels: Mapping[str, str], *lines: tuple[int, str], dropped: Sequence[int] = ()) -> dict[str, Any]:
    """A message as the real server sends it with the header for structured metadata."""
    values = [[str(at), text, {"structuredMetadata": {"detected_level": "unknown"}}] for at, text in lines]
    streams = [{"stream": dict(labels), "values": [value]} for value in values]
    lost = [{"timestamp": str(at), "labels": dict(labels)} for at in dropped]
    return {
        "streams": streams or None,
        "encodingFlags": ["categorize-labels"],
        **({"dropped_entries": lost} if lost else {}),
    }


@contextmanager
def tailing(double: LokiDouble, sent: Queue[Any], refused: int | None = None) -> Iterator[LokiDouble]:
    """The double behind an address with a tail. `refused`: the status with which it, or a proxy, refuses each tail."""
    over = threading.Event()

    def http(_: ServerConnection, request: Request) -> Response | None:
        path, query = urlsplit(request.path)[2:4]
        params = {key: values[0] for key, values in parse_qs(query, keep_blank_values=True).items()}
        double.asked.append((path, params))
        if path == "/loki/api/v1/tail" and refused is None:
            return None
        try:
            if path == "/loki/api/v1/tail":
                raise Refused(refused or 404, "404 page not found")  # noqa: TRY301 - as the double itself
            status, body = 200, json.dumps(double.answer(path, params, dict(request.headers.raw_items()))).encode()
        except Refused as refusal:
            status, body = refusal.status, str(refusal).encode()
        headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"})
        return Response(status, HTTPStatus(status).phrase, headers, body)

    def tail(connection: ServerConnection) -> None:
        while not over.is_set():
            try:
                told = sent.get(timeout=0.02)
            except Empty:
                continue
            if told is END:
                return
            try:
                connection.send(json.dumps(told))
            except ConnectionClosed:
                sent.put(told)
                return

    with serve(tail, "127.0.0.1", 0, process_request=http) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        double.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        try:
            yield double
        finally:
            over.set()
            server.shutdown()
            thread.join(5)
