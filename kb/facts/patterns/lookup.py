"""Looks up the patterns of rules in the facts of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start, wrapped_in
from kb.facts.patterns.signals import PatternResult, Signal
from kb.facts.patterns.structure_tests import exception_test, fits, line_passes, searches, slashed, structure_test
from kb.facts.steps.returns import follows_returns
from kb.model import Resource, Structure
from kb.parsers.logs.recoveries import quoted
from kb.plugin import Observed, Plugged, plugin_key
from kb.rulebase.rule import MEASURED, DetectorTest, ExceptionTest, Pattern, PluginTest, Rule, SeriesTest
from kb.scanning.summary import Place, tail_lines

if TYPE_CHECKING:
    from kb.metrics.series_detectors.finding import SeriesFinding

_NOTHING = PatternResult()  # what most of a thousand patterns give
LEAST_POINTS = 5  # minimum number of values of a metric for a series


class PatternLookup:
    """Looks up the patterns of rules in the facts of one job."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._classes: set[str] | None = None  # class names of the exceptions
        self._explained: Mapping[int, list[tuple[int, int]]] = {}
        self._detected: dict[tuple[str, tuple[tuple[str, float], ...]], tuple[tuple[int, SeriesFinding], ...]] = {}
        self._signals: dict[int, Signal] = {}  # by the identity of the structure, which the facts hold

    def is_silent(self, rule: Rule) -> bool:
        """Whether no pattern of a rule can be found, as for most rules: no log has a line, an exception or a structure for one."""
        return not any(self._may_be_found(rule, pattern) for pattern in rule.patterns)

    def _may_be_found(self, rule: Rule, pattern: Pattern) -> bool:
        if pattern.literal is not None or pattern.regex is not None:
            return bool(self.facts.streams_hit(f"{rule.id}#{pattern.name}"))
        if pattern.exception is not None:
            return bool(self.facts.structures("exception"))
        return pattern.structure is None or any(map(self.facts.structures, pattern.structure.kinds))

    def look_up(self, rule: Rule, pattern: Pattern) -> PatternResult:
        """Look up one pattern."""
        key = f"{rule.id}#{pattern.name}"
        if pattern.exception is not None:
            return self._exceptions(key, pattern, pattern.exception)
        if pattern.structure is not None:
            found = [item for kind in pattern.structure.kinds for item in self.facts.structures(kind)]
            return self._structured(key, pattern, found, structure_test(pattern.structure)) if found else _NOTHING
        if pattern.detect is not None:
            return self._detector(key, pattern.detect)
        if pattern.series is not None:
            return self._series(key, pattern, pattern.series)
        if pattern.plugin is not None:
            return self._plugged(key, pattern, pattern.plugin)
        return self._lines(key, pattern)

    def _exceptions(self, key: str, pattern: Pattern, test: ExceptionTest) -> PatternResult:
        raised = self._raised(test.type)
        if not test.classified:
            return self._structured(key, pattern, raised, exception_test(test)) if raised else _NOTHING
        raised = self._unexplained(raised)
        if not raised:
            return _NOTHING
        from kb.facts.patterns.classification import classified  # noqa: PLC0415 - only errors that no rule knows need the classifier

        return self._structured(key, pattern, raised, classified(test, raised, self.facts))

    def _raised(self, kind: str | None) -> list[tuple[int, Structure]]:
        """Return the exceptions whose class matches a regex. There are few classes, raised by many ranks."""
        everything = self.facts.structures("exception")
        if kind is None:
            return everything
        if self._classes is None:
            self._classes = {str(entry.fields.get("type") or "") for _, entry in everything}
        wanted = {name for name in self._classes if fits(kind, name)}
        return [item for item in everything if str(item[1].fields.get("type") or "") in wanted] if wanted else []

    def explained_by(self, spans: Mapping[int, list[tuple[int, int]]]) -> None:
        """Leave out of classification what other rules explain: byte ranges, by stream."""
        self._explained = spans

    def _unexplained(self, raised: Iterable[tuple[int, Structure]]) -> list[tuple[int, Structure]]:
        """Return the exceptions to classify: those that ended their process, as far as is known, and that no rule explains."""
        return [
            (index, item)
            for index, item in raised
            if not (item.fields.get("lived_with") or self._of_a_helper(item))
            and not self._is_explained(index, item)
            and not self.facts.survived(index, item.offset, item.time, item.resource.rank)
        ]

    def _is_explained(self, index: int, item: Structure) -> bool:
        """Whether another rule explains an exception, or one that was raised from it: what that rule knows is no guess."""
        spans = self._explained.get(index, ())
        outer = wrapped_in(self.facts.streams[index].exceptions, item) if spans else ()
        return any(low <= place.offset < high for place in (item, *outer) for low, high in spans)

    def _of_a_helper(self, item: Structure) -> bool:
        """Whether a process other than the ranks raised an exception, in a log that says which processes are ranks."""
        who = self.facts.placed(item.resource)
        return who.rank is None and who.pid is not None and bool(self.facts.structures("process_start"))

    def _lines(self, key: str, pattern: Pattern) -> PatternResult:
        hit = self.facts.streams_hit(key)
        if not hit:
            return _NOTHING
        signals: list[Signal] = []
        ranks: dict[int | None, int] = {}
        count = 0
        for index in hit:
            facts = self.facts.streams[index]
            hits = facts.summary.hits[key]
            here = [self._line_signal(key, index, place) for place in hits.places()]
            kept = [signal for signal in here if not quoted(signal.line.encode()) and self._in_scope(pattern, signal)]
            signals.extend(kept)
            count += hits.count if len(kept) == len(here) else len(kept)
            if kept:
                for tally in hits.ranks:
                    ranks[tally.rank] = ranks.get(tally.rank, 0) + tally.count
        return PatternResult(count, tuple(signals), ranks)

    def _line_signal(self, key: str, index: int, place: Place) -> Signal:
        who = place.resource
        if who.rank is None:  # of a traceback, often only the header names the rank
            who = self.facts.streams[index].raiser(place.offset) or who
        return Signal(
            key,
            index,
            place.offset,
            place.line,
            "line",
            self.facts.placed(who),
            place.time,
            dict(place.captures),
            *self.facts.when(index, place.offset, place.time),
            (place.offset, place.offset + 1),
            self.facts.survived(index, place.offset, place.time, place.resource.rank)
            or self.facts.streams[index].outlives_command(place.offset, place.line),
            timed=place.timed,
        )

    def _structured(
        self,
        key: str,
        pattern: Pattern,
        found: Iterable[tuple[int, Structure]],
        test: Callable[[Structure], Mapping[str, str] | None],
    ) -> PatternResult:
        signals = []
        for index, pair in found:
            captures = test(pair)
            if captures is None or not line_passes(pattern, pair.line) or quoted(pair.line.encode()):
                continue
            signal = self._structure_signal(key, index, pair, captures)
            if self._in_scope(pattern, signal):
                signals.append(signal)
        ranks: dict[int | None, int] = {}
        for signal in signals:
            ranks[signal.resource.rank] = ranks.get(signal.resource.rank, 0) + 1
        return PatternResult(len(signals), tuple(signals), ranks)

    def _structure_signal(self, key: str, index: int, structure: Structure, captures: Mapping[str, str]) -> Signal:
        """Return the signal of a structure. Many patterns match the same one: what they share is found once."""
        known = self._signals.get(id(structure))
        if known is None:
            known = self._signals[id(structure)] = self._signal_of(index, structure)
        return replace(known, key=key, captures=captures)

    def _signal_of(self, index: int, structure: Structure) -> Signal:
        start = structure_start(structure)
        return Signal(
            "",
            index,
            structure.offset,
            structure.line,
            structure.kind,
            self.facts.placed(structure.resource),
            structure.time,
            {},
            *self.facts.when(index, start, structure.time),
            (start, max(structure.end, structure.offset + 1)),
            self.facts.survived(index, structure.offset, structure.time, structure.resource.rank),
            int(structure.fields.get("chain") or 0),
            structure.timed,
        )

    def _detector(self, key: str, test: DetectorTest) -> PatternResult:
        if test.name == "collective_behind":
            return self._behind(key)
        if test.name == "collectives_differ":
            return self._differ(key)
        if test.name == "loss_turned_nan":
            return self._turned(key)
        which = (test.name, tuple(sorted(test.params.items())))
        if which not in self._detected:
            self._detected[which] = tuple(self._detect(test))
        signals = tuple(
            Signal(
                key,
                index,
                point.offset,
                found.text,
                "series",
                Resource(rank=None),
                point.time,
                {**dict(found.captures), "finding": found.text},
                "iterating",
                self._step(index, point.offset, point.step),
                (point.offset, point.offset + 1),
            )
            for index, found in self._detected[which]
            for point in (found.point, *found.more)
        )
        return PatternResult(len(signals), signals, {None: len(signals)} if signals else {})

    def _detect(self, test: DetectorTest) -> Iterator[tuple[int, SeriesFinding]]:
        """Yield what a series detector finds, with the index of the stream."""
        series = [(index, stream.summary) for index, stream in enumerate(self.facts.streams)]
        series = [(index, summary) for index, summary in series if summary.ref.kind == "job" and summary.series.points]
        if not series:
            return
        from kb.metrics.series_detectors.detect import detect  # noqa: PLC0415 - many logs have no series

        for index, summary in series:
            if test.name == "loss_spike" and follows_returns(tail_lines(summary)):
                continue
            for found in detect(test.name, summary.series.points, test.params):
                yield index, found

    def _step(self, stream: int, offset: int, step: int | None) -> int | None:
        """Return the run's step of a point; None if its line counts from the start of each epoch and nothing tells more."""
        if self.facts.in_epochs:
            return None
        counted = self.facts.streams[stream].run_iteration(offset)
        return step if counted is None else counted

    def _series(self, key: str, pattern: Pattern, test: SeriesTest) -> PatternResult:
        """Return where a series passes the test. A metric of the bundle is reported for the stream of its metrics."""
        if not self._measured(test.metric):
            return PatternResult()
        from kb.facts.steps.series_tests import look  # noqa: PLC0415 - numpy is slow to import, and only a few jobs measure what rules ask for

        logs = [(at, item.summary) for at, item in enumerate(self.facts.streams) if item.summary.ref.kind == "job"]
        metrics = next((at for at, item in enumerate(self.facts.streams) if item.summary.ref.group == "metrics"), None)
        signals = []
        for spot in look(test, logs, self.facts.evidence.panels, self.facts.timed):
            stream = metrics if spot.stream is None else spot.stream
            if stream is None:
                continue
            who = self.facts.placed(spot.resource)
            signal = Signal(
                key,
                stream,
                spot.offset,
                spot.text,
                "series",
                who,
                spot.time,
                {**spot.captures, "finding": spot.text},
                "iterating",
                spot.step if spot.stream is None else self._step(stream, spot.offset, spot.step),
                (spot.offset, spot.offset + 1),
            )
            if line_passes(pattern, signal.line) and self._in_scope(pattern, signal):
                signals.append(signal)
        return PatternResult(len(signals), tuple(signals), Counter(signal.resource.rank for signal in signals))

    def _measured(self, metric: str) -> bool:
        """Whether any source of the job measures the metric."""
        if metric in self.facts.evidence.panels or (
            metric == "gpu_memory_share" and "gpu_memory" in self.facts.evidence.panels
        ):
            return True
        field = MEASURED.get(metric)
        if field is None:
            return False
        points = (
            p for stream in self.facts.streams for p in stream.summary.series.points if getattr(p, field) is not None
        )
        return sum(1 for _ in islice(points, LEAST_POINTS)) == LEAST_POINTS

    def _plugged(self, key: str, pattern: Pattern, test: PluginTest) -> PatternResult:
        """Return a user's detector's results for existing streams."""
        gave = self.facts.evidence.plugged.get(plugin_key(test), Plugged(failure="it did not run"))
        if gave.failure:
            return PatternResult(needs=f"detector {test.name}: {gave.failure}")
        made = [self._observed(key, item) for item in gave.observed if 0 <= item.stream < len(self.facts.streams)]
        signals = tuple(item for item in made if line_passes(pattern, item.line) and self._in_scope(pattern, item))
        ranks = Counter(signal.resource.rank for signal in signals)
        return PatternResult(len(signals), signals, ranks)

    def _observed(self, key: str, observed: Observed) -> Signal:
        facts = self.facts.streams[observed.stream]
        known = facts.summary.ref.resource
        resource = replace(
            known,
            rank=known.rank if observed.rank is None else observed.rank,
            node=known.node if observed.node is None else observed.node,
        )
        stage, step = self.facts.when(observed.stream, observed.offset, observed.time)
        return Signal(
            key,
            observed.stream,
            observed.offset,
            observed.text,
            "series",
            self.facts.placed(resource),
            observed.time,
            observed.captures,
            stage,
            step if observed.iteration is None else observed.iteration,
            (observed.offset, observed.offset + 1),
        )

    def _behind(self, key: str) -> PatternResult:
        statuses = self.facts.structures("watchdog_status")
        if not statuses:
            return PatternResult(0, (), {})
        from kb.metrics.series_detectors.watchdog import collective_behind  # noqa: PLC0415 - few jobs log it

        found = collective_behind(statuses, self.facts.structures("watchdog"))
        signals = tuple(
            self._structure_signal(key, behind_rank.stream, behind_rank.status, dict(behind_rank.captures))
            for behind_rank in found
        )
        return PatternResult(len(signals), signals, {signal.resource.rank: 1 for signal in signals})

    def _differ(self, key: str) -> PatternResult:
        timeouts = self.facts.structures("watchdog")
        if not timeouts:
            return PatternResult(0, (), {})
        from kb.metrics.series_detectors.watchdog import collectives_differ  # noqa: PLC0415 - few jobs log it

        signals = tuple(
            self._structure_signal(key, rank.stream, rank.timeout, dict(rank.captures))
            for rank in collectives_differ(timeouts, self.facts.structures("watchdog_status"))
        )
        return PatternResult(len(signals), signals, {signal.resource.rank: 1 for signal in signals})

    def _turned(self, key: str) -> PatternResult:
        """Return the losses in lines of no known form that were finite and are nan up to the end of their log."""
        signals = []
        for index, stream in enumerate(self.facts.streams):
            if stream.summary.ref.kind != "job":
                continue
            losses = [(column.offset, column.line) for column in stream.turned_to_nan if column.is_loss]
            for at, line in losses[:1]:
                who, span = self.facts.placed(stream.summary.ref.resource), (at, at + 1)
                signals.append(
                    Signal(key, index, at, line, "series", who, None, {}, *self.facts.when(index, at, None), span)
                )
        return PatternResult(len(signals), tuple(signals), Counter(signal.resource.rank for signal in signals))

    def _in_scope(self, pattern: Pattern, signal: Signal) -> bool:
        where = pattern.where
        facts = self.facts.streams[signal.stream]
        if self.facts.of_another_job(signal.stream, signal.line):
            return False
        if where.sources and facts.summary.ref.kind not in where.sources:
            return False
        if where.stages and signal.stage not in where.stages:
            return False
        if (
            where.in_traceback is not None
            and signal.kind == "line"
            and facts.in_traceback(signal.offset) != where.in_traceback
        ):
            return False
        if where.last_frame is not None:
            return any(
                searches(where.last_frame, slashed(str(exception.fields.get("last_frame") or "")))
                for exception in facts.exceptions
                if structure_start(exception) <= signal.offset < exception.end
            )
        return True
