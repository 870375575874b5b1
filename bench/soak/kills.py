"""Diagnoses that are killed at random moments: the store stays sound, and what was printed is kept once.

    python bench/soak/kills.py [--count 100] [--seed 1]

Each kill is SIGKILL for a whole `signalbox diagnose` process (a fork of one that has imported everything) at a random moment of the time that
an undisturbed one takes. Four run at a time on one store, three of which live. In the end another diagnosis takes in what the killed ones
had promised. Kills of the service, at every commit and every call to Slack: `python -m bench.chat --kills`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from writers import command, forked, kept, printed, sound, write_log

TOGETHER = 4


def killed(child: int, after: float) -> bool:
    """Kill a process after some seconds, unless it has ended. Returns whether it was killed."""
    end = time.monotonic() + after
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def run(folder: Path, count: int, seed: int) -> tuple[int, int, int, int, int, int]:
    """Return kills, diagnoses, corrupt stores, printed by killed ones, printed and lost, doubled."""
    rng = random.Random(seed)
    state = folder / "state"
    os.environ["SIGNALBOX_STATE"] = str(state)
    number = kills = corrupt = 0
    outs: list[Path] = []
    victims: list[Path] = []

    def start() -> int:
        nonlocal number
        number += 1
        log = write_log(folder / "logs", number)
        outs.append(folder / f"{number}.json")
        return forked(lambda: command(log), outs[-1])

    began = time.monotonic()
    os.waitpid(start(), 0)
    usual = time.monotonic() - began
    while kills < count:
        began = time.monotonic()
        others = [start() for _ in range(rng.randrange(TOGETHER))]
        victim = start()
        victims.append(outs[-1])
        kills += killed(victim, rng.uniform(0.2, 1.1) * usual)
        for other in others:
            os.waitpid(other, 0)
        if (state / "signalbox.db").exists():
            corrupt += not sound(state)
        usual = 0.7 * usual + 0.3 * (time.monotonic() - began)  # the machine may have other things to do
    os.waitpid(start(), 0)
    told, stored = printed(outs), kept(state)
    doubled = sum(times - 1 for times in Counter(stored).values())
    return kills, number, corrupt, len(printed(victims)), len(told - set(stored)), doubled


def main() -> int:
    """Return 1 if a kill did harm."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="signalbox-kills-") as folder:
        os.environ["SIGNALBOX_CACHE"] = str(Path(folder) / "cache")
        from bot.rulebase.loader import knowledge  # noqa: PLC0415

        knowledge()
        import bot.cli.diagnose  # noqa: PLC0415
        import bot.diagnosis.diagnose  # noqa: PLC0415
        import bot.store.incidents  # noqa: F401, PLC0415

        kills, runs, corrupt, cut, lost, doubled = run(Path(folder), given.count, given.seed)
    print(
        f"{kills} kills among {runs} diagnoses: corrupt stores {corrupt}, printed and lost {lost}, doubled {doubled}; "
        f"{cut} of those that were to be killed had printed their answer"
    )
    return 1 if corrupt or lost or doubled else 0


if __name__ == "__main__":
    sys.exit(main())
