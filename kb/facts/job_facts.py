"""The facts of all streams of a job together: stages and steps by time, and how the run ended."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from kb.facts.evidence import Evidence
from kb.facts.log.stream_facts import PROGRESS_AFTER, StreamFacts
from kb.facts.log.superseded import passed_later
from kb.facts.scheduler_state import outcome_of
from kb.facts.steps.epoch_counts import epoch_of
from kb.model import ProgressPoint, Resource, SourceKind, Stage, Structure
from kb.parsers.logs.progress.repeated_lines import last_counted
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import head_lines, kept_lines
from kb.scanning.task_labels import without_task_labels

UNINFORMATIVE_STAGES = (None, "launch", "init", "teardown")  # stages of a stream that contains only errors
CLOCK_SKEW = 2.0  # seconds by which the clocks of two nodes may differ
START_LINE = 24  # characters; shorter lines (rulers, banners) say little about how far a program is
LAUNCHER_KINDS = (
    "elastic_failure",
    "elastic_exit",
    "launcher_exit",
)  # structures in which a launcher reports the end of a process
_FAILURE_KINDS = (*LAUNCHER_KINDS, "native_crash", "oom_kill", "slurm_end")
_ATTEMPT = lazy_compile(r"(?:^|/)attempt_(\d{1,4})/")
_SCHEDULER = lazy_compile(r"\b_?slurm_rpc_\w+|\bslurmctld\b|\bsched: ")
_JOB_FILE = lazy_compile(r"slurm-(\d{2,12})(?:_\d+)?\.(?:out|err|log)$")
_SLURM = lazy_compile(r"\bSLURM_|\bSubmitted batch job ")
_JOB = lazy_compile(r"\b[Jj]ob(?:_?[Ii][Dd])?(?:=| |: ?|=Job)#?(\d{2,12})\b")


def _progress_structure(facts: StreamFacts) -> Structure:
    """Represent the iteration lines of a stream as a structure at the last of them."""
    last = facts.points[-1]
    seen = facts.summary.series.seen or len(facts.points)
    text = f"{seen} iteration lines, the last of step {last.step}"
    return Structure("progress", last.offset, last.offset + 1, text, {"seen": seen, "last": last.step}, time=last.time)


def without_status(item: Structure) -> bool:
    """Whether mpirun reports that a process ended, and neither its exit status nor a signal."""
    told = item.fields.get("exitcode"), item.fields.get("signal") or None
    return item.kind == "launcher_exit" and item.fields.get("launcher") == "mpirun" and told == (None, None)


class Facts:
    """The facts of all streams together: stages and steps by time, the end of the run, the writers of lines."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        succeeded = outcome_of(evidence.job.state) == "succeeded"
        self.streams = [StreamFacts(without_task_labels(item), succeeded=succeeded) for item in evidence.streams]
        self._times = sorted(
            p.time
            for facts in self.streams
            for p in facts.points
            if p.time is not None and facts.summary.ref.kind == "job"
        )
        # whether the job's lines show only positions within epochs, and no step of the run
        self.in_epochs = any(facts.in_epochs for facts in self.streams) and not any(
            facts.counts_run for facts in self.streams
        )
        self.timed = sorted(
            (p.time, p.step)
            for facts in self.streams
            for p in facts.points
            if p.time is not None and p.step is not None and (self.in_epochs or p.format not in facts.in_epochs)
        )
        self._by_kind: dict[str, list[tuple[int, Structure]]] = {}
        self._hit: dict[str, list[int]] = {}  # pattern key → streams with a hit
        self._started: dict[int, int | None] = {}  # stream → the offset of the first line of its start
        for index, facts in enumerate(self.streams):
            for key in facts.summary.hits:
                self._hit.setdefault(key, []).append(index)
            for structure in facts.summary.structures:
                self._by_kind.setdefault(structure.kind, []).append((index, structure))
            if facts.points:
                self._by_kind.setdefault("progress", []).append((index, _progress_structure(facts)))
        self.end = self._end_of_steps()
        ends = [item.time for _, item in self.structures("run_end") if item.fields.get("how") == "completed"]
        self._completed = max((time for time in ends if time is not None), default=None)
        self.ended_well = any(facts.stopped_itself or facts.ends_as_planned() for facts in self.streams) and not any(
            True
            for kind in _FAILURE_KINDS
            for index, item in self.structures(kind)
            if not self.streams[index].went_on(item.offset)
        )
        self.ended_well = self.ended_well and not any(facts.failed_after_end() for facts in self.streams)
        self._own_jobs = {str(item.fields.get("id")) for _, item in self.structures("job_id")}
        if evidence.job.id:
            self._own_jobs.add(evidence.job.id)
        named = (_JOB_FILE.search(facts.summary.ref.uri) for facts in self.streams)
        self._own_jobs.update(found[1] for found in named if found)
        told = self._by_kind.get("platform_event", [])
        self._by_kind["platform_event"] = [item for item in told if not self._is_foreign(*item)]
        self._nodes = {rank: node for node, ranks in evidence.job.nodes.items() for rank in ranks}

    def _is_foreign(self, index: int, event: Structure) -> bool:
        """Whether a scheduler's text among the logs names a different job. The id of this one must be known."""
        job = str(event.fields.get("job") or "")
        printed = self.streams[index].summary.ref.kind != "event"
        return printed and bool(job) and bool(self._own_jobs) and job not in self._own_jobs

    @cached_property
    def counted(self) -> tuple[int, int, int] | None:
        """The stream, offset and step of the furthest line that counts steps by its structure, in a job whose lines no format reads."""
        if any(facts.points for facts in self.streams):
            return None
        found = [
            (told[1], index, told[0])
            for index, facts in enumerate(self.streams)
            if facts.summary.ref.kind == "job" and (told := last_counted(kept_lines(facts.summary))) is not None
        ]
        step, index, offset = max(found, default=(0, -1, -1))
        return None if index < 0 else (index, offset, step)

    def streams_hit(self, key: str) -> list[int]:
        """Return the indices of the streams that a line pattern hit, by the pattern's key."""
        return self._hit.get(key, [])

    def structures(self, kind: str) -> list[tuple[int, Structure]]:
        """Return all structures of a kind, with the index of their stream."""
        return self._by_kind.get(kind, [])

    def when(self, stream: int, offset: int, time: float | None) -> tuple[Stage | None, int | None]:
        """Return stage and iteration at a position: from its stream, else by time from the stream with the steps.

        Without an iteration if the lines only count within epochs.
        """
        stage, step = self._when(stream, offset, time)
        return stage, None if self.in_epochs else step

    def _when(self, stream: int, offset: int, time: float | None) -> tuple[Stage | None, int | None]:
        facts = self.streams[stream]
        stage, step = facts.stage(offset), facts.iteration(offset) if self.in_epochs else facts.run_iteration(offset)
        if step is None and time is not None:
            at = bisect_right(self.timed, (time, 1 << 62)) - 1
            step = self.timed[at][1] if at >= 0 else None
            if step is not None and stage in UNINFORMATIVE_STAGES:
                stage = "iterating"
        if (
            step is None
            and time is None
            and not facts.points
            and stage in UNINFORMATIVE_STAGES
            and self.end is not None
        ):
            # a rank's error file has neither steps nor times: its error is at the end of the run
            return self.end
        return stage, step

    def _end_of_steps(self) -> tuple[Stage | None, int | None] | None:
        """Return stage and step at the end of the stream that logged the furthest step."""
        furthest = max(
            (
                (p.step, index, p.offset)
                for index, facts in enumerate(self.streams)
                for p in facts.points[-1:]
                if p.step
            ),
            default=None,
        )
        if furthest is None:
            return None
        facts = self.streams[furthest[1]]
        later = [mark for mark in facts.summary.marks if mark.offset > furthest[2] and mark.stage != "teardown"]
        step = None if self.in_epochs else furthest[0]
        if facts.stages.closing:
            return facts.stage(facts.summary.size), step
        return (facts.stages.of_mark(later[-1]) if later else facts.stages.of_steps()), step

    def placed(self, resource: Resource) -> Resource:
        """Return a resource with its node added from the job's layout."""
        if resource.node is not None or resource.rank not in self._nodes:
            return resource
        return replace(resource, node=self._nodes[resource.rank])

    def ranks_known(self) -> int:
        """Return the number of ranks of the job, as far as known."""
        if self.evidence.job.world_size:
            return self.evidence.job.world_size
        named = {s.summary.ref.resource.rank for s in self.streams} - {None}
        return len(named)

    @property
    def slurm_job(self) -> str:
        """The job's number in Slurm, if its logs or their names give one and agree on it; else empty."""
        named = (_JOB_FILE.search(facts.summary.ref.uri) for facts in self.streams)
        printed = (item for _, item in self.structures("job_id") if _SLURM.search(item.line))
        found = {match[1] for match in named if match} | {str(item.fields.get("id")) for item in printed}
        return found.pop() if len(found) == 1 else ""

    def names_own_job(self, line: str) -> bool:
        """Whether a line of a scheduler's log names this job."""
        return not self._own_jobs.isdisjoint(_JOB.findall(line))

    def of_another_job(self, stream: int, line: str) -> bool:
        """Whether a line of a scheduler's log names only other jobs."""
        if not self._own_jobs:
            return False
        if self.streams[stream].summary.ref.kind != "scheduler" and not _SCHEDULER.search(line):
            return False
        named = _JOB.findall(line)
        return bool(named) and self._own_jobs.isdisjoint(named)

    def survived(self, stream: int, offset: int, time: float | None, rank: int | None = None) -> bool:
        """Whether the run continued after a position: in its own stream, or by time in the log of the steps."""
        facts = self.streams[stream]
        over = facts.went_on(offset) or facts.recovered(offset, rank) or facts.works_on(offset)
        if over or self._is_superseded(stream, offset):
            return True
        calm = self.ended_well and facts.summary.ref.kind == "job"
        if (calm and (facts.ends_cleanly_after(offset) or facts.skips_at_end(offset))) or (
            not facts.points and (self._starts_after(stream, offset) or passed_later(facts, offset))
        ):
            return True
        if time is None:  # of a line without a time, the next time in its stream is a late estimate
            time = facts.time_after(offset)
        if facts.points or time is None:
            return False
        if self._completed is not None and self._completed > time + CLOCK_SKEW:
            return True
        if not self._times:
            return False
        later = len(self._times) - bisect_right(self._times, time + 60.0)
        return later >= PROGRESS_AFTER

    def _is_superseded(self, stream: int, offset: int) -> bool:
        """Whether a line is of an attempt that a launcher ended, and a later one made steps, or hangs now.

        A later attempt that fails before its first step may fail of the same cause, which then still stands.
        """
        own = self._attempts[stream]
        if self.evidence.hang.called and self.streams[stream].attempt(offset)[1] is not None:
            return True
        return own < self._last_attempt and (self.evidence.hang.called or self._newest_steps)

    @cached_property
    def _attempts(self) -> list[int]:
        """The number of the attempt that torchrun's folder for the output of its workers names, for each stream; 0 elsewhere.

        A launcher writes one log over all attempts, so a log outside these folders is of the newest.
        """
        named = [_ATTEMPT.search(facts.summary.ref.uri) for facts in self.streams]
        last = max((int(found[1]) for found in named if found), default=0)
        return [int(found[1]) if found else last for found in named]

    @cached_property
    def _last_attempt(self) -> int:
        return max(self._attempts, default=0)  # asked for each line that a rule matches

    @cached_property
    def _newest_steps(self) -> bool:
        """Whether the last attempt of torchrun's folders logged a step."""
        last = self._last_attempt
        newest = (facts for facts, number in zip(self.streams, self._attempts, strict=True) if number == last)
        return any(point.step for facts in newest if _ATTEMPT.search(facts.summary.ref.uri) for point in facts.points)

    def _starts_after(self, stream: int, offset: int) -> bool:
        """Whether a log's program started after an offset: a line that another rank printed before its steps comes first then."""
        if stream not in self._started:  # asked for each line that a rule matches
            self._started[stream] = self.streams[stream].first_of(self._start_lines)
        first = self._started[stream]
        return first is not None and first > offset

    @cached_property
    def _start_lines(self) -> frozenset[str]:
        """The lines before the first step of the log with the most steps. Other ranks print many of them, too."""
        logs = [facts for facts in self.streams if facts.summary.ref.kind == "job"]
        most = max(logs, key=lambda facts: len(facts.points), default=None)
        if most is None or len(most.points) < PROGRESS_AFTER:
            return frozenset()
        before = most.points[0].offset
        return frozenset(line for at, line in head_lines(most.summary) if at < before and len(line) >= START_LINE)

    def last_point(self) -> ProgressPoint | None:
        """Return the furthest step of the job; the furthest within the last epoch if the lines only count within epochs."""
        if self.in_epochs:
            return self._last_in_epoch[0]
        points = [p for facts in self.streams if facts.counts_run and (p := facts.last_step()) is not None]
        return max(points, key=lambda p: p.step or 0, default=None)

    def last_epoch(self) -> int | None:
        """Return the number of the last point's epoch, as its log prints it; None if the lines do not only count within epochs."""
        return self._last_in_epoch[1] if self.in_epochs else None

    @cached_property
    def _last_in_epoch(self) -> tuple[ProgressPoint | None, int | None]:
        found = [(p, epoch_of(facts.points, p)) for facts in self.streams if (p := facts.last_step()) is not None]
        return max(found, key=lambda item: (item[1] or 0, item[0].step or 0), default=(None, None))

    def last_line_time(self) -> float:
        """Return the time of the last line of the job's own logs; infinity if none has a time."""
        times = [facts.summary.last_time for facts in self.of_kind("job")]
        return max((time for time in times if time is not None), default=math.inf)

    def longest_pause(self) -> float:
        """Return the longest time between two step lines of the job; 0 without such lines."""
        return max((later - earlier for earlier, later in pairwise(self._times)), default=0.0)

    def text_bytes(self) -> int:
        """Return the bytes of text read."""
        return sum(facts.summary.size for facts in self.streams)

    def of_kind(self, kind: SourceKind) -> Iterator[StreamFacts]:
        """Yield the streams of one kind."""
        return (facts for facts in self.streams if facts.summary.ref.kind == kind)
