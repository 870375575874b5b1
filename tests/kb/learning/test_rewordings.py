"""The edge of a pattern: the same event in other forms, and the component in health."""

from __future__ import annotations

from kb.learning.rewordings import edge_of, healthy_twins


def test_the_opposite_slowness_and_a_retry_are_healthy():
    """So are the words of the event in a path."""
    assert healthy_twins("depot lease of part 3 was refused") == (
        "depot lease of part 3 was accepted",
        "depot lease of part 3 was is slow: took 12 s",
        "depot lease of part 3 was: attempt 1 of 3 did not work, retrying in 5 s",
        "depot lease of part 3 was: done",
        "reading /data/depot/lease-of-part-was-refused.json",
    )


def test_a_line_is_reworded_in_other_prefixes_and_in_json():
    """Numbers change, words do not."""
    edge = edge_of("lease 3 lost")
    assert "[rank7]: lease 6 lost" in edge.variations
    assert '{"msg": "lease 6 lost", "level": "error", "rank": 12, "host": "node-a"}' in edge.variations
    assert edge.near[0] == "2026-03-11 10:31:12,104 INFO lease 3 restored"


def test_an_exception_is_reworded_with_its_traceback():
    """Also in a field of a record."""
    edge = edge_of("lease 3 lost", "depot.LeaseError")
    assert all("LeaseError: lease" in text for text in edge.variations)
    assert sum("Traceback" in text for text in edge.variations) == len(edge.variations)
