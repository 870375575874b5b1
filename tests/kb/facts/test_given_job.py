"""What whoever asks says of a job counts more than its description, and what was not said leaves it as it is."""

from __future__ import annotations

from kb.facts.given_job import GivenJob
from kb.model import Job

DESCRIBED = Job(state="FAILED", exit_code=3, signal=9, gpus=8)


def test_the_number_of_gpus_says_nothing_of_the_end() -> None:
    """The state that the description gives stays its own."""
    job = GivenJob(gpus=64).of(DESCRIBED)

    assert (job.gpus, job.state, job.exit_code, job.signal, job.state_given) == (64, "FAILED", 3, 9, False)


def test_a_state_says_nothing_of_the_gpus() -> None:
    """It replaces the exit code and the signal, too: these belong to the state that is no longer believed."""
    job = GivenJob("COMPLETED").of(DESCRIBED)

    assert (job.gpus, job.state, job.exit_code, job.signal, job.state_given) == (8, "COMPLETED", None, None, True)
