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
        "depot lease is slow: took 12 s",
        "depot lease: attempt 1 of 3 did not work, retrying in 5 s",
        "depot lease: done",
        "watchdog: rank 5 reports that depot lease is fine",
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
    """As another job would print them: the amount in another unit stays an amount of that size."""
    edge = edge_of(EventWords("no room for 12 GiB of 3fa94b21c0de"))
    assert edge.variations[1].text == "no room for 15360 MiB of ed0c12b49af3"


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


@pytest.mark.parametrize(
    "message",
    [
        "ring 2: 8 of 8 members silent",
        "actor pool shrank to 0 of 16 actors",
        "halo checksum 0x1a differs from neighbour's 0x2b",
    ],
)
def test_no_near_miss_takes_a_count_for_health_or_half_a_sentence_for_a_name(message):
    """All of them, and none of them, may be the worst; only a good run shows that it is not."""
    words = message.partition(" ")[2]
    for item in edge_of(EventWords(message)).near:
        assert words in item.text or not {"members", "shrank", "differs"} & set(item.text.split()), item


def test_values_that_a_device_cannot_have_are_in_no_variation():
    """The domain and the slot of a PCI address stay, the bus changes."""
    texts = [item.text for item in edge_of(EventWords("qfab 0000:fe:00.0: lane 3 quarantined")).variations]
    assert {text[text.index("qfab") + 5 : text.index(": lane")] for text in texts if "qfab" in text} == {
        "0000:fe:00.0",
        "0000:01:00.0",
    }


def test_a_variation_changes_something():
    """Without numbers there are no other ones."""
    kinds = [item.kind for item in edge_of(EventWords("upload was aborted by a lifecycle rule")).variations]
    assert "other numbers, units and ids" not in kinds


def test_success_says_nothing_of_the_reason():
    """Nobody writes that an upload was completed by what aborts uploads."""
    near = {
        item.kind: item.text for item in edge_of(EventWords("upload was aborted by a lifecycle rule: 24 h old")).near
    }
    assert near["success"].endswith("upload was completed")


def test_none_of_several_stays_none():
    """Another number of what is used up would be no failure."""
    edge = edge_of(EventWords("desk permits used up: 0 of 48 desks left, 9 guests wait"))
    assert {"desk permits used up: 0 of 51 desks left, 12 guests wait"} < {item.text for item in edge.variations}
    assert "desk permits available" in {item.text for item in edge.near}
