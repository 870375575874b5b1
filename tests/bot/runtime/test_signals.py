"""Signals that set an Event."""

from __future__ import annotations

import os
import signal
import threading

from bot.runtime.signals import set_on_signal


def test_a_signal_while_the_lock_of_the_event_is_held():
    """As it is for an instant whenever a thread begins to wait: the handler returns, and the event is set afterwards."""
    event, before = threading.Event(), signal.getsignal(signal.SIGUSR1)
    try:
        set_on_signal(event, signal.SIGUSR1)
        with event._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not event.is_set()
        assert event.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
