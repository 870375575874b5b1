"""Figures over cases with known causes, in the form of a benchmark: `<case>/case.yaml` and `<case>/logs/`.

A false alarm is any root cause of band possible or better, or any verdict but no_fault, on a run labelled healthy.
Failures are weighed by the share of lost GPU time that their class had in Acme's clusters (Hu et al., NSDI'24, table 3).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from bot.batch import bundles, reports
from bot.rulefiles import Knowledge
from kb.errors import UnreadableInput
from kb.report import Report

# % of the GPU time that failures cost, from the published table, on our classes; a class it does not have weighs little.
GPU_TIME = {
    "nvlink_fault": 30.25,
    "cuda_memory_access": 5.3,
    "gpu_fault": 5.2,
    "gpu_library": 5.2,
    "node_lost": 14.3,
    "gpu_memory_ecc": 11.0,
    "rdma_link": 1.5,
    "nccl_bootstrap": 1.5,
    "rdma_setup": 1.5,
    "dataloader_fault": 4.38,
    "code_bug": 5.1,
    "peer_failure": 1.8,
    "external_network": 3.5,
    "cuda_oom": 3.28,
    "config_error": 1.5,
    "checkpoint_load": 1.5,
    "storage_io": 2.12,
    "collective_timeout": 0.5,
    "dependency": 0.1,
    "data_error": 0.2,
}
RARE = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """A case with its known cause."""

    id: str
    label: str
    accept: tuple[str, ...]
    needle: tuple[str, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A case and what was said of it."""

    case: str
    label: str
    verdict: str
    answers: tuple[str, ...]
    rules: tuple[str, ...]
    confidence: float
    band: str
    top1: bool
    top3: bool
    needle: bool | None
    false_alarm: bool | None
    quoted: tuple[str, ...]


