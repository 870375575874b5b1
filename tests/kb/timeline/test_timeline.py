"""The timeline as a value: the order of rows, folding, the span shown, and the notes when nothing can be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import OWN, Job, ProgressPoint, Resource, StreamRef, Structure
from kb.report import Diagnosis, EvidenceItem, Hang, Report, Suspect, Versions, Vote
from kb.timeline.picture import COLUMNS, MOST_ROWS, Timeline
from kb.timeline.rows import RowError, StreamActivity, Voice, cleaned, levels
from kb.timeline.standouts import STANDOUTS
from kb.timeline.timeline import timeline
from tests.support.kb_samples import BOOK, place, ref, stream

NOON = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
WIDE = 100  # bytes of a line
HUNG = Report("", "", "no_match", "hung", "", Versions("1", "0", "d", "1"), hang=Hang(called=True))


def log(rank=None, count=100, *, pace=3.0, start=NOON, node=None, uri=None, **more):
    """A rank's log: an iteration line every `pace` seconds."""
    points = [ProgressPoint(at * WIDE, step=at, time=start + at * pace) for at in range(count)]
    made = stream(
        (uri and ref(uri)) or ref(f"logs/rank-{rank}.log", rank, node), points=points, size=count * WIDE, **more
    )
    return replace(made, first_time=start, last_time=start + (count - 1) * pace)


def accused(*suspects, phase="failed", title="A GPU left the bus", evidence=()):
    """A report that holds these responsible."""
    one = Diagnosis(1, "f", "r", 1, title, "", 0.9, "likely", "root_cause", suspects=suspects, evidence=evidence)
    return replace(HUNG, verdict="fault", phase=phase, hang=Hang(), diagnoses=(one,))


def hung(ranks, silent, **more):
    """A job of which one rank stops 32 steps before the others."""
    return Evidence(
        Job(world_size=ranks, collected_at=NOON + 600.0),
        streams=tuple(log(rank, 68 if rank == silent else 100, **more) for rank in range(ranks)),
    )


def test_who_fell_silent_first_is_on_top_and_in_the_title():
    """A rank that stops while the others continue comes first, with its lead in seconds."""
    made = timeline(hung(16, 5), HUNG)
    assert made.finding == "Rank 5 fell silent first, 00:01:36 before the others"
    assert [(row.label, row.why, row.last, row.step) for row in made.standing_out] == [
        ("rank 5", "silent first", NOON + 201.0, 67)
    ]
    assert made.rows[0].label == "rank 5"
    assert [f"rank {at}" for at in range(16) if at != 5] == [row.label for row in made.rows[1:]]


def test_the_first_suspect_of_the_report_is_the_first_row():
    """Suspects come first, in the report's order, regardless of silence."""
    suspects = (Suspect("rank", rank=9), Suspect("rank", rank=2))
    made = timeline(hung(16, 5), accused(*suspects, phase="hung"))
    assert [(row.label, row.suspect) for row in made.standing_out] == [
        ("rank 9", True),
        ("rank 2", True),
        ("rank 5", False),
    ]
    assert made.finding == "Ranks 2,9: A GPU left the bus"


def test_the_first_error_is_found_before_its_cascade():
    """By real rules: the rank that ran out of memory twelve seconds before the others lost it."""
    streams = []
    for rank in range(8):
        when, key = (NOON + 300.0, "oom#line") if rank == 3 else (NOON + 312.0, "closed#line")
        text = "CUDA out of memory. Tried to allocate 2.00 GiB" if rank == 3 else "Connection closed by peer"
        found = {key: [place(100 * WIDE, text, time=when, rank=rank)]}
        streams.append(replace(log(rank, found=found), size=101 * WIDE, last_time=when))
    evidence = Evidence(Job(world_size=8), streams=tuple(streams))
    report = diagnose(evidence, BOOK)
    made = timeline(evidence, report)
    title = report.diagnoses[0].title
    assert f"Rank 3 failed first, 12 s before the others: {title}" == made.finding
    assert RowError(NOON + 300.0, title, cause=True) == made.rows[0].error
    assert [(mark.kind, mark.time) for mark in made.marks] == [("cause", NOON + 300.0)]


def test_the_first_cause_counts_on_every_rank_even_where_steps_follow_it():
    """As of a loss that is not a number: all ranks log on, and an error of before the first cause is survived."""
    found = {"r#line": [place(at * WIDE, "loss nan", time=NOON + 3.0 * at, rank=0) for at in (20, 50, 60)]}
    streams = (log(0, found=found), log(1), log(2))
    item = EvidenceItem("e1", "line", "logs/rank-1.log", "loss nan", 50, offset=50 * WIDE, time=NOON + 150.0, rank=1)
    made = timeline(Evidence(streams=streams), accused(evidence=(item,)))
    errors = {row.label: row.error and (row.error.time, row.error.cause) for row in made.rows}
    assert errors == {"rank 0": (NOON + 150.0, True), "rank 1": (NOON + 150.0, True), "rank 2": None}


