"""The scanner: what it keeps, and that cuts and shards do not change it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from kb.model import Resource, StreamRef
from kb.scanning.scanner import AFTER, BEFORE, Scanner, scan
from kb.scanning.summary import FIRST_PLACES, LAST_PLACES, LAST_POINTS, POINTS, StreamSummary, merge
from tests.support.kb_samples import PLAN, matcher

ENGINE = matcher()
MERGED = StreamRef("train.log")


def summary(text: bytes, ref: StreamRef = MERGED) -> StreamSummary:
    """The summary of a text given whole."""
    return scan(PLAN, ENGINE, ref, [text])


def sample(lines: int, seed: int = 1) -> bytes:
    """A log of mixed lines: ranks, hits, iteration lines, tracebacks, progress bars."""
    chance = random.Random(seed)
    parts = []
    for number in range(lines):
        rank = chance.randint(0, 7)
        parts.append(
            chance.choice(
                [
                    f"[rank{rank}]: nothing to see here {number}\n",
                    f"[rank{rank}]: CUDA out of memory. Tried to allocate {number}.5 GiB\n",
                    f"[2026-11-03 04:{number % 60:02d}:00] iteration {number:8d}/ 500 | elapsed time per iteration (ms): 10.0 | lm loss: 1.{number}E+00 |\n",
                    f"[rank{rank}]: Connection closed by peer [10.0.0.{rank}]\r\n",
                    f"Fatal trouble in module{number}\n",
                    f"Fatal trouble in module{number} (harmless)\n",
                    (
                        "Traceback (most recent call last):\n"
                        f"  File \"/app/train.py\", line {number}, in step\n    run()\nKeyError: 'k{number}'\n"
                    ),
                ]
            )
        )
    return "".join(parts).encode()


def test_a_hit_is_reported_with_line_rank_and_captures() -> None:
    """A place carries what a person would want to know of the line."""
    text = b"start\n[rank5]: torch: CUDA out of memory. Tried to allocate 2.50 GiB more\n"
    hits = summary(text).hits["oom#line"]
    assert hits.count == 1
    place = hits.first[0]
    assert place.offset == 6
    assert place.resource.rank == 5
    assert dict(place.captures) == {"size": "2.50 GiB"}


def test_carriage_returns_end_lines() -> None:
    """A progress bar glued in front of a message does not hide it from a pattern that starts the line."""
    assert summary(b" 45%|####   | 3/7\rFatal trouble in loader\r\n").hits["anchored#line"].count == 1


def test_a_start_of_line_means_the_start_of_the_message() -> None:
    """Prefixes are peeled before `^`; text before the words is not a prefix."""
    assert summary(b"[rank3]: Fatal trouble in x\n").hits["anchored#line"].count == 1
    assert "anchored#line" not in summary(b"no Fatal trouble in x\n").hits


def test_a_denied_line_is_not_a_hit() -> None:
    """`not_line` takes the harmless twin out of the count."""
    assert summary(b"Fatal trouble in a\nFatal trouble in b (harmless)\n").hits["anchored#line"].count == 1


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
def test_cuts_do_not_change_the_summary(size: int) -> None:
    """Fed whole or in pieces, the summary is the same."""
    text = sample(400)
    scanner = Scanner(PLAN, ENGINE, MERGED)
    for start in range(0, len(text), size):
        scanner.feed(text[start : start + size])
    assert scanner.finish() == summary(text)


def shards(text: bytes, cuts: list[int]) -> list[StreamSummary]:
    """The summaries of shards of a text, each seeing context around its own lines."""
    edges = [0, *cuts, len(text)]
    found = []
    for start, stop in pairwise(edges):
        origin = max(0, start - BEFORE)
        scanner = Scanner(PLAN, ENGINE, MERGED, origin=origin, own_start=start, own_stop=stop, year=2026)
        scanner.feed(text[origin : stop + AFTER])
        found.append(scanner.finish())
    return found


def test_shards_merge_into_the_whole_in_any_order() -> None:
    """However a stream is cut, and in whatever order the parts are merged, nothing is lost or counted twice."""
    text = sample(3000, seed=3)
    chance = random.Random(5)
    whole = scan(PLAN, ENGINE, MERGED, [text], year=2026)
    for _ in range(4):
        parts = shards(text, sorted(chance.sample(range(1, len(text)), 3)))
        chance.shuffle(parts)
        left = merge(merge(parts[0], parts[1]), merge(parts[2], parts[3]))
        right = merge(parts[3], merge(merge(parts[2], parts[0]), parts[1]))
        assert left == right
        assert left.hits == whole.hits
        assert left.series.points == whole.series.points
        assert left.size == whole.size == len(text)
        assert left.marks == whole.marks


def test_what_is_kept_is_bounded() -> None:
    """A storm of hits is counted whole and kept in part: the first few of each rank, and the last."""
    text = b"".join(b"[rank%d]: Connection closed by peer\n" % (n % 900) for n in range(20_000))
    hits = summary(text).hits["closed#line"]
    assert hits.count == 20_000
    assert len(hits.first) == FIRST_PLACES
    assert len(hits.last) == LAST_PLACES
    assert {tally.rank: tally.count for tally in hits.ranks}[899] == 22


def test_structures_are_bounded_and_keep_the_odd_one_out() -> None:
    """Among thousands of like exceptions the one of another kind is not lost."""
    alike = [b"[rank%d]: ConnectionError: peer %d gone\n" % (n % 64, n) for n in range(5000)]
    text = b"".join([*alike[:2500], b"[rank7]: ZeroDivisionError: division by zero\n", *alike[2500:]])
    kinds = [str(structure.fields["type"]) for structure in summary(text).structures if structure.kind == "exception"]
    assert "ZeroDivisionError" in kinds
    assert len(kinds) < 500


def test_a_line_without_end_is_bounded() -> None:
    """A line of many megabytes is scanned, its text cut."""
    text = b"x" * 9_000_000 + b" Connection closed by peer " + b"y" * 3_000_000 + b"\nFatal trouble in end\n"
    found = summary(text)
    assert found.hits["closed#line"].count == 1
    assert len(found.hits["closed#line"].first[0].line) <= 512
    assert found.hits["anchored#line"].count == 1


@pytest.mark.parametrize(
    "junk", [b"", b"\n", b"\0" * 5000, bytes(range(256)) * 40, b"\xff\xfe\xfa" * 999, b"\r\r\r\n\n"]
)
def test_junk_gives_a_summary(junk: bytes) -> None:
    """Whatever the bytes, there is an answer and no error."""
    found = summary(junk + b"\n[rank1]: Connection closed by peer\n" + junk)
    assert found.hits["closed#line"].count == 1


def test_a_streams_own_rank_applies_where_lines_have_none() -> None:
    """The file name gives the rank of lines that have none; a line's own prefix takes precedence."""
    ref = replace(MERGED, resource=Resource(rank=3, node="node-a"))
    place = summary(b"Connection closed by peer\n", ref).hits["closed#line"].first[0]
    assert (place.resource.rank, place.resource.node) == (3, "node-a")


