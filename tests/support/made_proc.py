"""A folder in the form of /proc, which psutil reads if its PROCFS_PATH says so."""

from __future__ import annotations

import shutil
from pathlib import Path


class Proc:
    """A folder in the form of /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid, parent=1, state="S", started=100, command="python train.py", **environ):
        """A process; its name contains a bracket, as names may."""
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        rest = " ".join(["0"] * 17)
        (folder / "stat").write_text(f"{pid} (pt) main) {state} {parent} {rest} {started}{' 0' * 30}\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (folder / "environ").write_bytes(b"\0".join(f"{key}={value}".encode() for key, value in environ.items()))

    def opens(self, pid, number, target, *, writes=True):
        """The process has something open: a path, or a pipe as the kernel names it."""
        for part in ("fd", "fdinfo"):
            (self.root / str(pid) / part).mkdir(exist_ok=True)
        (self.root / str(pid) / "fd" / str(number)).symlink_to(target)
        (self.root / str(pid) / "fdinfo" / str(number)).write_text(
            f"pos:\t0\nflags:\t{'0102001' if writes else '0100000'}\n"
        )

    def works_in(self, pid, folder):
        """The process's working directory."""
        (self.root / str(pid) / "cwd").symlink_to(folder)

    def remove(self, pid):
        """The process ends."""
        shutil.rmtree(self.root / str(pid))
