"""Whether a job completed, as its logs and its scheduler show it. Names no fault."""
