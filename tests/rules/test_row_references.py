"""Rows that state what a vendor's number means name their source, and take no node away for what the vendor ignores."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.rulebase.rule import Rule
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
CATALOGUES = (
    "gaudi-synapse-status",
    "hccl-error-code",
    "kubernetes-pod-out-of-resource",
    "neuron-runtime-status",
    "nvidia-sxid",
    "nvidia-xid",
    "rdma-completion-error",
    "xid-after-xid",
)
# numbers for which NVIDIA's catalogue of 2025-10 says IGNORE, and what its guide and NVSentinel say so of
IGNORED = {
    "nvidia-xid": (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161),
    "nvidia-sxid": (10001, 10002, 11012, 11021, 12021, 15008, 19049, 20001, 22013, 24001, 28002),
}
RESTART = (8, 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136), 11, 25, 32, 80, 94)
NODE = ("exclude_node_job", "exclude_node_cluster", "drain_and_reboot")


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def rule_of(name: str) -> Rule:
    """A rule of the base."""
    return next(rule for rule in KNOWN.rulebook.rules if rule.id == name)


@pytest.mark.parametrize("name", CATALOGUES)
def test_each_row_has_a_source_and_a_day(name: str) -> None:
    """A reader can look up what a row claims, and see how old the comparison is."""
    rule = rule_of(name)
    assert rule.table is not None
    days = {item.id: item.checked for item in rule.references}
    assert {key: row.reference for key, row in rule.table.rows.items() if not days.get(row.reference)} == {}


@pytest.mark.parametrize("name", IGNORED)
def test_no_node_is_left_out_for_what_the_vendor_ignores(name: str) -> None:
    """Replacing a node for an error that was corrected is the most expensive of wrong answers."""
    rule = rule_of(name)
    assert rule.table is not None
    for number in IGNORED[name]:
        row = rule.table.rows[str(number)]
        steps = row.remediation or (rule.remediation if row.advice else ())
        assert row.ignore or row.role in ("context", "symptom", "contributing") or row.advice == "fix_first", number
        assert not [step.action for step in steps if step.action in NODE], number


def test_the_job_is_restarted_where_the_vendor_says_so() -> None:
    """RESTART_APP of the catalogue is no reason to leave out the node."""
    table = rule_of("nvidia-xid").table
    assert table is not None
    assert {number: table.rows[str(number)].advice for number in RESTART} == dict.fromkeys(RESTART, "requeue")


def test_a_copy_engine_exception_asks_for_a_restart(engine: Matcher) -> None:
    """The whole way, from the kernel line to the advice."""
    text = "[83410.220410] NVRM: Xid (PCI:0000:5d:00): 39, pid=20511, name=python3, Ch 00000010\n"
    report = diagnose(evidence_of(KNOWN, engine, {"node-a.dmesg.log": text.encode()}), KNOWN.rulebook)
    assert report.diagnoses[0].title == "Xid 39: copy engine exception"
    assert report.decision.advice == "requeue"
    assert not report.decision.exclude


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("EI0002: The Notify register has not received the Notify record from remote rank [6].", "rank 6 of its group"),
        ("EI0002: Waiting peer rank: 6; task information: notify wait", "rank 6 of its group"),
        ("EI0002: The wait execution of the Notify register times out.", "HCCL error EI0002."),
    ],
)
def test_the_rank_that_hccl_waits_for_is_told_but_not_accused(engine: Matcher, line: str, said: str) -> None:
    """HCCL counts it within the communicator, so it can be another process than the rank of that number."""
    report = diagnose(evidence_of(KNOWN, engine, {"rank-2.log": f"{line}\n".encode()}), KNOWN.rulebook)
    found = report.diagnoses[0]
    assert said in found.summary
    assert 6 not in [suspect.rank for suspect in found.suspects]
