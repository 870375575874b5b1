"""Backtest a change of rules on all stored incidents and on logs of successful runs, before a person reviews it.

It takes two passes. The first searches each stored text for what the changed rules require
(`kb.learning.required_literals`); only texts with a match are evaluated with both rule bases. All other answers stay
the same, because a rule that does not fire changes no answer. Both answers are computed from the stored text: for an
incident that stacks or metrics decided, the text alone may say less than its report.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from typing import Literal

import zstandard
from sqlmodel import col, select

from bot.diagnosis.replay_text import streams_of
from bot.diagnosis.scan_pool import leave_interrupts, process_context
from bot.learning.outcomes import ReviewedIncident, faults_of, told_within
from bot.learning.replay.scan_cost import dearer
from bot.learning.replay.trial import FirstAnswer, Trial, TrialJudge, TrialResult
from bot.store.database import Database
from bot.store.packed_reports import REPLAY_BYTES
from bot.store.tables import ReplayRow
from kb.errors import SignalboxError
from kb.learning.precision import HitRate, fits
from kb.rulebase.rule import Rulebook

MOST_JUDGED = 1_500  # incidents evaluated with both rule bases: those with feedback first, then the newest
FEW = 8  # incidents or logs listed in a reason
_CHUNK, _FEW_TEXTS = 64, 8  # incidents per task of the first and of the second pass
_ROUND = 96  # incidents between two checks whether enough is known
_NOTHING = HitRate(0, 0)

Kind = Literal["new", "lost", "changed"]


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """An incident whose first answer changes. `truth`: the fault that people named, None if nobody did.

    `better`: only the new answer matches what people named; `worse`: only the old answer does.
    """

    incident: int
    kind: Kind
    old: FirstAnswer
    new: FirstAnswer
    truth: str | None = None
    better: bool = False
    worse: bool = False


@dataclass(frozen=True, slots=True)
class BacktestCost:
    """The cost of the changed rules: `engine` seconds for `size` bytes of text, and the number of lines to check."""

    size: int = 0
    engine: float = 0.0
    asked: int = 0

    @property
    def words(self) -> str:
        """The cost per MB."""
        megabytes = max(self.size, 1) / 1e6
        return f"{self.asked / megabytes:.1f} lines checked and {self.engine / megabytes * 1e3:.2f} ms of engine time per MB"


@dataclass(frozen=True, slots=True)
class Backtest:
    """The effects of a change.

    `incidents`: those whose text was searched; `without_text`: those whose text is no longer stored; `judged`: those evaluated
    with both rule bases; `unjudged`: those that may be affected but exceeded the limit; `unjudged_said`: those among them that
    have feedback. `hits`: incidents on which a changed rule fires. `precision`: the share of hits with a known cause for which
    the rule names that cause; `recall`: the share of incidents with these causes on which a rule fires. `shadowed`: rules that
    gave the first answer before and no longer do, with how often. `clean`, `clean_hits`: logs of successful runs, and those on
    which a changed rule fires or the answer changes. `hurts`: why this must not be proposed unless a person asks for it.
    `dear`: remarks on its cost, which do not prevent a proposal (`costing`).
    """

    rules: tuple[str, ...]
    incidents: int = 0
    without_text: int = 0
    judged: int = 0
    unjudged: int = 0
    unjudged_said: int = 0
    hits: tuple[int, ...] = ()
    changes: tuple[ChangedAnswer, ...] = ()
    precision: HitRate = _NOTHING
    recall: HitRate = _NOTHING
    shadowed: Mapping[str, int] = field(default_factory=dict)
    clean: int = 0
    clean_hits: tuple[str, ...] = ()
    cost: BacktestCost = field(default_factory=BacktestCost)
    seconds: float = 0.0
    hurts: tuple[str, ...] = ()
    dear: tuple[str, ...] = ()

    def of(self, kind: Kind) -> tuple[ChangedAnswer, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)


# --- all texts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FirstPass:
    """The result of the first pass: the number of texts, those to evaluate, and the cost."""

    texts: int
    found: tuple[int, ...]
    cost: BacktestCost


def backtest(
    trial_: Trial,
    url: str,
    clean: Mapping[str, Mapping[str, bytes]],
    *,
    tenant: str | None = None,
    workers: int | None = None,
    most: int | None = MOST_JUDGED,
    tell: Callable[[int, int], None] | None = None,
) -> Backtest:
    """Test a change on the incidents of a store and on logs of successful runs (`clean_logs`).

    `tenant`: use only the incidents of this tenant. `most`: evaluate at most this many, those with feedback first, and stop once
    the change has made `FEW` confirmed answers worse; None evaluates all. `tell` receives how many incidents were read, and of how many.

    Raises:
        StoreError: the store cannot be read.
        SignalboxError: a process died.
    """
    begun = time.perf_counter()
    judge = TrialJudge(trial_)
    with Database(url) as store, store.errors(), store.session() as session:
        reviewed = told_within(session, tenant)
    ids = sorted(reviewed, reverse=True)
    workers = min(workers or len(os.sched_getaffinity(0)), max(1, len(ids) // _CHUNK))
    try:
        with ProcessPoolExecutor(workers, process_context(), _start, (url, judge)) as pool:
            sifted = []
            for part in pool.map(_sift, _chunks(ids, _CHUNK)):
                sifted.append(part)
                if tell is not None:
                    tell(min(len(sifted) * _CHUNK, len(ids)), len(ids))
            found = sorted(
                (item for part in sifted for item in part.found), key=lambda item: (not reviewed[item].said, -item)
            )
            heard, judged = _heard(pool, found, reviewed, most)
    except BrokenProcessPool as error:
        raise SignalboxError("a backtest process died; there is no result") from error
    left = found[judged:]
    texts = sum(item.texts for item in sifted)
    result = Backtest(
        trial_.rules,
        incidents=texts,
        without_text=len(ids) - texts,
        judged=judged,
        unjudged=len(left),
        unjudged_said=sum(reviewed[item].said for item in left),
        hits=tuple(number for number in sorted(heard) if heard[number].spoke),
        changes=tuple(
            _change(number, item, reviewed[number]) for number, item in sorted(heard.items()) if item.old != item.new
        ),
        precision=_precision(trial_.new, reviewed, heard),
        recall=_recall(trial_, reviewed, heard, frozenset(left)),
        shadowed=_shadowed(trial_.rules, heard),
        clean=len(clean),
        clean_hits=tuple(_on_clean(judge, clean)),
        cost=_sum(item.cost for item in sifted),
        seconds=round(time.perf_counter() - begun, 2),
        dear=tuple(dearer(trial_, clean)),
    )
    return replace(result, hurts=tuple(_hurts(result)))


def _heard(
    pool: ProcessPoolExecutor, found: Sequence[int], told: Mapping[int, ReviewedIncident], most: int | None
) -> tuple[dict[int, TrialResult], int]:
    """Evaluate incidents in rounds until enough is known. Return the results and the number of incidents evaluated."""
    heard: dict[int, TrialResult] = {}
    chosen = found if most is None else found[:most]
    judged = 0
    for part in _chunks(chosen, _ROUND if most is not None else max(1, len(chosen))):
        for item in pool.map(_judge, _chunks(part, _FEW_TEXTS)):
            heard |= item
        judged += len(part)
        if most is not None and sum(_change(number, heard[number], told[number]).worse for number in heard) >= FEW:
            break
    return heard, judged


def _chunks(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    return [ids[at : at + size] for at in range(0, len(ids), size)]


_work: tuple[Database, TrialJudge] | None = None


def _start(url: str, judge: TrialJudge) -> None:
    global _work  # noqa: PLW0603 - a worker process has one, made once
    leave_interrupts()
    _work = Database(url), judge


def _texts(ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Return the stored texts of some incidents."""
    store, _ = _begun()
    with store.errors(), store.session() as session:
        rows = session.exec(
            select(ReplayRow.incident_id, ReplayRow.text_zstd).where(col(ReplayRow.incident_id).in_(ids))
        ).all()
    for number, packed in rows:
        try:
            yield number, zstandard.decompress(packed, max_output_size=REPLAY_BYTES)
        except zstandard.ZstdError:
            continue  # treated as missing


