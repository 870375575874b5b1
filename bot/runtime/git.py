"""Runs git with fixed arguments, without prompts and with a time limit."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from connectors.base.commands import run_group

PATIENCE = 60.0  # seconds for one call
MOST = 256 << 20  # bytes of output
MOST_SAID = 64 << 10  # bytes of messages
# how the user reaches servers; other git variables in the environment concern another repository
_KEPT = (
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
)
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


def run_git(
    words: Sequence[str],
    home: Path,
    *,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. `given`: its standard input.

    Raises:
        OSError: git is not installed, or prints more than MOST bytes.
        subprocess.TimeoutExpired: it ran longer than `patience` seconds.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in _KEPT}
    whole = ["git", "-C", str(home), *words]
    done = run_group(whole, patience, most=MOST, most_said=MOST_SAID, given=given, env={**own, **_QUIET, **(env or {})})
    if done.late:
        raise subprocess.TimeoutExpired(whole, patience)
    if done.long:
        raise OSError(errno.EFBIG, f"git printed more than {MOST >> 20} MiB")
    return subprocess.CompletedProcess(whole, done.status, done.output, done.said)
