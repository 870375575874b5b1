"""What suspects share: the planted place is found, chance is not, and nothing is told of a single rank."""

from __future__ import annotations

import pytest

from kb.facts.evidence import Evidence
from kb.model import Job, Verdict
from kb.report import Diagnosis, Report, Suspect, Versions
from kb.timeline.shared import SharedTrait, shared_traits

NODES = {f"node-{at}": tuple(range(at * 8, at * 8 + 8)) for at in range(8)}
PLACES = {
    node: {"rack": f"r{at // 4}", "leaf": f"leaf-{at // 2}", "nvlink_domain": node} for at, node in enumerate(NODES)
}


def found(*suspects: Suspect, job: Job | None = None, verdict: Verdict = "fault", slow: tuple[int, ...] = ()):
    """The traits of a job of eight nodes in two racks, four leaf switches; None if there are none."""
    best = Diagnosis(1, "f", "r", 1, "t", "s", 0.9, "likely", "root_cause", suspects=suspects)
    told = Report("i", "f", verdict, "failed", "s", Versions("e", "r", "d", "c"), diagnoses=(best,))
    return shared_traits(Evidence(job=job or Job(nodes=NODES, topology=PLACES)), told, slow)


def ranks(*numbers: int) -> list[Suspect]:
    """Suspected ranks."""
    return [Suspect("rank", rank=number) for number in numbers]


def nodes(*names: str) -> list[Suspect]:
    """Suspected nodes."""
    return [Suspect("node", node=name) for name in names]


TRUTHS = [
    (ranks(3, 11, 19, 27), "rank", SharedTrait("local rank 3", 4, 4, 4, 60)),
    (ranks(40, 42, 44, 47), "rank", SharedTrait("node node-5, NVLink domain node-5", 4, 4, 4, 60)),
    (ranks(*range(16, 22), *range(24, 30)), "rank", SharedTrait("leaf switch leaf-1", 12, 12, 4, 52)),
    (nodes("node-4", "node-5", "node-6", "node-7"), "node", SharedTrait("rack r1", 4, 4, 0, 4)),
    (nodes("node-2", "node-3"), "node", SharedTrait("leaf switch leaf-1", 2, 2, 0, 6)),
]


@pytest.mark.parametrize(("suspects", "unit", "trait"), TRUTHS)
def test_the_place_that_the_suspects_share_comes_first(suspects, unit, trait):
    """Values that the same members have are one trait."""
    made = found(*suspects)

    assert (made.unit, made.failing, made.total) == (unit, len(suspects), 64 if unit == "rank" else 8)
    assert made.traits[0] == trait


@pytest.mark.parametrize(
    "suspects",
    [ranks(5), ranks(0, 9, 18, 27, 36, 45, 54, 63), ranks(*range(64)), nodes("node-1"), nodes("node-0", "node-7"), ranks(70, 71)],
)  # fmt: skip
def test_what_may_be_chance_is_not_told(suspects):
    """A single rank, one of each kind, all ranks, two nodes far apart, ranks that the job has not."""
    assert found(*suspects) is None


def test_a_run_that_did_not_fail_has_no_traits():
    """Nor one whose ranks have no known node."""
    assert found(*ranks(3, 11, 19, 27), verdict="no_fault") is None
    assert found(*ranks(3, 11, 19, 27), job=Job()) is None


def test_slow_ranks_are_compared_where_fewer_than_two_are_suspects():
    """And are called so; suspects take precedence."""
    slow = tuple(range(16, 32))

    made = found(slow=slow)
    assert (made.why, made.traits[0]) == ("slow", SharedTrait("leaf switch leaf-1", 16, 16, 0, 48))
    assert found(*ranks(3), slow=slow) == made
    assert found(*ranks(3, 11, 19, 27), slow=slow).why == "suspect"
    assert found(*ranks(0, 9, 18, 27, 36, 45, 54, 63), slow=slow) is None
    assert found(slow=slow, verdict="no_fault") is None


def test_members_without_a_place_do_not_count():
    """Only those whose rack is known are compared."""
    places = {node: own for node, own in PLACES.items() if node not in ("node-0", "node-7")}
    made = found(*nodes("node-4", "node-5", "node-6", "node-7"), job=Job(nodes=NODES, topology=places))

    assert made.traits[0] == SharedTrait("rack r1", 3, 3, 0, 3)
