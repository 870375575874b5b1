"""Exceptions of ranks that closed their logs in the words of all others."""

from __future__ import annotations

import pytest

from kb.facts.log.stream_facts import StreamFacts
from kb.rulebase.rule import Pattern
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("oom", "cuda_oom", Pattern("line", literal="CUDA out of memory")))
RAISED = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/srv/yard.py", line 9, in main\n'
    "[rank1]:     open(board)\n"
    "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/srv/board'\n"
)


def lived(closing: str, *, ranks: tuple[int, ...] = (0, 1, 2), raised: str = RAISED, after: str = "") -> bool:
    """Whether the program lived with its first exception: each rank prints a line, rank 1 raises, the `ranks` close."""
    opened = "".join(f"[rank{rank}]: silo {rank} opened\n" for rank in (0, 1, 2))
    closed = "".join(f"[rank{rank}]: {closing.format(rank=rank)}\n" for rank in ranks)
    facts = StreamFacts(scanned(opened + raised + closed + after, BOOK, ref("all.log")))
    return facts.lived_with(facts.exceptions[0].offset)


@pytest.mark.parametrize("closing", ["gate {rank}: finished", "entrenamiento completo", "Training done.", "训练完成"])
def test_a_rank_that_closes_as_all_others_do_had_gone_on(closing: str) -> None:
    """In whatever language; numbers may differ."""
    assert lived(closing)


@pytest.mark.parametrize(
    "closing", ["leaving the yard", "work not done, aborted", "[ERROR] run finished", "unfinished"]
)
def test_other_last_words_show_nothing(closing: str) -> None:
    """Ranks that give up together can say the same as well."""
    assert not lived(closing)


def test_every_rank_must_say_so() -> None:
    """Not where the rank itself says no more, another one says something else, all raised, or a launcher has the last word."""
    assert not lived("finished", ranks=(0, 2))
    assert not lived("finished", ranks=(1,))
    assert not lived("finished", raised="".join(RAISED.replace("rank1", f"rank{rank}") for rank in (0, 1, 2)))
    assert not lived("finished", after="torchrun: a process ended with exit code 1\n")
