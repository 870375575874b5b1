"""Measures Drain3 with counts on a set of bench/l4set's layout, for comparison with bench/l4.py: the same cases, the same scorer.

    python -m venv V && V/bin/pip install drain3
    V/bin/python bench/l4_drain.py --set DIR [--out FILE]

Drain3 learns templates from both runs, with its own settings and numbers masked. A template is reported if the good run lacks it, or if
it comes at least four times as often for each line of the log; the first line of each, new ones first, then by how much more often.
It names no node, stage or step.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "l4set")]

from drain3 import TemplateMiner  # noqa: E402 - the path is set above
from drain3.masking import MaskingInstruction  # noqa: E402
from drain3.template_miner_config import TemplateMinerConfig  # noqa: E402
from score import Prediction, render, score  # noqa: E402

MORE = 4.0
MOST = 20


def told(folder: Path) -> Prediction:
    """Return the first line of each template that is new or more frequent than in the good run."""
    config = TemplateMinerConfig()
    config.masking_instructions = [MaskingInstruction(r"\d+(?:\.\d+)?", "N")]
    miner = TemplateMiner(config=config)
    good, here, first = Counter[int](), Counter[int](), dict[int, tuple[str, int]]()
    for _, _, line in lines_of(folder / "baseline"):
        good[miner.add_log_message(line)["cluster_id"]] += 1
    for name, number, line in lines_of(folder / "logs"):
        key = miner.add_log_message(line)["cluster_id"]
        here[key] += 1
        first.setdefault(key, (f"logs/{name}", number))
    size = max(1, sum(here.values())) / max(1, sum(good.values()))
    more = {key: count / (good[key] * size) if good[key] else float("inf") for key, count in here.items()}
    order = sorted((key for key in more if more[key] >= MORE), key=lambda key: (-more[key], first[key]))
    return Prediction(tuple(first[key] for key in order[:MOST]))


def lines_of(folder: Path) -> list[tuple[str, int, str]]:
    """Return file, number and text of all lines below a folder."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_bytes().decode("utf-8", "replace")
        found += [
            (str(path.relative_to(folder)), i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    return found


def main() -> None:
    """Run it over a set, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    truth = json.loads((args.set / "truth.json").read_text("utf-8"))
    said = {name: told(args.set / "cases" / name) for name in sorted(truth["cases"])}
    print(render(score(truth, said)))
    for top in (1, 5):
        found = score(truth, said, top)["lines: F1"]
        print(f"F1 of the first {top}: {'-' if found is None else f'{found[0]:.3f}'}")
    if args.out:
        body = {name: {"lines": [list(x) for x in item.lines]} for name, item in said.items()}
        args.out.write_text(json.dumps(body), "utf-8")


if __name__ == "__main__":
    main()
