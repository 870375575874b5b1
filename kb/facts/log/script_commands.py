"""Commands of a shell script that fail, such as `mkdir`: the script continues after one, unless it asks for its status."""

from __future__ import annotations

from collections.abc import Sequence

from kb.facts.log.run_ends import is_fatal
from kb.regex.lazy import lazy_compile

_LONG = 30  # lines
_TROUBLE = lazy_compile(
    r"(?i)error|fail|traceback|exception|kill|abort|signal|terminat|exit|dumped|time(?:d )?.?out|cancel"
)
_COMMAND = lazy_compile(
    r"(?:[^\s:]{1,200}: line \d{1,6}: )?(?:/(?:usr/)?bin/)?(?:mkdir|rmdir|ln|cp|mv|rm|chmod|chown|chgrp|touch|ls|cat|stat|find|df|du): \S"
)


def complains(line: str) -> bool:
    """Whether a line is the complaint of a command that a script runs."""
    return _COMMAND.match(line) is not None


def goes_on(later: Sequence[str]) -> bool:
    """Whether the lines after a complaint, without blank ones, show that the script continued for long without a problem."""
    return len(later) >= _LONG and not reports_trouble(later[-1]) and not any(map(is_fatal, later))


def reports_trouble(line: str) -> bool:
    """Whether a line contains a failure word, such as `error` or `killed`."""
    return _TROUBLE.search(line) is not None
