"""What a terminal shows: tables that fit, and a line that is drawn over itself."""

from __future__ import annotations

import io
import re

import pytest

from bot.render.columns import Column
from bot.render.rich_console import Console, ProgressLine, draw_lines, draw_table

COLUMNS = (Column("rule"), Column("hits", right=True), Column("title"))


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self):
        """It is one."""
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 40 columns with colours."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    return Terminal()


def unstyled(text):
    """The text without styles."""
    return re.sub("\x1b\\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_a_table_fits_the_terminal(width):
    """No line is wider than the terminal, and the last column is wrapped, not cut."""
    out = Terminal()
    title = "A title of many words that says what the rule is about and does not fit in forty columns"

    draw_table(COLUMNS, [("gpu-lost", "12", title)], Console(file=out, width=width, force_terminal=True))
    lines = unstyled(out.getvalue()).splitlines()

    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["rule", "hits", "title"]
    assert " ".join(" ".join(line[16:].split()) for line in lines[1:]).split() == title.split()


def test_cells_are_not_read_as_markup():
    """Square brackets and emoji codes of a cell come out unchanged."""
    out = Terminal()

    draw_table(COLUMNS, [("[red]x[/red]", ":warning:", "[/]")], Console(file=out, width=80, force_terminal=True))

    assert all(text in out.getvalue() for text in ("[red]x[/red]", ":warning:", "[/]"))


def test_lines_keep_their_text_and_carry_their_styles():
    """A line longer than the terminal is not broken, so that a command can be copied."""
    out = Terminal()

    draw_lines([(("label ", "label", ""), ("x" * 200, "head", ""))], Console(file=out, width=40, force_terminal=True))

    assert unstyled(out.getvalue()) == f"label {'x' * 200}\n"
    assert "\x1b[" in out.getvalue()


def test_progress_is_drawn_over_itself(terminal):
    """Each text replaces the one before, is cut to the width, and is removed at the end."""
    line = ProgressLine(terminal)
    line.draw("first")
    line.draw("y" * 100)
    line.erase()
    first, second, end = terminal.getvalue().split("\r\x1b[0K")[1:]

    assert (first, end) == ("first", "")
    assert second == f"{'y' * 38}…"


def test_a_terminal_that_cannot_move_its_cursor_shows_no_progress(terminal, monkeypatch):
    """Under TERM=dumb, lines drawn over each other would pile up."""
    monkeypatch.setenv("TERM", "dumb")
    line = ProgressLine(terminal)
    line.draw("first")
    line.erase()

    assert terminal.getvalue() == ""
