"""The folder of a case: logs without this machine's names, case.yaml, job.yaml; and its checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bench.runs.plan import Case

Pair = tuple[re.Pattern[bytes], bytes]
MACHINE = "node-a"
FRAMEWORKS = {
    "ddp": "pytorch ddp", "fsdp": "pytorch fsdp", "hf": "transformers trainer", "accel": "accelerate", "lit": "lightning",
    "ds": "deepspeed", "sft": "trl", "rayt": "ray train", "jaxw": "jax", "factory": "llama-factory",
    "pre": "pytorch", "roles": "pytorch pipeline", "spawned": "torch multiprocessing", "fab": "lightning fabric", "actors": "ray", "cls": "transformers trainer",
}  # fmt: skip


def stamp(seconds: float) -> str:
    """Return an instant as ISO text, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def replacements(paths: dict[str, str], hosts: Iterable[str], machine: str = MACHINE) -> list[Pair]:
    """Return the replacements for logs: paths of this machine, the longest first, then its host names as whole words."""
    ordered = sorted(paths.items(), key=lambda pair: -len(pair[0]))
    pairs = [(re.compile(re.escape(old.encode())), new.encode()) for old, new in ordered if old]
    names = sorted(set(hosts) - {"localhost", ""}, key=len, reverse=True)
    return pairs + [
        (re.compile(rb"(?<![\w./-])" + re.escape(name.encode()) + rb"(?![\w-])"), machine.encode()) for name in names
    ]


def scrub(text: bytes, pairs: list[Pair]) -> bytes:
    """`text` with every pair replaced."""
    for old, new in pairs:
        text = old.sub(new, text)
    return text


def notes(folder: Path) -> list[dict[str, Any]]:
    """Return the plugs' records by the run's processes, by time."""
    found = [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()
    ]
    return sorted(found, key=lambda note: float(note["time"]))


def witnessed(folder: Path, pairs: list[Pair]) -> list[dict[str, Any]]:
    """Return what the faulty processes wrote, by their own record (scripts/witness.py), as it is in the logs."""
    lines = [line for path in sorted(folder.glob("*.witness")) for line in path.read_text("utf-8").splitlines()]
    found = [json.loads(line) for line in lines]
    return [entry | {"text": scrub(entry["text"].encode(), pairs).decode("utf-8", "replace")} for entry in found]


def truth(case: Case, seen: list[dict[str, Any]], versions: str) -> dict[str, Any]:
    """Return the content of case.yaml; rank, time and step come from the run's records."""
    first = seen[0] if seen else {}
    some = {plug["call"] for plug in case.plugs if "ranks" in plug}  # a fault on all ranks is no single rank's
    ranks = (
        case.at_fault if case.at_fault is not None else sorted({note["rank"] for note in seen if note["call"] in some})
    )
    told = {
        "id": case.id,
        "source": f"made: a real run on CPU by bench/runs, script {case.script}.py, {case.launch}, {case.world} ranks; {versions}",
        "framework": case.framework or FRAMEWORKS.get(case.script, case.script),
        "label": case.label,
        "accept": list(case.accept),
        "why": case.why,
        "needle": list(case.needle),
        "ranks": list(ranks),
        "fix": case.fix,
        "advice": list(case.advice),
        "kind": case.kind or ("healthy" if case.label == "healthy" else "failure"),
        "stage": case.stage,
        "step": first.get("step"),
        "time": stamp(first["time"]) if first else None,
        "place": first.get("place"),
        "verdict": list(case.verdict),
        "proven_end": case.proven,
        "project": case.project,
    }
    return {key: value for key, value in told.items() if value not in (None, "", []) or key == "accept"}


def job(case: Case, span: tuple[float, float], status: int) -> dict[str, Any] | None:
    """Return the content of job.yaml, None without one; `auto` values come from the run."""
    if case.job is None:
        return None
    state = "COMPLETED" if status == 0 else "FAILED"
    base = {"id": case.id, "name": case.project.rpartition("/")[2], "framework": case.framework or FRAMEWORKS.get(case.script), "world_size": case.world, "attempt": 0, "state": state, "start": stamp(span[0]), "end": stamp(span[1]), "collected_at": stamp(span[1])}  # fmt: skip
    said = base | case.job
    if str(said["state"]).upper() == "RUNNING":
        said.pop("end", None)
    return {key: value for key, value in said.items() if value is not None}


def write(folder: Path, texts: dict[str, bytes], told: dict[str, Any], knows: dict[str, Any] | None) -> None:
    """Write a case; files without text are left out."""
    for name, text in texts.items():
        if text.strip():
            path = folder / "logs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.yaml").write_text(yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120), "utf-8")
    if knows is not None:
        (folder / "job.yaml").write_text(yaml.safe_dump(knows, sort_keys=False, width=120), "utf-8")


def shown(needles: Iterable[str], texts: Iterable[bytes]) -> tuple[str, ...]:
    """Return the needles that some log has: a plan may name the words of several versions."""
    text = b"\n".join(texts)
    return tuple(needle for needle in needles if needle.encode() in text)


def complaints(folder: Path, *, forbidden: Iterable[str] = ()) -> list[str]:
    """Return the problems of a case: no logs, no needle in them, forbidden names."""
    told = yaml.safe_load((folder / "case.yaml").read_text("utf-8"))
    logs = sorted(path for path in folder.glob("logs/**/*") if path.is_file())
    text = b"\n".join(path.read_bytes() for path in logs)
    found = [] if logs else ["no logs"]
    needles = told.get("needle", [])
    if needles and not any(needle.encode() in text for needle in needles):
        found.append(f"no needle in the logs: {', '.join(needles)}")
    found += [f"names this machine: {name}" for name in forbidden if name.encode() in text]
    return found
