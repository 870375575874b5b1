"""The marks are compiled when there is enough to search."""

from __future__ import annotations

import pytest

from bot.runtime.redaction.candidates import SMALL, Chooser
from bot.runtime.redaction.search import HintIndex, Search


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"u=", ["short"]),
        (b"the password", ["long"]),
        (b"xpasswor passwo rd", []),
        (b"a token, and u= of it", ["long", "short"]),
    ],
)
def test_a_search_is_chosen_where_one_of_its_hints_occurs(text, expected):
    """In the order of the searches, whatever the length of the hint."""
    searches = {"long": Search((), (b"password", b"token"), nothing), "short": Search((), (b"u=",), nothing)}

    chosen = HintIndex(list(searches.values())).chosen(text)

    assert [name for name, search in searches.items() if search in chosen] == expected
    assert len(chosen) == len(expected)
