"""The figures of ../shared/benchmark: top-1 and top-3 by count, by class and by lost GPU time, false alarms, needles, harm.

    python bench/accuracy.py [CASES] [--json] [--verbose] [--labels FILE]

Also runs over the healthy logs next to the cases (`clean/`), where any failure found is a false alarm.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bot.authoring.accuracy import evaluate_cases, render, to_json
from bot.diagnosis.diagnose import diagnose_paths
from bot.rulebase.loader import knowledge

BENCHMARK = Path(__file__).resolve().parent.parent.parent / "shared" / "benchmark"
LABELS = Path(__file__).resolve().with_name("benchmark_labels.yaml")


def main() -> int:
    """Print the figures, or say that there is nothing to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=BENCHMARK / "cases")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--labels", type=Path, default=LABELS)
    options = parser.parse_args()
    if not options.cases.is_dir():
        print(f"skipped: there is no benchmark at {options.cases}", file=sys.stderr)
        return 0
    known = knowledge(options.rules)
    judged = evaluate_cases(known, options.cases, labels=options.labels)
    print(to_json(judged) if options.json else render(judged, verbose=options.verbose))
    clean = options.cases.parent / "clean"
    if clean.is_dir() and not options.json:
        logs = sorted(path for path in clean.iterdir() if path.suffix in (".log", ".out"))
        reports = [(path, diagnose_paths(known, [path]).report) for path in logs]
        alarms = [(path, report) for path, report in reports if report.verdict in ("fault", "no_match")]
        untold = sum(report.verdict == "insufficient_evidence" for _, report in reports)
        print(f"\nclean logs: {len(alarms)} false alarms on {len(logs)}, cannot tell on {untold}")
        for path, report in alarms:
            print(f"  {path.name}: {report.verdict} {', '.join(diagnosis.fault for diagnosis in report.diagnoses)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
