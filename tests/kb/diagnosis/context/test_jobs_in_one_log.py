"""Logs to which a scheduler appends the output of each job of one name, with a report behind each."""

from __future__ import annotations

import pytest

from bot.rulebase.loader import Knowledge, knowledge
from kb.scanning.matcher import Matcher
from tests.kb.diagnosis.context.test_texts_of_a_run import report

REPORT = (
    "\n------------------------------------------------------------\nSender: LSF System <lsf@queue.example>\n"
    "Subject: Job {job}: <fit> in cluster <hall> {word}\n\nStarted at Tue May 12 09:2{job}:34 2026\n"
    "Terminated at Tue May 12 09:2{job}:51 2026\nResults reported at Tue May 12 09:2{job}:51 2026\n\n"
    "Your job looked like:\n\n------------------------------------------------------------\npython fit.py\n"
    "------------------------------------------------------------\n\n{end}\n\nResource usage summary:\n\n"
    "    CPU time :                                   32.76 sec.\n\nThe output (if any) is above this job summary.\n\n"
)
FAILED = (
    'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    import shelf\n'
    "ModuleNotFoundError: No module named 'shelf'\n"
    + REPORT.format(job=1, word="Exited", end="Exited with exit code 1.")
)
WARNED = "2026-05-12 09:22:36: W runtime/utils.cc:38] no engine for this device\n"
OWNER = "TERM_OWNER: job killed by owner.\nExited with exit code 143."


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


def test_the_last_job_of_a_log_counts(base: tuple[Knowledge, Matcher]) -> None:
    """An earlier job of the same name failed; the last one completed, or was cancelled at the time that its own report states."""
    assert report(base, fit=FAILED).diagnoses[0].fault == "dependency"
    done = report(base, fit=FAILED + WARNED + REPORT.format(job=2, word="Done", end="Successfully completed."))
    assert (done.verdict, done.diagnoses) == ("no_fault", ())
    stopped = report(base, fit=FAILED + WARNED + REPORT.format(job=2, word="Exited", end=OWNER))
    assert stopped.diagnoses[0].fault == "cancelled"
    assert stopped.diagnoses[0].first_seen is not None
    assert stopped.diagnoses[0].first_seen % 3600 == 22 * 60 + 51


def test_a_report_at_the_end_of_a_log_starts_no_job(base: tuple[Knowledge, Matcher]) -> None:
    """Nothing follows it."""
    reasons = report(base, fit=FAILED).diagnoses[0].reasons
    assert not any("later start" in reason or "runs in this log" in reason for reason in reasons)
