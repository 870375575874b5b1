"""Floods of slow connections, smuggled requests, large bodies and broken ones against a service on this machine.

    python bench/soak/floods.py [--minutes 2] [--connections 500] [--peers 50] [--port PORT --pid PID]

Starts `signalbox serve` on 127.0.0.1, or attacks what listens on `--port` there, and never another host. While the slow
connections are open, `/livez` is asked over a new connection every 50 ms.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import random
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.ambiguous_requests import ambiguous
from tests.support.common.served_bot import SECRET, ok, served, until
from tests.support.ports import kept_port

HOST = "127.0.0.1"
PROBE = 0.05  # seconds between two requests for /livez
DRIP = 0.5  # seconds between two bytes of a slow connection
HEAD = b"POST /webhooks/alerts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + SECRET.encode() + b"\r\n"
READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass(frozen=True)
class Slow:
    """A kind of slow connection: what it sends at once, what it sends byte by byte, and whether it reads what comes back."""

    name: str
    first: bytes
    drip: bytes
    reads: bool = True


KINDS = (
    Slow("idle", b"", b""),
    Slow("headers byte by byte", b"GET /livez HTTP/1.1\r\n", b"X-Slow: " + b"a" * 4096),
    Slow("a body byte by byte", HEAD + b"Content-Length: 900000\r\n\r\n", b" " * 4096),
    Slow("chunks byte by byte", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 700),
    Slow("answers that nobody reads", LIVE * 400, b"", reads=False),
)


def flood(port: int, kind: Slow, count: int, seconds: float, peers: int) -> tuple[list[float], int, int]:
    """Hold `count` slow connections for some seconds.

    Return the seconds of each /livez, how many failed, and how often a slow connection was closed and opened again.
    """
    over = threading.Event()
    reopened = [0]
    attacker = threading.Thread(
        target=_hold, args=(port, kind, count, over, reopened), kwargs={"peers": peers}, daemon=True
    )
    attacker.start()
    time.sleep(1.5)
    took, failed, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        answer = _live(port)
        if not answer.startswith("HTTP/1.1 200"):
            failed += 1
            print(f"    /livez: {answer}")
        took.append(time.monotonic() - began)
        time.sleep(PROBE)
    over.set()
    attacker.join(10.0)
    return took, failed, reopened[0]


def _hold(port: int, kind: Slow, count: int, over: threading.Event, reopened: list[int], *, peers: int) -> None:
    """Keep `count` connections open, each with a byte every now and then."""
    held: list[tuple[socket.socket, int]] = []
    sources = itertools.cycle(f"127.0.1.{at + 1}" for at in range(peers))
    while not over.is_set():
        kept = []
        for conn, sent in held:
            try:
                if kind.reads:
                    with suppress(BlockingIOError):
                        if not conn.recv(4096):
                            raise ConnectionResetError
                if kind.drip:
                    conn.send(kind.drip[sent % len(kind.drip) : sent % len(kind.drip) + 1])
                kept.append((conn, sent + 1))
            except BlockingIOError:
                kept.append((conn, sent))
            except OSError:
                conn.close()
                reopened[0] += 1
        held = kept
        for _ in range(min(100, count - len(held))):
            with suppress(OSError):
                conn = socket.create_connection((HOST, port), timeout=2.0, source_address=(next(sources), 0))
                conn.setblocking(False)
                held.append((conn, 0))
                with suppress(BlockingIOError):
                    conn.send(kind.first)
        over.wait(DRIP)
    for conn, _ in held:
        conn.close()


def _live(port: int, limit: float = 10.0) -> str:
    """Return the first line of the answer, or the name of an error."""
    try:
        answer = talk(port, LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), limit)
    except OSError as error:
        return type(error).__name__
    return answer.split(b"\r\n", 1)[0].decode("latin-1") or "no answer"


def talk(port: int, data: bytes, limit: float = 3.0) -> bytes:
    """Send bytes, and return what comes back until the server closes, is silent for a while, or the limit has passed."""
    got, end = b"", time.monotonic() + limit
    with socket.create_connection((HOST, port), timeout=limit) as conn:
        with suppress(OSError):
            conn.sendall(data)
        conn.settimeout(limit)
        with suppress(OSError):
            while len(got) < 1 << 20 and time.monotonic() < end:
                part = conn.recv(65536)
                if not part:
                    break
                got += part
                conn.settimeout(min(limit, 1.0))
    return got


def smuggled(port: int) -> dict[str, str]:
    """Return what is answered wrongly: more than one answer, or an ambiguous first request that is accepted."""
    wrong = {}
    for name, data in ambiguous().items():
        answers = [part.split(b"\r\n", 1)[0].decode("latin-1") for part in talk(port, data).split(b"HTTP/1.")[1:]]
        if len(answers) > 1 or any(not answer.startswith(("0 4", "1 4", "0 5", "1 5")) for answer in answers):
            wrong[name] = "; ".join(answers)
        if any(" 500 " in f"{answer} " for answer in answers):
            wrong[name] = "; ".join(answers)
    return wrong


def taken(port: int, size: int, headers: bytes = b"") -> tuple[int, str]:
    """Send a body of `size` bytes without the secret. Return the bytes that the server took before it answered, and its answer."""
    head = b"POST /webhooks/alerts HTTP/1.1\r\nHost: x\r\n" + headers + b"Content-Length: %d\r\n\r\n" % size
    sent, block, watched = 0, b"x" * 65536, selectors.DefaultSelector()
    with socket.create_connection((HOST, port), timeout=10.0) as conn:
        conn.sendall(head)
        watched.register(conn, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            while sent < size:
                [(_, ready)] = watched.select(10.0) or [(None, 0)]
                if ready & selectors.EVENT_READ or not ready:
                    break
                sent += conn.send(block[: size - sent])
            conn.settimeout(10.0)
            return sent, conn.recv(4096).split(b"\r\n", 1)[0].decode("latin-1")
        except OSError as error:
            return sent, type(error).__name__


def fuzzed(rng: random.Random) -> bytes:
    """Return a request with broken parts."""
    path = rng.choice(
        [
            b"/livez",
            b"/readyz",
            b"/metrics",
            b"/webhooks/alerts",
            b"/hooks/ended/alerts",
            b"/pages/x",
            b"/pages/x/y",
            b"/slack/events",
        ]
    )
    letters = rng.choice([range(256), range(128, 256), range(33, 127), range(33, 256)])
    noise = bytes(rng.choice(letters) for _ in range(rng.randrange(40)))
    names = [
        b"Authorization",
        b"Content-Type",
        b"X-Request-Id",
        b"Cookie",
        b"X-Grafana-Alerting-Signature",
        b"X-Slack-Signature",
        b"X-Slack-Request-Timestamp",
        b"Content-Encoding",
        b"Expect",
        b"Range",
        b"X-Forwarded-For",
        b"Forwarded",
        b"If-Modified-Since",
    ]
    values = [
        noise,
        b"Basic " + noise,
        b"Basic " + base64.b64encode(noise),
        b"Bearer " + noise,
        b"Digest " + noise,
        b"application/json; charset=" + noise,
        b"100-continue",
        b"multipart/form-data; boundary=" + noise,
        b"gzip",
        str(int(time.time())).encode(),
        b"v0=" + noise,
    ]
    headers = b"".join(
        b"%s: %s\r\n" % (rng.choice(names), rng.choice(values).replace(b"\r", b"").replace(b"\n", b""))
        for _ in range(rng.randrange(5))
    )
    if rng.random() < 0.3:
        headers += b"Authorization: Bearer " + SECRET.encode() + b"\r\n"
    body = rng.choice(
        [b"", noise, b"{" * rng.randrange(3000), b'{"alerts": [' + noise + b"]}", b"job=1&state=" + noise]
    )
    query = b"?" + noise.replace(b" ", b"").replace(b"\r", b"").replace(b"\n", b"") if rng.random() < 0.5 else b""
    data = (
        rng.choice([b"GET", b"POST", b"HEAD", b"PUT"])
        + b" "
        + path
        + query
        + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
        + headers
        + b"\r\n"
        + body
    )
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data))] + noise + data[rng.randrange(len(data)) :]
    return data


def errors(port: int, count: int, seed: int = 1) -> Counter[str]:
    """Return the status of each fuzzed request."""
    rng, found = random.Random(seed), Counter[str]()
    for _ in range(count):
        answer = talk(port, fuzzed(rng), 1.0)
        found[answer[9:12].decode("latin-1") or "none"] += 1
    return found


def rss(pid: int) -> float:
    """Return the MB of memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def attack(port: int, pid: int | None, connections: int, minutes: float, fuzz: int, *, peers: int) -> bool:
    """Run all of it, print what was found, and return whether all is well."""
    good = True

    def memory() -> float:
        return rss(pid) if pid is not None else 0.0

    before = memory()
    for kind in KINDS:
        took, failed, reopened = flood(port, kind, connections, 60.0 * minutes / len(KINDS), peers)
        took.sort()
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        good &= p99 <= 1.0 and failed == 0
        print(
            f"{connections} connections from {peers} addresses, {kind.name}: /livez asked {len(took)} times, failed {failed}, p50 {took[len(took) // 2]:.3f} s, "
            f"p99 {p99:.3f} s, most {took[-1]:.3f} s; closed by the server {reopened}; memory {before:.0f} -> {memory():.0f} MB",
            flush=True,
        )
    sent, answer = taken(port, 200 << 20)
    good &= sent < 16 << 20
    print(f"a body of 200 MiB without a secret: {sent / 1e6:.1f} MB left this side, then: {answer}")
    wrong = smuggled(port)
    good &= not wrong
    print(f"ambiguous requests: {len(ambiguous())}, accepted or answered twice: {len(wrong)}")
    for name, answers in wrong.items():
        print(f"    {name}: {answers}")
    found = errors(port, fuzz)
    good &= not found["500"]
    print(f"fuzzed requests: {dict(sorted(found.items()))}; memory {memory():.0f} MB", flush=True)
    return good


