"""Turns stacks, collectives, metrics, RAS answers and events into votes of the hang probes and structures for rules.

A rule does not see stacks or recorders, only structures (kinds `hang`, `stack_outlier`, `collective_culprit`, `peer_outlier`,
`platform_event` of docs/structures.md). Each gets a separate stream that names its source file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kb.collectives.sequence import group_sequences
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.hangs.non_log_evidence import NonLogEvidence, expected_ranks
from kb.hangs.sourced_structures import streams_of
from kb.hangs.state import hang_state
from kb.hangs.structures import has_stalled, structures
from kb.hangs.votes import limits_of, unknown_params
from kb.model import Gap, StreamRef
from kb.report import Hang, short_ranges
from kb.rulebase.rule import Rulebook
from kb.scanning.summary import StreamSummary
from kb.stacks.call_tree import branches, merged


def observe(evidence: Evidence, parts: NonLogEvidence, rulebook: Rulebook) -> Evidence:
    """Return the evidence with the probes' votes and with structures for its other parts."""
    facts = Facts(evidence)
    state = hang_state(facts, parts, limits_of(rulebook, evidence.job.params))
    found = structures(evidence, parts, state, facts)
    gaps = (
        *evidence.gaps,
        *parts.gaps,
        *(state.collectives.gaps if state.collectives else ()),
        *_ranks_apart(facts, parts),
        *(Gap("job_params", "job.yaml", told[:500], scope="job") for told in unknown_params(evidence.job.params)),
    )
    streams = tuple(streams_of(found))
    hang = (
        replace(state.hang, stacks=branches(merged(parts.stacks))) if has_stalled(parts, state, facts) else state.hang
    )
    asked = any(pattern.series for rule in rulebook.rules for pattern in rule.patterns)
    measured = asked and any(panel.mask.any() for panel in parts.panels.values())
    if measured and not any(stream.ref.group == "metrics" for stream in streams):
        streams = (*streams, StreamSummary(StreamRef("metrics", kind="event", group="metrics")))
    sequences = group_sequences(parts.rings, state.collectives) if state.collectives else ()
    return replace(
        evidence,
        streams=(*evidence.streams, *streams),
        gaps=gaps,
        hang=hang,
        panels=parts.panels,
        sequences=sequences,
    )


def hang_votes(evidence: Evidence, parts: NonLogEvidence, rulebook: Rulebook) -> Hang:
    """Return only the probes' votes, for callers that check a running job every few seconds."""
    return hang_state(Facts(evidence), parts, limits_of(rulebook, evidence.job.params)).hang


_SEEN_IN = {"stacks": "stacks", "rings": "Flight Recorder dumps"}


def _ranks_apart(facts: Facts, parts: NonLogEvidence) -> Iterator[Gap]:
    """Return the ranks that only some of the sources contain, and ranks that the job should not have."""
    ranks_by_source = {
        "stacks": {stack.resource.rank for stack in parts.stacks if stack.resource.rank is not None},
        "rings": {ring.rank for ring in parts.rings if ring.rank is not None},
    }
    world = expected_ranks(facts)
    for source, ranks in ranks_by_source.items():
        name = _SEEN_IN[source]
        wrong = {rank for rank in ranks if rank < 0 or (world and rank not in world)}
        if wrong:
            reason = f"ranks {short_ranges(wrong)} are not among the job's {len(world)}: they belong to another job, or are misnumbered"
            yield Gap("ranks_unknown", name, reason, scope="job")
        expected = set(world) or set().union(*ranks_by_source.values())
        missing = expected - ranks
        if ranks and missing and source == "stacks":  # missing dumps are reported by the gap of the collectives
            reason = f"nothing from {len(missing)} ranks: {short_ranges(missing)}"
            yield Gap("ranks_missing", name, reason, scope="job", rules_out="what these ranks are doing")
