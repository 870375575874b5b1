"""The tests that patterns apply to exceptions and structures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from kb.model import Structure
from kb.regex.backtracking import BudgetSpent
from kb.regex.pattern import compiled
from kb.rulebase.rule import ExceptionTest, Pattern, StructureTest


def searches(pattern: str | None, text: str, *, unknown: bool = False) -> bool:
    """Whether a regex is found in the text; always true without a regex. `unknown`: where that costs too much."""
    return pattern is None or compiled(pattern).finds(text, unknown=unknown)


@lru_cache(maxsize=4096)
def _words(pattern: str) -> frozenset[str] | None:
    """Return the words of which a regex is a choice, such as `KeyError|IndexError`; None if it is anything else."""
    return frozenset(pattern.split("|")) if pattern.replace("|", "").isidentifier() else None


def fits(pattern: str, text: str, *, whole: bool = True, unknown: bool = False) -> bool:
    """Whether a regex matches the whole text, or occurs in it; `unknown` where that costs too much."""
    if whole and (words := _words(pattern)) is not None:
        return text in words  # without compiling it: most tests of a class or of a field are of this form
    regex = compiled(pattern)
    return regex.fits(text, unknown=unknown) if whole else regex.finds(text, unknown=unknown)


def line_passes(pattern: Pattern, line: str) -> bool:
    """Apply `confirm` and `not_line` to the line of a structure. The scanner does so for line patterns."""
    if pattern.confirm is not None and not searches(pattern.confirm, line):
        return False
    return pattern.not_line is None or not searches(pattern.not_line, line, unknown=True)


_WRAP = re.compile(r"(?<=[^\n]{16})\n(?=[a-z\d])")  # where a terminal or a logger wrapped a sentence


def exception_test(test: ExceptionTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """Return a test of exception structures that returns the captures, or None."""

    def judge(structure: Structure) -> Mapping[str, str] | None:
        kind = str(structure.fields.get("type") or "")
        if not _is_kind(test, kind):
            return None
        message, shown_last = str(structure.fields.get("message") or ""), str(structure.fields.get("last_frame") or "")
        last, frames = slashed(shown_last), slashed(str(structure.fields.get("frames") or ""))
        captures = {"type": kind, "message": message[:200], "last_frame": shown_last}
        if test.message is not None:
            try:
                match = next(
                    (found for said in _unwrapped(message) if (found := compiled(test.message).search(said))), None
                )
            except BudgetSpent:
                return None
            if match is None:
                return None
            captures.update({name: value for name, value in match.groupdict().items() if value})
        if not (searches(test.frame, frames) and searches(test.last_frame, last)):
            return None
        denied = ((test.not_message, message), (test.not_frame, frames), (test.not_last_frame, last))
        if any(pattern is not None and searches(pattern, text, unknown=True) for pattern, text in denied):
            return None
        return captures

    return judge


def _unwrapped(message: str) -> Iterator[str]:
    """Yield a message, and what it says without the breaks of a wrapped sentence: between words, or within one."""
    yield message
    for joint in (" ", ""):
        whole = _WRAP.sub(joint, message)
        if whole == message:
            return
        yield whole


def slashed(frames: str) -> str:
    """Return frames with the separators of Unix, in which rules name files whatever the system of the run."""
    return frames.replace("\\", "/")


def _is_kind(test: ExceptionTest, kind: str) -> bool:
    """Whether the class name passes a test."""
    if test.not_type is not None and fits(test.not_type, kind, unknown=True):
        return False
    return test.type is None or fits(test.type, kind)


def structure_test(test: StructureTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """Return a test of structures' fields that returns all fields as text, or None."""

    def judge(structure: Structure) -> Mapping[str, str] | None:
        def field(name: str) -> str:
            value = structure.fields.get(name)
            return "" if value is None else str(value)

        if not all(fits(pattern, field(name)) for name, pattern in test.fields.items()):
            return None
        if any(fits(pattern, field(name), unknown=True) for name, pattern in test.not_fields.items()):
            return None
        return {name: value for name in structure.fields if (value := field(name))}

    return judge
