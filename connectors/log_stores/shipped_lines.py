"""Unwraps lines from log shippers: Docker's JSON, the pieces of the container runtime interface, the systemd journal's JSON.

A store returns the lines as they were shipped. In files on a node, the same lines have no wrapping, so it is removed here. Lines of
the program itself stay unchanged; a line that is JSON stays JSON, with the store's time as its first field if it has no time.

Formats: Docker's json-file driver (`log`, `stream`, `time`), CRI (`<time> stdout|stderr P|F <text>`), `journalctl -o json`,
and the objects of fluent-bit, Vector, Filebeat and OpenTelemetry collectors, which keep the line under one of a few keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

LONGEST_WRAPPED = 256 << 10  # characters of a wrapped line; longer ones are left as they are
DEEPEST = 3  # nested wrappings: a CRI line that contains Docker's JSON that contains the program's JSON
MOST_PIECES = 64  # of one line that the runtime cut

_CRI = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) (?P<tag>[PF]) (?P<text>.*)",
    re.DOTALL,
)
_TIMED = re.compile(r'"(?:@?timestamp|ts|time|asctime|datetime|eventTime|@t)" ?:')
# Keys that a shipper adds to the line that it read. An object without any of them is the program's own.
_SHIPPERS = frozenset({"kubernetes", "kubernetes_namespace_name", "kubernetes_pod_name", "docker", "container_id", "container_name", "container", "source_type", "stream", "_p", "agent", "ecs", "input", "logtag", "resource", "resources", "attributes", "observed_timestamp", "observedTimeUnixNano"})  # fmt: skip
# Keys of a program's own JSON logger: if a shipper merged them into its object, the level must not be lost.
_OF_PROGRAM = frozenset({"level", "levelname", "lvl", "log_level", "loglevel", "severity", "logger", "exc_info"})
_TEXTS = ("log", "message", "MESSAGE", "body", "Body", "msg")


def unwrapped(lines: Iterable[tuple[int, str]], *, ended: bool = True) -> Iterator[tuple[int, str]]:
    """Yield lines (nanoseconds since the epoch, text) without their wrapping, the pieces of a cut line joined.

    The lines are from one origin and in order. A joined line has the time of its first piece. `ended`: no further piece of the last
    line is expected, so the pieces received are used.
    """
    waiting: dict[str, tuple[int, list[str]]] = {}
    for at, text in lines:
        stream, tag, plain = _peeled(text)
        if tag == "P" and len(waiting.get(stream, (0, []))[1]) < MOST_PIECES:
            waiting.setdefault(stream, (at, []))[1].append(plain)
            continue
        first, pieces = waiting.pop(stream, (at, []))
        yield first, "".join([*pieces, plain])
    for first, pieces in sorted(waiting.values()) if ended else ():
        yield first, "".join(pieces)  # the rest of the line was not collected


def timed(stamp: str, text: str) -> str:
    """Return a line with the store's time: before the text, or as the first field of a JSON object that has none."""
    if not (text.startswith("{") and text.rstrip().endswith("}")):
        return f"{stamp} {text}"
    if _TIMED.search(text, 0, 2048):
        return text
    return f'{{"time":"{stamp}"{"" if text[1:].lstrip().startswith("}") else ","}{text[1:]}'


def _peeled(text: str) -> tuple[str, str, str]:
    """Return the stream, the tag (`P`: a piece, more follows) and the text of a line."""
    stream, tag = "", "F"
    for _ in range(DEEPEST):
        if len(text) > LONGEST_WRAPPED:
            break
        piece = _CRI.match(text)
        if piece is not None:
            stream, tag, text = piece["stream"], piece["tag"], piece["text"]
            continue
        inner = _inner(text) if text.startswith("{") else None
        if inner is None:
            break
        stream, tag, text = inner[0] or stream, inner[1], inner[2]
    return stream, tag, text


def _inner(text: str) -> tuple[str, str, str] | None:
    """Return stream, tag and the line within a shipper's JSON object; None if the object is the program's own."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    if not isinstance(found, dict):
        return None
    line = _line_of(found)
    if line is None:
        return None
    stream = found.get("stream")
    cut = (
        found.get("logtag") == "P"
        or found.get("_p") == "P"
        or ("log" in found and stream is not None and not line.endswith("\n") and "time" in found)
    )
    return (stream if isinstance(stream, str) else "", "P" if cut else "F", line.rstrip("\n"))


def _line_of(found: Mapping[str, Any]) -> str | None:
    journal = "MESSAGE" in found and any(name.startswith(("_", "PRIORITY", "SYSLOG_")) for name in found)
    docker = "log" in found and found.keys() <= {"log", "stream", "time", "attrs"}
    if not (journal or docker or (_SHIPPERS & found.keys() and not _OF_PROGRAM & found.keys())):
        return None
    value = next((found[name] for name in _TEXTS if name in found), None)
    if isinstance(value, Mapping):  # OTLP: {"stringValue": …}
        value = value.get("stringValue")
    if isinstance(value, list) and all(
        isinstance(byte, int) and 0 <= byte < 256 for byte in value
    ):  # a journal's bytes
        value = bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None
