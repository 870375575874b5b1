"""Escapes untrusted text for Markdown: text of rules, logs and folder names never becomes markup, a row or a link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bot.render.text_format import shown

_MARKS = re.compile(r"[\\`*\[\]~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?:^|(?<= ))#")
_ENTITY = re.compile(r"&(?=#?[A-Za-z0-9]{1,40};)")
_NUMBERED = re.compile(r"(\d{1,9})([.)])(?= |\Z)")
_LINK = re.compile(r"https?://[A-Za-z0-9][^\s<>\\`|]*\Z")
_TICKS = re.compile(r"`+")


def prose(text: str) -> str:
    """Return a text as one line of Markdown that renders literally."""
    line = " ".join(shown(text).split())
    line = _ENTITY.sub("&amp;", _MARKS.sub(lambda hit: f"\\{hit[0]}", line)).replace("<", "&lt;")
    line = _NUMBERED.sub(r"\1\\\2", line, count=1) if _NUMBERED.match(line) else line
    return f"\\{line}" if line[:1] in tuple(">+-=") else line  # at the start of a line they begin blocks


def cell(text: str) -> str:
    """Return a text for a table cell. `|` becomes an entity: renderers disagree on a backslash before it."""
    return prose(text).replace("|", "&#124;")


def code(text: str) -> str:
    """Return a text as a code span; empty for an empty text. Not for tables: `|` has no portable form."""
    line = " ".join(shown(text).split())
    if not line:
        return ""
    ticks = "`" * (_longest(line) + 1)
    room = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{ticks}{room}{line}{room}{ticks}"


def block(lines: Sequence[str]) -> list[str]:
    """Return lines as a code block."""
    seen = [shown(line) for line in lines]
    fence = "`" * max(3, *(_longest(line) + 1 for line in seen)) if seen else "```"
    return [f"{fence}text", *seen, fence]


def link(url: str) -> str:
    """Return a web address as a link to itself, any other as code."""
    return f"<{url}>" if url.isprintable() and _LINK.match(url) else code(url)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of cells that are Markdown already (`cell`)."""
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _longest(line: str) -> int:
    return max((len(run) for run in _TICKS.findall(line)), default=0)