def _begun() -> tuple[Database, TrialJudge]:
    if _work is None:
        raise RuntimeError("the worker was not started by backtest")
    return _work


def _sift(ids: Sequence[int]) -> _FirstPass:
    _, judge = _begun()
    texts, found, size, engine_s, asked = 0, [], 0, 0.0, 0
    for number, text in _texts(ids):
        begun = time.perf_counter()
        lets, lines = judge.sift(text)
        engine_s += time.perf_counter() - begun
        texts, size, asked = texts + 1, size + len(text), asked + lines
        if lets:
            found.append(number)
    return _FirstPass(texts, tuple(found), BacktestCost(size, engine_s, asked))


def _judge(ids: Sequence[int]) -> dict[int, TrialResult]:
    _, judge = _begun()
    return {number: heard for number, text in _texts(ids) if (heard := judge.hear(streams_of(text))) is not None}


# --- results ---------------------------------------------------------------------------------------------------------


def _sum(costs: Iterable[BacktestCost]) -> BacktestCost:
    total = BacktestCost()
    for cost in costs:
        total = BacktestCost(total.size + cost.size, total.engine + cost.engine, total.asked + cost.asked)
    return total


def _change(number: int, heard: TrialResult, reviewed: ReviewedIncident) -> ChangedAnswer:
    old, new = heard.old, heard.new
    kind: Kind = "changed" if bool(old.fault) == bool(new.fault) else "new" if new.fault else "lost"
    was, now = (item.fault == reviewed.truth and reviewed.truth is not None for item in (old, new))
    # a report that was right because of more than its text must not become wrong either
    was = was or (reviewed.confirmed and old.fault is None and new.fault is not None)
    return ChangedAnswer(number, kind, old, new, reviewed.truth, better=now and not was, worse=was and not now)


