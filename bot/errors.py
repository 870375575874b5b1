"""Exit statuses of the command: 0 a report was made, 2 bad usage or unreadable input, 3 nothing could be collected."""

from __future__ import annotations

from kb.errors import SignalboxError


def exit_status(error: SignalboxError) -> int:
    """The status that a script sees for an error."""
    return 3 if type(error).__name__ == "NothingCollected" else 2
