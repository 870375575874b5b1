"""Log files of a job in folders and object storage, found by pattern and copied within limits."""
