"""Unknown first causes under known symptoms: whose own lines are quoted, and whose rank is named.

    python bench/unexplained.py CASES [--verbose]

CASES holds folders with `case.yaml` (`needle`: texts of the failed rank's own lines, `ranks`: the ranks at fault) and `logs/`.
A case counts as quoted if one of the first five lines of the first diagnosis has one of the needles, and as named if its
first suspect is one of the ranks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bot.authoring.accuracy import read_case
from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import knowledge

SHOWN = 5  # lines of the first diagnosis


def main() -> int:
    """Print the figures; the exit status is 1 unless every case is quoted and named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    known = knowledge()
    total = quoted = named = 0
    for folder in sorted(path.parent for path in options.cases.glob("*/case.yaml")):
        case = read_case(folder)
        report = diagnose_bundle(known, folder).report
        first = report.diagnoses[0] if report.diagnoses else None
        lines = [item.text for item in first.evidence[:SHOWN]] if first else []
        own = any(needle in line for needle in case.needle for line in lines)
        ranks = [suspect.rank for suspect in first.suspects[:1]] if first else []
        right = bool(ranks) and ranks[0] in case.ranks
        total, quoted, named = total + 1, quoted + own, named + right
        if options.verbose or not (own and right):
            print(
                f"{folder.name}: {'quoted' if own else 'not quoted'}, rank {'named' if right else 'not named'}: {report.summary[:200]}"
            )
    print(f"own lines quoted {quoted} of {total}, rank named {named} of {total}")
    return 0 if total and quoted == named == total else 1


if __name__ == "__main__":
    raise SystemExit(main())
