"""What a site is: a place in the sources of a public project that raises, checks or logs an error.

Only facts are kept: where, which exception or macro, and the telling words of the message in their order, without its
grammar and its holes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import blake2b


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A place that raises, checks or logs an error.

    Attributes:
        project: The project's name in areas.yaml.
        path: The file, from the root of the project's sources.
        function: Enclosing classes and functions, joined by dots; empty at the top of a module.
        line: Counted from 1, in the version that projects.tsv names.
        kind: raise, check, assert, throw, error, fatal, abort, event or warning (one that precedes an exit).
        exception: The exception type, macro or status; empty for a plain log call.
        words: The message's telling words, at most 12.
        holes: What the message's holes are for: path, number, name, error, value.
        codes: errno names, signals and statuses in the message or beside the call.
        handles: Exception types that the enclosing handler has caught.
        language: python, c, go, rust or shell.
        area: The area of the path (areas.yaml).
        message: The message as the source has it, for readers; never written into the project.
        guard: The condition before the site, for readers; never written into the project.
    """

    project: str
    path: str
    function: str
    line: int
    kind: str
    exception: str
    words: tuple[str, ...]
    holes: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    language: str = ""
    area: str = ""
    message: str = ""
    guard: str = ""

    @property
    def id(self) -> str:
        """Eight characters that stay the same while the place and its words do."""
        parts = (self.project, self.path, self.function, self.kind, self.exception, *self.words)
        return blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()[:8]

    @property
    def twin(self) -> tuple[str, tuple[str, ...], str]:
        """What two sites share that count as the same."""
        return (self.exception, self.words, self.area)

    def named(self, project: str, area: str) -> Site:
        """The same site, in a project and an area."""
        return replace(self, project=project, area=area)


def hole(kind: str) -> str:
    """The mark of a hole in a message that an extractor has read."""
    return "{<" + kind + ">}"


def hole_kind(source: str) -> str:
    """What a hole is for, judged by the text of its expression.

    Args:
        source: The expression, as "len(paths)" or "rank".

    Returns:
        path, number, name, error or value.
    """
    text = source.lower()
    last = re.split(r"[.\[(]", text.rstrip(")]"))[-1] if text else ""
    if re.match(r"(len|sum|int|min|max|size|round|count)\(", text) or re.search(
        r"(num|size|rank|count|idx|index|port|dim|shape|step|n_|length|world|version|code|status|secs|seconds|timeout|bytes)",
        last,
    ):
        return "number"
    if re.search(r"(path|file|dir|folder|url|uri|dest|location|root)", text):
        return "path"
    if re.fullmatch(
        r"e|ex|exc|err|error|exception|repr\(e\)|str\(e\)|.*(strerror|what\(\)|geterrorstring|_err|errmsg).*", text
    ):
        return "error"
    if re.search(r"(name|key|type|cls|class|attr|module|arg|option|kind|mode|backend|dtype|device)", last or text):
        return "name"
    return "value"
