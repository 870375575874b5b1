"""Our own regexes of many words, which RE2 looks for in one pass: `re` tries every word at every byte of a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=64)
def one_pass(pattern: str) -> Callable[[bytes], bool]:
    r"""Return whether a text in UTF-8 has a match of a regex in ASCII; its `\\w`, `\\d` and `\\b` know ASCII only.

    Raises:
        re2.error: RE2 cannot read the regex.
    """
    import re2  # noqa: PLC0415 - a start does not need it

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    search = re2.compile(pattern.encode("ascii"), options).search
    return lambda text: search(text) is not None
