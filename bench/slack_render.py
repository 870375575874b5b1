"""Whether answers fit into Slack whatever the logs hold: hostile reports as messages, checked by Slack's own rules.

    python bench/slack_render.py [--reports 2000] [--seed N] [--json]
    python bench/slack_render.py --show BUNDLE       # the answer on a bundle as a person reads it in the channel

Each report has markup, mentions, secrets, invisible and broken characters and endless lines in every field
(tests/support/hostile_reports.py). The check is written from Slack's documentation, apart from the renderer
(tests/support/block_limits.py). Asked: nothing broken, nothing leaked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `python bench/slack_render.py`, from anywhere

from bot.slack.blocks.limits import weight  # noqa: E402
from bot.slack.messages.answer import answer_message  # noqa: E402
from bot.slack.messages.card import Card  # noqa: E402
from tests.support.block_limits import faults_of_message, texts  # noqa: E402
from tests.support.hostile_reports import SECRETS, card, report  # noqa: E402
from tests.support.slack_reading import read  # noqa: E402


def measured(count: int, seed: int) -> dict[str, float | int]:
    """Return the figures over so many reports."""
    chance = Random(seed)
    broken, leaked, sizes, blocks, times = 0, 0, [], [], []
    for _ in range(count):
        one, with_it = report(chance), card(chance)
        begun = time.perf_counter()
        message = answer_message(one, with_it)
        times.append((time.perf_counter() - begun) * 1000)
        broken += bool(faults_of_message(message.text, message.blocks))
        told = "".join(texts(message.body))
        leaked += any(secret in told for secret in SECRETS)
        sizes.append(weight(message.blocks))
        blocks.append(len(message.blocks))
    times.sort()
    return {
        "messages": count,
        "break_a_limit": broken,
        "hold_a_secret": leaked,
        "longest_json": max(sizes),
        "most_blocks": max(blocks),
        "ms_median": round(times[count // 2], 1),
        "ms_p99": round(times[int(count * 0.99)], 1),
        "ms_longest": round(times[-1], 1),
    }


def shown(bundle: Path) -> None:
    """Print the answer on a bundle."""
    from bot.diagnosis.diagnose import diagnose_bundle  # noqa: PLC0415 - the rule base is not needed for the figures
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    message = answer_message(diagnose_bundle(knowledge(), bundle).report, Card("h", asked_by="U012ABC"))
    print(f"{message.text}\n\n{read(message.blocks)}")


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    if options.show is not None:
        shown(options.show)
        return 0
    figures = measured(options.reports, options.seed)
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:14} {value}" for name, value in figures.items()))
    return int(figures["break_a_limit"] > 0 or figures["hold_a_secret"] > 0)


if __name__ == "__main__":
    sys.exit(main())
