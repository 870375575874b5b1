"""The ranks of a job in place of torchrun's numbers on a node (kb.anomalies.core.own_ranks)."""

from __future__ import annotations

from kb.anomalies.build_run import build_run
from kb.anomalies.core.own_ranks import with_global_ranks
from kb.model import Resource, StreamRef
from kb.templates.miner import Miner
from kb.templates.table import TemplateTable

TEXTS = ("kiln {n} is warm", "glaze mixed in {n} s", "shelf {n} is full", "firing {n} done")
TABLE = ("  rank      : 5 (local_rank: 1)", "  rank      : 7 (local_rank: 3)")


def a_table(*more: str, name: str = "node-b.log") -> TemplateTable:
    """The log of a node of four processes, with a line that only the third writes."""
    miner = Miner(StreamRef(name, Resource(node=None)))
    lines = [f"[default{n % 4}]:{TEXTS[n // 4 % 4].format(n=n)}" for n in range(80)]
    miner.feed("\n".join((*lines, "[default2]:the sluice is shut", *more, "")).encode())
    return miner.finish()


def writer(table: TemplateTable) -> set[str]:
    """Who wrote the single line."""
    return {event.text: set(event.nodes) for event in build_run([table]).events.values()}["the sluice is shut"]


def test_what_torchrun_reports_of_members_tells_their_ranks() -> None:
    """Its table has both numbers."""
    assert writer(a_table(*TABLE)) == {"rank 6"}
    assert sorted(with_global_ranks(a_table(*TABLE)).endings) == [4, 5, 6, 7]


def test_lines_that_tell_the_rank_behind_the_number_on_the_node_tell_it_for_all() -> None:
    """As PyTorch's tracebacks and own lines do; one line proves nothing, nor do lines that do not agree."""
    assert writer(a_table("[default1]:[rank5]: Traceback", "[default0]:part of rank=4 is kept")) == {"rank 6"}
    assert writer(a_table("[default1]:[rank5]: Traceback")) == {"rank 2"}
    assert writer(a_table("[default1]:waits for rank=3", "[default0]:waits for rank=3")) == {"rank 2"}
    assert writer(a_table("[default1]:[rank1]: Traceback", "[default3]:[rank3]: Traceback")) == {"rank 2"}
