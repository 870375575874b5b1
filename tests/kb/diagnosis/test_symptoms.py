"""Where and when the symptoms of a run begin."""

from __future__ import annotations

from kb.diagnosis.findings import find
from kb.diagnosis.symptoms import Symptoms
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from tests.support.kb_samples import CLOSED, OOM, rulebook, scanned

BOOK = rulebook(OOM, CLOSED)
TEXT = (
    "[rank0]: 2026-11-03 04:12:30 out of memory. Tried to allocate 2.00 GiB\n"
    "[rank1]: 2026-11-03 04:12:40 Connection closed by peer\n"
)


def symptoms(text: str) -> Symptoms:
    """The symptoms of one log."""
    facts = Facts(Evidence(streams=(scanned(text, BOOK),)))
    return Symptoms(find(BOOK, facts, History()).findings, facts, Places(facts))


def test_only_symptoms_count_as_symptoms() -> None:
    """The cause covers its own line, and is none of the ranks that suffer."""
    found = symptoms(TEXT)
    assert (found.ranks, found.lost_peer, found.begin(0)) == ({1}, True, TEXT.index("[rank1]"))
    assert found.covers(0, 0)
    assert not found.covers(0, len(TEXT) + 5)


def test_the_lead_is_the_time_to_the_first_symptom() -> None:
    """Unknown for an event without a time, and for one after it."""
    found = symptoms(TEXT)
    (time,) = {signal.time for signal in found.signals}
    assert time is not None
    assert (found.lead(time - 10.0), found.lead(time + 1.0), found.lead(None)) == (10.0, None, None)


def test_a_run_without_symptoms_has_no_beginning() -> None:
    """No place, no ranks, no lead."""
    found = symptoms(TEXT.splitlines()[0] + "\n")
    assert (found.ranks, found.lost_peer, found.begin(0), found.lead(5.0)) == (frozenset(), False, None, None)
