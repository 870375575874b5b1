"""From a job's name to a bundle on disk: find the job, query every connector within limits, write what they return."""
