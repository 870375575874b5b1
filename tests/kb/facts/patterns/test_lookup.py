"""Facts of a job: stage, iteration, tracebacks, whether the run went on, and the tests of exceptions and structures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.facts.log.stream_facts import StreamFacts
from kb.facts.patterns.lookup import PatternLookup
from kb.facts.patterns.signals import PatternResult
from kb.facts.patterns.structure_tests import exception_test, structure_test
from kb.model import Job, Structure
from kb.rulebase.rule import DetectorTest, ExceptionTest, Pattern, StructureTest, Where
from kb.scanning.summary import StageMark
from tests.support.kb_samples import exception, facts, hits, place, ref, rule, rulebook, scanned, steps, stream

LINE = Pattern("line", literal="trouble")
RULE = rule("r", "code_bug", LINE)
KEY = "r#line"


def seen(pattern: Pattern, *streams: object, job: Job | None = None) -> PatternResult:
    """A pattern of RULE looked up."""
    return PatternLookup(facts(*streams, job=job)).look_up(RULE, pattern)  # type: ignore[arg-type]


def test_the_stage_is_that_of_the_last_mark_or_step() -> None:
    """Before any mark the stage is not known; iteration lines after a mark mean iterating."""
    marks = [StageMark(100, "init"), StageMark(5000, "saving")]
    one = StreamFacts(stream(marks=marks, points=steps(1, 10, start=1000)))
    assert [one.stage(at) for at in (50, 100, 999, 1500, 5000, 9999)] == [
        None,
        "init",
        "init",
        "iterating",
        "saving",
        "saving",
    ]


def test_the_iteration_is_the_last_step_before() -> None:
    """A place belongs to the step logged last; validation lines and lines without a step do not count."""
    points = [*steps(7, 9), *steps(50, 50, start=300, validation=True), *steps(0, 0, start=400)]
    points[-1] = type(points[-1])(400)
    one = StreamFacts(stream(points=points))
    assert [one.iteration(at) for at in (0, 150, 350, 450)] == [7, 8, 9, 9]
    assert StreamFacts(stream(points=steps(7, 9, start=100))).iteration(99) is None


def test_a_line_is_in_a_traceback_from_its_head_to_its_last_line() -> None:
    """The span of a traceback ends behind the exception's own line."""
    one = exception(900, start=500)
    known = StreamFacts(stream(structures=[one]))
    assert [known.in_traceback(at) for at in (499, 500, 899, 900, one.end - 1, one.end)] == [
        False,
        True,
        True,
        True,
        True,
        False,
    ]


def test_overlapping_tracebacks_are_both_looked_at() -> None:
    """A chain's inner traceback does not hide the outer one around it."""
    known = StreamFacts(stream(structures=[exception(3000, start=100), exception(400, start=200)]))
    assert known.in_traceback(1000)
    assert not known.in_traceback(3500)


@pytest.mark.parametrize(("further", "expected"), [(0, False), (2, False), (3, True), (9, True)])
def test_three_further_steps_mean_that_the_run_went_on(further: int, expected: bool) -> None:
    """One or two steps may still be logged by other ranks; three are progress."""
    points = [*steps(1, 5), *steps(6, 5 + further, start=2000)]
    assert StreamFacts(stream(points=points)).went_on(1000) is expected


def test_the_same_step_reported_by_many_ranks_is_one_step() -> None:
    """Repeated lines of one step are not progress."""
    points = [*steps(5, 5), *(p for n in range(8) for p in steps(6, 6, start=2000 + n))]
    assert StreamFacts(stream(points=points)).steps_after(1000) == 1


def test_a_run_that_says_that_it_ended_well_went_on() -> None:
    """An error before "training completed" did not end it; a planned stop does not count as that."""
    ended = Structure("run_end", 5000, 5010, "done", {"how": "completed"})
    assert StreamFacts(stream(structures=[ended])).went_on(100)
    assert not StreamFacts(stream(structures=[ended])).went_on(6000)
    stopped = Structure("run_end", 5000, 5010, "stop", {"how": "signal"})
    assert not StreamFacts(stream(structures=[stopped])).went_on(100)


def test_a_stream_without_steps_is_judged_by_the_times_of_another() -> None:
    """A rank's error is survived when the log of steps goes on for a minute and more after it."""
    error = stream("rank-3.log", {KEY: [place(10, time=1000.0)]})
    late = stream(points=[p for n in range(5) for p in steps(n, n, start=n, time=1000.0 + 50 * n)])
    soon = stream(points=[p for n in range(5) for p in steps(n, n, start=n, time=1000.0 + 10 * n)])
    assert [s.survived for s in seen(LINE, error, late).signals] == [True]
    assert [s.survived for s in seen(LINE, error, soon).signals] == [False]
    assert [s.survived for s in seen(LINE, error).signals] == [False]


