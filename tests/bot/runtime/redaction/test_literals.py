"""Literals that are looked for all at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.runtime.redaction.literals import LiteralFinder

WORDS = st.binary(min_size=1, max_size=4) | st.text("ab]^-\\.", min_size=1, max_size=4).map(str.encode)


@given(st.lists(WORDS, min_size=1, max_size=12), st.lists(WORDS, max_size=12))
def test_all_that_occur_are_found(literals: list[bytes], parts: list[bytes]) -> None:
    """Overlapping ones, prefixes of others and bytes that a regex reads as its own."""
    text = b"".join(parts) + b"".join(literals[::2])
    assert LiteralFinder(literals).find(text) == {literal for literal in literals if literal in text}


def test_a_prefix_is_found_where_the_longer_one_is() -> None:
    """And alone, where the longer one does not end."""
    finder = LiteralFinder([b"pass", b"password", b"sword"])
    assert finder.find(b"my password") == {b"pass", b"password", b"sword"}
    assert finder.find(b"passages") == {b"pass"}
    assert finder.find(b"") == set()
