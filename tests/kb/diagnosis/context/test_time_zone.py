"""Whether the logs state the zone of their times."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.time_zone import time_zone
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


def test_a_line_without_a_zone_is_shown_without_one() -> None:
    """A scheduler's own line gives local time, whatever the program's lines do."""
    killed = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T22:56:19 DUE TO TIME LIMIT ***"
    logs = [scanned(ZONED + killed + "\n", BOOK)]
    assert time_zone(logs, [killed]) == "mixed"
    assert time_zone(logs, [ZONED.splitlines()[0]]) == "utc"
    assert time_zone(logs, ["RuntimeError: no time at all"]) == "utc"
