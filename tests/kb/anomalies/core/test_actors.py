"""Actors of Ray compared by their process ids, and called by their names (kb.anomalies.core.actors)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.diagnosis.template_pool import tables
from connectors.bundles.streams import discover
from kb.anomalies.build_run import build_run
from kb.anomalies.core.run import RunProfile
from kb.anomalies.events.unit_names import named_nodes
from kb.anomalies.nodes.drifts import drifting
from kb.anomalies.nodes.peers import OddNode

FORMS = ("({of} pid={pid}, ip=10.0.4.1{rank}) {text}", "\x1b[36m({of} pid={pid}, ip=10.0.4.1{rank})\x1b[0m {text}")
TEXTS = ("oven {n} is hot", "dough {n} kneaded in {n} s", "loaf {n} weighs {n} g")


def a_run(folder: Path, form: str, *, named: str = "", of: str = "", lines: int = 96) -> RunProfile:
    """A driver's log with the lines of four bakers and four carriers, or of one class; of the last baker, the loaves grow."""
    told = []
    for n in range(lines):
        rank = n % 8
        heavy = 40 * n if rank == 3 and n > 48 else 7
        text = f"loaf weighs {heavy} g" if rank < 4 and n // 8 % 2 else TEXTS[n // 8 % 3].format(n=n)
        name = named.format(rank=rank)
        told.append(
            form.format(of=of or ("Baker" if rank < 4 else "Carrier"), pid=8600 + rank, rank=rank, text=name + text)
        )
    (folder / "driver.log").write_text("\n".join([*told, "(raylet) the oven is off", ""]))
    return build_run(tables(discover([folder]).streams, year=2026, workers=1).tables)


@pytest.mark.parametrize("form", FORMS)
def test_each_actor_is_a_unit_and_called_by_its_class_and_process(tmp_path: Path, form: str) -> None:
    """What Ray itself prints is none's."""
    run = a_run(tmp_path, form)
    assert run.ranks == {f"rank {8600 + n}" for n in range(8)}
    assert run.names["rank 8603"] == "Baker pid=8603"
    assert run.peers(["rank 8601"]) == {f"rank {8600 + n}" for n in range(4)}


def test_an_actor_is_called_as_its_lines_call_it_if_no_other_one_is(tmp_path: Path) -> None:
    """A name that all share is the program's."""
    assert a_run(tmp_path, FORMS[0], named="hand_{rank}: ").names["rank 8605"] == "hand_5"
    assert a_run(tmp_path, FORMS[0], named="hand_1: ").names["rank 8605"] == "Carrier pid=8605"


def test_a_number_that_moves_on_one_actor_is_compared_with_those_of_its_class(tmp_path: Path) -> None:
    """The other class prints no such line."""
    (odd,) = drifting(a_run(tmp_path, FORMS[0]))
    assert odd.node == "rank 8603"


def test_lines_that_name_ranks_are_compared_by_rank(tmp_path: Path) -> None:
    """As those of Ray Train, whose workers are ranks."""
    run = a_run(tmp_path, "({of} pid={pid}, ip=10.0.4.1{rank}) [rank{rank}]: {text}", of="TrainWorker")
    assert run.ranks == {f"rank {n}" for n in range(8)}
    assert run.names == {}


def test_reasons_call_an_actor_by_its_name() -> None:
    """Not by the number that stands for its rank."""
    odd = OddNode("rank 8603", 0.5, "rank 8603 waits for rank 2")
    (named,) = named_nodes([odd], {"rank 8603": "hand_3"})
    assert (named.node, named.why) == ("hand_3", "hand_3 waits for rank 2")
    assert named_nodes([odd], {}) == (odd,)


@pytest.mark.parametrize("told", ["seated Baker rank={rank} pid={pid} on hall-1", "pid {pid} got rank {rank}"])
def test_actors_whose_ranks_a_line_tells_are_these_ranks(tmp_path: Path, told: str) -> None:
    """Users speak of ranks; if a line tells two ranks of one process, or one rank of two, it tells none."""
    a_run(tmp_path, FORMS[0], of="Baker")
    log = (tmp_path / "driver.log").read_text()

    def with_seats(ranks: range | list[int]) -> RunProfile:
        seats = [told.format(rank=rank, pid=8600 + number) for number, rank in enumerate(ranks)]
        (tmp_path / "driver.log").write_text("\n".join([*seats, log]))
        return build_run(tables(discover([tmp_path]).streams, year=2026, workers=1).tables)

    run = with_seats(range(8))
    assert run.ranks == {f"rank {n}" for n in range(8)}
    assert not run.names
    (loaf,) = [event for event in run.events.values() if "loaf weighs" in event.text]
    assert set(loaf.nodes) == {f"rank {n}" for n in range(4)}
    assert with_seats([0, 1, 2, 3, 4, 5, 6, 6]).names["rank 8603"] == "Baker pid=8603"
