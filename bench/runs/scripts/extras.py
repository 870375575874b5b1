"""What is plugged into runs most: ends, waits, values, messages."""

import logging
import os
import signal
import threading
import time

import torch


def die(at, name="SIGKILL"):
    """Get a signal, as from outside."""
    signal.signal(getattr(signal, name), signal.SIG_DFL) if name not in ("SIGKILL", "SIGSTOP") else None
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(30)


def leave(at, status=1):
    """End at once, without a word."""
    os._exit(status)


def pause(at, seconds):
    """Wait."""
    time.sleep(seconds)


def nan(at):
    """Not a number."""
    return at.value * float("nan")


def scale(at, factor=1.0, add=0.0):
    """Another value."""
    return at.value * factor + add


def grow(at, start, rate=1.1):
    """A value that climbs from step `start`."""
    return at.value + (rate ** (at.step - start) - 1)


def say(at, text, level="info", name="trainer"):
    """A message."""
    logging.getLogger(name).log(
        getattr(logging, level.upper()), text.replace("{step}", str(at.step)).replace("{rank}", str(at.rank))
    )


def out(at, text):
    """A line on stdout."""
    print(text.replace("{step}", str(at.step)).replace("{rank}", str(at.rank)), flush=True)


def lock(at):
    """Wait for a lock that this thread holds."""
    mutex = threading.Lock()
    mutex.acquire()
    mutex.acquire()


def weights(at, name="", factor=float("nan")):
    """Spoil a parameter."""
    with torch.no_grad():
        for key, value in at.model.named_parameters():
            if name in key:
                value.mul_(factor)
                return
