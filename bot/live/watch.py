"""Watches a running job and reports when it hangs or fails: votes when they change, faults when they appear, the diagnosis at the end.

The votes and the verdict come from kb; this module acts on them. A bundle is started at the first vote, completed when a
hang or a fatal fault is called, and diagnosed. A fault is shown when it is first seen. While the job's processes run, a fault is
called only if a hang probe agrees or a rank is gone, because healthy jobs also log errors and pause. Once the processes have
ended, the watch waits for the launcher's last lines, and the verdict decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from bot.diagnosis.diagnose import ComparisonOptions, DiagnosisResult, Recall, diagnose_bundle
from bot.diagnosis.line_numbers import resolve
from bot.live.bundle_writer import LiveBundle
from bot.live.probe_cycle import EXITS_UNKNOWN, ProbeCycle, ProbeResult, ProbeSources
from bot.rulebase.loader import Knowledge
from kb.diagnosis.engine import diagnose
from kb.diagnosis.live_phase import WAITS, is_state
from kb.errors import SignalboxError
from kb.facts.job_facts import Facts
from kb.hangs.pace import usual_gap
from kb.report import Diagnosis, Hang, Report

SETTLE = 8.0  # seconds between first seeing a fault and calling it: other faults can appear, and a surviving run makes progress
PATIENCE = 60.0  # the same, in seconds of silence, if no process shows whether the run continues
PACE = 3.0  # multiple of the job's usual gap between lines, used if that is longer
STEPS_AFTER = 3  # step lines from all ranks after which a run has survived a fault, if all its processes are running
LINGER = 300.0  # seconds that a launcher may take, after all ranks are gone, to report or restart them
AGAIN = 60.0  # seconds after which the run is judged again if only new steps arrived
SHORTEST = 0.5  # minimum seconds between two cycles, however long they take
_QUOTED = 240

Called = Literal["hang", "fatal", "stopped", "ended", ""]


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """How to watch. `every` and `limit` are in seconds; without `limit`, the watch lasts until something is called or the job ends.

    `save`: the folder of the bundle, which is created when needed.
    """

    save: Path
    every: float = 20.0
    limit: float | None = None


class Clock(Protocol):
    """A clock that can also wait."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait; return early when `stopping` becomes true."""

    def stopping(self) -> bool:
        """Whether the watch should end."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event to show. `event`: votes, fault, went_on, degraded, gone, restarted, over, bundle, gap, called."""

    event: str
    time: float
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchOutcome:
    """How the watch ended.

    `called`: "stopped" for a run that was stopped, "ended" for one whose outcome is unknown, "" if nothing was found.
    `pending`: a fault or a sign of a hang was seen, but the time was up before it was called.
    """

    why: str
    called: Called = ""
    answer: DiagnosisResult | None = None
    folder: Path | None = None
    interrupted: bool = False
    pending: bool = False


@dataclass(slots=True)
class _PendingFault:
    """A fault that was seen but not called yet: since when, after how many step lines, and what was reported."""

    since: float
    lines: int
    told: set[str] = field(default_factory=set)


