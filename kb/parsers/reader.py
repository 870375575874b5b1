"""Parsing of formats: bytes in, values out. Each module reads one family of forms and knows nothing of rules.

A `Reader` names the form it reads, a trigger that finds it, and a function that reads it from a window of bytes around
the trigger. The scanner puts all triggers into its one pass, hands each reader the window it asked for, and shifts the
offsets; readers never see more than that window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kb.model import Structure

Read = Callable[[bytes, int], tuple[Structure, ...]]


@dataclass(frozen=True, slots=True)
class Reader:
    """How one form is found and read.

    `trigger` is a regex in the safe subset of docs/rule-format.md; `before` and `after` say how many bytes around the
    start of the trigger's line `read` wants at most (the window ends on whole lines where it can). `read` gets the window
    and the index in it at which the trigger's line starts, and gives structures whose offsets count from the window's
    start; an empty tuple where it was a false trigger. `keep` bounds how many structures of a stream are kept: that many
    first ones and a quarter of that many last ones.
    """

    name: str
    trigger: str
    read: Read
    before: int = 0
    after: int = 4096
    keep: int = 64
    ignore_case: bool = False
