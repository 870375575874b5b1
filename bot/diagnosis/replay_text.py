"""The text stored with an incident so that later rules can be tested on it: the first line of each shape, redacted."""

from __future__ import annotations

from bot.runtime.redaction import redact
from kb.facts.evidence import Evidence
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary

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
    shapes: set[str] = set()
    lines = [f"#! source: {summary.ref.uri}"]
    room = share - len(lines[0])
    for line in _candidates(summary):
        shape = _NUMBER.sub("#", line)[:200]
        if shape in shapes or not line.strip():
            continue
        room -= len(line) + 1
        if room < 0:
            break
        shapes.add(shape)
        lines.append(line)
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


def _candidates(summary: StreamSummary) -> list[str]:
    """Yield the most relevant lines first: rule hits, structures, then the end and the start of the stream."""
    places = sorted((place.offset, place.line) for hits in summary.hits.values() for place in hits.places())
    structures = [(structure.offset, structure.line) for structure in summary.structures]
    telling = [line for _, line in sorted({*places, *structures})]
    return [*telling, *summary.tail.split("\n"), *summary.head.split("\n")]
