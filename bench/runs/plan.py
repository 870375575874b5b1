"""The plan of a set of runs: each one's script, launcher, plugs and truth.

A plan is YAML: a list of cases. `Case` lists the keys; omitted ones follow from the label (`ADVICE`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

ADVICE_VALUES = ("requeue", "requeue_without", "restart_in_place", "resubmit", "fix_first", "wait", "none")
LAUNCHES = ("torchrun", "agents", "bare", "python", "accelerate", "deepspeed", "slurm", "mpi", "ray")
LOGS = ("merged", "tree", "tee", "ranks", "prefixed", "nodes")
# The advice accepted by default: fixing first is right for every deterministic failure.
ADVICE: dict[str, tuple[str, ...]] = {
    "healthy": ("none",),
    "preempted": ("requeue", "resubmit"),
    "time_limit": ("requeue", "resubmit", "fix_first"),
    "cancelled": ("none", "resubmit", "requeue"),
    "node_lost": ("requeue", "requeue_without"),
    "host_oom": ("fix_first", "resubmit"),
    "shm_exhausted": ("fix_first", "resubmit"),
    "resource_limit": ("fix_first", "resubmit"),
    "storage_io": ("fix_first", "wait", "requeue", "requeue_without"),
    "external_network": ("fix_first", "wait", "requeue"),
    "port_in_use": ("fix_first", "requeue", "restart_in_place", "resubmit"),
    "straggler": ("fix_first", "requeue_without"),
    "throughput_drop": ("fix_first", "wait"),
    "memory_leak": ("fix_first", "restart_in_place"),
}
LONG = 400.0  # seconds that a healthy run may take on a busy machine
LISTS = ("accept", "needle", "ranks", "advice", "verdict")


class BadPlanError(ValueError):
    """A plan cannot be read; the message says where."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run and its truth.

    Attributes:
        id: name of the case's folder.
        script: a script of scripts/, without `.py`.
        launch: how it is started (`LAUNCHES`); `bare` starts each rank by itself, as srun does.
        world: number of ranks.
        logs: what the logs look like (`LOGS`).
        prefix: what `prefixed` logs have before each line, with {rank}, {node} and {time}.
        args: options of the script, by name.
        options: options of the launcher, in order.
        env: environment of the ranks.
        plugs: what is called where (scripts/hooks.py).
        noise: what it prints besides (options of scripts/chatter.py `install`); `at` is the point where that starts.
        files: more files of the run's folder, text by name.
        prepare: Python to run in that folder before the start.
        acts: what happens from outside: `mark` (a mark that a plug makes) or `after` (seconds), `send` (a signal), `to`
            (`all`, the launcher by default).
        limits: limits of each process, as for resource.setrlimit.
        job: what the scheduler knows: job.yaml. `auto` fills in state, times and world size.
        project: folder of the run, as it shows in paths.
        patience: seconds until the run is stopped, which is the plan only of a case that `hangs`.
        hangs: nobody but patience ends the run.
        proven: whether the logs prove that a healthy run completed.
        label, accept, why, needle, at_fault, fix, advice, stage, kind, verdict: the truth, written to case.yaml.
    """

    id: str
    script: str
    label: str
    why: str
    launch: str = "torchrun"
    world: int = 2
    framework: str = ""
    logs: str = "merged"
    prefix: str = "{rank}: "
    args: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    plugs: tuple[dict[str, Any], ...] = ()
    noise: dict[str, Any] | None = None
    files: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    acts: tuple[dict[str, Any], ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    job: dict[str, Any] | None = None
    project: str = "/home/user/lm-tiny"
    patience: float = 150.0
    hangs: bool = False
    accept: tuple[str, ...] = ()
    needle: tuple[str, ...] = ()
    at_fault: tuple[int, ...] | None = None
    fix: str = ""
    advice: tuple[str, ...] = ()
    stage: str = ""
    kind: str = ""
    verdict: tuple[str, ...] = ()
    proven: bool | None = None


def twin(case: Case, number: int = 1) -> Case:
    """Return a healthy run of the same job: without its fault, with other noise."""
    plugs = tuple(plug for plug in case.plugs if not plug.get("fault"))
    job = None if case.job is None else {}
    return replace(
        case, id=f"{case.id}.twin{number}", label="healthy", why="the same job without its fault", kind="",
        plugs=plugs, acts=(), limits={}, needle=(), accept=(), at_fault=None, job=job, hangs=False, advice=("none",),
        patience=max(case.patience, LONG),
    )  # fmt: skip


def read(path: Path) -> list[Case]:
    """Return the cases of a plan.

    Raises:
        BadPlanError: a key or value that no case has, or an id given twice.
    """
    cases = [case(entry) for entry in yaml.safe_load(path.read_text("utf-8")) or []]
    ids = [each.id for each in cases]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise BadPlanError(f"{path}: given twice: {', '.join(twice)}")
    return cases


def case(entry: dict[str, Any]) -> Case:
    """Return a case of a plan's entry.

    Raises:
        BadPlanError: a key or value that no case has.
    """
    name = entry.get("id", "?")
    known = {part.name for part in Case.__dataclass_fields__.values()}
    if unknown := sorted(set(entry) - known):
        raise BadPlanError(f"{name}: unknown keys {', '.join(unknown)}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    values.setdefault("advice", ADVICE.get(entry.get("label", ""), ("fix_first",)))
    try:
        made = Case(**values)
    except TypeError as error:
        raise BadPlanError(f"{name}: {error}") from error
    for what, got, allowed in (("launch", made.launch, LAUNCHES), ("logs", made.logs, LOGS)):
        if got not in allowed:
            raise BadPlanError(f"{name}: {what} {got} is none of {', '.join(allowed)}")
    if strange := set(made.advice) - set(ADVICE_VALUES):
        raise BadPlanError(f"{name}: advice {', '.join(sorted(strange))} is none of {', '.join(ADVICE_VALUES)}")
    return made
