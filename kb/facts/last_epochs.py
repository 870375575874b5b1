"""The last epoch of all, as the lines at the end of a log count it: `[ valid | 90/90 ] loss = 0.21`, and what follows.

A line that gives figures once for each epoch is written when the epoch is over. After the one of the last epoch, only the
closing of the program is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from kb.facts.run_ends import closes
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

_CUT = 400  # characters of a line that are read
_MOST = 400  # lines at the end of a log that are read
_EARLIER = 2  # epochs before the last one whose lines must have the same form
_PLACE = lazy_compile(r"(?<![\d/.])(\d{1,6}) ?/ ?(\d{1,6})(?![\d/.])")
_FIGURE = lazy_compile(r"(?i)\b(?:loss|acc(?:uracy)?|iou|f1|auc|map|bleu|ppl|perplexity)\b\w{0,12} ?[:=]? ?-?\d")
_FIGURES = ("loss", "acc", "iou", "f1", "auc", "map", "bleu", "ppl", "perplexity")  # one of them is in each such line
_BAR = lazy_compile(r"\d%\||it/s|s/it|\[\d{1,3}:\d\d<")
_EVALUATION = lazy_compile(
    r"(?i)\W{0,4}(?:step|iter|iteration)?[ :=]{0,3}(\d{1,9})[ :|,]{1,4}(?:\w{1,20}[ :=]{1,3}[\d.]{1,12},? )?"
    r"(?:val|eval|test)\w{0,20}[ :=]{1,3}.{0,40}\d"
)
_STEP = lazy_compile(r"(?i)\W{0,4}(?:step|iter|iteration)?[ :=]{0,3}(\d{1,9})\b")
_EVALUATIONS = 3  # before the last one, to know how often the program evaluates
_STRIDE = 10  # steps at least between two of them
_DIGITS = lazy_compile(r"-?\d[\d.e+-]*")
_SCORE = lazy_compile(
    r"(?i)\W{0,8}(?:(?:final|best|test|overall|mean|average|total)[ _-])?(?:accuracy|acc|f1|precision|recall|auc|map|iou|bleu|rouge\S{0,4}|ppl|perplexity)"
    r"(?:[ _-]score)? ?[:=] ?\d[\d.]{0,20} ?%?\W{0,3}"
)


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """The line of the last epoch: its byte offset, its text, and the number of epochs."""

    offset: int
    line: str
    count: int


def closed_last_epoch(lines: Sequence[tuple[int, str]], start: Iterable[tuple[int, str]] = ()) -> LastEpoch | None:
    """Return the line that ends the last of all epochs, if the program then closes or gives its scores; else None.

    `lines`: offset and text of the lines at the end of a log, in order; `start`: those at its start.
    """
    said = [(offset, line) for offset, line in lines[-_MOST:] if line.strip()]
    epochs = [
        (at, form, here, total)
        for at, (_, line) in enumerate(said)
        if (told := _told(line))
        for form, here, total in [told]
    ]
    if not epochs:
        return None
    at, form, here, total = epochs[-1]
    counts = [epoch for _, other, epoch, of in epochs if other == form and of == total]
    whole = here == total or (here == total - 1 and _from_zero(form, total, [*start, *said]))
    if not whole or counts[-_EARLIER - 1 :] != list(range(here - _EARLIER, here + 1)):
        return None
    after = [line for _, line in said[at + 1 :]]
    usual = {_form(line) for _, line in said[:at]}
    closed = any(closes(line) for line in after) or any(
        _SCORE.fullmatch(line.strip()) and _form(line) not in usual for line in after
    )
    return LastEpoch(*said[at], total) if closed else None


def last_evaluation(lines: Iterable[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the evaluation after the last of all steps, which comes one step before it would be due; else None.

    A program that counts from 0 and evaluates at every 250th step and at its last one evaluates at 500, 750 and 999.
    `lines`: offset and text of the known lines, in order.
    """
    said = list(lines)
    told = [(at, int(found[1]), _form(line)) for at, line in said if (found := _EVALUATION.match(line[:_CUT]))]
    if not told:
        return None
    offset, last, form = told[-1]
    earlier = {step for _, step, other in told[:-1] if other == form and step < last}
    stride = gcd(*earlier) if len(earlier) >= _EVALUATIONS else 0
    if stride < _STRIDE or (last + 1) % stride:
        return None
    after = (_STEP.match(line[:_CUT]) for at, line in said if at > offset)
    if any(found and int(found[1]) > last for found in after):  # the steps go on
        return None
    return next((at, line) for at, line in said if at == offset)


def _told(line: str) -> tuple[str, int, int] | None:
    """Return the form of a line of figures of one epoch, its number, and the number of epochs; None for other lines."""
    text = line[:_CUT]
    low = text.lower()
    found = _PLACE.search(text) if "/" in low and any(word in low for word in _FIGURES) else None
    if found is None or _BAR.search(text) or _FIGURE.search(text, found.end()) is None:
        return None
    if len(_PLACE.findall(text)) > 1:  # a step within the epoch
        return None
    return _form(line), int(found[1]), int(found[2])


def _from_zero(form: str, total: int, lines: Sequence[tuple[int, str]]) -> bool:
    """Whether a line of the same form counts an epoch 0."""
    return any(_told(line) == (form, 0, total) for _, line in lines)


def _form(line: str) -> str:
    """Return a line without its numbers."""
    return _DIGITS.sub("#", line[:_CUT]).strip()
