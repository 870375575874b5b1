"""The merged view of all ranks' stacks."""

from kb.report import StackBranch
from kb.stacks.call_tree import branches, merged
from tests.support.stack_samples import NEXT, REDUCE, TRAIN, crowd


def test_merged_view():
    """Each frame shows which ranks are inside and outside."""
    lines = merged(crowd(4, REDUCE, {2: NEXT}))
    said = {line.frame.function: (line.depth, line.inside, line.outside) for line in lines}
    assert said["train"] == (1, "0-3", "")
    assert said["all_reduce"] == (3, "0-1,3", "2")
    assert said["_BaseDataLoaderIter.__next__"] == (2, "2", "0-1,3")
    assert [line.frame.function for line in lines[:4]] == ["<module>", "train", "wrapper", "all_reduce"]


def test_merged_view_is_bounded():
    """However many paths ranks take, the view is bounded, shows the largest branches, and counts what it left out."""
    odd = {rank: f"way{rank} (fit.py:{rank + 1}){TRAIN}" for rank in range(3, 60)}
    lines = merged(crowd(80, REDUCE, odd), most=12)
    assert len(lines) == 12
    assert "all_reduce" in {line.frame.function for line in lines}
    assert sum(line.folded for line in lines) == 80 - 23 - (12 - 4)


def test_long_lists_of_ranks_are_cut():
    """Ranks that do not form ranges are cut, with the number left out."""
    lines = merged(crowd(200, REDUCE, dict.fromkeys(range(0, 200, 2), NEXT)))
    inside = next(line.inside for line in lines if line.frame.function == "all_reduce")
    assert inside.endswith(",+76 more")


def test_branches():
    """Frames of the same ranks are merged, each branch before those further in."""
    assert branches(merged(crowd(4, REDUCE, {2: f"step (fit.py:7){TRAIN}"}))) == (
        StackBranch(0, ("<module> (fit.py:90)", "train (fit.py:40)"), 4, "0-3"),
        StackBranch(
            1, ("wrapper (c10d_logger.py:81)", "all_reduce (distributed_c10d.py:2800)"), 3, "0-1,3", outside="2"
        ),
        StackBranch(1, ("step (fit.py:7)",), 1, "2", outside="0-1,3"),
    )
    assert branches(()) == ()


def test_branches_are_bounded():
    """Of many branches those of most ranks are kept, the rest is counted where it hangs, and long runs are cut."""
    deep = "\n".join(f"f{number} (deep.py:{number})" for number in range(1, 60))
    odd = {rank: f"way{rank} (fit.py:{rank}){TRAIN}" for rank in range(10, 60)} | {3: deep + TRAIN}
    found = branches(merged(crowd(80, REDUCE, odd)), most=4)
    assert [(item.ranks, item.depth, item.folded) for item in found] == [(80, 0, 49), (29, 1, 0), (1, 1, 0), (1, 1, 0)]
    (long,) = (item for item in found if item.inside == "3")
    assert (len(long.frames), long.frames[0], long.frames[7], long.frames[-1]) == (
        16,
        "f59 (deep.py:59)",
        "...",
        "f1 (deep.py:1)",
    )
