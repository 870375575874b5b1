"""From a job's name to a bundle on disk: find the job, ask every connector within limits, write what they give."""
