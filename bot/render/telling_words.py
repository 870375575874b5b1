"""The words of a quoted line by which its rule knew it, to underline them as compilers do.

A quoted line can be cut or masked, so a rule's pattern need not be found in it: then nothing is underlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kb.parsers.logs.progress.quantities import stated
from kb.regex.lazy import lazy_compile
from kb.regex.pattern import compiled

if TYPE_CHECKING:
    from kb.report import Diagnosis
    from kb.rulebase.rule import Pattern, Rulebook

Span = tuple[int, int]
Telling = Callable[["Diagnosis", str], Span | None]  # the part of a line by which the diagnosis was made

_DETECTED = {
    "loss_spike": "loss",
    "loss_not_finite": "loss",
    "memory_growth": "memory",
    "lr_stuck": "learning_rate",
    "lr_off_schedule": "learning_rate",
    "loss_scale_minimum": "loss_scale",
}  # detectors of series → the metric that they look at
_ANY_TYPE = r"\b[A-Za-z_]\w{2,60}(?:Error|Exception|Warning|Interrupt|Exit|Failure)\b"
_BAD = lazy_compile(r"(?i)\b(?:nan|-?inf(?:inity)?)\b")
_LONGEST = 2000  # characters of a line that are searched


def telling_words(rulebook: Rulebook) -> Telling:
    """Return what finds the telling words of a line: the longest match of a pattern of the diagnosis' rule.

    Exceptions that a pattern knows by their type and place alone count after all others, with their whole message.
    """
    rules = {rule.id: rule for rule in rulebook.rules}

    def found(diagnosis: Diagnosis, line: str) -> Span | None:
        rule = rules.get(diagnosis.rule)
        for by_type in (False, True):
            patterns = [pattern for pattern in (rule.patterns if rule else ()) if _by_type(pattern) is by_type]
            spans = [span for pattern in patterns if (span := _span(pattern, line)) is not None]
            if spans:
                return _whole_words(line, max(spans, key=lambda span: span[1] - span[0]))
        return None

    return found


def _by_type(pattern: Pattern) -> bool:
    """Whether a pattern knows an exception without a word of its message."""
    return pattern.exception is not None and not pattern.exception.message


def _whole_words(line: str, span: Span) -> Span:
    """Return a part of a line from the beginning of its first word to the end of its last."""
    low, high = span
    while low > 0 and _is_word(line[low - 1 : low + 1]):
        low -= 1
    while high < len(line) and _is_word(line[high - 1 : high + 1]):
        high += 1
    return low, high


def _is_word(two: str) -> bool:
    return all(letter.isalnum() or letter == "_" for letter in two)


def _span(pattern: Pattern, line: str) -> Span | None:
    """Return the part of a line that a pattern matches.

    Of an exception, from its type to the end of its message; of a series, the figure that it looks at.
    """
    metric = pattern.series.metric if pattern.series is not None else _metric(pattern)
    if metric == "loss" and pattern.detect is not None and pattern.detect.name == "loss_not_finite":
        return _not_finite(line[:_LONGEST])
    if metric:
        return stated(metric, line[:_LONGEST])
    test = pattern.exception
    if test is not None:
        kind = _match(rf"\b(?:{test.type})\b" if test.type else _ANY_TYPE, line, False)
        told = _in_message(test.message, line, 0 if kind is None else kind[1]) if test.message else None
        if kind is not None and not test.message:
            return kind[0], len(line[:_LONGEST].rstrip())
        spans = [span for span in (kind if told is not None else None, told) if span is not None]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    regex = re.escape(pattern.literal) if pattern.literal is not None else pattern.regex
    return _match(regex, line, pattern.ignore_case) if regex is not None else None


def _in_message(regex: str, line: str, end: int) -> Span | None:
    """Return the part of a line that a test of an exception's message matches. `end`: of its type, 0 if that is not in the line."""
    start = end + len(line[end:]) - len(line[end:].lstrip(": "))
    span = _match(regex, line[start:], False)
    return None if span is None else (span[0] + start, span[1] + start)


def _not_finite(line: str) -> Span | None:
    """Return the loss if it is not finite, else the gradient norm if that is not, else the loss."""
    spans = [span for metric in ("loss", "grad_norm") if (span := stated(metric, line)) is not None]
    bad = [span for span in spans if _BAD.search(line, *span)]
    return next(iter(bad or spans), None)


def _metric(pattern: Pattern) -> str:
    """Return the metric that a detector looks at; empty without one."""
    return _DETECTED.get(pattern.detect.name, "") if pattern.detect is not None else ""


def _match(regex: str, line: str, ignore_case: bool) -> Span | None:
    hit = compiled(regex, ignore_case).find(line[:_LONGEST])
    if hit is None or not hit.group().strip():
        return None
    words = hit.group()
    return hit.end() - len(words.lstrip()), hit.start() + len(words.rstrip())