def test_the_step_of_an_error_is_found_by_time_in_another_stream() -> None:
    """If its own stream has no steps, the stream that logs steps gives the last step before the error."""
    error = stream("rank-3.log", {KEY: [place(10, time=1025.0)]}, marks=[StageMark(0, "init")])
    log = stream(points=[p for n in range(5) for p in steps(n, n, start=n, time=1000.0 + 10 * n)])
    signal = seen(LINE, error, log).signals[0]
    assert (signal.stage, signal.iteration) == ("iterating", 2)


def test_an_error_without_a_time_stands_where_the_run_ended() -> None:
    """A rank's error file without steps and times takes the last stage and step of the run; saving stays saving."""
    error = stream("rank-3.err", {KEY: [place(10)]})
    log = stream(points=steps(1, 30), marks=[StageMark(50_000, "saving"), StageMark(60_000, "teardown")])
    signal = seen(LINE, error, log).signals[0]
    assert (signal.stage, signal.iteration) == ("saving", 30)
    alone = seen(LINE, error).signals[0]
    assert (alone.stage, alone.iteration) == (None, None)


def test_hits_of_all_streams_are_counted_whole() -> None:
    """Counts and ranks speak of all lines, also of those whose places were not kept."""
    first = stream("a.log", {KEY: hits(place(1, rank=0), count=500)})
    second = stream("b.log", {KEY: [place(5, rank=1), place(9, rank=1)]})
    found = seen(LINE, first, second)
    assert found.count == 502
    assert dict(found.ranks) == {0: 1, 1: 2}
    assert [(s.stream, s.offset) for s in found.signals] == [(0, 1), (1, 5), (1, 9)]


def test_the_layout_of_the_job_tells_a_ranks_node() -> None:
    """A line that names its rank only is placed on the node that the job's layout gives; a line's own word wins."""
    job = Job(nodes={"node-a": (0, 1), "node-b": (2, 3)})
    one = stream(found={KEY: [place(1, rank=2), place(2, rank=2, node="node-x"), place(3, rank=9)]})
    assert [s.resource.node for s in seen(LINE, one, job=job).signals] == ["node-b", "node-x", None]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(), [100, 550, 2100]),
        (Where(sources=("job",)), [100, 550, 2100]),
        (Where(sources=("kernel",)), []),
        (Where(stages=("init",)), [100, 550]),
        (Where(stages=("iterating",)), [2100]),
        (Where(in_traceback=True), [550]),
        (Where(in_traceback=False), [100, 2100]),
        (Where(last_frame=r"loader\.py"), [550]),
        (Where(last_frame=r"saver\.py"), []),
    ],
)
def test_where_limits_the_places_of_a_pattern(where: Where, expected: list[int]) -> None:
    """Source, stage, traceback and innermost frame each leave only the places that fit."""
    one = stream(
        found={KEY: [place(100), place(550), place(2100)]},
        structures=[exception(600, start=500, last_frame="/app/loader.py:7 in read")],
        marks=[StageMark(0, "init")],
        points=steps(1, 1, start=2000),
    )
    found = seen(Pattern("line", literal="trouble", where=where), one)
    assert [s.offset for s in found.signals] == expected
    assert found.count == len(expected)


BROKEN = exception(
    900,
    "OutOfMemoryError",
    "CUDA out of memory. Tried to allocate 3.00 GiB",
    frames="/app/train.py:9 in main\n/lib/torch/nn.py:40 in forward",
    last_frame="/lib/torch/nn.py:40 in forward",
)


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        (ExceptionTest(type="OutOfMemoryError"), True),
        (ExceptionTest(type=".*MemoryError"), True),
        (ExceptionTest(type="MemoryError"), False),
        (ExceptionTest(message=r"allocate (?P<size>\S+ GiB)"), True),
        (ExceptionTest(message="host memory"), False),
        (ExceptionTest(frame=r"train\.py"), True),
        (ExceptionTest(last_frame=r"train\.py"), False),
        (ExceptionTest(last_frame="in forward$"), True),
        (ExceptionTest(type=".*", not_message="CUDA"), False),
        (ExceptionTest(type=".*", not_message="MPS"), True),
        (ExceptionTest(type=".*", not_frame=r"train\.py"), False),
        (ExceptionTest(type=".*", not_last_frame=r"train\.py"), True),
        (ExceptionTest(type=".*", not_last_frame=r"nn\.py"), False),
    ],
)
def test_exceptions_are_tested_by_type_message_and_frames(test: ExceptionTest, holds: bool) -> None:
    """The type matches whole; message and frames are searched; the denied must not be found."""
    assert (exception_test(test)(BROKEN) is not None) is holds


