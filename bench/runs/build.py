"""Builds a set of cases: real training runs on CPU, with faults, and the truth next to each one's logs.

    python bench/runs/build.py --plan bench/runs/plans/dev.yaml --python VENV/bin/python --out DIR [--only ID…] [--jobs
    3]

VENV has the frameworks (README.md beside bench/ says which); a framework that is missing makes its cases fail, and the
build says so. A case is written only if nothing is wrong with it (`folders.complaints`); cases that are there are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `python bench/runs/build.py`, from anywhere

from bench.runs import folders, launch, plan

HOME = "/home/user"


def main() -> int:
    """Build missing cases, and print the result."""
    options = arguments()
    cases = [case for case in plan.read(options.plan) if not options.only or case.id in options.only]
    faulty = [case for case in cases if case.label != "healthy"]
    cases += [plan.twin(case, number + 1) for number in range(options.twins) for case in faulty]
    todo = [case for case in cases if options.again or not (options.out / case.id / "case.yaml").exists()]
    with tempfile.TemporaryDirectory(prefix="runs-") as scratch:
        machine = launch.Machine(options.python.absolute(), options.zygote or Path(scratch, "zygote"))
        server = warm(machine) if todo and options.zygote is None else None
        try:
            with ThreadPoolExecutor(options.jobs) as pool:
                bad = sum(pool.map(lambda case: not build(case, machine, Path(scratch), options), todo))
        finally:
            if server is not None:
                server.kill()
    print(f"{options.out}: {len(todo) - bad} built, {bad} not, {len(cases) - len(todo)} kept")
    return 1 if bad else 0


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True, help="an interpreter that has the frameworks")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="ids of cases")
    parser.add_argument("--jobs", type=int, default=3, help="runs at the same time")
    parser.add_argument(
        "--twins", type=int, default=0, help="healthy runs of the same job to build beside each failure"
    )
    parser.add_argument("--zygote", type=Path, help="socket of a warm Python that runs already")
    parser.add_argument("--again", action="store_true", help="build cases that are there, too")
    parser.add_argument("--quiet", action="store_true", help="say nothing of the cases but what failed")
    return parser.parse_args()


def warm(machine: launch.Machine) -> subprocess.Popen[bytes]:
    """Start the warm Python and wait until it listens."""
    command = [str(machine.python), str(Path(__file__).with_name("zygote.py")), "--socket", str(machine.zygote)]
    env = dict(os.environ) | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "TZ": "UTC",
        "TOKENIZERS_PARALLELISM": "false",
    }
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    while machine.zygote is not None and not machine.zygote.exists():
        if server.poll() is not None:
            sys.exit("the warm Python ended")
        time.sleep(0.2)
    return server


def build(case: plan.Case, machine: launch.Machine, scratch: Path, options: argparse.Namespace) -> bool:
    """Run a case and write its folder; False, with the reason on stderr, if something is wrong with it."""
    base, began = Path(tempfile.mkdtemp(prefix="r", dir=scratch)), time.time()
    target, rejected = options.out / case.id, options.out / ".rejected" / case.id
    try:
        ran = launch.perform(case, machine, base)
        pairs = folders.replacements(paths(case, machine, base), (socket.gethostname(), socket.getfqdn()))
        seen = folders.notes(base / "truth")
        record = {"notes": seen, "lines": folders.witnessed(base / "truth", pairs), "span": ran.span}
        logs = {name: folders.scrub(text, pairs) for name, text in ran.texts.items()}
        shutil.rmtree(rejected, ignore_errors=True)
        known = dataclasses.replace(case, needle=folders.shown(case.needle, logs.values()) or case.needle)
        folders.write(
            rejected, logs, folders.truth(known, seen, versions(machine)), folders.job(case, ran.span, ran.status)
        )
        if record["lines"]:
            (rejected / "record.json").write_text(json.dumps(record, indent=1), "utf-8")
        wrong = folders.complaints(
            rejected, forbidden=(str(base), str(machine.python.parent.parent), str(Path(__file__).parent))
        )
        if case.label == "healthy" and ran.status and not case.acts:
            wrong.append(f"healthy, but its status is {ran.status}")
        if ran.stopped and not case.hangs:
            wrong.append("patience ended it")
        wrong += [
            f"nothing noted of {plug['call']}"
            for plug in case.plugs
            if plug.get("note", True) and not any(note["call"] == plug["call"] for note in seen)
        ]
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        wrong, ran = [f"{type(error).__name__}: {error}"], None
    finally:
        launch.sweep(base)
        launch.unmount(base)
        shutil.rmtree(base, ignore_errors=True)
    if wrong:
        print(f"{case.id}: {'; '.join(wrong)}", file=sys.stderr, flush=True)
        return False
    shutil.rmtree(target, ignore_errors=True)
    rejected.rename(target)
    if not options.quiet:
        print(f"{case.id}: status {ran.status if ran else '?'}, {time.time() - began:.0f} s", flush=True)
    return True


def paths(case: plan.Case, machine: launch.Machine, base: Path) -> dict[str, str]:
    """Paths of this machine and what they become."""
    work = base / case.project.rpartition("/")[2]
    libraries = machine.python.parent.parent
    parent = case.project.rpartition("/")[0]
    base_python = machine.python.resolve().parent.parent
    named = {
        str(base_python): "/usr/local",
        str(work / "venv"): f"{HOME}/venv",
        str(work): case.project,
        str(libraries): f"{HOME}/venv",
        str(base): parent,
        os.environ.get("RUN_MPI", ""): "/opt/openmpi",
        f"prterun-{socket.gethostname()}": "prterun-node-a",
        str(Path(__file__).parent): case.project,
    }
    named.pop("", None)
    return named | {f"/private{key}": value for key, value in named.items()}


VERSIONS: dict[str, str] = {}


def versions(machine: launch.Machine) -> str:
    """Return the frameworks' versions, in words."""
    if not VERSIONS:
        code = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('torch', 'transformers', 'accelerate', 'lightning', 'deepspeed', 'trl', 'ray', 'jax')}))"
        done = subprocess.run([str(machine.python), "-c", code], capture_output=True, text=True, check=False)
        VERSIONS.update(json.loads(done.stdout or "{}"))
    return ", ".join(f"{name} {version}" for name, version in VERSIONS.items())


if __name__ == "__main__":
    raise SystemExit(main())
