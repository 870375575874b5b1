"""Figures over cases with known causes: how often the answer is right, and what it would do to the one who believes it.

An explicit fault is one that a line names: its case has a needle, and its class is no symptom and none that only numbers
show (domain training). A false alarm is the verdict fault or no_match, or a root cause of band possible or better, on a run
labelled healthy; insufficient_evidence on such a run is no alarm and has a count of its own, "cannot tell". It is right
if the case says that nothing can be told (`proven_end: false`, or among `verdict`).
Failures are weighed by the share of lost GPU time that their class had in Acme's clusters (Hu et al., NSDI'24, table 3).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from bot.authoring.cases import LabelledCase, completed, holds_own_lines, read_case, read_labels
from bot.authoring.harm import WORSE, Harm, harm, shares, table
from bot.diagnosis.batch import bundles, reports
from bot.rulebase.loader import Knowledge
from kb.errors import UnreadableInput
from kb.report import Report
from kb.rulebase.rule import FaultClass

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
BINS = 5


@dataclass(frozen=True, slots=True)
class ScoredCase:
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
    source: str = ""
    traits: tuple[str, ...] = ()
    explicit: bool = False
    named: bool = False
    advice: str = "none"
    accepted_advice: tuple[str, ...] = ()
    harm: Harm = field(default_factory=Harm)


def judge(
    case: LabelledCase,
    report: Report,
    faults: Mapping[str, FaultClass] | None = None,
    own_lines: Callable[[], bool] = lambda: True,
) -> ScoredCase:
    """Compare a report with the truth.

    `faults`: the classes, to tell which faults are explicit and which are symptoms. `own_lines`: whether the logs hold
    lines of the cause, read only if it matters.
    """
    healthy = case.label == "healthy"
    unnamed = {"no_fault": "healthy", "insufficient_evidence": "cannot_tell"}
    answers = tuple(diagnosis.fault for diagnosis in report.diagnoses) or (unnamed.get(report.verdict, "unknown"),)
    right = {case.label, *case.accept} | ({"cannot_tell"} if case.may_abstain else set())
    lines = tuple(item.text for item in report.diagnoses[0].evidence) if report.diagnoses else ()
    alarm = report.verdict in ("fault", "no_match") or any(
        diagnosis.role == "root_cause" and diagnosis.band != "weak" for diagnosis in report.diagnoses
    )
    best = report.diagnoses[0] if report.diagnoses else None
    top1 = answers[0] in right
    needle = any(needle in line for needle in case.needle for line in lines) if case.needle and not healthy else None
    return ScoredCase(
        case=case.id,
        label=case.label,
        verdict=report.verdict,
        answers=answers[:3],
        rules=tuple(diagnosis.rule for diagnosis in report.diagnoses[:3]),
        confidence=best.confidence if best else 0.0,
        band=best.band if best else "",
        top1=top1,
        top3=bool(right & set(answers[:3])),
        needle=needle,
        false_alarm=alarm if healthy else None,
        quoted=lines,
        source=case.source,
        traits=best.traits if best else (),
        explicit=bool(case.needle) and not healthy and _explicit(case.label, faults),
        named=report.verdict == "fault" and _explicit(answers[0], faults),
        advice=report.decision.advice,
        accepted_advice=case.advice,
        harm=harm(case, report, faults or {}, right=top1, needle=needle, own_lines=own_lines),
    )


def _explicit(fault: str, faults: Mapping[str, FaultClass] | None) -> bool:
    """Whether a fault is one that a line can name: no symptom, nothing that only numbers show."""
    known = (faults or {}).get(fault)
    return known is not None and not known.symptom and known.domain != "training"


def evaluate_cases(
    knowledge: Knowledge, folder: Path, workers: int | None = None, labels: Path | None = None
) -> list[ScoredCase]:
    """Diagnose all cases of a folder. `labels`: a file with advice and ends by case id.

    Raises:
        UnreadableInput: there is no case in it, one that cannot be read, or the labels cannot be read.
    """
    folders = [path for path in bundles(folder) if (path / "case.yaml").is_file()]
    if not folders:
        raise UnreadableInput(f"{folder}: there is no case in it, no subfolder with a case.yaml")
    by_id = read_labels(labels) if labels else {}
    cases = [completed(read_case(path), by_id) for path in folders]
    made = reports(knowledge, folders, workers)
    faults = knowledge.rulebook.faults
    return [
        judge(case, report, faults, partial(holds_own_lines, path, case))
        for case, path, (report, _) in zip(cases, folders, made, strict=True)
    ]


def figures(judged: Sequence[ScoredCase]) -> dict[str, Any]:
    """The figures that count, shares from 0 to 1."""
    failures = [scored_case for scored_case in judged if scored_case.label != "healthy"]
    needles = [scored_case.needle for scored_case in judged if scored_case.needle is not None]
    alarms = [scored_case.false_alarm for scored_case in judged if scored_case.false_alarm is not None]
    return {
        "cases": len(judged),
        "top1": _share([scored_case.top1 for scored_case in judged]),
        "top3": _share([scored_case.top3 for scored_case in judged]),
        "top1_failures": _share([failure.top1 for failure in failures]),
        "top3_failures": _share([failure.top3 for failure in failures]),
        "top1_class_mean": _by_class(judged, "top1"),
        "top3_class_mean": _by_class(judged, "top3"),
        "top1_gpu_time": _weighed(failures, "top1"),
        "top3_gpu_time": _weighed(failures, "top3"),
        "false_alarms": sum(alarms),
        "healthy": len(alarms),
        "healthy_cannot_tell": sum(
            scored_case.verdict == "insufficient_evidence" for scored_case in judged if scored_case.label == "healthy"
        ),
        "needle": _share(needles),
        "needles": len(needles),
        "no_match": _share([failure.verdict == "no_match" for failure in failures]),
        "called_healthy": _share([failure.verdict == "no_fault" for failure in failures]),
        "likely": _share([failure.band == "likely" for failure in failures]),
        "likely_right": _share([failure.top1 for failure in failures if failure.band == "likely"]),
        "likely_wrong": _share([failure.band == "likely" and not failure.top1 for failure in failures]),
        "explicit": sum(scored_case.explicit for scored_case in judged),
        "explicit_recall": _share([scored_case.top1 for scored_case in judged if scored_case.explicit]),
        "explicit_precision": _share([scored_case.top1 for scored_case in judged if scored_case.named]),
        "calibration_error": round(calibration_error(answered(judged)), 4),
        "calibration_floor": round(calibration_floor(answered(judged)), 4),
        "harm": shares([scored_case.harm for scored_case in judged]),
    }


def answered(judged: Sequence[ScoredCase]) -> list[tuple[float, bool]]:
    """(confidence, whether right) of the first diagnosis of each failure that has one."""
    return [
        (scored_case.confidence, scored_case.top1)
        for scored_case in judged
        if scored_case.label != "healthy" and scored_case.verdict == "fault"
    ]


def bins(pairs: Sequence[tuple[float, bool]], number: int = BINS) -> list[list[tuple[float, float]]]:
    """Bins of equal mass, the least sure first: (confidence, share of those as sure that was right)."""
    number_of, right_of = Counter(sure for sure, _ in pairs), Counter(sure for sure, right in pairs if right)
    smooth = [(sure, right_of[sure] / number_of[sure]) for sure, _ in sorted(pairs, key=lambda pair: pair[0])]
    cuts = [round(len(smooth) * place / number) for place in range(number + 1)]
    return [smooth[low:high] for low, high in pairwise(cuts) if high > low]


def calibration_error(pairs: Sequence[tuple[float, bool]]) -> float:
    """The expected calibration error: how far confidence is from the share that was right, on average over the bins."""
    return sum(abs(sum(sure - right for sure, right in part)) for part in bins(pairs)) / max(1, len(pairs))


def calibration_floor(pairs: Sequence[tuple[float, bool]], draws: int = 400) -> float:
    """The error that perfect confidences would show with so few cases: the mean over drawn outcomes."""
    chance = Random(0)
    drawn = ([(sure, chance.random() < sure) for sure, _ in pairs] for _ in range(draws if pairs else 0))
    errors = [calibration_error(item) for item in drawn]
    return mean(errors) if errors else 0.0


def _share(values: Sequence[bool]) -> float:
    return round(mean(values), 4) if values else 0.0


def _by_class(judged: Sequence[ScoredCase], what: str) -> float:
    groups: dict[str, list[bool]] = {}
    for scored_case in judged:
        groups.setdefault(scored_case.label, []).append(getattr(scored_case, what))
    return round(mean(mean(group) for group in groups.values()), 4) if groups else 0.0


def _weighed(judged: Sequence[ScoredCase], what: str) -> float:
    """Each class weighs what it costs, shared among its cases."""
    counts = Counter(scored_case.label for scored_case in judged)
    weights = [GPU_TIME.get(scored_case.label, RARE) / counts[scored_case.label] for scored_case in judged]
    hits = [weight for weight, item in zip(weights, judged, strict=True) if getattr(item, what)]
    return round(sum(hits) / sum(weights), 4) if weights else 0.0


def confusion(judged: Sequence[ScoredCase]) -> list[tuple[str, str, int]]:
    """(truth, answer, how often) of everything that was not right."""
    pairs = Counter((scored_case.label, scored_case.answers[0]) for scored_case in judged if not scored_case.top1)
    return [
        (truth, answer, count) for (truth, answer), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    ]


def to_json(judged: Sequence[ScoredCase]) -> str:
    """Figures and cases as JSON."""
    return json.dumps({"figures": figures(judged), "cases": [asdict(scored_case) for scored_case in judged]}, indent=1)


def render(judged: Sequence[ScoredCase], *, verbose: bool = False) -> str:
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
        f"{'false alarms':24}{numbers['false_alarms']:8d} of {numbers['healthy']} healthy runs, cannot tell on {numbers['healthy_cannot_tell']}",
        f"{'needle quoted':24}{numbers['needle']:8.1%} of {numbers['needles']}",
        f"{'explicit faults found':24}{numbers['explicit_recall']:8.1%} of {numbers['explicit']}",
        f"{'explicit and right':24}{numbers['explicit_precision']:8.1%} of those that were named",
        f"{'no rule says what':24}{numbers['no_match']:8.1%} of failures",
        f"{'called no fault':24}{numbers['called_healthy']:8.1%} of failures",
        f"{'band likely':24}{numbers['likely']:8.1%} of failures, right in {numbers['likely_right']:.1%}",
        f"{'likely and wrong':24}{numbers['likely_wrong']:8.1%} of failures",
        "",
        *table(numbers["harm"]),
        "",
        *reliability(answered(judged)),
        "",
        "confusion (truth → answer):",
        *(f"  {count:3d}  {truth} → {answer}" for truth, answer, count in confusion(judged)),
    ]
    if verbose:
        lines += [
            "",
            *_details(judged),
            "",
            *_harmed(judged),
            "",
            f"explicit: {', '.join(scored_case.case for scored_case in judged if scored_case.explicit)}",
        ]
    return "\n".join(lines)


def reliability(pairs: Sequence[tuple[float, bool]]) -> list[str]:
    """The reliability table: in bins of equal mass, how sure and how often right."""
    if not pairs:
        return []
    rows = [
        f"  {min(c for c, _ in part):.2f} to {max(c for c, _ in part):.2f}{len(part):8d}"
        f"{mean(c for c, _ in part):10.1%}{mean(r for _, r in part):10.1%}"
        for part in bins(pairs)
    ]
    return [
        f"reliability of the first diagnosis{'':4}sure     right",
        *rows,
        f"expected calibration error {calibration_error(pairs):.3f}; perfect confidences would show {calibration_floor(pairs):.3f}",
    ]


def _details(judged: Sequence[ScoredCase]) -> list[str]:
    lines = []
    for scored_case in judged:
        if scored_case.top1 and scored_case.needle is not False and not scored_case.false_alarm:
            continue
        mark = "needle" if scored_case.top1 else "wrong " if not scored_case.top3 else "top-3 "
        lines.append(
            f"{mark} {scored_case.case}: {scored_case.label}, said {scored_case.verdict} {', '.join(scored_case.answers)} ({', '.join(scored_case.rules)})"
        )
    return lines


def _harmed(judged: Sequence[ScoredCase]) -> list[str]:
    return [
        f"{name} {scored_case.case}: {scored_case.label}, said {scored_case.verdict} {scored_case.answers[0]}, advice"
        f" {scored_case.advice} (accepted: {', '.join(scored_case.accepted_advice) or 'not labelled'})"
        for name in (*WORSE, "advice_accepted")
        for scored_case in judged
        if getattr(scored_case.harm, name) is (name in WORSE)
    ]
