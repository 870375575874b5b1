"""The grounds for suspecting a node: the strength and the wording of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kb.anomalies.nodes.peers import OddNode

_OF_A_LINE = re.compile(r"\bprints? this\b")  # in the words of a ground that is about one line


@dataclass(slots=True)
class NodeEvidence:
    """The evidence against one node: the strength of each ground, and what it is."""

    worth: dict[str, float] = field(default_factory=dict)
    why: dict[str, OddNode] = field(default_factory=dict)

    def take(self, ground: str, worth: float, odd: OddNode) -> None:
        """Keep the strongest evidence of a ground."""
        if worth > self.worth.get(ground, 0.0):
            self.worth[ground] = min(1.0, worth)
            self.why[ground] = odd


def is_of_a_line(why: str) -> bool:
    """Whether the words of a ground are about one line, which a reader must see with them."""
    return _OF_A_LINE.search(why) is not None
