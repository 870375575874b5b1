"""Conditions: each kind true, false and unknown, over one stream and over several with their clocks."""

from __future__ import annotations

import pytest

from kb.diagnosis.conditions import ConditionResult, Evaluator, by_time
from kb.facts.history import History, PastIncident
from kb.facts.patterns.lookup import PatternLookup
from kb.model import Job
from kb.rulebase.rule import (
    Absent,
    All,
    Any,
    Condition,
    Count,
    Name,
    Not,
    Past,
    Pattern,
    Ranks,
    RuleException,
    Sequence,
    Span,
)
from kb.scanning.summary import PatternHits, Place, StreamSummary
from tests.support.kb_samples import facts, hits, place, ref, rule, stream

Found = dict[str, list[Place] | PatternHits]
PATTERNS = tuple(Pattern(name, literal=f"text {name}") for name in "abc")
NO_HISTORY = History()


def log(name: str = "train.log", *, rank: int | None = None, node: str | None = None, **found: object) -> StreamSummary:
    """A stream in which the patterns a, b, c were seen at these places."""
    kind = "kernel" if name.startswith("dmesg") else "job"
    return stream(ref(name, rank, node, kind), {f"r#{key}": value for key, value in found.items()})  # type: ignore[misc]


def judge(
    when: Condition,
    *streams: StreamSummary,
    job: Job | None = None,
    history: History = NO_HISTORY,
    not_when: tuple[RuleException, ...] = (),
) -> ConditionResult:
    """The answer of a rule with this condition over patterns a, b, c."""
    one = rule("r", "code_bug", *PATTERNS, when=when, not_when=not_when)
    return Evaluator(one, PatternLookup(facts(*streams, job=job)), history).judge()


def offsets(answer: ConditionResult) -> list[tuple[int, int]]:
    """Which places support an answer, as (stream, offset)."""
    return [(signal.stream, signal.offset) for signal in answer.signals]


UNKNOWN = Count("c", at_least=2, within=Span(seconds=10))  # over the places of NO_TIMES it cannot be told
NO_TIMES = [place(700), place(800)]


def test_a_name_holds_where_its_pattern_was_seen() -> None:
    """Its signals are the places."""
    answer = judge(Name("a"), log(a=[place(10), place(20)]))
    assert (answer.truth, offsets(answer)) == (True, [(0, 10), (0, 20)])
    assert judge(Name("a"), log(b=[place(10)])).truth is False


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (All((Name("a"), Name("b"))), True),
        (All((Name("a"), Name("c"), Not(Name("b")))), False),
        (All((Name("a"), UNKNOWN)), None),
        (All((UNKNOWN, Not(Name("a")))), False),
        (Any((Not(Name("a")), Name("b"))), True),
        (Any((Not(Name("a")), Not(Name("b")))), False),
        (Any((UNKNOWN, Name("a"))), True),
        (Any((UNKNOWN, Not(Name("a")))), None),
        (Not(Name("a")), False),
        (Not(Not(Name("a"))), True),
        (Not(UNKNOWN), None),
    ],
)
def test_three_valued_logic(when: Condition, expected: bool | None) -> None:
    """False beats unknown in `all`, true beats it in `any`, and the opposite of unknown is unknown."""
    answer = judge(when, log(a=[place(1)], b=[place(2)], c=NO_TIMES))
    assert answer.truth is expected
    assert bool(answer.needs) is (expected is None)


def test_a_rule_of_which_nothing_was_seen_does_not_hold() -> None:
    """The absence of something alone is not a finding."""
    assert judge(Not(Name("a")), log()).truth is False


def test_an_exception_to_a_rule_silences_it() -> None:
    """Where `not_when` holds the rule does not; where it is unknown the rule speaks."""
    streams = log(a=[place(1)], b=[place(2)], c=NO_TIMES)
    assert judge(Name("a"), streams, not_when=(RuleException("known", Name("b")),)).truth is False
    assert judge(Name("a"), streams, not_when=(RuleException("known", Not(Name("b"))),)).truth is True
    assert judge(Name("a"), streams, not_when=(RuleException("known", UNKNOWN),)).truth is True


# all … same, within


