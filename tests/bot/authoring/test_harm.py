"""What an answer would do to the one who believes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.authoring.cases import LabelledCase
from bot.authoring.harm import CURED_BY, TITLES, Harm, harm, shares, table
from kb.report import Decision, GpuRef, Suspect
from kb.rulebase.rule import FaultClass
from tests.support.bot_samples import FALLEN_GPU, HEALTHY, TOO_LITTLE, UNKNOWN

FAULTS = {
    "code_bug": FaultClass("code_bug", "software", "Bug"),
    "gpu_fell_off_bus": FaultClass("gpu_fell_off_bus", "hardware", "Gone"),
    "peer_failure": FaultClass("peer_failure", "none", "Lost peer", symptom=True),
    "unknown": FaultClass("unknown", "none", "Unknown", symptom=True),
}
BUG = LabelledCase("c1", "code_bug", (), ("KeyError: 'x'",), (5,), advice=("fix_first",))
WELL = LabelledCase("c2", "healthy", (), (), (), advice=("none",), proven_end=True)
LOST_PEER = replace(
    FALLEN_GPU,
    diagnoses=(replace(FALLEN_GPU.diagnoses[0], fault="peer_failure", role="symptom"), *FALLEN_GPU.diagnoses[1:]),
)


def judged(case, report, *, right=False, needle=None, own_lines=lambda: True):
    """The harm of a report whose faults are those above."""
    return harm(case, report, FAULTS, right=right, needle=needle, own_lines=own_lines)


def advising(advice, report=FALLEN_GPU):
    """The report with another advice."""
    return replace(report, decision=Decision(advice=advice))


def test_a_failure_called_healthy_is_the_worst():
    """Unless an expert takes healthy as right too."""
    assert judged(BUG, HEALTHY).called_healthy is True
    assert judged(BUG, FALLEN_GPU).called_healthy is False
    assert judged(replace(BUG, accept=("healthy",)), HEALTHY).called_healthy is False
    assert judged(WELL, HEALTHY).called_healthy is None


def test_a_symptom_leads_while_lines_of_the_cause_are_unquoted():
    """The cause may be known or unknown to the rules; a label without lines or ranks cannot show it."""
    assert judged(BUG, LOST_PEER, needle=False).symptom_led is True
    assert judged(replace(BUG, label="unknown"), LOST_PEER, needle=False).symptom_led is True
    assert judged(BUG, LOST_PEER, needle=True).symptom_led is False
    assert judged(BUG, LOST_PEER, needle=False, own_lines=lambda: False).symptom_led is False
    assert judged(BUG, LOST_PEER, needle=False, right=True).symptom_led is False
    assert judged(BUG, FALLEN_GPU, needle=False).symptom_led is False
    assert judged(BUG, UNKNOWN, needle=False).symptom_led is False
    assert judged(replace(BUG, label="peer_failure"), LOST_PEER, needle=False).symptom_led is None
    assert judged(replace(BUG, needle=(), ranks=()), LOST_PEER).symptom_led is None


def test_an_unknown_failure_that_leads_is_no_symptom():
    """It says that the cause is not known, which is the honest answer."""
    unknown = replace(LOST_PEER, diagnoses=(replace(LOST_PEER.diagnoses[0], fault="unknown"),))

    assert judged(BUG, unknown, needle=False).symptom_led is False


def test_without_a_needle_a_quoted_line_of_a_rank_at_fault_is_enough():
    """The first diagnosis quotes rank 7."""
    case = replace(BUG, needle=())

    assert judged(replace(case, ranks=(7,)), LOST_PEER).symptom_led is False
    assert judged(replace(case, ranks=(9,)), LOST_PEER).symptom_led is True


@pytest.mark.parametrize(
    ("advice", "accepted", "repeats"),
    [
        ("requeue", ("fix_first",), True),
        ("restart_in_place", ("fix_first",), True),
        ("requeue_without", ("fix_first", "resubmit"), True),
        ("resubmit", ("fix_first",), True),
        ("wait", ("fix_first",), True),
        ("fix_first", ("requeue",), False),
        ("none", ("fix_first",), False),
        ("requeue", ("requeue_without", "fix_first"), True),
        ("restart_in_place", ("requeue",), True),
        ("requeue_without", ("requeue",), False),
        ("requeue", ("restart_in_place",), False),
        ("wait", ("requeue",), False),
        ("requeue", ("wait",), True),
    ],
)
def test_a_restart_that_changes_too_little_repeats_the_failure(advice, accepted, repeats):
    """Other nodes, time or a changed setting cure what a mere repeat cures, and not the other way round."""
    found = judged(replace(BUG, advice=accepted), advising(advice))

    assert (found.repeats, found.harmful, found.stops_healthy) == (repeats, repeats, None)


def test_advice_that_is_accepted_never_repeats():
    """Each restart cures at least what it is accepted for."""
    assert all(advice in cured_by for advice, cured_by in CURED_BY.items())


@pytest.mark.parametrize(("advice", "stops"), [("none", False), ("fix_first", True), ("requeue", True), ("wait", True)])
def test_a_healthy_job_is_left_alone(advice, stops):
    """All but `none` stops it or runs it again."""
    found = judged(WELL, advising(advice))

    assert (found.stops_healthy, found.harmful, found.repeats, found.advice_accepted) == (stops, stops, None, not stops)


def test_a_case_without_accepted_advice_does_not_count_for_advice():
    """A class of a site has no row in the table."""
    found = judged(replace(BUG, advice=()), FALLEN_GPU)

    assert (found.repeats, found.harmful, found.advice_accepted) == (None, None, None)


def test_an_abstention_gives_a_failure_no_name():
    """`no_match` is none where unknown is the right answer."""
    assert judged(BUG, TOO_LITTLE).abstained is True
    assert judged(BUG, UNKNOWN).abstained is True
    assert judged(BUG, UNKNOWN, right=True).abstained is False
    assert judged(BUG, FALLEN_GPU).abstained is False
    assert judged(WELL, TOO_LITTLE).abstained is None


def test_the_first_rank_among_the_suspects_counts():
    """Rank 7 fell off the bus."""
    assert judged(replace(BUG, ranks=(7,)), FALLEN_GPU).rank_first is True
    assert judged(replace(BUG, ranks=(8,)), FALLEN_GPU).rank_first is False
    assert judged(replace(BUG, ranks=(8,)), TOO_LITTLE).rank_first is False
    assert judged(replace(BUG, ranks=()), FALLEN_GPU).rank_first is None
    assert judged(replace(BUG, ranks=(7, 8)), FALLEN_GPU).rank_first is None


@pytest.mark.parametrize(
    ("wanted", "right"),
    [("cn-a1", True), ("cn-a2", False), ("PCI:0000:CB:00", True), ("0000:cb:00.0", True), ("0000:cb:01.0", False)],
)
def test_a_node_or_gpu_at_fault_is_compared_by_its_name(wanted, right):
    """A case without a rank names the node, or the GPU by its PCI address in any spelling."""
    first = FALLEN_GPU.diagnoses[0]
    suspect = Suspect("gpu", node="cn-a1", gpu=GpuRef(pci="0000:cb:00"))
    report = replace(FALLEN_GPU, diagnoses=(replace(first, suspects=(suspect,)),))

    assert judged(replace(BUG, ranks=(wanted,)), report).rank_first is right
    assert judged(replace(BUG, ranks=(wanted,)), TOO_LITTLE).rank_first is False


def test_a_proven_end_asks_for_no_fault():
    """Only if a person judged that the logs prove it."""
    assert judged(WELL, HEALTHY).end_recognized is True
    assert judged(WELL, TOO_LITTLE).end_recognized is False
    assert judged(replace(WELL, proven_end=None), TOO_LITTLE).end_recognized is None
    assert judged(BUG, HEALTHY).end_recognized is None


def test_shares_have_their_interval():
    """Of the cases that count; 0 to 1 where none does."""
    found = shares([Harm(repeats=True), Harm(repeats=False), Harm(repeats=False), Harm()])

    assert set(found) == set(TITLES)
    assert found["repeats"] == {"count": 1, "n": 3, "share": 0.3333, "low": 0.0615, "high": 0.7923}
    assert found["rank_first"] == {"count": 0, "n": 0, "share": 0.0, "low": 0.0, "high": 1.0}
    lines = table(found)
    assert any("advice repeats the failure" in line and "1 of 3" in line and "79.2%" in line for line in lines)
    assert any(line.startswith("rank at fault named first") and "%" not in line for line in lines)
