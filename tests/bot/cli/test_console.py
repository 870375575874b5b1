"""What the command line writes to a terminal."""

from __future__ import annotations

import json
import sys

from bot.cli.console import printable_json, say_table
from bot.render.columns import Column


def test_json_on_a_terminal_shows_every_character(monkeypatch):
    """Controls and bidi marks become escapes, which mean the same; in a pipe nothing changes."""
    text = "a\u202eb\x9b31m\x7f\u2066\U000e0041 größe"
    data = json.dumps({"text": text}, ensure_ascii=False).encode()

    assert printable_json(data, sys.stdout) == data
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = printable_json(data, sys.stdout).decode()

    assert shown.isprintable()
    assert json.loads(shown) == {"text": text}
    assert "größe" in shown


def test_a_table_masks_and_escapes_its_cells(monkeypatch, capsys):
    """On a terminal and in a pipe: no secret, no control character; in a pipe no style and no headings unless asked for."""
    columns, rows = (Column("id"), Column("what")), [("7", "password=hunter2hunter2 \x1b[2Jx")]
    say_table(columns, rows, heads=False)
    piped = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say_table(columns, rows)
    drawn = capsys.readouterr().out

    assert piped.startswith("7  password=***")
    assert "\x1b" not in piped
    assert "what" in drawn
    assert "hunter2" not in piped + drawn
    assert "\x1b[2J" not in drawn
