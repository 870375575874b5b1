"""For how long a run took no step before it was ended from outside (kb.facts.standstill)."""

import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.standstill import in_words, stood_still
from kb.model import Job, ProgressPoint, StreamRef
from kb.scanning.summary import Series, StreamSummary

START = 1_790_000_000.0
HOUR = 3600.0


def a_log(steps=100, pace=10.0, *, total=5000, width=400, after=100, heard=0.0, begun=START + 60):
    """A log with a step line of `width` bytes every `pace` seconds; `after`: the bytes behind the last, `heard`: when these came."""
    points = tuple(ProgressPoint(width * at, at, total, begun + pace * at, 2.0) for at in range(1, steps + 1))
    return StreamSummary(
        StreamRef("logs/rank-0.log"),
        size=width * steps + after,
        series=Series(points, steps, 0, points[0], points[-1]),
        first_time=begun,
        last_time=begun + pace * steps + heard,
    )


def seconds(log, end=START + 8 * HOUR, start=START):
    """What is found for a job of this log."""
    return stood_still(Facts(Evidence(Job(start=start, end=end), streams=(log,))))


def test_a_run_that_took_no_step_for_hours_stood_still():
    """From its last step to the end that the scheduler reports."""
    assert seconds(a_log()) == 8 * HOUR - 60 - 1000


@pytest.mark.parametrize(
    ("log", "end"),
    [
        (a_log(), START + 1060 + 0.4 * HOUR),  # half an hour may be an evaluation
        (a_log(pace=900.0), START + 60 + 90_000 + 4 * HOUR),  # for this one, 16 steps are no long time
        (a_log(width=20), START + 8 * HOUR),  # so few bytes may have been lost with a buffer
        (a_log(after=90_000), START + 8 * HOUR),  # it wrote much besides steps
        (a_log(heard=3 * HOUR), START + 8 * HOUR),  # it wrote hours later
        (a_log(total=100), START + 8 * HOUR),  # that was its last step
        (a_log(steps=5), START + 8 * HOUR),
        (a_log(begun=START - 5 * HOUR), START + 8 * HOUR),  # clocks of two time zones
        (a_log(begun=START + 5 * HOUR), START + 14 * HOUR),
        (a_log(), None),
    ],
)
def test_what_proves_no_standstill(log, end):
    """Each of these may be a run that worked until its end."""
    assert seconds(log, end) == 0.0


def test_a_limit_that_ended_a_run_that_stood_still_is_no_reason_to_requeue(known, tmp_path):
    """The limit is named as before, with the time without a step, and what to find out first."""

    def report(end):
        folder = tmp_path / end.replace(":", "")
        (folder / "logs").mkdir(parents=True)
        (folder / "job.yaml").write_text(
            f"id: '7'\nstate: TIMEOUT\nstart: '2026-05-28T08:00:00Z'\nend: '2026-05-28T{end}Z'\n"
            f"collected_at: '2026-05-28T{end}Z'\n"
        )
        lines = (
            f"2026-05-28 08:{at // 6:02d}:{at % 6 * 10:02d} INFO step {at} of 9000 | loss: {2 + 1 / at:.4f} | lr: 2.0e-4 {'.' * 300}\n"
            for at in range(1, 120)
        )
        (folder / "logs" / "rank-0.log").write_text("".join(lines))
        return diagnose_bundle(known, folder).report

    stood = report("15:00:00")
    assert stood.diagnoses[0].fault == "time_limit"
    assert "it had taken no step for 6 h" in stood.diagnoses[0].summary
    assert (stood.decision.advice, stood.decision.find_cause) == ("fix_first", True)
    assert "took no step for 6 h" in stood.decision.why
    worked = report("08:20:00")
    assert (worked.diagnoses[0].fault, "no step" in worked.diagnoses[0].summary) == ("time_limit", False)


def test_times_in_words():
    """Minutes up to two hours, hours up to two days."""
    assert [in_words(item) for item in (20, 2700, 7200, 4 * HOUR, 72 * HOUR)] == [
        "20 s",
        "45 min",
        "2 h",
        "4 h",
        "3 days",
    ]
