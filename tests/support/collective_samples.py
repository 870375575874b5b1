"""Rebuilt recorders: traces of ranks that ran programs until none made progress."""

from dataclasses import replace

from kb.model import Collective, CollectiveTrace, Frame

NOW = 1_795_000_000.0
FRAME = Frame("forward", "/srv/model.py", 12)


def op(pg, seq, state="completed", name="all_reduce", **more):
    """One collective, queued ten minutes ago less a second a number."""
    sizes = {"input_sizes": ((64,),), "output_sizes": ((64,),), "dtypes": ("Float",)}
    return Collective(pg, seq, name, state, created=NOW - 600 + seq, timeout_ms=600_000, **(sizes | more))


def p2p(pg, seq, source, destination, *, receives=False, state="scheduled", sizes=((8, 4),)):
    """One send or receive."""
    name = "recv" if receives else "send"
    return op(pg, seq, state, name, p2p=True, peer=(source, destination), input_sizes=sizes, output_sizes=sizes)


def trace(rank, groups, entries=(), **more):
    """A rank's recorder; counters follow from the entries where they are not given."""
    entries = tuple(entries)
    status = dict.fromkeys(groups, (0, 0, 0))
    for entry in entries:
        queued, _, done = status.get(entry.pg, (0, 0, 0))
        status[entry.pg] = (max(queued, entry.seq), -1, max(done, entry.seq) if entry.state == "completed" else done)
    given = {"groups": groups, "status": status, "backend": "nccl", "version": "2.10", "time": NOW} | more
    return CollectiveTrace(source=f"dump_{rank}", rank=rank, entries=entries, **given)


def world(size, entries_of):
    """A world of ranks in one default group."""
    return [
        trace(rank, {"0": tuple(range(size))}, entries_of(rank), group_names={"0": "default_pg"})
        for rank in range(size)
    ]


def named(verdict):
    """The culprits' ranks, best first."""
    return [culprit.rank for culprit in verdict.culprits]


def done(pg, last, first=1):
    """Finished operations up to a number."""
    return [op(pg, seq) for seq in range(first, last + 1)]


def stuck(groups, programs, *, gloo=False, names=None, tail=2000):
    """Return the recorders of ranks that each ran their program in order until none made progress.

    `programs`: of each rank (group, sizes), or (group, sizes, name). gloo has no members, no states and no counters.
    `tail`: how many entries a ring keeps.
    """
    at = dict.fromkeys(programs, 0)
    numbers = {rank: _numbered(program) for rank, program in programs.items()}

    def standing(rank):
        return numbers[rank][at[rank]] if at[rank] < len(numbers[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in programs:
            here = standing(rank)
            if here is not None and all(standing(item) == here for item in groups[here[0]]):
                for item in groups[here[0]]:
                    at[item] += 1
                moved = True
    made = [_recorded(rank, groups, program[: at[rank] + 1], at[rank]) for rank, program in programs.items()]
    made = [replace(item, entries=item.entries[-tail:], group_names=names or {}) for item in made]
    return [_as_gloo(item) for item in made] if gloo else made


def _numbered(program):
    counts = {}
    out = []
    for pg, *_ in program:
        counts[pg] = counts.get(pg, 0) + 1
        out.append((pg, counts[pg]))
    return out


def _recorded(rank, groups, program, at):
    entries = []
    for index, ((pg, number), (_, sizes, *name)) in enumerate(zip(_numbered(program), program, strict=True)):
        state = "completed" if index < at else "scheduled"
        made = op(pg, number, state, *name, input_sizes=(sizes,), output_sizes=(sizes,), retired=index < at)
        entries.append(replace(made, created=NOW - 900 + index))
    return trace(rank, {name: members for name, members in groups.items() if rank in members}, entries)


def _as_gloo(item):
    entries = tuple(replace(entry, state="scheduled") for entry in item.entries)
    return replace(item, backend="gloo", entries=entries, groups={}, status={}, inferred_groups=True)


def retired(*sizes, after=()):
    """A world of gloo recorders that retired all they had; `after`: what each queued behind number 3."""
    made = []
    for rank, size in enumerate(sizes):
        entry = op("0", 3, "scheduled", input_sizes=((size,),), output_sizes=((size,),))
        entries = [*done("0", 2), entry, *after]
        told = [replace(item, state="scheduled", retired=True) for item in entries]
        whole = trace(rank, {}, told, group_names={"0": "default_pg"}, status={})
        made.append(replace(whole, backend="gloo", inferred_groups=True))
    return made
