"""Measures failure-indicating lines, nodes, stage and step on bench/l4set, against L4's steps and a severity filter.

    python bench/l4.py --set DIR [--jobs 2] [--half even|odd]

DIR is what `bench/l4set/build.py --out DIR` made. All readers see the same bytes and the same templates. Ours: patterns
alone; with the rules' words (`--deep`); without the good run; without it, but with the pool of healthy runs that ships.
One line per event is reported. logreduce is in bench/l4_logreduce.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "l4set")]

from l4_faithful import l4  # noqa: E402 - the paths are set above
from score import MEASURES, Prediction, score, tally  # noqa: E402

from bot.diagnosis.comparison import WORTH  # noqa: E402
from bot.diagnosis.event_model import event_model  # noqa: E402
from bot.diagnosis.evidence import from_bundle  # noqa: E402
from bot.diagnosis.rank_forms import found_streams  # noqa: E402
from bot.diagnosis.reread import bytes_of  # noqa: E402
from bot.diagnosis.template_pool import tables  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge  # noqa: E402
from bot.store.healthy_baseline import healthy  # noqa: E402
from kb.anomalies.analyse import RunFindings, find_anomalies  # noqa: E402
from kb.anomalies.build_run import build_run  # noqa: E402
from kb.anomalies.core.run import LineRef, RunProfile  # noqa: E402
from kb.anomalies.runs.baseline_diff import baseline_of  # noqa: E402
from kb.diagnosis.engine import diagnose  # noqa: E402
from kb.report import Report  # noqa: E402
from kb.templates.table import TemplateTable  # noqa: E402

OURS = ("ours", "ours with rules", "ours without twin", "without twin, pool")

_known: Knowledge | None = None
_root = Path()


def begin(root: Path) -> None:
    """Initialize a worker with the rules and the set."""
    global _known, _root
    _known, _root = knowledge(), root


@dataclass(frozen=True, slots=True)
class Carried:
    """A loaded case: its run and its twin's, the rules' results, and the mining time."""

    run: RunProfile
    good: RunProfile
    mined: list[TemplateTable]
    report: Report
    known: Mapping[tuple[str, int], float]
    state: str | None
    took: float


def carried(root: Path, name: str) -> Carried:
    """Read a case."""
    folder = root / "cases" / name
    assert _known is not None
    evidence = from_bundle(_known, folder, workers=1)
    began = perf_counter()
    refs = [stream.ref for stream in evidence.streams if stream.ref.group == "logs"]  # as the product does
    mined = tables([replace(ref, uri=str(folder / ref.uri)) for ref in refs], year=2026, workers=1, windowed=True)
    ours = [replace(table, ref=ref) for table, ref in zip(mined.tables, refs, strict=True)]
    twin = (
        tables(found_streams([folder / "baseline"]).streams, year=2026, workers=1).tables
        if (folder / "baseline").is_dir()
        else []
    )
    took = perf_counter() - began
    report = diagnose(evidence, _known.rulebook)
    known = {
        (item.source, item.offset): WORTH[diagnosis.band]
        for diagnosis in report.diagnoses
        if diagnosis.role == "root_cause"
        for item in diagnosis.evidence
        if item.offset is not None
    }
    run = build_run(ours, evidence.streams, evidence.job)
    return Carried(run, build_run(twin), ours, report, known, evidence.job.state, took)


def _case(name: str) -> tuple[str, dict[str, Prediction], dict[str, float]]:
    read = carried(_root, name)
    run, good = read.run, baseline_of(read.good) if read.good.events else None
    number = Numbers(_root / "cases" / name)
    before = perf_counter()
    look = partial(bytes_of, _root / "cases" / name)  # as the product does
    told = find_anomalies(run, good, model=event_model(), read=look)
    compared = perf_counter()
    failed = read.state not in ("COMPLETED", "RUNNING")
    answers = {
        "ours": _ours(told, number),
        "ours with rules": _ours(find_anomalies(run, good, model=event_model(), known=read.known, read=look), number),
        "ours without twin": _ours(find_anomalies(run, None, model=event_model(), read=look), number),
        "without twin, pool": _ours(find_anomalies(run, None, model=event_model(), pool=healthy(), read=look), number),
        "rules alone": _rules(read.report, number),
        "L4's steps": _l4(run, read.good, read.mined, number),
        "severity filter": _severity(run, number) if failed else Prediction(),
    }
    return name, answers, {"mine": read.took, "compare": compared - before}


class Numbers:
    """Line numbers by source and offset."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, source: str, offset: int) -> tuple[str, int]:
        """Return the line that starts there."""
        with (self._folder / source).open("rb") as file:
            return source, file.read(offset).count(b"\n") + 1

    def line(self, spot: LineRef) -> tuple[str, int]:
        """Return the line at a position."""
        return (spot.source, spot.line) if spot.line is not None else self.of(spot.source, spot.offset)


