"""Diagnoses the lab's bundles and compares the results with the truth.

    python bench/lab/judge.py [BUNDLES] [--only lab-asleep,…] [--json] [--without flight_recorder] [--after 60]

BUNDLES is the folder whose `lab-*` subfolders are bundles with the truth in `case.yaml`:

    fault           the class of rules/faults.yaml; `healthy` if nothing is wrong
    also            classes that are also acceptable; counted separately
    ranks           the ranks at fault; empty if there are none
    hang            true, false, or `either` if it is so slow that both answers are right
    last_progress   when the last iteration line was printed; job.yaml's `samples` are the times of the stacks

The delay until a hang is called: bundles are recorded about 130 s after the last progress. `--without` omits a part of
the evidence. `--after S` evaluates only true hangs, as if recorded S seconds after the last progress: nothing moves in
them, so the stacks and rings would have been the same then, and only their times in job.yaml are changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import Knowledge, knowledge
from bot.runtime.errors import SignalboxError
from kb.report import Report

BUNDLES = Path(__file__).resolve().parent.parent.parent / "tests" / "bundles"


@dataclass(frozen=True)
class Judged:
    """One bundle: the truth, the first diagnosis, and which parts are right (None: not applicable)."""

    name: str
    truth: str
    said: str
    class_right: bool | None
    class_near: bool | None
    true_ranks: tuple[int, ...]
    said_rank: int | None
    rank_right: bool | None
    hang: bool | str
    hang_called: bool
    hang_right: bool | None
    alarm: bool | None
    seconds: float


def judge(report: Report, truth: dict[str, Any], name: str, seconds: float) -> Judged:
    """Compare a report with the truth."""
    first = report.diagnoses[0] if report.verdict == "fault" and report.diagnoses else None
    said = first.fault if first else report.verdict
    rank = next((who.rank for who in first.suspects), None) if first else None
    fault, ranks, hang = truth["fault"], tuple(truth["ranks"]), truth["hang"]
    sick = fault != "healthy"
    return Judged(
        name=name,
        truth=fault,
        said=said,
        class_right=said == fault if sick else None,
        class_near=said == fault or said in truth.get("also", ()) if sick else None,
        true_ranks=ranks,
        said_rank=rank,
        rank_right=rank in ranks if ranks else None,
        hang=hang,
        hang_called=report.hang.called,
        hang_right=report.hang.called == hang if isinstance(hang, bool) else None,
        alarm=None if sick else bool(first) or report.hang.called,
        seconds=seconds,
    )


def judge_all(known: Knowledge, folders: Sequence[Path], without: Sequence[str], after: float | None) -> list[Judged]:
    """Diagnose every bundle, one after the other. Raises OSError if a case has no truth."""
    found = []
    for folder in folders:
        truth = yaml.safe_load((folder / "case.yaml").read_text("utf-8"))
        if after is not None and truth["hang"] is not True:
            continue
        with tempfile.TemporaryDirectory(prefix="judge-") as scratch:
            copy = Path(scratch) / folder.name
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("case.yaml", *without))
            if after is not None:
                set_back(copy / "job.yaml", truth["last_progress_s"], after)
            begun = time.perf_counter()
            try:
                report = diagnose_bundle(known, copy).report
            except SignalboxError as error:
                raise SystemExit(f"{folder}: {error}") from error
            found.append(judge(report, truth, folder.name, round(time.perf_counter() - begun, 3)))
    return found


def set_back(path: Path, progress: float, after: float) -> None:
    """Change job.yaml as if collected `after` seconds after the last progress, with evenly spaced samples before."""
    job = yaml.safe_load(path.read_text("utf-8"))
    names = sorted(job.get("samples") or {})
    times = {name: progress + after * (place + 1) / len(names) for place, name in enumerate(names)}
    told = {name: datetime.fromtimestamp(when, UTC).isoformat() for name, when in times.items()}
    job |= {"collected_at": datetime.fromtimestamp(progress + after, UTC).isoformat(), "samples": told}
    path.write_text(yaml.safe_dump(job, sort_keys=False), "utf-8")


def share(label: str, answers: Sequence[bool | None]) -> str:
    """Return how many of the applicable ones are true."""
    asked = [answer for answer in answers if answer is not None]
    part = f" ({100 * sum(asked) / len(asked):.0f} %)" if asked else ""
    return f"{label:<42}{sum(asked)} of {len(asked)}{part}"


def summary(judged: Sequence[Judged]) -> list[str]:
    """Return the figures."""
    return [
        share("class right first", [item.class_right for item in judged]),
        share("class right or near first", [item.class_near for item in judged]),
        share("rank right first", [item.rank_right for item in judged]),
        share("hang told as it is", [item.hang_right for item in judged]),
        share("healthy called faulty or hung", [item.alarm for item in judged]),
    ]


def line(item: Judged) -> str:
    """Return one case as a line, with `!` before wrong parts."""
    wrong = item.alarm if item.class_near is None else not item.class_near
    ranks = ",".join(map(str, item.true_ranks)) or "-"
    said = "-" if item.said_rank is None else str(item.said_rank)
    marks = ["!" if bad else " " for bad in (wrong, item.rank_right is False, item.hang_right is False)]
    return (
        f"{item.name:<24} {item.truth:<18}{marks[0]}{item.said:<22} rank {ranks:<4}{marks[1]}{said:<4}"
        f" hang {item.hang!s:<7}{marks[2]}{item.hang_called!s}"
    )


def main() -> None:
    """Print one line per case, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="?", type=Path, default=BUNDLES)
    parser.add_argument("--only", default="", help="names, comma between")
    parser.add_argument(
        "--without", action="append", default=[], help="a folder of the bundles to leave out: stacks, …"
    )
    parser.add_argument("--after", type=float, help="seconds past the last progress at which to look")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rules", type=Path)
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    folders = [path.parent for path in sorted(options.bundles.glob("lab-*/case.yaml"))]
    chosen = [folder for folder in folders if not wanted or folder.name in wanted]
    judged = judge_all(knowledge(options.rules), chosen, options.without, options.after)
    if options.json:
        print(json.dumps([asdict(item) for item in judged], indent=1))
        return
    print(f"{'case':<24} {'truth':<19}{'said first':<22} {'true / said rank':<14} true / called hang")
    print("\n".join([*map(line, judged), "", *summary(judged)]))


if __name__ == "__main__":
    main()
