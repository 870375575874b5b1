"""Converts entries of systemd's journal (`journalctl -o json` or `-o export`) to log lines.

Both formats are read entry by entry; truncated and malformed entries are skipped. A message may be bytes: in JSON a
list of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

LONGEST: Final = 1 << 20  # bytes of one field
MOST_FIELDS: Final = 512  # of one entry
KERNEL: Final = "kernel"
_WANTED: Final = frozenset(
    {
        "__REALTIME_TIMESTAMP",
        "MESSAGE",
        "SYSLOG_IDENTIFIER",
        "_TRANSPORT",
        "_HOSTNAME",
        "PRIORITY",
        "_SYSTEMD_UNIT",
        "_PID",
    }
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry. `time`: seconds since the epoch; `micros` the same in microseconds; `priority` 0 (worst) to 7, or None."""

    micros: int
    message: str
    identifier: str = ""
    host: str = ""
    priority: int | None = None

    @property
    def time(self) -> float:
        """The time in seconds since the epoch."""
        return self.micros / 1e6

    def line(self) -> bytes:
        """Return the entry as a syslog line, its time first; line breaks within the message become spaces."""
        whole, micros = divmod(self.micros, 1_000_000)
        stamp = f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros * 1000:09d}Z"
        who = " ".join(part for part in (self.host, f"{self.identifier}:" if self.identifier else "") if part)
        return f"{stamp} {who} {' '.join(self.message.split())}\n".encode("utf-8", "replace")


def read_journal(data: bytes) -> Iterator[JournalEntry]:
    """Yield the entries of either format, in file order. Never raises."""
    records = _json(data) if data.lstrip()[:1] == b"{" else _export(data)
    for fields in records:
        micros = _text(fields.get("__REALTIME_TIMESTAMP"))
        if not (micros.isascii() and micros.isdigit() and len(micros) <= 16):
            continue
        priority = _text(fields.get("PRIORITY"))
        kernel = _text(fields.get("_TRANSPORT")) == KERNEL
        yield JournalEntry(
            int(micros),
            _text(fields.get("MESSAGE")),
            KERNEL if kernel else _text(fields.get("SYSLOG_IDENTIFIER"))[:80],
            _text(fields.get("_HOSTNAME"))[:253],
            int(priority) if priority in {*"01234567"} else None,
        )


def _text(value: Any) -> str:
    """Return a field's text. In JSON, bytes are a list of numbers, and a repeated field is a list of strings."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        if value and all(isinstance(item, int) and 0 <= item < 256 for item in value[:LONGEST]):
            return bytes(value[:LONGEST]).decode("utf-8", "replace")
        return next((item for item in value if isinstance(item, str)), "")
    return value if isinstance(value, str) else ""


def _json(data: bytes) -> Iterator[Mapping[str, Any]]:
    for line in data.splitlines():
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
        if isinstance(entry, dict):
            yield entry


def _export(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of the export format: `NAME=value`, or `NAME`, eight bytes of length, and that many bytes."""
    at, fields = 0, dict[str, Any]()
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line, at = data[at:end], end + 1
        if not line:
            if fields:
                yield fields
            fields = {}
            continue
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(data[at : at + 8], "little")
            if at + 8 + length > len(data) or len(name) > 64:
                return  # truncated, or not a journal
            value, at = data[at + 8 : at + 8 + min(length, LONGEST)], at + 8 + length + 1
        key = name.decode("ascii", "replace")
        if key in _WANTED and len(fields) < MOST_FIELDS:
            fields[key] = value[:LONGEST]
    if fields:
        yield fields
