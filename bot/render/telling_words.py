"""The words of a quoted line by which its rule knew it, to underline them as compilers do.

A quoted line can be cut or masked, so a rule's pattern need not be found in it: then nothing is underlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kb.regex.pattern import compiled

if TYPE_CHECKING:
    from kb.report import Diagnosis
    from kb.rulebase.rule import Pattern, Rulebook

Span = tuple[int, int]
Telling = Callable[["Diagnosis", str], Span | None]  # the part of a line by which the diagnosis was made

_LONGEST = 2000  # characters of a line that are searched


def nothing_telling(_diagnosis: Diagnosis, _line: str) -> Span | None:
    """Underline nothing, where the rules are not at hand."""
    return None


def telling_words(rulebook: Rulebook) -> Telling:
    """Return what finds the telling words of a line: the longest match of a pattern of the diagnosis' rule."""
    rules = {rule.id: rule for rule in rulebook.rules}

    def found(diagnosis: Diagnosis, line: str) -> Span | None:
        rule = rules.get(diagnosis.rule)
        spans = (_span(pattern, line) for pattern in (rule.patterns if rule is not None else ()))
        return max((span for span in spans if span is not None), key=lambda span: span[1] - span[0], default=None)

    return found


def _span(pattern: Pattern, line: str) -> Span | None:
    """Return the part of a line that a pattern matches; of an exception, from its type to the end of its message."""
    test = pattern.exception
    if test is not None:
        spans = [span for regex in (test.type, test.message) if regex and (span := _match(regex, line, False))]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    regex = re.escape(pattern.literal) if pattern.literal is not None else pattern.regex
    return _match(regex, line, pattern.ignore_case) if regex is not None else None


def _match(regex: str, line: str, ignore_case: bool) -> Span | None:
    hit = compiled(regex, ignore_case).find(line[:_LONGEST])
    if hit is None or not hit.group().strip():
        return None
    words = hit.group()
    return hit.end() - len(words.lstrip()), hit.start() + len(words.rstrip())
