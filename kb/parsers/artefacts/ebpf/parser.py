"""Collects series, stacks and events, line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kb.model import Event, Resource, Scalar
from kb.parsers.artefacts.ebpf.blocked import blocked_event, stack_functions
from kb.parsers.artefacts.ebpf.line_forms import (
    BANNER,
    BCC_BUCKET,
    BCC_HEAD,
    BCC_UNITS,
    BIOSNOOP,
    DSTATE_LINE,
    FOLDED,
    OUR_BANNER,
    STACK_FRAME,
    STACK_TIME,
    STACK_WHO,
    TEXT_BUCKET,
    TEXT_MAP,
    TICK_LINE,
    UNENDED_MAPS,
    bucket_bound,
    decode_object,
    finite_number,
    function_of_probe,
    is_stats,
    parse_pid,
    tick_period,
    unit_of_map,
)
from kb.parsers.artefacts.ebpf.reading import (
    MAX_BYTES,
    MAX_EVENTS,
    MAX_FRAMES,
    MAX_POINTS,
    MAX_SERIES,
    MAX_STACKS,
    EbpfLimits,
    EbpfReading,
    EbpfSeries,
    OffCpuStack,
)
from kb.parsers.schedulers.jsondocs import integer, mapping, string


@dataclass(slots=True)
class _GrowingSeries:
    """A series under construction."""

    points: list[tuple[float | None, float]] = field(default_factory=list)
    buckets: dict[tuple[float, float], int] = field(default_factory=dict)


@dataclass(slots=True)
class EbpfParser:
    """The parser state of one file."""

    source: str
    who: Resource
    tool: str
    limits: EbpfLimits
    series: dict[tuple[str, str], _GrowingSeries] = field(default_factory=dict)
    stacks: list[OffCpuStack] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    waits: dict[tuple[str, str, int], tuple[float, float | None, dict[tuple[str, str], str]]] = field(
        default_factory=dict
    )
    now: float | None = None
    now_ns: int = 0
    points: int = 0
    frames: list[str] = field(default_factory=list)
    owner: tuple[str, int] | None = None
    current: tuple[str, str] | None = None  # the map to which rows of a text histogram belong
    known: int = 0
    odd: int = 0
    full: int = 0
    lost: int = 0

    def feed(self, line: Any) -> None:
        """Add one line, or one record of an envelope."""
        if isinstance(line, str):
            line = line[:MAX_BYTES].rstrip()
            if not line.startswith("{"):
                self._text(line[:16384])
                return
            line = decode_object(line)
        record = mapping(line)
        kind, body = record.get("type"), record.get("data")
        if not isinstance(kind, str):
            self.odd += 1
        elif kind in {"printf", "time", "cat", "join", "syscall"}:
            self._printed(string(body, 16384))
        elif kind in {"map", "hist", "lhist", "stats"}:
            for name, value in mapping(body).items():
                self._map(name.lstrip("@")[:60], value)
        elif kind == "lost_events":
            self.lost += integer(mapping(body).get("events")) or 0
        elif kind in {"attached_probes", "tseries"}:
            self.known += 1
        else:
            self.odd += 1

    # output of the programs

    def _printed(self, text: str) -> None:
        if tick := TICK_LINE.match(text):
            self.now, self.now_ns = float(tick[1]), int(tick[2])
            self.labels = {}
            if len(self.ticks) < MAX_POINTS:
                self.ticks.append(self.now)
        elif ours := OUR_BANNER.match(text):
            self.tool = ours[1]
        elif dstate := DSTATE_LINE.match(text):
            seconds = int(dstate[3]) / 1e6
            if seconds >= self.limits.d_state:
                stack = stack_functions(dstate[5])
                self._event(
                    blocked_event(
                        self._at(int(dstate[1])), int(dstate[2]), dstate[4].strip(), seconds, stack, ended=True
                    )
                )
        elif text.strip():
            self._event(("ebpf_line", self.tool, text.strip()[:1000], self.who, {}))

    def _event(self, told: tuple[str, str, str, Resource, Mapping[str, Scalar]]) -> None:
        kind, reason, message, who, fields = told
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(self.source, self.now, kind, reason, message, who, fields))
        else:
            self.full += 1

    def _at(self, pid: int | None) -> Resource:
        """Return the resource of a process; the caller's rank applies only to the caller's pid."""
        if pid is None or pid == self.who.pid:
            return self.who
        return replace(self.who, pid=pid, rank=self.who.rank if self.who.pid is None else None)

    # maps

    def _map(self, name: str, value: Any) -> None:
        self.known += 1
        if isinstance(value, dict) and not is_stats(value):
            for key, item in value.items():
                self._value(name, str(key)[:300], item)
        else:
            self._value(name, "", value)

    def _value(self, name: str, key: str, value: Any) -> None:
        if name in UNENDED_MAPS:
            self._waits(name, key, integer(value))
        elif isinstance(value, str):
            if len(self.labels) < MAX_SERIES:
                self.labels[name, key] = value[:16384]
        elif isinstance(value, list):
            self._histogram(name, key, value)
        else:
            number = mapping(value).get("average", value) if isinstance(value, dict) else value
            if (right := finite_number(number)) is not None:
                self._point(name, key, right)
            else:
                self.odd += 1

    def _gathered(self, name: str, key: str) -> _GrowingSeries | None:
        found = self.series.get((name, key))
        if found is None and len(self.series) < MAX_SERIES:
            found = self.series[name, key] = _GrowingSeries()
        if found is None or self.points >= MAX_POINTS:
            self.full += 1
            return None
        self.points += 1
        return found

    def _point(self, name: str, key: str, value: float) -> None:
        found = self._gathered(name, key)
        if found is not None:
            found.points.append((self.now, value))

    def _histogram(self, name: str, key: str, rows: list[Any]) -> None:
        found = self._gathered(name, key)
        if found is None:
            return
        total = 0
        for row in rows[:512]:
            part = mapping(row)
            low, high, count = integer(part.get("min")), integer(part.get("max")), integer(part.get("count"))
            if count is not None and count >= 0 and (low is not None or high is not None):
                low, high = low if low is not None else 0, high if high is not None else (low or 0)
                span = (float(low), float(max(low, high)))
                found.buckets[span] = found.buckets.get(span, 0) + count
                total += count
        found.points.append((self.now, float(total)))

    def _waits(self, name: str, key: str, since: int | None) -> None:
        """Record a call that has not ended at this tick. Labels of the same tick come later."""
        if since is None or not 0 < since <= self.now_ns:
            return
        if len(self.waits) < MAX_SERIES or (name, key, since) in self.waits:
            self.waits[name, key, since] = ((self.now_ns - since) / 1e9, self.now, self.labels)

    # text formats

    def _text(self, line: str) -> None:
        if bucket := TEXT_BUCKET.match(line):
            self._bucket(bucket_bound(bucket[1]), bucket_bound(bucket[2] or bucket[1]), int(bucket[3]))
        elif bucket := BCC_BUCKET.match(line):
            self._bucket(float(bucket[1]), float(bucket[2]), int(bucket[3]))
        elif head := BCC_HEAD.match(line):
            self.current = (f"latency_{BCC_UNITS[head[1]]}", "")
        elif found := TEXT_MAP.match(line):
            self._text_map(found)
        elif not self._stack_line(line) and not self._slow_io(line) and not BANNER.match(line):
            if TICK_LINE.match(line) or OUR_BANNER.match(line):
                self._printed(line)
            else:
                self.odd += 1

    def _bucket(self, low: float, high: float, count: int) -> None:
        if self.current is None:
            self.odd += 1
            return
        found = self._gathered(*self.current)
        if found is not None:
            found.buckets[low, max(low, high)] = found.buckets.get((low, max(low, high)), 0) + count

    def _text_map(self, found: re.Match[str]) -> None:
        self.known += 1
        name, key = found[1], ",".join(part.strip() for part in (found[2] or "").split(","))
        self.current = (name, key)
        if found[3] is not None:
            value = found[3].strip()
            self._value(name, key, int(value) if re.fullmatch(r"-?[0-9]{1,20}", value) else value)

    def _stack_line(self, line: str) -> bool:
        """Read offcputime's lines: folded, or frame by frame with the total below."""
        if folded := FOLDED.match(line):
            frames = tuple(text for text in reversed(folded[2][1:].split(";")) if text not in {"-", "--", ""})
            self._stack(folded[1].strip(), self.who, frames, int(folded[3]))
        elif who := STACK_WHO.match(line):
            self.owner = (who[1], int(who[2]))
        elif self.owner is not None and (total := STACK_TIME.match(line)):
            self._stack(self.owner[0], self._at(int(self.owner[1])), tuple(self.frames), int(total[1]))
            self.frames, self.owner = [], None
        elif frame := STACK_FRAME.match(line):
            if frame[1] not in {"--", "-"} and len(self.frames) < MAX_FRAMES:
                self.frames.append(frame[1])
        else:
            return False
        return True

    def _stack(self, command: str, who: Resource, frames: tuple[str, ...], micros: int) -> None:
        self.known += 1
        if len(self.stacks) >= MAX_STACKS:
            self.full += 1
            return
        seconds = micros / 1e6
        self.stacks.append(OffCpuStack(command, who, tuple(frame[:300] for frame in frames[:MAX_FRAMES]), seconds))
        if seconds >= self.limits.d_state and re.search(r"state[ =]?2\b|dstate", self.tool):
            self._event(blocked_event(who, None, command, seconds, frames, ended=False))

    def _slow_io(self, line: str) -> bool:
        row = BIOSNOOP.match(line)
        if row is None:
            return False
        self.known += 1
        seconds = round(float(row[8]) / 1e3, 6)
        if seconds >= self.limits.slow_io:
            fields: dict[str, Scalar] = {
                "seconds": seconds,
                "disk": row[4],
                "direction": row[5],
                "comm": row[2].strip(),
            }
            self._event(
                ("slow_io", "biosnoop", f"{row[5]} on {row[4]} took {seconds:.1f} s", self._at(int(row[3])), fields)
            )
        return True

    # results

    def close(self, head: Mapping[str, Any]) -> EbpfReading:
        """Return the parsed output."""
        series = tuple(self._closed(name, key, item) for (name, key), item in self.series.items())
        begin, end = finite_number(head.get("start")), finite_number(head.get("end"))
        spans = [end - begin] if begin is not None and end is not None else []
        spans += [self.ticks[-1] - self.ticks[0] + tick_period(self.ticks)] if len(self.ticks) > 1 else []
        self._open_events()
        self._stalled(series)
        return EbpfReading(
            source=self.source,
            tool=self.tool,
            resource=self.who,
            seconds=next((span for span in spans if span > 0), None),
            ticks=tuple(self.ticks),
            series=series,
            stacks=tuple(self.stacks),
            events=tuple(self.events),
        )

    def _closed(self, name: str, key: str, growing_series: _GrowingSeries) -> EbpfSeries:
        pid, _, rest = key.partition(",")
        number = parse_pid(pid)
        who = self._at(number) if number is not None else self.who
        call = rest if number is not None else key
        buckets = tuple((low, high, count) for (low, high), count in sorted(growing_series.buckets.items()))
        return EbpfSeries(name, unit_of_map(name), who, function_of_probe(call), tuple(growing_series.points), buckets)

    def _open_events(self) -> None:
        """Return the calls that had not ended when last seen, once each."""
        reported = {
            (event.resource.pid, event.fields["tid"]): event.fields["seconds"]
            for event in self.events
            if event.kind == "d_state"
        }
        longest = sorted(self.waits.items(), key=lambda item: (-item[1][0], item[0]))
        for (name, key, _), (seconds, at, labels) in longest:
            pid, _, tid = key.partition(",")
            process, thread = parse_pid(pid), parse_pid(tid)
            if process is None:
                continue
            who, self.now = self._at(process), at
            kind, call = UNENDED_MAPS[name]
            ended = reported.get((who.pid, thread))
            if kind == "d_state" and isinstance(ended, float) and ended >= seconds:
                continue  # already reported by the line at its end
            if kind == "d_state" and seconds >= self.limits.d_state:
                stack = stack_functions(labels.get(("blocked_stack", key), ""))
                self._event(
                    blocked_event(who, thread, labels.get(("blocked_comm", key), ""), seconds, stack, ended=False)
                )
            elif kind == "stuck_call" and seconds >= self.limits.call:
                named = function_of_probe(labels.get((call, key), call))
                fields: dict[str, Scalar] = {"seconds": seconds, "call": named, "tid": thread}
                self._event((kind, named, f"{named} has not ended for {seconds:.0f} s", who, fields))

    def _stalled(self, series: Sequence[EbpfSeries]) -> None:
        """Add events for completion queues that were polled until the end without a completion."""
        named: dict[int | None, dict[str, dict[float | None, float]]] = {}
        for series_item in series:
            if series_item.name in {"posted", "polls", "completions"}:
                named.setdefault(series_item.resource.pid, {})[series_item.name] = dict(series_item.points)
        for pid, maps in sorted(named.items(), key=lambda item: item[0] or 0):
            polls, done, posted = (maps.get(name, {}) for name in ("polls", "completions", "posted"))
            last = max((at for at, value in done.items() if at is not None and value > 0), default=None)
            polled = [at for at, value in polls.items() if at is not None and value > 0 and (last is None or at > last)]
            if not polled:
                continue
            since = last if last is not None else min(polled) - tick_period(self.ticks)
            seconds, self.now = max(polled) - since, max(polled)
            if seconds >= self.limits.cq_stall:
                fields: dict[str, Scalar] = {
                    "seconds": seconds,
                    "polls": sum(value for at, value in polls.items() if at in polled),
                    "posted": sum(value for at, value in posted.items() if at is not None and at > since),
                    "ever": last is not None,
                }
                self._event(
                    (
                        "cq_stall",
                        "no completion",
                        f"polled for {seconds:.0f} s with no completion",
                        self._at(pid),
                        fields,
                    )
                )
