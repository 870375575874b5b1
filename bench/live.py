"""Measures `signalbox watch` on running jobs: twelve faults and twelve healthy oddities, in real torch processes.

    python bench/live.py --python /tmp/lab/bin/python [--options readme|full] [--only lock,compile] [--keep DIR]
    [--apart SECONDS] [--json]

Each scene is torchrun with two or three ranks (bench/lab/live_job.py) and its own watch, started with the job, with the
README's command alone, or every helpful option (`full`: the processes named, no time limit, Flight Recorder dumps asked
for). A fault is called correctly as follows: a hang within five minutes with its rank, an end with the exit status 1,
trouble that does not stop the job without stopping the watch. On a healthy scene anything that is called, or called a
fault or degraded, is a false call, and so is an exit status other than 0. Takes 12 minutes of mostly sleeping
processes, and some 6 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
JOB = HERE.parent / "lab" / "live_job.py"
APART = 7.0  # seconds between the starts of two jobs by default: importing torch is expensive
SOON = 300.0  # seconds within which a hang must be called
LONGEST = 960.0  # seconds of one scene
RIGHT, MISSED, FALSE = "right", "missed", "FALSE"


@dataclass(frozen=True)
class Scene:
    """One job. `rank`: where the act happens, -1 for all ranks. `ends`: expected end; `faults`: accepted classes."""

    name: str
    ends: str  # "hang", "fatal", "degraded", or "" for a healthy job
    what: str
    act: str
    rank: int = -1
    world: int = 2
    faults: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    restarts: int = 0


FAULTS = (
    Scene("lock", "hang", "rank 1 takes a lock twice", "lock", 1, 3),
    Scene("deadlock", "hang", "two threads of rank 0 take two locks in opposite order", "deadlock", 0, 3),
    Scene("skip", "hang", "rank 2 leaves a reduction out", "skip", 2, 3),
    Scene("stopped", "hang", "rank 1 is stopped (SIGSTOP)", "stopped", 1, 3),
    Scene("killed", "fatal", "rank 1 is killed (SIGKILL)", "killed", 1, 2, ("killed", "host_oom")),
    Scene("loader", "hang", "the loader worker of rank 0 waits for a lock", "loader", 0),
    Scene("storage", "hang", "rank 1 reads from storage that does not answer", "storage", 1),
    Scene("loop", "hang", "rank 1 computes in a loop that never ends", "loop", 1, 3),
    Scene("crash", "fatal", "KeyError on rank 1", "crash", 1, 2),
    Scene("nan", "degraded", "the loss is NaN from step 60 on", "nan", -1, 2, ("loss_not_finite",)),
    Scene(
        "slow-rank", "degraded", "rank 2 takes three times as long", "slow-rank", 2, 4, ("straggler",), ("--step", "20")
    ),
    Scene("save-stuck", "hang", "a checkpoint goes to storage that does not answer", "save-stuck", 0),
)
HEALTHY = (
    Scene("long-save", "", "one checkpoint takes 7 minutes", "long-save", 0),
    Scene("evaluation", "", "an evaluation without a line, 7 minutes", "evaluation"),
    Scene("compile", "", "rank 0 builds an extension for 7 minutes, the others wait for its lock", "compile", 0, 3),
    Scene("slow-log", "", "a line every 100 steps", "", extra=("--log-every", "100")),
    Scene("resume", "", "reads a checkpoint, then skips batches, 7 minutes", "resume"),
    Scene("data-map", "", "rank 0 maps the data for 7 minutes, the others wait", "data-map", 0, 3),
    Scene("quiet", "", "all ranks compute 7 minutes in one function", "quiet"),
    Scene("rank0-metrics", "", "rank 0 computes metrics for 6 minutes, the others wait", "rank0-metrics", 0, 3, extra=("--act-for", "360")),
    Scene("data-wait", "", "the loader's worker of rank 0 reads slowly for 6 minutes", "data-wait", 0, extra=("--act-for", "360")),
    Scene("handled-errors", "", "errors that are logged and survived, lines once a minute", "handled-errors", 1, extra=("--log-every", "60")),
    Scene("restart", "", "rank 1 fails once, and torchrun starts all again", "restart", 1, restarts=1),
    Scene("completes", "", "ends well after 9 minutes", "", extra=("--for", "500")),
)  # fmt: skip


@dataclass
class Result:
    """The result of a scene."""

    scene: Scene
    outcome: str
    status: int | None
    called: str
    after: float | None  # seconds from the act, or from the start of the watch where that is unknown
    first: str = ""
    ranks: tuple[int, ...] = ()
    phase: str = ""
    events: list[str] = field(default_factory=list)
    why: str = ""


def run(scene: Scene, place: int, asked: argparse.Namespace, folder: Path) -> Result:
    """Run one scene: the job and its watch."""
    time.sleep(place * asked.apart)
    folder.mkdir(parents=True)
    logs, work = folder / "logs", folder / "work"
    logs.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "PYTHONPATH")}
    environment |= {"OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "64", "TOKENIZERS_PARALLELISM": "false"}
    environment["TORCH_GLOO_LAZY_INIT"] = "1"  # torch 2.13's Gloo often hangs connecting all pairs after a restart
    words = [
        asked.python,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(scene.world),
        "--max-restarts",
        str(scene.restarts),
    ]
    words += [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        "--log-dir",
        str(logs),
        "--redirects",
        "3",
        str(JOB),
    ]
    words += ["--act", scene.act, "--rank", str(scene.rank), "--work", str(work), "--for", "900", *scene.extra]
    with (logs / "launcher.log").open("wb") as out:
        job = subprocess.Popen(words, stdout=out, stderr=out, env=environment, cwd=folder, start_new_session=True)
    try:
        result = judged(scene, *watched(scene, asked, folder, logs, work))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        kill_ranks(work)
        job.wait()
    return result


def kill_ranks(work: Path) -> None:
    """End the remaining processes of a job: ranks have their own sessions."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if os.fsencode(str(work)) in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def watched(
    scene: Scene, asked: argparse.Namespace, folder: Path, logs: Path, work: Path
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the events of `signalbox watch`, and its exit status; None if it had to be ended."""
    words = [sys.executable, "-m", "bot.cli", "watch", scene.name, "--logs", str(logs), "--json"]
    if asked.options == "full":
        words += [
            "--pids-of",
            f"live_job.py.*{work}",
            "--until-hang",
            "--dump-pipes",
            "--flight-recorder",
            str(folder / "trace_"),
        ]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent), "SIGNALBOX_STATE": str(asked.state)}
    out = folder / "watch.jsonl"
    with out.open("wb") as file, (folder / "watch.err").open("wb") as errors:
        watch = subprocess.Popen(words, stdout=file, stderr=errors, env=environment, cwd=folder)
        try:
            status: int | None = watch.wait(LONGEST)
        except subprocess.TimeoutExpired:
            watch.terminate()
            watch.wait(60)
            status = None if asked.options != "full" else 0  # without a limit, a healthy job is watched forever
    return [json.loads(line) for line in out.read_bytes().splitlines()], status


def judged(scene: Scene, events: Sequence[Mapping[str, Any]], status: int | None) -> Result:
    """Whether the watch was right."""
    end = events[-1] if events and events[-1]["event"] == "end" else {}
    called = str(end.get("called") or "")
    report = next((event["report"] for event in events if event["event"] == "report"), {})
    diagnoses = report.get("diagnoses") or []
    shown = [event for event in events if event["event"] in ("fault", "degraded", "went_on", "called")]
    first = diagnoses[0]["fault"] if diagnoses else next((str(event.get("fault")) for event in shown), "")
    ranks = tuple(
        item["rank"] for diagnosis in diagnoses[:1] for item in diagnosis["suspects"] if item.get("rank") is not None
    )
    result = Result(
        scene,
        FALSE,
        status,
        called,
        None,
        first,
        ranks,
        report.get("phase", ""),
        [f"{event['event']}: {event['text'][:110]}" for event in shown],
        str(end.get("text")),
    )
    result.after = silent_for(events) if called == "hang" else None
    if scene.ends == "":
        kept = [event["event"] for event in shown]
        lasting = "fault" in kept and "went_on" not in kept[len(kept) - kept[::-1].index("fault") :]
        fine = "degraded" not in kept and not lasting and status == 0
        result.outcome = RIGHT if not called and fine else FALSE
    elif scene.ends == "degraded":
        named = {str(event.get("fault")) for event in shown if event["event"] == "degraded"}
        over = called == "ended"  # the job itself ends after 15 minutes, and the watch with it
        result.outcome = RIGHT if named & set(scene.faults) and (over or not called) else MISSED
    elif called == scene.ends or (called and scene.ends == "hang" and called == "fatal"):
        rank = scene.rank in ranks
        known = not scene.faults or first in scene.faults
        phase = report.get("phase") == ("hung" if scene.ends == "hang" else "failed")
        result.outcome = RIGHT if status == 1 and rank and known and phase else "wrong"
    else:
        result.outcome = MISSED
    return result


def silent_for(events: Iterable[Mapping[str, Any]]) -> float | None:
    """Seconds from the last line to the call, by the silence probe."""
    for event in reversed([event for event in events if event["event"] == "votes"]):
        for vote in event["votes"]:
            if vote["probe"] == "silence" and "the last line is " in vote["detail"]:
                return float(vote["detail"].split("the last line is ")[1].split(" s")[0])
    return None


def main() -> None:
    """Run the scenes and print what was called."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python with torch")
    parser.add_argument("--options", choices=("readme", "full"), default="readme")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path, help="where to leave logs, events and evidence")
    parser.add_argument(
        "--apart", type=float, default=APART, help="seconds between the starts of two scenes; more on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    wanted = [name for name in asked.only.split(",") if name]
    scenes = [scene for scene in (*FAULTS, *HEALTHY) if not wanted or scene.name in wanted]
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="signalbox-live-"))
    asked.state = folder / "state"  # shared, so that the rules are compiled once
    compiled = {**os.environ, "PYTHONPATH": str(HERE.parent.parent), "SIGNALBOX_STATE": str(asked.state)}
    subprocess.run(
        [sys.executable, "-m", "bot.cli", "diagnose", str(HERE)], env=compiled, stdout=subprocess.DEVNULL, check=False
    )
    with ThreadPoolExecutor(len(scenes)) as pool:
        results = list(pool.map(lambda pair: run(pair[1], pair[0], asked, folder / pair[1].name), enumerate(scenes)))
    if asked.keep is None:
        shutil.rmtree(folder)
    for result in results:
        show(result, as_json=asked.json)
    for kind, name in ((True, "faults"), (False, "healthy")):
        some = [result for result in results if bool(result.scene.ends) is kind]
        right = sum(result.outcome == RIGHT for result in some)
        print(f"{name}: {right} of {len(some)} right" + ("" if kind else f", {len(some) - right} false calls"))


def show(result: Result, *, as_json: bool) -> None:
    """Print one scene."""
    scene = result.scene
    if as_json:
        print(json.dumps({**vars(result), "scene": scene.name}))
        return
    after = f"{result.after:.0f} s" if result.after is not None else ""
    ranks = ",".join(map(str, result.ranks))
    print(
        f"{result.outcome:8} {scene.name:15} {result.called or '-':9} {after:>6} {result.first:20} rank {ranks:6} {result.phase:9} {result.status} {result.why[:90]}"
    )
    if result.outcome != RIGHT:
        for event in result.events[:6]:
            print(f"             {event}")


if __name__ == "__main__":
    main()
