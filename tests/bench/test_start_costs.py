"""What a start imports: nothing grows unseen."""

from __future__ import annotations

from bench.scan_costs import grown
from bench.start_costs import costs, recorded


def test_no_cost_of_a_start_grows_unseen() -> None:
    """Modules and compiled expressions are at most 5 % above bench/start_costs.json, and heavy modules are not imported.

    If they are meant to grow, `python bench/start_costs.py --write` records them.
    """
    now, banned = costs()

    assert (grown(now, recorded()), banned) == ([], [])
