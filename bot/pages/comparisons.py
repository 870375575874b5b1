"""The comparisons of an incident's page as stored with it: who was slow when, what failing ranks share, who is in which collective."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bot.diagnosis.diagnose import DiagnosisResult
from kb.collectives.sequence import GroupSequence
from kb.errors import UnreadableInput
from kb.timeline.heat import HeatMap, heat_map
from kb.timeline.shared import SharedTraits, shared_traits

SCHEMA = "signalbox.comparisons/1"


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Of the ranks with each other. Each part is None or empty where the evidence does not support it."""

    heat: HeatMap | None = None
    shared: SharedTraits | None = None
    sequences: tuple[GroupSequence, ...] = ()


def compared(answer: DiagnosisResult) -> Comparisons:
    """Return the comparisons of an answer."""
    evidence, report = answer.evidence, answer.report
    sequences = () if report.verdict == "no_fault" else evidence.sequences  # ranks of a healthy run wait for moments
    heat = heat_map(evidence, report)
    return Comparisons(heat, shared_traits(evidence, report, heat.slow if heat else ()), sequences)


def dumps(made: Comparisons) -> bytes:
    """Encode comparisons as JSON."""
    return msgspec.json.encode(
        {"schema": SCHEMA, "heat": made.heat, "shared": made.shared, "sequences": made.sequences}
    )


def loads(text: bytes) -> Comparisons:
    """Decode comparisons written by `dumps`.

    Raises:
        UnreadableInput: the data is not such JSON.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.pop("schema", None) != SCHEMA:
            raise UnreadableInput(f"not of the schema {SCHEMA}")
        return msgspec.convert(body, Comparisons)
    except (ValueError, TypeError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not readable comparisons: {error}") from error
