"""The states of rows whose `state` column holds one word. The words are stored, so they must never change."""

from __future__ import annotations

from enum import StrEnum


class WorkState(StrEnum):
    """The states of a worker task (WorkRow)."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


OPEN_WORK = (WorkState.WAITING, WorkState.RUNNING)


class OutboxState(StrEnum):
    """The states of an item that is sent once (OutboxRow)."""

    WAITING = "waiting"
    SENDING = "sending"
    COMPLETING = "completing"  # the last call may have taken effect
    SENT = "sent"
    FAILED = "failed"


class PostingState(StrEnum):
    """The states of a message that is edited in place (PostingRow)."""

    COLLECTING = "collecting"  # the sources being queried, until there is an answer
    ANSWERED = "answered"
    FAILED = "failed"  # why there is no answer
    GONE = "gone"  # the message was deleted, or cannot be sent
    HELD_BACK = "rest"  # a list of the messages that were held back
    REMINDER = "reminder"
    ASSIGNED = "assigned"  # tells a person that an incident was assigned to them
    DIGEST = "digest"
    PROPOSAL = "proposal"  # a proposed rule
