"""Runs `job.py` under torchrun (two agents of two processes, gloo, CPU) and keeps what was written, ready to be dressed.

    python bench/l4set/carriers/record.py --python /tmp/lab/bin/python [--only raise,kill]

Each run becomes `<name>.json`: the lines of each node in the order of their arrival. Stamps become `⟦form seconds⟧` after the
start, node names `⟦node0⟧`, processes `⟦pid 4⟧`, this machine's paths `⟦home⟧`; nothing else is changed. `decisive` lists
the lines that tell why it failed, picked by the patterns in `RUNS`, which were written beside the acts.
"""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
RUN_ID = "lm-carrier"


@dataclass(frozen=True, slots=True)
class Run:
    """One recording. `decisive`: (node index or None for all, level, pattern, "first" or "all" hits of a node)."""

    fault: str = "none"
    nodes: int = 2
    options: tuple[str, ...] = ()
    decisive: tuple[tuple[int | None, str, str, str], ...] = ()
    symptom: str = "crash"
    stage: str = "iterating"
    faulty: tuple[int, ...] = ()
    iteration: int | None = 37
    join: int = 60
    missing: int = 0  # agents that never come
    occupied: bool = False


RUNS = {
    "none": Run(iteration=None),
    "none-small": Run(nodes=1, iteration=None),
    "raise": Run("raise", decisive=((1, "error", r"KeyError: 'books'", "first"),), faulty=(1,)),
    "kill": Run(
        "kill",
        decisive=((1, "error", r"failed \(exitcode: -9\)", "first"), (1, "error", r"exitcode  : -9", "first")),
        faulty=(1,),
    ),
    "segv": Run(
        "segv",
        decisive=(
            (0, "error", r"Fatal Python error: Segmentation fault", "first"),
            (0, "error", r"failed \(exitcode: -11\)", "first"),
        ),
        faulty=(0,),
    ),
    "worker-raise": Run(
        "worker-raise",
        decisive=(
            (1, "error", r"Caught JSONDecodeError in DataLoader worker", "first"),
            (1, "error", r"^(?:\[rank3\]: )?json\.decoder\.JSONDecodeError", "first"),
        ),
        faulty=(1,),
    ),
    "worker-kill": Run(
        "worker-kill",
        decisive=((1, "error", r"RuntimeError: DataLoader worker .* is killed by signal", "first"),),
        faulty=(1,),
    ),
    "save-full": Run(
        "save-full",
        decisive=(
            (0, "error", r"No space left on device", "first"),
            (0, "error", r"enforce fail|unexpected pos", "first"),
        ),
        stage="saving",
        faulty=(0,),
        iteration=40,
    ),
    "load": Run(
        options=("--load", "{old}"),
        decisive=((None, "error", r"size mismatch for 0\.weight", "first"),),
        symptom="launch",
        stage="checkpoint_load",
        iteration=None,
    ),
    "stuck": Run(
        "stuck",
        options=("--timeout", "12"),
        decisive=((1, "debug", r"DEBUG trainer: rank 2 \| step 35", "first"),),
        faulty=(1,),
    ),
    "eval-assert": Run(
        "eval-assert",
        decisive=((None, "error", r"AssertionError: expected 4 evaluation", "first"),),
        stage="evaluating",
        iteration=40,
    ),
    "import": Run(
        "import",
        decisive=((1, "error", r"ModuleNotFoundError", "first"),),
        symptom="launch",
        stage="launch",
        faulty=(1,),
        iteration=None,
    ),
    "missing-node": Run(
        missing=1,
        join=14,
        symptom="launch",
        stage="launch",
        faulty=(1,),
        iteration=None,
        decisive=((0, "error", r"^torch\S*RendezvousTimeoutError", "first"),),
    ),
    "port": Run(
        occupied=True,
        symptom="launch",
        stage="launch",
        faulty=(0,),
        iteration=None,
        decisive=((0, "error", r"EADDRINUSE", "first"),),
    ),
    "slow": Run(
        "slow",
        symptom="abnormal",
        faulty=(1,),
        decisive=(
            (0, "info", r"rank 0 \| step 37/", "first"),
            (0, "info", r"rank 0 \| step 38/", "first"),
            (1, "debug", r"rank 2 \| step 40 ", "first"),
            (1, "debug", r"rank 2 \| step 45 ", "first"),
        ),
    ),
}

STAMPS = (
    ("log", re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})")),
    ("block", re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)()")),
    ("glog", re.compile(r"(?<=[IWE])()(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6,9})")),
)


def tokens(text: str, start: float, year: int) -> str:
    """`text` with its stamps as seconds after `start` (UTC)."""
    for form, pattern in STAMPS:

        def one(match: re.Match[str], form: str = form) -> str:
            parts = [int(part) for part in match.groups()[1:6]]
            when = datetime(int(match[1] or year), *parts, tzinfo=UTC).timestamp() + float("0." + (match[7] or "0"))
            return f"⟦{form} {when - start:.3f}⟧"

        text = pattern.sub(one, text)
    return text