def test_same_node_joins_a_kernel_log_with_a_ranks_log() -> None:
    """An Xid in node-a's kernel log and an error of a rank on node-a belong together, one on node-b does not."""
    kernel = log("dmesg-node-a.log", node="node-a", a=[place(10, time=100.0, node="node-a")])
    near = log("rank-3.log", rank=3, node="node-a", b=[place(500, time=130.0, rank=3, node="node-a")])
    far = log("rank-9.log", rank=9, node="node-b", b=[place(500, time=130.0, rank=9, node="node-b")])
    when = All((Name("a"), Name("b")), same="node")
    assert offsets(judge(when, kernel, far, near)) == [(0, 10), (2, 500)]
    assert judge(when, kernel, far).truth is False
    assert judge(All((Name("a"), Name("b")), "node", Span(seconds=60)), kernel, near).truth is True
    assert judge(All((Name("a"), Name("b")), "node", Span(seconds=20)), kernel, near).truth is False


def test_same_node_uses_the_layout_of_the_job() -> None:
    """A rank's line that names no node is joined with the node's kernel log by the job's layout, else unknown."""
    kernel = log("dmesg-node-a.log", node="node-a", a=[place(10, node="node-a")])
    lines = log(b=[place(500, rank=3)])
    when = All((Name("a"), Name("b")), same="node")
    assert judge(when, kernel, lines, job=Job(nodes={"node-a": (2, 3)})).truth is True
    assert judge(when, kernel, lines, job=Job(nodes={"node-b": (2, 3)})).truth is False
    answer = judge(when, kernel, lines)
    assert (answer.truth, answer.needs) == (None, "the node of each line")


@pytest.mark.parametrize(
    ("same", "together", "apart"),
    [
        ("rank", {"rank": 1}, {"rank": 2}),
        ("gpu", {"pci": "3b"}, {"pci": "5e"}),
        ("communicator", {"comm": "0x1"}, {"comm": "0x2"}),
        ("communicator", {"pg": "0"}, {"pg": "1"}),
    ],
)
def test_same_joins_by_rank_gpu_and_communicator(
    same: str, together: dict[str, object], apart: dict[str, object]
) -> None:
    """What names the same one holds; what names another does not; what names none is unknown."""
    when = All((Name("a"), Name("b")), same=same)  # type: ignore[arg-type]
    anchor = [place(1, **together)]  # type: ignore[arg-type]
    assert judge(when, log(a=anchor, b=[place(9, **together)])).truth is True  # type: ignore[arg-type]
    assert judge(when, log(a=anchor, b=[place(9, **apart)])).truth is False  # type: ignore[arg-type]
    assert judge(when, log(a=anchor, b=[place(9)])).truth is None


def test_same_stream() -> None:
    """Two patterns in two streams are not in the same one."""
    when = All((Name("a"), Name("b")), same="stream")
    assert judge(when, log(a=[place(1)], b=[place(5)])).truth is True
    assert judge(when, log("x", a=[place(1)]), log("y", b=[place(5)])).truth is False


@pytest.mark.parametrize(
    ("times", "expected"), [((0.0, 30.0), True), ((30.0, 0.0), True), ((0.0, 31.0), False), ((0.0, None), None)]
)
def test_within_a_time(times: tuple[float, float | None], expected: bool | None) -> None:
    """Both orders count; lines without a time leave it open."""
    answer = judge(
        All((Name("a"), Name("b")), within=Span(seconds=30)),
        log(a=[place(1, time=times[0])], b=[place(9, time=times[1])]),
    )
    assert answer.truth is expected


@pytest.mark.parametrize(("gap", "expected"), [(32.0, True), (32.5, False)])
def test_clocks_of_two_streams_may_differ_by_two_seconds(gap: float, expected: bool) -> None:
    """Between two streams a span is two seconds wider; within one stream it is not."""
    when = All((Name("a"), Name("b")), within=Span(seconds=30))
    apart = judge(when, log("x", a=[place(1, time=0.0)]), log("y", b=[place(9, time=gap)]))
    assert apart.truth is expected
    assert judge(when, log(a=[place(1, time=0.0)], b=[place(9, time=gap)])).truth is False


def test_within_lines_is_a_distance_in_one_stream() -> None:
    """Lines of two streams have no distance."""
    when = All((Name("a"), Name("b")), within=Span(lines=10))
    assert judge(when, log(a=[place(5000)], b=[place(4000)])).truth is True
    assert judge(when, log(a=[place(5000)], b=[place(9000)])).truth is False
    assert judge(when, log("x", a=[place(5000)]), log("y", b=[place(5000)])).truth is False


# sequence


