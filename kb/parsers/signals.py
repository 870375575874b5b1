"""The signals of Linux that end processes: their numbers, what programs call them, and the statuses that they leave.

One table for the readers of logs and for the patterns of rules (kb.rulebase.signal_texts). Values only.
Sources: https://man7.org/linux/man-pages/man7/signal.7.html (x86 and Arm), the C library's strsignal, CPython's
Modules/faulthandler.c, Paddle's paddle/phi/core/platform/init.cc, and
https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55 (checked 2026-11-30).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kb.values import dataclass

_NUMBERED: Final = (
    *(
        "HUP",
        "INT",
        "QUIT",
        "ILL",
        "TRAP",
        "ABRT",
        "BUS",
        "FPE",
        "KILL",
        "USR1",
        "SEGV",
        "USR2",
        "PIPE",
        "ALRM",
        "TERM",
    ),
    *("STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ"),
)
NAMES: Final[Mapping[int, str]] = {number: f"SIG{name}" for number, name in enumerate(_NUMBERED, start=1)}
NUMBERS: Final[Mapping[str, int]] = {name: number for number, name in NAMES.items()}
SHELL_STATUS: Final = 128  # a shell and a container add this to the number


@dataclass(frozen=True, slots=True)
class Words:
    """What programs call a signal.

    `shell`: the C library and shells. `paddle`: Paddle's handler. `windows`: statuses of processes that Windows ends for
    the same reason, in hexadecimal.
    """

    shell: str
    paddle: str = ""
    windows: tuple[str, ...] = ()


WORDS: Final[Mapping[str, Words]] = {
    "SIGHUP": Words("Hangup"),
    "SIGINT": Words("Interrupt", windows=("C000013A",)),
    "SIGILL": Words("Illegal instruction", "Illegal instruction", ("C000001D",)),
    "SIGABRT": Words("Aborted", "Process abort signal"),
    "SIGBUS": Words("Bus error", "Access to an undefined portion of a memory object"),
    "SIGFPE": Words("Floating point exception", "Erroneous arithmetic operation", ("C0000094",)),
    "SIGKILL": Words("Killed"),
    "SIGUSR1": Words("User defined signal 1"),
    "SIGSEGV": Words("Segmentation fault", "Segmentation fault", ("C0000005", "C00000FD", "C0000409")),
    "SIGUSR2": Words("User defined signal 2"),
    "SIGTERM": Words("Terminated", "Termination signal"),
    "SIGXCPU": Words("CPU time limit exceeded"),
    "SIGXFSZ": Words("File size limit exceeded"),
}


def signal_of_status(status: int | None) -> str:
    """Return the signal that a negative exit code, or a shell's status above 128, stands for; empty if it is none."""
    if status is None or 0 <= status <= SHELL_STATUS:
        return ""
    return NAMES.get(-status if status < 0 else status - SHELL_STATUS, "")
