"""Merges the main threads of all ranks into one tree of frames, each with the ranks inside and outside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush

from kb.model import Frame, StackSample
from kb.report import StackBranch, short_ranges
from kb.stacks.activity import principal
from kb.stacks.frames import bare, is_native
from kb.stacks.sampling_rounds import rounds_of


@dataclass(frozen=True, slots=True)
class MergedFrame:
    """One line of the merged view. `depth` from 0; `inside` and `outside` are ranges of ranks, cut after some."""

    depth: int
    frame: Frame
    count: int
    inside: str
    outside: str
    folded: int = 0  # frames further in, left out because of the bound


MOST_BRANCHES = 24
BRANCH_FRAMES = 16  # frames shown per branch: its outermost and innermost ones


def branches(lines: Sequence[MergedFrame], most: int = MOST_BRANCHES) -> tuple[StackBranch, ...]:
    """Return the merged view, with frames of the same ranks combined, limited to the `most` frames with the most ranks."""
    runs: list[list[MergedFrame]] = []
    for line in lines:
        before = runs[-1][-1] if runs else None
        if before is not None and line.depth == before.depth + 1 and line.count == before.count:
            runs[-1].append(line)
        else:
            runs.append([line])
    order = sorted(range(len(runs)), key=lambda index: (-runs[index][0].count, index))
    kept = set(order[:most])
    found: list[StackBranch] = []
    above: list[tuple[int, int]] = []  # the branches around this one: the depth of their frames, their place in `found`
    for index, run in enumerate(runs):
        while above and above[-1][0] >= run[0].depth:
            above.pop()
        if index in kept:
            found.append(_branch(run, len(above)))
            above.append((run[0].depth, len(found) - 1))
        elif above:
            place = above[-1][1]
            found[place] = replace(found[place], folded=found[place].folded + 1)
    return tuple(found)


def _branch(run: Sequence[MergedFrame], depth: int) -> StackBranch:
    texts = [_frame_text(merged_frame.frame) for merged_frame in run]
    if len(texts) > BRANCH_FRAMES:
        texts = [*texts[: BRANCH_FRAMES // 2 - 1], "...", *texts[-BRANCH_FRAMES // 2 :]]
    return StackBranch(depth, tuple(texts), run[0].count, run[0].inside, run[0].outside, run[-1].folded)


def _frame_text(frame: Frame) -> str:
    file = frame.file.rpartition("/")[2][:120]
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.function[:120]} ({file}{line})" if file else frame.function[:120]


@dataclass(slots=True)
class _Node:
    """A frame of the tree under construction. `paths`: the indices of the stacks that contain it."""

    frame: Frame
    depth: int
    paths: list[int]
    count: int
    order: tuple[int, ...]
    children: list[_Node]
    folded: int = 0


def merged(samples: Iterable[StackSample], most: int = 200) -> tuple[MergedFrame, ...]:
    """Return the main threads of all ranks as one tree of up to `most` lines, outermost frame and largest branch first.

    Each line says which ranks are inside and outside the frame, of those with a stack.
    """
    ranks, stacks = _unique(samples)
    every = sorted(rank for each in ranks for rank in each)
    root = _Node(Frame(""), -1, list(range(len(stacks))), len(every), (), [])
    _grow(root, ranks, stacks, most)
    lines: list[MergedFrame] = []
    cache: dict[tuple[int, ...], tuple[str, str]] = {}
    stack = root.children[::-1]
    while stack:
        node = stack.pop()
        key = tuple(node.paths)
        if key not in cache:
            inside = {rank for path in node.paths for rank in ranks[path]}
            cache[key] = (short_ranges(inside), short_ranges(rank for rank in every if rank not in inside))
        lines.append(MergedFrame(node.depth, node.frame, node.count, *cache[key], folded=node.folded))
        stack.extend(node.children[::-1])
    return tuple(lines)


def _unique(samples: Iterable[StackSample]) -> tuple[list[list[int]], list[tuple[Frame, ...]]]:
    """Return the different stacks, outermost frame first, each with its ranks; in the order of their lowest rank."""
    found: dict[object, tuple[list[int], tuple[Frame, ...]]] = {}
    for rank, rounds in sorted(rounds_of(samples).items()):
        main = principal(rounds[-1])
        if main is not None:
            own = tuple(frame for frame in main.frames if not is_native(frame))[::-1]
            key = tuple(_key(item) for item in own)
            found.setdefault(key, ([], own))[0].append(rank)
    return [ranks for ranks, _ in found.values()], [own for _, own in found.values()]


@lru_cache(maxsize=65_536)
def _key(frame: Frame) -> tuple[str, str, int | None]:
    return bare(frame.function), frame.file.rpartition("/")[2], frame.line


def _grow(root: _Node, ranks: list[list[int]], stacks: list[tuple[Frame, ...]], most: int) -> None:
    """Repeatedly take the frame with the most ranks until the tree has `most`; the rest is counted at the frame it hangs from."""
    heap: list[tuple[int, tuple[int, ...], _Node, _Node]] = []
    _offer(root, ranks, stacks, heap)
    for _ in range(most):
        if not heap:
            return
        _, _, parent, node = heappop(heap)
        parent.children.append(node)
        parent.folded -= 1
        _offer(node, ranks, stacks, heap)


def _offer(
    node: _Node,
    ranks: list[list[int]],
    stacks: list[tuple[Frame, ...]],
    heap: list[tuple[int, tuple[int, ...], _Node, _Node]],
) -> None:
    """Add the frames one level further in to those that may be taken next."""
    branches: dict[object, list[int]] = {}
    for path in node.paths:
        if node.depth + 1 < len(stacks[path]):
            branches.setdefault(_key(stacks[path][node.depth + 1]), []).append(path)
    for number, paths in enumerate(branches.values()):
        count = sum(len(ranks[path]) for path in paths)
        child = _Node(stacks[paths[0]][node.depth + 1], node.depth + 1, paths, count, (*node.order, number), [])
        heappush(heap, (-count, child.order, node, child))
    node.folded = len(branches)
