"""Whether the logs state the zone of their times."""

from __future__ import annotations

import pytest

from kb.facts.time_zone import time_zone
from tests.support.kb_samples import BOOK, scanned

ZONED = "".join(f"2026-11-22T20:56:{n:02d}Z step {n}/60 | loss 2.{n}\n" for n in range(10, 20))
BARE = ZONED.replace("Z ", " ").replace("T", " ")
SECONDS = "".join(f'{{"ts": {1795300000 + n}.5, "step": {n}, "loss": 2.5}}\n' for n in range(10))


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([ZONED], "utc"),
        ([SECONDS], "utc"),
        ([BARE], "unknown"),
        ([BARE, "no times at all\n"], "unknown"),
        ([ZONED, BARE], "mixed"),
        ([ZONED + "2026-11-22 20:56:21 a library's line\n"], "utc"),
        ([], "utc"),
    ],
)
def test_the_zone_is_known_where_the_logs_state_it(logs: list[str], expected: str) -> None:
    """Logs without times do not count, and neither does a single line in another form."""
    assert time_zone([scanned(text, BOOK) for text in logs]) == expected
