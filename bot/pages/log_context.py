"""The lines around each line of evidence, read while the logs are available and stored with the incident, secrets masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bot.runtime.redaction import redact
from connectors.bundles.streams import StreamReader, is_plain
from kb.errors import SignalboxError, UnreadableInput
from kb.model import StreamRef
from kb.report import EvidenceItem, Report

SCHEMA = "signalbox.passages/1"
BEFORE, AFTER = 4, 3  # lines
TRACEBACK = 60  # lines of a traceback before the one that names the exception
LOOKED = 8192  # bytes searched on each side
FARTHEST = 8 * 1024 * 1024  # bytes of a compressed log, which must be read from its beginning
MOST = 48  # places
LONGEST = 300  # characters of a line
MOST_BYTES = 64 * 1024
_TRACEBACK = "Traceback (most recent call last)"
_WORD = re.compile(r"[A-Za-z]+ (?:: )?\Z")
_UNDERLINE = re.compile(r"(?:\[[^\]\n]{0,40}\]:?)?[\s^~=*#_-]*\Z")


@dataclass(frozen=True, slots=True)
class LogContext:
    """The lines before and after a line of evidence, which starts at an offset of a source."""

    source: str
    offset: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def passages(report: Report, root: Path | None) -> tuple[LogContext, ...]:
    """Return the context of a report's evidence. `root`: the folder that sources are relative to."""
    found: dict[tuple[str, int], LogContext] = {}
    size = 0
    for item in _items(report):
        if item.offset is None or (item.source, item.offset) in found or len(found) == MOST:
            continue
        read = _around(item, item.offset, root)
        if read is not None:
            size += len(msgspec.json.encode(read)) + 1
            if size > MOST_BYTES - len(SCHEMA) - 64:
                break
            found[item.source, item.offset] = read
    return tuple(found.values())


def _items(report: Report) -> Iterator[EvidenceItem]:
    for diagnosis in report.diagnoses:
        yield from (item for item in diagnosis.evidence if item.kind in ("line", "series"))
    yield from (event.evidence for event in report.indicators.events if event.evidence is not None)


def _around(item: EvidenceItem, offset: int, root: Path | None) -> LogContext | None:
    """Return the lines around an item, or None if they cannot be read."""
    ref = StreamRef(str(root / item.source if root else Path(item.source)))
    start = max(0, offset - LOOKED)
    try:
        plain = is_plain(ref)
        if not plain and offset > FARTHEST:
            return None
        blocks = StreamReader(ref, start, offset + LOOKED) if plain else _from(StreamReader(ref), start)
        block = b"".join(_taken(blocks, offset + LOOKED - start))
    except (OSError, ValueError, SignalboxError):
        return None
    # mask both sides as one text, so that a secret of several lines is masked as a whole
    text = redact(block.decode("latin-1"))
    before = text[: offset - start].split("\n")[:-1]
    after = text[offset - start :].split("\n")[1 + item.text.count("\n") :]
    if start and before:
        before = before[1:]  # the first line is incomplete
    if len(block) == offset + LOOKED - start:
        after = after[:-1]  # so is the last one
    return LogContext(named(item.source), offset, _before(_telling(before)), _telling(after)[:AFTER])


def _before(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines before a line of evidence: the whole traceback if that line ends one."""
    for count in range(1, min(TRACEBACK, len(lines)) + 1):
        prefix, found, _ = lines[-count].partition(_TRACEBACK)
        if found:
            frames = lines[len(lines) - count + 1 :]
            starts = (prefix, _WORD.sub("", prefix), "")  # "Original Traceback" of a worker, or after a level
            whole = any(all(frame.startswith(f"{start} ") for frame in frames) for start in starts)
            return lines[-max(count, BEFORE) :] if whole else lines[-BEFORE:]
    return lines[-BEFORE:]


def named(source: str) -> str:
    """Return a source as valid Unicode for JSON: file names may contain any bytes."""
    return source.encode("utf-8", "replace").decode()


def _from(blocks: Iterable[bytes], start: int) -> Iterator[bytes]:
    """Skip the first bytes of the blocks."""
    for block in blocks:
        yield block[start:]
        start = max(0, start - len(block))


def _taken(blocks: Iterable[bytes], most: int) -> Iterator[bytes]:
    for block in blocks:
        yield block[:most]
        most -= len(block)
        if most <= 0:
            return


def _telling(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines to store, without empty ones and those that only underline the line before."""
    return tuple(_line(line) for line in lines if not _UNDERLINE.match(line))


def _line(text: str) -> str:
    """Return a line as it is stored. Of a progress bar, the last state."""
    whole = text.encode("latin-1", "replace").decode("utf-8", "replace").rstrip("\r")
    last = whole.rpartition("\r")[2]
    return last if len(last) <= LONGEST else f"{last[: LONGEST // 2]}…{last[1 - LONGEST // 2 :]}"


def dumps(found: Iterable[LogContext]) -> bytes:
    """Encode as JSON."""
    return msgspec.json.encode({"schema": SCHEMA, "passages": list(found)})


def loads(text: bytes) -> tuple[LogContext, ...]:
    """Decode what `dumps` wrote.

    Raises:
        UnreadableInput: the data is not such JSON.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise UnreadableInput(f"not of the schema {SCHEMA}")
        return msgspec.convert(body["passages"], tuple[LogContext, ...])
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not readable log context: {error}") from error
