"""Runs `train.py` on eight processes under two torchrun agents, and stores their output as an evidence bundle.

Each agent plays a node of four ranks on the loopback device, so each prints its own "Root Cause" block, as two real
nodes do. The logs are real; only this machine's paths and host name are replaced, as bundle.yaml
says.

    python bench/lab/record.py --fault shard-corrupt --python /tmp/lab/bin/python --out bot/demo/incidents/shard-corrupt

`--python` names an interpreter that has torch and numpy; this script itself needs only PyYAML.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

NODES = ("node-a", "node-b")
RANKS_PER_NODE = 4
HOME = Path("/home/user")
TRAIN = Path(__file__).with_name("train.py")
RANK = re.compile(rb"rank (\d+) \| local rank (\d+) \| pid")


def stamp(seconds: float) -> str:
    """Return an instant as ISO text, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """Return a minimal environment, so that nothing of this machine leaks into the logs."""
    keep = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "TZ": "UTC", "LANG": "C.UTF-8"}
    return keep | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}


def agent_command(args: argparse.Namespace, work: Path, node: str, port: int) -> list[str]:
    """Return the torchrun command of one node; with its own host name if the kernel permits."""
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "lm-tiny"]
    files = ["--log-dir", str(work / "torchrun" / node), "--redirects", "3"]
    size = ["--nnodes", str(len(NODES)), "--nproc-per-node", str(RANKS_PER_NODE), "--local-addr", "127.0.0.1"]
    run = [str(args.python), "-m", "torch.distributed.run", *size, *rendezvous, *files, "--max-restarts", "0"]
    return [*host_name(node), *run, str(work / TRAIN.name), *script_arguments(args, work)]


def host_name(node: str) -> list[str]:
    """Return a command prefix that sets the host name `node`; empty without permission."""
    prefix = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', node]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=10).returncode == 0:
            return prefix
    return []


def script_arguments(args: argparse.Namespace, work: Path) -> list[str]:
    """Return the arguments of train.py except the fault."""
    folders = ["--data", str(work / "corpus"), "--checkpoints", str(work / "checkpoints")]
    fault = ["--fault", args.fault] if args.fault == "rank-killed" else []  # the other is in the data already
    return [*folders, "--steps", str(args.steps), "--save-interval", str(args.save_interval), *fault]


def start_agents(args: argparse.Namespace, work: Path) -> list[subprocess.Popen[bytes]]:
    """Start both agents, the first a little earlier, each writing to <node>.log."""
    port, agents = free_port(), []
    for node in NODES:
        with (work / f"{node}.log").open("wb") as out:
            command = agent_command(args, work, node, port)
            agents.append(
                subprocess.Popen(
                    command, stdout=out, stderr=subprocess.STDOUT, env=environment(), cwd=work, start_new_session=True
                )
            )
        time.sleep(1)
    return agents


def run(args: argparse.Namespace, work: Path) -> list[int]:
    """Write the data, run the job to its end, and return the agents' exit codes; stops it at the time limit."""
    shutil.copy(TRAIN, work)
    prepare = [str(args.python), str(work / TRAIN.name), "--data", str(work / "corpus"), "--fault", args.fault]
    world = len(NODES) * RANKS_PER_NODE
    subprocess.run([*prepare, "--write-data", str(world)], check=True, env=environment(), timeout=120)
    agents = start_agents(args, work)
    deadline = time.monotonic() + args.limit
    try:
        return [agent.wait(timeout=max(1.0, deadline - time.monotonic())) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)


def replacements(args: argparse.Namespace, work: Path, node: str) -> list[tuple[re.Pattern[bytes], bytes]]:
    """Return the replacements for the logs of `node`, longest first."""
    paths = {str(work): HOME / "lm-tiny", str(args.python.parent.parent): HOME / "venv"}
    paths[str(Path(os.environ.get("HOME", "/root")))] = HOME
    pairs = [(re.compile(re.escape(old.encode())), str(new).encode()) for old, new in paths.items()]
    hosts = sorted({socket.getfqdn(), socket.gethostname()} - {"localhost"}, key=len, reverse=True)
    whole = (re.compile(rb"(?<![\w./-])" + re.escape(host.encode()) + rb"(?![\w-])") for host in hosts)
    return pairs + [(host, node.encode()) for host in whole]


