"""Converts a typed dump to the trace of one rank."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise

from kb.model import Collective, CollectiveTrace, Frame
from kb.parsers.artefacts.flight.dump import LIMITS, Dump, DumpEntry, DumpFrame, DumpLimits, DumpReading

KNOWN_MAJOR = ("1", "2")  # known major versions of the format
UNNAMED = "#"  # a group of which the dump gives a number but no name is called "#<number>" in `status`
_OPS = re.compile(r"(?:([A-Za-z0-9_.]+):)?(\S+)(?: (\d{1,9})(->|<-)(-?\d{1,9}))?")
_RANK_WORD = re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_RANK_END = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z]\w{0,15}){0,3}$")
_P2P = frozenset({"send", "recv", "isend", "irecv"})
_STATES = frozenset({"scheduled", "started", "completed"})
_LATEST = 10**20  # nanoseconds since the epoch; a larger timestamp is garbage


def rank_of(source: str) -> int | None:
    """Return the rank in a dump's file name: after the word `rank`, else the number at its end."""
    name = source.rsplit("/", 1)[-1]
    found = _RANK_WORD.search(name[-200:]) or _RANK_END.search(name[-80:])
    return int(found[1]) if found else None


# --- a typed dump to a trace -----------------------------------------------------------------------------------------


def to_trace(dump: Dump, work: DumpReading) -> CollectiveTrace:
    """Build the trace of one rank. Missing or contradictory parts become gaps of the reading."""
    version = str(dump.version)[:40]
    if version.split(".")[0] not in KNOWN_MAJOR:
        work.gap("dump_version_unknown", f"unknown format version {version!r}; read as far as possible")
    if not dump.entries and not dump.pg_status:
        reason = "the recorder is empty: it was off, or nothing ran yet"
        work.gap("dump_empty", reason, rules_out="whether this rank joined the collectives that others wait in")
    kept = dump.entries[-work.limits.entries :]
    if len(kept) < len(dump.entries):
        work.gap("dump_cut", "only the last entries are kept", got=f"{len(kept)} of {len(dump.entries)}")
    frames: dict[tuple[str, str, int | None], Frame] = {}
    entries = tuple(_collective(item, frames, work.limits) for item in kept)
    groups, names = _groups(dump, work)
    for item in kept:
        if item.process_group[1:]:
            names.setdefault(_group_of(item), item.process_group[1][:200])
    if not groups and (entries or dump.pg_status):
        reason = "the dump does not list the members of its process groups; inferred from who recorded them"
        work.gap("groups_inferred", reason, rules_out="a rank that never used a group is not known to be a member")
    return CollectiveTrace(
        source=work.source,
        rank=_checked_rank(dump, groups, work),
        version=version,
        backend=_backend(dump),
        time=max((t for entry in entries for t in (entry.created, entry.started, entry.completed) if t), default=None),
        groups=groups,
        group_names=names,
        inferred_groups=not groups,
        status=_status(dump, kept, groups),
        entries=entries,
    )


def _collective(
    dump_entry: DumpEntry, frames: dict[tuple[str, str, int | None], Frame], limits: DumpLimits
) -> Collective:
    found = _OPS.match(dump_entry.profiling_name)
    op = found[2] if found else dump_entry.profiling_name[:80]
    p2p = dump_entry.is_p2p or op in _P2P
    seq = dump_entry.p2p_seq_id if p2p and dump_entry.p2p_seq_id is not None else dump_entry.collective_seq_id
    seq = dump_entry.seq_id if seq is None else seq
    peer = None
    if found and found[3]:
        own, other = int(found[3]), int(found[5])
        peer = (own, other) if found[4] == "->" else (other, own)
    shown = (
        dump_entry.frames
        if dump_entry.frames and (limits.finished_frames or not (dump_entry.retired or dump_entry.state == "completed"))
        else ()
    )
    same = dump_entry.output_dtypes == dump_entry.input_dtypes or not dump_entry.output_dtypes
    return Collective(
        pg=_group_of(dump_entry),
        seq=-1 if seq is None else seq,
        op=op,
        state=dump_entry.state if dump_entry.state in _STATES else "",
        p2p=p2p,
        input_sizes=dump_entry.input_sizes,
        output_sizes=dump_entry.output_sizes,
        dtypes=dump_entry.input_dtypes if same else dump_entry.input_dtypes + dump_entry.output_dtypes,
        created=_seconds(dump_entry.time_created_ns),
        started=_seconds(dump_entry.time_discovered_started_ns),
        completed=_seconds(dump_entry.time_discovered_completed_ns),
        duration_ms=dump_entry.duration_ms,
        timeout_ms=dump_entry.timeout_ms,
        peer=peer,
        frames=tuple(_frame(frame, frames) for frame in shown[: limits.frames]),
        retired=bool(dump_entry.retired),
    )