def test_a_sequence_follows_the_offsets_of_one_stream() -> None:
    """Order within a stream needs no times; two patterns on one line are in no order."""
    when = Sequence(("a", "b"))
    assert offsets(judge(when, log(a=[place(1)], b=[place(5)]))) == [(0, 1), (0, 5)]
    assert judge(when, log(a=[place(5)], b=[place(1)])).truth is False
    assert judge(when, log(a=[place(5)], b=[place(5)])).truth is False
    assert judge(when, log(a=[place(5)])).truth is False


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(10.0, 20.0, True), (10.0, 8.5, True), (10.0, 7.5, False), (10.0, None, None), (None, 3.0, None)],
)
def test_a_sequence_over_two_streams_goes_by_time(
    first: float | None, second: float | None, expected: bool | None
) -> None:
    """Two seconds of skew are allowed; without times the result is unknown."""
    answer = judge(Sequence(("a", "b")), log("x", a=[place(1, time=first)]), log("y", b=[place(1, time=second)]))
    assert answer.truth is expected


def test_a_sequence_within_a_time_and_within_lines() -> None:
    """Each step has to come within the span of the one before."""
    timed = log(a=[place(1, time=0.0)], b=[place(200, time=50.0)], c=[place(9000, time=100.0)])
    assert judge(Sequence(("a", "b", "c"), Span(seconds=50)), timed).truth is True
    assert judge(Sequence(("a", "b", "c"), Span(seconds=49)), timed).truth is False
    assert judge(Sequence(("a", "b"), Span(lines=5)), timed).truth is True
    assert judge(Sequence(("a", "b", "c"), Span(lines=5)), timed).truth is False
    assert judge(Sequence(("a", "b"), Span(seconds=9)), log(a=[place(1)], b=[place(9)])).truth is None


def test_a_sequence_finds_its_way_whatever_comes_first() -> None:
    """Not the first fitting line of another stream, nor the earliest one, must be the one that leads on."""
    late = log("x", b=[place(1, time=500.0)])
    main = log("y", a=[place(1, time=0.0)], b=[place(500, time=10.0)], c=[place(900, time=20.0)])
    assert offsets(judge(Sequence(("a", "b", "c")), late, main)) == [(1, 1), (1, 500), (1, 900)]
    steps = log(a=[place(1, time=0.0)], b=[place(2, time=5.0), place(3, time=25.0)], c=[place(4, time=50.0)])
    assert offsets(judge(Sequence(("a", "b", "c"), Span(seconds=30)), steps)) == [(0, 1), (0, 3), (0, 4)]


def test_a_sequence_on_the_same_rank() -> None:
    """The steps of two ranks do not make one sequence; lines without a rank leave it open."""
    when = Sequence(("a", "b"), same="rank")
    assert judge(when, log(a=[place(1, rank=0)], b=[place(5, rank=0)])).truth is True
    assert judge(when, log(a=[place(1, rank=0)], b=[place(5, rank=1)])).truth is False
    assert judge(when, log(a=[place(1, rank=0)], b=[place(5)])).truth is None


# count


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Count("a", at_least=3), True),
        (Count("a", at_least=4), False),
        (Count("a", at_most=3), True),
        (Count("a", at_most=2), False),
        (Count("a", at_least=2, at_most=5), True),
        (Count("b", at_most=5), False),
    ],
)
def test_counts(condition: Count, expected: bool) -> None:
    """All lines count; a pattern that was not seen satisfies no count."""
    streams = log("x", a=[place(1)]), log("y", a=[place(1), place(2)])
    assert judge(condition, *streams).truth is expected


def test_a_count_speaks_of_all_lines_not_of_those_kept() -> None:
    """A storm of which a few places are kept is counted whole."""
    assert judge(Count("a", at_least=1000), log(a=hits(place(1), count=1000))).truth is True


def test_a_count_within_a_time() -> None:
    """So many matches within the span at any place; across streams by the clock, with its skew."""
    when = Count("a", at_least=3, within=Span(seconds=60))
    spread = [place(n, time=100.0 * n) for n in range(3)]
    dense = [place(50 + n, time=1000.0 + 30 * n) for n in range(3)]
    assert judge(when, log(a=spread)).truth is False
    assert judge(when, log(a=dense)).truth is True
    assert judge(when, *(log(f"x{n}", a=[place(1, time=31.0 * n)]) for n in range(3))).truth is True
    assert judge(when, log(a=[place(1), place(2), place(3)])).truth is None


def test_a_count_on_the_same_node() -> None:
    """Three lines on three nodes are not three on one."""
    when = Count("a", at_least=2, same="node")
    assert judge(when, log(a=[place(1, node="node-a"), place(2, node="node-b")])).truth is False
    answer = judge(when, log(a=[place(1, node="node-a"), place(2, node="node-b"), place(3, node="node-b")]))
    assert offsets(answer) == [(0, 2), (0, 3)]
    assert judge(when, log(a=[place(1), place(2)])).truth is None


