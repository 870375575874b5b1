"""What the caller knows about a job: how it ended, and how many GPUs it had. It takes precedence over the job's description."""

from __future__ import annotations

from dataclasses import replace

from kb.model import Job
from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class GivenJob:
    """A state of any scheduler, an exit code, a number of GPUs, or several of these; None for what was not said."""

    state: str | None = None
    exit_code: int | None = None
    gpus: int | None = None

    def of(self, job: Job) -> Job:
        """Return the job with these values instead of those of its description."""
        job = job if self.gpus is None else replace(job, gpus=self.gpus)
        if self.state is None and self.exit_code is None:
            return job
        return replace(job, state=self.state, exit_code=self.exit_code, signal=None, state_given=True)
