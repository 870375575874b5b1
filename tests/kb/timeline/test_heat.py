"""The heat map: the rank and the steps are those in which the made run was slow, and no map is made of noise."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kb.facts.evidence import Evidence
from kb.model import Job, ProgressPoint, Resource, StreamRef, Verdict
from kb.report import Diagnosis, Report, Suspect, Versions
from kb.scanning.summary import Series, StreamSummary
from kb.timeline.heat import COLUMNS, LANES, HeatMap, heat_map


def report(*suspects: Suspect, verdict: Verdict = "fault", iteration: int | None = None) -> Report:
    """A report that suspects somebody."""
    best = Diagnosis(1, "f", "r", 1, "t", "s", 0.9, "likely", "root_cause", suspects=suspects, iteration=iteration)
    diagnoses = (best,) if verdict == "fault" else ()
    return Report("i", "f", verdict, "failed", "s", Versions("e", "r", "d", "c"), diagnoses=diagnoses)


def run(factor, ranks=8, steps=40, *, every=1, per_node=4, field="compute", noise=0.0) -> Evidence:
    """A run whose ranks log their work in every so many steps: a second, times `factor(rank, step)`."""
    random_ = random.Random(3)

    def log(rank):
        points = tuple(
            ProgressPoint(step * 100, step=step, **{field: factor(rank, step) * (1 + noise * random_.random())})
            for step in range(every, steps + 1, every)
        )
        return StreamSummary(StreamRef(f"rank-{rank}.log", Resource(rank=rank)), 10_000, series=Series(points))

    nodes = {f"node-{at}": tuple(range(at * per_node, (at + 1) * per_node)) for at in range(ranks // per_node)}
    return Evidence(job=Job(nodes=nodes), streams=tuple(log(rank) for rank in range(ranks)))


def drawn(evidence: Evidence, *suspects: Suspect, **more) -> HeatMap:
    """The map, which there must be."""
    made = heat_map(evidence, report(*suspects, **more))
    assert made is not None
    return made


TRUTHS = [  # who is slow in which steps, by how much; the steps that the map must give, and its words
    (lambda rank, step: 2.0 if rank == 5 and step >= 21 else 1.0, 1, {5: (21, 40)}, "rank 5 from step 21 on, up to 2 "),
    (lambda rank, _: 1.5 if rank == 0 else 1.0, 1, {0: (1, 40)}, "rank 0 in all steps, up to 1.5 "),
    (lambda rank, step: 3.0 if rank == 7 and 11 <= step <= 18 else 1.0, 1, {7: (11, 18)}, "rank 7 from step 11 to 18,"),
    (lambda rank, step: 1.8 if rank == 2 and step <= 12 else 1.0, 1, {2: (1, 12)}, "rank 2 up to step 12, up to 1.8 "),
    (lambda rank, step: 2.0 if rank == 6 and step >= 200 else 1.0, 10, {6: (200, 400)}, "rank 6 from step 200 on,"),
    (
        lambda rank, step: {1: 2.0, 3: 4.0}.get(rank, 1.0) if step > 30 else 1.0,
        1,
        {1: (31, 40), 3: (31, 40)},
        "rank 3 from step 31 on, up to 4 times the median; rank 1 from step 31 on, up to 2 ",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("factor", "every", "slow", "words"), TRUTHS)
def test_the_map_gives_the_rank_and_the_steps(factor, every, slow, words):
    """As they were made; a column is a logged step, so that no column is empty."""
    made = drawn(run(factor, steps=40 * every, every=every))

    assert {int(row.label.removeprefix("rank ")): row.slow for row in made.rows if row.slow} == slow
    assert made.finding.startswith(f"Slow: {words}")
    assert (made.columns, made.width, made.start) == (40, every, every - 0.5)
    for row in made.rows:
        first, last = slow.get(int(row.label.removeprefix("rank ")), (0, -1))
        colored = [at for at, cell in enumerate(row.cells) if cell != "0"]
        assert colored == list(range(first // every - 1, last // every) if last > 0 else [])


def test_the_step_is_exact_where_a_column_holds_several():
    """As the mark of the curves."""
    made = drawn(run(lambda rank, step: 2.0 if rank == 5 and step >= 60 else 1.0, steps=200))

    assert made.width == 2
    assert made.finding.startswith("Slow: rank 5 from step 60 on")
    assert [row.slow for row in made.rows if row.slow] == [(60, 199)]


def test_noise_is_no_map():
    """Not of a rank that is slow once, as when it saves, nor of ranks that all vary, nor where every rank slows down."""
    assert heat_map(run(lambda rank, step: 9.0 if rank == 0 and step % 10 == 0 else 1.0), report()) is None
    assert heat_map(run(lambda *_: 1.0, noise=0.8), report()) is None
    assert heat_map(run(lambda _, step: 1.0 + step), report()) is None


def test_there_is_no_map_without_the_times_of_ranks():
    """Nor of two ranks, whose median is neither's; nor of a run that did not fail."""
    evidence = run(lambda rank, _: 2.0 if rank == 1 else 1.0)

    assert heat_map(Evidence(), report()) is None
    assert heat_map(replace(evidence, streams=evidence.streams[:2]), report()) is None
    assert heat_map(run(lambda rank, _: 2.0 if rank == 1 else 1.0, field="loss"), report()) is None
    assert heat_map(evidence, report(verdict="no_fault")) is None


