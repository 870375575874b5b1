"""The labels of `srun -l`, where a task starts several ranks."""

from __future__ import annotations

import pytest

from kb.rulebase.rule import Pattern
from kb.scanning.task_labels import without_task_labels
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("stale", "storage_io", Pattern("s", regex="Stale file handle")))
STALE = "2: train.sh: error reading input file: Stale file handle\n"


def ranks(text: str) -> set[int | None]:
    """The ranks to which the lines of the pattern are attributed, and those that are counted."""
    summary = without_task_labels(scanned(text, BOOK, ref("logs/train.log")))
    (hits,) = summary.hits.values()
    counted = {tally.rank for tally in hits.ranks}
    assert counted == {place.resource.rank for place in hits.first}
    return counted


@pytest.mark.parametrize(
    "start",
    [
        "2: Process rank: 8, device: cuda:0\n2: Process rank: 9, device: cuda:1\n",
        "2: [rank8]: ready\n2: [rank9]: ready\n",
        "2: [default0]: ready\n2: [default1]: ready\n",
        "2: Setting OMP_NUM_THREADS environment variable for each process to be 1\n",
    ],
)
def test_a_task_of_several_ranks_is_none(start: str) -> None:
    """The line names no rank; a tag behind the label still does."""
    assert ranks(start + STALE) == {None}
    assert ranks(start + "2: [rank9]: OSError: Stale file handle\n" + STALE) == {9, None}


@pytest.mark.parametrize("start", ["", "2: [rank2]: ready\n", "1: [rank1]: ready\n2: [rank2]: ready\n"])
def test_a_task_is_a_rank_where_nothing_says_otherwise(start: str) -> None:
    """Srun mostly starts the ranks themselves."""
    assert ranks(start + STALE) == {2}
