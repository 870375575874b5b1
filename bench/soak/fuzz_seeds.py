"""What the fuzzer begins with: a small valid input of every kind that a reader takes."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import random
from pathlib import Path
from typing import Any

import zstandard

from tests.support.common.alert_samples import alert, payload
from tests.support.common.recorder_dumps import dump
from tests.support.kube_objects import event, node, pod
from tests.support.nccl_ras_samples import TABLE, document, four

ROOT = Path(__file__).resolve().parents[2]
WHOLE = 300_000  # bytes of a bundle that is used
_PACK = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
}


def encoded(value: Any) -> bytes:
    """Return JSON."""
    return json.dumps(value).encode()


def parts() -> dict[str, bytes]:
    """Return path in a bundle → content, for every part but logs."""
    start = 1_763_000_000.0
    sample = {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "node-a"}}
    matrix = [sample | {"values": [[start + 30 * at, str(90 - at % 7)] for at in range(60)]}]
    slurm = {
        "job_id": 4711,
        "name": "llm-7b",
        "state": {"current": ["FAILED"]},
        "exit_code": {"return_code": {"number": 1}, "signal": {"id": {"number": 9}}},
        "nodes": "node-[a-c]",
        "time": {"start": start, "end": start + 900, "limit": {"number": 60}},
        "steps": [],
    }
    process = {
        "pid": 17,
        "ppid": 1,
        "name": "python",
        "state": "D",
        "rank": 3,
        "threads": [{"tid": 18, "wchan": "nfs_wait"}],
    }
    frames = [{"name": "all_reduce", "filename": "torch/distributed/c10d.py", "line": 2800}]
    spy = [{"pid": 17, "thread_id": 1, "thread_name": "MainThread", "active": False, "frames": frames}]
    return {
        "job.yaml": b"name: llm-7b\nid: '4711'\nstate: FAILED\nexit_code: 1\nnodes: {node-a: [0, 1]}\nattempts: [{number: 1, state: FAILED}]\n",
        "bundle.yaml": b"version: 1\nstreams: {logs/rank-0.log: {rank: 0, node: node-a}}\ngaps: []\n",
        "events.json": encoded({"items": [event(pod("a-0", {}), "BackOff", "Back-off restarting failed container")]}),
        "pods.json": encoded({"items": [pod("a-0", {"app": "a"})]}),
        "nodes.json": encoded({"items": [node("node-a", ready=False)]}),
        "slurm.json": encoded({"jobs": [slurm]}),
        "processes.json": encoded({"processes": [process]}),
        "metrics/util.json": encoded({"status": "success", "data": {"resultType": "matrix", "result": matrix}}),
        "ras/2026-10-03T04-05-06.json": document(four((1, 2, 3, 4))),
        "ras/now.txt": TABLE.encode(),
        "stacks/2026-03-04T11-00-00/rank-0.json": encoded(spy),
        "stacks/2026-03-04T11-00-00/rank-1.txt": b'Thread 0x1 (most recent call first):\n  File "x.py", line 3 in f\n',
        "flight_recorder/rank_0": pickle.dumps(dump(0)),
        "flight_recorder/rank_1.json": encoded(dump(1)),
        "ebpf/offcputime.txt": b"    finish_task_switch\n    schedule\n    futex_wait\n    -                python (17)\n        812345\n",
        "ebpf/syscalls.json": b'{"type": "map", "data": {"@": {"17": 3}}}\n',
        "hardware/node-a/dcgmi.json": encoded({"DCGM Diagnostic": {"test_categories": []}}),
    }


def log(rng: random.Random) -> bytes:
    """Return a log: lines of the rules' own tests."""
    found = sorted((ROOT / "rules").glob("*/*/match/*.log"))
    return b"\n".join(rng.choice(found).read_bytes()[:4000] for _ in range(rng.randrange(1, 4)))


def packed(name: str, data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a log's name and content, now and then compressed."""
    if rng.random() < 0.75:
        return name, data
    ending, pack = rng.choice(list(_PACK.items()))
    return name + ending, pack(data)


def bundles() -> list[dict[str, bytes]]:
    """Return the bundles of the tests that are small enough: path → content."""
    found = []
    for folder in sorted((ROOT / "tests" / "bundles").iterdir()):
        files = [path for path in folder.rglob("*") if path.is_file()]
        if files and sum(path.stat().st_size for path in files) <= WHOLE:
            found.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    return found


def texts() -> dict[str, list[bytes]]:
    """Return kind of reader → inputs, for everything that is not evidence."""
    from bot.config.docs import example_text  # noqa: PLC0415
    from bot.render.report_json import dumps  # noqa: PLC0415
    from tests.support.bot_samples import FALLEN_GPU  # noqa: PLC0415

    rules = [path.read_bytes() for path in sorted((ROOT / "rules").glob("*/*/rule.yaml"))[::8]]
    sites = [path.read_bytes() for path in sorted((ROOT / "docs" / "examples" / "site").rglob("*.yaml"))]
    return {
        "config": [example_text().encode(), (ROOT / "docs" / "examples" / "signalbox.yaml").read_bytes()],
        "rule": rules,
        "site": sites,
        "webhook": [payload(alert(run="llm-7b"), alert(job_id="4711"))],
        "hook": [b"job=4711&state=FAILED&exit=1:0", encoded({"job": "4711", "state": "FAILED", "exit_code": "1:9"})],
        "report": [dumps(FALLEN_GPU)],
        "link": [b"WyJ0IiwxLDJd.sig", b".eJyLVkosLcnIL1KK1QEAGmoEBA.aBcDeF"],
        "archive": [],
        "command": [b"llm-7b --last 2h --deep cluster=east", b'"job with spaces" -n ml'],
    }
