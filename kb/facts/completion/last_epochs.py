"""The last epoch of all, as the lines at the end of a log count it: `[ valid | 90/90 ] loss = 0.21`, and what follows.

A line that gives figures once for each epoch is written when the epoch is over. After the one of the last epoch, only the
closing of the program is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import gcd

from kb.facts.log.run_ends import closes
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
_NUMBER = lazy_compile(r"(?<!\d)(?<!\d\.)\d{1,6}(?!\d|\.\d)")
_NAME = (
    r"(?:(?:final|best|test|overall|mean|average|total)[ _-])?(?:accuracy|acc|f1|precision|recall|auc|map|m?iou|dice|bleu|rouge\S{0,4}|ppl|perplexity"
    r"|rmse|mse|mae|mape|wer|cer|psnr|ssim|fid|score)(?:[ _-]score)?"
)
_VALUE = r" ?[:=]? ?\d[\d.]{0,20} ?%?"
_SCORE = lazy_compile(rf"(?i)\W{{0,8}}{_NAME}{_VALUE}(?:[\s,;|]{{1,4}}{_NAME}{_VALUE}){{0,7}}\W{{0,3}}")
_EPOCH = lazy_compile(r"(?i)\bepochs?\b\W{0,3}(\d{1,6}) ?/ ?(\d{1,6})(?![\d/.])")
_OVER = lazy_compile(
    r"(?i)\W{0,8}(?:end[ -]of[ -]epoch|finished epoch|epoch)\b\W{0,3}(\d{1,6})\b(?:(?: ?/ ?| of )\d{1,6})?(?: (?:is |has |was )?(?:finished|completed?|done|ended|over))?\W{0,8}"
)
_OVER_WORDS = ("end of epoch", "end-of-epoch", "finished", "complete", "done", "ended", "over")
_COUNTED = lazy_compile(r"[A-Za-z\d]")
_HEADER = 100  # characters at most of a line that heads an epoch
_ANY_FIGURE = lazy_compile(r"[A-Za-z)\]] ?[:=] ?-?\d")
_STEPS = 3  # lines of steps at least in the last epoch, to know how often the program prints one
_EPOCHS = 4  # epochs at least whose lines are compared with those of the last one
_EVALUATED = lazy_compile(r"(?i)(?<![a-z])(?:val|valid|validation|eval\w{0,7}|test\w{0,3}|dev)(?![a-z])")


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
    said = _said(lines)
    found = _last_summary(said, start) or _last_step(said, start)
    if found is None:
        return None
    at, total, _ = found
    after = [line for _, line in said[at + 1 :]]
    usual = {_form(line) for _, line in said[:at]}
    closed = any(closes(line) for line in after) or any(
        _SCORE.fullmatch(line.strip()) and _form(line) not in usual for line in after
    )
    return LastEpoch(*said[at], total) if closed else None


def whole_last_epoch(lines: Sequence[tuple[int, str]], start: Iterable[tuple[int, str]] = ()) -> LastEpoch | None:
    """Return the line that ends or heads the last of all epochs, if a log ends with all that each epoch prints; else None.

    Not if epochs are evaluated at times only: then the last evaluation may be missing. Lines behind the figures of an epoch
    that name the next one, or that come before the figures of the first, are of the next one.
    """
    said, start = _said(lines), list(start)
    found = _last_summary(said, start)
    headed = found is None
    found = found or _last_header(said, start)
    if found is None:
        return None
    at, total, places = found
    if len(places) < _EPOCHS or not _counts_epochs(said[at][1]):
        return None
    gaps = [{_form(line): line for _, line in said[left + 1 : right]} for left, right in pairwise(places)]
    evaluated = not headed and _EVALUATED.search(said[at][1]) is not None
    each = set.intersection(*map(set, gaps))
    forms = {form for gap in gaps for form in gap}
    if not evaluated and any(_EVALUATED.search(form) for form in (forms - each if headed else forms)):
        return None
    if not headed:
        numbers = [int(told[1]) for place in places[1:] if (told := _EPOCH.search(said[place][1][:_CUT]))]
        first = {_form(line) for _, line in _before_first(start)}
        each -= {
            form
            for form in each
            if (evaluated and _BAR.search(gaps[0][form]))  # the bar of the next epoch's batches
            or form in first
            or all(_names(gap[form], number) for gap, number in zip(gaps, numbers, strict=True))
        }
    after = {_form(line) for _, line in said[at + 1 :]}
    return LastEpoch(*said[at], total) if each <= after <= forms and (after or not headed) else None


def ended_last_epoch(lines: Sequence[tuple[int, str]]) -> LastEpoch | None:
    """Return the last line, if it says that the last of all epochs is over, and each earlier epoch ended with such a line.

    `Epoch 4/4` heads an epoch, and `end of epoch 4` is the last that it prints: right below, the next one is headed.
    """
    said = _said(lines)
    if not said or (number := _over(said[-1][1])) is None:
        return None
    heads = {at: (int(found[1]), int(found[2])) for at, (_, line) in enumerate(said) if (found := _header(line))}
    totals = {total for _, total in heads.values()}
    ended = [(at, epoch) for at, (_, line) in enumerate(said[:-1]) if (epoch := _over(line)) is not None]
    whole = totals == {number} and [*heads.values()][-1][0] == number
    closed = [heads.get(at + 1, (0, 0))[0] == epoch + 1 for at, epoch in ended]
    return LastEpoch(*said[-1], number) if whole and closed and all(closed) else None


def _over(line: str) -> int | None:
    """Return the number of the epoch that a line says is over, and nothing else."""
    text = line[:_HEADER].strip()
    if "poch" not in text or not any(word in text.lower() for word in _OVER_WORDS):
        return None
    found = _OVER.fullmatch(text) if len(line) <= _HEADER else None
    return int(found[1]) if found is not None else None


def gives_score(line: str) -> bool:
    """Whether a line consists of the names of scores and their numbers."""
    return _SCORE.fullmatch(line[:_CUT].strip()) is not None


def _before_first(start: Sequence[tuple[int, str]]) -> Iterable[tuple[int, str]]:
    """Return the lines at the start of a log before the figures of the first epoch; none if it is not there."""
    for place, (_, line) in enumerate(start):
        told = _told(line)
        if told is not None:
            return start[:place] if told[1] <= 1 else ()
    return ()


def _last_header(
    said: Sequence[tuple[int, str]], start: Iterable[tuple[int, str]]
) -> tuple[int, int, list[int]] | None:
    """Return the same as `_last_summary` for lines that only head an epoch: `Epoch 9/10`."""
    heads = [(at, int(found[1]), int(found[2])) for at, (_, line) in enumerate(said) if (found := _header(line))]
    if not heads:
        return None
    at, here, total = heads[-1]
    own = [(place, epoch) for place, epoch, of in heads if of == total]
    zero = any(found and (int(found[1]), int(found[2])) == (0, total) for _, line in start if (found := _header(line)))
    counts = [epoch for _, epoch in own]
    if here != total - zero or counts[-_EPOCHS:] != list(range(here - _EPOCHS + 1, here + 1)):
        return None
    return at, total, [place for place, _ in own[-_EPOCHS:]]


def _header(line: str) -> re.Match[str] | None:
    """Return the number of an epoch and their number in a line that says no more."""
    text = line[:_CUT]
    if len(text) > _HEADER or "poch" not in text:
        return None
    found = _EPOCH.search(text)
    return found if found is not None and not _COUNTED.search(text[found.end() :]) else None


def _said(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(offset, line) for offset, line in lines[-_MOST:] if line.strip()]


def _last_summary(
    said: Sequence[tuple[int, str]], start: Iterable[tuple[int, str]]
) -> tuple[int, int, list[int]] | None:
    """Return the place of the line of figures of the last of all epochs, their number, and the places of all such lines.

    None if the last line of figures is of another epoch, or is not the only one of its epoch.
    """
    epochs = [
        (at, form, here, total)
        for at, (_, line) in enumerate(said)
        if (told := _told(line))
        for form, here, total in [told]
    ]
    if not epochs:
        return None
    at, form, here, total = epochs[-1]
    own = [(place, epoch) for place, other, epoch, of in epochs if other == form and of == total]
    whole = here == total or (here == total - 1 and _from_zero(form, total, [*start, *said]))
    counts = [epoch for _, epoch in own]
    if not whole or counts[-_EARLIER - 1 :] != list(range(here - _EARLIER, here + 1)):
        return None
    return at, total, [place for place, _ in own]


def _last_step(said: Sequence[tuple[int, str]], start: Iterable[tuple[int, str]]) -> tuple[int, int, list[int]] | None:
    """Return the same for the last step line of the last epoch, if the next step would be beyond the end."""
    steps = [(at, *told) for at, (_, line) in enumerate(said) if (told := _step(line))]
    if not steps:
        return None
    at, form, here, total, step, of = steps[-1]
    whole = here == total or (
        here == total - 1 and any(told[:3] == (form, 0, total) for _, line in start if (told := _step(line)))
    )
    own = [
        (place, at_step)
        for place, other, epoch, _, at_step, length in steps
        if (other, epoch, length) == (form, here, of)
    ]
    if not whole or len(own) < _STEPS:
        return None
    stride = own[-1][1] - own[-2][1]
    if stride <= 0 or (step < of and step + stride <= of):
        return None
    return at, total, [place for place, _ in own]


def _step(line: str) -> tuple[str, int, int, int, int] | None:
    """Return the form of a line of figures of a step in an epoch, the epoch and their number, the step and their number."""
    text = line[:_CUT]
    low = text.lower()
    epoch = _EPOCH.search(text) if "epoch" in low and any(word in low for word in _FIGURES) else None
    if epoch is None or _BAR.search(text):
        return None
    places = [(found.start(1), int(found[1]), int(found[2])) for found in _PLACE.finditer(text)]
    others = [(step, of) for at, step, of in places if at != epoch.start(1)]
    if len(places) != 2 or len(others) != 1:
        return None
    return _form(line), int(epoch[1]), int(epoch[2]), *others[0]


def _counts_epochs(line: str) -> bool:
    """Whether a line calls what it counts epochs: other counters may be those of steps."""
    return "epoch" in line.lower() and _EPOCH.search(line[:_CUT]) is not None


def _names(line: str, number: int) -> bool:
    """Whether a number is in a line."""
    return any(int(found) == number for found in _NUMBER.findall(line[:_CUT]))


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
    named = "epoch" in low and _EPOCH.search(text) is not None  # then any figures are those of the epoch
    told = "/" in low and (named or any(word in low for word in _FIGURES))
    found = _PLACE.search(text) if told else None
    if found is None or _BAR.search(text):
        return None
    if not (_FIGURE.search(text, found.end()) or (named and _ANY_FIGURE.search(text, found.end()))):
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
