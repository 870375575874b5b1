"""Logs that were quoted as a whole are read as if nobody had."""

from __future__ import annotations

import pytest

from kb.scanning.quoted_lines import without_quote_marks

LOG = b'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    run()\n\nValueError: bad\n'


def lines(data: bytes) -> list[bytes]:
    """The lines that hold text, without what is behind them."""
    return [line.rstrip() for line in data.split(b"\n") if line.strip()]


@pytest.mark.parametrize("mark", [b"> ", b">> ", b"> > ", b"&gt; "])
def test_quoted(mark: bytes) -> None:
    """Each line loses its mark, and every other byte stays where it was."""
    quoted = b"".join(mark + line for line in LOG.splitlines(keepends=True))
    read = without_quote_marks(quoted)
    assert lines(read) == lines(LOG)
    assert len(read) == len(quoted)
    assert read.index(b"ValueError") == quoted.index(b"ValueError")


def test_empty_quoted_line() -> None:
    """A mark without a blank belongs to an empty line."""
    assert lines(without_quote_marks(b"> a\n>\n> b\n> c\n")) == [b"a", b"b", b"c"]


def test_shifted_by_a_prompt() -> None:
    """Marks inside a line stay."""
    assert lines(without_quote_marks(b"> a > b\n> c\n> d -> e\n")) == [b"a > b", b"c", b"d -> e"]


@pytest.mark.parametrize(
    "data",
    [
        LOG,
        b"> a\n> b\n",  # too few
        b"> step 1\nloss 2.5\n> step 2\nloss 2.4\n> step 3\nloss 2.3\n",  # half of them
        b">>> import torch\n>>> torch.cuda.is_available()\n>>> exit()\n",  # the prompt of Python
        b"-> a\n-> b\n-> c\n-> d\n",
        b"",
    ],
)
def test_not_quoted(data: bytes) -> None:
    """Other lines stay as they are."""
    assert without_quote_marks(data) == data