@pytest.mark.parametrize(
    "prefix", ["[rank5]: ", "[rank: 5] ", "node-3: [rank5]: ", "   5: ", "2026-11-03 04:12:00 [rank5]: "]
)
def test_a_rank_is_tallied_as_it_is_placed(prefix: str) -> None:
    """For any prefix, also in a log named after another rank: tally and place have the same rank."""
    text = f"{prefix}Connection closed by peer\n".encode() * 3
    for ref in (MERGED, replace(MERGED, resource=Resource(rank=0))):
        hits = summary(text, ref).hits["closed#line"]
        assert {tally.rank: tally.count for tally in hits.ranks} == {5: 3}
        assert {place.resource.rank for place in hits.places()} == {5}


def test_iteration_lines_become_a_series() -> None:
    """Steps and losses are read, in order, with their time."""
    text = b"".join(
        b" [2026-11-03 04:12:%02d] iteration %8d/ 500 | elapsed time per iteration (ms): 10.0 | lm loss: 1.5E+00 |\n"
        % (n, n)
        for n in range(10, 30)
    )
    series = summary(text).series
    assert [point.step for point in series.points] == list(range(10, 30))
    assert series.points[0].loss == 1.5
    assert series.points[1].time is not None
    assert series.points[0].time is not None
    assert series.points[1].time - series.points[0].time == 1.0


