"""What the command line writes to a terminal."""

from __future__ import annotations

import json
import sys

from bot.cli.console import printable_json


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