def scrub(text: bytes, pairs: list[tuple[re.Pattern[bytes], bytes]]) -> bytes:
    """Return `text` with every pair replaced."""
    for old, new in pairs:
        text = old.sub(new, text)
    return text


def collect(args: argparse.Namespace, work: Path, logs: Path) -> dict[str, dict[str, Any]]:
    """Copy the logs with replacements to `logs`; return bundle.yaml's entries. Empty files are skipped."""
    files: dict[str, dict[str, Any]] = {}
    logs.mkdir(parents=True)
    for node in NODES:
        pairs = replacements(args, work, node)
        texts = {f"{node}.log": (None, (work / f"{node}.log").read_bytes())}
        for folder in sorted((work / "torchrun" / node).glob("*/attempt_0/[0-9]*")):
            errors = (folder / "stderr.log").read_bytes()
            found = RANK.search(errors)
            if found is None:
                sys.exit(f"{folder}: the rank never said who it is")
            rank = int(found[1])
            texts |= {f"rank-{rank}.log": (rank, (folder / "stdout.log").read_bytes())}
            texts |= {f"rank-{rank}.err": (rank, errors)}
        for name, (rank, text) in texts.items():
            if text:
                (logs / name).write_bytes(scrub(text, pairs))
                files[f"logs/{name}"] = {"node": node, "zone": "UTC"} | ({} if rank is None else {"rank": rank})
    return dict(sorted(files.items()))


def job(args: argparse.Namespace, files: dict[str, dict[str, Any]], span: tuple[float, float], codes: list[int]) -> Any:
    """Return the content of job.yaml."""
    nodes = {node: sorted({f["rank"] for f in files.values() if f["node"] == node and "rank" in f}) for node in NODES}
    return {
        "id": f"lm-tiny-{args.fault}" if args.fault != "none" else "lm-tiny",
        "name": "lm-tiny",
        "framework": "pytorch-ddp",
        "world_size": len(NODES) * RANKS_PER_NODE,
        "attempt": 0,
        "state": "FAILED" if any(codes) else "COMPLETED",
        "start": stamp(span[0]),
        "end": stamp(span[1]),
        "collected_at": stamp(span[1]),
        "nodes": nodes,
        "args": " ".join(script_arguments(argparse.Namespace(**vars(args) | {"fault": ""}), HOME / "lm-tiny")),
        "log_interval": 1,
        "checkpoint_interval": args.save_interval,
    }


def bundle(files: dict[str, dict[str, Any]], args: argparse.Namespace) -> Any:
    """Return the content of bundle.yaml."""
    return {
        "format": 1,
        "note": f"Real processes, recorded by bench/lab/record.py --fault {args.fault}",
        "sources": [{"source": "logs", "asked": "all", "got": f"{len(files)} files"}],
        "redaction": ["paths of the recording machine -> /home/user", "its host name -> node-a, node-b"],
        "files": files,
    }


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=("none", "shard-corrupt", "rank-killed"), required=True)
    parser.add_argument("--python", type=Path, default=Path("/tmp/lab/bin/python"), help="has torch and numpy")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle; must not exist")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-interval", type=int, default=10)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds until the job is stopped")
    return parser.parse_args()


def main() -> None:
    """Run, collect, and print the result."""
    args = arguments()
    if args.out.exists():
        sys.exit(f"{args.out} is there already")
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        work, began = Path(folder), time.time()
        codes = run(args, work)
        span = began, time.time()
        files = collect(args, work, args.out / "logs")
    for name, content in (("job.yaml", job(args, files, span, codes)), ("bundle.yaml", bundle(files, args))):
        (args.out / name).write_text(yaml.safe_dump(content, sort_keys=False, width=120), "utf-8")
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    print(f"{args.out}: agents ended with {codes}, {len(files)} logs, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