class Watch:
    """A watch: call `run`, or `step` repeatedly. `compare` and `recall` are used for the answer, as in bot.diagnosis.diagnose."""

    def __init__(
        self,
        knowledge: Knowledge,
        plan: WatchPlan,
        clock: Clock,
        sources: ProbeSources,
        tell: Callable[[WatchEvent], None],
        *,
        compare: ComparisonOptions | None = None,
        recall: Recall | None = None,
    ) -> None:
        self._compare, self._recall = compare, recall
        self._knowledge, self._plan, self._clock, self._tell = knowledge, plan, clock, tell
        self._looking = ProbeCycle(knowledge, sources, clock.stopping)
        self._bundle = LiveBundle(plan.save, self._looking.logs.root)
        self._shown: tuple[tuple[str, str], ...] | None = None
        self._trouble: _PendingFault | None = None
        self._degraded: set[str] = set()
        self._report: Report | None = None
        self._signs: object = None
        self._judged_at = self._stepped = float("-inf")
        self._lines = 0
        self._lived_through: set[str] = set()
        self._first = True
        self._begun = float("inf")
        self._last: ProbeResult | None = None
        self._grew = float("-inf")

    def run(self) -> WatchOutcome:
        """Watch until something is called, the job ends, the time limit is reached, or the watch is stopped."""
        end = None if self._plan.limit is None else self._clock.now() + self._plan.limit
        self._looking.start()
        try:
            while True:
                begun = self._clock.now()
                outcome = self.step()
                if outcome is not None:
                    return outcome
                now = self._clock.now()
                if not self._clock.stopping():
                    if end is not None and now >= end:
                        return self._timed_out()
                    pause = min(self._plan.every, SETTLE) if self._urgent(now) else self._plan.every
                    pause = max(SHORTEST, pause - (now - begun))  # a fatal line waits no longer than one cycle takes
                    self._clock.sleep(pause if end is None else min(pause, end - now))
                if self._clock.stopping():
                    return replace(self._left("stopped before anything was found"), interrupted=True)
        finally:
            self._looking.stop()

    def step(self) -> WatchOutcome | None:
        """Run one cycle. Return how the watch ends, or None to continue."""
        look = self._last = self._looking.look(self._clock.now())
        self._begun = min(self._begun, look.time)
        self._grew = look.time if look.grew else self._grew
        step = max((stream.series.last.step or 0 for stream in look.evidence.streams if stream.series.last), default=0)
        lines = sum(stream.series.seen for stream in look.evidence.streams)
        self._stepped, self._lines = (look.time, lines) if lines != self._lines else (self._stepped, self._lines)
        self._report = self._judged(look)
        finished = self._report.phase == "completed"
        for gap in look.gaps:
            if finished and gap.code == EXITS_UNKNOWN:
                continue
            fields = {"code": gap.code, "source": gap.source, "reason": gap.reason}
            self._tell(WatchEvent("gap", look.time, f"{gap.source}: {gap.reason}", fields))
        for rank, process in sorted(look.lost.items())[:16]:
            how = look.how.get(rank, "")
            text = f"rank {rank}: its process {process.pid} {f'ended by {how}' if how else 'is gone'}"
            self._tell(WatchEvent("gone", look.time, text, {"rank": rank, "pid": process.pid, "how": how}))
        hang = look.evidence.hang
        if look.again:
            self._tell(WatchEvent("restarted", look.time, "the job's processes were started again"))
        self._show(hang, step, look.time)
        voted = any(vote.vote == "yes" for vote in hang.votes)
        if voted or (look.lost and not finished):
            self._freeze(look, "the first vote" if voted else "a process is gone")
        elif self._bundle.begun is not None:
            self._add()
        outcome = self._judge(self._report, look)
        self._first = False
        return outcome

    def _judged(self, look: ProbeResult) -> Report:
        """The report. It is recomputed if anything other than new steps was seen, and occasionally for what the steps themselves show."""
        signs = (
            look.evidence.hang.called,
            self._looking.ended,
            tuple(
                (
                    stream.ref.uri,
                    len(stream.structures),
                    len(stream.marks),
                    *(hit.count for hit in stream.hits.values()),
                )
                for stream in look.evidence.streams
            ),
        )
        same = signs == self._signs and not self._urgent(look.time) and look.ended is None
        if self._report is None or not same or look.time - self._judged_at >= AGAIN:
            self._signs, self._judged_at = signs, look.time
            return diagnose(look.evidence, self._knowledge.rulebook)
        return self._report

    def _urgent(self, now: float) -> bool:
        """Whether a fault may have to be called soon: it is new, or no new steps arrive."""
        new = self._trouble is not None and now - self._trouble.since <= PATIENCE
        return self._trouble is not None and (new or now - self._stepped >= 2 * SETTLE)

    # Acting on the report

    def _judge(self, report: Report, look: ProbeResult) -> WatchOutcome | None:
        if look.ended is not None:
            return self._over(report, look)
        if look.evidence.hang.called:
            yes = [vote.probe for vote in look.evidence.hang.votes if vote.vote == "yes"]
            return self._call("hang", f"{' and '.join(yes)} agree that the job makes no progress", look)
        kind = self._failing(report)
        if kind and not self._survived(look):
            return self._failed(report, kind, look)
        if kind:  # of an attempt before, or one that the run got over: later cycles leave it alone
            self._lived_through.add(_key(self._leading(report), report))
        if self._trouble is not None:
            self._lived_through |= self._trouble.told
            self._trouble = None
            self._tell(WatchEvent("went_on", look.time, "the run continued; the fault is gone"))
        if not kind:  # else, a fault of the attempt before
            self._tell_degraded(report, look)
        if report.phase == "completed" and not look.grew and not look.found:
            why = "the run had completed before the watch began" if self._first else "the run completed"
            return self._left(why + _shown_by(report))
        return None

    def _failing(self, report: Report) -> str:
        """What is known about a failure: "cause", "symptom" or "unknown"; "" for a run that continues, degraded or not."""
        best = self._leading(report)
        if _key(best, report) in self._lived_through:
            return ""
        if report.verdict == "no_match":
            return "unknown"
        if report.verdict != "fault" or best is None:
            return ""
        return "cause" if best.role == "root_cause" and best.band != "weak" else "symptom"

    def _leading(self, report: Report) -> Diagnosis | None:
        """Return the first diagnosis that a run does not outlive."""
        return next((found for found in report.diagnoses if not self._outlived(found)), None)

    def _survived(self, look: ProbeResult) -> bool:
        """Whether all of the job's processes are running and were started after the fault, or have logged steps since.

        Processes that this cycle is the first to see were started after all that it reads of a fault: an attempt takes
        longer than a cycle to fail. However slowly they start on a busy machine, that fault is not theirs.
        """
        trouble = self._trouble
        if not look.found or look.missing:
            return False
        newest = max(
            (stream.last_time or 0.0 for stream in look.evidence.streams if stream.ref.kind == "job"), default=0
        )
        if look.started > newest or look.again:  # the current processes have written nothing yet, or nothing of a fault
            return True
        if trouble is None:
            return False
        if look.started > trouble.since:
            return True
        return self._lines - trouble.lines >= STEPS_AFTER and look.time - self._stepped < PATIENCE

    def _outlived(self, diagnosis: Diagnosis) -> bool:
        """Whether a run may continue despite a diagnosis, judging by its class or by what its rule looks at."""
        book = self._knowledge.rulebook
        known = book.faults.get(diagnosis.fault)
        rule = next((rule for rule in book.rules if rule.id == diagnosis.rule), None)
        return (known is not None and known.outlives) or (rule is not None and is_state(rule))

    def _over(self, report: Report, look: ProbeResult) -> WatchOutcome | None:
        """Handle the end of the job's processes: wait for the launcher's last lines, then report how the job ended."""
        kind = self._failing(report)
        if kind:
            self._trouble = self._trouble or _PendingFault(look.time, self._lines)
            self._tell_fault(report, self._trouble, look.time)
            self._freeze(look, "a fault")
        ended = look.ended if look.ended is not None else look.time
        quiet = look.time - max(ended, self._grew) >= 0.95 * SETTLE
        if not quiet or (look.launching and look.time - ended < LINGER):
            return None
        report = diagnose(look.evidence, self._knowledge.rulebook)
        if report.phase == "stopped":
            return self._call("stopped", "the run was stopped", look)
        if report.verdict == "no_match" or (report.verdict == "fault" and report.phase == "failed"):
            return self._call("fatal", report.summary, look)
        if report.phase == "completed":
            return self._left("the run completed" + _shown_by(report))
        return self._call("ended", "the job's processes ended; whether it completed cannot be told", look)

    def _failed(self, report: Report, kind: str, look: ProbeResult) -> WatchOutcome | None:
        """Report a fault immediately. Call it if it persists and nothing shows that the run continues."""
        if self._trouble is None:
            self._trouble = _PendingFault(look.time, self._lines)
        self._tell_fault(report, self._trouble, look.time)
        self._freeze(look, "a fault")
        hang = look.evidence.hang
        over = not hang.votes  # reported by the launcher or the scheduler
        if not over and look.found and not (hang.suspected or look.missing):
            return None
        wait = SETTLE if over or look.found else max(PATIENCE, PACE * (usual_gap(Facts(look.evidence).streams) or 0.0))
        # while new steps arrive, the run has not failed, whatever the kernel or a dying helper process logs
        since = max(self._trouble.since, self._stepped if kind == "cause" or over else self._grew)
        if look.time - since < 0.95 * wait:
            return None
        if report.phase == "stopped":
            return self._call("stopped", "the run was stopped", look)
        if not self._first_trouble(look):
            return self._call("fatal", report.summary, look)
        silent = "the fault was in the logs before the watch began, and nothing has been written since"
        before = "the run had failed before the watch began" if over else silent
        self._tell(WatchEvent("over", look.time, before))
        return self._call("fatal", f"{before}: {report.summary}", look)

    def _first_trouble(self, look: ProbeResult) -> bool:
        """Whether the fault was present when the watch began and nothing has been written since."""
        return (
            self._trouble is not None
            and self._trouble.since <= self._begun
            and not look.found
            and self._grew <= self._begun
        )

    def _tell_fault(self, report: Report, trouble: _PendingFault, now: float) -> None:
        best = self._leading(report)
        key = _key(best, report)
        if key in trouble.told:
            return
        trouble.told.add(key)
        events = report.indicators.events
        line = (best.evidence[0] if best and best.evidence else None) or (events[0].evidence if events else None)
        fields: dict[str, object] = {
            "fault": best.fault if best else None,
            "rule": (best.rule or None) if best else None,
        }
        fields |= {"summary": report.summary, "band": best.band if best else None}
        text = report.summary
        if line is not None:
            fields |= {"source": line.source, "line": line.text[:_QUOTED], "rank": line.rank, "node": line.node}
            text += f" | {line.source}: {line.text[:_QUOTED]}"
        self._tell(WatchEvent("fault", now, text, fields))

    def _tell_degraded(self, report: Report, look: ProbeResult) -> None:
        """Report problems that a run continues with, except where a rank is while others wait: the votes judge that."""
        if report.verdict != "fault" or not report.diagnoses:
            return
        best = report.diagnoses[0]
        rule = next((rule for rule in self._knowledge.rulebook.rules if rule.id == best.rule), None)
        if best.rule in self._degraded | self._lived_through or (rule is not None and is_state(rule, WAITS)):
            return
        self._degraded.add(best.rule)
        fields = {"fault": best.fault, "summary": report.summary}
        self._tell(WatchEvent("degraded", look.time, report.summary, fields))

    def _show(self, hang: Hang, step: int, now: float) -> None:
        """Report the votes. `changed`: whether any probe changed its vote."""
        votes = tuple((vote.probe, vote.vote) for vote in hang.votes)
        fields: dict[str, object] = {
            "changed": votes != self._shown,
            "suspected": hang.suspected,
            "called": hang.called,
            "step": step or None,
            "votes": [{"probe": vote.probe, "vote": vote.vote, "detail": vote.detail} for vote in hang.votes],
            "advice": list(hang.advice),
        }
        self._shown = votes
        words = ", ".join(f"{vote.probe} {_WORDS[vote.vote]}" for vote in hang.votes) or "the run has ended; no hang"
        self._tell(WatchEvent("votes", now, f"{f'step {step}: ' if step else ''}{words}", fields))

    # The bundle

    def _freeze(self, look: ProbeResult, why: str) -> None:
        """Start the bundle, to save evidence that would be lost with the processes."""
        if self._bundle.begun is not None:
            self._add()
            return
        told = len(self._bundle.gaps)
        if not self._bundle.begin(look.time):
            for gap in self._bundle.gaps[told:]:  # the same gap is not reported again
                self._tell(WatchEvent("gap", look.time, f"{gap.source}: {gap.reason}", {"code": gap.code}))
            return
        self._complete(look)
        text = f"saving evidence to {self._plan.save} ({why})"
        self._tell(WatchEvent("bundle", look.time, text, {"folder": str(self._plan.save), "why": why}))

    def _add(self) -> None:
        """Write everything except logs that arrived since the bundle was started."""
        self._bundle.stacks(self._looking.rounds)
        self._bundle.answers("ras", self._looking.answers)
        self._bundle.dumps(self._looking.dumps)
        self._bundle.ended(self._looking.ended)
        self._bundle.parts(self._looking.metrics)

    def _complete(self, look: ProbeResult) -> None:
        self._add()
        self._bundle.answers("ebpf", self._looking.traced())
        self._bundle.logs(self._looking.logs.files, self._looking.kernel)
        self._bundle.describe(look.evidence.job, look.evidence.hang, self._looking.gaps)

    def _call(self, called: Called, why: str, look: ProbeResult) -> WatchOutcome:
        self._freeze(look, "the call")
        self._tell(WatchEvent("called", look.time, f"{called}: {why}", {"called": called, "why": why}))
        report = diagnose(look.evidence, self._knowledge.rulebook)
        live = DiagnosisResult(resolve(replace(report, bundle=self._plan.save.name), None), {})
        if self._bundle.begun is None:  # nowhere to write: use what was seen live
            return WatchOutcome(why, called, live)
        self._complete(look)
        return WatchOutcome(why, called, self._answer(live, called), self._plan.save)

    def _answer(self, live: DiagnosisResult, called: Called) -> DiagnosisResult:
        """The diagnosis of the bundle, or of the live evidence if the bundle's logs do not show when they fell silent."""
        try:
            answer = diagnose_bundle(self._knowledge, self._plan.save, compare=self._compare, recall=self._recall)
        except (SignalboxError, OSError):
            return live
        lost = (called == "hang" and not answer.report.hang.called) or answer.report.verdict != live.report.verdict
        return live if lost and live.report.verdict == "fault" else answer

    def _timed_out(self) -> WatchOutcome:
        """End with the time. A fault that was seen and not withdrawn is not passed over, although nothing called it."""
        if self._trouble is not None and self._report is not None:
            seen = f"time is up; a fault was seen, but not whether the job survives it: {self._report.summary}"
            return replace(self._left(seen), pending=True)
        look = self._last
        if look is None or not look.evidence.hang.suspected:
            found = "nothing but what is shown above" if self._degraded else "nothing"
            return self._left(f"time is up, and {found} was found")
        sign = next(f"{vote.probe}: {vote.detail}" for vote in look.evidence.hang.votes if vote.vote == "yes")
        known = "" if look.found else "; none of its processes was seen on this host"
        seen = f"time is up; one sign of a hang was seen, and nothing that confirms or explains it: {sign}{known}"
        return replace(self._left(seen), pending=True)

    def _left(self, why: str) -> WatchOutcome:
        """End without calling anything. Complete the bundle if it was started."""
        if self._bundle.begun is None:
            return WatchOutcome(why)
        if self._last is not None:
            self._complete(self._last)
        return WatchOutcome(why, folder=self._plan.save)


_WORDS = {"yes": "YES", "no": "no", "not_observable": "no data"}


def _shown_by(report: Report) -> str:
    """The line that shows how a run ended, to add to a sentence; empty if none is quoted."""
    line = next((item.evidence for item in report.indicators.events if item.evidence is not None), None)
    return f" | {line.source}: {line.text[:_QUOTED]}" if line is not None else ""


def _key(diagnosis: Diagnosis | None, report: Report) -> str:
    """The identity of a fault, by which it is recognised in later cycles."""
    return (diagnosis.rule or report.fingerprint) if diagnosis is not None else report.summary
