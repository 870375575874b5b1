"""What a fault is said to explain: each symptom by what its lines are, with the ranks that wrote them."""

from __future__ import annotations

from dataclasses import replace

from kb.diagnosis.explained import explained
from kb.diagnosis.findings import find
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.report import Explained
from kb.rulebase.rule import Any, Name, Pattern, Rule, StructureTest
from tests.support.kb_samples import facts, hits, place, rule, rulebook, scanned, stream

CLOSED = rule(
    "closed",
    "peer_failure",
    Pattern("line", literal="closed by peer"),
    Pattern("wrapped", literal="RuntimeError: closed by peer"),
    role="symptom",
    title="Connection closed by a peer",
    when=Any((Name("line"), Name("wrapped"))),
)
STOPPED = rule(
    "stopped",
    "peer_failure",
    Pattern("sent", regex=r"Sending process \d+ closing signal"),
    Pattern("block", structure=StructureTest("elastic_failure", {"signal": "SIGTERM"})),
    role="symptom",
    title="Processes stopped by the launcher",
    when=Any((Name("sent"), Name("block"))),
)


def told(known: Facts, *rules: Rule) -> tuple[Explained, ...]:
    """What these rules' findings come to, under a fault of other lines."""
    found = find(rulebook(*rules), known, History()).findings
    return explained(replace(found[0], signals=()), found, known)


def test_a_symptom_is_named_by_its_lines() -> None:
    """Two rules of one class stay apart: a process that the launcher stopped has not lost its peer."""
    known = facts(stream(found={"closed#line": [place(100, rank=1)], "stopped#sent": [place(200), place(300)]}))
    assert told(known, CLOSED, STOPPED) == (
        Explained("peer_failure", 1, "1", "Connection closed by a peer"),
        Explained("peer_failure", 2, "", "Processes stopped by the launcher"),
    )


def test_a_line_counts_once_or_not_at_all() -> None:
    """Two patterns that match one line find one line; where not all places are kept, no number is given."""
    both = {"closed#line": [place(100, rank=1)], "closed#wrapped": [place(100, rank=1)]}
    assert told(facts(stream(found=both)), CLOSED)[0].count == 1
    many = stream(found={"closed#line": hits(*(place(100 * n, rank=n) for n in range(1, 4)), count=40)})
    (only,) = told(facts(many), CLOSED)
    assert (only.count, only.ranks) == (None, "1-3")


def test_a_launchers_block_about_a_rank_is_not_that_ranks_line() -> None:
    """The ranks are those that wrote the lines: of a launcher's report there are none."""
    block = (
        "[0]:\n  time      : 2026-03-01_12:00:00\n  host      : node-a\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : -15 (pid: 4711)\n  error_file: <N/A>\n  traceback : Signal 15 (SIGTERM) received by PID 4711\n"
    )
    text = (
        "============================================================\ntrain.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n" + block
    )
    known = Facts(Evidence(streams=(scanned(text, rulebook(STOPPED)),)))
    (only,) = told(known, STOPPED)
    assert only.ranks == ""


def test_a_schedulers_line_behind_a_ranks_label_is_not_that_ranks() -> None:
    """`srun -l` puts the number of a task before what slurmstepd says."""
    line = "0: slurmstepd: error: *** STEP 71.0 ON node-a CANCELLED ***; closed by peer"
    (only,) = told(facts(stream(found={"closed#line": [place(100, line, rank=0)]})), CLOSED)
    assert only.ranks == ""


def test_a_fault_does_not_explain_its_own_line() -> None:
    """Of one line that says that a process was killed, and why, two rules make two findings, but it is one event."""
    known = facts(stream(found={"closed#line": [place(100, rank=1)], "stopped#sent": [place(200)]}))
    found = find(rulebook(CLOSED, STOPPED), known, History()).findings

    assert [item.title for item in explained(found[0], found, known)] == ["Processes stopped by the launcher"]
