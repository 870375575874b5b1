"""What the command line writes to a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from itertools import count
from types import SimpleNamespace

import pytest

from bot.cli.console import Progress, ReadProgress, printable_json, progress_words, say_table, total_size
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


class Errors(io.StringIO):
    """A terminal of 60 columns."""

    def isatty(self):
        """It is one."""
        return True


@pytest.fixture
def errors(monkeypatch):
    """What makes standard error a terminal, on which ten seconds pass from one look at the clock to the next."""
    ticks = count(100.0, 10.0)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")

    def begin():  # in the test itself: pytest sets its own before
        out = Errors()
        monkeypatch.setattr(sys, "stderr", out)
        monkeypatch.setattr("bot.cli.console.time", SimpleNamespace(monotonic=lambda: next(ticks)))
        return out

    return begin


def test_progress_has_a_rate_and_the_time_left(errors):
    """Ten seconds for each of ten: the rest takes the longer the less is done; at the end the line is gone."""
    out = errors()
    with Progress("bundles", 10) as bar:
        bar.tell(1)
        bar.tell(10)

    first, last, end = out.getvalue().split("\r\x1b[0K")[1:]
    assert first == "1 of 10 bundles, 0.1 a second, 90 s left "
    assert last == "10 of 10 bundles, 0.5 a second "
    assert end == ""


def test_progress_of_reading_knows_the_size_of_what_it_reads(errors, tmp_path):
    """Bytes a second, and the time left; of packed files more is read than their size, so nothing is said of the rest."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank-0.log").write_bytes(bytes(4_000_000))
    out = errors()
    with ReadProgress([tmp_path / "a"]) as bar:
        bar.tell(1_000_000)
    assert re.search(r"1 MB read, 0 MB/s, \d\d s left ", out.getvalue())

    (tmp_path / "a" / "rank-1.log.gz").write_bytes(b"x")
    assert total_size([tmp_path / "a"]) is None
    assert total_size([tmp_path / "a" / "rank-0.log"]) == 4_000_000
    assert total_size([tmp_path / "gone"]) is None


def test_no_progress_where_nobody_watches(monkeypatch):
    """In a pipe, and within the first second, nothing is drawn."""
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stderr", piped)
    with Progress("bundles", 2) as bar, ReadProgress() as reading:
        bar.tell(1)
        reading.tell(1)
    assert piped.getvalue() == ""

    quick = Errors()
    monkeypatch.setattr(sys, "stderr", quick)
    monkeypatch.setattr("bot.cli.console.time", SimpleNamespace(monotonic=lambda: 5.0))
    with Progress("bundles", 2) as bar:
        bar.tell(1)
    assert quick.getvalue() == ""


def test_a_rate_of_nothing_is_not_told():
    """Before anything is done, and where no time has passed."""
    assert progress_words(0, 10, 5.0, str) == ""
    assert progress_words(3, 10, 0.0, str) == ""
    assert progress_words(10, 7200, 10.0, str) == ", 1.0, 120 min left"
