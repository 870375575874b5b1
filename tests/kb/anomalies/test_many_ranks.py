"""The comparison of ranks: its work grows with their number, not with its square. Counted are the interpreter's instructions, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bot.diagnosis.event_model import event_model
from kb.anomalies.analyse import find_anomalies
from kb.anomalies.build_run import build_run
from kb.anomalies.runs.baseline_diff import baseline_of
from kb.model import Job, Resource, StreamRef
from kb.templates.miner import Miner
from kb.templates.table import TemplateTable

FEW, MANY = 8, 32
LINEAR = 1.1  # times the work per rank, at most; work with each pair of ranks makes it more


def _counted(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter some work takes; the same for the same work."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _log(rank: int, failing: int) -> str:
    """A rank's log: each kind of evidence against a rank looks at some of its lines."""
    lines = [f"2026-11-03 04:00:{rank % 60:02d} INFO launch: rank {rank} on node-{rank // 8}, address 10.4.0.{rank}"]
    for step in range(1, 9):
        lines.append(f"2026-11-03 04:0{step}:00 INFO train: step {step} of 800, queue {(step * 7 + rank) % 5}")
        lines.append(f"2026-11-03 04:0{step}:01 DEBUG data: {1000 + step} samples read")
    lines += [f"2026-11-03 04:08:3{rank % 2} WARNING store: slow answer from part {rank}"] * (1 + rank % 3)
    if rank == failing:
        lines += [
            "Traceback (most recent call last):",
            '  File "ledger.py", line 88, in claim',
            "    raise LedgerMismatch()",
        ]
        lines += ["fabric.ledger.LedgerMismatch: lease 7741 was granted twice"]
    elif rank % 4 == 0:
        lines += [f"2026-11-03 04:08:50 ERROR peers: no pulse of {failing} for 7 s"]
    if rank % 4 and rank != failing:
        lines += [
            "Traceback (most recent call last):",
            '  File "train.py", line 40, in step',
            "    dist.all_reduce(loss)",
        ]
        lines += [f"RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.0.{failing}]:4000"]
    return "\n".join(lines) + "\n"


def _tables(ranks: int) -> list[TemplateTable]:
    tables = []
    for rank in range(ranks):
        miner = Miner(StreamRef(f"logs/rank-{rank}.log", Resource(rank=rank)))
        miner.feed(_log(rank, ranks // 2).encode())
        tables.append(miner.finish())
    return tables


def _judge(tables, good, model, found):
    found.append(find_anomalies(build_run(tables, (), Job(), state="FAILED"), good, model=model))


@pytest.mark.quick("True")
@pytest.mark.parametrize("filtered", [False, True])
def test_work_grows_with_the_number_of_ranks(filtered):
    """Four times as many ranks take four times the work, with a good run or without, and the rank at fault is named."""
    model = event_model()
    good = baseline_of(build_run(_tables(8)[:4]), "good") if filtered else None
    cost = {}
    for ranks in (FEW, FEW, MANY):  # the first one fills caches
        tables, found = _tables(ranks), []
        cost[ranks] = _counted(partial(_judge, tables, good, model, found))
        assert found[0].nodes[0].node == f"rank {ranks // 2}"
    assert cost[MANY] / MANY <= LINEAR * cost[FEW] / FEW
