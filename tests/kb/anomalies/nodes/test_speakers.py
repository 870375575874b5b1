"""Which rank wrote a line where ranks cannot be compared (kb.anomalies.nodes.speakers)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.nodes.speakers import speaker

LOG = "train.log"


def an_event(*lines: str, at: int = 0, rank: int | None = None) -> RunEvent:
    """Lines of one kind, 100 bytes apart."""
    spots = tuple(LineRef(LOG, at + 100 * place, text, None, 1.0, LOG) for place, text in enumerate(lines))
    return RunEvent(lines[0], lines[0], None, {LOG: NodeEvent(len(lines), spots, {(LOG, rank): len(lines)})})


def who(event: RunEvent, *others: RunEvent) -> str | None:
    """The speaker of an event."""
    return speaker(RunProfile({item.id: item for item in (event, *others)}), event)


ACTORS = an_event(*(f"(Diver pid={900 + rank}) diver {rank} dives {dive} m" for dive in (7, 9) for rank in (2, 0, 1)))


def test_a_line_that_names_its_rank_is_that_ranks() -> None:
    """It need not be comparable."""
    assert who(an_event("[rank3]: ConeStanding: cone 6", rank=3)) == "rank 3"


def test_a_process_is_the_rank_that_its_lines_name() -> None:
    """By the word under which each process has a number of its own."""
    assert who(an_event("(Diver pid=902) out of air", at=4000), ACTORS) == "rank 2"
    assert who(an_event("(Diver pid=977) out of air", at=4000), ACTORS) is None
    assert who(an_event("out of air", at=4000), ACTORS) is None


def test_the_last_line_of_a_failed_task_is_its_processes() -> None:
    """The line before the frames names it."""
    task = an_event("ray.exceptions.RayTaskError(Adrift): ray::Diver.swim() (pid=901, ip=10.0.0.2)", at=4000)
    assert who(an_event("core.Adrift: buoy 6 is loose", at=5000), task, ACTORS) == "rank 1"
    assert who(an_event("core.Adrift: buoy 6 is loose", at=50000), task, ACTORS) is None
