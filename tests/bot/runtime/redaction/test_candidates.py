"""The marks are compiled when there is enough to search."""

from __future__ import annotations

import pytest

from bot.runtime.redaction.candidates import SMALL, Chooser
from bot.runtime.redaction.search import Search


def nothing(_text):
    """No span."""
    return ()


def test_one_passage_is_not_worth_compiling_for():
    """Many are, and so is one large block."""
    pytest.importorskip("hyperscan")
    marks = [Search((b"password",), (), nothing)]
    often, once = Chooser(marks), Chooser(marks)

    assert [often.ready(SMALL) for _ in range(7)] == [False] * 5 + [True] * 2
    assert once.ready(1 << 20)
