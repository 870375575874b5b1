"""Curves: measurements of all ranks and nodes on one grid, the outliers, and the bounded size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kb.facts.evidence import Evidence
from kb.metrics.panel import Row, make_panel
from kb.model import Job, ProgressPoint, Resource, StreamRef
from kb.report import Diagnosis, GpuRef, Progress, Report, Suspect, Versions
from kb.scanning.summary import Series, StreamSummary
from kb.timeline.curves import COLUMNS, LINES, METRICS, OWN, Curves, curves

NOON = 1_772_366_400.0


def log(rank, values, *, field="loss", every=1, node=None):
    """A rank's log with a value a step."""
    points = tuple(ProgressPoint(at * 100, step=(at + 1) * every, **{field: item}) for at, item in enumerate(values))
    return StreamSummary(StreamRef(f"rank-{rank}.log", Resource(rank=rank, node=node)), 10_000, series=Series(points))


def report(*suspects, iteration=None, verdict="fault", first_seen=None):
    """A report that suspects somebody."""
    best = Diagnosis(
        1, "f", "r", 1, "t", "s", 0.9, "likely", "root_cause", suspects=suspects, iteration=iteration, first_seen=first_seen
    )  # fmt: skip
    diagnoses = (best,) if verdict == "fault" else ()
    return Report(
        "i", "f", verdict, "failed", "s", Versions("e", "r", "d", "c"), diagnoses=diagnoses, progress=Progress(40)
    )


def panel(rows, metric="gpu_util"):
    """A panel of rows by time, a minute a column."""
    values = np.array([item for _, item in rows], dtype=np.float64)
    return make_panel(metric, [Row(who) for who, _ in rows], NOON, 60.0, values, "%")


def test_each_rank_is_a_line_over_steps():
    """With the failing step; the median of three and more."""
    evidence = Evidence(streams=tuple(log(rank, [5.0 - 0.1 * at + rank for at in range(40)]) for rank in range(3)))
    (chart,) = curves(evidence, report(iteration=39)).charts
    assert (chart.metric, chart.title, chart.axis, chart.start, chart.width, chart.rows, chart.at) == (
        "loss",
        "Loss",
        "step",
        0.5,
        1.0,
        3,
        39,
    )
    assert [(line.label, line.why, line.values[:2]) for line in chart.lines] == [
        ("rank 0", "", (5.0, 4.9)), ("rank 1", "", (6.0, 5.9)), ("rank 2", "", (7.0, 6.9)),
    ]  # fmt: skip
    assert chart.median[:2] == (6.0, 5.9)


def test_the_mark_is_where_a_suspect_became_slow():
    """A run that goes on has no last step to mark; the chart in which the suspect differs most comes first."""
    streams = [
        log(rank, [1.0 if rank != 2 or at < 25 else 1.6 for at in range(40)], field="compute") for rank in range(5)
    ] + [log(rank, [7.0 + 0.001 * rank] * 40, field="memory") for rank in range(5)]
    slow = replace(report(Suspect("rank", rank=2), iteration=40), phase="degraded")
    first, *rest = curves(Evidence(streams=tuple(streams)), slow).charts

    assert (first.metric, first.lines[0].label, first.at) == ("compute", "rank 2", 26)
    assert [chart.at for chart in rest] == [26]


@pytest.mark.parametrize("slow_from", [59, 60, 61, 118, 119])
def test_the_mark_is_exact_where_a_column_holds_several_steps(slow_from):
    """The step at which the suspect became slow, not the middle of the column that holds it."""
    streams = [
        log(rank, [1.0 if rank != 2 or at + 1 < slow_from else 1.6 for at in range(COLUMNS + 20)], field="compute")
        for rank in range(5)
    ]
    slow = replace(report(Suspect("rank", rank=2)), phase="degraded")
    assert [chart.at for chart in curves(Evidence(streams=tuple(streams)), slow).charts] == [slow_from]


def test_a_suspected_gpu_is_shown_by_its_rank():
    """Where the metrics have a GPU for each rank of the node; else all ranks of the node may be meant."""
    streams = tuple(
        log(rank, [1.0 if rank != 3 or at < 25 else 1.6 for at in range(40)], field="compute", node=f"n{rank // 4}")
        for rank in range(8)
    )
    job = Job(nodes={"n0": (0, 1, 2, 3), "n1": (4, 5, 6, 7)})
    slow = replace(report(Suspect("gpu", node="n0", gpu=GpuRef(index=3))), phase="degraded")

    def found(count):
        rows = [(Resource(node=f"n{at // 4}", gpu=str(at % 4)), [50.0] * 40) for at in range(8) if at % 4 < count]
        (chart, *_) = curves(Evidence(job=job, streams=streams, panels={"gpu_util": panel(rows)}), slow).charts
        return chart.metric, {line.label for line in chart.lines if line.why == "suspect"}, chart.at

    assert found(4) == ("compute", {"rank 3"}, 26.0)
    assert found(3)[1] != {"rank 3"}