def test_a_log_of_iteration_lines_alone_is_thinned_alike_however_it_is_cut() -> None:
    """Many thousands of steps are kept in part, the same part for a whole stream and for its shards, the ends always."""
    text = b"".join(
        b"iteration %8d/ 90000 | elapsed time per iteration (ms): 10.0 | lm loss: 1.5E+00 |\n" % n
        for n in range(30_000)
    )
    whole = scan(PLAN, ENGINE, MERGED, [text], year=2026)
    assert POINTS // 3 < len(whole.series.points) <= POINTS + LAST_POINTS + 2
    assert (whole.series.points[0].step, whole.series.points[-1].step) == (0, 29_999)
    parts = shards(text, [700_000, 1_900_000])
    joined = merge(parts[2], merge(parts[0], parts[1]))
    assert [point.step for point in joined.series.points] == [point.step for point in whole.series.points]


def losses(text: bytes) -> list[tuple[int | None, float | None]]:
    """Step and loss of the training points of a text."""
    return [(p.step, p.loss) for p in summary(text).series.points if not p.validation]


def test_evaluations_do_not_stand_for_the_steps_beside_them() -> None:
    """However many lines of validation losses or of bare bars a block has, the lines of a general form are read as well."""
    steps = b"".join(b"iter %d: loss 3.5, time 9.0ms\n" % n for n in range(40))
    checks = b"".join(b"step %d: train loss 3.5, val loss 3.75\n" % n for n in range(40))
    bars = b"".join(b"Loading parts: 10%%|#  | %d/99 [00:31<00:39,  3.80s/it]\n" % n for n in range(40))
    assert [step for step, _ in losses(checks + bars + steps)] == list(range(40))

    lost = checks.replace(b"3.5", b"nan").replace(b"3.75", b"nan")
    assert [step for step, _ in losses(lost + steps)] == list(range(40))


def test_a_message_glued_to_a_bare_bar_is_read_for_its_loss() -> None:
    """The bar gives the step; the loss is in the text that another program wrote after it."""
    line = b" 10%%|#  | %d/99 [00:31<00:39,  3.80s/it]INFO - iter: %d loss: 2.5\n"
    assert losses(b"".join(line % (n, n) for n in range(20)))[:2] == [(0, 2.5), (1, 2.5)]


def test_forms_at_home_keep_the_general_ones_away() -> None:
    """If a program prints its losses in its own form, lines of another form that look like steps are ignored."""
    own = b"".join(b"{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': %d.5}\n" % n for n in range(20))
    assert losses(own + b"looking back at step 3 loss: 9.5\n") == [(None, 2.5)] * 20


def test_a_change_of_size_is_kept_among_many_steps() -> None:
    """A line that says that sequences are longer from here on is not lost where the steps are thinned."""
    steps = [b"iter %d: loss 3.5, time 9.0ms\n" % n for n in range(5000)]
    steps.insert(2500, b"sequence length increased from 2048 to 4096\n")
    found = summary(b"".join(steps)).series.points
    assert [point.format for point in found].count("resized") == 1


def test_json_lines_tell_when_a_log_begins_and_ends() -> None:
    """Of structured lines the keys count, for times as numbers and for ranks too."""
    lines = [
        b'{"timestamp": %d, "rank": 4, "step": %d, "loss": 1.0}\n' % (1795143845 + step, step) for step in (1, 2, 3)
    ]
    found = summary(b"".join(lines))
    assert (found.first_time, found.last_time) == (1795143846.0, 1795143848.0)
    assert [(point.step, point.rank, point.time) for point in found.series.points] == [
        (step, 4, 1795143845.0 + step) for step in (1, 2, 3)
    ]
