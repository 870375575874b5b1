"""Which failures the telling words keep (kb/scanning/telling_words.py): the share with one on their deciding lines, mean over classes.

The deciding lines are those with a needle of the case. `with context`: also cases whose deciding line stands at most 200 lines from
a line with such a word in the same file, which the plan of queries fetches for the most relevant sources. Classes that only
numbers show (domain `training`) are left out: their lines are iteration lines, which are fetched by other words.

    python bench/telling_words.py                       # ../shared/benchmark
    python bench/telling_words.py /cases/a /cases/b
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean

sys.path[:0] = [str(Path(__file__).parent.parent)]
from bot.authoring.cases import read_case  # noqa: E402 - the path comes first
from bot.rulebase.loader import knowledge  # noqa: E402
from connectors.bundles.streams import StreamReader, discover  # noqa: E402
from kb.errors import UnreadableInput  # noqa: E402
from kb.scanning.telling_words import TELLING_WORDS, has_telling_word, kept  # noqa: E402

AROUND = 200  # lines


def deciding(folder: Path, needles: tuple[str, ...]) -> tuple[list[str], bool]:
    """The deciding lines of a case, and whether one is near a line with a telling word."""
    found: list[str] = []
    near = False
    for ref in discover([folder], bundle=True).streams:
        text = b"".join(StreamReader(ref)).decode("utf-8", "replace")
        lines = text.split("\n")
        at = [number for number, line in enumerate(lines) if any(needle in line for needle in needles)]
        found += [lines[number] for number in at]
        near = near or any(has_telling_word("\n".join(lines[max(0, k - AROUND) : k + AROUND + 1])) for k in at)
    return found, near


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path, default=[Path("../shared/benchmark/cases")])
    parser.add_argument("--missed", action="store_true", help="name the cases that no word keeps")
    args = parser.parse_args()
    numeric = {name for name, fault in knowledge().rulebook.faults.items() if fault.domain == "training"}
    print(f"{len(TELLING_WORDS)} words")
    for place in args.sets:
        failures: list[tuple[str, str]] = []
        nearby: list[tuple[str, str]] = []
        for folder in sorted(path for path in place.iterdir() if path.is_dir()):
            try:
                case = read_case(folder)
            except UnreadableInput:
                continue
            if case.label == "healthy" or case.label in numeric or not case.needle:
                continue
            lines, near = deciding(folder, case.needle)
            if not lines:
                continue
            text = "\n".join(lines)
            failures.append((case.label, text))
            nearby.append((case.label, TELLING_WORDS[0] if near else ""))
            if args.missed and not has_telling_word(text):
                print(f"  {case.id} ({case.label}): {lines[0][:120]!r}{' (near one)' if near else ''}")
        if not failures:
            print(f"{place}: no failures with deciding lines")
            continue
        alone, around = kept(TELLING_WORDS, failures), kept(TELLING_WORDS, nearby)
        share = sum(has_telling_word(text) for _, text in failures) / len(failures)
        print(
            f"{place}: {len(failures)} failures of {len(alone)} classes; mean over classes {mean(alone.values()):.1%}"
            f" (of all failures {share:.1%}), with context {mean(around.values()):.1%}"
        )


if __name__ == "__main__":
    main()
