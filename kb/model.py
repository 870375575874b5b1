"""The values passed between the layers. All are frozen and purely descriptive.

No value holds a whole text. A `StreamRef` says where the text is, and a `StreamSummary` (kb.scanning.summary) keeps
what a scanner found in it. Times are seconds since the epoch, UTC, as floats. `None` means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from kb.values import dataclass

Scalar = str | int | float | bool | None

OWN = "own"  # form of a line in which a rank reports its own step: its work, its wait for data, its memory
RESIZED = "resized"  # form of a point that only marks that steps do more or less work from then on

SourceKind = Literal["job", "kernel", "scheduler", "health", "stack", "event"]
Stage = Literal["launch", "init", "data_load", "checkpoint_load", "iterating", "evaluating", "saving", "teardown"]
Verdict = Literal["fault", "no_fault", "no_match", "insufficient_evidence"]
NOT_FAILED: tuple[Verdict, ...] = ("no_fault", "insufficient_evidence")  # the verdicts without a failure
OF_MACHINES = frozenset(
    {"hardware", "network"}
)  # domains of fault classes that lie in machines, whatever job runs on them
OF_A_NODE = OF_MACHINES | {"platform", "none"}  # domains of faults that can lie in one node of a job
Phase = Literal["running", "hung", "degraded", "failed", "stopped", "completed", "unknown"]
Band = Literal["likely", "possible", "weak"]
Role = Literal["root_cause", "contributing", "symptom", "context"]
Grade = Literal["look", "safe", "disruptive"]
Scope = Literal["cluster", "job"]


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open span of time [start, end), seconds since the epoch."""

    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """The origin of data. `rank` is the global rank, `local_rank` the rank within its node, `pid` the process."""

    cluster: str | None = None
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    gpu: str | None = None
    pid: int | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A reference to the text of one source: `uri` (a path or address), its size in bytes if known, and its writer.

    `kind` is the type of the source: "job" (output of a rank or a launcher), "kernel" (dmesg, journal), "scheduler",
    "health" (checks run beside the job), "stack", "event". `group` separates the parts of a bundle: "logs", "baseline",
    "attempt-1".
    """

    uri: str
    resource: Resource = field(default_factory=Resource)
    size: int | None = None
    kind: SourceKind = "job"
    group: str = "logs"


@dataclass(frozen=True, slots=True)
class Gap:
    """A source that returned nothing, less than requested, or nothing new, and why.

    Missing data is itself a result and is shown.
    """

    code: str
    source: str
    reason: str
    scope: str = ""
    asked: str = ""
    got: str = ""
    rules_out: str = ""


@dataclass(frozen=True, slots=True)
class Structure:
    """A construct of fixed form, extracted from a log once for all rules.

    `kind` is one of kb.parsers.logs.registry.KINDS. `offset` is the byte at which its decisive line starts, `end` the
    byte after its
    last line. `line` is the decisive line, cut to 512 characters. `fields` holds the parsed parts. `timed`: whether
    `time` is its own; else, it is that of an earlier line.
    """

    kind: str
    offset: int
    end: int
    line: str
    fields: Mapping[str, Scalar] = field(default_factory=dict)
    resource: Resource = field(default_factory=Resource)
    time: float | None = None
    timed: bool = True


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """One iteration line: the step and its measurements, such as seconds per step, learning rate and bytes of memory.

    `total` is the planned number of steps if the line gives it. `compute` and `data` are the seconds of the step in
    which
    the rank itself worked and waited for data. `size` is the length of its sequences or its number of tokens. A value
    printed
    as nan or inf is kept as such.
    """

    offset: int
    step: int | None = None
    total: int | None = None
    time: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    seconds: float | None = None
    throughput: float | None = None
    memory: float | None = None
    loss_scale: float | None = None
    skipped: int | None = None
    epoch: float | None = None
    rank: int | None = None
    format: str = ""
    compute: float | None = None
    data: float | None = None
    size: float | None = None
    validation: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as far as known from a bundle's job.yaml or its scheduler. `args` is the program's command line.

    `attempts`: its runs, oldest first; the last one is the current run. `last_good`: the id of the last completed run
    of the same name. `params`: values for this job only, by rule and parameter, that override the site's. `image`: the
    container image as it was requested. `topology`: node → {rack, leaf, rail, nvlink_domain}, as far as known.
    `exit_code`, `signal`: of the job itself, by its scheduler or launcher. `state_given`: whether whoever asks gave its
    state and exit code, which then count more than what a scheduler reported.
    """

    id: str | None = None
    name: str | None = None
    cluster: str | None = None
    framework: str | None = None
    world_size: int | None = None
    attempt: int | None = None
    state: str | None = None
    start: float | None = None
    end: float | None = None
    collected_at: float | None = None
    nodes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    owner: str | None = None
    log_interval: int | None = None
    checkpoint_interval: int | None = None
    gpus: int | None = None
    args: str | None = None
    attempts: tuple[Attempt, ...] = ()
    last_good: str | None = None
    params: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    image: str | None = None
    topology: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    exit_code: int | None = None
    signal: int | None = None
    state_given: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack: function, file as reported, line from 1."""

    function: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread's stack, innermost frame first.

    `state`: "active", "idle", "gil" (it runs and holds the interpreter's lock), "gil_idle" (it holds that lock without
    running) or "" for unknown.
    """

    thread: str
    frames: tuple[Frame, ...]
    state: str = ""


