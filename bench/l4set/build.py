"""Builds the L4-like data set: failures with known lines, nodes, stage and iteration, their successful twins, and healthy pairs.

    python bench/l4set/build.py --out DIR [--seed 20261122] [--cases 100] [--healthy 30] [--size small|paper] [--jobs 2]

DIR/cases/<id>/ is the bundle of a case (logs/, baseline/, job.yaml, bundle.yaml); the truth lies in DIR/truth.json, outside of
all bundles. The same seed gives the same bytes. README.md beside this script says what is in it.
"""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `python bench/l4set/build.py`, from anywhere

from bench.l4set.plan import Planned, plan
from bench.l4set.play import play
from bench.l4set.recorded import dress

SEED = 20261122
SCALES = {"small": 1.0, "paper": 400.0}
HERE = Path(__file__).parent
HASH = HERE / "HASH"


def source_hash() -> str:
    """SHA-256 over the sources and recordings of the generator, by name; the scorer, texts and caches are not among them."""
    found = sha256()
    parts = [*HERE.glob("*.py"), *(HERE / "carriers").glob("*.json")]
    for path in sorted(parts, key=lambda path: path.relative_to(HERE).as_posix()):
        if path.name != "score.py":
            found.update(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def names(seed: int, planned: list[Planned]) -> list[str]:
    """A name for each case that tells nothing: failures and healthy pairs are mixed."""
    numbers = list(range(1, len(planned) + 1))
    Random(f"{seed}/names").shuffle(numbers)
    return [f"case-{number:04d}" for number in numbers]


def _one(planned: Planned, name: str, seed: int, scale: float, out: Path) -> tuple[str, dict[str, Any]]:
    folder = out / "cases" / name
    folder.mkdir(parents=True)
    return name, dress(planned, seed, folder) if planned.recorded else play(planned, seed, scale, folder)


def build(
    out: Path, seed: int = SEED, cases: int = 100, healthy: int = 30, size: str = "small", jobs: int = 1
) -> dict[str, Any]:
    """Write the set under `out`, which must not hold one; returns the truth."""
    planned = plan(seed, cases, healthy)
    tasks = [(one, name, seed, SCALES[size], out) for one, name in zip(planned, names(seed, planned), strict=True)]
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            found = list(pool.map(_one, *zip(*tasks, strict=True)))
    else:
        found = [_one(*task) for task in tasks]
    truth = {"recipe": source_hash(), "seed": seed, "size": size, "cases": dict(sorted(found))}
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", "utf-8")
    return truth


def main() -> None:
    """Build, and say what was built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--cases", type=int, default=100, help="failures")
    parser.add_argument("--healthy", type=int, default=30, help="pairs of healthy runs")
    parser.add_argument("--size", choices=tuple(SCALES), default="small")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--hash", action="store_true", help="write HASH anew, and nothing else")
    args = parser.parse_args()
    if args.hash:
        HASH.write_text(source_hash() + "\n", "utf-8")
        return
    if args.out is None or (args.out / "cases").exists():
        sys.exit("--out DIR is needed, and it must not hold a set already")
    began = time.monotonic()
    truth = build(args.out, args.seed, args.cases, args.healthy, args.size, args.jobs)
    size = sum(path.stat().st_size for path in (args.out / "cases").rglob("*") if path.is_file())
    print(
        f"{len(truth['cases'])} cases, {size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s, recipe {truth['recipe'][:12]}"
    )


if __name__ == "__main__":
    main()
