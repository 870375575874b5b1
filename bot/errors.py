"""Errors of the use cases, and exit statuses of the command.

0 a report was made, 2 bad usage or unreadable input, 3 nothing could be collected.
"""

from __future__ import annotations

from kb.errors import SignalboxError


class NothingCollected(SignalboxError):  # noqa: N818 - an outcome, not a mistake
    """Of all that was asked for, nothing could be read."""


def exit_status(error: SignalboxError) -> int:
    """The status that a script sees for an error."""
    return 3 if isinstance(error, NothingCollected) else 2
