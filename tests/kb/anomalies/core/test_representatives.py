"""Which of very many logs are compared: the odd ones, in whatever order their tables arrive, and never more than asked for."""

from __future__ import annotations

from random import Random

from kb.anomalies.build_run import build_run
from kb.anomalies.core.representatives import Representatives, Uncompared, stub_of
from kb.model import Job, Resource, StreamRef
from kb.templates.miner import Miner
from kb.templates.table import TemplateTable

LOGS, MOST = 80, 16


def table(rank: int, *more: str, digest: str = "3fa9", steps: int = 6) -> TemplateTable:
    """The table of a rank's log, which says what all others say, and some lines more."""
    lines = [f"2026-11-03 04:0{step}:00 INFO train: step {step}, digest {digest}" for step in range(steps)]
    miner = Miner(StreamRef(f"rank-{rank:03}.log", Resource(rank=rank)))
    miner.feed("\n".join([f"seat {rank}", *lines, *more, ""]).encode())
    return miner.finish()


def kept(tables: dict[int, TemplateTable], order: list[int]) -> Representatives:
    """What is kept of logs whose tables arrive in an order."""
    chosen = Representatives(sorted(tables), MOST)
    for index in order:
        chosen.take(index, tables[index])
    return chosen


def test_what_is_unlike_all_others_is_kept() -> None:
    """A line of its own, a value of its own, an early end, a line too often; none of them stands for the others."""
    tables = {rank: table(rank) for rank in range(LOGS)}
    tables[33] = table(33, "ERROR ledger: lease 7 was granted twice")
    tables[44] = table(44, digest="77b0")
    tables[57] = table(57, steps=3)
    tables[71] = table(71, *["WARNING store: part 4 is late"] * 9)
    chosen = kept(tables, list(range(LOGS)))
    assert chosen.standing is not None
    assert not {33, 44, 57, 71} & chosen.standing
    assert {33, 44, 57, 71} <= chosen.kept().keys()
    assert len(chosen.kept()) == MOST


def test_the_choice_does_not_depend_on_the_order() -> None:
    """Workers end in any order, those of the logs that stand for all possibly last."""
    chance = Random(5)
    tables = {rank: table(rank, *["DEBUG cache: swept"] * chance.randrange(4)) for rank in range(LOGS)}
    order = list(tables)
    first = kept(tables, order)
    for _ in range(3):
        chance.shuffle(order)
        again = kept(tables, order)
        assert again.kept() == first.kept()
        assert again.elsewhere() == first.elsewhere()


def test_few_logs_are_all_kept() -> None:
    """Then nothing stands for others, and nothing is elsewhere."""
    tables = {rank: table(rank) for rank in range(MOST)}
    chosen = kept(tables, list(tables))
    assert chosen.standing is None
    assert chosen.kept() == tables
    assert chosen.elsewhere() == {}


def test_a_line_that_logs_print_that_are_not_compared_is_nobodys_own() -> None:
    """One of the compared logs has it, and so has another one: it must not be told of one rank only."""
    tables = [table(rank) for rank in range(4)]
    odd = table(4, "INFO cache: swept once", "INFO only here: once")
    names = {occurrence.template.text: name for name, occurrence in odd.templates.items()}
    apart = [stub_of(table(rank, "INFO cache: swept once")) for rank in (5, 6)]
    uncompared = Uncompared(
        frozenset(item.ref.uri for item in apart), {names["INFO cache: swept once"]: 2, names["seat <*>"]: 2}
    )
    run = build_run([*tables, odd, *apart], job=Job(nodes={"a": (0, 1)}), uncompared=uncompared)
    told = {event.text: (len(event.nodes), event.elsewhere) for event in run.events.values()}
    assert "INFO cache: swept once" not in told
    assert told["INFO only here: once"] == (1, 0)
    assert told["seat <*>"] == (5, 2)
    assert run.heard == {f"rank {rank}" for rank in range(5)}
