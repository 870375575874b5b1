"""The service's own log: one line an event, what it is about, no secrets, nothing that breaks a line."""

from __future__ import annotations

import io
import json
import logging

import pytest

from bot.runtime import logging as runtime_logging

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def log():
    """Return what a form writes; the root logger is as before afterwards."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    written = io.StringIO()

    def begin(form):
        runtime_logging.begin(form, "worker 1", written)
        return written

    yield begin
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_of_json_says_what_it_is_about(log):
    """Only inside: afterwards the lines of the thread belong to nothing."""
    written = log("json")
    with runtime_logging.about(work=12, kind="diagnose", job=None):
        logging.getLogger("bot.x").warning("no answer from %s", "loki")
    logging.getLogger("bot.x").info("idle")
    first, second = (json.loads(line) for line in written.getvalue().splitlines())
    assert {key: value for key, value in first.items() if key != "at"} == {
        "level": "warning",
        "process": "worker 1",
        "logger": "bot.x",
        "work": "12",
        "kind": "diagnose",
        "message": "no answer from loki",
    }
    assert first["at"].endswith("Z")
    assert "work" not in second


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_masked_in_messages_and_tracebacks(log, form):
    """Whoever logged them."""
    written = log(form)
    try:
        int(f"refused: {TOKEN}")
    except ValueError:
        logging.getLogger("bot.x").exception("with %s", TOKEN)
    assert TOKEN not in written.getvalue()
    assert "ValueError" in written.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_message_cannot_make_a_line_of_its_own(log, form):
    """Nor hide what stood before it: line ends, escapes, separators of Unicode."""
    written = log(form)
    logging.getLogger("bot.x").info("%s", "a\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[2Jb\u2028c")
    lines = written.getvalue().split("\n")[:-1]
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert not set("\r\x1b\u2028") & set(written.getvalue())
    if form == "json":
        assert [json.loads(line)["message"][:1] for line in lines] == ["a"]


def test_a_call_with_wrong_arguments_is_reported(log):
    """A library's mistake loses no line."""
    written = log("text")
    logging.getLogger("bot.x").info(*("%d of %d", "one"))
    assert "%d of %d" in written.getvalue()


def test_a_long_message_is_cut_in_its_middle(log):
    """A traceback's end says most."""
    written = log("json")
    logging.getLogger("bot.x").info("%s", "first" + "x" * 100_000 + "last")
    said = json.loads(written.getvalue())["message"]
    assert (said[:5], said[-4:], len(said) < runtime_logging.LONGEST + 10) == ("first", "last", True)


def test_an_id_is_taken_where_it_can_stand_in_a_log():
    """Any other is replaced, and none twice."""
    assert runtime_logging.request_id("0af7651916cd43dd8448") == "0af7651916cd43dd8448"
    made = {runtime_logging.request_id(given) for given in (None, "", "short", "a\nb-forged-line", "x" * 65, "ü" * 10)}
    assert len(made) == 6
    assert all(len(text) == 16 for text in made)
