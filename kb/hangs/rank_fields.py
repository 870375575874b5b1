"""Compares the times that ranks print at each step, such as `fetch=0.9s`, `io_wait: 850 ms` and `h2d 0.4 s`.

kb.hangs.rank_timing compares the fields of known iteration lines. Programs use their own names for further parts of a
step. If all ranks print a field and one rank alone has far higher values in step after step, that rank is slow,
provided the field is a large part of the step: then the others wait for it. Only the start and the end of each log are
read, which the summaries contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median

from kb.hangs.rank_timing import LEAST_RANKS, LEAST_STEPS, MOST_RANKS, OFTEN, RankTable, SlowRank, by_design, odd_ranks
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary
from kb.values import dataclass

MOST_BYTES = 8 * 1024 * 1024  # in all logs together
LEAST_BYTES = 2048  # in one log
MOST_FIELDS = 64
LINE = 512
HEAVY = 0.2  # share of a step above which the other ranks wait noticeably
LONGEST = 1.5  # multiple of a step; a longer time runs in parallel to the step
FEW_TIMES = 3.0  # factor over the other ranks, if there are too few to compute a spread
LEAST_SECONDS = 0.005

# For lower-case text: without flags and with a leading letter, `re` skips quickly to possible names, as in `_FIELD`.
_STEP = lazy_compile(
    r"(?:g(?<![a-z0-9_].)lobal[_ ](?:step|it(?:er(?:ation)?)?|batch)|s(?<![a-z0-9_].)tep|i(?<![a-z0-9_].)t(?:er(?:ation)?)?|b(?<![a-z0-9_].)atch)"
    r"['\"]?[ \t]{0,2}[:=#\[]?[ \t]{0,8}(?P<step>\d{1,12})(?![\w.%])",
    re.DOTALL,
)
# Programs without step numbers count within the epoch or the run: `[1][ 12/300]`, `update 12 of 300`.
_PART = lazy_compile(r"(?<![\w/.:-])(?P<step>\d{1,12}) ?(?:/| of ) ?\d{1,12}(?![\w/.%-]| \d\d:\d\d)")
_RANK = lazy_compile(r"(?i)(?<![A-Za-z0-9_])rank['\"]?[ \t]{0,2}[:=#]?[ \t]{0,2}(?P<rank>\d{1,6})(?![\w.])")
_FIELD = lazy_compile(
    r"(?P<name>[A-Za-z](?<![A-Za-z].)[\w./-]{0,40}+(?: time)?)['\"]?(?:[ \t]{0,2}[:=][ \t]{0,4}|[ \t]{1,4})(?P<value>\d{1,9}(?:\.\d{1,12})?(?:e-?\d{1,3})?)"
    r"(?:[ \t]?(?P<unit>ms|msec|us|s|secs?|seconds)(?![\w/])|(?![\w.%/:]))"
)
# of a step that stands between the name and the value: `own part of step 40: 356 ms`
_OF_STEP = lazy_compile(
    r"(?:(?:DEBUG|INFO|NOTICE|WARN(?:ING)?) {1,4})?(?P<name>[A-Za-z](?<![A-Za-z].)[A-Za-z /_]{1,40}?) (?:of|for|at|in) (?:global[_ ])?(?:step|iteration|it(?:er)?|batch) \d{1,12}(?:[:=,]|\b) ?(?:took |was |is )?"
    r"(?P<value>\d{1,9}(?:\.\d{1,12})?)[ \t]?(?P<unit>ms|msec|us|s|secs?|seconds)(?![\w/])"
)
# a part of a step, in the unit of the step's own time before it: `411 ms/it (data 0.7)`
_PART_OF = lazy_compile(
    r"\d ?(?P<unit>ms|s)/(?:it|step|iter) {1,2}\((?P<name>[A-Za-z][\w ]{1,30}?)[ :=]{1,2}(?P<value>\d{1,9}(?:\.\d{1,12})?)\)"
)
_UNITS = {"ms": 1e-3, "msec": 1e-3, "us": 1e-6}
_SECONDS = lazy_compile(r"(?i)(?:^|[_./ -])(?:time|times|s|sec|secs|seconds|wait|latency|duration|dur|dt)$")
_MILLISECONDS = lazy_compile(r"(?i)[_./-]ms(?:ec)?$")
# Times of the whole run, and waits for other ranks, since a rank that waits long is itself held up.
_OTHERS = lazy_compile(
    r"(?i)(?:^|[_./ -])(?:eta|in|for|after|every|at|took)(?:$|[_./ -])|elapsed|remain|total|uptime|runtime|since|wall|comm|sync|barrier"
    r"|reduce|gather|nccl|collective|recv|send|bubble|idle|p2p|backward|bwd|save|saving|ckpt|checkpoint|eval|valid|timeout|interval"
)
_WHOLE = lazy_compile(r"(?i)^(?:(?:step|iter(?:ation)?|batch|train|total)[_ ]?(?:time|s|sec|ms)?|time|dt|s/it)$")
_DATA = lazy_compile(
    r"(?i)data|load|fetch|(?:^|[_./ -])io(?:$|[_./ -])|read|decod|tokeni|collat|next_batch|batch_wait|input|disk|storage|sampl"
)


@dataclass(frozen=True, slots=True)
class RankField:
    """A rank with one named time far above its peers': its seconds, those of the median peer, and those of a step.

    `standing`: it is so from the first line on. `clocked`: the step's seconds are those between lines, not printed ones,
    which may cover several steps.
    """

    field: str
    rank: int
    value: float
    usual: float
    step_seconds: float
    steps: int
    since: int
    source: str
    standing: bool = False
    clocked: bool = True

    @property
    def metric(self) -> str:
        """The metric in docs/structures.md: a wait for data if the name says so, otherwise part of the rank's step."""
        return "data_wait" if _DATA.search(self.field) else "own_time"

    @property
    def text(self) -> str:
        """Describe it in one sentence."""
        since = "from the first step on" if self.standing else f"since step {self.since}"
        pace = "a step takes" if self.clocked else "the lines print a step time of"
        return (
            f"rank {self.rank} prints {self.field} {self.value:.3g} s, the median rank {self.usual:.3g} s, {since}; "
            f"{pace} {self.step_seconds:.3g} s"
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """One line, with its rank, its step and time, and the durations it reports, in seconds by name."""

    rank: int
    step: int
    time: float | None
    seconds: Mapping[str, float]
    source: str


def slow_fields(streams: Iterable[StreamSummary]) -> tuple[RankField, ...]:
    """Return ranks that alone have a far higher value of some named time, sorted by its share of a step, largest first."""
    readings = list(_readings([item for item in streams if item.ref.kind == "job"]))
    if len({reading.rank for reading in readings}) < 2:
        return ()
    clocked = _clocked_seconds(readings)
    step = clocked or _printed_seconds(readings)
    names = dict.fromkeys(name for reading in readings for name in reading.seconds)
    found = [
        item
        for name in list(names)[:MOST_FIELDS]
        if not _OTHERS.search(name) and step
        for item in _of_field(name, readings, step)
    ]
    best: dict[int, RankField] = {}
    found = [replace(item, clocked=clocked > 0.0) for item in found]
    for item in sorted(found, key=lambda item: (item.usual - item.value, item.field)):
        best.setdefault(item.rank, item)
    return tuple(best.values()) if len(best) == 1 else ()


def _of_field(name: str, readings: Sequence[_Reading], step: float) -> Iterator[RankField]:
    rows: dict[int, dict[int, float]] = {}
    sources: dict[int, str] = {}
    for reading in readings:
        if name in reading.seconds:
            rows.setdefault(reading.rank, {})[reading.step] = reading.seconds[name]
            sources.setdefault(reading.rank, reading.source)
    table = RankTable(rows, sources)
    for slow in odd_ranks(name, table) if len(rows) >= LEAST_RANKS else _odd_of_few(name, table):
        excess, least = slow.value - slow.usual, max(HEAVY, by_design(slow, rows))
        if max(least * step, LEAST_SECONDS) <= excess <= LONGEST * step:
            at_once = slow.standing and _is_first_too(slow.rank, rows)
            yield RankField(name, slow.rank, slow.value, slow.usual, step, slow.steps, slow.since, slow.source, at_once)


def _is_first_too(rank: int, rows: Mapping[int, Mapping[int, float]]) -> bool:
    """Whether a rank is also far above the others in the first step of all, which the comparison skips as a warm-up."""
    first = min(min(row) for row in rows.values())
    others = [row[first] for other, row in rows.items() if other != rank and first in row]
    return bool(others) and rows[rank].get(first, 0.0) > FEW_TIMES * median(others)


def _odd_of_few(name: str, table: RankTable) -> list[SlowRank]:
    """Do the same for two or three ranks, too few for a spread: one must be far above each other rank in nearly all steps."""
    rows = table.rows
    common = sorted(set.intersection(*(set(row) for row in rows.values())))[1:] if len(rows) > 1 else []
    if len(common) < LEAST_STEPS:
        return []
    found = []
    for rank, row in rows.items():
        usual = {step: max(other[step] for key, other in rows.items() if key != rank) for step in common}
        far = {step for step in common if row[step] > FEW_TIMES * usual[step]}
        if not far.issuperset(common[-LEAST_STEPS:]):
            continue
        since = next(
            at for at in range(len(common)) if len(far.intersection(common[at:])) >= OFTEN * (len(common) - at)
        )
        part = common[since:]
        value, others = median(row[step] for step in part), median(usual[step] for step in part)
        found.append(SlowRank(name, rank, value, others, len(part), part[0], part == common, table.sources[rank]))
    return found


def _clocked_seconds(readings: Sequence[_Reading]) -> float:
    """Return the seconds per step from the lines' times; 0 if unknown."""
    places: dict[int, list[tuple[int, float]]] = {}
    for reading in readings:
        if reading.time is not None:
            places.setdefault(reading.rank, []).append((reading.step, reading.time))
    paces = []
    for timed in places.values():
        last = [item for item in timed if item[0] <= timed[-1][0]][-LEAST_STEPS - 1 :]
        steps, seconds = last[-1][0] - last[0][0], last[-1][1] - last[0][1]
        if steps > 0 and seconds >= LEAST_SECONDS * steps:
            paces.append(seconds / steps)
    return median(paces) if paces else 0.0


def _printed_seconds(readings: Sequence[_Reading]) -> float:
    """Return the seconds per step as the ranks print them; 0 if unknown."""
    printed = [reading.seconds[name] for reading in readings for name in reading.seconds if _WHOLE.search(name)]
    return median(printed) if printed else 0.0


# -- lines ---------------------------------------------------------------------------------------------------------------


def _readings(streams: Sequence[StreamSummary]) -> Iterator[_Reading]:
    """Yield readings from the start and the end of logs; logs of many ranks are read only if some have such fields."""
    share = max(LEAST_BYTES, MOST_BYTES // max(1, len(streams)))
    some = streams[:: max(1, len(streams) // 4)]
    if not any(True for stream in some for _ in _of_stream(stream, share)):
        return
    ranks: set[int] = set()
    for stream in streams:
        for reading in _of_stream(stream, share):
            if reading.rank in ranks or len(ranks) < MOST_RANKS:
                ranks.add(reading.rank)
                yield reading


def _of_stream(stream: StreamSummary, most: int) -> Iterator[_Reading]:
    tail = stream.tail[-most:]
    texts = [tail]
    if stream.tail_offset > 0 or len(tail) < len(stream.tail):  # only part of the log
        texts = [stream.head[: most // 2].rpartition("\n")[0], tail.partition("\n")[2]]
    for text in texts:
        for line in text.split("\n"):
            reading = _of_line(line[:LINE], stream) if ":" in line or "=" in line or " " in line else None
            if reading is not None:
                yield reading


def _of_line(line: str, stream: StreamSummary) -> _Reading | None:
    place = _STEP.search(line.lower()) or _PART.search(line)
    if place is None:
        return None
    raw = line.encode("utf-8", "replace")
    prefix = peel(raw)
    message = line[prefix.end :] if len(raw) == len(line) else raw[prefix.end :].decode("utf-8", "replace")
    seconds = dict(_times(message))
    if not seconds:
        return None
    rank = prefix.rank
    if rank is None:
        named = _RANK.search(message)
        rank = int(named["rank"]) if named else stream.ref.resource.rank
    if rank is None:
        rank = speaker(raw, prefix).rank
    if rank is None:
        return None
    time = prefix.time if prefix.time is not None else find_time(raw[prefix.end : prefix.end + 128])
    return _Reading(rank, int(place["step"]), time, seconds, stream.ref.uri)


def _times(message: str) -> Iterator[tuple[str, float]]:
    # the words that each match has are asked for first, one by one: this runs for every line of every log that is read
    if " of " in message or " for " in message or " at " in message or " in " in message:
        yield from _told(_OF_STEP, message)
    if "s/it" in message or "s/step" in message:
        yield from _told(_PART_OF, message)
    for raw, value, unit in _FIELD.findall(message):
        name, factor = _named(raw, unit)
        if factor is not None:
            yield name, float(value) * factor


def _told(regex: re.Pattern[str], message: str) -> Iterator[tuple[str, float]]:
    told = regex.search(message)
    if told is not None:
        yield told["name"], float(told["value"]) * _UNITS.get(told["unit"], 1.0)


@lru_cache(maxsize=1024)
def _named(raw: str, unit: str) -> tuple[str, float | None]:
    """Return a field's name and the seconds in its unit; None if it is not a time."""
    name = raw.strip()
    return name, _UNITS.get(unit.lower(), 1.0) if unit else _factor(name)


def _factor(name: str) -> float | None:
    """Return the seconds in the unit at the end of a field's name; None if the name is not that of a time."""
    return 1e-3 if _MILLISECONDS.search(name) else 1.0 if _SECONDS.search(name) else None
