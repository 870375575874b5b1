"""What a scan costs: nothing grows unseen."""

from __future__ import annotations

from bench.scan_costs import TOLERANCE, costs, grown, recorded
from bot.rulebase.loader import Knowledge


def test_no_cost_of_a_scan_grows_unseen(known: Knowledge) -> None:
    """Calls, hits, bytes searched and patterns are at most 5 % above what bench/scan_costs.json says.

    If they are meant to grow, `python bench/scan_costs.py --write` records them.
    """
    assert not grown(costs(known), recorded())


def test_growth_is_noticed() -> None:
    """A cost above the tolerance is named with both numbers, a new cost too, and a fall is none."""
    limit = int(1000 * (1 + TOLERANCE))
    assert not grown({"calls": limit, "hits": 3}, {"calls": 1000, "hits": 9})
    assert grown({"calls": limit + 1}, {"calls": 1000}) == [f"calls: {limit + 1:,d}, recorded 1,000"]
    assert grown({"calls": 5}, {}) == ["calls: 5, not recorded"]
