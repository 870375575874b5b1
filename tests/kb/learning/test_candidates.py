"""How independent the incidents of a candidate are."""

from __future__ import annotations

from kb.learning.candidates import spread_of
from kb.learning.cases import Case


def test_one_job_requeued_three_times_is_one_job() -> None:
    """Three incidents of it are no three observations."""
    same = [Case(number, job="7", family="llm", when=1000.0) for number in (1, 2, 3)]
    other = [Case(number, job=str(number), family=f"llm-{number}", when=number * 90_000.0) for number in (1, 2, 3)]
    assert spread_of(same) == "1 job, 1 job name, 1 day"
    assert spread_of(other) == "3 jobs, 3 job names, 3 days"
    assert spread_of([Case(1)]) == ""
