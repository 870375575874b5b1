"""Finds anomalies in a failed run that no rule knows, by comparison with a good run, its peers and its own past.

The three comparisons are those of L4 (arXiv 2503.20263): between jobs (`cross`), between nodes (`spatial`), between iterations
(`temporal`). Values in, values out; templates of log lines come from kb.templates.
"""

from __future__ import annotations
