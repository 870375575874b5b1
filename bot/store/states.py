"""The states of rows whose `state` column holds one word. The words are stored: they never change."""

from __future__ import annotations

from enum import StrEnum


class WorkState(StrEnum):
    """Of a task for the workers (WorkRow)."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


OPEN_WORK = (WorkState.WAITING, WorkState.RUNNING)


class OutboxState(StrEnum):
    """Of something to be sent once (OutboxRow)."""

    WAITING = "waiting"
    SENDING = "sending"
    COMPLETING = "completing"  # the last call may have had its effect
    SENT = "sent"
    FAILED = "failed"


class PostingState(StrEnum):
    """Of a message that is edited in place (PostingRow): what it says."""

    COLLECTING = "collecting"  # who is asked, until there is an answer
    ANSWERED = "answered"
    FAILED = "failed"  # there is no answer, and why
    GONE = "gone"  # it was deleted, or cannot be sent
    HELD_BACK = "rest"  # a list of what was held back
    REMINDER = "reminder"
    DIGEST = "digest"
    PROPOSAL = "proposal"  # of a rule
