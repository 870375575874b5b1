"""What a program said, without what its logging framework wrote around it."""

from __future__ import annotations

import pytest

from kb.learning.messages import message_in, without_prefix

SAID = "depot lease 3 was revoked"


@pytest.mark.parametrize(
    "prefix",
    [
        "ERROR depot: ",
        "ERROR 10:31:12 depot.client ",
        "[WARNING] ",
        "[depot.client][ERROR] - ",
        "ERROR    | depot.client:next:221 - ",
        "src/depot/client.cc:412] ",
        "thread 'main' panicked at src/feed.rs:33:5: ",
        "2026-03-11 10:31:12,104 | ",
        "depot-agent: ",
        "depot-agent: ERROR: ",
        "batchd: error: ",
        "depotfs: E: ",
        "what():  ",
        "E0311 agent/main.go:412 rpc error: code = FailedPrecondition desc = ",
        "Check failed: reply.ok() ",
        "Check failed: size == 3 (4 vs. 3) ",
    ],
)
def test_prefixes_of_logging_frameworks_are_removed(prefix):
    """Whatever their order."""
    assert without_prefix(prefix + SAID) == SAID


@pytest.mark.parametrize("text", ["[Errno 28] No space left on device", "timeout: no answer from peer", "ERROR:", "x"])
def test_what_says_what_is_wrong_stays(text):
    """A message is never left empty."""
    assert without_prefix(text) == text


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"level":"error","msg":"a \\"b\\" c"}', 'a "b" c'),
        ('ts=1 level=error msg="lost it" err=X', "lost it"),
        (
            '{"msg":"uncaught","exc_info":"Traceback (most recent call last):\\n  x\\na.LostError: gone"}',
            "a.LostError: gone",
        ),
        ('{"msg":"cut short \\', '{"msg":"cut short \\'),
        ("plain text", "plain text"),
    ],
)
def test_structured_records(record, message):
    """The message field, or the end of a traceback in a field."""
    assert message_in(record) == message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("launch.sh: line 88: error: the image is not on the list", "the image is not on the list"),
        ("2026-11-12T12:03:56Z ERROR depot::seats: seat table is full", "seat table is full"),
    ],
)
def test_shells_and_rust_write_where_a_line_is_from(line: str, said: str) -> None:
    """The script and its line, and the module."""
    assert without_prefix(line) == said
