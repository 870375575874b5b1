"""Measures what users see of failures that no rule knows: the whole answer instead of the comparison by itself.

    python bench/l4_answers.py --set DIR [--set DIR ...] [--jobs 2] [--cases]

DIR: see bench/l4.py. The lines are those that the first diagnosis quotes, then those that stand out, five at most; a quoted frame belongs to its
exception. Ranks, stage and step are those of the first diagnosis, else those that stand out. Each case is answered with the good run
and, without it, again. Lines that are shown for healthy runs are false, unless they only are the last ones of a log.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "l4set")]

from score import MEASURES, Prediction, Tally, tally  # noqa: E402 - the paths are set above

from bot.diagnosis.diagnose import diagnose_bundle  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge  # noqa: E402
from connectors.base.bundle_layout import BASELINE  # noqa: E402
from kb.anomalies.core.severity_words import is_body  # noqa: E402
from kb.diagnosis.endings import LAST_LINE, LAST_LINES  # noqa: E402
from kb.parsers.logs.error_lines import message_of  # noqa: E402
from kb.report import EvidenceItem, Report  # noqa: E402

FIVE = 5
SHOWN = (
    "lines: precision", "lines: precision, consequences let pass", "lines: recall of events", "lines: F1",
    "lines: one of the first five is telling", "node: top-1", "node: top-5", "stage", "iteration within the window",
)  # fmt: skip
_known: list[Knowledge] = []


def begin() -> None:
    """Read the rules, once for a worker."""
    _known[:] = [knowledge()]


def lines_of(report: Report, case: Path) -> list[tuple[str, int]]:
    """Return the shown lines by file and number, the first five."""
    first = report.diagnoses[0] if report.diagnoses else None
    quoted = [item for item in (first.evidence if first else ()) if not _is_frame(item)]
    standing = [] if report.verdict == "no_fault" else report.indicators.events
    told = [item.evidence for item in standing if item.evidence is not None and item.why not in (LAST_LINE, LAST_LINES)]
    places = [(item.source, item.offset) for item in (*quoted, *told) if item.offset is not None]
    return [(file, _number(case / file, offset)) for file, offset in dict.fromkeys(places) if (case / file).is_file()][
        :FIVE
    ]


def _is_frame(item: EvidenceItem) -> bool:
    return is_body(item.text) or is_body(message_of(item.text))


def _number(path: Path, offset: int) -> int:
    return path.read_bytes()[:offset].count(b"\n") + 1


def answer(report: Report, case: Path) -> Prediction:
    """Return what the answer says, in the terms of the truth."""
    first = report.diagnoses[0] if report.diagnoses else None
    accused = (
        [f"rank {item.rank}" if item.rank is not None else item.node or "" for item in first.suspects] if first else []
    )
    nodes = [name for name in accused if name] or [item.what for item in report.indicators.nodes]
    stage = (first.stage if first else None) or next(
        (item.what for item in report.indicators.stages), report.progress.stage
    )
    step = first.iteration if first else None
    estimated = next((int(item.what) for item in report.indicators.iterations if item.what.isdigit()), None)
    return Prediction(
        tuple(lines_of(report, case)), tuple(dict.fromkeys(nodes)), stage,
        step if step is not None else estimated if estimated is not None else report.progress.last_iteration,
    )  # fmt: skip


def answered(root: Path, name: str, *, twin: bool) -> tuple[str, str, Prediction]:
    """Diagnose a case; return its name, the verdict and the answer."""
    with tempfile.TemporaryDirectory() as scratch:
        case = Path(scratch) / name
        shutil.copytree(root / "cases" / name, case)
        if not twin:
            shutil.rmtree(case / BASELINE, ignore_errors=True)
        report = diagnose_bundle(_known[0], case, workers=1).report
        return name, report.verdict, answer(report, case)


def row(
    root: Path, truth: dict[str, Any], pool: ProcessPoolExecutor, *, twin: bool, cases: bool
) -> tuple[list[Tally], list[int], int]:
    """Return the tallies of the failures of a set, the false lines of each healthy run, and how many of these are called failed."""
    counted, false, alarms = [], [], 0
    for name, verdict, said in pool.map(partial(answered, root, twin=twin), sorted(truth)):
        told = truth[name]
        if told["symptom"] == "healthy":
            false.append(len(said.lines))
            alarms += verdict in ("fault", "no_match")
            if cases and said.lines:
                print(f"  {name} {told['fault']}: healthy, {verdict}, {len(said.lines)} lines")
            continue
        one = tally(name, told, said)
        counted.append(one)
        if cases:
            print(
                f"  {name} {told['fault']}: {verdict}, {one.hits} of {one.said} lines, {one.events_found} of {one.events} events, rank {one.top1}, stage {said.stage} {one.stage}, step {said.iteration} {one.iteration}"
            )
    return counted, false, alarms


def main() -> None:
    """Answer, score and print, with the good run and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, action="append", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cases", action="store_true", help="print each case too")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs, initializer=begin) as pool:
        for twin in (True, False):
            counted: list[Tally] = []
            false: list[int] = []
            alarms = 0
            for root in args.set:
                truth = json.loads((root / "truth.json").read_text("utf-8"))["cases"]
                found = row(root, truth, pool, twin=twin, cases=args.cases)
                counted, false, alarms = counted + found[0], false + found[1], alarms + found[2]
            print(f"{'with' if twin else 'without'} the good run, {len(counted)} failures:")
            for name in SHOWN:
                value = MEASURES[name](counted)
                print(f"  {name:<42}{'-' if value is None else f'{value:.2f}'}")
            if false:
                print(
                    f"  {len(false)} healthy runs: {alarms} called failed, {sum(false) / len(false):.2f} false lines each"
                )


if __name__ == "__main__":
    main()
