"""Measures logreduce on bench/l4set, for comparison with bench/l4.py: the same cases, the same scorer.

    python -m venv V && V/bin/pip install logreduce python bench/l4_logreduce.py --set DIR --program V/bin/logreduce
    [--jobs 2] [--half even|odd] [--cases N] [--out FILE]

logreduce 0.6 learns the good run unchanged (a bag of words, nearest neighbor) and assigns each line of the other a
distance. The lines beyond its own threshold are reported, the farthest first; it names no node, stage or step. It gets
every case, including healthy pairs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "l4set")]

from score import Prediction, render, score  # noqa: E402 - the path is set above

THRESHOLD = 0.2  # its own
LONGEST = 600.0  # seconds a case
NOTHING = 4  # its exit status where it calls no line an anomaly


def told(program: Path, folder: Path) -> Prediction:
    """Return the lines of a case that it calls anomalies.

    Raises:
        SystemExit: it failed or returned an invalid answer.
    """
    if not (folder / "baseline").is_dir():
        return Prediction()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "told.json"
        command = [str(program), "diff", "--json", str(out), str(folder / "baseline"), str(folder / "logs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
        if "No test lines found" in done.stderr + done.stdout:  # it found no file of the good run for any of this one's
            return Prediction()
        if done.returncode == NOTHING:
            return Prediction()
        if not out.exists():
            sys.exit(f"{folder.name}: logreduce failed: {done.stderr[-400:]}")
        files = json.loads(out.read_text("utf-8"))["files"]
    lines = [
        (distance, f"logs/{name}", int(index) + 1)
        for name, item in files.items()
        for index, distance in item["scores"]
        if distance > THRESHOLD
    ]
    return Prediction(tuple((file, line) for _, file, line in sorted(lines, key=lambda item: (-item[0], *item[1:]))))


def main() -> None:
    """Run it over a set, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--half", choices=("even", "odd"))
    parser.add_argument("--cases", type=int, help="so many of them only, the first")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not args.program.exists():
        sys.exit(f"{args.program}: there is no logreduce; skipped")
    truth = json.loads((args.set / "truth.json").read_text("utf-8"))
    names = sorted(truth["cases"])
    if args.half:
        names = names[args.half == "odd" :: 2]
    names = names[: args.cases]
    truth["cases"] = {name: truth["cases"][name] for name in names}
    began = perf_counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        said = dict(
            zip(names, pool.map(lambda name: told(args.program, args.set / "cases" / name), names), strict=True)
        )
    print(render(score(truth, said)))
    for top in (1, 5):
        found = score(truth, said, top)["lines: F1"]
        print(f"F1 of the first {top}: {'-' if found is None else f'{found[0]:.3f}'}")
    print(f"{perf_counter() - began:.0f} s for {len(names)} cases")
    if args.out:
        args.out.write_text(
            json.dumps({name: {"lines": [list(x) for x in item.lines]} for name, item in said.items()}), "utf-8"
        )


if __name__ == "__main__":
    main()
