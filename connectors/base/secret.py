"""Secrets by reference: the configuration names an environment variable or a file, never the value."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from connectors.base.contract import SourceFailed

LARGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret lies: exactly one of `env` (a variable's name) and `file` (a path; read anew each time, as they rotate)."""

    env: str | None = None
    """The environment variable that holds it."""
    file: str | None = None
    """The file that holds it; it is read each time, so that it may be rotated."""

    def __post_init__(self) -> None:
        if (self.env is None) == (self.file is None):
            raise ValueError("give a secret by exactly one of env: and file:")

    def value(self) -> str:
        """The secret, without white space around it.

        Raises:
            SourceFailed: it is not there, not readable, empty, or no single line.
        """
        text = self.block()
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise SourceFailed("not_configured", f"the secret in {self.file or self.env} is not a single line of text")
        return text

    def block(self) -> str:
        """The secret, of several lines where it is such a one, as a private key is.

        Raises:
            SourceFailed: it is not there, not readable, or empty.
        """
        text = self._from_file() if self.file is not None else os.environ.get(self.env or "", "")
        text = text.strip()
        if not text:
            where = f"the file {self.file} is empty" if self.file else f"the environment variable {self.env} is not set"
            raise SourceFailed("not_configured", where, hint="store the secret there, or name another place")
        return text

    def _from_file(self) -> str:
        path = Path(self.file or "").expanduser()
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise SourceFailed("not_configured", f"{path} is not a regular file")
            with path.open("rb") as handle:
                return handle.read(LARGEST).decode("utf-8", errors="replace")
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceFailed("not_configured", f"the secret file {path} cannot be read: {reason}") from None
