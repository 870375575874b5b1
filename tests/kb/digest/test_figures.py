"""The figures over the answers and feedback of random reports equal those that plain loops over the failures give."""

from __future__ import annotations

import random
from zoneinfo import ZoneInfo

import pytest

from kb.digest.figures import figures
from kb.digest.rows import DigestRow
from kb.digest.statistics import share
from kb.digest.weeks import week_named

WEEK, ZONE = week_named("2026-W47"), ZoneInfo("Europe/Berlin")
JUDGEMENTS = (None, "right", "right_not_first", "wrong", "abstained_rightly")


def reports(seed: int) -> list[DigestRow]:
    """Failures of the eight weeks, each of a job of its own."""
    chance = random.Random(seed)
    first, end = WEEK.shifted(-7).start(ZONE), WEEK.end(ZONE)
    rows = []
    for number in range(300):
        at, rule = chance.uniform(first, end - 1), chance.choice((None, "r1", "r2", "r3"))
        rows.append(DigestRow(
            number, at, at, chance.choice(("fault", "no_match")), "failed", f"j{number}", fault=chance.choice((None, "a", "b")),
            rule=rule, nodes=chance.choice(((), ("n1",), ("n2", f"n{number}"))), closed=chance.random() < 0.5,
            cause=chance.choice((None, "shown", "fault", "unknown")), said_fault=chance.choice((None, "b", "c")),
            said_nodes=chance.choice(((), ("n3",))), judged=chance.choice(JUDGEMENTS),
        ))  # fmt: skip
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_own_record(seed):
    """Shares of the eight weeks and of the week, and how often each rule was wrong."""
    rows = reports(seed)
    this = [row for row in rows if row.at >= WEEK.start(ZONE)]

    found = figures(rows, WEEK, ZONE, until=WEEK.end(ZONE))

    for part, record in ((rows, found.long_record), (this, found.record)):
        judged = [row.judged for row in part if row.verdict == "fault" and row.judged in JUDGEMENTS[1:4]]
        silent = [row.judged for row in part if row.verdict != "fault" and row.judged in JUDGEMENTS[3:]]
        assert record.closed == share(sum(row.closed for row in part), len(part))
        assert record.top1 == share(judged.count("right"), len(judged))
        assert record.top3 == share(sum(word != "wrong" for word in judged), len(judged))
        assert record.abstained == share(silent.count("abstained_rightly"), len(silent))
    assert found.unknown == share(sum(row.verdict != "fault" for row in this), len(this))
    assert {line.rule: line.fired for line in found.fired} == {
        rule: n
        for rule in ("r1", "r2", "r3")
        if (n := sum(row.rule == rule and row.verdict == "fault" for row in this))
    }
    for line in found.wrong:
        judged = [row.judged for row in rows if (row.rule, row.verdict) == (line.rule, "fault") and row.judged in JUDGEMENTS[1:4]]  # fmt: skip
        assert line.wrong == share(sum(word != "right" for word in judged), len(judged))


def test_a_fault_that_people_named_where_none_was_seen():
    """It is a failure of its class; "nothing failed" was a wrong answer, "cannot be told" was none."""
    start = WEEK.start(ZONE)
    well = DigestRow(1, start + 1, start + 1, "no_fault", "completed", "a", gpus=8)
    unclear = DigestRow(2, start + 2, start + 2, "insufficient_evidence", "unknown", "b")

    def named(row: DigestRow, fault: str) -> DigestRow:
        return row._replace(closed=True, cause="fault", said_fault=fault, judged="wrong")

    def of(*rows: DigestRow):
        return figures(rows, WEEK, ZONE, until=WEEK.end(ZONE))

    assert of(well, unclear).record.closed.n == 0
    assert of(well._replace(closed=True, cause="shown", judged="right"), unclear).record.closed.n == 0
    assert of(named(unclear, "cancelled")).record.closed.n == 0
    found = of(named(well, "cuda_oom"), named(unclear, "cuda_oom"))
    assert (found.record.closed.hits, found.record.closed.n) == (2, 2)
    assert (found.record.top1.hits, found.record.top1.n) == (0, 1)
    assert (found.record.abstained.hits, found.record.abstained.n) == (0, 1)


def test_a_fault_named_where_people_say_that_nothing_failed():
    """It is a wrong answer of its rule, and no failure of the week."""
    start = WEEK.start(ZONE)
    alarm = DigestRow(
        1, start + 1, start + 1, "fault", "failed", "a", fault="cuda_oom", rule="r1", closed=True, cause="no_failure",
        judged="wrong",
    )  # fmt: skip
    other = DigestRow(2, start + 2, start + 2, "fault", "failed", "b", fault="cuda_oom", rule="r1")

    found = figures((alarm, other), WEEK, ZONE, until=WEEK.end(ZONE))

    assert (found.failures, found.record.closed, found.record.top1) == (1, share(0, 1), share(0, 1))
    assert [(line.rule, line.fired, line.wrong) for line in found.fired] == [("r1", 2, share(1, 1))]
    assert [item.failures for item in found.classes] == [1]


@pytest.mark.parametrize("seed", range(5))
def test_classes_and_what_is_new(seed):
    """Counts of each class in both weeks, and the classes and nodes of this week that were not there before."""
    rows = reports(seed)
    this, earlier = WEEK.start(ZONE), WEEK.shifted(-1).start(ZONE)
    now, past = [row for row in rows if row.at >= this], [row for row in rows if row.at < this]

    found = figures(rows, WEEK, ZONE, until=WEEK.end(ZONE))

    assert {(line.fault, line.failures, line.before) for line in found.classes} == {
        (known, sum(row.known == known for row in now), sum(row.known == known and row.at >= earlier for row in past))
        for known in {row.known for row in now}
    }
    assert set(found.new.classes) == {row.known for row in now} - {row.known for row in past} - {"unknown"}
    nodes = {node for row in now for node in row.blamed} - {node for row in past for node in row.blamed}
    assert found.new.nodes == tuple(sorted(nodes)[:10])
