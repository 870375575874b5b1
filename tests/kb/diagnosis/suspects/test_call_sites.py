"""The rank that was elsewhere in the run's code."""

from __future__ import annotations

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Suspect
from tests.support.kb_samples import CLOSED, rulebook, scanned

BOOK = rulebook(CLOSED)
LIBRARY = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def lost(rank: int, function: str, line: int) -> str:
    """The traceback of a rank that lost its peer, raised by torch in a function of the run."""
    tag = f"[rank{rank}]: "
    return (
        f'{tag}Traceback (most recent call last):\n{tag}  File "/srv/{function}.py", line {line}, in {function}\n'
        f'{tag}    work.wait()\n{tag}  File "{LIBRARY}", line 3252, in all_reduce\n{tag}    work.wait()\n'
        f"{tag}RuntimeError: Connection closed by peer [10.0.0.{rank + 1}]:7084\n"
    )


def suspects(*texts: str, world: int = 4) -> list[Suspect]:
    """The suspects of the first diagnosis."""
    report = diagnose(Evidence(Job(world_size=world), streams=(scanned("".join(texts), BOOK),)), BOOK)
    return list(report.diagnoses[0].suspects)


def test_the_one_rank_at_another_line_is_named() -> None:
    """The frames of libraries do not count, only the run's own code."""
    found = suspects(lost(0, "share", 13), lost(1, "share", 13), lost(2, "step", 73), lost(3, "share", 13))

    assert [item.rank for item in found] == [2]
    assert found[0].why == "it was at step.py:73 in step, the other 3 ranks at share.py:13 in share"


def test_two_that_differ_name_nobody() -> None:
    """Ranks that are at several places show no single one that left the others."""
    found = suspects(lost(0, "share", 13), lost(1, "save", 5), lost(2, "step", 73), lost(3, "share", 13))

    assert not any(item.why.startswith("it was at") for item in found)


def test_a_silent_rank_counts_more() -> None:
    """Of a job of four, the fourth reports nothing: the code of the other three decides nothing."""
    found = suspects("[rank3]: up\n", lost(0, "share", 13), lost(1, "share", 13), lost(2, "step", 73))

    assert [item.rank for item in found] == [3]
