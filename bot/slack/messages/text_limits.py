"""The number of characters that a message shows of each kind of text. The evidence file has the rest."""

from __future__ import annotations

QUOTED_LINE = 240  # characters of a line
BRIEF = 160  # characters of less important text
SENTENCE = 400  # characters of a sentence
NAME = 80  # characters of a name
FALLBACK = 600