def _frame(dump_frame: DumpFrame, known: dict[tuple[str, str, int | None], Frame]) -> Frame:
    key = (dump_frame.name, dump_frame.filename, dump_frame.line)
    frame = known.get(key)
    if frame is None:
        frame = known[key] = Frame(dump_frame.name[:200], dump_frame.filename[:400], dump_frame.line)
    return frame


def _group_of(dump_entry: DumpEntry) -> str:
    if dump_entry.process_group:
        return dump_entry.process_group[0][:200]
    return dump_entry.pg_name[:200] or ("" if dump_entry.pg_id is None else str(dump_entry.pg_id))


def _seconds(stamp: int | None) -> float | None:
    return stamp / 1e9 if stamp and 0 < stamp < _LATEST else None


def _groups(dump: Dump, work: DumpReading) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    groups: dict[str, tuple[int, ...]] = {}
    names: dict[str, str] = {}
    for key, item in islice(dump.pg_config.items(), work.limits.groups):
        name = (key or item.name)[:200]
        members = _members(item.ranks) if isinstance(item.ranks, str) else item.ranks
        if members is None:
            work.gap("group_unreadable", f"the members of process group {name!r} cannot be read")
        elif members:
            groups[name] = members
        if item.desc:
            names[name] = item.desc[:200]
    return groups, names


@lru_cache(maxsize=512)  # all ranks of a job name the same groups
def _members(text: str) -> tuple[int, ...] | None:
    try:
        parsed = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, list) or not all(isinstance(item, int) and 0 <= item < 1 << 24 for item in parsed):
        return None
    return tuple(dict.fromkeys(parsed))


def _checked_rank(dump: Dump, groups: Mapping[str, tuple[int, ...]], work: DumpReading) -> int | None:
    """Return the rank from the dump and its file name, checked against the groups, all of which include it."""
    sources = {"the dump": dump.rank, "its file's name": rank_of(work.source)}
    sources = {who: rank for who, rank in sources.items() if rank is not None}
    named = next(iter(sources.values()), None)
    own: tuple[int, ...] = ()
    if groups:
        smallest = min(groups.values(), key=len)
        own = tuple(item for item in smallest if all(item in _as_set(members) for members in groups.values()))
    if named is None and len(own) == 1:
        return own[0]
    if named is None:
        work.gap("dump_rank_unknown", "neither the dump nor its file's name gives the rank")
    elif len(set(sources.values())) > 1 or (own and named not in own):
        claims = [f"{who} says rank {rank}" for who, rank in sources.items()]
        if own:
            claims.append(f"its process groups say {f'rank {own[0]}' if len(own) == 1 else f'one of {len(own)}'}")
        fits = [rank for rank in sources.values() if not own or rank in own]
        taken = own[0] if len(own) == 1 else fits[0] if fits else None
        got = "skipped" if taken is None else f"read as rank {taken}"
        work.gap("dump_rank_contradicted", ", ".join(claims), got=got)
        return taken
    return named


@lru_cache(maxsize=512)
def _as_set(members: tuple[int, ...]) -> frozenset[int]:
    return frozenset(members)


def _backend(dump: Dump) -> str:
    found = Counter(
        entry.profiling_name.partition(":")[0] for entry in dump.entries[-64:] if ":" in entry.profiling_name
    )
    if found:
        return found.most_common(1)[0][0][:20]
    return "nccl" if dump.nccl_version else ""


def _status(
    dump: Dump, entries: Sequence[DumpEntry], groups: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, int, int]]:
    """Return the counters by group name; the dump keys them by an internal number that its entries map to names."""
    names = _numbers(dump, entries, groups)
    return {
        names.get(key, UNNAMED + key): (
            item.last_enqueued_collective,
            item.last_started_collective,
            item.last_completed_collective,
        )
        for key, item in islice(dump.pg_status.items(), LIMITS.groups)
    }


def _numbers(dump: Dump, entries: Sequence[DumpEntry], groups: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Return a dump's own number of a group → the group's name.

    Both increase as groups are created. Numbers without entries (an empty ring) between known ones are matched to names
    in order, if there are as many names as numbers.
    """
    names = {str(entry.pg_id): _group_of(entry) for entry in entries if entry.pg_id is not None}
    if not all(key.isdecimal() for key in dump.pg_status) or not all(name.isdecimal() for name in groups):
        return names
    numbers = sorted(dump.pg_status, key=int)
    ordered = sorted(groups, key=int)
    place = {name: index for index, name in enumerate(ordered)}
    fixed = [(index, place[names[key]]) for index, key in enumerate(numbers) if names.get(key) in place]
    if any(b[1] <= a[1] for a, b in pairwise(fixed)):
        return names
    for (number, name), (number_end, name_end) in pairwise([(-1, -1), *fixed, (len(numbers), len(ordered))]):
        if number_end - number == name_end - name:
            names |= dict(zip(numbers[number + 1 : number_end], ordered[name + 1 : name_end], strict=True))
    return names
