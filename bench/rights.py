"""Walk every way into the Slack app with every kind of person: all pairs, and whether each passes exactly if they may.

    python bench/rights.py [--door WORDS]

People: each verb alone, all, none, by a group, guests, other organisations, people whom Slack does not identify. Places: channels of
two tenants, others, direct messages, the Home tab, another workspace. Incidents: shared and private, of two tenants.
Takes some minutes. `tests/bot/slack/test_rights.py` does the same with a few hundred pairs.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path


def main() -> int:
    """Print the figures and the holes; 1 if there are any."""
    from bot.rulebase.loader import knowledge  # noqa: PLC0415 - the help is quick
    from tests.support.quick_databases import quick_databases  # noqa: PLC0415
    from tests.support.rights import oracle  # noqa: PLC0415
    from tests.support.rights.doors import DOORS  # noqa: PLC0415
    from tests.support.rights.scene import scene  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--door", default="", help="only doors with these words")
    wanted = parser.parse_args().door
    logging.disable(logging.CRITICAL)
    doors = [door for door in DOORS if wanted in str(door)]
    found: list[str] = []
    pairs: Counter[bool] = Counter()
    begun = time.perf_counter()
    with quick_databases(), tempfile.TemporaryDirectory() as folder, scene(Path(folder), knowledge()) as made:
        for case in oracle.every(made, doors):
            pairs[oracle.may(case)] += 1
            found += oracle.problems(made, case)
            made.restore()
    took = time.perf_counter() - begun
    for line in found[:100]:
        print(line)
    told = f"{len(doors)} doors, {pairs.total()} pairs: {pairs[True]} may, {pairs[False]} may not"
    print(f"{told}; {len(found)} holes; {took:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