def test_the_step_of_a_row_is_also_that_of_lines_about_its_own_part():
    """Ranks that log their own work in a step and no loss; the one that did not reach the last step is behind."""
    logs = [log(rank, 99 if rank == 5 else 100) for rank in range(8)]
    owned = tuple(
        replace(item, series=replace(item.series, points=tuple(replace(p, format=OWN) for p in item.series.points)))
        for item in logs
    )
    made = timeline(Evidence(Job(collected_at=NOON + 600.0), streams=owned), HUNG)
    assert {row.label: row.step for row in made.rows} == {f"rank {rank}": 98 if rank == 5 else 99 for rank in range(8)}


def test_errors_of_others_that_went_on_are_no_lead():
    """If no other row failed, none failed before the others."""
    found = {"oom#line": [place(100 * WIDE, "out of memory", time=NOON + 200.0, rank=1)]}
    streams = (log(0), log(1, found=found), log(2), log(3))
    made = timeline(Evidence(streams=streams), replace(accused(Suspect("rank", rank=1)), phase="degraded"))
    assert made.finding == "Rank 1: A GPU left the bus"


def test_the_mark_of_a_line_without_a_time_is_where_its_row_has_it():
    """Both take the time from the lines above it, which only reading the log again shows."""
    item = EvidenceItem("e1", "line", "logs/rank-1.log", "out of memory", 120, offset=119 * WIDE, rank=1)
    evidence = Evidence(streams=tuple(replace(log(rank), size=120 * WIDE, last_time=NOON + 600.0) for rank in range(3)))
    stamps = StreamActivity(((110 * WIDE, NOON + 500.0),))
    made = timeline(evidence, accused(Suspect("rank", rank=1), evidence=(item,)), lambda _: {1: stamps})
    assert [mark.time for mark in made.marks if mark.kind == "cause"] == [NOON + 500.0]
    assert [row.error.time for row in made.rows if row.error is not None] == [NOON + 500.0]