def main() -> int:
    """Attack, and return 1 if something gave way."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--connections", type=int, default=500)
    options.add_argument("--minutes", type=float, default=1.0, help="of slow connections")
    options.add_argument("--peers", type=int, default=1, help="addresses of this host that they come from, at most 254")
    options.add_argument("--fuzz", type=int, default=2000, help="broken requests")
    options.add_argument("--port", type=int, help="of a server that runs on this machine")
    options.add_argument("--pid", type=int, help="of that server, for its memory")
    given = options.parse_args()
    if given.port:
        return (
            0 if attack(given.port, given.pid, given.connections, given.minutes, given.fuzz, peers=given.peers) else 1
        )
    with tempfile.TemporaryDirectory(prefix="signalbox-floods-") as name, kept_port() as port:
        folder = Path(name)
        with served(folder, folder / "cache", port) as running:
            until(lambda: ok(port))
            until(lambda: talk(port, READY, 5.0).startswith(b"HTTP/1.1 200"))
            good = attack(port, running.pid, given.connections, given.minutes, given.fuzz, peers=given.peers)
            log = (folder / "serve.log").read_text(errors="replace")
            traces = log.count("Traceback")
            print(f"tracebacks in the service's log: {traces}")
            return 0 if good and not traces else 1


if __name__ == "__main__":
    sys.exit(main())
