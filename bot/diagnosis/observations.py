"""Findings from comparisons and series, stored with the incident: no log line contains them, so they could not be read later."""

from __future__ import annotations

import msgspec

from kb.errors import UnreadableInput
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.steps.series_tests import look
from kb.learning.cases import Observation
from kb.learning.structural_conditions import ASKED
from kb.rulebase.rule import SeriesTest

OBSERVED = "observed"  # name of the stored attachment
MOST = 200
MOST_BYTES = 256 * 1024
LONGEST = 300  # characters per field
_SERIES = (
    ("loss", "not_finite"),
    ("loss", "broken"),
    ("grad_norm", "jump"),
    ("throughput", "drop"),
    ("step_time", "slower"),
    ("throughput", "decline"),
    ("memory", "growth"),
)
_DECODER = msgspec.json.Decoder(list[tuple[str, dict[str, str]]])


def observed(evidence: Evidence) -> tuple[Observation, ...]:
    """Return the structures that no log contains and the changes of series, sorted and without duplicates."""
    found = [
        Observation(
            structure.kind,
            {
                name: str(structure.fields[name])[:LONGEST]
                for name in ASKED[structure.kind]
                if structure.fields.get(name)
            },
        )
        for summary in evidence.streams
        for structure in summary.structures
        if structure.kind in ASKED
    ]
    facts = Facts(evidence)
    streams = [(index, item.summary) for index, item in enumerate(facts.streams)]
    for metric, change in _SERIES:
        if look(SeriesTest(metric, change=change), streams, evidence.panels):
            found.append(Observation("series", {"metric": metric, "change": change}))
    return tuple({repr(observation): observation for observation in found}.values())[:MOST]


def dumps(found: tuple[Observation, ...]) -> bytes:
    """Serialise observations for storage."""
    return msgspec.json.encode([(observation.kind, dict(observation.fields)) for observation in found])


def loads(data: bytes | None) -> tuple[Observation, ...]:
    """Deserialise observations. `None` means that none were stored.

    Raises:
        UnreadableInput: the bytes are not valid observations.
    """
    if data is None:
        return ()
    if len(data) > MOST_BYTES:
        raise UnreadableInput("the stored observations of an incident exceed the size limit")
    try:
        return tuple(Observation(kind, fields) for kind, fields in _DECODER.decode(data)[:MOST])
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UnreadableInput(f"invalid observations of an incident: {error}") from error
