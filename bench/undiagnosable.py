"""Measures restraint: 40 planted cases whose cause cannot be determined.

    python bench/undiagnosable.py [--seed N] [--keep DIR] [--verbose] [--json]

Each has a healthy start and some training of some framework, is cut before the cause, and then holds only the teardown:
peers' errors, a launcher's exit codes, a lost connection, a file cut short. The right answer is to abstain, or a
symptom class ("it only reports that something else came first"), or a guess marked weak. A cause named with more
confidence is wrong. Calling it healthy counts where the text shows nothing wrong (told apart), and is wrong elsewhere.
Asked: 80 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `python bench/undiagnosable.py`, from anywhere

from bench.made import (  # noqa: E402
    ABORT,
    KILL,
    TERM,
    Release,
    Script,
    Site,
    Work,
    begin,
    cpp,
    deepspeed_end,
    elastic,
    elastic_end,
    gloo_closed,
    laid_out,
    make_site,
    remote_closed,
    remote_raised,
    srun_end,
    trace,
    watchdog,
    write_job,
    write_logs,
)
from bot.diagnosis.batch import reports  # noqa: E402
from bot.rulebase.loader import knowledge  # noqa: E402

if TYPE_CHECKING:
    from kb.report import Report

ASKED = 0.8
COUNT = 40


@dataclass(frozen=True, slots=True)
class Answered:
    """A case and how it was answered: abstained, symptom, weak, nothing_wrong, wrong or called_healthy."""

    case: str
    how: str
    answer: str
    rule: str
    confidence: float
    line: str

    @property
    def right(self) -> bool:
        """Whether it was no confident wrong cause."""
        return self.how not in {"wrong", "called_healthy"}


@dataclass(slots=True)
class Case:
    """A case in the making. `at`: when the healthy part ends; `cut`: bytes to take off the end of every rank's file."""

    site: Site
    rng: Random
    script: Script
    at: float
    layout: str
    quiet: bool = False
    cut: int = 0

    def agents(self, failed: dict[int, int]) -> None:
        """Each node's torchrun reports its failed ranks."""
        for node in self.site.nodes:
            here = [(rank, code) for rank, code in failed.items() if self.site.node(rank) == node]
            if here:
                when = self.at + self.rng.uniform(3, 6)
                self.script.say(when, f"agent {node}", elastic_end(self.site, node, when, here))

    def missing(self) -> int:
        """Return a rank whose log is no longer collected."""
        return self.rng.randrange(1, self.site.world)

    def launcher(self, text: str, by: str = "scheduler") -> None:
        """Add lines to the job's own output file, or to another log of the job."""
        self.script.say(self.at + 4, by, text)

    def victims(self, but: int, share: float = 1.0) -> list[int]:
        """Return the ranks other than `but`, or a share of them."""
        return [rank for rank in range(self.site.world) if rank != but and self.rng.random() < share]


ENDINGS: dict[str, tuple[Callable[[Case], None], str | None, str | None]] = {}
NEWER: dict[str, Release] = {"store_lost": (2, 7), "heartbeat": (2, 6)}  # texts of these releases of torch


