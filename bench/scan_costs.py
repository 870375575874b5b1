"""What a scan costs, in units that no other load on the machine changes: calls, hits, bytes searched, patterns.

    python bench/scan_costs.py            # compare with scan_costs.json
    python bench/scan_costs.py --write    # record

`tests/bench/test_scan_costs.py` fails where a cost is over 5 % above the recorded one. If that is meant, record it: the change of
the number then shows in the review.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python bench/scan_costs.py`, from anywhere

from bench.scan_data import Recipe, build, fill
from bot.rulebase.loader import Knowledge, knowledge
from kb.model import Resource, StreamRef
from kb.scanning.first_stage import first_stage
from kb.scanning.matcher import Hit, HyperscanMatcher
from kb.scanning.scanner import scan

ROOT = Path(__file__).parent.parent
RECORDED = Path(__file__).with_suffix(".json")
TOLERANCE = 0.05
BLOCKS = 2  # of some 4 MB, of each log
RECIPES = {
    "healthy rank": (Recipe(0), False),
    "rank with iteration lines": (Recipe(0), True),
    "storm": (Recipe(0, storm=0.1), False),
}

Costs = dict[str, int]


@dataclass
class _Searched:
    hits: int = 0
    bytes: int = 0


def corpus() -> dict[str, bytes]:
    """Return one log of each kind, always the same bytes."""
    logs = {}
    for name, (recipe, iterations) in RECIPES.items():
        template = build(recipe, 0, iterations=iterations).text
        logs[name] = b"".join(fill(template, b"5", block) for block in range(BLOCKS))
    return logs


def costs(known: Knowledge) -> Costs:
    """Return the costs of the rule base's patterns, and of a scan of each log of the corpus."""
    patterns = known.plan.patterns
    stage = first_stage(patterns)
    searched = [*(patterns[index] for index in stage.whole), *stage.words]
    found = {
        "patterns: characters": sum(len(item.expression) for item in patterns),
        "first stage: patterns and words": len(searched),
        "first stage: characters": sum(len(item.expression) for item in searched),
        "first stage: patterns that have no word": sum(not patterns[index].once for index in stage.whole),
    }
    for name, text in corpus().items():
        ref = StreamRef("rank-5.log", resource=Resource(rank=5), size=len(text))

        def run(text: bytes = text, ref: StreamRef = ref) -> None:
            scan(known.plan, known.matcher(), ref, [text], year=2026)

        run()  # what is compiled when first used is not counted
        with _counted_searches() as seen:
            calls = _calls(run)
        found |= {
            f"{name}: Python calls": calls,
            f"{name}: hits": seen.hits,
            f"{name}: KB searched": seen.bytes // 1000,
        }
    return found


def grown(now: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """Return a line for each cost that grew by more than TOLERANCE, or that was never recorded."""
    return [
        f"{name}: {value:,d}, recorded {recorded[name]:,d}" if name in recorded else f"{name}: {value:,d}, not recorded"
        for name, value in now.items()
        if value > recorded.get(name, -1) * (1 + TOLERANCE)
    ]


def recorded() -> Costs:
    """Return the recorded costs."""
    costs: Costs = json.loads(RECORDED.read_text("utf-8"))
    return costs


@contextmanager
def _counted_searches() -> Iterator[_Searched]:
    """Count what the engines report, and the bytes that they search."""
    seen, hits = _Searched(), HyperscanMatcher.hits

    def counted(matcher: HyperscanMatcher, block: bytes) -> list[Hit]:
        found = hits(matcher, block)
        seen.hits += len(found)
        seen.bytes += max(at for _, at in found) + 1 if found and matcher.ends_early else len(block)
        return found

    HyperscanMatcher.hits = counted  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        HyperscanMatcher.hits = hits  # type: ignore[method-assign]


def _calls(run: Callable[[], None]) -> int:
    """Return how many functions of kb, written in Python, a run calls."""
    count, folder = 0, str(ROOT / "kb")

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(folder)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def main() -> int:
    """Print the costs beside the recorded ones; exit 1 where one grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the costs")
    args = parser.parse_args()
    now = costs(knowledge(ROOT / "rules"))
    if args.write:
        RECORDED.write_text(json.dumps(now, indent=1) + "\n", "utf-8")
    before = recorded()
    for name, value in now.items():
        print(f"{name:44} {value:12,d} {before.get(name, 0):12,d}")
    return bool(grown(now, before))


if __name__ == "__main__":
    sys.exit(main())
