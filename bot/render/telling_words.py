"""The words of a quoted line by which its rule knew it, to underline them as compilers do.

A quoted line can be cut or masked, so a rule's pattern need not be found in it: then nothing is underlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kb.parsers.logs.progress.quantities import stated
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
_LONGEST = 2000  # characters of a line that are searched


def telling_words(rulebook: Rulebook) -> Telling:
    """Return what finds the telling words of a line: the longest match of a pattern of the diagnosis' rule."""
    rules = {rule.id: rule for rule in rulebook.rules}

    def found(diagnosis: Diagnosis, line: str) -> Span | None:
        rule = rules.get(diagnosis.rule)
        spans = (_span(pattern, line) for pattern in (rule.patterns if rule is not None else ()))
        return max((span for span in spans if span is not None), key=lambda span: span[1] - span[0], default=None)

    return found


def _span(pattern: Pattern, line: str) -> Span | None:
    """Return the part of a line that a pattern matches.

    Of an exception, from its type to the end of its message; of a series, the figure that it looks at.
    """
    metric = pattern.series.metric if pattern.series is not None else _metric(pattern)
    if metric:
        return stated(metric, line[:_LONGEST])
    test = pattern.exception
    if test is not None:
        spans = [span for regex in (test.type, test.message) if regex and (span := _match(regex, line, False))]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    regex = re.escape(pattern.literal) if pattern.literal is not None else pattern.regex
    return _match(regex, line, pattern.ignore_case) if regex is not None else None


def _metric(pattern: Pattern) -> str:
    """Return the metric that a detector looks at; empty without one."""
    return _DETECTED.get(pattern.detect.name, "") if pattern.detect is not None else ""


def _match(regex: str, line: str, ignore_case: bool) -> Span | None:
    hit = compiled(regex, ignore_case).find(line[:_LONGEST])
    if hit is None or not hit.group().strip():
        return None
    words = hit.group()
    return hit.end() - len(words.lstrip()), hit.start() + len(words.rstrip())
