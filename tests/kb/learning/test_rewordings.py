"""The edge of a pattern: the same event in other forms, and the component in health."""

from __future__ import annotations

import pytest

from kb.learning.edge_checks import EdgeFaults, faults_of
from kb.learning.rewordings import WRAPPED, EventWords, edge_of, healthy_twins

LOST = EventWords("lease 3 lost")
RAISED = EventWords("lease 3 lost", "depot.LeaseError")
HARMLESS = r"\b(?:INFO|WARNING)\b"


def test_the_opposite_slowness_and_a_retry_are_healthy():
    """So are a normal end, what another rank reports, and the words of the event in a path or a setting."""
    assert healthy_twins("depot lease of part 3 was refused") == (
        "depot lease of part 3 was accepted",
        "depot lease of part 3 is slow: took 12 s",
        "depot lease of part 3: attempt 1 of 3 did not work, retrying in 5 s",
        "depot lease of part 3: done",
        "watchdog: rank 5 reports that depot lease of part 3 is fine",
        "reading /data/depot/lease-of-part-was-refused.json",
        "config: retry_on_depot_lease_of_part_was_refused=true",
        "depot lease of part 3 was refused; retrying (attempt 1 of 3)",
    )


def test_a_line_is_reworded_in_other_prefixes_and_in_json():
    """Numbers change, words do not; success is healthy at any level."""
    edge = edge_of(LOST)
    texts = [item.text for item in edge.variations]
    assert "[rank7]: lease 6 lost" in texts
    assert '{"msg": "lease 6 lost", "level": "error", "rank": 12, "host": "node-a"}' in texts
    assert [item.text for item in edge.near[:2]] == [
        "2026-03-11 10:31:12,104 INFO lease 3 restored",
        "lease 3 restored",
    ]


def test_numbers_that_a_rule_asks_for_stay():
    """Only then."""
    assert [item.text for item in edge_of(LOST, numbers=False).variations if "lease 6" in item.text] == []
    assert [item.text for item in edge_of(LOST).variations if "lease 6" in item.text] != []


def test_units_and_ids_change_with_the_numbers():
    """As another job would print them."""
    edge = edge_of(EventWords("no room for 12 GiB of 3fa94b21c0de"))
    assert edge.variations[1].text == "no room for 15 MiB of ed0c12b49af3"


def test_a_long_line_is_wrapped():
    """A short one is not."""
    long = EventWords("the depot refused the lease of a part because its owner had gone and nobody renewed it in time")
    wrapped = [item.text.split("\n") for item in edge_of(long).variations if item.kind == WRAPPED]
    assert [[len(line) <= 80 for line in lines] for lines in wrapped] == [[True, True]]
    assert WRAPPED not in [item.kind for item in edge_of(LOST).variations]


def test_an_exception_is_reworded_with_its_traceback():
    """Also in a field of a record, in a group, as a class of another module, renamed, and logged in one line."""
    edge = edge_of(RAISED)
    without = [item.kind for item in edge.variations if "Traceback" not in item.text]
    assert without == ["task of Ray", "logged with its class behind other words", "logged without a traceback"]
    last = {item.kind: item.text.split("\n")[-1] for item in edge.variations}
    assert last["class of another module"] == "vendor.core.errors.LeaseError: lease 3 lost"
    assert last["class renamed"] == "vendor.LeaseException: lease 3 lost"
    assert last["logged without a traceback"].endswith(" ERROR worker: LeaseError: lease 6 lost")


@pytest.mark.parametrize(
    ("event", "values", "alarms", "missed"),
    [
        (LOST, {"regex": r"lease [\d.]+ lost", "not_line": HARMLESS}, 0, 1),  # a capital first
        (LOST, {"regex": r"[Ll]ease [\d.]+ lost", "not_line": HARMLESS}, 0, 0),
        (
            EventWords("the lease 3 lost"),
            {"regex": r"lease [\d.]+ lost"},
            8,
            0,
        ),  # retries and lower levels with the same words
        (
            EventWords("the lease 3 lost"),
            {"regex": r"lease [\d.]+ lost", "level": "error_if_stated", "recovered": False},
            0,
            0,
        ),
        (LOST, {"regex": r"lease 3 lost", "not_line": HARMLESS}, 0, 13),
        (RAISED, {"exception": {"type": "LeaseError", "message": "lost"}}, 0, 5),  # renamed, and without a traceback
    ],
)
def test_a_pattern_is_judged_by_both(event, values, alarms, missed):
    """How many near misses it matches, and how many variations it misses."""
    assert faults_of([values], [edge_of(event)]) == EdgeFaults(alarms, missed)


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (
            "port trained with 2 of 4 lanes, policy wants all",
            "all of them, without a level",
            "port trained with 4 of 4 lanes, policy wants all",
        ),
        ("depot quiesced, 12 requests dropped", "none of them, without a level", "depot quiesced, 0 requests dropped"),
        (
            "lease of part 3 was refused",
            "a recovery at error level",
            "2026-03-11 10:31:12,104 ERROR worker: recovered from: lease of part 3 was refused",
        ),
        (
            "lease of part 3 was refused",
            "a level in brackets",
            "[2026-03-11 10:31:12] [info] lease of part 3 was refused",
        ),
        (
            "ring 2: token overdue by 54 s, 3 of 8 members silent",
            "slowness",
            "2026-03-11 10:31:12,104 WARNING ring 2 is slow: took 12 s",
        ),
    ],
)
def test_healthy_values_and_recoveries_are_near_misses(message, kind, text):
    """The same words, with values or words that say that nothing is wrong any more."""
    near = {item.kind: item.text for item in edge_of(EventWords(message)).near}
    assert near[kind] == text