def test_a_count_within_a_span_is_unknown_where_too_few_places_were_kept() -> None:
    """The first and last few of a thousand lines cannot show whether five were ever in one minute."""
    kept = [place(n, time=1000.0 * n) for n in range(4)]
    assert judge(Count("a", at_least=5, within=Span(seconds=60)), log(a=hits(*kept, count=1000))).truth is None
    assert judge(Count("a", at_most=5, within=Span(seconds=60)), log(a=hits(*kept, count=1000))).truth is None
    assert judge(Count("a", at_most=5, within=Span(seconds=60)), log(a=hits(*kept))).truth is True


# absent


@pytest.mark.parametrize(
    ("side", "other", "expected"),
    [
        ("after", 150.0, False),
        ("after", 90.0, True),
        ("after", 900.0, True),
        ("after", None, None),
        ("before", 90.0, False),
        ("before", 150.0, True),
        ("around", 150.0, False),
        ("around", 90.0, False),
        ("around", 900.0, True),
        ("around", None, None),
    ],
)
def test_absence_on_a_side_of_an_anchor(side: str, other: float | None, expected: bool | None) -> None:
    """Lines on the other side or beyond the span do not count as present; without times the result is unknown."""
    when = Absent("b", side, "a", Span(seconds=120))  # type: ignore[arg-type]
    answer = judge(when, log("x", a=[place(500, time=100.0)]), log("y", b=[place(1, time=other)]))
    assert answer.truth is expected
    assert offsets(answer) == ([(0, 500)] if expected else [])


def test_absence_in_one_stream_goes_by_offset() -> None:
    """Without a span the order of the lines is enough; one anchor left alone is enough."""
    when = Absent("b", "after", "a")
    assert judge(when, log(a=[place(500)], b=[place(900)])).truth is False
    assert judge(when, log(a=[place(500)], b=[place(100)])).truth is True
    assert offsets(judge(when, log(a=[place(500), place(950)], b=[place(900)]))) == [(0, 950)]
    assert judge(Absent("b", "before", "a"), log(a=[place(500)], b=[place(900)])).truth is True


def test_absence_needs_its_anchor() -> None:
    """Where the anchor was not seen nothing is missing."""
    assert judge(Absent("b", "after", "a"), log(c=[place(1)])).truth is False
    assert judge(Absent("b", "after", "a"), log(a=[place(1)])).truth is True


def test_absence_near_an_anchor_is_unknown_where_too_few_places_were_kept() -> None:
    """If only a few of a thousand lines are kept, another one may be next to the anchor."""
    when = Absent("b", "after", "a", Span(seconds=60))
    kept = [place(1, time=10.0), place(9000, time=9000.0)]
    assert judge(when, log(a=[place(500, time=500.0)], b=hits(*kept, count=1000))).truth is None
    assert judge(when, log(a=[place(500, time=500.0)], b=hits(*kept))).truth is True


# ranks

EIGHT = Job(world_size=8)


def on(*ranks: int | None) -> StreamSummary:
    """Pattern a on these ranks of a shared log."""
    return log(a=[place(10 * n + 1, rank=rank) for n, rank in enumerate(ranks)])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Ranks("a", at_least=2), True),
        (Ranks("a", at_least=3), False),
        (Ranks("a", at_most=2), True),
        (Ranks("a", at_most=1), False),
        (Ranks("a", fraction_at_least=0.25), True),
        (Ranks("a", fraction_at_least=0.3), False),
        (Ranks("a", fraction_at_most=0.25), True),
        (Ranks("a", fraction_at_most=0.2), False),
        (Ranks("a", all_but=6), True),
        (Ranks("a", all_but=1), False),
        (Ranks("a", fraction_at_least=0.25, at_most=1), False),
        (Ranks("b", at_most=1), False),
    ],
)
def test_rank_quantifiers(condition: Ranks, expected: bool) -> None:
    """Two of eight ranks, the second one twice."""
    assert judge(condition, on(3, 5, 5), job=EIGHT).truth is expected


def test_all_but_one_of_the_ranks() -> None:
    """Seven of eight say it: the silent one is the odd one out."""
    assert judge(Ranks("a", all_but=1), on(*range(7)), job=EIGHT).truth is True
    assert judge(Ranks("a", all_but=0), on(*range(8)), job=EIGHT).truth is True


