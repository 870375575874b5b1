"""Converts Slurm's runs into a job's record: attempts, ranks by node, switches, output files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from connectors.base.contract import JobSummary
from kb.model import Attempt, JobRecord, Member
from kb.parsers.schedulers.hostlists import hostlist
from kb.parsers.schedulers.slurmjson import SlurmRun

MOST_PATHS = 4096
MOST_SWITCHES = 20_000
_PATTERN = re.compile(r"%(\d{0,2})([%AaJjNnstux])")
_SWITCH = re.compile(r"(?m)^SwitchName=(\S{1,200}) Level=(\d{1,3})(.*)$")
_UNSET = 4_294_967_294  # what Slurm prints for an array task if there is no array


def record_of(name: str, runs: Sequence[SlurmRun], places: Mapping[str, Mapping[str, str]]) -> JobRecord:
    """Return the record of the job `name` from its runs, oldest first, or from the components of a heterogeneous job."""
    last = runs[-1]
    parts = (
        [run for run in runs if run.job.start == last.job.start] if last.het and name == str(last.het[0]) else [last]
    )
    ranks = _ranks(parts)
    nodes = {node: ranks.get(node, ()) for part in parts for node in part.nodes}
    world = sum(len(rank) for rank in ranks.values()) or None
    worst = next((slurm_run for slurm_run in parts if slurm_run.job.state not in ("COMPLETED", "RUNNING")), last)
    attempts = _attempts([run for run in runs if run.het is None or run.het == worst.het])
    restarts = last.job.attempt if last.job.attempt is not None else (len(attempts) - 1 or None)
    gpus = sum(slurm_run.job.gpus or 0 for slurm_run in parts) or None
    job = replace(worst.job, id=name, nodes=nodes, world_size=world, attempt=restarts, gpus=gpus)
    labels = {"slurm_job_id": last.job.id or name}
    if last.array:
        labels |= {"slurm_array_job_id": str(last.array[0]), "slurm_array_task_id": str(last.array[1])}
    return JobRecord(
        job=job,
        system="slurm",
        partition=last.partition or None,
        attempts=attempts,
        members=tuple(_members(name, nodes)),
        topology={node: places[node] for node in nodes if node in places},
        labels=labels,
    )


def summary_of(runs: Sequence[SlurmRun]) -> JobSummary:
    """Return the summary of a job from its runs in the window, oldest first."""
    last = runs[-1]
    job, restarts = last.job, last.job.attempt if last.job.attempt is not None else (len(runs) - 1 or None)
    return JobSummary(
        last.shown_id,
        job.name or "",
        job.state,
        job.start,
        job.end,
        job.owner,
        partition=last.partition or None,
        gpus=job.gpus,
        attempt=restarts,
        runs=_attempts(runs),
    )


def _ranks(parts: Sequence[SlurmRun]) -> dict[str, tuple[int, ...]]:
    """Ranks by node if each task is a rank. One task per node with several GPUs is a launcher that assigns ranks itself."""
    ranks: dict[str, tuple[int, ...]] = {}
    before = 0
    for part in parts:
        tasks = sum(len(numbers) for numbers in part.tasks.values())
        launcher = tasks == len(part.tasks) and (part.job.gpus is None or part.job.gpus > tasks)
        if not tasks or launcher or set(part.tasks) - set(part.nodes):
            return {}
        ranks |= {node: tuple(before + number for number in numbers) for node, numbers in part.tasks.items()}
        before += tasks
    return ranks


def _attempts(runs: Sequence[SlurmRun]) -> tuple[Attempt, ...]:
    found = []
    for number, item in enumerate(runs):
        code, signal = item.first_exit if any(item.first_exit) else (item.exit_code, item.signal)
        found.append(
            Attempt(
                number,
                item.job.state,
                item.reason,
                code,
                signal,
                queued=item.submitted,
                scheduled=item.job.start,
                stopped=item.job.end,
                nodes=item.nodes,
            )
        )
    return tuple(found)


def _members(name: str, nodes: Mapping[str, tuple[int, ...]]) -> Iterator[Member]:
    for node, ranks in nodes.items():
        if not ranks:
            yield Member(node, node)
        for local, rank in enumerate(ranks):
            yield Member(f"{name}.{rank}", node, rank, local)


def switches(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return node → its switch (`leaf`) and the switch above (`spine`), from `scontrol show topology`.

    With the block plugin, node → its block as `nvlink_domain`.
    """
    leaves: dict[str, dict[str, str]] = {}
    above: dict[str, str] = {}
    for name, level, rest in _SWITCH.findall(text[: 16 << 20]):
        fields = dict(re.findall(r"(Nodes|Switches)=(\S+)", rest))
        if level == "0":
            leaves |= {node: {"leaf": name} for node in hostlist(fields.get("Nodes", ""))}
        elif level == "1":
            above |= dict.fromkeys(hostlist(fields.get("Switches", "")), name)
        if len(leaves) > MOST_SWITCHES:
            break
    for name, nodes in re.findall(r"(?m)^BlockName=(\S{1,200}).*?\bNodes=(\S+)", text[: 16 << 20]):
        for node in hostlist(nodes):
            leaves.setdefault(node, {})["nvlink_domain"] = name
    return {
        node: {**fields, **({"spine": above[fields["leaf"]]} if fields.get("leaf") in above else {})}
        for node, fields in leaves.items()
    }


def outputs(run: SlurmRun, shown: SlurmRun, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the output files of a job that lie in readable folders.

    If Slurm does not name them, the default in the submission folder is used.
    """
    patterns = shown.outputs or run.outputs or ("slurm-%A_%a.out" if run.array else "slurm-%j.out",)
    home = shown.folder or run.folder
    roots = [posixpath.normpath(folder) + "/" for folder in folders if folder.startswith("/")]
    found: dict[str, None] = {}
    for pattern in dict.fromkeys(patterns):
        for text in expanded(pattern, run):
            path = posixpath.normpath(posixpath.join(home or "/", text))
            if path.isprintable() and any(path.startswith(root) for root in roots):
                found[path] = None
    return tuple(found)[:MOST_PATHS]


def expanded(pattern: str, run: SlurmRun) -> tuple[str, ...]:
    """Fill in a file name pattern of sbatch; one name per task if it contains the task number."""
    if "\\" in pattern:
        return (pattern.replace("\\", ""),)  # a backslash disables the pattern
    tasks = [(node, at, task) for at, node in enumerate(run.nodes) for task in run.tasks.get(node, ())]
    first = (run.nodes[0] if run.nodes else "", 0, 0)
    wanted = tasks[:MOST_PATHS] if re.search(r"%\d{0,2}t", pattern) and tasks else [first]

    def filled(node: str, place: int, task: int) -> str:
        return _PATTERN.sub(lambda found: _part(found, run, node, place, task), pattern)

    return tuple(dict.fromkeys(filled(*item) for item in wanted))


def _part(found: re.Match[str], run: SlurmRun, node: str, place: int, task: int) -> str:
    width, letter = int(found[1] or 0), found[2]
    own = run.job.id or ""
    numbers = {
        "A": str(run.array[0]) if run.array else own,
        "a": str(run.array[1] if run.array else _UNSET),
        "J": own,
        "j": own,
        "n": str(place),
        "s": "batch",
        "t": str(task),
    }
    if letter in numbers:
        return numbers[letter].zfill(width)
    return {"%": "%", "N": node.partition(".")[0], "u": run.job.owner or "", "x": run.job.name or ""}[letter]
