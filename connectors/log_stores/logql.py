"""Builds LogQL safely from untrusted names: values become quoted strings, alternatives become quoted literals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_META = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

Labels = Mapping[str, Sequence[str]]


def quoted(text: str) -> str:
    """Return a text as a LogQL string. No character can end the string or the line."""
    plain = text.encode("utf-8", "replace").decode()
    return '"' + "".join(_ESCAPES.get(item) or (item if item >= " " else f"\\x{ord(item):02x}") for item in plain) + '"'


def literal(text: str) -> str:
    """Return an RE2 regular expression that matches only this text."""
    return _META.sub(r"\\\1", text)


def selector(labels: Labels) -> str:
    """Return a selector for streams whose labels each have one of these values.

    Raises:
        ValueError: A label is invalid or has no value, which would select the streams of other users.
    """
    if not labels or not all(labels.values()):
        raise ValueError("a stream selector needs labels, and these need values")
    return f"{{{', '.join(_matcher(label, values) for label, values in sorted(labels.items()))}}}"


def with_labels(labels: Labels) -> str:
    """Return a line filter by labels that may be in structured metadata."""
    return "".join(f" | {_matcher(label, values)}" for label, values in sorted(labels.items()))


def with_words(words: Iterable[str]) -> str:
    """Return a filter for lines with any of these words as they are written; empty without words.

    Loki searches an alternation of literals one after the other, without its regular expressions, if Go's parser leaves
    them apart (`pkg/logql/log/filter.go`, RegexSimplifier). It joins neighbours with the same beginning, and gives up on
    some of what that makes, which costs fifty times as much. So no two neighbours begin with the same letter, where that
    can be avoided. Ignoring case would cost several times as much, too.
    """
    found = "|".join(literal(word) for word in _apart(words))
    return f" |~ {quoted(found)}" if found else ""


def _apart(words: Iterable[str]) -> list[str]:
    """The words in an order in which neighbours begin with other letters, as far as possible."""
    groups: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        groups.setdefault(word[:1], []).append(word)
    found: list[str] = []
    while groups:
        others = [letter for letter in groups if not found or letter != found[-1][:1]] or list(groups)
        letter = max(others, key=lambda item: (len(groups[item]), item))
        found.append(groups[letter].pop())
        if not groups[letter]:
            del groups[letter]
    return found


def _matcher(label: str, values: Sequence[str]) -> str:
    if not _LABEL.fullmatch(label) or not all(values):
        raise ValueError(f"not a label with values: {label[:100]!r}")
    if len(values) == 1:
        return f"{label}={quoted(values[0])}"
    return f"{label}=~{quoted('|'.join(literal(value) for value in values))}"
