"""Typed structures of a dump, and the limits on reading one."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kb.model import Gap


@dataclass(frozen=True, slots=True)
class DumpLimits:
    """The limits on one dump: bytes of the file, entries (the last ones are kept), frames per entry, groups."""

    size: int = 64 << 20
    entries: int = 20_000
    frames: int = 64
    groups: int = 8192
    containers: int = 4_000_000  # of a pickle: an upper bound, counted before anything is built
    finished_frames: bool = True  # whether to keep the stacks of finished operations


LIMITS = DumpLimits()


class DumpFrame(msgspec.Struct, gc=False):
    """A stack frame in the dump's format."""

    name: str = ""
    filename: str = ""
    line: int | None = None


class DumpEntry(msgspec.Struct):
    """An entry in the dump's format. Old versions have `seq_id` and `pg_name`; numbers may be text."""

    pg_id: int | None = None
    process_group: tuple[str, ...] = ()
    pg_name: str = ""
    collective_seq_id: int | None = None
    seq_id: int | None = None
    p2p_seq_id: int | None = None
    is_p2p: bool = False
    profiling_name: str = ""
    time_created_ns: int | None = None
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    duration_ms: float | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""
    timeout_ms: float | None = None
    retired: bool | None = None
    frames: tuple[DumpFrame, ...] | None = None


class GroupConfig(msgspec.Struct):
    """A process group and its members, as a list or as JSON text."""

    name: str = ""
    desc: str = ""
    ranks: str | tuple[int, ...] = ""


class GroupStatus(msgspec.Struct):
    """The sequence numbers that a process group has reached; -1 for none."""

    last_enqueued_collective: int = -1
    last_started_collective: int = -1
    last_completed_collective: int = -1


class Dump(msgspec.Struct):
    """A whole dump. Missing parts have defaults."""

    version: str | float = ""
    rank: int | None = None
    pg_config: dict[str, GroupConfig] = msgspec.field(default_factory=dict)
    pg_status: dict[str, GroupStatus] = msgspec.field(default_factory=dict)
    nccl_version: str = ""
    entries: list[DumpEntry] = msgspec.field(default_factory=list)


@dataclass(slots=True)
class DumpReading:
    """Gaps found while a dump is parsed."""

    source: str
    limits: DumpLimits
    gaps: list[Gap] = field(default_factory=list)

    def gap(self, code: str, reason: str, *, got: str = "", rules_out: str = "") -> None:
        """Record that something could not be read."""
        self.gaps.append(Gap(code, self.source, reason, scope="flight_recorder", got=got, rules_out=rules_out))
