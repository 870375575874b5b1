"""Judges mined patterns by similar lines: which rewordings of their event they miss, and which healthy lines they match.

A judgement by regexes alone, to choose between patterns; the engine decides what a drafted rule does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.learning.events import raised
from kb.learning.messages import message_in, without_prefix
from kb.learning.rewordings import Edge
from kb.parsers.logs.prefixes import peel
from kb.regex.pattern import compiled
from kb.rulebase import levels


@dataclass(frozen=True, slots=True, order=True)
class EdgeFaults:
    """How many near misses a pattern matches, and how many variations it misses. Lower is better; false alarms cost more."""

    alarms: int = 0
    missed: int = 0

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.alarms or self.missed)


def faults_of(values: Sequence[Mapping[str, Any]], edges: Sequence[Edge]) -> EdgeFaults:
    """What is wrong with a rule that any of these patterns triggers, tested on variations and near misses of its events."""
    near = [item.text for edge in edges for item in edge.near]
    told = [item.text for edge in edges for item in edge.variations]
    return EdgeFaults(
        sum(_speaks(values, text) for text in dict.fromkeys(near)),
        sum(not _speaks(values, text) for text in dict.fromkeys(told)),
    )


def _speaks(values: Sequence[Mapping[str, Any]], text: str) -> bool:
    return any(_matches(item, text) for item in values)


def _matches(values: Mapping[str, Any], text: str) -> bool:
    if "exception" in values:
        return "Traceback" in text and any(_raises(values["exception"], line) for line in text.split("\n"))
    regex, confirm = values.get("regex"), levels.ERROR if values.get("level") == "error" else values.get("confirm")
    but = levels.excluded(values.get("level"), values.get("recovered"), values.get("not_line"))
    if regex is None:
        return False
    return any(
        compiled(regex).find(line) is not None
        and (but is None or compiled(but).find(line) is None)
        and (confirm is None or compiled(confirm).find(line) is not None)
        for line in text.split("\n")
    )


def _raises(test: Mapping[str, Any], line: str) -> bool:
    data = line.encode("utf-8", "replace")
    message = message_in(data[peel(data).end :].decode("utf-8", "replace").strip())
    said = raised(message) or raised(without_prefix(message))
    if said is None:
        return False
    fits = "type" not in test or compiled(test["type"]).fits(said[0])
    return fits and ("message" not in test or compiled(test["message"]).find(said[1]) is not None)
