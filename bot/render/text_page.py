"""Lines of text for a terminal: wrapped to its width, with labels in a margin. All text goes through `shown`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING

from bot.render.commands import command_lines
from bot.render.excerpt import condensed, excerpt
from bot.render.text_format import many, shown
from bot.render.text_wrap import columns, wrapped
from kb.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from bot.render.telling_words import Span, Telling
    from kb.timeline.heat import HeatMap

MARGIN = 14  # columns for the labels
LISTED = 5  # items of a list that are shown
_QUOTED_ROWS = 3  # rows shown per line of evidence
LONE_ROWS = 4  # of the only line
_QUOTED_LINES = 6  # lines shown per evidence item


class Weight(IntEnum):
    """What goes first where the screen is too small: the larger the weight, the earlier."""

    LEAD = 0  # never dropped: cause, culprit, decision, first step
    EVIDENCE = 1
    FINDING = 2  # what happened; what the answer rests on if no rule matched
    SUSPECTS = 3
    REASON = 4  # of the decision
    PHASE = 5
    CONFIDENCE = 6
    MISSING = 7
    PICTURE = 8  # the heat map
    JOB = 9
    CHECK = 10
    EXCLUSIONS = 11
    MORE_EVIDENCE = 12
    EXPLAINS = 13
    OTHERS = 14  # other diagnoses, stacks, past runs
    VERSIONS = 15


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of output: a label in the margin, the text, its style (one of bot.render.rich_console, empty for plain).

    `link`: the address that the text leads to, on a terminal that shows links; `weight`: how soon it may go;
    `spans`: styles and texts that make up the text, where it has more than one style.
    """

    text: str
    label: str = ""
    style: str = ""
    link: str = ""
    weight: Weight = Weight.LEAD
    spans: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.label + self.text


@dataclass(frozen=True, slots=True)
class Reading:
    """What helps to read a report.

    `verbose`: everything; `telling`: finds the telling words of a line; `root`: where its files are; `consoles`: names and
    addresses of dashboards and logs; `rows`: how many there are on the screen, if the answer is to fit; `heat`: who was slow in
    which steps.
    """

    verbose: bool = False
    telling: Telling | None = None
    root: Path | None = None
    consoles: tuple[tuple[str, str], ...] = ()
    rows: int | None = None
    heat: HeatMap | None = None


@dataclass(slots=True)
class TextPage:
    """The lines so far, wrapped to the width. All added text goes through `shown`."""

    width: int
    reading: Reading
    lines: list[OutputLine] = field(default_factory=list)
    weight: Weight = Weight.LEAD

    @property
    def verbose(self) -> bool:
        """Whether to show everything."""
        return self.reading.verbose

    @contextmanager
    def weighing(self, weight: Weight) -> Iterator[None]:
        """Give what is added inside at least this weight."""
        before = self.weight
        self.weight = max(before, weight)
        yield
        self.weight = before

    def gap(self) -> None:
        """Add an empty line, unless there is one."""
        if self.lines and str(self.lines[-1]):
            self._add("")

    def _add(self, text: str, label: str = "", style: str = "", link: str = "") -> None:
        self.lines.append(OutputLine(text, label, style, link, self.weight))

    def text(self, text: str, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """Add a paragraph; `hang` is the extra indent of the lines after the first."""
        for number, part in enumerate(wrapped(shown(text), self.width - indent - hang)):
            self._add(" " * (indent + (hang if number else 0)) + part, style=style)

    def told(self, text: str, style: str, more: str) -> None:
        """Add a sentence with a style and another without, on one line if both fit there."""
        if more and columns(shown(f"{text} {more}")) <= self.width:
            line = OutputLine(
                shown(f"{text} {more}"), weight=self.weight, spans=((style, shown(text)), ("", shown(f" {more}")))
            )
            self.lines.append(line)
            return
        self.text(text, style)
        self.text(more)

    def field(self, label: str, text: str, style: str = "", indent: int = 0, link: str = "") -> None:
        """Add a paragraph with a label in the margin. Adds nothing for an empty text."""
        if not text:
            return
        for number, part in enumerate(wrapped(shown(text), self.width - MARGIN - indent)):
            margin = f"   {shown(label)}" if number == 0 else ""
            self._add(" " * indent + part, f"{margin:<{MARGIN}}", style, link)

    def address(self, label: str, name: str, url: str) -> None:
        """Add a named address on a line of its own, which is never wrapped."""
        margin = f"   {shown(label)}" if label else ""
        self._add(f"{shown(name)}: {shown(url)}", f"{margin:<{MARGIN}}", "", url)

    def command(self, command: str, host: str = "") -> None:
        """Add commands to copy, each on a line, or on several that the shell joins. `host`: where to run them."""
        for part in command_lines(command, self.width - MARGIN - len(host) - 2):
            more = part.startswith(" ")
            self._add(f"{'':{MARGIN}}{'' if more else f'{shown(host)}$ '}{shown(part)}")

    def quote(
        self, text: str, indent: int, telling: Callable[[str], Span | None] | None = None, rows: int = _QUOTED_ROWS
    ) -> None:
        """Add log lines, cut to so many rows each unless verbose, with carets under the telling words."""
        parts = [part for part in text.splitlines() if part.strip()]
        kept = parts if self.verbose else [condensed(part) for part in parts[:_QUOTED_LINES]]
        for part in kept:
            inset = min(len(part) - len(part.lstrip(" ")), 8)  # a traceback keeps its shape
            line, span = shown(part), telling(part) if telling is not None else None
            if not self.verbose:
                line, span = excerpt(line, span, rows * (self.width - indent - inset - 4))
            self.underlined(line, indent + inset, span)
        if len(kept) < len(parts):
            self.text(f"... {many(len(parts) - len(kept), 'more line')}", "quiet", indent)

    def underlined(self, line: str, indent: int, span: Span | None) -> None:
        """Add one log line, with a line of carets under the part that is in the span, unless that is longer than a row."""
        if span is not None and span[1] - span[0] > self.width - indent:
            span = None  # all of it tells: carets under every row would only double the height
        words = " ".join(line.split())
        told = " ".join(line[slice(*span)].split()) if span is not None else ""
        first = words.find(told) if told else -1
        last, place = first + len(told), 0
        for number, part in enumerate(wrapped(shown(line), self.width - indent - 2)):
            inset = indent + (2 if number else 0)
            self._add(" " * inset + part)
            place = words.find(part, place)
            low, high = max(first - place, 0), min(last - place, len(part))
            if first >= 0 and place >= 0 and low < high:
                blank = " " * (inset + columns(part[:low]))
                self._add(blank + "^" * columns(part[low:high]), style="mark")
            place += len(part)

    def listed(self, items: Sequence[str], indent: int = 3) -> None:
        """Add one item per line, only the first few unless verbose."""
        kept = items if self.verbose else items[:LISTED]
        for item in kept:
            self.text(f"- {item}", indent=indent, hang=2)
        if len(kept) < len(items):
            self.text(f"... and {len(items) - len(kept)} more", "quiet", indent)
