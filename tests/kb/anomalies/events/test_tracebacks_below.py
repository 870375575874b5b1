"""Lines that the traceback below them explains (kb.anomalies.events.tracebacks_below)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.events.tracebacks_below import TracebacksBelow

PLAIN = "[rank4]: Traceback (most recent call last):"
WORKERS = "[rank4]: Original Traceback (most recent call last):"
OWN = "kiln.Overheated: kiln <*> [in fire (kiln.py)]"
LOST = "RuntimeError: Connection closed by peer [in all_reduce (ring.py)]"


def explained(
    above: str,
    head: str,
    below: str,
    *,
    rank: int | None = 4,
    gap: int = 1,
    level: str | None = None,
    went_on: bool = False,
) -> bool:
    """Whether the first of three lines, one below the other but for a gap, is explained by the last."""
    events, at = {}, 100
    for text in (above, head, below):
        spot = LineRef("4.log", at, text, None, None, "rank 4", rank)
        events[text] = RunEvent(text, text, level, {"rank 4": NodeEvent(1, (spot,))})
        at += len(text) + gap
    first = events[above]
    return TracebacksBelow(RunProfile(events)).explain(first, first.nodes["rank 4"].spots, lambda _: went_on)


def test_an_exception_that_has_anothers_traceback_in_its_message_is_explained_by_it() -> None:
    """A traceback that merely follows is another matter."""
    wraps = "RuntimeError: Caught Overheated in worker process 0."
    assert explained(wraps, WORKERS, OWN)
    assert explained(wraps, "Traceback (most recent call last): (RANK 2)", OWN)
    assert not explained(wraps, PLAIN, OWN)
    assert not explained(wraps, WORKERS, OWN, gap=90)


def test_what_a_rank_logs_directly_above_its_own_traceback_introduces_it() -> None:
    """Not if it then only lost a peer, and not if who wrote which is unknown."""
    assert explained("firing <*> failed", PLAIN, OWN)
    assert not explained("firing <*> failed", PLAIN, LOST)
    assert not explained("firing <*> failed", PLAIN, OWN, rank=None)
    assert not explained("firing <*> failed", PLAIN, OWN, gap=90)
    assert not explained("firing <*> failed", PLAIN, "kiln closed")


def test_a_warning_above_the_exception_that_ended_its_rank_tells_something_of_its_own() -> None:
    """Where the rank continued, both are of one matter that it handled."""
    assert not explained("kiln <*> is hot", PLAIN, OWN, level="warning")
    assert explained("kiln <*> is hot", PLAIN, OWN, level="warning", went_on=True)
    assert explained("kiln <*> is hot", PLAIN, OWN, level="error")


def test_what_several_ranks_report_directly_above_their_tracebacks_about_a_lost_peer_introduces_them() -> None:
    """One rank's own words there may be the reason."""

    def introduces(ranks: int, level: str = "error", below: str = LOST) -> bool:
        events = {}
        for name, at, text in (("up", 100, "firing came apart"), ("head", 118, PLAIN), ("low", 162, below)):
            spots = {n: LineRef(f"{n}.log", at, text, None, None, f"rank {n}", n) for n in range(ranks)}
            nodes = {f"rank {n}": NodeEvent(1, (spot,)) for n, spot in spots.items()}
            events[name] = RunEvent(name, text, level if name == "up" else None, nodes)
        lines = [spot for seen in events["up"].nodes.values() for spot in seen.spots]
        return TracebacksBelow(RunProfile(events)).introduces_loss(events["up"], lines)

    assert introduces(2)
    assert not introduces(1)
    assert not introduces(2, level="info")
    assert not introduces(2, below=OWN)


def test_what_a_launcher_does_directly_above_its_traceback_is_explained_by_it() -> None:
    """Whoever wrote it."""
    assert explained("Sending process <*> closing signal SIGTERM", PLAIN, LOST, rank=None)


def handled(above: str, *, level: str | None = "warning", rank: int | None = None, gap: int = 1) -> tuple[bool, bool]:
    """Whether an exception counts as handled by what is above its traceback, and whether that counts as the way out of it."""
    events, at = {}, 100
    for text, own, said in ((above, level, 4), ("Traceback (most recent call last):", None, rank), (OWN, None, rank)):
        spot = LineRef("all.log", at, text, None, None, "rank 4", said)
        events[text] = RunEvent(text, text, own, {"rank 4": NodeEvent(1, (spot,))})
        at += len(text) + gap
    below = TracebacksBelow(RunProfile(events))
    (first,), (last,) = (events[text].nodes["rank 4"].spots for text in (above, OWN))
    return below.is_handled(last), below.tells_way_out(first)


def test_a_traceback_below_a_line_that_tells_a_way_out_was_handled() -> None:
    """In a log of several ranks, too, though the traceback names none; not below an error, other words, or a line far above."""
    assert handled("one firing skipped") == (True, True)
    assert handled("one firing skipped", rank=4) == (True, True)
    assert handled("the glaze was repaired", level="info") == (True, True)
    assert handled("one firing skipped", level="error") == (False, False)
    assert handled("kiln 4 is hot") == (False, False)
    assert handled("one firing skipped", gap=90) == (False, False)