def test_a_metric_is_marked_when_the_run_reached_the_step():
    """The step and the time are the same moment, so that the charts of both can be read together."""
    slow = replace(report(Suspect("rank", rank=2, node="n2")), phase="degraded")
    streams = []
    for rank in range(5):
        made = log(rank, [1.0 if rank != 2 or at < 25 else 1.6 for at in range(40)], field="compute", node=f"n{rank}")
        timed = tuple(replace(point, time=NOON + 60.0 * point.step) for point in made.series.points)
        streams.append(replace(made, series=Series(timed)))
    usage = panel([(Resource(node=f"n{rank}"), [90.0] * 26 + [90.0 - 40 * (rank == 2)] * 14) for rank in range(5)])
    charts = curves(Evidence(streams=tuple(streams), panels={"gpu_util": usage}), slow).charts

    assert [(chart.metric, chart.at) for chart in charts] == [("compute", 26.0), ("gpu_util", NOON + 60.0 * 26)]


def test_a_rank_that_was_always_slow_has_no_mark():
    """Nor has a run whose suspect does not differ."""
    for late in (1.6, 1.01):
        streams = tuple(log(rank, [late if rank == 2 else 1.0] * 40, field="compute") for rank in range(5))
        slow = replace(report(Suspect("rank", rank=2)), phase="degraded")
        assert [chart.at for chart in curves(Evidence(streams=streams), slow).charts] == [None]


def test_the_values_of_the_run_are_not_those_of_the_rank_that_prints_them():
    """The last rank prints the loss of all; it is not shown as if it were its own."""
    suspected = report(Suspect("rank", rank=2))
    assert curves(Evidence(streams=(log(3, [1.0, 2.0, 3.0]),)), suspected).charts[0].lines[0].label == (
        "the run, as logged by rank 3"
    )
    assert curves(Evidence(streams=(log(2, [1.0, 2.0, 3.0]),)), suspected).charts[0].lines[0].label == "rank 2"


def test_who_leaves_the_others_is_reported():
    """A rank that differs at the end, although it is not suspected; the suspect comes before it."""
    streams = [log(rank, [2.0 + 0.01 * ((rank + at) % 3) for at in range(40)]) for rank in range(12)]
    streams[7] = log(7, [2.0] * 30 + [9.0] * 10)
    (chart,) = curves(Evidence(streams=tuple(streams)), report(Suspect("rank", rank=3))).charts
    assert [(line.label, line.why) for line in chart.lines[:3]] == [
        ("rank 3", "suspect"),
        ("rank 7", "apart"),
        ("rank 0", ""),
    ]


def test_most_of_the_ranks_are_no_suspects():
    """A suspect whose rows are most of the rows is not highlighted."""
    evidence = Evidence(streams=tuple(log(rank, [1.0, 2.0, 3.0]) for rank in range(4)))
    (chart,) = curves(evidence, report(*(Suspect("rank", rank=rank) for rank in range(3)))).charts
    assert {line.why for line in chart.lines} == {""}


def test_many_ranks_are_a_median_with_a_band():
    """Only outliers have a line; there are at most as many values as columns."""
    rows = [log(rank, [float(rank)] * 1000, every=7) for rank in range(LINES + 1)]
    (chart,) = curves(Evidence(streams=tuple(rows)), report(Suspect("rank", rank=3))).charts
    assert [line.label for line in chart.lines] == ["rank 3"]
    assert (len(chart.median), chart.rows) == (COLUMNS, LINES + 1)
    assert all(low <= middle <= high for low, middle, high in zip(chart.low, chart.median, chart.high, strict=True))


def test_the_band_is_that_of_the_others():
    """One of a few ranks that is far away would else stretch it, as if the others varied."""
    rows = [
        log(rank, [5.0 if rank == 3 and at >= 30 else 1.0 for at in range(40)], field="compute") for rank in range(8)
    ]
    (chart,) = curves(Evidence(streams=tuple(rows)), report(Suspect("rank", rank=3))).charts
    assert set(chart.low) == set(chart.high) == {1.0}


def test_what_is_no_number_is_marked_and_never_drawn():
    """NaN, infinite, beyond any measurement."""
    evidence = Evidence(streams=(log(0, [1.0, 2.0, math.nan, 3.0, math.inf, 1e200]),))
    (chart,) = curves(evidence, report()).charts
    assert chart.lines[0].values[:6] == (1.0, 2.0, None, 3.0, None, None)
    assert chart.lines[0].broken == (2, 4, 5)


def test_a_run_that_is_well_has_no_failing_step():
    """Nothing failed, so nothing is marked."""
    (chart,) = curves(Evidence(streams=(log(0, [1.0, 2.0, 3.0]),)), report(verdict="no_fault")).charts
    assert chart.at is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0]])
def test_a_few_values_are_no_curve(values):
    """Nor is nothing."""
    assert curves(Evidence(streams=(log(0, values),)), report()) == Curves()


