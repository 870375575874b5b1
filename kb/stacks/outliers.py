"""Compares ranks by their stacks to find those that differ from the others, their activity, a fault class and a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kb.model import Frame, Resource, StackSample
from kb.report import short_ranges
from kb.stacks.activity import TELLING, VERDICTS, ProcessActivity, at_peer, doing, principal, read_stack
from kb.stacks.frames import Activity, StackPlace, is_native
from kb.stacks.sampling_rounds import children_of, rounds_of
from kb.stacks.stall_vote import Memo, RankStillness, Stillness, at_work, has_frames, rank_stillness, watched

MOST_GROUPS = 32  # maximum shown
MOST_OUTLIERS = 64  # maximum shown
GROUP_FRAMES = 48  # frames shown of a group's stack
ALL_ALIKE = 0.8  # share of ranks outside the crowd for the same reason above which the job is at fault, not they


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks with main threads at the same place. `ranks` as ranges; `frames` innermost first, without native ones."""

    ranks: str
    count: int
    first: int
    doing: ProcessActivity
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank outside the crowd. `sure` is false if there may be a legitimate reason."""

    rank: int
    resource: Resource
    doing: ProcessActivity
    why: str
    group: int | None = None
    sure: bool = True
    moving: bool | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of the ranks. `crowd` is the index in `groups` of the largest waiting group; None if there is none.

    `outliers` are shown up to a bound, the likeliest first; `outlier_ranks` (ranges) and `outlier_count` cover all.
    `unseen`: expected ranks without a stack. `shared`: most ranks are outside alike, so no rank is at fault.
    """

    seen: int
    groups: tuple[StackGroup, ...] = ()
    crowd: int | None = None
    outliers: tuple[Outlier, ...] = ()
    outlier_ranks: str = ""
    outlier_count: int = 0
    fault: str = ""
    alternatives: tuple[str, ...] = ()
    reason: str = ""
    unseen: str = ""
    unseen_count: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class _RankStack:
    """The position of one rank."""

    rank: int
    sample: StackSample
    doing: ProcessActivity
    place: StackPlace


def compare(
    samples: Iterable[StackSample], expected: Iterable[int] = (), limits: Stillness | None = None
) -> Comparison:
    """Group ranks by the place of their main threads in the newest round, and find those outside the crowd.

    Ranks that wait for others (collectives, device, backward) are the crowd; a rank that does something else is the
    suspect. If all wait, those that wait at a different place than most may be suspects: they ran another collective. If
    none waits, the job as a whole does one thing, and that is the answer. `limits`: when a suspect's stacks count as
    unchanged; a rank that is idle at one place for that long is not a straggler, since a slow rank moves on.
    """
    samples = list(samples)
    by_rank = rounds_of(samples)
    unseen = sorted(set(expected) - set(by_rank))
    stands = _stands(by_rank, children_of(samples))
    base = Comparison(len(stands), unseen=short_ranges(unseen), unseen_count=len(unseen))
    if not stands:
        return replace(base, reason="no stacks with a known rank")
    members = _grouped(stands)
    groups = tuple(_group(each) for each in members[:MOST_GROUPS])
    crowd = _crowd(members, len(stands))
    base = replace(base, groups=groups, crowd=crowd if crowd is not None and crowd < len(groups) else None)
    waiting = [index for index, each in enumerate(members) if each[0].doing.waiting or index == crowd]
    outside = [index for index in range(len(members)) if index not in set(waiting)]
    rank_groups = _RankGroups(members, by_rank, len(stands), limits or Stillness())
    if len(stands) == 1 or not waiting or _alike(outside, rank_groups):
        return _shared(base, rank_groups, outside or waiting)
    if outside:
        return _with_outsiders(base, rank_groups, outside, waiting)
    return _all_waiting(base, rank_groups, crowd)


@dataclass(frozen=True, slots=True)
class _RankGroups:
    """The groups, largest first, with every rank's rounds and the criteria for unchanged stacks."""

    members: list[list[_RankStack]]
    rounds: Mapping[int, list[StackSample]]
    seen: int
    limits: Stillness


def _stands(by_rank: Mapping[int, list[StackSample]], children: Mapping[int, list[StackSample]]) -> list[_RankStack]:
    found = []
    for rank, rounds in sorted(by_rank.items()):
        newest = rounds[-1]
        main = principal(newest)
        if main is None or not has_frames(newest):
            continue
        own = sorted(children.get(rank, ()), key=lambda child: (child.resource.pid or 0, child.source))
        latest = [item for item in own if item.sample == newest.sample] or own
        found.append(_RankStack(rank, newest, doing(newest, latest), read_stack(main.frames, child=False).place))
    return found


def _grouped(stands: Iterable[_RankStack]) -> list[list[_RankStack]]:
    """Return groups of ranks with the same activity at the same place, largest first."""
    groups: dict[object, list[_RankStack]] = {}
    for each in stands:
        groups.setdefault((each.place, each.doing.activity, each.doing.fault), []).append(each)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0].rank))


