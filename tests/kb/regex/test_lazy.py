"""Expressions that are compiled when they are first used."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from kb.regex.lazy import lazy_compile


def test_it_matches_as_the_compiled_expression_does() -> None:
    """Text, bytes and flags; `pattern` and `groupindex` too."""
    lazy = lazy_compile(r"(?P<word>[a-z]+)-\d", re.IGNORECASE)
    found = lazy.search("see ABC-7")
    assert found is not None
    assert found["word"] == "ABC"
    assert lazy.sub("x", "a-1 b-2") == "x x"
    assert (lazy.pattern, lazy.groupindex, lazy.flags & re.IGNORECASE) == (found.re.pattern, {"word": 1}, re.IGNORECASE)
    assert [match[0] for match in lazy_compile(rb"\d").finditer(b"1a2")] == [b"1", b"2"]


def test_it_is_compiled_once_and_only_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module may have hundreds that a run never asks."""
    compiled: list[str] = []
    compile_ = re.compile

    def noted(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return compile_(pattern, flags)

    monkeypatch.setattr(re, "compile", noted)
    lazy = lazy_compile("a+")
    assert compiled == []
    assert lazy.match("aa")
    assert lazy.fullmatch("aa")
    assert compiled == ["a+"]


def test_an_invalid_one_raises_when_it_is_used() -> None:
    """As `re.compile` would."""
    with pytest.raises(re.error, match="missing"):
        lazy_compile("(").search("x")


def test_it_goes_to_other_processes_and_can_be_copied() -> None:
    """Used or not."""
    lazy = lazy_compile("b(c)")
    for _ in range(2):
        for other in (pickle.loads(pickle.dumps(lazy)), copy.copy(lazy), copy.deepcopy(lazy)):  # noqa: S301 - our own
            assert other.findall("abc") == ["c"]
        assert lazy.search("bc")
