"""Writes the evidence bundle of a running job. It starts when the first probe votes yes, and ends when a hang or fault is called.

Stacks are written as they arrive, because they are lost with the process. The beginning and end of each log are copied, up to a
limit and with secrets masked. Write failures are reported; the rest is still written.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bot.live.log_follower import placed
from bot.render.report_json import iso
from bot.runtime.redaction import redact_bytes
from bot.runtime.redaction.structure import redacted, redacted_path
from connectors.base.commands import head
from connectors.base.untrusted import opened
from connectors.bundles.streams import StreamReader, is_plain
from connectors.host.flight_recorder import DumpFile
from connectors.host.processes import StackDump
from kb.errors import UnreadableInput
from kb.model import Gap, Job, StreamRef
from kb.parsers.artefacts.processes import Ended, written
from kb.report import Hang

MOST_LOGS = 512 << 20  # bytes for all logs together
MOST_LOG = 16 << 20  # bytes per log
LEAST_LOG = 128 << 10
MOST_ROUNDS = 40
MOST_DUMPS = 1 << 30  # bytes of all Flight Recorder dumps
PROCESSES = "processes.json"
_PACKED = (".gz", ".bz2", ".zst", ".xz")
_BLOCK = 1 << 20
_LINE = 64 << 10  # extra bytes read so that a piece ends at the end of a line
FORMAT = 1


@dataclass(frozen=True, slots=True)
class StackRound:
    """One round of stacks: its name, and each dump's file name with its bytes, packed."""

    name: str
    files: tuple[tuple[str, bytes], ...]


def round_of(name: str, dumps: Iterable[StackDump]) -> StackRound:
    """Pack the output of py-spy."""
    files = (
        (f"rank-{dump.rank}{f'.{dump.pid}' if dump.child else ''}.json", zlib.compress(dump.data, 1)) for dump in dumps
    )
    return StackRound(name, tuple(files))


