"""The kubelet's log endpoint (/containerLogs/NAMESPACE/POD/CONTAINER): a pod's log as an API server proxies it.

The options apply in the kubelet's order: the lines since a time, of these the last ones, of these the first bytes (read from its
source, 1.36 and 1.20).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.doubles.listening import Answering

PART = 16 << 10  # bytes of a line that the container runtime writes at once


@dataclass(slots=True)
class Line:
    """A line of a container's log: seconds since the epoch and text."""

    at: float
    text: str


@dataclass(slots=True)
class Kubelet:
    """What the kubelets of a cluster hold.

    `logs`: (namespace, pod, container, "current" or "previous") → lines. `zones`: pod → hours its node is ahead of UTC.
    `odd_logs`: pod → text in place of the log. `old`: pods on nodes older than Kubernetes 1.27. `latency`: seconds before each response.
    """

    logs: dict[tuple[str, str, str, str], list[Line]] = field(default_factory=dict)
    zones: dict[str, int] = field(default_factory=dict)
    odd_logs: dict[str, str] = field(default_factory=dict)
    old: set[str] = field(default_factory=set)
    latency: float = 0.0
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def text(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> str | None:
        """The log, None if a previous container's is asked for and there is none."""
        if pod in self.odd_logs:
            return self.odd_logs[pod]
        which = "previous" if query.get("previous") in {"true", "1"} else "current"
        held = self.logs.get((namespace, pod, container, which))
        if held is None and which == "previous":
            return None
        return cut_text(held or [], query, self.zones.get(pod, 0), old=pod in self.old)


def cut_text(lines: list[Line], query: Mapping[str, str], zone_hours: int = 0, *, old: bool = False) -> str:
    """The parts since, of these the last ones, of these the first bytes.

    The container runtime writes a line longer than 16 KiB in parts, and the options count parts, not lines. A timestamp precedes the
    first part of a line, before Kubernetes 1.27 (`old`) each.
    """
    parts = [(line.at, number, part) for line in lines for number, part in enumerate(_parts(line.text))]
    if "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"]).timestamp()
        parts = [part for part in parts if part[0] >= since]
    if "sinceSeconds" in query:
        parts = [part for part in parts if part[0] >= time.time() - int(query["sinceSeconds"])]
    if "tailLines" in query:
        parts = parts[len(parts) - min(len(parts), int(query["tailLines"])) :]
    stamps = query.get("timestamps") in {"true", "1"}
    zone = timezone(timedelta(hours=zone_hours))
    found = [
        f"{_stamp(at, zone)} ".encode() * (stamps and (old or not number or not place)) + part
        for place, (at, number, part) in enumerate(parts)
    ]
    data = b"".join(found)
    return data[: int(query["limitBytes"])].decode(errors="ignore") if "limitBytes" in query else data.decode()


def _parts(text: str) -> list[bytes]:
    data = text.encode() + b"\n"
    return [data[at : at + PART] for at in range(0, len(data) - 1, PART)] if len(data) > PART + 1 else [data]


def _stamp(at: float, zone: timezone) -> str:
    whole = datetime.fromtimestamp(int(at), zone)
    offset = whole.strftime("%z")
    shown = "Z" if zone.utcoffset(None) == timedelta(0) else f"{offset[:3]}:{offset[3:]}"
    return f"{whole.strftime('%Y-%m-%dT%H:%M:%S')}.{round((at - int(at)) * 1e9):09d}{shown}"


@contextmanager
def kubelet_serving(kubelet: Kubelet, certificate: Path, address: str = "127.0.0.1") -> Iterator[int]:
    """Serve over TLS, as a kubelet does; yields the port. `certificate`: a PEM file with certificate and key."""

    class Handler(Answering):
        def reply(self) -> None:
            """Answer."""
            parts = urlsplit(self.path)
            words = [unquote(word) for word in parts.path.split("/")[1:]]
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            kubelet.seen.append((parts.path, query))
            time.sleep(kubelet.latency)
            if len(words) != 4 or words[0] != "containerLogs":
                self.send(404, b"404 page not found\n", "text/plain")
                return
            text = kubelet.text(words[1], words[2], words[3], query)
            if text is None:
                reason = f'previous terminated container "{words[3]}" in pod "{words[2]}" not found'
                self.send(400, reason.encode(), "text/plain")
            else:
                self.send(200, text.encode(), "text/plain")

    server = ThreadingHTTPServer((address, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
