"""Tells the outside that a point is reached."""

import os
from pathlib import Path


def mark(at, name):
    """Make a mark."""
    Path(os.environ["RUN_TRUTH"], f"mark-{name}").touch()
