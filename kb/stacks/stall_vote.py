"""The probe's vote on whether the stacks are unchanged, for each rank and for the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kb.model import Frame, StackSample
from kb.report import Ballot, short_ranges
from kb.stacks.activity import MAIN, WATCHED_THREADS, doing, is_helper, place_of, principal
from kb.stacks.frames import StackPlace, is_native, path_of
from kb.stacks.sampling_rounds import rounds_of

_WATCHED_FRAMES = re.compile(r"/torch/utils/data/|/torch/autograd/|/prefetch|/data_?loader")

_WORKING = 0.03  # share of a core; polling takes less
_MOVED_BYTES = 2048.0  # per second
_WAKES = 0.2  # per second: a thread that gives up its core more often runs on between its waits
_JUDGED = 0.75  # share of the answering ranks that must have been judged before those that are still speak for the job


@dataclass(frozen=True, slots=True)
class Stillness:
    """The criteria for unchanged stacks: the number of rounds, their distance in seconds, and the share of the ranks."""

    samples: int = 3
    apart: float = 20.0
    share: float = 0.9


@dataclass(frozen=True, slots=True)
class RankStillness:
    """One rank's vote. `rounds`: consecutive rounds with the same stacks; `seconds`: their span, if times are known.

    `works`: whether its processes compute, read or write meanwhile; None if not measured, or an accelerator hides
    it.
    """

    rank: int
    vote: Ballot
    rounds: int
    seconds: float | None
    detail: str = ""
    works: bool | None = None


@dataclass(frozen=True, slots=True)
class StackVote:
    """The job's vote, with its numbers. `moving` and `unseen` are ranges of ranks; `since`: still at least since then."""

    vote: Ballot
    detail: str
    still: int = 0
    moving: str = ""
    unseen: str = ""
    observed: int = 0
    since: float | None = None
    ranks: tuple[RankStillness, ...] = ()


