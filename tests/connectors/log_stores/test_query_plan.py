"""The plan for log stores: few queries, deciding lines first, and omissions reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from connectors.base.contract import Bounds, CollectionRequest, Deadline, SourceFailed
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import NS, QUERIES, LineQuery, QueryMeter, Tally
from kb.model import Gap, Prefilter, Window
from tests.support import stored_logs
from tests.support.contract.subject import Memory

BEGIN = 1_780_000_200 * NS
SPAN = 3600


@dataclass
class Listed:
    """A store of plain lines, with pages of a hundred; `broken`: queries with words fail."""

    lines: list[tuple[float, str, str]]  # seconds from the beginning, rank, text
    page: int = 100
    broken: bool = False
    few_words: bool = False
    meter: QueryMeter = field(default_factory=QueryMeter)

    def _wanted(self, ask: LineQuery) -> list[StoredLine]:
        self.meter.spend()
        if self.broken and ask.words:
            raise SourceFailed("refused", "no filters here")
        found = [
            StoredLine(BEGIN + round(at * NS), LogOrigin(rank), text, number)
            for number, (at, rank, text) in enumerate(self.lines)
            if (not ask.words or any(word in text.lower() for word in ask.words))
            and (not ask.of or LogOrigin(rank) in ask.of)
        ]
        found = [stored_line for stored_line in found if ask.start <= stored_line.at < ask.end]
        return sorted(found, key=lambda stored_line: stored_line.at, reverse=ask.backward)

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Counts by rank and time."""
        counts: dict[LogOrigin, dict[int, int]] = {}
        for item in self._wanted(LineQuery(start, end)):
            held = counts.setdefault(item.who, {})
            held[item.at // bucket * bucket] = held.get(item.at // bucket * bucket, 0) + 1
        return Tally(bucket, counts)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Counts by time."""
        found: dict[int, int] = {}
        for item in self._wanted(LineQuery(start, end, words=words)):
            found[item.at // bucket * bucket] = found.get(item.at // bucket * bucket, 0) + 1
        return found

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Pages of the lines."""
        found = self._wanted(ask)[: ask.limit]
        for at in range(0, len(found), self.page):
            if at:
                self.meter.spend()
            yield found[at : at + self.page]

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Every n nanoseconds one line."""
        kept: list[StoredLine] = []
        for item in self._wanted(ask):
            if not kept or item.at - kept[-1].at >= every:
                kept.append(item)
        return kept[: ask.limit]

    def gaps(self) -> Sequence[Gap]:
        """None."""
        return ()


def pulled(store: Listed, **more: Any) -> tuple[Memory, list[Gap]]:
    """The lines that the plan wrote and omitted, whatever their number."""
    deadline = Deadline.within(20)
    spool = Memory(deadline)
    window = Window(BEGIN / NS, BEGIN / NS + SPAN)
    asked = CollectionRequest(stored_logs.record(), window, deadline, Prefilter(("error", "abort"), 1), **more)
    return spool, list(fetch_lines(store, asked, spool, "store", source="store", all_lines=500))


def chatter(ranks: int, seconds: int) -> list[tuple[float, str, str]]:
    """Each rank prints something each second; rank 0 prints iteration lines."""
    said: list[tuple[float, str, str]] = [
        (at, str(rank), f"rank {rank} reads a sample at {at}") for at in range(seconds) for rank in range(ranks)
    ]
    steps = [(at, "0", f"step {at} loss {9 - at / seconds:.4f} lr 0.001") for at in range(seconds)]
    return [*said, *steps]


def text(spool: Memory) -> str:
    """All logs."""
    return b"".join(spool.logs.values()).decode()


def test_few_lines_are_all_fetched() -> None:
    """A small job is fetched completely, in about two queries, and nothing is missing."""
    store = Listed([(at, str(at % 2), f"line {at}") for at in range(150)])
    spool, gaps = pulled(store)
    assert gaps == []
    assert text(spool).count("\n") == 150
    assert store.meter.used <= 4


def test_a_job_without_lines_is_a_gap() -> None:
    """No lines are reported as such."""
    spool, gaps = pulled(Listed([]))
    assert [gap.code for gap in gaps] == ["no_lines"]
    assert spool.logs == {}


def test_what_decides_comes_of_much() -> None:
    """The odd error with its surroundings, every rank's end, iteration lines over the whole run; few of the other lines."""
    lines = chatter(8, 1500)
    lines.append((1200.5, "5", "error: the one that tells"))
    store = Listed(lines)
    spool, gaps = pulled(store)
    said = text(spool)
    assert "error: the one that tells" in said
    assert all(f"rank 5 reads a sample at {at}\n" in said for at in range(1150, 1250))
    assert len(spool.logs) == 8
    steps = {int(line.split(" loss")[0].rsplit(" ", 1)[1]) for line in said.split("\n") if " loss " in line}
    assert (
        min(steps) < 50,
        1499 in steps,
        max(b - a for a, b in zip(sorted(steps), sorted(steps)[1:], strict=False)) < 120,
    ) == (True,) * 3
    assert said.count("\n") < len(lines) / 2
    assert {gap.code for gap in gaps} == {"not_line_by_line", "not_searched"}
    assert store.meter.used <= QUERIES


def test_a_storm_gives_its_onset_and_its_end() -> None:
    """If there are more lines than can be fetched: the first ones, those where they surge, the last ones; the middle is a gap."""
    lines = chatter(8, 1000)
    lines += [(10 + at / 10, "1", f"error of the start {at}") for at in range(300)]
    lines += [(800 + at / 50, str(at % 8), f"abort {at}") for at in range(5000)]
    spool, gaps = pulled(Listed(lines))
    said = text(spool)
    assert "error of the start 0\n" in said
    assert "abort 0\n" in said
    assert "abort 4999\n" in said
    assert "abort 2500\n" not in said
    assert "hits_cut" in {gap.code for gap in gaps}


def test_those_that_fell_silent_are_asked_for() -> None:
    """A rank whose last line is long ago is included with that line, and with its time."""
    lines = [item for item in chatter(8, 1500) if item[1] != "6" or item[0] < 300]
    spool, _ = pulled(Listed(lines))
    assert spool.logs["logs/store/rank-6.log"].endswith(b"rank 6 reads a sample at 299\n")
    assert spool.told["logs/store/rank-6.log"]["written"] == BEGIN / NS + 299


def test_a_part_that_fails_leaves_the_rest() -> None:
    """A store that takes no filters still gives the first and last lines, and reports what it refused."""
    spool, gaps = pulled(Listed(chatter(8, 1500), broken=True))
    assert len(spool.logs) == 8
    assert "source_refused" in {gap.code for gap in gaps}


def test_questions_are_counted() -> None:
    """When all queries are used up, the lines fetched so far are written and the rest is a gap."""
    store = Listed(chatter(8, 1500), meter=QueryMeter(left=4))
    spool, gaps = pulled(store)
    assert spool.logs
    assert "source_over_budget" in {gap.code for gap in gaps}


@pytest.mark.parametrize("deep", [False, True])
def test_bounds_hold(deep: bool) -> None:
    """Bytes and lines of one source are limited, and the cut is reported."""
    spool, gaps = pulled(Listed(chatter(8, 1500)), bounds=Bounds(log_lines=400, pages=60), deep=deep)
    assert text(spool).count("\n") <= 600
    assert "logs_cut" in {gap.code for gap in gaps}


def test_a_window_needs_ends() -> None:
    """Without an end nothing is queried."""
    asked = CollectionRequest(stored_logs.record(), Window(5.0, None), Deadline.within(60))
    with pytest.raises(SourceFailed, match="a start and an end"):
        fetch_lines(Listed([]), asked, Memory(Deadline.within(60)), "store", source="store")