def _precision(book: Rulebook, told: Mapping[int, ReviewedIncident], heard: Mapping[int, TrialResult]) -> HitRate:
    """Return the share of hits, on incidents with a confirmed cause, that name that cause or its consequence."""
    judged = [
        any(fits(book, told[number].truth or "", fault) for faults in item.spoke.values() for fault in faults)
        for number, item in heard.items()
        if item.spoke and told[number].truth is not None
    ]
    return HitRate(sum(judged), len(judged))


def _recall(
    trial_: Trial, told: Mapping[int, ReviewedIncident], heard: Mapping[int, TrialResult], left: Collection[int]
) -> HitRate:
    """Return the share of incidents of the changed rules' faults on which one of them fires; `left` were not evaluated."""
    faults = {fault for rule in trial_.new.rules if rule.id in trial_.rules for fault in faults_of(rule)}
    of = [number for number, item in told.items() if item.truth in faults and number not in left]
    return HitRate(sum(number in heard and bool(heard[number].spoke) for number in of), len(of))


def _shadowed(rules: Sequence[str], heard: Mapping[int, TrialResult]) -> Mapping[str, int]:
    gone = Counter(
        trial_result.old.rule
        for trial_result in heard.values()
        if trial_result.new.rule in rules and trial_result.old.rule not in (None, trial_result.new.rule)
    )
    return {str(name): count for name, count in gone.most_common()}


def _hurts(result: Backtest) -> Iterator[str]:
    worse = [change for change in result.changes if change.worse]
    if worse:
        named = ", ".join(
            f"{changed_answer.incident} ({changed_answer.old.fault or changed_answer.truth} to {changed_answer.new.words})"
            for changed_answer in worse[:FEW]
        )
        more = f" and {len(worse) - FEW} more" if len(worse) > FEW else ""
        yield f"it changes {len(worse)} answer{'s' * (len(worse) != 1)} that people confirmed: {named}{more}"
    elif result.unjudged_said:
        yield f"it may change too many answers: {result.unjudged_said} incidents with feedback were not evaluated"
    if result.clean_hits:
        named = ", ".join(result.clean_hits[:FEW])
        more = f" and {len(result.clean_hits) - FEW} more" if len(result.clean_hits) > FEW else ""
        yield f"it matches {len(result.clean_hits)} of {result.clean} clean logs: {named}{more}"


def _on_clean(judge: TrialJudge, clean: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """Return the names of the logs on which a changed rule fires, or whose verdict changes."""
    for name, streams in clean.items():
        if any(judge.sift(text)[0] for text in streams.values()):
            heard = judge.hear(streams)
            if heard is not None and (heard.spoke or heard.new.verdict != heard.old.verdict):
                yield name
