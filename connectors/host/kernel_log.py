"""Follows this host's kernel log, from `dmesg` or from the file of a system logger.

Only lines from shortly before the start of the watch onwards count, because an old Xid has nothing to do with this job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from connectors.base.commands import run_bounded
from kb.model import Gap

FILES = (Path("/var/log/kern.log"), Path("/var/log/messages"), Path("/var/log/syslog"))
BEFORE = 60.0  # seconds before the start of the watch that still count
MOST_TEXT = 4 << 20
SECONDS = 5.0
_ABOUT_ONE = re.compile(  # a single process crashed, was killed because the host or its cgroup ran out of memory, or heads a dump
    rb"\[(\d{1,9})\]: segfault at |\btraps: [^\[\n]{1,64}\[(\d{1,9})\]|[Oo]ut of memory: Killed process (\d{1,9})"
    rb"|oom-kill:constraint=.{0,600}?\bpid=(\d{1,9})|\bCPU: \d{1,5} (?:UID: \d{1,10} )?PID: (\d{1,9}) Comm: "
)
_NAMES_ITS_PROCESS = (b"Killed process", b"oom-kill:", b" Comm: ")
COMMAND = ("dmesg", "--time-format", "iso")


@dataclass(slots=True)
class KernelLog:
    """The lines since `begun` (seconds since the epoch). Call `poll`, then read `text`; `gaps` says why there is none.

    Lines about the end of a single process are dropped if it is one of `others`.
    """

    begun: float
    command: Sequence[str] = COMMAND
    files: Sequence[Path] = FILES
    text: bytes = b""
    gaps: tuple[Gap, ...] = ()
    _last: bytes = b""
    _file: Path | None = None
    _at: int = 0
    _identity: tuple[int, int] = (0, 0)
    _given_up: bool = field(default=False)

    def poll(self, others: Collection[int] = (), ours: Collection[int] = ()) -> bool:
        """Read new lines, and return whether there were any.

        `ours`: the processes of the job, if known; then only their out-of-memory kills and dumps count.
        """
        if self._given_up or len(self.text) >= MOST_TEXT:
            return False
        new = self._from_file() if self._file is not None else self._from_command()
        if others or ours:
            new = b"".join(line for line in new.splitlines(keepends=True) if not self._of_another(line, others, ours))
        self.text += new[: MOST_TEXT - len(self.text)]
        return bool(new)

    def _of_another(self, line: bytes, others: Collection[int], ours: Collection[int]) -> bool:
        """Whether a line is about the end of a process that does not belong to the job, or that ended before the watch.

        Lines about "invoked oom-killer" do not identify the killed process; the lines below them do.
        """
        who = _about(line)
        if ours and who > 0 and who not in ours and any(sign in line for sign in _NAMES_ITS_PROCESS):
            return True
        return who in others or (who > 0 and _stamp(line, self.begun) < self.begun) or b" invoked oom-killer: " in line

    def _from_command(self) -> bytes:
        ran = run_bounded(self.command, SECONDS)
        if ran.trouble:
            self._fall_back(ran.trouble)
            return b""
        lines = ran.output.splitlines(keepends=True)
        known = next((at for at in range(len(lines) - 1, -1, -1) if lines[at] == self._last), -1) if self._last else -1
        if lines:
            self._last = lines[-1]
        return b"".join(line for line in lines[known + 1 :] if _stamp(line, self.begun) >= self.begun - BEFORE)

    def _fall_back(self, trouble: str) -> None:
        for path in self.files:
            with suppress(OSError), path.open("rb") as handle:
                status = os.fstat(handle.fileno())
                self._file, self._at, self._identity = path, status.st_size, (status.st_dev, status.st_ino)
                return
        self._given_up = True
        reason = f"dmesg: {trouble}; and no system log file is readable. Run as root, or set kernel.dmesg_restrict=0"
        rules_out = "Xids, out-of-memory kills and link faults that only the kernel reports"
        self.gaps = (Gap("kernel_log_unreadable", "kernel", reason, rules_out=rules_out),)

    def _from_file(self) -> bytes:
        if self._file is None:
            return b""
        with suppress(OSError), self._file.open("rb") as handle:
            status = os.fstat(handle.fileno())
            if self._identity != (status.st_dev, status.st_ino) or status.st_size < self._at:
                self._at, self._identity = 0, (status.st_dev, status.st_ino)  # rotated or truncated
            text = os.pread(handle.fileno(), MOST_TEXT, self._at)
            whole = text[: text.rfind(b"\n") + 1]
            self._at += len(whole)
            return whole
        return b""


def _about(line: bytes) -> int:
    """Return the process that a line about the end of a single process names; 0 for other lines."""
    found = _ABOUT_ONE.search(line)
    return int(found[found.lastindex or 0]) if found else 0


def _stamp(line: bytes, otherwise: float) -> float:
    """Return the time of a line, or the default if it has none."""
    word = line.split(None, 1)[0] if line.strip() else b""
    try:
        return datetime.fromisoformat(word.decode("ascii").replace(",", ".")).timestamp()
    except ValueError:
        return otherwise
