"""What processes that read or run a stranger's things have in common: a bare environment, and limits taken upon themselves."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable

_SAFE = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "VIRTUAL_ENV")  # secrets are none of its business


def bare_environment() -> dict[str, str]:
    """The environment variables that a child process may see: search paths of programs and modules, and the language."""
    environment = {name: os.environ[name] for name in _SAFE if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment


def limit(limits: Iterable[tuple[int, int]]) -> None:
    """Set limits (of `resource`) on this process for good, none above what is allowed already; it gives way to others."""
    for what, most in limits:
        hard = resource.getrlimit(what)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))
    os.nice(5)
