"""Which part of a long quoted line a reader sees."""

from __future__ import annotations

import pytest

from bot.render.excerpt import condensed, excerpt

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 3.25 GiB is free. "
    "Including non-PyTorch memory, this process has 75.85 GiB memory in use. Of the allocated memory 68.75 GiB is allocated by PyTorch, and "
    "6.05 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting X to avoid fragmentation."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.75 GiB total capacity; 10.25 GiB already allocated; 1.25 GiB free; "
    "14.05 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
)


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (NEW, ["3.50", "79.10", "3.25", "75.85", "6.05 GiB is reserved"]),
        (OLD, ["1.50", "15.75", "10.25", "14.05 GiB reserved"]),
    ],
)
@pytest.mark.parametrize("limit", [192, 240])
def test_the_figures_of_memory_stay_and_the_advice_goes(line: str, figures: list[str], limit: int) -> None:
    """The answer's first step rests on the last of them; three rows of a terminal, or a line in Slack."""
    kept, _ = excerpt(condensed(line), (line.index("CUDA"), line.index(" GiB") + 4), limit)

    assert [figure for figure in figures if figure not in kept] == []
    assert "fragmentation" not in kept


def test_other_lines_are_cut_at_the_limit() -> None:
    """Words about memory without its figures make no line longer."""
    line = f"Tried to allocate much of what is reserved by others; {'word ' * 100}"

    assert len(excerpt(condensed(line), None, 100)[0]) <= 104
