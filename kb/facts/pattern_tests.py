"""The tests that patterns apply to exceptions and structures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kb.model import Structure
from kb.regex.backtracking import BudgetSpent
from kb.regex.pattern import compiled
from kb.rulebase.rule import ExceptionTest, Pattern, StructureTest


def searches(pattern: str | None, text: str, *, unknown: bool = False) -> bool:
    """Whether a regex is found in the text; always true without a regex. `unknown`: where that costs too much."""
    return pattern is None or compiled(pattern).finds(text, unknown=unknown)


def fits(pattern: str, text: str, *, whole: bool = True) -> bool:
    """Whether a regex matches the whole text, or occurs in it."""
    regex = compiled(pattern)
    return regex.fits(text) if whole else regex.finds(text, unknown=False)


def line_passes(pattern: Pattern, line: str) -> bool:
    """Apply `confirm` and `not_line` to the line of a structure. The scanner does so for line patterns."""
    if pattern.confirm is not None and not searches(pattern.confirm, line):
        return False
    return pattern.not_line is None or not searches(pattern.not_line, line, unknown=True)


def exception_test(test: ExceptionTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """Return a test of exception structures that returns the captures, or None."""

    def judge(structure: Structure) -> Mapping[str, str] | None:
        kind, message = str(structure.fields.get("type") or ""), str(structure.fields.get("message") or "")
        last, frames = str(structure.fields.get("last_frame") or ""), str(structure.fields.get("frames") or "")
        if test.type is not None and not fits(test.type, kind):
            return None
        captures = {"type": kind, "message": message[:200], "last_frame": last}
        if test.message is not None:
            try:
                match = compiled(test.message).search(message)
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


def structure_test(test: StructureTest) -> Callable[[Structure], Mapping[str, str] | None]:
    """Return a test of structures' fields that returns all fields as text, or None."""

    def judge(structure: Structure) -> Mapping[str, str] | None:
        fields = {name: "" if value is None else str(value) for name, value in structure.fields.items()}
        if not all(fits(pattern, fields.get(name, "")) for name, pattern in test.fields.items()):
            return None
        if any(compiled(pattern).fits(fields.get(name, ""), unknown=True) for name, pattern in test.not_fields.items()):
            return None
        return {name: value for name, value in fields.items() if value}

    return judge
