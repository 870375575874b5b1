"""Ranks from series of numbered files."""

import pytest

from connectors.base.filenames import name_hints
from connectors.bundles.numbered_files import with_numbers
from kb.model import StreamRef


def ranks(*names: str) -> list[tuple[int | None, int | None]]:
    """Rank and local rank of each file, whose path is its name within the folder."""
    refs = with_numbers([name_hints(StreamRef(f"/job/{name}"), name) for name in names])
    return [(ref.resource.rank, ref.resource.local_rank) for ref in refs]


@pytest.mark.parametrize(
    "form",
    [
        "812_{}_log.err",
        "log_{}_0.txt",
        "{}.err",
        "stderr.{}",
        "user_logs/std_log_process_0{}.txt",
        "gpu{}.log",
        "device_{}/train.log",
        "task-{}.log",
        "executors/{}/stderr",
    ],
)
def test_a_series_from_zero_names_ranks(form: str) -> None:
    """Four files that count from 0 without a gap are those of four processes."""
    assert ranks(*map(form.format, range(4))) == [(rank, None) for rank in range(4)]


@pytest.mark.parametrize(
    "names",
    [
        [f"run_{number}.log" for number in range(4)],  # a word that counts something else
        [f"attempt{number}/train.log" for number in range(4)],
        [f"train.log.{number}" for number in range(4)],  # a log that was rotated
        [f"out_{number}.txt" for number in range(1, 5)],  # does not begin with 0
        ["out_0.txt", "out_1.txt", "out_3.txt", "out_4.txt"],  # one is missing
        ["out_0.txt", "out_1.txt"],  # two, and no word for a process
        ["gpu0.log"],
        [f"pretrain-worker-{number}.log" for number in range(4)],  # pods: nodes
        [f"{number}/train.log" for number in range(4)],  # as a sweep of settings writes them
    ],
)
def test_other_numbers_name_none(names: list[str]) -> None:
    """Numbers of runs, parts, nodes and incomplete series are no ranks."""
    assert set(ranks(*names)) == {(None, None)}


def test_two_files_suffice_if_the_word_says_so() -> None:
    """`gpu0.log` and `gpu1.log` are two processes."""
    assert ranks("gpu0.log", "gpu1.log") == [(0, None), (1, None)]


def test_a_series_in_each_of_several_folders_counts_within_a_node() -> None:
    """Both nodes have a process 0, so the numbers are local ranks."""
    names = [f"node-{node}/gpu{number}.log" for node in "ab" for number in range(2)]
    assert ranks(*names) == [(None, 0), (None, 1), (None, 0), (None, 1)]


def test_a_file_with_a_rank_of_its_own_keeps_it() -> None:
    """A name that says `rank` is not read again."""
    assert ranks(*(f"gpu{3 - rank}.rank{rank}.log" for rank in range(4))) == [(rank, None) for rank in range(4)]


def test_errors_of_few_processes_belong_to_those_of_the_series() -> None:
    """Not every process writes to standard error; a number beyond the series is none of its processes."""
    out = [f"mill_{rank}-stdout.log" for rank in range(4)]
    assert ranks(*out, "mill_1-stderr.log", "mill_3-stderr.log")[4:] == [(1, None), (3, None)]
    assert ranks(*out, "mill_7-stderr.log")[4:] == [(None, None)]
    assert ranks(*out, "kiln_1-stderr.log")[4:] == [(None, None)]
