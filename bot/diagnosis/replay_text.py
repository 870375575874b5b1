"""The text stored with an incident so that later rules can be tested on it: the first line of each shape, redacted."""

from __future__ import annotations

from bot.runtime.redaction import redact
from kb.facts.evidence import Evidence
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, head_lines, tail_lines

MOST = 256 * 1024
_HEADING, _REMARK = b"#! source: ", b"#! "
_NUMBER = lazy_compile(r"\d+|0x[0-9a-f]+")


def replay_text(evidence: Evidence) -> bytes:
    """Return the distinct lines of all streams, each stream under a heading with its name. At most 256 KB, cut at the end of a line."""
    streams = evidence.streams
    share = MOST // max(1, len(streams))
    parts = [part for summary in streams if (part := _stream(summary, share))]
    text = redact("".join(parts)).encode("utf-8", "replace")
    if len(text) <= MOST:
        return text
    return text[: text.rfind(b"\n", 0, MOST - 64) + 1] + b"#! cut here: the text was longer than 256 KB\n"


def streams_of(text: bytes) -> dict[str, bytes]:
    """Return the streams of a replay text by name; lines before the first heading have no name."""
    found: dict[str, list[bytes]] = {}
    lines = found.setdefault("", [])
    for line in text.split(b"\n"):
        if line.startswith(_HEADING):
            lines = found.setdefault(line[len(_HEADING) :].decode("utf-8", "replace"), [])
        elif not line.startswith(_REMARK):
            lines.append(line)
    return {name: b"\n".join(part) + b"\n" for name, part in found.items() if any(part)}


def _stream(summary: StreamSummary, share: int) -> str:
    """Return a stream's heading and its most relevant lines, in the order of the log: an error stays above what it says of itself."""
    shapes: set[str] = set()
    heading = f"#! source: {summary.ref.uri}"
    kept: list[tuple[int, str]] = []
    room = share - len(heading)
    for offset, line in _candidates(summary):
        shape = _NUMBER.sub("#", line)[:200]
        if shape in shapes or not line.strip():
            continue
        room -= len(line) + 1
        if room < 0:
            break
        shapes.add(shape)
        kept.append((offset, line))
    return "\n".join([heading, *(line for _, line in sorted(kept))]) + "\n" if kept else ""


def _candidates(summary: StreamSummary) -> list[tuple[int, str]]:
    """Return lines with their offsets, the most relevant first: rule hits, structures, then the end and the start of the stream."""
    places = {(place.offset, place.line) for hits in summary.hits.values() for place in hits.places()}
    structures = {(structure.offset, structure.line) for structure in summary.structures}
    tail = list(tail_lines(summary))[1 if summary.tail_offset > 0 else 0 :]  # the first one may be cut
    return [*sorted(places | structures), *tail, *head_lines(summary)]
