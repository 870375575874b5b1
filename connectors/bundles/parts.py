"""Reads the parts of a bundle besides its logs: stacks, RAS answers, metrics, events, pods, sacct and eBPF output.

Flight Recorder dumps are only listed here; separate processes read them (bot.diagnosis.flight_recorder_pool).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from connectors.base.bundle_layout import CHECKS
from connectors.base.untrusted import NotOpened, is_within, read
from kb.model import Event, Gap, Resource, StackSample
from kb.parsers.artefacts.ebpf.read import read_ebpf
from kb.parsers.artefacts.ebpf.reading import EbpfReading
from kb.parsers.artefacts.health import read_health
from kb.parsers.artefacts.processes import read_processes
from kb.parsers.artefacts.promql.answer import read_prometheus
from kb.parsers.artefacts.promql.series import MetricSeries
from kb.parsers.artefacts.pystacks.read import read_stacks
from kb.parsers.nccl_ras.answers import read_ras
from kb.parsers.nccl_ras.monitor import read_ras_monitor
from kb.parsers.nccl_ras.values import RasReport
from kb.parsers.schedulers.kubernetes import read_kubernetes
from kb.parsers.schedulers.slurmjson import read_slurm

MOST_FILES = 100_000  # of one part
LARGEST = 64 << 20  # bytes of one file
MOST_BYTES = 4 << 30  # of one part's files together; dumps have their own limits
_RANK = re.compile(r"(?:^|[_.-])rank[_-]?(\d{1,7})(?:\.(\d{1,10}))?(?=\.|$)|^(\d{1,7})(?=\.)", re.IGNORECASE)
_STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_ -]?(\d\d)[:_-]?(\d\d)(?:[:_-]?(\d\d))?(?:\.\d+)?(?:Z|\+00:?00)?")


@dataclass(frozen=True, slots=True)
class BundleParts:
    """The parts that were read. `dumps`: paths of Flight Recorder dumps."""

    stacks: tuple[StackSample, ...] = ()
    dumps: tuple[Path, ...] = ()
    ras: tuple[RasReport, ...] = ()
    metrics: tuple[MetricSeries, ...] = ()
    events: tuple[Event, ...] = ()
    ebpf: tuple[EbpfReading, ...] = ()
    gaps: tuple[Gap, ...] = field(default=())


def read_parts(folder: Path, job: str | None = None) -> BundleParts:
    """Read the parts of a bundle. `job`: the scheduler's id, which selects one job from a response about several.

    Links that lead out of the bundle are not followed, pipes and devices are not opened; each is a gap.
    """
    gaps: list[Gap] = []
    events: list[Event] = []
    for name in ("events.json", "pods.json", "nodes.json"):
        for path, data in _file(folder / name, gaps, folder):
            found, odd = read_kubernetes(data, path.name)
            events += found or ()
            gaps += odd
    for path, data in _file(folder / "processes.json", gaps, folder):
        found, odd = read_processes(data, path.name)
        events += found or ()
        gaps += odd
    for path, data in _file(folder / "slurm.json", gaps, folder):
        answer, odd = read_slurm(data, path.name, job)
        events += answer.events if answer else ()
        gaps += odd
    events += _checks(folder, gaps)
    ebpf = tuple(_ebpf(folder, gaps))
    events += [event for one in ebpf for event in one.events]
    return BundleParts(
        stacks=tuple(_stacks(folder, gaps)),
        dumps=tuple(_dumps(folder, gaps)),
        ras=tuple(_ras(folder, gaps, events)),
        metrics=tuple(_metrics(folder, gaps)),
        events=tuple(events),
        ebpf=ebpf,
        gaps=tuple(gaps),
    )


def _dumps(folder: Path, gaps: list[Gap]) -> Iterator[Path]:
    for path in _walk(folder / "flight_recorder", gaps, 1 << 50):
        if path.suffix in (".md", ".yaml"):
            continue
        if is_within(os.path.realpath(path), folder):
            yield path
        else:
            gaps.append(_refused(path))


def _checks(folder: Path, gaps: list[Gap]) -> Iterator[Event]:
    """Failed hardware checks in `hardware/<node>/`; files of unknown tools are only logs."""
    root = folder / CHECKS
    for path in _walk(root, gaps):
        for _, data in _file(path, gaps, folder):
            inside = path.relative_to(root)
            node = inside.parts[0] if len(inside.parts) > 1 else None
            found, odd = read_health(data, f"{CHECKS}/{inside}", node)
            gaps += odd
            yield from found or ()


def _stacks(folder: Path, gaps: list[Gap]) -> Iterator[StackSample]:
    root = folder / "stacks"
    for path in _walk(root, gaps):
        for _, data in _file(path, gaps, folder):
            inside = path.relative_to(root)
            sample = inside.parts[0] if len(inside.parts) > 1 else ""
            known = _RANK.search(path.name)
            rank = int(known[1] or known[3]) if known else None
            node = inside.parts[1] if len(inside.parts) > 2 else None
            found, odd = read_stacks(
                data,
                f"stacks/{inside}",
                Resource(rank=rank, node=node),
                sample,
                stamp(sample),
                child=bool(known and known[2]),
            )
            gaps += odd
            if found is not None:
                yield found


def _ras(folder: Path, gaps: list[Gap], events: list[Event]) -> Iterator[RasReport]:
    """RAS answers. A file that is not an answer may be output of the RAS monitor, which yields events."""
    for path in _walk(folder / "ras", gaps):
        for _, data in _file(path, gaps, folder):
            found, odd = read_ras(data, f"ras/{path.name}", stamp(path.stem))
            if found is not None:
                yield found
            else:
                told, more = read_ras_monitor(data, f"ras/{path.name}")
                events += told or ()
                odd = odd if told is None else more
            gaps += odd


def _metrics(folder: Path, gaps: list[Gap]) -> Iterator[MetricSeries]:
    for path in _walk(folder / "metrics", gaps):
        for _, data in _file(path, gaps, folder):
            found, odd = read_prometheus(data, f"metrics/{path.name}")
            gaps += odd
            yield from found or ()


def _ebpf(folder: Path, gaps: list[Gap]) -> Iterator[EbpfReading]:
    for path in _walk(folder / "ebpf", gaps):
        for _, data in _file(path, gaps, folder):
            found, odd = read_ebpf(data, f"ebpf/{path.name}", tool=path.stem)
            gaps += odd
            if found is not None:
                yield found


def stamp(name: str) -> float | None:
    """The time that a name represents: ISO 8601 in UTC, with any separators for its colons; None if it is not a time."""
    found = _STAMP.fullmatch(name)
    if found is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _walk(root: Path, gaps: list[Gap], most: int = MOST_BYTES) -> Iterator[Path]:
    """The files below a folder in order. A missing folder is empty, an unreadable one is a gap."""
    count = size = 0

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            gaps.append(Gap("unreadable", str(error.filename or root), f"cannot be read: {error.strerror or error}"))

    for where, folders, names in os.walk(root, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(where) / name
            count += 1
            size += _size(path)
            if count > MOST_FILES:
                gaps.append(Gap("too_many_files", str(root), f"more than {MOST_FILES} files; the rest was not read"))
                return
            if size > most:
                gaps.append(Gap("too_large", str(root), f"more than {most >> 20} MB in total; the rest was not read"))
                return
            yield path


def _size(path: Path) -> int:
    """The number of bytes that would be read from a file, 0 if unknown."""
    try:
        return min(path.stat().st_size, LARGEST)
    except OSError:
        return 0


def _refused(path: Path) -> Gap:
    return Gap("refused_link", str(path), "a link leads out of the bundle; not followed")


def _file(path: Path, gaps: list[Gap], within: Path) -> Iterator[tuple[Path, bytes]]:
    """The path with its bytes. Nothing if the file is missing; nothing and a gap if it is unreadable or too large."""
    try:
        data = read(path, LARGEST + 1, within)
    except FileNotFoundError:
        if path.is_symlink():
            gaps.append(Gap("unreadable", str(path), "cannot be read: broken link"))
        return
    except NotOpened as refused:
        gaps.append(
            _refused(path) if refused.leaves else Gap("unreadable", str(path), f"cannot be read: {refused.strerror}")
        )
        return
    except OSError as error:
        gaps.append(Gap("unreadable", str(path), f"cannot be read: {error.strerror or error}"))
        return
    if len(data) > LARGEST:
        gaps.append(Gap("too_large", str(path), f"larger than {LARGEST >> 20} MB; not read"))
        return
    yield path, data
