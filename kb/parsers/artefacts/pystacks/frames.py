"""Frames and threads of one process, whatever tool wrote them: bounded, and equal stacks share their frames."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kb.model import Frame, Gap, ThreadStack

MOST_BYTES = 64 * 1024 * 1024
MOST_PROCESSES = 65_536
MOST_THREADS = 1024  # of one process
MOST_FRAMES = 192  # of one thread: its innermost and outermost ones
OUTERMOST = 64
MAIN = "MainThread"


def stack_gap(code: str, source: str, reason: str, scope: str = "") -> Gap:
    """Return a gap of these stacks."""
    return Gap(code, source, reason, scope, rules_out="where this process is stuck")


@lru_cache(maxsize=65_536)
def shared_frame(function: str, file: str, line: int | None) -> Frame:
    """Return a frame, the same object for equal ones: ten thousand ranks share a few places."""
    return Frame(function, file, line)


@lru_cache(maxsize=16_384)
def _shared(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return frames


def bounded(frames: list[Frame]) -> tuple[Frame, ...]:
    """Return the frames, the innermost and outermost ones of too many; the same object for equal stacks."""
    if len(frames) > MOST_FRAMES:
        frames = frames[: MOST_FRAMES - OUTERMOST] + frames[-OUTERMOST:]
    return _shared(tuple(frames))


def line_number(line: float | None) -> int | None:
    """Return a line number from 1; None for the 0 of native frames."""
    return int(line) if line is not None and 0 < line < 1e9 else None


def with_main(threads: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """Return the threads with one marked as main: if none is named so, the last that starts at a module, or the last.

    Tools that name no threads list the main one last; a process's own program starts at `<module>`.
    """
    if not threads or any(each.thread == MAIN for each in threads):
        return threads
    starts = [at for at, each in enumerate(threads) if _starts_program(each.frames)]
    if not starts and any(each.thread and not each.thread[:1].isdigit() for each in threads):
        return threads
    at = starts[-1] if starts else len(threads) - 1
    return (*threads[:at], replace(threads[at], thread=MAIN), *threads[at + 1 :])


def _starts_program(frames: tuple[Frame, ...]) -> bool:
    return any(each.function in {"<module>", "_run_module_as_main"} for each in frames[-24:])
