"""Which ranks are missing among those that wait (kb.diagnosis.suspects.missing)."""

from __future__ import annotations

from bot.authoring import selftest
from bot.rulebase.loader import Knowledge
from kb.diagnosis.engine import diagnose

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:11155."
SAID = "".join(f"{rank}: [rank{rank}]: starts\n" for rank in range(12))
WAITING = "".join(f"{rank}: [rank{rank}]: {LOST}\n" for rank in range(9))


def suspects(known: Knowledge, ends: str) -> list[int | None]:
    """The ranks at fault by one log of twelve ranks, of which nine report a lost peer."""
    evidence = selftest.evidence_of(known, known.matcher(), {"train": (SAID + WAITING + ends).encode()})
    return [suspect.rank for suspect in diagnose(evidence, known.rulebook).diagnoses[0].suspects]


def test_the_one_that_srun_names_is_at_fault_and_not_all_that_are_silent(known: Knowledge) -> None:
    """The logs of the others may only be cut."""
    exited = "srun: error: cn-7: task 8: Exited with exit code 1\n"
    assert suspects(known, f"srun: error: cn-7: task 11: Killed\n{exited}") == [11]
    assert suspects(known, exited) == [9, 10, 11]
