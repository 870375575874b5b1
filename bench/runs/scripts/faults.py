"""Faults to plug in: each acts in the process that it befalls. Texts may name {rank} and {step}; the plans choose the words."""

import ctypes
import logging
import os
import signal
import sys
import time

import hooks


def filled(text, at):
    """A text with its rank and step."""
    return text.format(rank=at.rank, step=at.step)


def log(at, text, level="error", logger="trainer"):
    """Write a line as the script does; `print` goes to the standard output as it is."""
    if level == "print":
        print(filled(text, at), flush=True)
    else:
        logging.getLogger(logger).log(logging.getLevelNamesMapping()[level.upper()], "%s", filled(text, at))


def says(at, text, level="info", logger="trainer", after=0.0):
    """Write a line, and go on."""
    logging.getLogger(logger).setLevel(logging.DEBUG)
    log(at, text, level, logger)
    time.sleep(after)


def raises(at, text, kind="RuntimeError", first=()):
    """Raise an exception of a class of the run's own, or one of Python's."""
    for line in first:
        says(at, **line)
    message = filled(text, at)
    if hooks.WITNESS:
        hooks.WITNESS.tell(message)
    known = getattr(__import__("builtins"), kind, None)
    raise (known or type(kind, (Exception,), {"__module__": "recipe.core"}))(message)


def os_error(at, number, path):
    """Fail as the operating system does."""
    import errno

    code = getattr(errno, number)
    if hooks.WITNESS:
        hooks.WITNESS.tell(os.strerror(code))
    raise OSError(code, os.strerror(code), filled(path, at))


def leaves(at, text="", level="error", logger="trainer", status=3):
    """End at once, with or without a word."""
    if text:
        says(at, text, level, logger)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def finishes(at, text="", level="info", logger="trainer"):
    """Leave the loop early, as if all was well."""
    if text:
        says(at, text, level, logger)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def dies(at, number="SIGKILL"):
    """Get a signal."""
    os.kill(os.getpid(), getattr(signal, number))
    time.sleep(5)


def crashes(at, text):
    """A native library complains on the descriptor itself, and aborts."""
    line = filled(text, at)
    if hooks.WITNESS:
        hooks.WITNESS.tell(line)
    os.write(2, (line + "\n").encode())
    ctypes.CDLL(None).abort()


def hangs(at, text="", level="debug", logger="feeder", seconds=100000):
    """Wait for what does not come."""
    if text:
        says(at, text, level, logger)
    time.sleep(seconds)


def slows(at, seconds=0.3, grows=0.0, since=0):
    """Take longer, the longer the more."""
    time.sleep(seconds + grows * max(0, at.step - since))


def drifts(at, name, factor=1.0, grows=0.0, since=0):
    """A number of the heartbeat moves away from the others'."""
    at.value[name] = at.value[name] * (factor + grows * max(0, at.step - since))
    if name == "queue":
        at.value[name] = int(at.value[name])
    return at.value | {"own": True}


def silences(at):
    """No heartbeat any more."""
    return "silent"


def retries(at, text, count=6, wait=0.2, level="warning", logger="store", then="", kind="TimeoutError"):
    """Try again and again, and give up."""
    for number in range(1, count + 1):
        says(at, text.replace("{number}", str(number)), level, logger, wait)
    if then:
        raises(at, then, kind)


def changes(at, value):
    """Put another value in place of what passes here."""
    return value


def scales(at, factor):
    """A loss, a rate or a batch that is off by a factor."""
    return at.value * factor


def poisons(at):
    """A number becomes NaN."""
    return at.value * float("nan")


def shortens(at, by=1):
    """A batch that has another shape than the others'."""
    return tuple(part[:, :-by] for part in at.value)