def _group(members: list[_RankStack]) -> StackGroup:
    first = members[0]
    main = principal(first.sample)
    frames = tuple(frame for frame in (main.frames if main else ()) if not is_native(frame))[:GROUP_FRAMES]
    return StackGroup(short_ranges(member.rank for member in members), len(members), first.rank, first.doing, frames)


def _crowd(members: list[list[_RankStack]], seen: int) -> int | None:
    """Return the index of the largest group that waits.

    If most ranks are at one place of the run's code, they wait there: a call that ends on the device (`loss.item()`)
    does not show it. If no rank is in an operation with others, most ranks that only wait (at a socket, on a queue, for
    a thread, asleep) are the crowd if another rank's stack says more: that rank is what they wait for.
    """
    best = next((index for index, each in enumerate(members) if each[0].doing.waiting), None)
    most = members[0][0].doing
    if len(members[0]) * 2 <= seen or seen < 3 or len(members) == 1:
        return best
    if most.activity == "user" or (
        best is None and _only_waits(most) and any(_is_informative(each) for each in members[1:])
    ):
        return 0
    return best


def _only_waits(process_activity: ProcessActivity) -> bool:
    if process_activity.activity == "network":
        return at_peer(process_activity.frame)
    return process_activity.activity in {"queue", "thread", "events", "sleep"} and process_activity.fault in {
        "deadlock",
        "straggler",
    }


def _is_informative(group: Sequence[_RankStack]) -> bool:
    return TELLING.index(group[0].doing.activity) < TELLING.index("network")


def _alike(outside: Sequence[int], told: _RankGroups) -> bool:
    """Whether nearly all ranks are outside the crowd and do the same."""
    kinds = Counter[Activity]()
    for index in outside:
        kinds[told.members[index][0].doing.activity] += len(told.members[index])
    return bool(kinds) and max(kinds.values()) >= ALL_ALIKE * told.seen


def _shared(base: Comparison, groups: _RankGroups, indices: Sequence[int]) -> Comparison:
    """Return the finding that most ranks do the same: it concerns the job."""
    kinds = Counter[tuple[Activity, str]]()
    for index in indices:
        one = groups.members[index][0].doing
        kinds[one.activity, one.fault] += len(groups.members[index])
    best = max(kinds, key=lambda kind: (kinds[kind], -TELLING.index(kind[0]), kind[1]))
    first = next(
        groups.members[i][0]
        for i in indices
        if (groups.members[i][0].doing.activity, groups.members[i][0].doing.fault) == best
    )
    all_do_it = kinds[best] == groups.seen and not base.unseen_count
    found = _of_one(groups, first) if all_do_it else first.doing
    who = (
        f"rank {first.rank}"
        if groups.seen == 1
        else f"{kinds[best]} of {groups.seen} ranks do the same: rank {first.rank}"
    )
    return replace(
        base,
        fault=found.fault,
        alternatives=found.alternatives,
        reason=f"{who} {found.reason}",
        shared=groups.seen > 1,
    )


def _of_one(groups: _RankGroups, rank_stack: _RankStack) -> ProcessActivity:
    """Return what a rank does if it is the only one, or if all do the same: it is no straggler, and out of step with nobody."""
    found, rounds = rank_stack.doing, groups.rounds[rank_stack.rank]
    if found.fault == "straggler":
        found = _stuck(found, rounds, rank_stillness(rank_stack.rank, rounds, groups.limits, Memo()))
    if found.fault == "straggler":
        found = replace(found, fault="code_bug" if at_work(rounds[-1]) else "deadlock")
    others = {"straggler", "collective_desync", found.fault}
    return replace(found, alternatives=tuple(item for item in found.alternatives if item not in others))


def _with_outsiders(
    base: Comparison, groups: _RankGroups, outside: Sequence[int], waiting: Sequence[int]
) -> Comparison:
    order = sorted(
        outside, key=lambda i: (TELLING.index(groups.members[i][0].doing.activity), -len(groups.members[i]), i)
    )
    crowd = groups.members[base.crowd if base.crowd is not None else waiting[0]][0]
    count = sum(len(groups.members[index]) for index in waiting)
    words = f"{count} of {groups.seen} ranks wait (rank {crowd.rank} {crowd.doing.reason})"
    found = [_outlier(groups, index, item, words) for index in order for item in groups.members[index]]
    first = found[0]
    fault, others = first.doing.fault, first.doing.alternatives
    if first.moving and first.doing.activity in {"user", "loader", "sleep"} and "straggler" not in (fault, *others):
        others = (*others, "straggler")
    return _outlying(base, found, fault, others, f"rank {first.rank} {first.why}")