def test_an_exception_gives_its_captures() -> None:
    """Type, message and last frame can be used in a rule's texts, and what its message regex names."""
    captures = exception_test(ExceptionTest(message=r"allocate (?P<size>\S+ GiB)"))(BROKEN)
    assert captures is not None
    assert captures["size"] == "3.00 GiB"
    assert captures["type"] == "OutOfMemoryError"
    assert captures["last_frame"].endswith("in forward")


XID = Structure("xid", 10, 60, "NVRM: Xid", {"xid": 48, "pci": "0000:3b:00", "process": None})


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        (StructureTest("xid"), True),
        (StructureTest("xid", {"xid": "48|63"}), True),
        (StructureTest("xid", {"xid": "4"}), False),
        (StructureTest("xid", {"process": ""}), True),
        (StructureTest("xid", {"unit": ".+"}), False),
        (StructureTest("xid", {}, {"xid": "4\\d"}), False),
        (StructureTest("xid", {}, {"xid": "79"}), True),
    ],
)
def test_structures_are_tested_field_by_field(test: StructureTest, holds: bool) -> None:
    """Each field's text must match whole; a field that is not there reads as empty."""
    found = structure_test(test)(XID)
    assert found == ({"xid": "48", "pci": "0000:3b:00"} if holds else None)


def test_structures_and_exceptions_become_signals() -> None:
    """A structure's signal spans its block and gives its place in a chain."""
    one = stream(structures=[exception(900, start=500, rank=4, chain=1), XID], points=steps(1, 3))
    raised = seen(Pattern("line", exception=ExceptionTest(type="ValueError")), one)
    assert (raised.count, dict(raised.ranks)) == (1, {4: 1})
    signal = raised.signals[0]
    assert (signal.kind, signal.chain, signal.span[0], signal.iteration) == ("exception", 1, 500, 3)
    assert seen(Pattern("line", structure=StructureTest("xid")), one).signals[0].kind == "xid"


def test_a_detector_gives_a_signal_at_its_point() -> None:
    """What a detector finds in a stream's series is placed at the step where it went wrong, without a rank."""
    bad = [*steps(1, 5, loss=2.0), *steps(6, 9, start=600, loss=float("nan"))]
    found = seen(Pattern("line", detect=DetectorTest("loss_not_finite")), stream(points=bad), stream(points=bad[:5]))
    assert [(s.stream, s.iteration, s.kind, s.offset) for s in found.signals] == [(0, 6, "series", 600)]
    assert found.signals[0].captures["value"] == "nan"


def test_a_loss_that_follows_returns_has_no_level_to_leave() -> None:
    """The same losses are a jump where the lines have no returns of episodes."""
    jump = [*steps(101, 140, loss=2.0), *steps(141, 160, start=9000, loss=90.0)]
    said = "".join(f"episode={n} return=-4.5 loss=90.0\n" for n in range(4))
    pattern = Pattern("line", detect=DetectorTest("loss_spike"))
    assert seen(pattern, stream(points=jump)).count
    assert not seen(pattern, replace(stream(points=jump), tail=said, tail_offset=8000)).count


def test_the_number_of_ranks_comes_from_the_job_or_the_streams() -> None:
    """The job's world size counts; else the ranks whose logs there are; else it is not known."""
    logs = [stream(ref(f"rank-{n}.log", rank=n)) for n in range(4)]
    assert facts(*logs, job=Job(world_size=64)).ranks_known() == 64
    assert facts(*logs).ranks_known() == 4
    assert facts(stream()).ranks_known() == 0


def test_the_furthest_step_is_the_last_point() -> None:
    """Of all streams the furthest step counts, though another stream is longer."""
    known = facts(stream("a.log", points=steps(1, 9)), stream("b.log", points=steps(40, 44)), stream("c.log"))
    point = known.last_point()
    assert point is not None
    assert point.step == 44
    assert facts(stream()).last_point() is None


def test_a_line_has_the_rank_of_its_traceback() -> None:
    """A logger names the rank only above the traceback; the exception's own line belongs to it, other lines do not."""
    text = (
        "rank:  3 | 2026-03-01 10:00:00,000 CRITICAL | Traceback (most recent call last):\n"
        '  File "/srv/fit.py", line 3, in <module>\n    fit()\nRuntimeError: trouble in the step\ntrouble elsewhere\n'
    )
    found = PatternLookup(facts(scanned(text, rulebook(RULE)))).look_up(RULE, LINE)
    assert [signal.resource.rank for signal in found.signals] == [3, None]
