"""Words that identify iteration lines without parsing them, for queries to log stores and for sampling files."""

from __future__ import annotations

# Words that are common in iteration lines and rare elsewhere: measured quantities and rates.
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

# The same words for case-sensitive stores, as the frameworks write them.
PROGRESS_WRITTEN = (*PROGRESS_WORDS, "Loss", "SamplesPerSec", "Iter time")
