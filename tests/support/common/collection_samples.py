"""Times and lines of a collected job."""

from __future__ import annotations

START, END = 1_763_000_000.0, 1_763_003_600.0
OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB\n"
