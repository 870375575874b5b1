"""Searches with a regex typed by a person, in time linear in the text: RE2, or Hyperscan if RE2 is not installed."""

from __future__ import annotations

from collections.abc import Callable

from kb.errors import UnreadableInput

LONGEST = 1000  # characters of a regex
Search = Callable[[bytes], bool]


def search_of(pattern: str, *, ignore_case: bool = False) -> Search:
    """Whether a line has a match.

    Raises:
        UnreadableInput: it is not a regex, or needs more than linear time.
    """
    if len(pattern) > LONGEST:
        raise UnreadableInput(f"--grep: the regex has more than {LONGEST} characters")
    try:
        return _re2(pattern, ignore_case=ignore_case)
    except ImportError:
        return _hyperscan(pattern, ignore_case=ignore_case)


def _re2(pattern: str, *, ignore_case: bool) -> Search:
    import re2  # noqa: PLC0415 - an optional dependency

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = 64 << 20
    try:
        found = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise _refused(pattern, error) from None
    return lambda line: found.search(line) is not None


def _hyperscan(pattern: str, *, ignore_case: bool) -> Search:
    import hyperscan  # noqa: PLC0415 - only where RE2 is not

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = (
        hyperscan.HS_FLAG_SINGLEMATCH
        | hyperscan.HS_FLAG_ALLOWEMPTY
        | (hyperscan.HS_FLAG_CASELESS if ignore_case else 0)
    )
    try:
        database.compile(expressions=[pattern.encode()], ids=[0], elements=1, flags=[flags])
    except (hyperscan.error, UnicodeEncodeError) as error:
        raise _refused(pattern, error) from None

    def search(line: bytes) -> bool:
        hits: list[int] = []
        database.scan(line, match_event_handler=lambda *_: hits.append(1))
        return bool(hits)

    return search


def _refused(pattern: str, error: Exception) -> UnreadableInput:
    told = error.args[0] if error.args else error
    why = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    return UnreadableInput(
        f"--grep {pattern[:80]!r}: {why[:200]}; lookaround and back-references are not known, \\Q...\\E takes text as it is"
    )