@pytest.mark.parametrize("condition", [Ranks("a", fraction_at_least=0.1), Ranks("a", all_but=1)])
def test_a_share_of_an_unknown_number_of_ranks_is_unknown(condition: Ranks) -> None:
    """With neither a world size nor logs named after ranks, the share is unknown; with them it is known."""
    answer = judge(condition, on(0, 1, 2))
    assert (answer.truth, answer.needs) == (None, "the number of ranks")
    logs = [log(f"rank-{n}.log", rank=n, a=[place(1, rank=n)] if n else []) for n in range(4)]
    assert judge(condition, *logs).truth is True


def test_lines_without_ranks_leave_a_quantifier_open() -> None:
    """The number of ranks that logged it is unknown where no line has a rank."""
    answer = judge(Ranks("a", at_most=1), on(None, None), job=EIGHT)
    assert (answer.truth, answer.needs) == (None, "ranks of the lines")


def test_the_first_rank_in_time() -> None:
    """The earliest of many is the one that supports it."""
    streams = [log(f"rank-{n}.log", rank=n, a=[place(1, rank=n, time=100.0 - n)]) for n in range(5)]
    assert offsets(judge(Ranks("a", first=True), *streams)) == [(4, 1)]


# history


def past(**parts: object) -> History:
    """One earlier incident."""
    values: dict[str, object] = {"rule": "r", "fault": "gpu_memory_ecc", "days_ago": 3.0, **parts}
    return History((PastIncident(**values),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "history", "expected"),
    [
        (Past(fault="gpu_memory_ecc"), past(node="node-a"), True),
        (Past(fault="gpu_memory_ecc"), past(node="node-b"), False),
        (Past(fault="cuda_oom"), past(node="node-a"), False),
        (Past(rule="r"), past(node="node-a"), True),
        (Past(rule="other"), past(node="node-a"), False),
        (Past(fault="gpu_memory_ecc", within_days=2), past(node="node-a"), False),
        (Past(fault="gpu_memory_ecc", at_least=2), past(node="node-a"), False),
        (Past(fault="gpu_memory_ecc", same="gpu"), past(gpu="3b"), True),
        (Past(fault="gpu_memory_ecc", same="gpu"), past(gpu="5e"), False),
        (Past(fault="gpu_memory_ecc", same="job"), past(job="llm"), True),
        (Past(fault="gpu_memory_ecc", same="job"), past(), False),
    ],
)
def test_history_is_asked_of_the_same_one(condition: Past, history: History, expected: bool) -> None:
    """Fault or rule, age, number, and the node, GPU or job all have to fit."""
    streams = log(a=[place(1, node="node-a", pci="3b")])
    assert judge(All((Name("a"), condition)), streams, job=Job(name="llm"), history=history).truth is expected


@pytest.mark.parametrize("same", ["node", "gpu", "job"])
def test_history_is_unknown_where_nothing_tells_the_node(same: str) -> None:
    """An incident that would fit leaves it open; with no such incident the answer is no."""
    when = All((Name("a"), Past(fault="gpu_memory_ecc", same=same)))  # type: ignore[arg-type]
    assert judge(when, log(a=[place(1)]), history=past(node="node-a", gpu="3b", job="llm")).truth is None
    assert judge(when, log(a=[place(1)])).truth is False


# order


def test_signals_come_in_order_of_time() -> None:
    """Whatever the order of the streams."""
    answer = judge(Name("a"), log("x", a=[place(5), place(9, time=7.0)]), log("y", a=[place(1, time=3.0)]))
    assert [(s.stream, s.offset) for s in by_time(answer.signals)] == [(1, 1), (0, 5), (0, 9)]


def test_a_line_without_a_time_keeps_its_place_in_its_stream() -> None:
    """A stamp on a later line does not make that one the first; streams without any times come last."""
    mixed = log("y", a=[place(10), place(20, time=50.0), place(30), place(40, time=90.0), place(50)])
    answer = judge(Name("a"), log("x", a=[place(1)]), mixed, log("z", a=[place(1, time=70.0)]))
    assert [(s.stream, s.offset) for s in by_time(answer.signals)] == [
        (1, 10),
        (1, 20),
        (1, 30),
        (2, 1),
        (1, 40),
        (1, 50),
        (0, 1),
    ]


@pytest.mark.slow  # the other joins of the module
def test_a_join_over_thousands_of_ranks() -> None:
    """Each rank's lines are joined with its own; none is left out, however many there are."""
    when = All((Name("a"), Name("b")), "rank", Span(seconds=5))
    logs = [
        log(f"rank-{n}.log", rank=n, a=[place(1, rank=n, time=1.0)], b=[place(9, rank=n, time=2.0)])
        for n in range(5000)
    ]
    assert len(judge(when, *logs).signals) == 10_000