def test_a_suspected_node_marks_all_its_ranks():
    """All ranks of a node that is at fault are marked."""
    job = Job(world_size=8, nodes={"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)})
    evidence = Evidence(job, streams=tuple(log(rank, node="ab"[rank // 4]) for rank in range(8)))
    made = timeline(evidence, accused(Suspect("node", node="b"), phase="hung"))
    assert [row.label for row in made.standing_out] == ["rank 4", "rank 5", "rank 6", "rank 7"]
    assert made.finding == "Ranks 4-7 (b): A GPU left the bus"


@pytest.mark.quick("1024")
@pytest.mark.parametrize("ranks", [1024, 5000])
def test_many_ranks_are_folded_and_the_odd_one_keeps_its_row(ranks):
    """Groups take whole nodes; every rank is in exactly one row."""
    job = Job(
        world_size=ranks,
        collected_at=NOON + 100.0,
        nodes={f"n{at}": tuple(range(8 * at, 8 * at + 8)) for at in range(ranks // 8)},
    )
    streams = tuple(log(rank, 6 if rank == 517 else 20) for rank in range(ranks))
    made = timeline(Evidence(job, streams=streams), HUNG)
    assert (made.rows[0].label, made.rows[0].count) == ("rank 517", 1)
    assert ranks == sum(row.count for row in made.rows)
    assert MOST_ROWS >= len(made.rows) > 32
    assert made.folded.startswith(f"{ranks - 1:,} of {ranks:,} rows are folded into ")
    assert {"0"} == set(made.rows[0].heard[COLUMNS // 2 :])
    assert all(row.heard[COLUMNS // 2] != "0" for row in made.rows[1:])


@pytest.mark.parametrize(("nodes", "rows"), [(5, 5), (4, 32)])
def test_beyond_32_ranks_a_row_is_a_node(nodes, rows):
    """The odd rank keeps its own row, the others of its node are one; up to 32 ranks each has its row."""
    job = Job(
        world_size=8 * nodes,
        collected_at=NOON + 600.0,
        nodes={f"n{at}": tuple(range(8 * at, 8 * at + 8)) for at in range(nodes)},
    )
    made = timeline(
        Evidence(job, streams=tuple(log(rank, 68 if rank == 17 else 100) for rank in range(8 * nodes))), HUNG
    )

    assert (made.rows[0].label, made.rows[0].count, made.rows[0].why) == ("rank 17", 1, "silent first")
    assert sum(row.count for row in made.rows) == 8 * nodes
    if nodes == 5:
        assert [(row.label, row.node, row.ranks, row.count) for row in made.rows[1:4]] == [
            ("n0", "n0", "0-7", 8),
            ("n1", "n1", "8-15", 8),
            ("n2", "n2", "16,18-23", 7),
        ]
        assert (len(made.rows), made.folded) == (rows + 1, "39 of 40 rows are folded by node")
    else:
        assert (len(made.rows), made.folded) == (rows, "")


def test_ranks_up_to_the_bound_keep_their_rows():
    """Nothing is folded as long as there is room."""
    made = timeline(hung(64, 17), HUNG)
    assert (64, "", {1}) == (len(made.rows), made.folded, {row.count for row in made.rows})


def test_with_too_many_odd_ones_none_is_odd():
    """Half of the ranks silent is not one that fell silent."""
    evidence = Evidence(Job(collected_at=NOON + 900.0), streams=tuple(log(r, 50 + r % 2 * 50) for r in range(32)))
    assert timeline(evidence, HUNG).standing_out == ()
    suspects = tuple(Suspect("rank", rank=rank) for rank in range(16))
    shown = timeline(hung(64, 17), accused(*suspects)).standing_out
    assert len(shown) == STANDOUTS


def test_one_rank_is_a_picture_too():
    """A single rank is not "first"."""
    made = timeline(Evidence(streams=(log(0),)), HUNG)
    assert (
        [row.label for row in made.rows],
        made.standing_out,
        made.finding,
    ) == (["rank 0"], (), "No rank makes progress, and none stands out")


def test_without_times_it_says_so():
    """Rows keep what is known, and no time range is shown."""
    streams = tuple(
        stream(ref(f"logs/rank-{rank}.log", rank), points=[ProgressPoint(0, step=7 - rank // 3)]) for rank in range(4)
    )
    made = timeline(Evidence(streams=streams), HUNG)
    assert (made.start, made.end, made.marks) == (None, None, ())
    assert made.notes == ("the logs have no times, so it is unknown who stopped first",)
    assert [(row.label, row.step, row.why) for row in made.rows] == [
        ("rank 3", 6, "behind"),
        ("rank 0", 7, ""),
        ("rank 1", 7, ""),
        ("rank 2", 7, ""),
    ]
    assert {"0" * COLUMNS} == {row.heard for row in made.rows}


def test_of_nothing_there_is_an_empty_picture():
    """A missing log is not an error."""
    made = timeline(Evidence(), diagnose(Evidence(), BOOK))
    assert Timeline("Not enough evidence to reach a verdict", notes=("no log of the job",)) == made


def test_clocks_that_are_off_are_put_right_by_the_steps():
    """Ranks end a step together: an hour between their stamps is a clock's, and one ahead of the end is the wrong one."""
    right = [log(rank, 68 if rank == 2 else 100) for rank in range(4)]
    wrong = [log(rank, start=NOON + 3600.0) for rank in range(4, 9)]
    evidence = Evidence(Job(collected_at=NOON + 600.0), streams=(*right, *wrong))
    made = timeline(evidence, HUNG)
    assert made.finding == "Rank 2 fell silent first, 00:01:36 before the others"
    assert (made.start, made.end) == (NOON, NOON + 600.0)
    assert {f"rank {rank}": 3600.0 if rank > 3 else 0.0 for rank in range(9)} == {r.label: r.clock for r in made.rows}
    assert {NOON + 297.0} == {row.last for row in made.rows[1:]}
    assert made.notes[0].startswith("the clocks of 5 rows are off, by up to 01:00:00 ahead (rank ")


def test_a_log_of_all_ranks_is_parted_by_who_spoke():
    """Each writer of a shared log has a row; the log itself has one only if it has unattributed lines."""
    said = {rank: [(NOON + at * 5.0, WIDE) for at in range(20 if rank == 1 else 60)] for rank in range(8)}
    voices = tuple(Voice(Resource(rank=rank), tuple(lines), lines[-1][0]) for rank, lines in said.items())
    merged = replace(stream("logs/job.log"), first_time=NOON, last_time=NOON + 295.0)
    evidence = Evidence(Job(collected_at=NOON + 400.0), streams=(merged,))
    made = timeline(evidence, HUNG, lambda _: {0: StreamActivity((), voices)})
    assert made.finding == "Rank 1 fell silent first, 00:03:20 before the others"
    assert {f"rank {rank}" for rank in range(8)} == {row.label for row in made.rows}
    launcher = Voice(Resource(), ((NOON, WIDE),), NOON + 1.0)
    made = timeline(evidence, HUNG, lambda _: {0: StreamActivity((), (*voices, launcher))})
    assert made.rows[-1].label == "job.log"


def test_the_last_act_of_a_long_run_fills_the_picture():
    """Thirty hours before a failure are mentioned, not drawn."""
    evidence = Evidence(Job(end=NOON + 108_060.0), streams=tuple(log(r, 36_000) for r in range(4)))
    boom = {"type": "a.Boom"}
    failure = Structure("exception", 35_999 * WIDE, 36_000 * WIDE, "boom", boom, Resource(rank=0), NOON + 108_000.0)
    streams = (replace(evidence.streams[0], structures=(failure,)), *evidence.streams[1:])
    made = timeline(replace(evidence, streams=streams), replace(HUNG, phase="failed", hang=Hang()))
    assert (made.began, made.end) == (NOON, NOON + 108_060.0)
    assert made.start is not None
    assert made.end - made.start < 600.0
    assert RowError(NOON + 108_000.0, "Boom") == next(row.error for row in made.rows if row.label == "rank 0")


def test_votes_of_a_hang_are_instants_of_the_job():
    """Since when each probe sees it; not where nothing hangs."""
    hang = Hang(True, (Vote("collective", "yes", "", NOON + 280.0), Vote("silence", "no", "", NOON)))
    report = replace(HUNG, hang=hang)
    assert [(mark.kind, mark.time) for mark in timeline(hung(4, 1), report).marks] == [
        ("collective", NOON + 280.0),
        ("looked", NOON + 600.0),
    ]
    calm = replace(report, verdict="no_fault", hang=replace(hang, called=False))
    assert [mark.kind for mark in timeline(hung(4, 1), calm).marks] == ["looked"]


def test_times_from_another_age_do_not_stretch_the_picture():
    """A log whose stamps are years off is left out of the span."""
    odd = replace(log(9, uri="logs/odd.log"), first_time=0.0, last_time=9e9, series=stream().series)
    made = timeline(Evidence(Job(collected_at=NOON + 600.0), streams=(*hung(4, 1).streams, odd)), HUNG)
    assert (made.start, made.end) == (NOON, NOON + 600.0)


def test_names_of_hostile_files_are_short_and_on_one_line():
    """What cannot be printed, or would turn the text around, is replaced; long names lose their middle."""
    assert cleaned("a\n\tb\u202ec", 40) == "a b?c"
    assert cleaned("x" * 5000, 40) == "x" * 20 + "…" + "x" * 19
    name = "logs/$\\frac{1}{$\x00\ud800" + "n" * 300
    made = timeline(Evidence(streams=(replace(stream(StreamRef(name)), first_time=NOON, last_time=NOON),)), HUNG)
    assert [cleaned(name[5:], 40)] == [row.label for row in made.rows]
    assert made.rows[0].label.isprintable()


def test_silence_is_what_is_not_usual_for_a_row():
    """Gaps as long as all others are filled; a longer one, and what comes behind the last line, are not."""
    even = dict.fromkeys(range(0, 60, 4), 1.0)
    assert levels(even, 100) == "9" * 57 + "0" * 43
    assert levels(dict.fromkeys(range(0, 32, 4), 1.0), 100) == "9" * 29 + "0" * 71
    assert levels({0: 1.0, 6: 1.0}, 7) == "9000009"
    assert levels({}, 7) == "0" * 7


def test_who_was_killed_did_not_write_on():
    """A launcher logs whole seconds: the cause is not before what the killed rank still wrote in that second."""
    streams = tuple(replace(log(rank), last_time=NOON + 297.4) for rank in range(4))
    told = EvidenceItem("e1", "line", "logs/node.log", "exitcode: -9", offset=0, time=NOON + 297.0)
    launcher = replace(stream("logs/node.log"), first_time=NOON, last_time=NOON + 299.0)
    report = accused(Suspect("rank", rank=1), evidence=(told,))
    made = timeline(Evidence(streams=(*streams, launcher)), report)
    assert (made.rows[0].label, made.rows[0].error) == (
        "rank 1",
        RowError(NOON + 297.4, "A GPU left the bus", cause=True),
    )
    assert [(mark.kind, mark.time) for mark in made.marks] == [("cause", NOON + 297.4)]


def test_the_star_is_the_suspects_not_the_witness():
    """The line that shows the cause may be another rank's: it noticed first what the suspect did."""
    told = EvidenceItem("e1", "line", "logs/rank-0.log", "received 2304 bytes", rank=0, offset=0, time=NOON + 50.0)
    report = accused(Suspect("rank", rank=1), evidence=(told,))
    made = timeline(Evidence(streams=tuple(log(rank) for rank in range(4))), report)

    assert [row.label for row in made.rows if row.error is not None and row.error.cause] == ["rank 1"]