def name_of(time: float) -> str:
    """A time as the name of a round or an answer: UTC, with a resolution of one second."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


@dataclass(slots=True)
class LiveBundle:
    """The bundle in `folder`. `begun`: when it was started, or None if it was not; `gaps`: what could not be written."""

    folder: Path
    root: Path
    begun: float | None = None
    gaps: list[Gap] = field(default_factory=list)
    _rounds: set[str] = field(default_factory=set)
    _files: dict[str, dict[str, object]] = field(default_factory=dict)
    _votes: list[dict[str, object]] = field(default_factory=list)

    def begin(self, now: float) -> bool:
        """Create the folder. Returns whether that worked."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._failed(self.folder, error)
            return False
        self.begun = now
        return True

    def stacks(self, rounds: Iterable[StackRound]) -> None:
        """Write the rounds that are not stored yet."""
        for stack_round in rounds:
            if stack_round.name in self._rounds or len(self._rounds) >= MOST_ROUNDS or not stack_round.files:
                continue
            self._rounds.add(stack_round.name)
            for name, packed in stack_round.files:
                self._write(f"stacks/{stack_round.name}/{name}", zlib.decompress(packed))

    def answers(self, part: str, found: Mapping[str, bytes]) -> None:
        """Write files of a part (`ras`, `ebpf`)."""
        for name, data in found.items():
            self._write(f"{part}/{name}.json", data)

    def parts(self, found: Mapping[str, bytes]) -> None:
        """Write files by their paths in the bundle, replacing existing ones."""
        for name, data in found.items():
            self._write(name, data)

    def ended(self, found: Sequence[Ended]) -> None:
        """Write which processes ended while others kept running."""
        if found:
            self._write(PROCESSES, written(tuple(found)))

    def dumps(self, found: Iterable[DumpFile]) -> None:
        """Copy Flight Recorder dumps that are new or were rewritten."""
        for dump_file in found:
            name = f"flight_recorder/{dump_file.path.name}"
            description: dict[str, object] = {"bytes": dump_file.size, "written": iso(dump_file.written)}
            have = sum(
                int(str(known["bytes"])) for at, known in self._files.items() if at.startswith("flight_recorder/")
            )
            if self._files.get(name) == description:
                continue
            if have + dump_file.size > MOST_DUMPS:
                self.gaps.append(Gap("too_large", name, f"more than {MOST_DUMPS >> 20} MB of dumps; not copied"))
                return
            try:
                self._ready(name).write_bytes(redact_bytes(head(dump_file.path, dump_file.size)))
            except OSError as error:
                self._failed(Path(name), error)
                continue
            self._files[name] = description

    def logs(self, files: Sequence[tuple[StreamRef, float | None]], kernel: tuple[str, bytes] | None) -> None:
        """Copy the current logs."""
        each = max(LEAST_LOG, min(MOST_LOG, MOST_LOGS // max(1, len(files))))
        for ref, arrived in files:
            self._copy(ref, arrived, each)
        if kernel is not None:
            self._write(f"logs/{kernel[0]}", kernel[1])

    def describe(self, job: Job, hang: Hang, gaps: Iterable[Gap]) -> None:
        """Write job.yaml and bundle.yaml."""
        document: dict[str, object] = {
            "id": job.id,
            "world_size": job.world_size,
            "state": job.state,
            "collected_at": iso(job.collected_at),
            "end": iso(job.end),
            "nodes": {node: list(ranks) for node, ranks in job.nodes.items()},
            "params": {rule: dict(numbers) for rule, numbers in job.params.items()},
        }
        self._yaml("job.yaml", {key: value for key, value in document.items() if value})
        votes: dict[str, object] = {
            "time": iso(job.collected_at),
            **{vote.probe: f"{vote.vote}: {vote.detail}" for vote in hang.votes},
        }
        self._votes = [*self._votes[:1], *self._votes[1:][-6:], votes]
        unlike = {(gap.code, gap.source): gap for gap in (*gaps, *self.gaps)}
        body = {
            "format": FORMAT,
            "made_by": "signalbox watch",
            "begun": iso(self.begun),
            "votes": self._votes,
            "files": self._files,
            "gaps": [{"code": item.code, "source": item.source, "reason": item.reason} for item in unlike.values()][
                :200
            ],
        }
        self._yaml("bundle.yaml", body)

    # Writing

    def _copy(self, ref: StreamRef, arrived: float | None, most: int) -> None:
        name = placed(ref.uri, self.root)
        try:
            size = Path(ref.uri).stat().st_size
            plain = is_plain(ref)
            if not plain:
                name = str(Path(name).with_suffix("")) if name.endswith(_PACKED) else name
            target = self._ready(name)
            with target.open("wb") as handle:
                handle.writelines(_pieces(Path(ref.uri), size, most) if plain else _unpacked(ref, most))
                copied = handle.tell()
        except OSError as error:
            self._failed(Path(name), error)
            return
        told: dict[str, object] = {"bytes": size if plain else copied, "written": iso(arrived)}
        self._files[name] = {**told, "left_out": size - most} if plain and size > most else told
        if not plain and copied >= most:
            self.gaps.append(Gap("too_large", name, f"packed; only its first {copied} bytes were copied"))

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._ready(name).write_bytes(redact_bytes(data))
        except OSError as error:
            self._failed(Path(name), error)

    def _yaml(self, name: str, body: Mapping[str, object]) -> None:
        clean = redacted(dict(body))
        self._write(name, yaml.safe_dump(clean, sort_keys=False, allow_unicode=True, width=120).encode())

    def _ready(self, name: str) -> Path:
        target = self.folder / redacted_path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _failed(self, path: Path, error: OSError) -> None:
        gap = Gap("not_written", str(path), f"cannot be written to the bundle: {error.strerror or error}")
        if gap not in self.gaps[-200:] and len(self.gaps) < 1000:
            self.gaps.append(gap)


def fresh_folder(folder: Path) -> Path:
    """Check the folder that a bundle will be written to. It must be new or empty.

    Raises:
        UnreadableInput: the path is not a folder, or the folder is not empty.
    """
    try:
        with os.scandir(folder) as entries:
            used = next(entries, None) is not None
    except FileNotFoundError:
        return folder
    except OSError as error:
        raise UnreadableInput(f"{folder}: cannot be used for the bundle: {error.strerror}") from error
    if used:
        raise UnreadableInput(f"{folder}: not empty; choose a new folder for the bundle")
    return folder


def _pieces(path: Path, size: int, most: int) -> Iterator[bytes]:
    """The beginning and end of a log as whole lines, with secrets masked and a line between them that says how much is omitted."""
    if size <= most:
        yield from _lines(path, 0, size)
        return
    half = most // 2
    yield from _lines(path, 0, half)
    yield b"\n[signalbox: about %d bytes of this log are left out here]\n" % (size - most)
    yield from _lines(path, size - half, size)


def _lines(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """The bytes of [start, stop) in blocks of whole lines, so that no secret is split between two blocks."""
    with opened(path) as handle:
        handle.seek(start)
        if start:
            start += len(handle.readline(_LINE))
        while start < stop:
            block = handle.read(min(_BLOCK, stop - start))
            if not block:
                return
            if start + len(block) < stop:
                block += handle.readline(_LINE)
            start += len(block)
            yield redact_bytes(block)


def _unpacked(ref: StreamRef, most: int) -> Iterator[bytes]:
    """The text of a packed log in whole lines, secrets masked, up to about `most` bytes."""
    size, rest = 0, b""
    for block in StreamReader(ref, block=_BLOCK):
        text = rest + block
        cut = text.rfind(b"\n") + 1 or (len(text) if len(text) > _BLOCK + _LINE else 0)
        rest = text[cut:]
        yield redact_bytes(text[:cut])
        size += cut
        if size >= most:
            return
    yield redact_bytes(rest)
