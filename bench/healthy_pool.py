"""Makes bot/store/pool/healthy.json.zst: templates of healthy runs, for jobs without a known good run.

    python bench/healthy_pool.py [--count 240] [--check]

The runs are those of bench/healthy.py (own texts: Megatron-LM, DeepSpeed, transformers, Lightning and others, from
start to end, with the noise that means nothing). What is kept of them is words and counts. No log of a benchmark goes
in. --check: whether the file is what the texts give now.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import zstandard

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from healthy import make, write  # noqa: E402 - the paths are set above

from bot.diagnosis.rank_forms import found_streams  # noqa: E402
from bot.diagnosis.template_pool import tables  # noqa: E402
from bot.store.baselines import packed  # noqa: E402
from bot.store.healthy_baseline import FILE, LABEL  # noqa: E402
from kb.anomalies.build_run import build_run  # noqa: E402
from kb.anomalies.runs.baseline_diff import Baseline, baseline_of, pooled  # noqa: E402

SEED = 20261122
COUNT = 240


def pool(count: int = COUNT) -> Baseline:
    """Return the merged templates of so many healthy runs."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            place = Path(folder) / str(number)
            place.mkdir()
            path = write(make(SEED, number), place)
            runs.append(baseline_of(build_run(tables(found_streams([path]).streams, workers=1).tables)))
    joined = pooled(runs, LABEL)
    return Baseline(joined.counts, joined.nodes, joined.lines, LABEL)


def main() -> None:
    """Make the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    made = pool(args.count)
    data = packed(made)
    if args.check:
        same = zstandard.decompress(FILE.read_bytes()) == data
        sys.exit(0 if same else f"{FILE} is not what the texts give: run python bench/healthy_pool.py")
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(zstandard.compress(data, 19))
    print(f"{len(made.counts)} events, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
