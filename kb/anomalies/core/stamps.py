"""Recognises digits in a line that are not measurements: times, addresses and process ids."""

from __future__ import annotations

import re

STAMPS = re.compile(
    r"\d{2,4}[-/]\d\d[-/]\d{2,4}[ T-]?|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\[\d+\.\d+\]|\b0x[0-9a-f]+\b|\bpid[= ]?\d+|(?<=[\w.]):\d+"
)
