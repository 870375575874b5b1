"""Lines that count as part of others: the rest of a cut line, and the body of a traceback."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

from kb.templates.line_blocks import LineBlock
from kb.templates.masking import LineKind, LineShape, frame_of, with_frame
from kb.templates.shape_index import FOLDED, SHAPES

LONGEST_TRACEBACK = 32 * 1024  # bytes from its head, including other speakers' lines in between
TASK = b"RayTaskError("  # an exception that contains the traceback of another process
FAR = 64  # lines that may come between a line's start and its rest


class CutLines:
    """Finds the rest of cut lines. `width`: at which a terminal cut all lines of the stream."""

    def __init__(self, width: int | None) -> None:
        self.width = width
        self._open: dict[bytes, int] = {}  # whose line continues, and how many lines ago it was

    def __bool__(self) -> bool:
        """Whether the next line may be the rest of one."""
        return bool(self._open) or self.width is not None

    def join(self, block: LineBlock) -> None:
        """Let the rest of a cut line count with its start."""
        marks = block.goes_on(self.width)
        index, narrow, rest = 0, -1, []  # of a line that a terminal cut, whose rest is in the block
        while index < len(block):
            at = bisect_left(marks, index)
            if not self._open:
                if at == len(marks):
                    break
                index = marks[at]
            who, goes_on = block.part(index), at < len(marks) and marks[at] == index
            if who in self._open and (who or block.may_be_rest(index)):
                if who or narrow < 0:
                    block.reshape(index, FOLDED)
                else:
                    rest.append(index)
            else:
                goes_on = goes_on and (bool(who) or block.shape(index).start > 0)
                block.rejoin(narrow, rest)
                narrow, rest = (index if goes_on and block.is_narrow(index) else -1), []
            self._open = {item: age + 1 for item, age in self._open.items() if item != who and age < FAR}
            if goes_on:
                self._open[who] = 0
            index += 1
        block.rejoin(narrow, rest)


@dataclass(slots=True)
class _OpenTraceback:
    """A speaker whose traceback is under way, or has just ended."""

    until: int
    frame: str = ""
    frames: int = 0
    near: bool = True  # the line before was its own
    over: bool = False


class Tracebacks:
    """Collects the lines of tracebacks, those of several speakers at once."""

    def __init__(self) -> None:
        self._raised: dict[tuple[object, ...], LineShape] = {}
        self._voices: dict[bytes, _OpenTraceback] = {}

    def __bool__(self) -> bool:
        """Whether any traceback is in progress."""
        return bool(self._voices)

    def fold(self, block: LineBlock) -> None:
        """Remove the bodies of tracebacks, and add the innermost frame to the exceptions that end them."""
        heads = block.of_kind(LineKind.HEAD)
        index = 0
        while index < len(block):
            if not self._voices:
                at = bisect_left(heads, index)
                if at == len(heads):
                    return
                index = heads[at]
            shape = block.shape(index)
            if shape.kind is not LineKind.BLANK:
                heard = self._heard(shape, block.line(index), block.offset(index))
                if heard is not shape:
                    block.reshape(index, heard)
            index += 1
        end = block.offset(len(block) - 1) if len(block) else 0
        for speaker in [item for item, voice in self._voices.items() if voice.until < end]:
            del self._voices[speaker]

    def _heard(self, shape: LineShape, line: bytes, offset: int) -> LineShape:  # noqa: PLR0911 - one for each way it may go
        """Return what a line counts as, given the tracebacks in progress."""
        span = shape.rank or shape.node
        within = len(line) if line[:1] == b"{" else shape.start  # keys of JSON may follow the message
        speaker = b"" if span is None else line[:within][span[0] : span[1]]
        if shape.kind is LineKind.HEAD:
            self._voices[speaker] = _OpenTraceback(offset + LONGEST_TRACEBACK)
            return shape
        voice = self._voices.get(speaker)
        if voice is None:
            return shape
        if offset > voice.until:
            del self._voices[speaker]
            return shape
        if voice.over:
            if shape.kind is not LineKind.EXCEPTION:
                del self._voices[speaker]
                return shape
        elif shape.kind is LineKind.FRAME:
            voice.frames, voice.frame, voice.near = voice.frames + 1, frame_of(line), True
            return FOLDED
        elif shape.kind is LineKind.INDENTED and voice.near:
            return FOLDED
        elif not voice.frames or not (shape.kind is LineKind.EXCEPTION or (shape.kind is LineKind.WEAK and voice.near)):
            voice.near = False
            return shape
        if TASK in line:  # the frames of the task that failed follow
            self._voices[speaker] = _OpenTraceback(offset + LONGEST_TRACEBACK)
            return shape
        voice.over = True
        return self._raised_at(shape, voice.frame)

    def _raised_at(self, shape: LineShape, frame: str) -> LineShape:
        if shape.template is None or not frame:
            return shape
        key = (shape.template.id, frame, shape.start, shape.rank, shape.node, shape.stamp)
        found = self._raised.get(key)
        if found is None:
            if len(self._raised) >= SHAPES:
                self._raised.clear()
            found = self._raised[key] = replace(shape, template=with_frame(shape.template, frame))
        return found
