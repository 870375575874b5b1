"""Where the ranks of a hung job stand: their merged stacks as lines of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.render.text_format import many
from bot.render.text_page import MARGIN, TextPage
from kb.regex.lazy import lazy_compile

if TYPE_CHECKING:
    from kb.report import StackBranch

_BRANCHES = 8  # of merged stacks
_BETWEEN = 3  # frames named between the first and the last of a branch
_WRAPPERS = lazy_compile(
    r"(?:^|\.)(?:wrapper|wrapped|inner|_fn|<lambda>|decorate_context|_call_impl|_wrapped_call_impl|\.\.\.)$"
)
_WHO = MARGIN - 4  # columns of the margin for the ranks of a branch
_DEEPEST = 6  # deeper branches are not indented further


def add_stacks(page: TextPage, branches: Sequence[StackBranch]) -> None:
    """Add the merged stacks, a line per branch: its ranks on the left, then its frames, outermost first."""
    seen = sum(branch.ranks for branch in branches if branch.depth == 0)
    page.gap()
    page.text(
        f"Where the {many(seen, 'rank')} {'is' if seen == 1 else 'are'} (merged stacks, outermost frame first):",
        "title",
    )
    kept = branches if page.verbose else branches[:_BRANCHES]
    for branch in kept:
        who = _inside(branch)
        frames = _path(branch.frames, page.verbose)
        more = f" ... and {many(branch.folded, 'nested branch', 'nested branches')}" if branch.folded else ""
        text = f"{branch.inside}: {frames}{more}" if len(who) > _WHO else f"{frames}{more}"
        page.field(
            who if len(who) <= _WHO else many(branch.ranks, "rank"), text, indent=2 * min(branch.depth, _DEEPEST)
        )
    if len(kept) < len(branches):
        page.field("", f"... and {many(len(branches) - len(kept), 'more branch', 'more branches')}", "quiet")


def _inside(branch: StackBranch) -> str:
    """Return the ranks of a branch; the ranks outside it where that is shorter."""
    if not branch.outside:
        return f"all {branch.ranks}" if branch.ranks > 1 else f"rank {branch.inside}"
    if len(branch.outside) < len(branch.inside):
        return f"not {branch.outside}"
    return f"{'rank' if branch.ranks == 1 else 'ranks'} {branch.inside}"


def _path(frames: Sequence[str], verbose: bool) -> str:
    """Return the frames of a branch: the first, the names of the last few before the end, and the last."""
    if verbose or len(frames) < 3:
        return " > ".join(frames)
    names = [frame.partition(" (")[0] for frame in frames[1:-1]]
    between = [name for name in names if not _WRAPPERS.search(name)]
    cut = ["..."] if len(between) > _BETWEEN else []
    return " > ".join([frames[0], *cut, *between[-_BETWEEN:], frames[-1]])
