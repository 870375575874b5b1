"""LogQL that is safe to build from strangers' names: every value is a quoted string, every alternative a quoted literal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_META = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

Labels = Mapping[str, Sequence[str]]


def quoted(text: str) -> str:
    """A text as LogQL's string, which is Go's: no character of it ends the string or the line."""
    plain = text.encode("utf-8", "replace").decode()
    return '"' + "".join(_ESCAPES.get(item) or (item if item >= " " else f"\\x{ord(item):02x}") for item in plain) + '"'


def literal(text: str) -> str:
    """A text as a regular expression of RE2 that matches it alone."""
    return _META.sub(r"\\\1", text)


def selector(labels: Labels) -> str:
    """The streams whose labels each have one of these values.

    Raises:
        ValueError: a label's name is none, or has no value: that would select the streams of everybody.
    """
    if not labels or not all(labels.values()):
        raise ValueError("a stream selector needs labels, and these need values")
    return f"{{{', '.join(_matcher(label, values) for label, values in sorted(labels.items()))}}}"


def with_labels(labels: Labels) -> str:
    """A filter of lines by labels that may stand in structured metadata."""
    return "".join(f" | {_matcher(label, values)}" for label, values in sorted(labels.items()))


def with_words(words: Iterable[str]) -> str:
    """A filter of lines with one of these words, in any case; nothing where there are none.

    Loki takes an alternative of literals apart and looks for each as it is, which is much faster than its regular expressions.
    """
    found = "|".join(literal(word) for word in words)
    return f" |~ {quoted(f'(?i)({found})')}" if found else ""


def _matcher(label: str, values: Sequence[str]) -> str:
    if not _LABEL.fullmatch(label) or not all(values):
        raise ValueError(f"not a label with values: {label[:100]!r}")
    if len(values) == 1:
        return f"{label}={quoted(values[0])}"
    return f"{label}=~{quoted('|'.join(literal(value) for value in values))}"