def _ours(found: RunFindings, number: Numbers) -> Prediction:
    spots = [item.beats[0].spot for item in (found.turn,) if item]
    spots += [event.spot for event in found.events]
    spots += [item.spot for item in (*found.absent, *found.drifted) if item.spot]
    return Prediction(tuple(map(number.line, spots)), tuple(node.node for node in found.nodes), found.stage, found.step)


def _rules(report: Any, number: Numbers) -> Prediction:
    items = [item for diagnosis in report.diagnoses[:2] for item in diagnosis.evidence[:2] if item.offset is not None]
    nodes = [suspect.node for diagnosis in report.diagnoses[:1] for suspect in diagnosis.suspects if suspect.node]
    first = report.diagnoses[0] if report.diagnoses else None
    return Prediction(
        tuple(dict.fromkeys(number.of(item.source, item.offset) for item in items)),
        tuple(dict.fromkeys(nodes)),
        (first.stage if first else None) or report.progress.stage,
        first.iteration if first and first.iteration is not None else report.progress.last_iteration,
    )


def _l4(run: RunProfile, good: RunProfile, mined: list[TemplateTable], number: Numbers) -> Prediction:
    told = l4(run, good, mined)
    return Prediction(tuple(map(number.line, told.lines)), told.nodes, told.stage, told.step)


def _severity(run: RunProfile, number: Numbers) -> Prediction:
    """Return the first line of each event at error level or above."""
    spots = [
        min(
            (seen.spots[0] for seen in event.nodes.values()),
            key=lambda item: (item.time or 0.0, item.source, item.offset),
        )
        for event in run.events.values()
        if event.level in ("error", "critical")
    ]
    return Prediction(tuple(map(number.line, spots)))


def _paired(truth: Mapping[str, Any], ours: Mapping[str, Prediction], theirs: Mapping[str, Prediction]) -> str:
    """Return the difference of the F1 of lines, mean over cases, with a 95 % interval over the same draws of cases."""
    measure: Callable[..., float | None] = MEASURES["lines: F1, mean over cases"]
    names = [name for name, item in sorted(truth["cases"].items()) if item["symptom"] != "healthy"]
    each = [
        (measure([tally(n, truth["cases"][n], ours[n])]) or 0.0)
        - (measure([tally(n, truth["cases"][n], theirs[n])]) or 0.0)
        for n in names
    ]
    chance = Random(7)
    draws = sorted(sum(chance.choices(each, k=len(each))) / len(each) for _ in range(1000))
    return f"{sum(each) / len(each):+.3f} [{draws[25]:+.3f}, {draws[974]:+.3f}]"


def main() -> None:
    """Answer all cases, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--half", choices=("even", "odd"), help="every second case only")
    parser.add_argument("--out", type=Path, help="write each reader's predictions here")
    args = parser.parse_args()
    truth = json.loads((args.set / "truth.json").read_text("utf-8"))
    names = sorted(truth["cases"])
    if args.half:
        names = names[args.half == "odd" :: 2]
        truth["cases"] = {name: truth["cases"][name] for name in names}
    answers: dict[str, dict[str, Prediction]] = {}
    spent = {"mine": 0.0, "compare": 0.0}
    with ProcessPoolExecutor(args.jobs, initializer=begin, initargs=(args.set,)) as pool:
        for name, told, took in pool.map(_case, names, chunksize=2):
            for reader, item in told.items():
                answers.setdefault(reader, {})[name] = item
            spent = {key: value + took[key] for key, value in spent.items()}
    scores = {reader: score(truth, told) for reader, told in answers.items()}
    print(f"{'':<42}" + "".join(f"{reader:>26}" for reader in scores))
    for measure in MEASURES:
        cells = [entry[measure] for entry in scores.values()]
        shown = ("-" if item is None else f"{item[0]:.3f} [{item[1]:.2f}, {item[2]:.2f}]" for item in cells)
        print(f"{measure:<42}" + "".join(f"{cell:>26}" for cell in shown))
    for reader in ("L4's steps", "severity filter", "rules alone"):
        print(
            f"ours against {reader}, F1 of lines, mean over cases, paired: {_paired(truth, answers['ours'], answers[reader])}"
        )
    healthy = [name for name in names if truth["cases"][name]["symptom"] == "healthy"]
    for reader in OURS:
        false = sum(len(answers[reader][name].lines) + len(answers[reader][name].nodes) for name in healthy)
        print(f"{reader}: {false / max(1, len(healthy)):.2f} false indicators a healthy run, of {len(healthy)}")
    print("seconds a case: " + ", ".join(f"{key} {value / len(names):.2f}" for key, value in spent.items()))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for reader, told in answers.items():
            body = {
                name: {
                    "lines": [list(x) for x in item.lines],
                    "nodes": list(item.nodes),
                    "stage": item.stage,
                    "iteration": item.iteration,
                }
                for name, item in told.items()
            }
            (args.out / f"{reader.replace(' ', '-')}.json").write_text(json.dumps(body), "utf-8")


if __name__ == "__main__":
    main()
