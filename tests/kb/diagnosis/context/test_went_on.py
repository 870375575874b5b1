"""Whether a script went on after a process that it started was killed (kb.diagnosis.context.went_on)."""

from __future__ import annotations

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.rulebase.rule import Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("shot", "code_bug", Pattern("k", regex="[0-9]+ Killed")))
KILLED = "2026-04-20 01:00:00,000 INFO part 1 begins\nrun_all.sh: line 107: 2388 Killed    python part.py\n"
LATER = "2026-04-20 01:02:00,000 INFO part 2 begins\n2026-04-20 03:40:00,000 INFO part 2: case 9 of 37\n"


@pytest.mark.parametrize(
    ("text", "phase", "told"),
    [
        (KILLED + LATER, "unknown", "the script that started it went on for at least 2 h"),
        (KILLED, "failed", ""),
        (KILLED + "2026-04-20 01:02:00,000 INFO cleaned up\n", "failed", ""),
        (KILLED + LATER + "2026-04-20 03:41:00,000 ERROR part 2 failed\n", "failed", ""),
    ],
)
def test_a_job_goes_on_whose_script_does(text: str, phase: str, told: str) -> None:
    """A part of it failed, and a restart would stop the rest; little behind it is only cleaning up."""
    report = diagnose(Evidence(streams=(scanned(text, BOOK, ref("logs/run.log")),)), BOOK)
    assert report.phase == phase
    assert [reason for reason in report.diagnoses[0].reasons if reason.startswith("the script")] == (
        [told] if told else []
    )


def test_only_a_shell_says_that_its_command_ended() -> None:
    """The line of another program does not say that a script goes on."""
    book = rulebook(rule("shot", "code_bug", Pattern("k", regex="worker .* Killed")))
    report = diagnose(Evidence(streams=(scanned("worker 3 was Killed\n" + LATER, book, ref("logs/run.log")),)), book)
    assert report.diagnoses
    assert not any(reason.startswith("the script") for reason in report.diagnoses[0].reasons)
