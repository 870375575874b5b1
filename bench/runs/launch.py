"""Starts a run as its users do, acts on it from outside, and returns its output."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.runs.plan import Case

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
NODES = ("node-a", "node-b")


@dataclass
class Machine:
    """What runs share on this machine.

    Attributes:
        python: an interpreter that has the frameworks.
        zygote: socket of the warm Python; None runs everything cold.
    """

    python: Path
    zygote: Path | None = None


@dataclass
class Ran:
    """What came of a run: status of its launcher (the first that is not 0), begin and end (Unix seconds), whether patience ended it, texts by file name."""

    status: int
    span: tuple[float, float]
    stopped: bool = False
    texts: dict[str, bytes] = field(default_factory=dict)


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(case: Case, machine: Machine, work: Path, truth: Path) -> dict[str, str]:
    """Return a bare environment, so that nothing of this machine's leaks into the logs."""
    env = {
        "PATH": f"{work / 'venv/bin'}:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(work.parent),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
    }
    env |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    env |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "JAX_PLATFORMS": "cpu", "ACCELERATE_USE_CPU": "true"}
    env |= {"RUN_PYTHON": str(machine.python), "PYTHON_EXEC": str(work / "venv/bin/python"), "RUN_TRUTH": str(truth)}
    env |= {
        "HF_HUB_OFFLINE": "1",
        "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
        "WANDB_DISABLED": "true",
        "TQDM_MININTERVAL": "0.3",
    }
    if machine.zygote is not None:
        env["RUN_ZYGOTE"] = str(machine.zygote)
    if case.plugs or case.noise:
        env["RUN_PLUGS"] = str(truth / "plugs.json")
    if any(plug.get("fault") for plug in case.plugs):
        env["RUN_WITNESS"] = "1"
    if case.limits:
        env["RUN_LIMITS"] = json.dumps(case.limits)
    return env | {key: str(value) for key, value in case.env.items()}


