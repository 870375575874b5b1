"""An unknown failure as a diagnosis: its place among the others, its texts, its steps."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from kb.diagnosis.engine import diagnose
from kb.diagnosis.unknown import EFFECTS, UNKNOWN
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Report
from kb.rulebase.rule import FaultClass, Pattern, Rulebook, SeriesTest
from tests.support.kb_samples import CLOSED, FAULTS, OOM, ref, rule, rulebook, scanned

LOCKED = rule("locked", "deadlock", Pattern("line", literal="the gate is locked"))
PROBE = rule("probe", "code_bug", Pattern("line", literal="census mismatch of shards"), title="The census differs")
BOOK = rulebook(OOM, CLOSED, LOCKED, PROBE)
LOST = "".join(f"[rank{rank}]: 2026-11-03 04:12:40 RuntimeError: Connection closed by peer\n" for rank in (0, 1))
EXITED = (
    "------------------------------------------------------------\n"
    "Root Cause (first observed failure):\n"
    "[0]:\n"
    "  time      : 2026-11-03_04:12:50\n"
    "  host      : node-a\n"
    "  rank      : 2 (local_rank: 2)\n"
    "  exitcode  : 33 (pid: 4711)\n"
    "  error_file: <N/A>\n"
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    "============================================================\n"
)
RAISED = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/home/user/lm/gates.py", line 13, in open_gate\n'
    "[rank2]:     raise GateStuck(name)\n"
    "[rank2]: gates.GateStuck: gate 'distill' did not open\n"
)


def report(text: str, book: Rulebook = BOOK) -> Report:
    """The report on one merged log of three ranks."""
    return diagnose(Evidence(Job(world_size=3), streams=(scanned(text, book, ref("logs/train.log")),)), book)


def test_it_leads_over_a_symptom_that_is_folded_under_it() -> None:
    """With its rank in the title and no rule."""
    found = report(RAISED + LOST)
    first = found.diagnoses[0]
    assert (found.verdict, first.fault, first.rule, first.title) == (
        "no_match",
        UNKNOWN,
        "",
        "Unknown failure on rank 2",
    )
    assert [item.fault for item in first.explains] == ["peer_failure"]
    assert first.band == "possible"


def test_the_lead_is_exact_only_if_every_symptom_has_a_time() -> None:
    """A symptom without one may have come before those with one."""
    error = "[rank2]: 2026-11-03 04:12:30 ERROR the gate of shard 7 is stuck\n"
    dated = report(error + LOST)
    assert dated.summary.startswith("Unknown failure on rank 2, 10 s before the first symptom: ")
    streams = (
        scanned(error + LOST, BOOK, ref("logs/train.log")),
        scanned("RuntimeError: Connection closed by peer\n", BOOK, ref("logs/rank-0.err", rank=0)),
    )
    undated = diagnose(Evidence(Job(world_size=3), streams=streams), BOOK)
    assert undated.summary.startswith("Unknown failure on rank 2, about 10 s before the first symptom: ")


def test_a_line_without_a_time_of_its_own_has_no_lead() -> None:
    """The time of an earlier line does not tell how long before the symptom it came."""
    found = report("[rank0]: 2026-11-03 04:12:30 step 40 loss 2.1\n" + RAISED + LOST)
    assert found.summary.startswith("Unknown failure on rank 2: ")


def test_a_known_cause_keeps_its_place() -> None:
    """What a rule knows says more than an event that none knows."""
    found = report(RAISED + "[rank1]: out of memory. Tried to allocate 2.00 GiB\n" + LOST)
    assert [item.fault for item in found.diagnoses] == ["cuda_oom"]


def test_an_exception_leads_over_a_figure_that_the_run_outlived() -> None:
    """A loss that left its level did not end the run; an exception about the loss itself may be its effect."""
    leap = rule(
        "leap", "loss_spike", Pattern("up", series=SeriesTest("loss", above=1000.0, points=2)), role="contributing"
    )
    book = rulebook(leap, CLOSED)
    steps = "".join(f"step {n} loss: {9.0 if n < 40 else 4000.0 + n}\n" for n in range(60))
    raised = RAISED.replace("[rank2]: ", "")
    assert [item.fault for item in report(steps, book).diagnoses] == ["loss_spike"]

    assert [item.fault for item in report(steps + raised, book).diagnoses] == [UNKNOWN, "loss_spike"]
    of_loss = raised.replace("gate 'distill' did not open", "the loss is too large")
    assert [item.fault for item in report(steps + of_loss, book).diagnoses] == ["loss_spike"]


def test_a_fault_that_may_be_its_effect_loses_confidence() -> None:
    """A lock that others report later can be what the lost rank left behind: both are shown."""
    assert "deadlock" in EFFECTS
    found = report(RAISED + "[rank1]: the gate is locked\n" + LOST)
    assert [item.fault for item in found.diagnoses] == ["deadlock", UNKNOWN]
    assert "an unexplained failure on rank 2 came before it" in found.diagnoses[0].reasons
    alone = report("[rank1]: the gate is locked\n" + LOST)
    assert found.diagnoses[0].confidence < alone.diagnoses[0].confidence


def test_the_steps_name_the_place_in_the_code() -> None:
    """Whom to ask about which function, and a command for it that only reads."""
    steps = report(RAISED + LOST).diagnoses[0].remediation
    asked = next(item for item in steps if item.text.startswith("Ask"))
    assert asked.text == (
        "Ask the author of open_gate (gates.py, line 13) what can make it raise GateStuck, and what changed there since the last good run."
    )
    assert asked.command == "git -C /home/user/lm log -n 5 --oneline -- gates.py"
    assert [item.grade for item in steps] == ["look", "look", "look", "safe"]
    assert all(item.command for item in steps)


def test_the_search_quotes_what_the_log_says() -> None:
    """A line is data: its content is not part of the command."""
    text = "[rank2]: CRITICAL census $(reboot); `reboot` was not reached\n"
    search = report(text + LOST).diagnoses[0].remediation[0].command
    assert search == "grep -n -B 40 -F -- 'CRITICAL census $(reboot); `reboot` was not reached' logs/train.log"


def test_a_line_that_refers_to_another_log_is_not_searched_for() -> None:
    """A launcher says whose log states the cause; nothing above its line does."""
    text = "CRITICAL the worker with number 3 went away. Please check its log.\n"
    first, second, *_ = report(text).diagnoses[0].remediation
    assert "refers to another log" in first.text
    assert first.command is None
    assert not second.text.startswith("Ask")


@pytest.mark.parametrize(
    ("ending", "asked"),
    [
        ("", "collect the exit status of rank 2 and the kernel log of its node."),
        ("04:12:50 rank 1 exit status 1\n", "collect the exit status of rank 2 and the kernel log of its node."),
        ("04:12:50 rank 2 exit status 12\n", "collect the kernel log of the node of rank 2."),
        (EXITED, "collect the kernel log of the node of rank 2."),
        (
            '{"src": "starter", "ev": "child_exit", "rank": 2, "code": 12}\n',
            "collect the kernel log of the node of rank 2.",
        ),
    ],
)
def test_only_what_the_logs_lack_is_to_be_collected(ending: str, asked: str) -> None:
    """The exit status of the rank is in the report of its launcher, or in a line of the script that started it."""
    steps = report(RAISED + LOST + ending).diagnoses[0].remediation
    assert [item.text for item in steps if item.action == "collect_evidence"] == [
        f"If the lines do not explain it, {asked}"
    ]


def test_a_rule_for_it_can_be_made_with_one_command() -> None:
    """The numbers of its line may differ, and the shell reads the regex as it stands."""
    text = "[rank2]: CRITICAL census of 81 (rooms) was not reached\n"
    last = report(text + LOST).diagnoses[0].remediation[-1]
    assert last.command is not None
    words = shlex.split(last.command)
    regex = words[words.index("--regex") + 1]
    assert re.search(regex, "CRITICAL census of 7 (rooms) was not reached")
    assert words[:3] == ["signalbox", "rules", "new"]
    assert last.grade == "safe"


@pytest.mark.parametrize(
    ("said", "later", "other"),
    [
        (
            "CRITICAL gate sheared at 0x1f, head below sill",
            "CRITICAL gate sheared at 0xA20, head below sill",
            "gate sheared at noon",
        ),
        (
            "CRITICAL seal a91c broken on 12 doors of the vault",
            "CRITICAL seal 77f0 broken on 3 doors of the vault",
            "seal broken on 3 doors",
        ),
    ],
)
def test_addresses_and_codes_may_differ(said: str, later: str, other: str) -> None:
    """They are new in each run."""
    command = report(f"[rank2]: {said}\n{LOST}").diagnoses[0].remediation[-1].command or ""
    words = shlex.split(command)
    regex = words[words.index("--regex") + 1]
    assert re.search(regex, said)
    assert re.search(regex, later)
    assert not re.search(regex, other)


def test_a_launcher_says_nothing_in_the_name_of_a_rank() -> None:
    """Its report of the exit is not what the rank said last."""
    exited = '{"src": "starter", "ev": "child_exit", "rank": 2, "code": -15}\n'
    first = report("[rank2]: CRITICAL census of 81 was not reached\n" + LOST + exited).diagnoses[0]
    assert [item.text for item in first.evidence] == ["[rank2]: CRITICAL census of 81 was not reached"]


def test_braces_of_a_line_are_no_holes() -> None:
    """Text of the log is put into the sentences once, and not filled again."""
    found = report("[rank2]: CRITICAL census {rank} of {node|x} lost its way today\n" + LOST)
    assert "census {rank} of {node|x} lost its way" in found.summary


def test_known_faults_with_the_same_words_are_named() -> None:
    """As a hint to compare with, below what to read and whom to ask."""
    steps = report("[rank2]: CRITICAL census mismatch for many shards\n" + LOST).diagnoses[0].remediation
    (near,) = [item for item in steps if item.text.startswith("Compare")]
    assert "code_bug (The census differs: census, mismatch, shards)" in near.text
    assert near.command == "signalbox rules list --fault code_bug"


def test_the_class_of_the_rule_base_is_used() -> None:
    """Its title and its advice come from faults.yaml where that has the class."""
    known = FaultClass(UNKNOWN, "none", "Unknown here", symptom=True, explains=("peer_failure",))
    book = replace(BOOK, faults={**FAULTS, UNKNOWN: known})
    found = diagnose(Evidence(Job(world_size=3), streams=(scanned(RAISED + LOST, book),)), book)
    assert found.diagnoses[0].fault == UNKNOWN
    assert found.decision.advice == "fix_first"


def test_a_failed_native_check_is_a_native_crash() -> None:
    """Alone, it has the class of native crashes; where symptoms follow, it stays the unknown failure that came before them."""
    check = "[rank2]: train: lut.cc:31: void put(int): Assertion `slot < size' failed.\n"
    book = replace(BOOK, faults={**FAULTS, "segfault": FaultClass("segfault", "software", "Native crash")})
    alone = report(check + "Aborted (core dumped)\n", book)
    assert [(item.fault, item.title, item.band) for item in alone.diagnoses] == [
        ("segfault", "Native check failed on rank 2", "possible")
    ]
    assert "slot < size" in alone.diagnoses[0].evidence[0].text
    assert report(check + LOST, book).diagnoses[0].fault == UNKNOWN


def test_an_uncaught_exception_of_cpp_is_a_native_crash() -> None:
    """No rule and no class of error explains it; a panic of Go says of itself what happened and stays unknown."""
    book = replace(BOOK, faults={**FAULTS, "segfault": FaultClass("segfault", "software", "Native crash")})
    thrown = "[rank2]: terminate called after throwing an instance of 'lut::Full'\n[rank2]:   what():  slot 9\n"
    for text in (thrown, "[rank2]: libc++abi: terminating due to uncaught exception of type lut::Full: slot 9\n"):
        (found,) = report(text, book).diagnoses
        assert (found.fault, found.title) == ("segfault", "Uncaught C++ exception on rank 2")
    aborted = report(thrown + "Aborted (core dumped)\n", book).diagnoses[0]  # the abort is the same event
    assert (aborted.fault, aborted.title) == ("segfault", "Uncaught C++ exception on rank 2")
    panic = "[rank2]: panic: slot 9\n[rank2]: \n[rank2]: goroutine 1 [running]:\n[rank2]: main.put()\n"
    assert report(panic, book).diagnoses[0].fault == UNKNOWN


@pytest.mark.parametrize(("lost", "verdict"), [(LOST, "fault"), ("", "no_match")])
def test_a_traceback_that_the_end_of_a_log_cuts_off_leads_only_where_nobody_shows_a_symptom(
    lost: str, verdict: str
) -> None:
    """What it raised may be that symptom."""
    cut = "".join(RAISED.splitlines(keepends=True)[:2]).replace("[rank2]: ", "")
    found = report(lost + cut)
    assert (found.verdict, found.diagnoses[0].fault) == (verdict, "peer_failure" if lost else UNKNOWN)