def ending(
    framework: str | None = None, layout: str | None = None
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Register an ending under the function's name; `framework` and `layout` where it goes with one only."""

    def register(function: Callable[[Case], None]) -> Callable[[Case], None]:
        ENDINGS[function.__name__] = (function, framework, layout)
        return function

    return register


# --- peers ------------------------------------------------------------------------------------------------------------


@ending()
def peers_closed(case: Case) -> None:
    """NCCL errors of all ranks but one, which is silent."""
    gone = case.missing()
    for rank in case.victims(gone):
        when = case.at + case.rng.uniform(0, 1.5)
        case.script.say(when, rank, remote_closed(case.site, rank, when, gone))
    case.agents(dict.fromkeys(case.victims(gone), -ABORT))


@ending()
def peers_raised(case: Case) -> None:
    """Tracebacks of victims only."""
    gone = case.missing()
    for rank in case.victims(gone):
        case.script.say(case.at + case.rng.uniform(0, 1.5), rank, remote_raised(case.site, rank, gone))
    case.agents(dict.fromkeys(case.victims(gone), 1))


@ending()
def peers_gloo(case: Case) -> None:
    """Gloo's lost connections."""
    gone = case.missing()
    for rank in case.victims(gone):
        case.script.say(case.at + case.rng.uniform(0, 0.8), rank, gloo_closed(case.site, rank, gone))
    case.agents(dict.fromkeys(case.victims(gone), 1))


@ending()
def peers_timeout(case: Case) -> None:
    """The log of one rank just stops; the others' watchdogs end them ten minutes later."""
    gone, work = case.missing(), Work(case.rng.randrange(900, 40_000))
    for rank in case.victims(gone):
        when = case.at + work.timeout + case.rng.uniform(0, 1.5)
        case.script.say(when, rank, watchdog(case.site, rank, when, work))


@ending()
def store_lost(case: Case) -> None:
    """The store's server is gone; all ranks report only that."""
    site = case.site
    end = f"addr=[{site.nodes[-1]}]:51284, remote=[{site.nodes[0]}]:29500"
    for rank in range(1, site.world):
        when = case.at + case.rng.uniform(0, 2)
        stamp = f"{site.clock(site.node(rank), when):%m%d %H:%M:%S}.{rank:09d}"
        text = f"recvValue failed on SocketImpl(fd={60 + rank}, {end}): Failed to recv, got 0 bytes. Connection was likely closed."
        text += " Did the remote server shutdown or crash?"
        lines = [f"[rank{rank}]:[W{stamp} TCPStore.cpp:138] [c10d] {text}"]
        dump = 'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error:'
        lines.append(cpp(site, rank, when, 1771, f"[PG ID 0 PG GUID 0 Rank {rank}] {dump} Broken pipe"))
        case.script.say(when, rank, "\n".join(lines))


@ending()
def heartbeat(case: Case) -> None:
    """The heartbeat monitors of some ranks."""
    site = case.site
    for rank in case.victims(case.missing(), 0.6):
        when = case.at + 480 + case.rng.uniform(0, 2)
        stuck = (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
            " This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered"
            " by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone"
            " behaviors."
        )
        case.script.say(when, rank, cpp(site, rank, when, 1632, f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] {stuck}"))
    case.agents(dict.fromkeys(case.victims(0, 0.5), -ABORT))


@ending("pytorch-ddp")
def horovod(case: Case) -> None:
    """Horovod's victims."""
    gone = case.missing()
    last = (
        "horovod.common.exceptions.HorovodInternalError: HorovodAllreduce.DistributedOptimizer.step.noname.4117 failed: Horovod has"
        " been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a"
        " tensor after one of the ranks finished execution."
    )
    for rank in case.victims(gone):
        case.script.say(case.at + case.rng.uniform(0, 1), rank, trace(case.site, rank, [], last, joined=False))


@ending("maxtext", "merged")
def jax_peers(case: Case) -> None:
    """JAX's coordination service lost a task; the others end themselves."""
    when = f"{case.site.clock(case.site.nodes[0], case.at):%m%d %H:%M:%S}.594192"
    task = f"/job:jax_worker/replica:0/task:{case.missing()}"
    text = (
        f"E{when} 1044529 coordination_service_agent.cc:332] Polled an error from coordination service (this can be an error from"
        f" this or another task).\nF{when} 1044529 client.h:77] Terminating process because the JAX distributed service detected fatal"
        " errors. This most likely indicates that another task died; see the other task logs for more details. Disable Python"
        " buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: UNAVAILABLE: The following tasks are"
        f" unhealthy (stopped sending heartbeats):\n{task}\nThe tasks have crashed. Check the task logs for an earlier error, or"
        " scheduler events (e.g. preemption, eviction) to debug further."
    )
    for rank in case.victims(0, 0.7):
        case.script.say(case.at + case.rng.uniform(0, 1), rank, text)


# --- launchers --------------------------------------------------------------------------------------------------------


@ending()
def block_only(case: Case) -> None:
    """Torchrun's block with exit code 1 and no error file; the rank's own output was not kept."""
    case.agents({case.missing(): 1})


@ending()
def block_killed(case: Case) -> None:
    """Torchrun's block with SIGKILL."""
    case.agents({case.missing(): -KILL})


@ending()
def block_term(case: Case) -> None:
    """Torchrun itself got SIGTERM and passed it on."""
    site = case.site
    for node in site.nodes:
        when = case.at + case.rng.uniform(0, 1)
        lines = [elastic(site, node, when, "Received 15 death signal, shutting down workers")]
        lines += [
            elastic(site, node, when, f"Sending process {site.pids[rank]} closing signal SIGTERM")
            for rank in site.ranks(node)
        ]
        lines += [
            "Traceback (most recent call last):",
            f'  File "{site.packages}/torch/distributed/elastic/agent/server/api.py", line 733, in run',
        ]
        lines += ["    result = self._invoke_run(role)"]
        parent = site.pids[site.ranks(node)[0]] - 1
        lines.append(
            f"torch.distributed.elastic.multiprocessing.api.SignalException: Process {parent} got signal: {TERM}"
        )
        case.script.say(when, f"agent {node}", "\n".join(lines))


@ending()
def restarts(case: Case) -> None:
    """Torchrun restarts its group, and gives up."""
    site = case.site
    for node in site.nodes:
        for left in (2, 1, 0):
            when = case.at + 40 * (3 - left)
            text = f"[default] Worker group FAILED. {left}/3 attempts left; will restart worker group"
            case.script.say(when, f"agent {node}", elastic(site, node, when, text, line=871))
    case.at += 140
    case.agents({case.missing(): 1})


@ending(layout="srun")
def srun_exit(case: Case) -> None:
    """Srun reports an exit code."""
    case.launcher(f"srun: error: {case.site.nodes[-1]}: task {case.site.world - 1}: Exited with exit code 1")


@ending(layout="srun")
def srun_cancelled(case: Case) -> None:
    """A task exits, then slurmstepd cancels the step, as it does after any bad exit."""
    gone = case.missing()
    others = [(rank, -TERM) for rank in case.victims(gone, 0.6)]
    case.launcher(srun_end(case.site, case.at + 4, [(gone, 1), *others]))


@ending(layout="ranks")
def shell_killed(case: Case) -> None:
    """The shell's word for SIGKILL."""
    pid = case.site.pids[case.missing()]
    case.launcher(
        f"scripts/launch.sh: line 41: {pid} Killed                  python -u train.py --config configs/7b.yaml"
    )


@ending("deepspeed", "ranks")
def deepspeed_code(case: Case) -> None:
    """DeepSpeed's launcher reports an exit code."""
    gone = case.missing()
    node = case.site.node(gone)
    code = case.rng.choice((1, -TERM, -KILL))
    case.script.say(case.at + 3, f"agent {node}", deepspeed_end(case.site, node, case.at + 3, gone, code))


@ending("lightning", "merged")
def lightning_child(case: Case) -> None:
    """Lightning's process observer."""
    gone = case.missing()
    text = f"[rank: {gone}] Child process with PID {case.site.pids[gone]} terminated with code 1. Forcefully terminating all other"
    case.launcher(f"{text} processes to avoid zombies \U0001f9df")


@ending("hf", "merged")
def accelerate_code(case: Case) -> None:
    """Accelerate's launcher."""
    command = "['/opt/conda/bin/python', 'run_sft.py', '--config', 'sft.yaml']"
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/conda/bin/accelerate", line 8, in <module>',
        "    sys.exit(main())",
    ]
    lines += [f'  File "{case.site.packages}/accelerate/commands/launch.py", line 763, in simple_launcher']
    lines += ["    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)"]
    case.launcher(
        "\n".join([*lines, f"subprocess.CalledProcessError: Command '{command}' returned non-zero exit status 1."])
    )


@ending("pytorch-ddp", "merged")
def mpirun_code(case: Case) -> None:
    """What mpirun prints of a process that failed."""
    rule = "-" * 74
    case.launcher("\n".join((
        rule, "Primary job  terminated normally, but 1 process returned", "a non-zero exit code. Per user-direction, the job has been aborted.",
        rule, rule, "mpirun detected that one or more processes exited with non-zero status, thus causing", ("the job to be terminated. The first"
        " process to do so was:"), "", f"  Process name: [[{case.site.job % 60000},1],{case.missing()}]", "  Exit code:    1", rule,
    )))  # fmt: skip


@ending("composer", "merged")
def composer_code(case: Case) -> None:
    """Composer's launcher."""
    gone = case.missing()
    lines = [f"ERROR:composer.cli.launcher:Rank {gone} crashed with exit code 1."]
    lines += ["Waiting up to 30 seconds for all training processes to terminate. Press Ctrl-C to exit immediately."]
    lines += [
        f"Global rank {rank} (PID {case.site.pids[rank]}) exited with code -15" for rank in case.victims(gone)[:7]
    ]
    case.launcher("\n".join(lines))


@ending("fairseq", "merged")
def spawn_code(case: Case) -> None:
    """What torch.multiprocessing.spawn raises of a child that printed nothing."""
    path = f"{case.site.packages}/torch/multiprocessing/spawn.py"
    lines = [
        "Traceback (most recent call last):",
        '  File "/workspace/lm/train.py", line 201, in <module>',
        "    mp.spawn(run, nprocs=8)",
    ]
    lines += [f'  File "{path}", line 184, in join', "    raise ProcessExitedException("]
    last = f"torch.multiprocessing.spawn.ProcessExitedException: process {case.missing()} terminated with exit code 1"
    case.launcher("\n".join([*lines, last]))


@ending("ray", "merged")
def ray_died(case: Case) -> None:
    """Ray's message for a lost worker: it lists the possible causes."""
    gone = case.missing()
    address = case.site.address(case.site.node(gone))
    case.launcher(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n"
        f"\tactor_id: 6b0d41c2f09a7754c1a2b1f901000000\n\tpid: {case.site.pids[gone]}\n\tnamespace: 41f8\n\tip: {address}\nThe actor is dead"
        " because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a"
        " connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer"
        " due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other"
        " unexpected errors."
    )


@ending(layout="ranks")
def pods_exited(case: Case) -> None:
    """The pod list of a job whose pods are in Error."""
    lines = ["NAME                     READY   STATUS    RESTARTS   AGE"]
    lines += [
        f"llm-pretrain-worker-{n:<5}0/1     Error     0          3h{11 + n}m" for n, _ in enumerate(case.site.nodes)
    ]
    lines += ["    State:          Terminated", "      Reason:       Error", "      Exit Code:    1"]
    case.launcher("\n".join(lines), "pods")


@ending(layout="ranks")
def batch_exit(case: Case) -> None:
    """The summary of a batch system."""
    lines = ["Exited with exit code 1.", "", "Resource usage summary:", ""]
    lines += ["    CPU time :                  41811.22 sec.", "    Max Memory :                412 GB"]
    case.launcher("\n".join([*lines, "    Run time :                  5211 sec."]), by="lsf")


@ending()
def leaks(case: Case) -> None:
    """Only the resource tracker's warnings at the end."""
    for rank in case.victims(0, 0.5):
        path = "/opt/conda/lib/python3.10/multiprocessing/resource_tracker.py"
        text = f"{path}:224: UserWarning: resource_tracker: There appear to be {1 + rank % 5} leaked semaphore objects to clean up at"
        case.script.say(
            case.at + 2, rank, f"{text} shutdown\n  warnings.warn('resource_tracker: There appear to be %d '"
        )
    case.agents({case.missing(): 1})


# --- cut short --------------------------------------------------------------------------------------------------------


@ending()
def cut_line(case: Case) -> None:
    """Every file stops in the middle of a line; nothing in it is wrong."""
    case.cut, case.quiet = case.rng.randrange(20, 70), True


@ending(layout="merged")
def cut_training(case: Case) -> None:
    """One log that just stops after an iteration."""
    case.quiet = True


@ending()
def cut_traceback(case: Case) -> None:
    """A traceback whose last lines were not written any more."""
    rank = case.missing()
    text = trace(case.site, rank, [("/workspace/lm/model.py", 233, "forward", "h = h + self.mlp(self.norm2(h))")], "?")
    case.script.say(case.at, rank, text.rsplit("\n", 2)[0])
    case.agents({rank: 1})


@ending()
def cut_and_timeout(case: Case) -> None:
    """Rank files that stop in a line, a block with exit code 1, and a victim or two that lost its peer."""
    gone = case.missing()
    for rank in case.victims(gone)[:2]:
        when = case.at + case.rng.uniform(0, 1)
        case.script.say(when, rank, remote_closed(case.site, rank, when, gone))
    case.agents(dict.fromkeys([gone, *case.victims(gone)[:2]], 1))


def plan() -> list[str]:
    """Return the endings of the forty cases, in order: each once, the common ones twice."""
    common = (
        "peers_closed",
        "peers_raised",
        "peers_gloo",
        "peers_timeout",
        "block_only",
        "block_killed",
        "block_term",
        "srun_cancelled",
    )
    names = [*ENDINGS, *common, "ray_died", "cut_traceback", "deepspeed_code", "cut_and_timeout"]
    return (names * 2)[:COUNT]


def make(name: str, number: int, seed: int, folder: Path) -> bool:
    """Write case `number` with the ending `name`; returns whether its text shows nothing wrong."""
    rng = Random(f"{seed}/{number}/{name}")
    function, framework, layout = ENDINGS[name]
    framework = framework or rng.choice(
        ("megatron", "hf", "lightning", "torchtitan", "nemo", "pytorch-ddp", "fairseq", "mmengine", "composer")
    )
    site = make_site(rng, *rng.choice(((1, 8), (2, 4), (2, 8), (4, 8))), framework, NEWER.get(name))
    nccl = rng.random() < 0.6 and framework != "maxtext"
    script, at = begin(site, rng, rng.randrange(15, 60), nccl=nccl)
    case = Case(site, rng, script, at, layout or rng.choice(("ranks", "tree", "merged", "nodes")))
    function(case)
    files = laid_out(site, case.script, case.layout, rng)
    if case.cut:
        files = {path: text[: -case.cut] for path, text in files.items()}
    write_logs(folder, files)
    if rng.random() < 0.4 and not case.quiet:
        write_job(folder, site, case.at + 20)
    return case.quiet


def answered(case: str, report: Report, symptoms: Collection[str], *, quiet: bool) -> Answered:
    """Return how a case was answered."""
    best = report.diagnoses[0] if report.diagnoses else None
    line = best.evidence[0].text if best and best.evidence else ""
    if report.verdict in {"no_match", "insufficient_evidence"}:
        how = "abstained"
    elif report.verdict == "no_fault":
        how = "nothing_wrong" if quiet else "called_healthy"
    elif best is None or best.fault in symptoms:
        how = "symptom"
    else:
        how = "weak" if best.band == "weak" else "wrong"
    told = best.fault if best else report.verdict
    return Answered(case, how, told, best.rule if best else "", best.confidence if best else 0.0, line[:160])


def symptom_classes() -> set[str]:
    """Return the fault classes that only report that something else came first."""
    raw = yaml.safe_load((ROOT / "rules" / "faults.yaml").read_text("utf-8"))
    return {fault["id"] for fault in raw["faults"] if fault.get("symptom")}


def figures(cases: Sequence[Answered]) -> dict[str, object]:
    """Shares and counts."""
    counts = {how: sum(case.how == how for case in cases) for how in sorted({case.how for case in cases})}
    return {
        "cases": len(cases),
        "right": round(sum(case.right for case in cases) / len(cases), 4),
        "asked": ASKED,
        "how": counts,
    }


def render(cases: Sequence[Answered], *, verbose: bool) -> str:
    """Return the figures for people; wrong answers are always listed."""
    numbers = figures(cases)
    lines = [
        f"{len(cases)} cases that nobody could diagnose",
        f"{'rightly unsure':24}{numbers['right']:8.1%}  (asked: {ASKED:.0%})",
    ]
    counts = numbers["how"]
    if isinstance(counts, dict):
        lines += [f"  {how.replace('_', ' '):22}{count:8d}" for how, count in counts.items()]
    for case in cases:
        if verbose or not case.right:
            lines.append(f"{case.how:15} {case.case}: {case.answer} {case.rule} {case.confidence:.2f}  {case.line}")
    return "\n".join(lines)


def main() -> int:
    """Make, diagnose and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder to leave the bundles in")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty")
    with tempfile.TemporaryDirectory(prefix="undiagnosable-") as scratch:
        folder = options.keep or Path(scratch)
        names = [f"{number:02d}-{name}" for number, name in enumerate(plan())]
        quiet = [make(name[3:], number, options.seed, folder / name) for number, name in enumerate(names)]
        told = [report for report, _ in reports(knowledge(None), [folder / name for name in names])]
    symptoms = symptom_classes()
    cases = [
        answered(name, report, symptoms, quiet=calm) for name, report, calm in zip(names, told, quiet, strict=True)
    ]
    if options.json:
        print(json.dumps({"figures": figures(cases), "cases": [asdict(case) for case in cases]}, indent=1))
    else:
        print(render(cases, verbose=options.verbose))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
