"""Losses of agents that learn from the returns of episodes: they follow the returns, and have no level to leave.

A critic's loss is as large as the squares of the returns that it has yet to learn, so better episodes raise it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kb.regex.lazy import lazy_compile

_CUT = 600  # characters of a line that are read
_LEAST = 3  # such lines, so that it is the program's own form
_EPISODE = lazy_compile(r"(?i)(?<![a-z])(?:episodes?|ep_(?:rew|len))(?![a-z])")
_RETURN = lazy_compile(r"(?i)(?<![a-z])(?:returns?|(?:ep_)?rew(?:ard)?s?)(?:_mean)?[\w ]{0,12}[ =:|]{1,4}-?\d")
_LOSS = lazy_compile(r"(?i)(?<![a-z])(?:value|vf|critic|q|td)_?loss|(?<![a-z])loss(?![a-z])")


def follows_returns(lines: Iterable[tuple[int, str]]) -> bool:
    """Whether lines give a loss beside the return of episodes. `lines`: offset and text."""
    found = 0
    for _, line in lines:
        text = line[:_CUT]
        if "loss" in text and _EPISODE.search(text) and _RETURN.search(text) and _LOSS.search(text):
            found += 1
            if found == _LEAST:
                return True
    return False
