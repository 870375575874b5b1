"""Secrets by reference: the configuration names an environment variable or a file, never the value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path

from connectors.base.contract import SourceFailed

LARGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a secret: exactly one of `env` (a variable) and `file` (a path, read each time because secrets rotate)."""

    env: str | None = None
    """The environment variable that contains it."""
    file: str | None = None
    """The file that contains it. It is read each time, so the secret can be rotated."""

    def __post_init__(self) -> None:
        if (self.env is None) == (self.file is None):
            raise ValueError("give a secret by exactly one of env: and file:")

    def value(self) -> str:
        """Return the secret without surrounding white space.

        Raises:
            SourceFailed: It is missing, unreadable, empty, or not a single line.
        """
        text = self.block()
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise SourceFailed("not_configured", f"the secret in {self.file or self.env} is not a single line of text")
        return text

    def block(self) -> str:
        """Return a secret that may have several lines, such as a private key.

        Raises:
            SourceFailed: It is missing, unreadable, or empty.
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


def secret_digests(settings: object) -> tuple[str, ...]:
    """Return a digest of each secret that the settings of a connector name, in order; an empty one for a missing secret."""
    if isinstance(settings, Secret):
        try:
            return (sha256(settings.block().encode("utf-8", "surrogatepass")).hexdigest(),)
        except SourceFailed:
            return ("",)
    if is_dataclass(settings):
        parts: Iterable[object] = (getattr(settings, item.name) for item in fields(settings))
    elif isinstance(settings, Mapping):
        parts = settings.values()
    elif isinstance(settings, tuple | list):
        parts = settings
    else:
        return ()
    return tuple(digest for part in parts for digest in secret_digests(part))
