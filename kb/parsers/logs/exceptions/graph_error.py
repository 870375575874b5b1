"""The message of an error in a TensorFlow graph: it follows the stack of the node at which it was detected."""

from __future__ import annotations

from kb.parsers.logs.exceptions.frames import FRAME_LINE
from kb.parsers.logs.exceptions.voice import Voice
from kb.parsers.logs.lines import lines_from
from kb.regex.lazy import lazy_compile

HEADING = b"Graph execution error:"
_MAX_LINES = 400  # with the stacks of the nodes, which have a blank line after each frame
_MAX_TEXT = 12  # lines of the message itself
_NODE = lazy_compile(rb"Detected at node |Node: |<stack traces unavailable>")
_OVER = lazy_compile(rb"\d{1,9} successful operations|Function call stack:|Traceback \(most recent call last\)")


def message_below(window: bytes, position: int, voice: Voice) -> tuple[bytes, int]:
    """Return the nodes and the message that follow the heading, and the index after them; empty if there is no message."""
    nodes: list[bytes] = []
    told: list[bytes] = []
    end = position
    for _, after, line in lines_from(window, position, _MAX_LINES):
        rest = voice.rest(line)
        if rest is None:
            break
        said = rest.strip()
        if told and (not said or _OVER.match(said) or len(told) >= _MAX_TEXT):
            break
        if not told and _NODE.match(said):
            nodes += [said] if said.startswith(b"Detected") and not nodes else []
        elif told or (said and not rest[:1].isspace()):
            if _OVER.match(said) or FRAME_LINE.match(rest):
                break
            told.append(rest.rstrip())
            end = after
    return b"\n".join([*nodes, *told]) if told else b"", end