def test_memory_that_never_changes_is_no_chart():
    """It tells nothing; a loss that never changes does, and so does one rank with more memory than the others."""
    logs = [log(rank, [4e9] * 20, field="memory") for rank in range(3)]
    assert curves(Evidence(streams=tuple(logs)), report()) == Curves()
    more = (*logs, log(3, [5e9] * 20, field="memory"))
    assert [chart.metric for chart in curves(Evidence(streams=more), report()).charts] == ["memory"]
    same = tuple(log(rank, [1.0] * 20) for rank in range(3))
    assert [chart.metric for chart in curves(Evidence(streams=same), report()).charts] == ["loss"]


def test_steps_that_nobody_counts_up_to_are_left_out():
    """So that the grid is of this run."""
    strange = replace(
        log(0, [1.0] * 9), series=Series(tuple(ProgressPoint(at, step=10**18 + at, loss=1.0) for at in range(9)))
    )
    assert curves(Evidence(streams=(strange,)), report()) == Curves()


def test_the_suspects_own_gpu_is_beside_the_nodes():
    """Of many rows a node is one, its suspect apart; the metric in which it is far off comes first."""

    def rows(low):
        return [
            (
                Resource(node=f"n{node}", rank=8 * node + gpu, gpu=str(gpu)),
                [95.0] * 20 + [low if (node, gpu) == (2, 5) else 95.0] * 10,
            )
            for node in range(16)
            for gpu in range(8)
        ]

    job = Job(nodes={f"n{node}": tuple(range(8 * node, 8 * node + 8)) for node in range(16)})
    evidence = Evidence(job=job, panels={"gpu_power": panel(rows(95.0), "gpu_power"), "gpu_util": panel(rows(0.0))})
    first, second = curves(evidence, report(Suspect("rank", node="n2", rank=21), first_seen=NOON + 1200.0)).charts
    assert (first.metric, first.title, first.unit, first.axis, first.at) == (
        "gpu_util",
        "GPU utilisation",
        "%",
        "time",
        NOON + 1200.0,
    )
    assert [(line.label, line.why, line.values[0], line.values[-1]) for line in first.lines if line.why] == [
        ("rank 21", "suspect", 95.0, 0.0)
    ]
    assert (first.rows, second.metric) == (17, "gpu_power")


def test_a_gpu_is_suspected_by_its_number_and_a_node_by_its_name():
    """Of few rows each has its line."""
    rows = [(Resource(node=node, gpu=gpu), [1.0, 2.0, 3.0]) for node in ("a", "b") for gpu in ("0", "1")]
    evidence = Evidence(panels={"gpu_util": panel(rows)})
    (of_gpu,) = curves(evidence, report(Suspect("gpu", "a", gpu=GpuRef(1)))).charts
    (of_node,) = curves(evidence, report(Suspect("node", "b"))).charts
    assert [line.label for line in of_gpu.lines if line.why] == ["a GPU 1"]
    assert [line.label for line in of_node.lines if line.why] == ["b GPU 0", "b GPU 1"]


@pytest.mark.parametrize(
    ("ranks", "marked"), [({"a": (0, 1), "b": (2, 3)}, ["b GPU 1"]), ({"a": (0,), "b": (3,)}, ["b GPU 0", "b GPU 1"])]
)
def test_a_rank_is_suspected_with_its_own_gpu_where_each_rank_has_one(ranks, marked):
    """The other GPUs of its node are those of other ranks; where the numbers differ, any of them can be its own."""
    rows = [(Resource(node=node, gpu=gpu), [1.0, 2.0, 3.0]) for node in ("a", "b") for gpu in ("0", "1")]
    evidence = Evidence(job=Job(nodes=ranks), panels={"gpu_util": panel(rows)})
    (chart,) = curves(evidence, report(Suspect("rank", "b", rank=3))).charts
    assert [line.label for line in chart.lines if line.why] == marked


def test_what_was_not_measured_is_unknown_and_never_nothing():
    """Holes stay holes, in the mean of a node too."""
    rows = [(Resource(node="a"), [math.nan, 4.0, math.nan, 6.0, 8.0]), (Resource(node="b"), [math.nan] * 5)]
    (chart,) = curves(Evidence(panels={"gpu_util": panel(rows)}), report()).charts
    assert [(line.label, line.values) for line in chart.lines] == [("a", (None, 4.0, None, 6.0, 8.0))]


@pytest.mark.slow  # test_many_ranks_are_a_median_with_a_band
def test_it_stays_small_whatever_the_size_of_the_job():
    """With many metrics of many rows, many of which are suspects."""
    chance = np.random.default_rng(7)
    rows = [(Resource(node=f"n{node}"), chance.random(3000)) for node in range(300)]
    evidence = Evidence(
        panels={f"metric_{at}": panel(rows, f"metric_{at}") for at in range(9)} | {"gpu_util": panel(rows)}
    )
    made = curves(evidence, report(*(Suspect("node", f"n{node}") for node in range(20))))
    assert len(made.charts) == METRICS
    assert all(len(chart.lines) <= OWN and len(chart.median) <= COLUMNS for chart in made.charts)
    fewer = curves(evidence, report(Suspect("node", "n1")), lines=1, columns=15)
    assert all(len(chart.median) <= 15 for chart in fewer.charts)