def furnish(case: Case, machine: Machine, work: Path, truth: Path) -> dict[str, str]:
    """Fill the run's folder: scripts, data, the case's additions, and a `python`. Return the environment."""
    work.mkdir(parents=True)
    truth.mkdir(parents=True)
    for path in SCRIPTS.glob("*.py"):
        shutil.copy(path, work)
    for name, text in case.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, "utf-8")
    plugs = [{"note": True} | plug for plug in (*case.plugs, *chatter(case))]
    (truth / "plugs.json").write_text(json.dumps(plugs), "utf-8")
    (work / "venv/bin").mkdir(parents=True)
    stand_in = work / "venv/bin/python"
    shutil.copy(HERE / "client.py", stand_in)
    stand_in.chmod(0o755)
    env = environment(case, machine, work, truth)
    code = "import shards\nshards.write('data')\n" + case.prepare
    (truth / "prepare.py").write_text(code, "utf-8")
    prepared = {key: value for key, value in env.items() if key not in ("RUN_PLUGS", "RUN_LIMITS")} | {
        "PYTHONPATH": str(work)
    }
    done = subprocess.run(
        [str(stand_in), str(truth / "prepare.py")], cwd=work, env=prepared, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{case.id}: prepare failed: {done.stderr[-600:]}")
    return env


def chatter(case: Case) -> list[dict[str, object]]:
    """Return the plugs of a case's noise."""
    if case.noise is None:
        return []
    options = {key: value for key, value in case.noise.items() if key != "at"}
    first = {"at": case.noise.get("at", "rendezvous"), "call": "chatter:install", "with": options, "note": False}
    return [first, {"at": "stepped", "call": "chatter:pulse", "note": False}]


def script(case: Case) -> list[str]:
    """Return the script with its options."""
    words = [case.args.get("script", f"{case.script}.py")]
    for key, value in case.args.items():
        if key == "script" or value is False:
            continue
        words += [f"--{key.replace('_', '-')}"] + (
            [] if value is True else [str(part) for part in (value if isinstance(value, list) else [value])]
        )
    return words


Start = tuple[str, list[str], dict[str, str]]  # name of the log, command, additional environment


def commands(case: Case, work: Path) -> list[Start]:
    """Return the commands to start."""
    python, port = str(work / "venv/bin/python"), str(free_port())
    words = [*case.options, *script(case)]
    if case.launch in ("torchrun", "agents"):
        return agents(case, work, [python, "-m", "torch.distributed.run"], port)
    if case.launch == "slurm":
        return [slurm(case, python, port)]
    if case.launch == "mpi":
        return [mpi(case, python, port)]
    if case.launch == "bare":
        common = {"WORLD_SIZE": str(case.world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        places = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | case.env for rank in range(case.world)]
        return [(f"rank-{rank}.log", [python, "-u", *script(case)], place) for rank, place in enumerate(places)]
    before = [python, "-u"]
    if case.launch == "accelerate":
        size = f"--num_processes {case.world} --num_machines 1 --mixed_precision no --dynamo_backend no"
        before = [
            python,
            "-m",
            "accelerate.commands.accelerate_cli",
            "launch",
            *size.split(),
            "--main_process_port",
            port,
        ]
    if case.launch == "deepspeed":
        before = [python, "-m", "deepspeed.launcher.runner", "--num_gpus", str(case.world), "--master_port", port]
    return [("train.log", [*before, *words], {})]


def agents(case: Case, work: Path, run: list[str], port: str) -> list[Start]:
    """Return the agents of torchrun: one, or one for each of two nodes, which get host names of their own."""
    words = [*case.options, *script(case)]
    how = {"tree": "--redirects", "tee": "--tee"}.get(case.logs)
    if case.launch == "torchrun":
        files = ["--log-dir", str(work / "torchrun"), how, "3"] if how else []
        placed = any(part in word for word in case.options for part in ("rdzv", "master", "standalone"))
        place = [] if placed else ["--master-port", port]
        return [("train.log", [*run, "--nproc-per-node", str(case.world), *place, *files, *words], {})]
    size = ["--nnodes", "2", "--nproc-per-node", str(case.world // 2), "--local-addr", "127.0.0.1"]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "run-1"]
    started: list[Start] = []
    for node in NODES:
        files = ["--log-dir", str(work / f"torchrun-{node}"), how, "3"] if how else []
        started.append((f"{node}.log", [*run, *size, *meet, *files, *words], {"RUN_HOST": node}))
    return started


def slurm(case: Case, python: str, port: str) -> Start:
    """Return the run as a job of the cluster that SLURM_CONF names."""
    ranks = "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS RUN_HOST=$SLURMD_NODENAME"
    start = f'{ranks} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}; exec "$0" -u "$@"'
    size = ["--nodes", "2", "--ntasks", str(case.world), "--label", "--job-name", case.project.rpartition("/")[2]]
    found = {"SLURM_CONF": os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")}
    return ("slurm-4711.out", ["srun", *size, *case.options, "bash", "-c", start, python, *script(case)], found)


def mpi(case: Case, python: str, port: str) -> Start:
    """The run under Open MPI's mpirun, whose installation RUN_MPI names."""
    ranks = "export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=${WORLD_SIZE:-$OMPI_COMM_WORLD_SIZE}"
    start = f'{ranks} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}; exec "$0" -u "$@"'
    home = os.environ.get("RUN_MPI", "/usr")
    size = ["--allow-run-as-root", "--oversubscribe", "-np", str(case.world)]
    words = [f"{home}/bin/mpirun", *size, *case.options, "bash", "-c", start, python, *script(case)]
    return ("mpirun.log", words, {"OPAL_PREFIX": home} if home != "/usr" else {})


def perform(case: Case, machine: Machine, base: Path) -> Ran:
    """Run a case in a new folder `base`; stop it when its patience ends."""
    work, truth, out = base / case.project.rpartition("/")[2], base / "truth", base / "out"
    env = furnish(case, machine, work, truth)
    out.mkdir()
    began = time.time()
    merged = (out / "train.log").open("ab") if case.launch == "bare" and case.logs in ("merged", "prefixed") else None
    running: list[subprocess.Popen[bytes]] = []
    pumps: list[threading.Thread] = []
    for number, (name, command, more) in enumerate(commands(case, work)):
        stream = merged or (out / name).open("ab")
        pipe = case.logs == "prefixed"
        process = subprocess.Popen(
            command,
            cwd=work,
            env=env | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(process)
        if pipe and process.stdout is not None and merged is not None:
            pumps.append(
                threading.Thread(
                    target=label,
                    args=(process.stdout, merged, number, case),
                    daemon=True,
                )
            )
            pumps[-1].start()
        elif merged is None:
            stream.close()
        if case.launch == "agents" and number == 0:
            time.sleep(0.7)
    stopped = wait(case, truth, running, began)
    for pump in pumps:
        pump.join(5)
    codes = [process.returncode for process in running]
    status = next((code for code in codes if code), 0)
    return Ran(status, (began, time.time()), stopped, texts(case, work, out))


def label(source: IO[bytes], target: IO[bytes], number: int, case: Case) -> None:
    """Copy lines with a prefix, as `srun --label` and many own launchers do."""
    rank, node = f"{number:{len(str(case.world - 1))}d}", NODES[number * len(NODES) // case.world]
    for line in source:
        prefix = case.prefix.format(rank=rank, node=node, time=time.strftime("%H:%M:%S"))
        target.write(prefix.encode() + line)
        target.flush()


def wait(case: Case, truth: Path, running: list[subprocess.Popen[bytes]], began: float) -> bool:
    """Wait for the end and act from outside; return whether the run had to be stopped at the time limit."""
    acts, stopped = list(case.acts), False
    while any(process.poll() is None for process in running):
        now = time.time() - began
        for act in list(acts):
            if ("mark" in act and (truth / f"mark-{act['mark']}").exists()) or ("after" in act and now >= act["after"]):
                acts.remove(act)
                time.sleep(float(act.get("delay", 0)))
                for process in running if act.get("to") == "all" else [running[int(act.get("to", 0))]]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, getattr(signal, act["send"]))
        if now > case.patience:
            stopped = True
            break
        time.sleep(0.05)
    for process in running:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return stopped


def texts(case: Case, work: Path, out: Path) -> dict[str, bytes]:
    """Return the logs by the names that users give them."""
    found = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    if case.logs == "tree":
        for root in sorted(work.glob("torchrun*")):
            prefix = root.name.partition("-")[2]
            for path in sorted(root.glob("*/attempt_*/*/std*.log")):
                attempt, rank = path.parts[-3:-1]
                found["/".join(part for part in (prefix, attempt, rank, path.name) if part)] = path.read_bytes()
    for path in sorted((work / "logs").glob("**/*")) if (work / "logs").is_dir() else []:
        if path.is_file():
            found[str(path.relative_to(work / "logs"))] = path.read_bytes()
    return found


def sweep(base: Path) -> None:
    """Kill processes still running below `base`: ranks outlive a killed launcher."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((entry / "cwd").readlink()).startswith(f"{base}/"):
                os.kill(int(entry.name), signal.SIGKILL)


def unmount(base: Path) -> None:
    """Unmount the case's mounts below `base`."""
    for line in reversed(Path("/proc/mounts").read_text("utf-8").splitlines()):
        if (place := line.split()[1]).startswith(f"{base}/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
