"""Finds columns of numbers in lines of any form that were finite at a log's start and are nan at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kb.parsers.logs.progress.words import LOSS
from kb.regex.lazy import lazy_compile

_NUMBER = lazy_compile(r"(?<![\w.])[-+]?(?:\d[\d,]{0,20}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|NaN)(?![\w.])")
_DIGITS = lazy_compile(r"\d+(?:\.\d+)?")
_LOSS = lazy_compile(rf"(?i)(?:loss(?:es)?|{LOSS})(?![^\W\d_])[\W\d_]{{0,12}}$")  # right before the number
# what a model puts out, right before the number: it is never meant to be nan, while a metric may have no value
_OUTPUT = lazy_compile(r"(?i)\b(?:logits|logps|log_?probs?|rewards)(?:/\w{1,30})?['\"]{0,1}[:=\s]{1,4}$")
_MARK = "\0"  # in a form, for a number
_LEAST = 3  # lines of a form that are nan at the end
_LONG = 400  # characters of a line that are read


class TurnedColumn(NamedTuple):
    """A number in lines of one form: where it became NaN, the line, and whether the line calls it a loss or an output of the model."""

    offset: int
    line: str
    is_loss: bool


def turned_to_nan(head: Iterable[tuple[int, str]], tail: Iterable[tuple[int, str]]) -> list[TurnedColumn]:
    """Return the columns of numbers that were finite at a log's start and are nan up to its end, by offset.

    Outputs of the model count from the start on: a reward or a logit that never was a number is none that is not known yet.

    `head`, `tail`: offsets and texts of a log's first and last lines.
    """
    last = list(tail)
    forms = {_form(line) for _, line in last[-_LONG:] if "nan" in line.lower()}
    if not forms:
        return []
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
    found = []
    for (form, column), lines in gone.items():
        before = form.split(_MARK)[column] if len(lines) >= _LEAST else ""
        output = _OUTPUT.search(before) is not None
        if len(lines) >= _LEAST and (output or column in finite.get(form, ())):
            found.append(TurnedColumn(*lines[0], output or _LOSS.search(before) is not None))
    return sorted(found)


def _finite_columns(lines: Iterable[str]) -> Mapping[str, set[int]]:
    """Return for each form the columns that hold a finite number in one of the lines."""
    found: dict[str, set[int]] = {}
    for line in lines:
        columns = {column for column, value in enumerate(_values(line)) if value.lower() != "nan"}
        found.setdefault(_form(line), set()).update(columns)
    return found


def _form(line: str) -> str:
    """Return a line without its numbers, and without the digits that are part of a word: `ステップ80`, `2218ms`."""
    return _DIGITS.sub("#", _NUMBER.sub(_MARK, line[:_LONG]))


def _values(line: str) -> list[str]:
    return [match[0] for match in _NUMBER.finditer(line[:_LONG])]
