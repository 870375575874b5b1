"""The attempts of jobs, merged from many reports, equal those that a report-by-report merge gives."""

from __future__ import annotations

import random

import pytest

from kb.digest.recovery_times import jobs
from kb.digest.rows import AttemptTimes, DigestRow


def reports(seed: int) -> list[DigestRow]:
    """Reports of a few jobs: some extend what an earlier one knew, some leave times open, some contradict it."""
    chance = random.Random(seed)
    rows, known = [], {}
    for number in range(60):
        job, cluster = chance.choice("abcd"), chance.choice(("x", "y"))
        chain = chance.choice((None, f"chain-{job}"))
        runs = list(known.get((cluster, job), ()))
        runs += [AttemptTimes(len(runs) + 1, *(chance.choice((None, chance.random())) for _ in range(6)))]
        if chance.random() < 0.3:
            runs = [AttemptTimes(run.number, *(chance.choice((None, time)) for time in run[1:])) for run in runs]
        if chance.random() < 0.2:
            runs = runs[chance.randrange(len(runs)) :]
        known[cluster, job] = [] if len(runs) > 4 else runs
        rows.append(DigestRow(number, 0.0, chance.random(), "fault", "training", job, None, chain, None, cluster=cluster, runs=tuple(runs)))  # fmt: skip
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_merges_attempts_of_all_reports(seed):
    """A later time takes precedence, an earlier one fills what it leaves open."""
    rows = reports(seed)
    times, of_job = {}, {}
    for row in sorted(rows, key=lambda row: row.made):
        for run in row.runs:
            key = (row.cluster, row.job, run.number)
            of_job.setdefault(row.one_job, set()).add(key)
            kept = times.setdefault(key, {})
            kept.update({name: value for name, value in run._asdict().items() if value is not None})

    found = jobs(rows)

    assert {
        key: {name: time for name, time in run._asdict().items() if time is not None} for key, run in found.runs.items()
    } == times
    assert {job: set(keys) for job, keys in found.of_job.items()} == of_job
