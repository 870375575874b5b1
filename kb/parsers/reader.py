"""The interface of the readers of structures.

A `Reader` has the name of its format, a trigger that finds it, and a function that reads it from a window of bytes
around the trigger. The scanner searches all triggers in one pass, passes each reader its window, and shifts the
offsets; readers never see more than that window.
"""

from __future__ import annotations

from collections.abc import Callable

from kb.model import Structure
from kb.values import dataclass

Read = Callable[[bytes, int], tuple[Structure, ...]]


@dataclass(frozen=True, slots=True)
class Reader:
    """How one format is found and read.

    `trigger` is a regex in the safe subset of docs/rule-format.md; `before` and `after`: the most bytes around the
    start of the trigger's line that `read` needs (the window ends on whole lines if possible). `read` takes the window
    and the index at which the trigger's line starts, and returns structures with offsets from the window's start, or an
    empty tuple for a false trigger. `keep` limits the structures kept per stream: the first `keep` and the last `keep`
    / 4.
    """

    name: str
    trigger: str
    read: Read
    before: int = 0
    after: int = 4096
    keep: int = 64
    ignore_case: bool = False
