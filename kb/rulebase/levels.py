"""What a line says about its level, and about a failure that the program overcame. `level` and `recovered` of a pattern test this.

Levels are read as programs write them: a word in capitals before all others in capitals, a word in
brackets or before a colon, a field of a record (`level=info`, `"levelname": "WARNING"`, Python's and pino's numbers), syslog's `<6>`, glog's `I0311 10:31`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# what stands before a level: anything but words in capitals, which are a level themselves, or words of the message
_BEFORE: Final = r"^(?:[^A-Z\n]|[A-Z][^A-Z\n]|UTC|GMT|NCCL|RCCL){0,80}?"
_MARK: Final = r"(?:^|[\d\[(<|:\])>]) ?(?i:"  # of a level in small letters, before it
_FIELD: Final = r"(?i:\b(?:level|severity|levelname|log_level|loglevel|lvl)\\?[\"']? ?[=:] ?\\?[\"']?"
# levels at which programs report no failure of theirs
LOWER: Final = (
    _BEFORE + r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING)\b"
    r"|" + _BEFORE + _MARK + r"trace|debug[1-5]?|info|notice|warn|warning) ?[\])>|:]"
    r"|" + _FIELD + r"(?:trace|debug|info|notice|warn|[123]0\b))"
    r"|^(?:\[[^\]\n]{1,20}\]:? ?)?(?:\[?[IWD]\d{3,4} \d\d:|<[4-7]>)"
)
ERROR: Final = (
    r"\b(?:ERROR|ERR|SEVERE|CRITICAL|FATAL|PANIC)\b|"
    + _BEFORE
    + _MARK
    + r"error|severe|critical|fatal|panic) ?[\])>|:]"
    r"|" + _FIELD + r"(?:error|severe|critical|fatal|panic|[45]0\b))"
    r"|\b[EF]\d{3,4} \d\d:|^<[0-3]>"
)
# words by which a program says that it overcame a failure
_RECOVERIES: Final = (
    "retry(?:ing)?", "retries left", r"attempt \d{1,4} (?:of|/) ?\d", "recovered", "recovering", "fall(?:s|ing)? ?back", "fell back",
    "fallback", "skipp(?:ed|ing)", "ignor(?:ed|ing)", "continuing", "rebuilding", "recompiling", "reconnecting", "instead",
)  # fmt: skip
RECOVERED: Final = rf"(?i:\b(?:{'|'.join(_RECOVERIES)})\b)"


def recoveries_beside(lines: Iterable[str]) -> str:
    """Return RECOVERED without the words that some lines have, which report a failure all the same: "a page instead of a batch"."""
    own = "\n".join(lines)
    kept = [word for word in _RECOVERIES if re.search(rf"(?i)\b(?:{word})\b", own) is None]
    return rf"(?i:\b(?:{'|'.join(kept)})\b)"


def excluded(level: str | None, recovered: bool | None, not_line: str | None) -> str | None:
    """Return the regex of what a pattern's line must not match: its own, that of lower levels, that of recoveries."""
    parts = (
        LOWER if level == "error_if_stated" else None,
        RECOVERED if recovered is False else None,
        f"(?:{not_line})" if not_line is not None and (level or recovered is False) else not_line,
    )
    return "|".join(part for part in parts if part is not None) or None