def free_port() -> int:
    """A port on loopback that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def play(name: str, run: Run, python: Path) -> dict[str, object]:
    """Run it and return what is kept."""
    with tempfile.TemporaryDirectory(prefix="carrier-") as folder:
        work = Path(folder)
        shutil.copy(HERE / "job.py", work)
        (work / "out").mkdir()
        old = work / "out" / "base.pt"
        if run.options[:1] == ("--load",):
            make = f"import job, torch; torch.save(job.build(32).state_dict(), {str(old)!r})"
            subprocess.run([str(python), "-c", make], check=True, cwd=work)
        port, agents, began = free_port(), [], time.time()
        held = socket.socket() if run.occupied else None
        if held:
            held.bind(("0.0.0.0", port))
            held.listen()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(work),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONUNBUFFERED": "1",
        }
        for node in range(run.nodes - run.missing):
            out = (work / f"node{node}.log").open("wb")
            rendezvous = (
                ["--master-addr", "127.0.0.1", "--master-port", str(port), "--node-rank", str(node)]
                if run.occupied
                else [
                    "--rdzv-backend",
                    "c10d",
                    "--rdzv-endpoint",
                    f"127.0.0.1:{port}",
                    "--rdzv-id",
                    RUN_ID,
                    "--rdzv-conf",
                    f"join_timeout={run.join},last_call_timeout=2",
                    "--local-addr",
                    "127.0.0.1",
                ]
            )
            options = [option.format(old=old) for option in run.options]
            command = [
                str(python),
                "-m",
                "torch.distributed.run",
                "--nnodes",
                str(run.nodes),
                "--nproc-per-node",
                "2",
                *rendezvous,
                "--tee",
                "0",
                str(work / "job.py"),
                "--fault",
                run.fault,
                "--out",
                str(work / "out"),
                *options,
            ]
            renamed = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"node{node}x"]
            agents.append(
                subprocess.Popen(
                    [*renamed, *command],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=work,
                    env=environment,
                    start_new_session=True,
                )
            )
            time.sleep(0.4)
        deadline = time.time() + 90
        for agent in agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(max(1.0, deadline - time.time()))
        for agent in agents:
            if agent.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(agent.pid, signal.SIGKILL)
        if held:
            held.close()
        logs = [(work / f"node{node}.log").read_text("utf-8", "replace") for node in range(run.nodes - run.missing)]
        return kept(
            name,
            run,
            logs,
            began,
            [(str(work), "⟦home⟧/run"), (str(python.parent.parent), "⟦home⟧/venv")],
            [str(agent.returncode) for agent in agents],
        )


def kept(name, run, logs, began, paths, codes):  # noqa: ANN001, ANN201
    """The recording as JSON."""
    year = datetime.fromtimestamp(began, UTC).year
    pids = sorted(
        {int(found) for text in logs for found in re.findall(r"(?:pid[:=]? ?|process |PID )(\d{3,7})\b", text)}
    )
    nodes = []
    for text in logs:
        text = tokens(text, began, year)  # noqa: PLW2901
        for old, new in paths:
            text = text.replace(old, new)  # noqa: PLW2901
        text = re.sub(r"\bnode(\d)x\b", r"⟦node\1⟧", text)  # noqa: PLW2901
        text = re.sub(r"\b\d{3,7}\b", lambda m: f"⟦pid {pids.index(int(m[0]))}⟧" if int(m[0]) in pids else m[0], text)  # noqa: PLW2901
        for host in {socket.gethostname(), socket.getfqdn()} - {"localhost"}:
            text = text.replace(host, "⟦node0⟧")  # noqa: PLW2901
        nodes.append(text.split("\n")[:-1])
    decisive = []
    for node, level, pattern, which in run.decisive:
        found = []
        for index, lines in enumerate(nodes):
            if node in (None, index):
                hits = [[index, number + 1, level] for number, line in enumerate(lines) if re.search(pattern, line)]
                found += hits[:1] if which == "first" else hits
        if not found:
            print(f"{name}: nothing says {pattern!r}", file=sys.stderr)
        decisive += found
    return {
        "name": name,
        "torch": "2.13.0",
        "codes": codes,
        "symptom": run.symptom,
        "stage": run.stage,
        "faulty": list(run.faulty),
        "iteration": run.iteration,
        "missing": run.missing,
        "nodes": nodes,
        "decisive": decisive,
    }


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path("/tmp/lab/bin/python"))
    parser.add_argument("--only", default=",".join(RUNS))
    args = parser.parse_args()
    for name in args.only.split(","):
        text = json.dumps(play(name, RUNS[name], args.python), ensure_ascii=False, indent=0)
        (HERE / f"{name}.json").write_text(text + "\n", "utf-8")
        print(f"{name}: {len(text) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
