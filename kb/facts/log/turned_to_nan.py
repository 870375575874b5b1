"""Finds columns of numbers in lines of any form that were finite at a log's start and are nan at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kb.regex.lazy import lazy_compile

_NUMBER = lazy_compile(r"(?<![\w.])[-+]?(?:\d[\d,]{0,20}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|NaN)(?![\w.])")
_LOSS = lazy_compile(r"(?i)loss(?:es)?(?![a-z])[^a-z]{0,12}$")  # right before the number
_MARK = "\0"  # in a form, for a number
_LEAST = 3  # lines of a form that are nan at the end
_LONG = 400  # characters of a line that are read


def turned_to_nan(
    head: Iterable[tuple[int, str]], tail: Iterable[tuple[int, str]], *, loss: bool = False
) -> tuple[int, str] | None:
    """Return the first of the last lines of a form whose number was finite at the start and is nan up to the end.

    `head`, `tail`: offsets and texts of a log's first and last lines. `loss`: only a number that the line calls a loss.
    None if there is no such form.
    """
    last = list(tail)
    forms = {_form(line) for _, line in last[-_LONG:] if "nan" in line.lower()}
    if not forms:
        return None
    finite = _finite_columns(line for _, line in head if _form(line) in forms)
    gone: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for offset, line in last:
        form = _form(line)
        for column, value in enumerate(_values(line)) if form in forms else ():
            lines = gone.setdefault((form, column), [])
            if value.lower() == "nan":
                lines.append((offset, line))
            else:
                lines.clear()
    found = [
        lines[0]
        for (form, column), lines in gone.items()
        if len(lines) >= _LEAST
        and column in finite.get(form, ())
        and (not loss or _LOSS.search(form.split(_MARK)[column]))
    ]
    return min(found, default=None)


def _finite_columns(lines: Iterable[str]) -> Mapping[str, set[int]]:
    """Return for each form the columns that hold a finite number in one of the lines."""
    found: dict[str, set[int]] = {}
    for line in lines:
        columns = {column for column, value in enumerate(_values(line)) if value.lower() != "nan"}
        found.setdefault(_form(line), set()).update(columns)
    return found


def _form(line: str) -> str:
    return _NUMBER.sub(_MARK, line[:_LONG])


def _values(line: str) -> list[str]:
    return [match[0] for match in _NUMBER.finditer(line[:_LONG])]
