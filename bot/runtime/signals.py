"""Signals that set an Event."""

from __future__ import annotations

import signal
import threading


def set_on_signal(event: threading.Event, *numbers: int) -> None:
    """Set an event when one of the signals arrives; to be called in the main thread.

    A handler runs between any two instructions of the main thread. Where that waits for the event, it may hold the event's lock,
    and a handler that sets the event would wait for itself: another thread sets it.
    """
    for number in numbers:
        signal.signal(number, lambda *_: threading.Thread(target=event.set, daemon=True).start())