def read_case(folder: Path) -> Case:
    """Read case.yaml.

    Raises:
        UnreadableInput: the file cannot be read, or is not the description of a case.
    """
    path = folder / "case.yaml"
    try:
        raw = yaml.safe_load(path.read_text("utf-8", errors="replace"))
        return Case(
            str(raw["id"]),
            str(raw["label"]),
            tuple(str(one) for one in raw.get("accept") or ()),
            tuple(str(one) for one in raw.get("needle") or ()),
            tuple(raw.get("ranks") or ()),
        )
    except (OSError, yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: no usable case: {' '.join(str(error).split())[:300]}") from error


def judge(case: Case, report: Report) -> Judged:
    """Compare a report with the truth."""
    answers = tuple(one.fault for one in report.diagnoses) or (
        ("healthy",) if report.verdict == "no_fault" else ("unknown",)
    )
    right = {case.label, *case.accept}
    lines = tuple(item.text for item in report.diagnoses[0].evidence) if report.diagnoses else ()
    healthy = case.label == "healthy"
    alarm = report.verdict != "no_fault" or any(
        one.role == "root_cause" and one.band != "weak" for one in report.diagnoses
    )
    best = report.diagnoses[0] if report.diagnoses else None
    return Judged(
        case=case.id,
        label=case.label,
        verdict=report.verdict,
        answers=answers[:3],
        rules=tuple(one.rule for one in report.diagnoses[:3]),
        confidence=best.confidence if best else 0.0,
        band=best.band if best else "",
        top1=answers[0] in right,
        top3=bool(right & set(answers[:3])),
        needle=any(needle in line for needle in case.needle for line in lines) if case.needle and not healthy else None,
        false_alarm=alarm if healthy else None,
        quoted=lines,
    )


def evaluate_cases(knowledge: Knowledge, folder: Path, workers: int | None = None) -> list[Judged]:
    """Diagnose all cases of a folder.

    Raises:
        UnreadableInput: there is no case in it, or one that cannot be read.
    """
    folders = [path for path in bundles(folder) if (path / "case.yaml").is_file()]
    if not folders:
        raise UnreadableInput(f"{folder}: there is no case in it, no subfolder with a case.yaml")
    cases = [read_case(path) for path in folders]
    return [judge(case, report) for case, (report, _) in zip(cases, reports(knowledge, folders, workers), strict=True)]


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """The figures that count, shares from 0 to 1."""
    failures = [one for one in judged if one.label != "healthy"]
    needles = [one.needle for one in judged if one.needle is not None]
    alarms = [one.false_alarm for one in judged if one.false_alarm is not None]
    return {
        "cases": len(judged),
        "top1": _share([one.top1 for one in judged]),
        "top3": _share([one.top3 for one in judged]),
        "top1_failures": _share([one.top1 for one in failures]),
        "top3_failures": _share([one.top3 for one in failures]),
        "top1_class_mean": _by_class(judged, "top1"),
        "top3_class_mean": _by_class(judged, "top3"),
        "top1_gpu_time": _weighed(failures, "top1"),
        "top3_gpu_time": _weighed(failures, "top3"),
        "false_alarms": sum(alarms),
        "healthy": len(alarms),
        "needle": _share(needles),
        "needles": len(needles),
        "no_match": _share([one.verdict == "no_match" for one in failures]),
        "called_healthy": _share([one.verdict == "no_fault" for one in failures]),
        "likely": _share([one.band == "likely" for one in failures]),
        "likely_right": _share([one.top1 for one in failures if one.band == "likely"]),
    }


def _share(values: Sequence[bool]) -> float:
    return round(mean(values), 4) if values else 0.0


def _by_class(judged: Sequence[Judged], what: str) -> float:
    groups: dict[str, list[bool]] = {}
    for one in judged:
        groups.setdefault(one.label, []).append(getattr(one, what))
    return round(mean(mean(group) for group in groups.values()), 4) if groups else 0.0


def _weighed(judged: Sequence[Judged], what: str) -> float:
    """Each class weighs what it costs, shared among its cases."""
    counts = Counter(one.label for one in judged)
    weights = [GPU_TIME.get(one.label, RARE) / counts[one.label] for one in judged]
    hits = [weight for weight, one in zip(weights, judged, strict=True) if getattr(one, what)]
    return round(sum(hits) / sum(weights), 4) if weights else 0.0


def confusion(judged: Sequence[Judged]) -> list[tuple[str, str, int]]:
    """(truth, answer, how often) of everything that was not right."""
    pairs = Counter((one.label, one.answers[0]) for one in judged if not one.top1)
    return [
        (truth, answer, count) for (truth, answer), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    ]


def to_json(judged: Sequence[Judged]) -> str:
    """Figures and cases as JSON."""
    return json.dumps({"figures": figures(judged), "cases": [asdict(one) for one in judged]}, indent=1)


def render(judged: Sequence[Judged], *, verbose: bool = False) -> str:
    """The figures as a table for people."""
    numbers = figures(judged)
    lines = [f"{numbers['cases']} cases, {numbers['healthy']} of them healthy", ""]
    lines.append(f"{'':24}{'top-1':>8}{'top-3':>8}")
    for name, key in (
        ("by count", ""),
        ("failures only", "_failures"),
        ("mean over classes", "_class_mean"),
        ("by lost GPU time", "_gpu_time"),
    ):
        lines.append(f"{name:24}{numbers['top1' + key]:8.1%}{numbers['top3' + key]:8.1%}")
    lines += [
        "",
        f"{'false alarms':24}{numbers['false_alarms']:8d} of {numbers['healthy']} healthy runs",
        f"{'needle quoted':24}{numbers['needle']:8.1%} of {numbers['needles']}",
        f"{'no rule says what':24}{numbers['no_match']:8.1%} of failures",
        f"{'called no fault':24}{numbers['called_healthy']:8.1%} of failures",
        f"{'band likely':24}{numbers['likely']:8.1%} of failures, right in {numbers['likely_right']:.1%}",
        "",
        "confusion (truth → answer):",
        *(f"  {count:3d}  {truth} → {answer}" for truth, answer, count in confusion(judged)),
    ]
    if verbose:
        lines += ["", *_details(judged)]
    return "\n".join(lines)


def _details(judged: Sequence[Judged]) -> list[str]:
    lines = []
    for one in judged:
        if one.top1 and one.needle is not False and not one.false_alarm:
            continue
        mark = "needle" if one.top1 else "wrong " if not one.top3 else "top-3 "
        lines.append(
            f"{mark} {one.case}: {one.label}, said {one.verdict} {', '.join(one.answers)} ({', '.join(one.rules)})"
        )
    return lines