def test_steps_that_a_rank_did_not_log_are_unknown():
    """A rank that joined late, and one that stopped before the others."""
    evidence = run(lambda rank, _: 2.0 if rank == 4 else 1.0)
    late, early = evidence.streams[2], evidence.streams[3]
    cut = (
        replace(late, series=Series(late.series.points[10:])),
        replace(early, series=Series(early.series.points[:30])),
    )
    made = drawn(replace(evidence, streams=(*evidence.streams[:2], *cut, *evidence.streams[4:])))

    assert [row.cells for row in made.rows[2:4]] == ["." * 10 + "0" * 30, "0" * 30 + "." * 10]


def test_the_suspect_and_the_failing_step_are_marked():
    """The rank itself; a node marks its ranks; a step outside the map is not drawn."""
    evidence = run(lambda rank, step: 2.0 if rank == 5 and step > 20 else 1.0)

    by_rank = drawn(evidence, Suspect("rank", node="node-1", rank=5), iteration=33)
    by_node = drawn(evidence, Suspect("node", node="node-1"), iteration=41)
    assert [row.label for row in by_rank.rows if row.suspect] == ["rank 5"]
    assert [row.label for row in by_node.rows if row.suspect] == ["rank 4", "rank 5", "rank 6", "rank 7"]
    assert (by_rank.failing, by_node.failing) == (33, None)


def test_many_ranks_are_rows_by_node():
    """The slow ones keep a row of their own, suspects first; a long run has a bounded number of columns."""
    made = drawn(run(lambda rank, step: 2.0 if rank == 37 and step > 300 else 1.0, ranks=64, steps=600, per_node=8))

    assert [(row.label, row.node, row.count) for row in made.rows[:2]] == [
        ("rank 37", "node-4", 1),
        ("ranks 0-7", "node-0", 8),
    ]
    assert (made.rows[5].label, made.rows[5].count) == ("ranks 32-36,38-39", 7)
    assert len(made.rows) == 9
    assert made.columns <= COLUMNS
    assert made.rows[0].slow == (301, 596)  # the first step of a column of five
    assert made.folded == "63 of 64 ranks are folded into 8 rows, which show their slowest rank"


def test_ranks_that_become_slow_together_are_one_finding():
    """With the node where it is all of its ranks; others, or at another step, or by another factor, are told apart."""

    def factor(rank, step):
        return (
            {24: 4.0, 50: 1.9}.get(rank, 2.0 if rank // 8 == 2 else 1.0) if step > (40 if rank == 50 else 30) else 1.0
        )

    made = drawn(run(lambda rank, step: 2.0 if rank // 8 in (2, 3) and step > 30 else 1.0, ranks=64, per_node=8))
    assert made.finding == "Slow: ranks 16-31 (all of node-2, node-3) from step 31 on, up to 2 times the median"
    assert [(row.label, row.slow) for row in made.rows if row.slow] == [
        ("ranks 16-23", (31, 40)),
        ("ranks 24-31", (31, 40)),
    ]
    assert made.slow == tuple(range(16, 32))

    made = drawn(run(factor, ranks=64, per_node=8, steps=60))
    assert made.finding == (
        "Slow: rank 24 from step 31 on, up to 4 times the median; "
        "ranks 16-23 (all of node-2) from step 31 on, up to 2 times the median; "
        "rank 50 from step 41 on, up to 1.9 times the median"
    )
    assert [row.label for row in made.rows[:1]] == ["rank 16"]


def test_columns_are_wider_where_a_long_run_keeps_few_steps():
    """So that hardly a column is empty, and the step at which it became slow is still exact."""
    chosen = set(random.Random(8).sample(range(1, 601), 150))
    evidence = run(lambda rank, step: 2.0 if rank == 5 and step > 300 else 1.0, steps=600)
    kept = tuple(
        replace(log, series=Series(tuple(point for point in log.series.points if point.step in chosen)))
        for log in evidence.streams
    )
    first = min(step for step in chosen if step > 300)
    made = drawn(replace(evidence, streams=kept))

    assert made.width > 5
    assert made.rows[0].cells.count(".") <= 0.02 * made.columns
    assert made.finding.startswith(f"Slow: rank 5 from step {first} on")


def test_many_ranks_on_unknown_nodes_are_rows_of_neighbors():
    """At most as many as ranks may have rows of their own."""
    evidence = replace(run(lambda rank, _: 2.0 if rank == 3 else 1.0, ranks=200, steps=10), job=Job())
    made = drawn(evidence)

    assert len(made.rows) <= LANES + 1
    assert sum(row.count for row in made.rows) == 200
