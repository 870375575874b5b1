"""Which lines are parts of a block, and which report only what another's failure did (kb.anomalies.core.severity_words)."""

from __future__ import annotations

import pytest

from kb.anomalies.core.severity_words import (
    by_signal,
    harm,
    harm_of_words,
    is_asked,
    is_body,
    is_consequence,
    is_mild,
    is_ordered,
    is_raised,
    skeleton,
)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("Exception in thread Thread-7 (feed):", True),
        ("[default3]:Exception in thread reader:", True),
        ("Exception in thread reader: the queue is closed", False),  # nothing follows it
        ("ValueError: row 7 has 3 columns", False),
        ("mill | 10:00:01:     at turn (/home/user/mill.js:55:50)", True),
        ("    throw new MillJam(wheel)", True),
        ('raise mill.MillJam(f"wheel {wheel}")', True),
        ("[rank3]:     raise MillJam(wheel)", True),
        ("raise the limit (ulimit -n) and start again", False),
        ("meet at noon (hall 3:1:2)", False),
        ("Node.js v20.1.0", True),
    ],
)
def test_the_header_of_a_thread_s_traceback_is_no_event(line: str, *, part: bool) -> None:
    """Its last line is."""
    assert is_body(line) is part


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        ("torch.multiprocessing.spawn.ProcessRaisedException: ", True),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGSEGV", False),
        ("make: *** Waiting for unfinished jobs....", True),
        ("make: *** [Makefile:4: rank-2] Error 17", False),
        ("E0301 preemption_sync_manager.cc:159] Failed to cancel preemption barrier: FAILED_PRECONDITION", True),
        ("coordination_service_agent.cc:289] Polled an error from coordination service", True),
        ("scripts/train.py FAILED", True),
        ("part 19: file write failed", False),
    ],
)
def test_what_a_parent_or_a_service_says_of_a_failure_is_its_consequence(line: str, *, follows: bool) -> None:
    """Unless it is the only line that tells how a process ended."""
    assert is_consequence(line) is follows


def test_an_exception_behind_a_launchers_prefix_is_one() -> None:
    """As torchrun and others put before each line of a process."""
    assert is_raised("[default2]:ValueError: part 30 is too wide")
    assert not is_raised("[default2]:a ValueError: was met")
    assert is_raised("thread 'worker-3' panicked at src/mill.rs:18:9:")


@pytest.mark.parametrize(
    "text",
    [
        ":UNKNOWN:Error received from peer {grpc_message: closed}",
        "-- Process 3 terminated with the following error:",
        "aborted",
        "shutting down ...",
    ],
)
def test_words_on_a_lost_peer_and_on_a_child_are_consequences(text: str) -> None:
    """Another said why."""
    assert is_consequence(text)


def test_what_was_aborted_or_shut_down_is_no_bare_end() -> None:
    """Then the line says more than that its speaker ended."""
    assert not is_consequence("checkpoint of shard 4 aborted: digest differs")
    assert not is_consequence("shutting down cache 3, which is full")


