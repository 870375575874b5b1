"""Words by which a source recognises iteration lines without parsing them: to ask a store for them, or to sample a file."""

from __future__ import annotations

# Words that iteration lines contain and few other lines do: what was measured, and at which pace.
PROGRESS_WORDS = (
    "loss",
    "it/s",
    "s/it",
    "step/s",
    "s/step",
    "batch/s",
    "s/batch",
    "samples/s",
    "samplespersec",
    "tokens/s",
    "[step=",
    "[batch=",
    "step_avg",
    "per_step_time",
    "grad_norm",
    "grad norm",
    "iter time",
    "iteration time",
)
