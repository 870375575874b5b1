"""The areas of library files: which part of the stack a path belongs to, such as data, checkpoint or collective.

The table comes from bench/catalogue/areas.yaml, which people read and extend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from kb.classifier.traits import OWN
from kb.regex.lazy import lazy_compile

_PACKAGES = lazy_compile(r".*(?:site|dist)-packages/")
_STANDARD = lazy_compile(r"(?:.*/)?lib(?:64)?/python3[^/]*/(?!(?:site|dist)-packages/)|<frozen ")
STANDARD = "standard"  # area of Python's own library
DISPATCH = "dispatch"  # area of calls into a native runtime: every error of its operations is raised there
_NO_PACKAGES: Mapping[str, str] = MappingProxyType({})
LIBRARY = "library"  # area of an installed package that the table lacks


class Areas:
    """Path patterns with their areas, by the first folder of the path. The first pattern that matches counts.

    `packages`: first folder of a package → its kind.
    """

    def __init__(self, rows: Iterable[tuple[str, str]], packages: Mapping[str, str] = _NO_PACKAGES) -> None:
        self._packages = packages
        self._rows: dict[str, list[tuple[str, str]]] = {}
        for pattern, area in rows:
            self._rows.setdefault(pattern.partition("/")[0], []).append((pattern, area))

    def place(self, path: str) -> tuple[str, str]:
        """Return a file's path from the root of its package, and its area; the file's name and `OWN` if it is no library's."""
        packages = _PACKAGES.match(path)
        if packages is None and _STANDARD.match(path):
            return path.rpartition("/")[2], STANDARD
        rest = path[packages.end() :] if packages else path
        parts = rest.split("/")
        for at, part in enumerate(parts[:-1]):
            if part in self._rows and (area := self._area("/".join(parts[at:]), part)):
                return "/".join(parts[at:]), area
            if packages:
                break
        return (rest, LIBRARY) if packages else (parts[-1], OWN)

    def kind(self, path: str) -> str:
        """Return the kind of package that a file belongs to; empty if that is not known. `path`: from the root of its package."""
        head, below, _ = path.partition("/")
        return self._packages.get(head, "") if below else ""

    @staticmethod
    def installed(path: str) -> bool:
        """Return whether a file belongs to an installed package."""
        return _PACKAGES.match(path) is not None

    def _area(self, path: str, head: str) -> str:
        return next((area for pattern, area in self._rows[head] if _regex(pattern).fullmatch(path)), "")


@lru_cache(maxsize=2048)
def _regex(pattern: str) -> re.Pattern[str]:
    """Return a pattern of areas.yaml as a regex: * stays within a folder, ** crosses folders."""
    parts = re.split(r"(\*\*/?|\*)", pattern)
    return re.compile(
        "".join({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts)
    )
