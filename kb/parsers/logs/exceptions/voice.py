"""The writer ("voice") of a traceback, and which lines belong to it."""

from __future__ import annotations

from kb.parsers.logs.lines import lines_from, plain
from kb.parsers.logs.prefixes import Prefix, peel
from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class Voice:
    """The writer of a traceback: the bytes before its header, and the values of its prefix."""

    before: bytes
    key: tuple[object, ...]

    def rest(self, line: bytes) -> bytes | None:
        """Return this voice's text on the line, with its indentation; None if the line is another's."""
        if self.before:
            if line.startswith(self.before):
                return plain(line[len(self.before) :])
        elif line[:1] in (b" ", b"\t", b""):
            return plain(line)
        prefix = peel(line)
        return plain(line[prefix.end :]) if prefix_key(prefix) == self.key else None


def prefix_key(prefix: Prefix) -> tuple[object, ...]:
    """Return the key that distinguishes voices, which includes whether there is a prefix."""
    return (prefix.rank, prefix.local_rank, prefix.node, prefix.pid, prefix.end == 0)


def indentation(rest: bytes) -> int:
    """Count the spaces and tabs at the start of a line."""
    return len(rest) - len(rest.lstrip(b" \t"))


def next_line_of_voice(window: bytes, position: int, voice: Voice) -> tuple[bytes, int]:
    """Return the next non-blank line of this voice, and the index after it; at most eight lines ahead."""
    for _, after, line in lines_from(window, position, 8):
        rest = voice.rest(line)
        if rest is not None and rest.strip(b" \t|"):
            return rest, after
    return b"", position
