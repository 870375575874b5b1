"""Failures as if no rule knew them: whether one of the first five lines that are shown is the decisive one.

    python bench/hidden_rules.py CASES [CASES ...] [--half even|odd] [--verbose]

CASES holds folders with `case.yaml` (`label`, `needle`, `source`) and `logs/`, as for bench/accuracy.py. All rules but those of symptoms are
hidden, so that each failure with a needle is an unknown one. The lines are those of the first diagnosis, then those that stand out, each line of
a text of several lines counted for itself. Lines that are shown for healthy runs, other than the last ones of a log or those that prove its end, are
false indicators. `--half` splits by the public source, so that one half can be looked at and the other be kept.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bot.authoring.cases import LabelledCase, read_case
from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import Knowledge, default_folder, knowledge
from kb.diagnosis.endings import LAST_LINE, LAST_LINES
from kb.report import Report

FIVE = 5
_SYMPTOM = re.compile(r"^role: symptom\b", re.MULTILINE)
_REPOSITORY = re.compile(r"github\.com/([\w.-]+/[\w.-]+)")
_known: list[Knowledge] = []  # of a worker


@dataclass(frozen=True, slots=True)
class Shown:
    """What was shown for a case: its first lines, and how many of a healthy run's are false."""

    case: LabelledCase
    verdict: str
    lines: tuple[str, ...]
    false: int

    @property
    def holds(self) -> bool:
        """Whether one of the lines is decisive."""
        return any(needle in line for needle in self.case.needle for line in self.lines[:FIVE])


def symptoms_only(folder: Path) -> None:
    """Copy the rule base to a folder without the rules that know causes."""
    shutil.copytree(default_folder(), folder, dirs_exist_ok=True)
    for path in list(folder.rglob("rule.yaml")):
        if not _SYMPTOM.search(path.read_text("utf-8")):
            shutil.rmtree(path.parent)


def shown_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the first diagnosis, then those that stand out, each once."""
    texts = [item.text for diagnosis in report.diagnoses[:1] for item in diagnosis.evidence]
    texts += [item.evidence.text if item.evidence else item.what for item in report.indicators.events]
    yield from (line for text in dict.fromkeys(texts) for line in text.split("\n") if line.strip())


def half_of(case: LabelledCase) -> str:
    """Return which half a case belongs to, the same for all cases of a repository."""
    found = _REPOSITORY.search(case.source)
    key = found[1].lower() if found else case.source
    return ("even", "odd")[int(hashlib.sha256(("e20" + key).encode()).hexdigest(), 16) % 2]


def _begin(rules: Path) -> None:
    _known[:] = [knowledge(rules)]


def _shown(folder: Path) -> Shown:
    report = diagnose_bundle(_known[0], folder, workers=1).report
    told = () if report.verdict == "no_fault" else report.indicators.events
    false = sum(item.why not in (LAST_LINE, LAST_LINES) for item in told)
    return Shown(read_case(folder), report.verdict, tuple(shown_lines(report)), false)


def main() -> None:
    """Diagnose all cases, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+")
    parser.add_argument("--half", choices=("even", "odd"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="list the failures whose decisive line is not shown")
    options = parser.parse_args()
    folders = sorted(path.parent for cases in options.cases for path in cases.glob("*/case.yaml"))
    folders = [folder for folder in folders if options.half in (None, half_of(read_case(folder)))]
    with tempfile.TemporaryDirectory() as scratch:
        symptoms_only(Path(scratch))
        with ProcessPoolExecutor(options.jobs, initializer=_begin, initargs=(Path(scratch),)) as pool:
            found = list(pool.map(_shown, folders, chunksize=8))
    failures = [item for item in found if item.case.label != "healthy" and item.case.needle]
    healthy = [item for item in found if item.case.label == "healthy"]
    if not failures:
        parser.error("there is no failure with a needle")
    for verdict, count in Counter(item.verdict for item in failures).most_common():
        held = sum(item.holds for item in failures if item.verdict == verdict)
        print(f"{verdict:<24}{held:>5} of {count}")
    held = sum(item.holds for item in failures)
    print(f"decisive line among the first five: {held} of {len(failures)}, {held / len(failures):.1%}")
    if healthy:
        alarms = sum(item.verdict in ("fault", "no_match") for item in healthy)
        false = sum(item.false for item in healthy) / len(healthy)
        print(f"healthy runs: {len(healthy)}, {alarms} called failed, {false:.2f} false indicators each")
    for item in failures if options.verbose else ():
        if not item.holds:
            print(f"{item.case.id} ({item.verdict}): {item.case.needle[0][:150]}")


if __name__ == "__main__":
    main()
