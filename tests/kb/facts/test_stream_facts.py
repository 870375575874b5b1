"""Stage and step of a place in a log."""

from __future__ import annotations

from kb.facts.stream_facts import StreamFacts
from tests.support.kb_samples import BOOK, scanned

STEPS = "".join(
    f"2026-11-22 20:56:{n:02d},000 - INFO - trainer - step {n}/60 | loss 2.{n} | lr 0.002\n" for n in range(10, 26)
)
BEGIN = "2026-11-22 20:56:34,686 - INFO - trainer - saving checkpoint to checkpoints/step-000025.pt\n"
END = "2026-11-22 20:56:34,748 - INFO - trainer - saved checkpoint checkpoints/step-000025.pt in 0.06 s\n"


def stage_at_end(text: str) -> str | None:
    """The stage behind the last line."""
    return StreamFacts(scanned(text, BOOK)).stage(len(text))


def test_a_run_is_saving_until_the_save_ends() -> None:
    """What happens after the end of a save between two steps is no part of the save."""
    assert stage_at_end(STEPS + BEGIN) == "saving"
    assert stage_at_end(STEPS + BEGIN + END) == "iterating"
    assert stage_at_end(STEPS + BEGIN + END + BEGIN) == "saving"
