"""Parses the text format of `ncclras`: a table of communicators, and the ranks that differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kb.model import Gap
from kb.parsers.nccl_ras.values import (
    MAX_LINES,
    MAX_RANKS,
    Process,
    RankState,
    RasCommunicator,
    RasLevel,
    RasRank,
    RasReport,
    gap,
)

_ROW = re.compile(
    r"^ {0,8}(\d{1,6}) {1,12}(\d{1,7}) {1,12}(\d{1,6}) {1,12}(\d{1,6}(?:-\d{1,6})?) {1,12}(\d{1,7}) {1,12}(\d{1,7}) {1,12}([A-Z/]{2,12}) {1,12}([A-Z,]{2,40})\s*$"
)
_BLOCK = re.compile(r"^#(\d{1,6})-(\d{1,6}) \(([0-9a-f]{1,40})\) ([A-Z]{2,20})")
_OP = re.compile(r"ranks have different (?:(\w{1,40}) )?operation counts")
_LAUNCHED = r"launched up to operation (\d{1,19})|not (launched) any operations|status (\w{1,20})"
_MANY = re.compile(rf"^\s{{0,8}}(\d{{1,7}}) ranks have (?:{_LAUNCHED})")
_ONE = re.compile(
    rf"^\s{{0,8}}Rank (\d{{1,7}})(?: has (?:{_LAUNCHED})| reported ([A-Z][^\[\n]{{2,40}}?))? -- "
    r"(?:GPU (\d{1,3})(?: \(NVML (\d{1,3})\))? managed by process (\d{1,9}) on node (\S{1,253})|\[process)"
)
_MISSING = re.compile(r"^\s{0,8}The missing ranks?: ([0-9,\- ]{1,2000})")
_PROCESS = re.compile(r"^\s{0,8}Process (\d{1,9}) on node (\S{1,253}) managing GPU")
_TIMEOUTS = re.compile(r"Encountered (\d{1,9}) communication timeout")
_TOOK = re.compile(r"Communicators\.\.\. \((\d{1,6}\.\d{1,3})s\)")
_VERSION = re.compile(r"[NR]CCL version ([\w.+\-]{1,40})")
_TEXT_STATES: Final[Mapping[str, RankState]] = {
    "RUNNING": "running",
    "INIT": "init",
    "FINALIZE": "finalizing",
    "ABORT": "aborted",
    "NOCOMM": "absent",
    "UNKNOWN": "absent",
}


@dataclass(slots=True)
class _Open:
    """A communicator while its blocks are read."""

    size: int
    ranks: dict[int, RasRank] = field(default_factory=dict)
    levels: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class _RasTextReader:
    """The parser state: the section, the communicator, and statements about several ranks."""

    sizes: dict[int, int] = field(default_factory=dict)
    comms: int = 0
    found: dict[str, _Open] = field(default_factory=dict)
    current: _Open | None = None
    section: str = ""
    op: str = ""
    level: int | None = None
    state: RankState = "running"
    dead: list[Process] = field(default_factory=list)
    silent: list[Process] = field(default_factory=list)
    timeouts: int = 0
    left: int = MAX_RANKS

    def feed(self, line: str) -> None:
        """Read one line."""
        if row := _ROW.match(line):
            self.sizes[int(row[1])] = int(row[5])
            self.comms += int(row[2])
        elif block := _BLOCK.match(line):
            self._open(block)
        elif line[:1].isalpha() and line.strip().isupper():
            self.section, self.current = line.strip(), None
        elif process := _PROCESS.match(line):
            (self.dead if self.section == "DEAD" else self.silent).append((process[2], int(process[1])))
        elif timeouts := _TIMEOUTS.search(line):
            self.timeouts = int(timeouts[1])
        elif self.current is not None:
            self._in_block(line, self.current)

    def _open(self, block: re.Match[str]) -> None:
        key = block[3].lstrip("0") or "0"
        self.current = self.found.setdefault(key, _Open(self.sizes.get(int(block[1]), 0)))
        self.op, self.level = "", None
        self.state = "missing" if block[4] == "INCOMPLETE" else "running"
        self.section = block[4]

    def _in_block(self, line: str, current: _Open) -> None:
        if op := _OP.search(line):
            self.op, self.level, self.state = op[1] or "collective", None, "running"
        elif many := _MANY.match(line):
            self._level(current, many[2], many[3], many[4], int(many[1]))
        elif single := _ONE.match(line):
            if single[2] or single[3] or single[4]:
                self._level(current, single[2], single[3], single[4], 1)
            self._rank(current, int(single[1]), single)
        elif missing := _MISSING.match(line):
            ranks = _numbers(missing[1], min(current.size or 1024, self.left))
            self.left -= len(ranks)
            for rank in ranks:
                current.ranks.setdefault(rank, RasRank(rank, state="missing"))

    def _level(self, current: _Open, launched: str | None, none: str | None, state: str | None, ranks: int) -> None:
        if state is not None:
            self.state, self.level = _TEXT_STATES.get(state, "error"), None
        elif launched or none:
            self.level = int(launched or 0)
            current.levels[self.op, self.level] = current.levels.get((self.op, self.level), 0) + ranks

    def _rank(self, current: _Open, rank: int, match: re.Match[str]) -> None:
        old = current.ranks.get(rank) or RasRank(rank)
        state: RankState = self.state if old.state == "running" else old.state
        if match[8] is not None:
            old = replace(old, host=match[9], pid=int(match[8]), gpu=int(match[7] or match[6]))
        counts = dict(old.counts)
        if self.level is not None:
            counts[self.op] = self.level
        current.ranks[rank] = replace(
            old, state=state, counts=tuple(sorted(counts.items())), error=int(self.section == "ERROR")
        )


def _numbers(text: str, limit: int) -> list[int]:
    """Return the ranks of "3,5-7", at most `limit`."""
    found: list[int] = []
    for part in text.replace(" ", ",").split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and len(low) < 8 and len(high) < 8 and (not high or high.isdigit()):
            found.extend(range(int(low), min(int(high or low) + 1, int(low) + limit - len(found))))
        if len(found) >= limit:
            break
    return found


def read_text(data: bytes, source: str, time: float | None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    """Read one answer in the text format."""
    text = data[: 32 << 20].decode("utf-8", "replace")
    lines = text.split("\n", MAX_LINES)
    reading = _RasTextReader()
    for line in lines[:MAX_LINES]:
        reading.feed(line[:512].rstrip("\r"))
    if not reading.sizes and not reading.found:
        return None, (gap("ras-unreadable", source, "no table of communicators"),)
    version, took = _VERSION.search(text, 0, 4096), _TOOK.search(text, 0, 65536)
    report = RasReport(
        source=source,
        time=time,
        version=version[1] if version else "",
        form="text",
        communicators=tuple(_closed(key, item, set(reading.dead)) for key, item in reading.found.items()),
        communicators_count=max(reading.comms, len(reading.found)),
        dead=tuple(reading.dead),
        silent=tuple(reading.silent),
        timeouts=reading.timeouts,
        collection_seconds=float(took[1]) if took else None,
    )
    gaps = [gap("ras-text", source, "the text form lists only the ranks that stand out; `ncclras -f json` has all")]
    if len(lines) > MAX_LINES or len(data) > 32 << 20:
        gaps.append(gap("ras-cut", source, "the text is too long and was cut"))
    return report, tuple(gaps)


def _closed(key: str, item: _Open, dead: set[Process]) -> RasCommunicator:
    ranks = [
        replace(rank, state="dead") if rank.pid is not None and (rank.host, rank.pid) in dead else rank
        for rank in sorted(item.ranks.values(), key=lambda rank: rank.rank)
    ]
    levels = tuple(RasLevel(op, count, ranks_at) for (op, count), ranks_at in sorted(item.levels.items()))
    return RasCommunicator(key, item.size or len(ranks), tuple(ranks), levels, partial=True)
