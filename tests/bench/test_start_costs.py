"""What a start imports: nothing grows unseen."""

from __future__ import annotations

from pathlib import Path

from bench.scan_costs import grown
from bench.start_costs import costs, recorded
from bot.rulebase.loader import Knowledge


def test_no_cost_of_a_start_grows_unseen(cache: Path, known: Knowledge) -> None:
    """Modules and compiled expressions are at most 5 % above bench/start_costs.json, and heavy modules are not imported.

    If they are meant to grow, `python bench/start_costs.py --write` records them.
    """
    del known  # its loading fills the cache
    now, banned = costs(cache)

    assert (grown(now, recorded()), banned) == ([], [])