def _outlier(groups: _RankGroups, index: int, rank_stack: _RankStack, words: str, *, sure: bool = True) -> Outlier:
    rounds, memo = groups.rounds[rank_stack.rank], Memo()
    moving = None if len(rounds) < 2 else len({watched(each, memo) for each in rounds}) > 1
    group = index if index < MOST_GROUPS else None
    found = rank_stack.doing
    if moving is not None and found.fault == "straggler":
        found = _stuck(found, rounds, rank_stillness(rank_stack.rank, rounds, groups.limits, memo))
    return Outlier(
        rank_stack.rank, rank_stack.sample.resource, found, f"{found.reason}, while {words}", group, sure, moving
    )


def _stuck(process_activity: ProcessActivity, rounds: Sequence[StackSample], still: RankStillness) -> ProcessActivity:
    """Return the fault of a rank that is stuck rather than slow, because it is idle at the same place in every round.

    A slow rank moves on, or is at work in native code. Python frames do not show which of sleep, lock, file and a
    stopped process it is.
    """
    if still.vote != "yes" or any(at_work(each) for each in rounds[-still.rounds :]):
        return process_activity
    span = f" and {still.seconds:.0f} s" if still.seconds else ""
    reason = f"{process_activity.reason}, unchanged for {still.rounds} rounds{span}"
    return replace(
        process_activity,
        fault="deadlock",
        alternatives=("straggler", *(x for x in process_activity.alternatives if x != "deadlock")),
        reason=reason,
    )


def _outlying(
    base: Comparison, found: Sequence[Outlier], fault: str, others: tuple[str, ...], reason: str
) -> Comparison:
    return replace(
        base,
        outliers=tuple(found[:MOST_OUTLIERS]),
        outlier_ranks=short_ranges(outlier.rank for outlier in found),
        outlier_count=len(found),
        fault=fault,
        alternatives=others,
        reason=reason,
    )


def _all_waiting(base: Comparison, groups: _RankGroups, crowd: int | None) -> Comparison:
    """Return the findings if all ranks wait, but perhaps not for the same thing."""
    crowd = crowd or 0
    main = groups.members[crowd][0]
    words = f"{len(groups.members[crowd])} of {groups.seen} ranks are elsewhere (rank {main.rank} {main.doing.reason})"
    odd = [
        (index, sure)
        for index, each in enumerate(groups.members)
        if index != crowd and (sure := _odd(each, groups, crowd)) is not None
    ]
    half = 2 * len(groups.members[crowd]) <= groups.seen
    if odd and (not half or any(groups.members[i][0].doing.context != main.doing.context for i, _ in odd)):
        odd.sort(key=lambda pair: (not pair[1], -len(groups.members[pair[0]]), pair[0]))
        sure = any(pair[1] for pair in odd) and not half
        rest: tuple[str, ...] = ("collective_timeout",) if sure else ("collective_timeout", "gpu_fault")
        found = [
            _apart(_outlier(groups, i, item, words, sure=ok and not half), rest)
            for i, ok in odd
            for item in groups.members[i]
        ]
        first = groups.members[odd[0][0]][0]
        context = f" ({first.doing.context})" if first.doing.context else ""
        reason = f"rank {first.rank}{context} {first.doing.reason}, while {words}"
        return _outlying(base, found, "collective_desync", rest, reason)
    fault, others, wording = main.doing.fault, main.doing.alternatives, main.doing.reason
    if main.doing.context in {"saving", "loading"} and main.doing.activity == "collective":
        above: Activity = "saving" if main.doing.context == "saving" else "loading"
        fault, others = VERDICTS[above][0], (fault, *VERDICTS[above][1])
    if odd:
        fault, others = "collective_desync", ("collective_timeout",)
        wording += f"; rank {groups.members[odd[0][0]][0].rank} {groups.members[odd[0][0]][0].doing.reason}"
    elif base.unseen_count and 2 * base.unseen_count <= groups.seen:
        others = ("node_lost", "killed", *others)
        wording += f"; there is no stack of ranks {base.unseen}"
    return replace(
        base, fault=fault, alternatives=others, reason=f"all {groups.seen} ranks wait: rank {main.rank} {wording}"
    )


def _apart(outlier: Outlier, others: tuple[str, ...]) -> Outlier:
    """Return a waiting outlier with its fault: where it waits is no fault by itself, but the others wait elsewhere."""
    return replace(outlier, doing=replace(outlier.doing, fault="collective_desync", alternatives=others))


def _odd(group: list[_RankStack], groups: _RankGroups, crowd: int) -> bool | None:
    """Return whether a waiting group is out of step with the crowd: certainly, perhaps, or not (None).

    Stages of a pipeline wait at different places by design; a wait inside backward or for the device says little.
    """
    own, main = group[0].doing, groups.members[crowd][0].doing
    if own.context != main.context and (own.context or main.context):
        return True
    if "p2p" in {own.activity, main.activity}:
        return None
    if own.activity == "rendezvous" or main.activity == "rendezvous":
        return own.activity != main.activity or None
    if own.activity == "collective":
        return len(group) * 3 <= groups.seen
    return False if main.activity == "collective" and len(group) * 3 <= groups.seen else None
