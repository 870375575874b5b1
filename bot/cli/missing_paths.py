"""What to answer to a path that does not exist: that it does not, with the closest name in its folder."""

from __future__ import annotations

import os
from itertools import islice

_MOST = 20_000  # names of a folder that are compared
_ENDINGS = (".log", ".out", ".err", ".txt", ".json", ".jsonl", ".gz", ".zst", ".bz2", ".xz")


def is_path(target: str) -> bool:
    """Whether a word can only be a path: no scheduler has a job of such a name."""
    return target.startswith(("/", "./", "../", "~")) or target.lower().endswith(_ENDINGS)


def is_missing(target: str) -> bool:
    """Whether there is nothing at a path; what may not be looked at, or has a name that is too long, is left to those who read it."""
    try:
        os.lstat(target)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


def missing(target: str, what: str = "file or folder") -> str:
    """Return the sentence on a path that does not exist, with the closest existing name if there is one."""
    near = _nearest(target)
    return f"{target}: there is no such {what}{f'; did you mean {near!r}?' if near else ''}"


def _nearest(target: str) -> str:
    """Return the path with its first missing part replaced by the closest name there; empty if none is close."""
    from rapidfuzz import fuzz, process

    parts = target.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        above, name = "/".join(parts[: count - 1]), parts[count - 1]
        folder = above or ("/" if count > 1 else ".")
        if os.path.lexists("/".join(parts[:count]) or "/"):
            continue
        try:
            with os.scandir(folder) as listed:
                names = sorted(entry.name for entry in islice(listed, _MOST))
        except OSError:
            return ""
        found = process.extractOne(name[:255], names, scorer=fuzz.ratio, score_cutoff=60)
        return "/".join([*parts[: count - 1], found[0], *parts[count:]]) if found else ""
    return ""
