"""A run that somebody stopped after it had failed or stood still: the stop is no cause."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths
from bot.rulebase.loader import Knowledge
from kb.report import Report

NOTICE = "W0311 08:{at} 77 preemption_notifier.cc:90] SIGTERM caught at 2026-03-11T08:{at}+00:00"


def clock(seconds: float) -> str:
    """Minutes and seconds after eight."""
    return f"{int(seconds // 60):02d}:{seconds % 60:09.6f}"


def steps(rank: int, until: int, pace: float = 1.0) -> Iterable[str]:
    """Lines in which a rank counts laps, in glog's form, which has no year."""
    for lap in range(10, until + 1, 10):
        at = clock(30 + lap / 10 * pace + rank / 100)
        yield f"I0311 08:{at} 4242 orbit.py:31] lap {lap}: loss {1 / lap:.4f}, thrust {lap % 7}"


def report(
    known: Knowledge, folder: Path, *, own: str = "", stopped: float = 100.0, ranks: int = 4, silent: int | None = None
) -> Report:
    """The report on ranks that count to lap 240, when rank 2 prints lines of its own; all are stopped later."""
    (folder / "logs").mkdir()
    (folder / "job.yaml").write_text("id: job-1\nname: orbit\nstate: CANCELLED\n")
    for rank in range(ranks):
        lines = [*steps(rank, 240)]
        if own and rank == 2:
            lines.append(own)
        if rank != silent:
            lines.append(NOTICE.format(at=clock(stopped + rank / 100)))
        (folder / "logs" / f"rank-{rank}.log").write_text("\n".join([*lines, ""]))
    return diagnose_bundle(known, folder, workers=1).report


def test_the_last_words_before_a_silence_lead(known: Knowledge, tmp_path: Path) -> None:
    """With the rank that alone has such words, and the time for which the run stood still."""
    own = f"W0311 08:{clock(54.9)} 4242 orbit.py:88] docking port 3 answers nothing, holding position"
    found = report(known, tmp_path, own=own)
    first, second = found.diagnoses[:2]
    assert (found.verdict, first.fault, second.fault) == ("no_match", "unknown", "cancelled")
    assert first.title == "Run stood still"
    assert "nothing printed for 45 s before it was stopped; last words on rank 2: docking" in first.summary
    assert "docking port 3" in first.evidence[0].text
    assert [suspect.rank for suspect in first.suspects] == [2]


def test_a_silence_without_words_of_its_own_names_no_rank(known: Knowledge, tmp_path: Path) -> None:
    """The last line of all is quoted, and nobody is blamed."""
    first = report(known, tmp_path).diagnoses[0]
    assert (first.fault, first.title, first.suspects) == ("unknown", "Run stood still", ())


@pytest.mark.parametrize("stopped", [55.5, 62.0])
def test_a_run_that_was_at_work_was_just_cancelled(known: Knowledge, tmp_path: Path, stopped: float) -> None:
    """A few seconds without a line are no standstill."""
    own = f"W0311 08:{clock(54.9)} 4242 orbit.py:88] docking port 3 answers nothing, holding position"
    found = report(known, tmp_path, own=own, stopped=stopped)
    assert (found.verdict, found.diagnoses[0].fault) == ("fault", "cancelled")


def test_the_clocks_of_two_time_zones_are_no_silence(known: Knowledge, tmp_path: Path) -> None:
    """A stop two hours later to the second was stamped by another clock."""
    found = report(known, tmp_path, stopped=54.5 + 1800.0)
    assert found.diagnoses[0].fault == "cancelled"


def test_an_exception_well_before_the_stop_leads(known: Knowledge, tmp_path: Path) -> None:
    """Somebody stopped what had lost a rank."""
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/srv/orbit/orbit.py", line 70, in main\n'
        "    dock(port)\n"
        '  File "/srv/orbit/ports.py", line 12, in dock\n'
        "    raise PortSealed(port)\n"
        "ports.PortSealed: port 3 was sealed by its keeper"
    )
    found = report(known, tmp_path, own=raised, silent=2)
    first = found.diagnoses[0]
    assert (found.verdict, first.fault, first.title) == ("no_match", "unknown", "Unknown failure on rank 2")
    assert "PortSealed" in first.evidence[0].text
    assert found.diagnoses[1].fault == "cancelled"


@pytest.mark.parametrize(
    ("at", "fault"), [("08:01:20", "unknown"), ("08:00:56", "cancelled"), ("10:00:56", "cancelled")]
)
def test_times_of_the_day_show_a_silence_too(known: Knowledge, tmp_path: Path, at: str, fault: str) -> None:
    """In a log without dates, before Slurm's line with one; two hours to the second are the difference of two clocks."""
    lines = [
        f"{rank}: 08:00:{30 + lap:02d} orbit> lap {10 * lap} loss {1 / lap:.3f}"
        for lap in range(1, 25)
        for rank in range(3)
    ]
    lines.insert(-1, "2: 08:00:54 orbit> docking port 3 answers nothing, holding position")
    lines.append(f"slurmstepd: error: *** JOB 71 ON cn-1 CANCELLED AT 2026-03-11T{at} ***")
    (tmp_path / "slurm-71.out").write_text("\n".join([*lines, ""]))
    found = diagnose_paths(known, [tmp_path / "slurm-71.out"], workers=1).report
    assert found.diagnoses[0].fault == fault