@dataclass(frozen=True, slots=True)
class ProcessWork:
    """The work of a process and its children since they started, as counted by the kernel.

    `cpu` in seconds; with an accelerator, whose driver spins while it waits, of the children alone. `io`: bytes read and
    written. `switches`: how often the main thread gave up its core to wait.
    """

    cpu: float
    io: int
    switches: int | None = None
    accelerator: bool = False


@dataclass(frozen=True, slots=True)
class StackSample:
    """The stacks of one process at one time. `sample` identifies the round; `child`: a child of the rank's main process.

    `work`: the work of the process and its children up to then; None if not measured.
    """

    source: str
    resource: Resource
    sample: str = ""
    time: float | None = None
    threads: tuple[ThreadStack, ...] = ()
    child: bool = False
    work: ProcessWork | None = None


@dataclass(frozen=True, slots=True)
class Collective:
    """A rank's recorded operation: its process group, number in that group, and sizes as element counts by dimension.

    `state`: "scheduled", "started" or "completed". Times are seconds since the epoch. `peer`: source and destination of
    a
    point-to-point operation within the group. `retired`: the recorder has finished with it.
    """

    pg: str
    seq: int
    op: str
    state: str
    p2p: bool = False
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    created: float | None = None
    started: float | None = None
    completed: float | None = None
    duration_ms: float | None = None
    timeout_ms: float | None = None
    peer: tuple[int, int] | None = None
    frames: tuple[Frame, ...] = ()
    retired: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveTrace:
    """One rank's recorded collectives. `groups`: process group → global ranks; `group_names`: → description.

    `inferred_groups`: the dump did not list the members of its groups, so they were inferred. `status`: process group →
    number
    of the last operation enqueued, started and completed; -1 for none.
    """

    source: str
    rank: int | None
    version: str = ""
    backend: str = ""
    time: float | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    group_names: Mapping[str, str] = field(default_factory=dict)
    inferred_groups: bool = False
    status: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    entries: tuple[Collective, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a scheduler, Kubernetes or an eBPF program reported at a time.

    `kind`: the event's type; `reason`: the source's own term.
    """

    source: str
    time: float | None
    kind: str
    reason: str
    message: str
    resource: Resource = field(default_factory=Resource)
    fields: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prefilter:
    """Selects the lines of a job that the rulebook needs, as far as a log store can: lines that contain any of `words`.

    `words`: literals, compared case-insensitively. Every line that a rule or reader needs has at least one of them,
    except
    for the `uncovered` patterns, which no literal finds. `digest`: of the source rulebook. `telling`: a few
    words, compared case-sensitively, for stores where each word costs time; nearly every failure has one of them on
    its deciding lines, and `left_out` patterns match lines without any.
    """

    words: tuple[str, ...] = ()
    uncovered: int = 0
    digest: str = ""
    telling: tuple[str, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job, as reported by its scheduler. The recovery time is computed from its times.

    `first_iterated`, `last_iterated`: the times of its first and last iteration lines, which only the logs contain.
    `reason`: the scheduler's own term for the end; `exit_code` and `signal`: of the step or container that ended first.
    """

    number: int
    state: str | None = None
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    queued: float | None = None
    scheduled: float | None = None
    initialised: float | None = None
    first_iterated: float | None = None
    last_iterated: float | None = None
    stopped: float | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One process, container or task of a job, and where it runs. `rank`: the global rank, if known."""

    name: str
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as seen by one scheduler, cluster or log store. `system`: the source; `attempts`: oldest first.

    `topology`: node → {rack, leaf, rail, nvlink_domain}. `last_good`: the id of the last completed run of the same
    name. `paths`: the job's output files. `labels`: other names for the job, by which other systems find it. `seen`:
    the times of its first and last lines in a log store, which show when it wrote, not when it started and ended.
    """

    job: Job
    system: str
    namespace: str | None = None
    partition: str | None = None
    attempts: tuple[Attempt, ...] = ()
    members: tuple[Member, ...] = ()
    topology: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    last_good: str | None = None
    paths: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    seen: Window | None = None