@pytest.mark.parametrize(
    ("line", "silent"),
    [
        ("mill@3.service: Main process exited, code=dumped, status=25/XFSZ", True),
        ("mill@3.service: Main process exited, code=exited, status=4/NOPERMISSION", False),
        ("failed (exitcode: -14) local_rank: 1 (pid: 41)", True),
        ("failed (exitcode: -15) local_rank: 1 (pid: 41)", False),  # launchers send it
        ("  exitcode  : -6 (pid: 41)", False),  # who aborts says why
    ],
)
def test_a_signal_that_a_process_does_not_survive_leaves_it_no_word(line: str, *, silent: bool) -> None:
    """A timer or a limit of the system does so, too."""
    assert by_signal(line) is silent


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("epoch 0 done: reconstruction error 3.0980", False),
        ("validation error: 0.1250", False),
        ("store error: 28 No space left", True),
        ("error 17 from the store", True),
    ],
)
def test_a_figure_that_is_called_an_error_is_no_trouble(line: str, *, trouble: bool) -> None:
    """It is what a program measures of its model."""
    assert (harm(line, None) >= 0.35) is trouble


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  Group  Nodes  Ranks  Status  Errors ", ""),
        ("Group 3 Status Errors", "bad"),
        ("Node Failed Health Check", "bad"),
    ],
)
def test_the_head_of_a_table_reports_nothing(line: str, words: str) -> None:
    """Its words are the names of columns."""
    assert harm_of_words(line) == words


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("6:     @     0x55aa10c0de42  millpond::Turn()", True),
        ("[1,6]<stderr>:[mill-03:811] [ 4] /usr/lib/libwheel.so(+0x1f0)[0x7f00c0de1234]", True),
        ("*** Check failure stack trace: ***", True),
        ("Thread 0x00007f33aa (most recent call first):", True),
        ("Extension modules: wheel._axle, wheel._gear (total: 2)", True),
        ("usage: mill.py [-h] [--wheels WHEELS]", True),
        ("[--stones STONES] [--sluice SLUICE]", True),
        ("[6]: Traceback (most recent call last): (RANK 6)", True),
        ("mill.py: error: unrecognized arguments: --wheel", False),
        ("mail to miller @ mill: sluice is shut", False),
        ("[6] sluice is shut", False),
    ],
)
def test_dumps_and_usage_are_parts_of_a_block(line: str, *, part: bool) -> None:
    """What they belong to says what happened."""
    assert is_body(line) is part


@pytest.mark.parametrize(
    ("line", "ordered"),
    [
        ("slurmstepd-mill: error: *** STEP 7.0 ON mill CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE ***", True),
        ("slurmstepd: error: Detected 2 oom_kill events in StepId=7.0.", True),
        ("slurmstepd: error: Exceeded step memory limit at some point.", True),
        ('{"unit": "mill", "oom_kill": 1}', True),
        ('{"unit": "mill", "oom_kill": 0}', False),
        ("slurmstepd: error: *** STEP 7.0 ON mill CANCELLED AT 2026-03-01T10:00:00 DUE TO TASK FAILURE ***", False),
        ("slurmstepd: error: *** STEP 7.0 ON mill CANCELLED AT 2026-03-01T10:00:00 ***", False),
    ],
)
def test_why_a_scheduler_ended_the_job_is_a_cause(line: str, *, ordered: bool) -> None:
    """That it ended it is a consequence."""
    assert is_ordered(line) is ordered
    assert not (ordered and is_consequence(line))


def test_somebody_ended_the_job_where_no_reason_is_given() -> None:
    """By the scheduler's command, or at the keyboard."""
    assert is_asked("slurmstepd: error: *** STEP 7.0 ON mill CANCELLED AT 2026-03-01T10:00:00 ***")
    assert is_asked("[rank3]: KeyboardInterrupt")
    assert not is_asked("member 3 cancelled its order")


def test_an_uncaught_exception_of_the_programs_own_library_is_no_consequence() -> None:
    """Those of communication libraries are: a peer was lost."""
    assert not is_consequence("terminate called after throwing an instance of 'millpond::dry_sluice'")
    assert is_consequence("terminate called after throwing an instance of 'c10::DistBackendError'")


def test_words_of_any_script_are_words() -> None:
    """Else all lines in such a language would be alike."""
    assert skeleton("шлюз <*> закрыт") == ("шлюз", "закрыт")
    assert skeleton("水門<*>が閉じた") != skeleton("水車<*>が止まった")


@pytest.mark.parametrize(
    ("line", "mild"),
    [
        ("spool upload failed (try 2 of 4)", True),
        ("spool upload failed (try 4 of 4)", False),
        ("uploader crashed and was restarted; nothing lost", True),
        ("no room for the index, going without", True),
        ("the feed is late, using the cached one", True),
        ("probe 7 is known to be broken", True),
        ("depot answered on the third call", True),
        ("one shelf check failed and was repeated", True),
        ("the shelf lost 3 books", False),
    ],
)
def test_a_line_that_tells_a_way_out_is_mild(line: str, *, mild: bool) -> None:
    """The speaker went on without it, or with something else; the last of several tries is no way out."""
    assert is_mild(line) is mild
