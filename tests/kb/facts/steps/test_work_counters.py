"""Counters of finished work: a process that goes on counting has survived what it logged before."""

import pytest

from kb.facts.steps.work_counters import work_counts, works_on


def counts(*lines):
    """The counts in lines, each 100 bytes after the one before."""
    return work_counts((100 * at, line) for at, line in enumerate(lines))


def test_a_count_that_rises_across_the_trouble():
    """Two higher counts after it, with a time stamp or a separator of thousands, are enough."""
    found = counts(
        "2025-06-21 05:21:10 loader: 934,400 samples read, queue 2",
        "Traceback",
        "2025-06-21 06:31:37 loader: 1,088,000 samples read, queue 9",
        "2025-06-21 07:42:48 loader: 1,241,600 samples read, queue 1",
    )
    assert works_on(found, 100)


@pytest.mark.parametrize(
    "work",
    [
        *(
            "batch",
            "batches",
            "completion",
            "completions",
            "document",
            "episodes",
            "examples",
            "files",
            "images",
            "pairs",
        ),
        *("prompts", "records", "rollout", "rollouts", "rows", "sample", "samples", "sequences", "shards", "tokens"),
    ],
)
def test_each_kind_of_work_counts(work: str) -> None:
    """Words of all kinds of work are looked for; words that only contain one are none."""
    assert len(counts(f"read 12 {work} so far", f"read 12 pre{work} so far")) == 1


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(["loader: 900 samples read"], id="one line may have waited in a buffer"),
        pytest.param(["loader: 800 samples read", "loader: 800 samples read"], id="it stands"),
        pytest.param(["loader: 900 samples read", "loader: 100 samples read"], id="it began again"),
        pytest.param(["writer: 900 samples written", "writer: 950 samples written"], id="another counter begins"),
        pytest.param(["waited 900 s", "waited 950 s"], id="no work"),
    ],
)
def test_no_proof(after):
    """A count that stands, begins again or counts no work proves nothing."""
    assert not works_on(counts("loader: 800 samples read", "Traceback", *after), 100)


def test_a_counter_that_begins_after_the_trouble():
    """Where none was printed before, three rising counts are needed."""
    lines = ["NCCL WARN busid not found", *(f"loader: {n} samples read" for n in (256, 512, 768))]
    assert works_on(counts(*lines), 0)
    assert not works_on(counts(*lines[:3]), 0)
