"""The year that a log states, for its timestamps that have none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kb.rulebase.rule import Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("gone", "killed", Pattern("line", literal="the mill stopped")))
STOPPED = "E1130 07:16:27.135000 20875 mill.py:7] the mill stopped\n"


@pytest.mark.parametrize(
    "before",
    [
        "11/30/2026 07:16:20 - the mill runs\n",
        "2026-11-30 07:16:20 the mill runs\n",
        "20261130-07:16:20 the mill runs\n",
        "W1130 07:16:21.191007286 mill.py:5] slow\n11/30/2026 07:16:20 - the mill runs\n",
        "W1130 07:16:21.201007 mill.py:5] 2010100799 sacks\n2026-11-30 07:16:20 the mill runs\n",
    ],
)
def test_the_year_is_that_of_a_date_and_not_of_a_fraction_or_a_count(before: str) -> None:
    """Nanoseconds and counts have enough digits for a date."""
    (hits,) = scanned(before + STOPPED, BOOK, ref("mill.log")).hits.values()
    place = next(iter(hits.places()))
    assert place.time is not None
    assert datetime.fromtimestamp(place.time, UTC).year == 2026
