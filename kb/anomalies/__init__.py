"""Finds what stands out in a failed run although no rule knows it: against a good run, against its peers, against its own past.

The three comparisons are those of L4 (arXiv 2503.20263): between jobs (`cross`), between nodes (`spatial`), between iterations
(`temporal`). Values in, values out; templates of log lines come from kb.templates.
"""

from __future__ import annotations
