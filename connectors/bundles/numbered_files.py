"""Ranks of files that are numbered like processes: `812_0_log.err` to `812_7_log.err`, `gpu0.log`, `device_3/train.log`.

One file alone does not tell whether its number is that of a process, of a run or of a part. A series does, if it counts
from 0 without a gap, and if the word before the number does not count anything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kb.model import StreamRef
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

_FEWEST = 4  # files of a series whose word does not say that it counts processes
_NUMBER = lazy_compile(r"([A-Za-z]{0,20})([_.\-]?)(\d{1,8})(?=[_.\-]|$)")
_PROCESS = frozenset(
    {"process", "proc", "worker", "task", "trainer", "gpu", "npu", "xpu", "device", "stdout", "stderr", "p", "r"}
)
_OTHER = frozenset(
    {"run", "attempt", "try", "retry", "restart", "part", "chunk", "shard", "epoch", "ep", "step", "iter", "job", "exp"}
    | {"experiment", "trial", "seed", "fold", "v", "version", "stage", "phase", "round", "node", "host", "pod", "rack"}
    | {"split", "cycle", "boot", "sample", "day", "id", "config", "cfg", "lr", "bs", "h", "m", "s"}
)
_ROTATED = frozenset({"log", "txt"})  # `train.log.1` is an older part of a log
_FOLDERS = frozenset(
    {"executors", "workers", "ranks", "processes", "tasks", "trainers", "gpus"}
)  # `executors/9/stderr`
_STREAM = lazy_compile(r"(?i)(?<![a-z])(?:std)?(?:out|err)(?![a-z])")


@dataclass(frozen=True, slots=True)
class _Series:
    """What the paths of a series share: the folder, the rest with a hole for the number, and the word before the number."""

    folder: str
    rest: str
    word: str


def with_numbers(streams: Sequence[StreamRef]) -> list[StreamRef]:
    """Return the streams with the ranks that series of numbered files give; local ranks if several folders have a series."""
    found: dict[_Series, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for ref in streams:
        if ref.kind == "job" and ref.resource.rank is None and ref.resource.local_rank is None:
            for series, number in _numbers(ref):
                found[series][number].append(ref.uri)
    counted = {series: files for series, files in found.items() if _of_processes(series, files)}
    counted |= {series: files for series, files in found.items() if _is_beside(series, files, counted)}
    told: dict[str, set[int]] = defaultdict(set)
    for files in counted.values():
        for number, (uri,) in files.items():
            told[uri].add(number)
    several = len({series.folder for series in counted}) > 1
    return [_numbered(ref, told.get(ref.uri, set()), several=several) for ref in streams]


def _numbers(ref: StreamRef) -> Iterator[tuple[_Series, int]]:
    """Yield each number in the file's name, and the one at the end of its folder's, with the series it may belong to."""
    above, _, name = ref.uri.rpartition("/")
    before, _, folder = above.rpartition("/")
    node = ref.resource.node
    for match in _NUMBER.finditer(name[:200] if node is None or node not in name else ""):
        word, start, end = match[1].lower(), match.start(3), match.end(3)
        if match[2] != "." or word not in _ROTATED or end < len(name):
            yield _Series(above, f"{name[:start]}*{name[end:]}", word), int(match[3])
    last = _NUMBER.search(folder[-200:])
    if folder.isdigit() and len(folder) <= 4 and before.rpartition("/")[2].lower() in _FOLDERS:
        yield _Series(before, f"*/{name}", "process"), int(folder)
    elif last is not None and last[1] and folder.endswith(last[0]) and folder != node:
        yield _Series(before, f"{folder[: -len(last[3])]}*/{name}", last[1].lower()), int(last[3])


def _of_processes(series: _Series, files: Mapping[int, Sequence[str]]) -> bool:
    """Whether a series counts processes: from 0 without a gap, one file each, and its word counts nothing else."""
    if series.word in _OTHER or set(files) != set(range(len(files))) or any(len(uris) > 1 for uris in files.values()):
        return False
    return len(files) >= (2 if series.word in _PROCESS else _FEWEST)


def _is_beside(
    series: _Series, files: Mapping[int, Sequence[str]], counted: Mapping[_Series, Mapping[int, Sequence[str]]]
) -> bool:
    """Whether the files are the other streams of processes that a series counts: not all write to standard error."""
    alike = [other for other in counted if _one_stream(other) == _one_stream(series)]
    most = max((len(counted[other]) for other in alike), default=0)
    return series not in counted and max(files) < most and all(len(uris) == 1 for uris in files.values())


def _one_stream(series: _Series) -> tuple[str, str]:
    """A series with one name for both streams of a process."""
    return series.folder, _STREAM.sub("*", series.rest)


def _numbered(ref: StreamRef, numbers: set[int], *, several: bool) -> StreamRef:
    if len(numbers) != 1:
        return ref
    (number,), who = numbers, ref.resource
    return replace(ref, resource=replace(who, local_rank=number) if several else replace(who, rank=number))