def probe_stillness(
    samples: Iterable[StackSample], limits: Stillness | None = None, expected: Iterable[int] = ()
) -> StackVote:
    """Vote on "stacks unchanged over n rounds", for each rank and for the job.

    Only main threads and the threads of loaders and autograd are compared; ids, addresses, states and the lines of
    polling loops are ignored. A rank that computes, reads or writes is not still, though its stack lands on the same
    line each time: unless it waits for others, since that may spin. A rank is still if its last n rounds, each at least
    `apart` seconds after the previous one (0.8 of that suffices; unknown times count as far enough), are alike. The job
    is still if the required share of ranks is, or if all but a few are and these few are what the others wait for. The
    vote is undecided if a quarter or more of the ranks that answer could not be judged.
    """
    limits = limits or Stillness()
    by_rank = rounds_of(samples)
    memo: Memo = {}
    ranks = tuple(rank_stillness(rank, rounds, limits, memo) for rank, rounds in sorted(by_rank.items()))
    missing = sorted(set(expected) - set(by_rank))
    votes = Counter(stillness.vote for stillness in ranks)
    still, moving = votes["yes"], [stillness.rank for stillness in ranks if stillness.vote == "no"]
    observed = still + len(moving)
    unseen = short_ranges([*missing, *(stillness.rank for stillness in ranks if stillness.vote == "not_observable")])
    if not observed:
        return StackVote("not_observable", _blind(by_rank, ranks, limits), unseen=unseen, ranks=ranks)
    few = len(moving) <= max(1, observed // 10) and still >= 1 and _all_wait(by_rank, moving)
    yes = still >= limits.share * observed or few
    if yes and observed < _JUDGED * len(ranks):
        told = f"{still} of {len(ranks)} ranks unchanged over {limits.samples} rounds, but the rest could not be judged"
        return StackVote("not_observable", told, still, short_ranges(moving), unseen, observed, ranks=ranks)
    detail = f"{still} of {observed} ranks unchanged over {limits.samples} rounds"
    if moving:
        detail += f"; moving: {short_ranges(moving)}"
    starts = [stillness.seconds for stillness in ranks if stillness.vote == "yes" and stillness.seconds is not None]
    ends = [last for rank in by_rank if (last := by_rank[rank][-1].time) is not None]
    since = max(ends) - min(starts) if yes and starts and ends else None
    return StackVote("yes" if yes else "no", detail, still, short_ranges(moving), unseen, observed, since, ranks)


def _all_wait(by_rank: Mapping[int, list[StackSample]], moving: Sequence[int]) -> bool:
    """Whether all ranks except the moving ones wait for others."""
    out = set(moving)
    return all(doing(rounds[-1]).waiting for rank, rounds in by_rank.items() if rank not in out)


def _blind(by_rank: Mapping[int, Sequence[StackSample]], ranks: Sequence[RankStillness], limits: Stillness) -> str:
    """Return why no rank could be judged: no samples, no main threads, too few rounds, or rounds too close in time."""
    if not ranks:
        return "no stacks were taken"
    if not any(rank.rounds for rank in ranks):
        return "no rank's stacks show a main thread"
    longest = max(by_rank.values(), key=len)
    needed = f"needs {limits.samples} rounds of stacks, {limits.apart:.0f} s apart"
    if len(longest) < limits.samples:
        return f"{needed}; there {'is 1' if len(longest) == 1 else f'are {len(longest)}'}"
    first, last = longest[0].time, longest[-1].time
    span = f", all within {last - first:.0f} s" if first is not None and last is not None else ""
    return f"{needed}; there are {len(longest)}{span}"


def rank_stillness(rank: int, rounds: Sequence[StackSample], limits: Stillness, memo: Memo) -> RankStillness:
    """One rank's vote: walk back from the newest round for as long as the stacks equal those of the newest."""
    places = [watched(each, memo) for each in rounds]
    if not places[-1]:
        return RankStillness(rank, "not_observable", 0, None, "no main thread in its stacks")
    same = 1
    while same < len(rounds) and places[-1 - same] == places[-1]:
        same += 1
    alike = rounds[len(rounds) - same :]
    counted, seconds = _spaced(alike, limits.apart)
    works, done = _work_done(rounds[-limits.samples :])
    if works and not doing(rounds[-1]).waiting:
        return RankStillness(rank, "no", counted, seconds, f"its processes work: {done}", works=True)
    if counted >= limits.samples:
        if not has_frames(rounds[-1]) and works is not False:
            return RankStillness(rank, "not_observable", counted, seconds, "its frames cannot be read")
        return RankStillness(rank, "yes", counted, seconds, works=works)
    if same < len(rounds) and not _long_ago(rounds[-1 - same], rounds[-1], limits):
        return RankStillness(rank, "no", counted, seconds, "its stack changed")
    return RankStillness(rank, "not_observable", counted, seconds, f"{counted} rounds far enough apart")


def at_work(sample: StackSample) -> bool:
    """Whether the main thread was running or runnable. On a crowded host, one that computes may get little CPU time."""
    main = principal(sample)
    return main is not None and main.state in {"active", "gil"}


def has_frames(sample: StackSample) -> bool:
    """Whether the sample shows any function of the program, not only its place in the kernel."""
    return any(not is_native(frame) for thread in sample.threads for frame in thread.frames)


def _work_done(rounds: Sequence[StackSample]) -> tuple[bool | None, str]:
    """Whether the rank's processes worked within these rounds, and what they did; None if unknown."""
    first, last = rounds[0], rounds[-1]
    if first.work is None or last.work is None or first.time is None or last.time is None or last.time <= first.time:
        return None, ""
    span = last.time - first.time
    cpu, moved = last.work.cpu - first.work.cpu, last.work.io - first.work.io
    crowded = cpu > 0.0 and not last.work.accelerator and all(map(at_work, rounds))
    if cpu >= _WORKING * span or moved >= _MOVED_BYTES * span or crowded:
        return True, f"{max(0.0, cpu):.1f} s of CPU and {max(0, moved)} bytes in {span:.0f} s"
    if not has_frames(last):
        before, after = first.work.switches, last.work.switches
        if before is None or after is None or after - before > _WAKES * span:
            return None, ""
    return None if last.work.accelerator and has_frames(last) else False, ""


def _long_ago(changed: StackSample, newest: StackSample, limits: Stillness) -> bool:
    """Whether the last different stack is older than the required rounds: one round between was lost, and the rank did not move lately."""
    if changed.time is None or newest.time is None:
        return False
    return newest.time - changed.time > 1.2 * limits.apart * (limits.samples - 1)


def _spaced(alike: Sequence[StackSample], apart: float) -> tuple[int, float | None]:
    """Return how many rounds are far enough from the one counted before, and the seconds between the first and last."""
    counted, last = 0, None
    for each in alike:
        if last is None or each.time is None or each.time - last >= 0.8 * apart:
            counted += 1
            last = each.time
    first, newest = alike[0].time, alike[-1].time
    return counted, newest - first if first is not None and newest is not None else None


Memo = dict[
    int, tuple[bool, StackPlace]
]  # keyed by the identity of frames that are kept alive; equal stacks are usually the same object


def watched(sample: StackSample, memo: Memo) -> frozenset[tuple[tuple[str, StackPlace], int]]:
    """Return the places of the relevant threads; empty if the main one is missing."""
    main = principal(sample)
    if main is None:
        return frozenset()
    found = [(MAIN, _looked_at(main.frames, memo)[1])]
    for thread in sample.threads:
        if thread is main or not thread.frames or is_helper(thread):
            continue
        loads, place = _looked_at(thread.frames, memo)
        if loads or WATCHED_THREADS.search(thread.thread):
            found.append(("" if thread.thread[:1].isdigit() else thread.thread, place))
    return frozenset(Counter(found).items())  # tools list threads in no stable order


def _looked_at(frames: tuple[Frame, ...], memo: Memo) -> tuple[bool, StackPlace]:
    """Whether the stack is one of a loader or of autograd, whatever its thread is called, and its place."""
    found = memo.get(id(frames))
    if found is None:
        loads = any(_WATCHED_FRAMES.search(path_of(each.file)) for each in frames)
        found = memo[id(frames)] = (loads, place_of(frames))
    return found
