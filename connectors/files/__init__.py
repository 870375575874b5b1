"""Log files of a job in folders and object storage, found by a pattern and copied within limits."""
