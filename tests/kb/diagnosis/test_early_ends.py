"""Which early ends of processes count, by the order of their report and the symptoms."""

from __future__ import annotations

import pytest

from kb.diagnosis.bad_events import BadEvents
from kb.diagnosis.early_ends import early_ends, unnamed_end
from kb.diagnosis.findings import find
from kb.diagnosis.first_unexplained import first_unexplained
from kb.diagnosis.symptoms import Symptoms
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Place, Places
from tests.support.kb_samples import BOOK, ref, scanned

LAUNCHER = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:{second:02d}
  host      : node-a
  rank      : 2 (local_rank: 2)
  exitcode  : {code} (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
LOST = "2026-03-01 12:00:10 Connection closed by peer 10.0.0.3\n"


@pytest.mark.parametrize(("second", "code", "counts"), [(11, 1, True), (30, 1, False), (30, 33, True)])
def test_a_bare_exit_after_a_symptom_is_not_the_first(second: int, code: int, counts: bool) -> None:
    """Status 1 without a word, long after another rank's trouble, is an effect; a status of its own is not."""
    streams = (
        scanned("2026-03-01 12:00:00 data: opened part-3.bin\n", BOOK, ref("logs/rank-2.log", 2)),
        scanned(LOST, BOOK, ref("logs/rank-0.log", 0)),
        scanned(LAUNCHER.format(second=second, code=code), BOOK),
    )
    known = Facts(Evidence(streams=streams))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    ends = list(early_ends(BadEvents(known, places), symptoms, [2]))
    assert bool(ends) is counts


@pytest.mark.parametrize(
    ("last", "counts"), [("yard.cc:118 row cursor did not hold: 2056\n", True), ("data: opened part-4.bin\n", False)]
)
def test_the_last_words_of_native_code_count_where_a_signal_ended_it(last: str, *, counts: bool) -> None:
    """They have no level and no word of trouble, but no other line is like them."""
    own = "2026-03-01 12:00:00 data: opened part-3.bin\n"
    streams = (
        scanned(own + last, BOOK, ref("logs/rank-2.log", 2)),
        scanned(LOST, BOOK, ref("logs/rank-0.log", 0)),
        scanned(LAUNCHER.format(second=11, code=-6), BOOK),
    )
    known = Facts(Evidence(streams=streams))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    ends = list(early_ends(BadEvents(known, places), symptoms, [2]))
    assert [end.event.line for end in ends] == ([last.strip()] if counts else [])


def test_what_other_ranks_print_too_is_not_quoted() -> None:
    """Only the rank's own words are, not a line of its progress that a peer's log has as well."""
    own = "yard: opened gate 1\nyard: humidity of 0.3 here\nyard.cc:118 row cursor did not hold: 2056\n"
    streams = (
        scanned(own, BOOK, ref("logs/rank-2.log", 2)),
        scanned("yard: opened gate 7\n" + LOST, BOOK, ref("logs/rank-0.log", 0)),
        scanned(LAUNCHER.format(second=11, code=-6), BOOK),
    )
    known = Facts(Evidence(streams=streams))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    (end,) = early_ends(BadEvents(known, places), symptoms, [2])
    assert [line for _, line in end.lines] == [
        "yard.cc:118 row cursor did not hold: 2056",
        "yard: humidity of 0.3 here",
    ]


def test_a_line_that_names_no_rank_and_reports_no_trouble_is_not_quoted() -> None:
    """In a shared log, the banner of a start is not that of the rank whose last words follow it."""
    log = "using world size: 3 of 3\nspool drained before marker 96, closing shop\n"
    lost = "".join(f"[rank{rank}]: RuntimeError: Connection closed by peer 10.0.0.3\n" for rank in (0, 1))
    known = Facts(Evidence(streams=(scanned(log + lost, BOOK),)))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    (end,) = early_ends(BadEvents(known, places), symptoms, [2])
    assert [line for _, line in end.lines] == ["spool drained before marker 96, closing shop"]


def test_a_bare_exit_counts_where_nothing_else_is_known() -> None:
    """The launcher's table is then all that names the rank."""
    known = Facts(Evidence(streams=(scanned(LAUNCHER.format(second=11, code=1), BOOK),)))
    places = Places(known)
    end = first_unexplained(find(BOOK, known, History()).findings, known, places)
    assert end is not None
    assert (end.event.place, end.event.name) == (Place(2, "node-a"), "1")
    assert end.named == "the launcher reports it as the first to fail"


STEPS = "".join(f"2026-03-01 12:00:{n:02} step: {n} / 60 loss: 2.{n}\n" for n in range(1, 8))
KILLING = "[2026-03-01 12:00:09,100] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 4711\n"
RETURNED = (
    "[2026-03-01 12:00:10,200] [ERROR] [launch.py:259:sigkill_handler] ['/usr/bin/python', '-u', 'train.py',"
    " '--local_rank=3'] exits with return code = 13\n"
)


@pytest.mark.parametrize(
    ("said", "rank"),
    [
        ("*** [3] weights of layer 1 sum to 0.83 instead of 1 -- will not train on this ***\n", -1),
        ("[rank2]: lease on shard group 4 is gone, giving up\n", 2),
        ("[INFO] [trainer] opened part-3.bin\n", None),
        ("", None),
    ],
)
def test_the_last_line_before_a_launcher_reports_an_exit_without_a_rank(said: str, rank: int | None) -> None:
    """The command that DeepSpeed prints is that of its last process, so only the process itself can say which it was."""
    known = Facts(Evidence(streams=(scanned(STEPS + said + KILLING + RETURNED, BOOK),)))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    end = unnamed_end(BadEvents(known, places), symptoms)
    assert (end.rank if end else None) == rank
    if end is not None:
        assert (end.status, end.event.line) == ("13", said.strip())


def test_a_line_with_a_time_of_its_own_was_printed_then() -> None:
    """Not when a launcher noticed the end of its process."""
    said = "2026-03-01 12:00:04 ERROR yard: row cursor did not hold\n"
    streams = (
        scanned(f"2026-03-01 12:00:00 data: opened part-3.bin\n{said}", BOOK, ref("logs/rank-2.log", 2)),
        scanned(LOST, BOOK, ref("logs/rank-0.log", 0)),
        scanned(LAUNCHER.format(second=30, code=33), BOOK),
    )
    known = Facts(Evidence(streams=streams))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    (end,) = early_ends(BadEvents(known, places), symptoms, [2])
    assert (end.event.time, end.event.timed) == (1772366404.0, True)


@pytest.mark.parametrize(
    ("report", "last", "told"),
    [
        (
            "srun: error: n4: task 2: Aborted\nsrun: error: n4: task 0: Exited with exit code 1\n",
            "маяк молчит три такта",
            True,
        ),
        (
            "mpirun noticed that process rank 2 with PID 0 on node n4 exited on signal 6 (Aborted).\n",
            "step 20/50 loss=4.47",
            False,
        ),
    ],
)
def test_who_crashed_by_the_launchers_word_is_told_before_who_lost_a_peer(
    report: str, last: str, *, told: bool
) -> None:
    """With its own last words where it has any, in any script; else with the report alone."""
    own = "".join(f"2: {line}\n" for line in ("step 10/50 loss=4.51", "step 15/50 loss=4.50", last))
    lost = "".join(f"{rank}: Connection closed by peer 10.0.0.3\n" for rank in (0, 1))
    known = Facts(Evidence(streams=(scanned(own + lost + report, BOOK),)))
    places = Places(known)
    symptoms = Symptoms(find(BOOK, known, History()).findings, known, places)
    (end,) = early_ends(BadEvents(known, places), symptoms, [2])
    assert end.status == "SIGABRT"
    assert end.event.line == (f"2: {last}" if told else report.split("\n", maxsplit=1)[0])
