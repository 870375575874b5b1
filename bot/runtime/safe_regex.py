"""Searches with a regex typed by a person, in RE2's own syntax and in time linear in the text."""

from __future__ import annotations

from collections.abc import Callable

from kb.errors import UnreadableInput

LONGEST = 1000  # characters of a regex
MEMORY = 64 << 20  # bytes of the automaton, beyond which RE2 goes on more slowly
LARGEST = 6_000  # instructions: the slowest of RE2's engines visits each of them once a byte
Search = Callable[[bytes], bool]


def search_of(pattern: str, *, ignore_case: bool = False) -> Search:
    """Whether a line has a match.

    Raises:
        UnreadableInput: it is not a regex, or needs more than linear time.
    """
    import re2  # noqa: PLC0415 - only where somebody searches

    if len(pattern) > LONGEST:
        raise UnreadableInput(f"--grep: the regex has more than {LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = MEMORY
    try:
        found = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise _refused(pattern, error) from None
    if found.programsize > LARGEST:
        raise UnreadableInput(f"--grep {pattern[:80]!r}: it is too large; write fewer or smaller repeats")
    return lambda line: found.search(line) is not None


def _refused(pattern: str, error: Exception) -> UnreadableInput:
    detail = error.args[0] if error.args else error
    why = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    return UnreadableInput(
        f"--grep {pattern[:80]!r}: {why[:200]}; lookaround and back-references are not known, \\Q...\\E takes text as it is"
    )
