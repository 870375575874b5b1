"""One failure is one finding, whatever class a generic rule puts its exceptions in."""

from __future__ import annotations

from dataclasses import replace

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Diagnosis
from kb.rulebase.rule import ExceptionTest, Pattern
from tests.support.kb_samples import rule, rulebook, scanned

OOM = rule("oom", "cuda_oom", Pattern("o", regex=r"\[rank[0-3]\]: \w+Error: no room for \d+ blocks|device is full"))
BUG = replace(
    rule("bug", "code_bug", Pattern("b", exception=ExceptionTest(type="ValueError|RuntimeError"))), fallback=True
)
BOOK = rulebook(OOM, BUG)
RAISED = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "/srv/fit.py", line 8, in go\n[rank{0}]:     step()\n[rank{0}]: {1}\n'


def found(text: str) -> list[Diagnosis]:
    """The diagnoses of a log."""
    return list(diagnose(Evidence(Job(world_size=8), streams=(scanned(text, BOOK),)), BOOK).diagnoses)


def test_the_same_message_on_another_rank_is_the_same_failure() -> None:
    """The specific rule knows the lines of some ranks only; the numbers in the message may differ."""
    text = "".join(RAISED.format(rank, f"ValueError: no room for {rank + 3} blocks of the pool") for rank in range(8))
    (only,) = found(text)
    assert (only.fault, only.suspects[0].why) == ("cuda_oom", "seen on 8 of 8 ranks")


def test_another_message_is_another_failure() -> None:
    """Though it is of the same class of exceptions."""
    text = RAISED.format(1, "ValueError: no room for 3 blocks") + RAISED.format(
        6, "ValueError: the list of shards is odd"
    )
    assert {item.fault for item in found(text)} == {"cuda_oom", "code_bug"}


def test_an_exception_without_a_message_adds_nothing_to_what_stands_beside_it() -> None:
    """Some programs print the reason on the next line. Far from any reason, it is all that is known."""
    bare = 'Traceback (most recent call last):\n  File "/srv/fit.py", line 8, in go\n    step()\nRuntimeError:\n'
    assert [item.fault for item in found(f"{bare}\nthe device is full\n")] == ["cuda_oom"]
    far = "step done, nothing to report\n" * 300
    assert {item.fault for item in found(f"{bare}{far}the device is full\n")} == {"cuda_oom", "code_bug"}
