"""What incidents show of the end of their runs, and whether they are independent of each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kb.learning.cases import Case
from kb.learning.events import CLOSING, ENDING
from kb.parsers.logs.prefixes import peel

FAILED: Final = frozenset(
    {"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "TIMEOUT", "DEADLINE", "ERROR", "CRASHLOOPBACKOFF"}
)
MOST_LINES = 400  # behind the deciding one
DAY = 86_400.0
_EXITS = re.compile(
    r"(?i)\bexit(?:ed|ing|s)? (?:with )?(?:exit )?(?:code|status)\b|\bexit code:? ?[1-9]|\bcore dumped\b|\b(?:ChildFailedError|FAILED)\b"
    r"|\bMPI_ABORT\b|\bterminated by signal\b|\b(?:received|got) signal \d|\bjob .{0,60}\b(?:failed|cancelled)\b|\bstopped\W*$"
)


def ends_after(texts: Mapping[str, str], lines: Mapping[str, Sequence[str]]) -> bool:
    """Whether a source that has one of the lines says behind it that the program or the job ends, or an exception ends it."""
    for source, own in lines.items():
        whole = texts.get(source, "").split("\n")
        at = max((whole.index(line) for line in own if line in whole), default=None)
        if at is None:
            continue
        if any(_is_end(line) for line in whole[at + 1 : at + 1 + MOST_LINES] if line.strip()):
            return True
    return False


def _is_end(line: str) -> bool:
    data = line.encode("utf-8", "replace")
    message = data[peel(data).end :].decode("utf-8", "replace").strip()
    return any(char.isalpha() for char in message) and any(
        regex.search(message) is not None for regex in (ENDING, CLOSING, _EXITS)
    )


def spread_of(cases: Sequence[Case]) -> str:
    """How many jobs and days the incidents are of: one job that was requeued three times is one observation. Empty if unknown."""
    jobs = {case.job for case in cases if case.job}
    families = {case.family for case in cases if case.family}
    days = {int(case.when // DAY) for case in cases if case.when is not None}
    if not jobs or not days:
        return ""
    told = [
        _many(len(jobs), "job"),
        *([f"{_many(len(families), 'job name')}"] if families else []),
        _many(len(days), "day"),
    ]
    return ", ".join(told)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
