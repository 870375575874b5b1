"""Lines that are parts of others (kb.anomalies.core.blocks)."""

from __future__ import annotations

from kb.anomalies.core.blocks import is_behind_bars
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent

DRAWN = " 30%|###  | 3/10 [00:01<00:02, 1.2it/s]"


def test_what_is_printed_behind_a_bar_is_not_the_bar() -> None:
    """Its template has none of the bar's words; a bar's has."""

    def behind(template: str, *lines: str) -> bool:
        spots = tuple(LineRef("train.log", 50 * place, line) for place, line in enumerate(lines))
        return is_behind_bars(RunEvent(template, template, None, {"": NodeEvent(len(spots), spots)}), spots)

    assert behind("sluice <*> is shut", f"{DRAWN}sluice 3 is shut")
    assert not behind("<*>%|<*>| <*>/<*> [<*>, <*>it/s]", DRAWN)
    assert not behind("sluice <*> is shut", f"{DRAWN}sluice 3 is shut", "sluice 4 is shut")
