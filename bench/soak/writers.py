"""Many diagnoses at once on one SQLite store: what was printed must be kept.

    python bench/soak/writers.py [--at-once 20 100]

The diagnoses are processes with the whole `signalbox diagnose` in them, forked from one that has imported it, so that their writes meet
and a hundred of them fit into memory. Each has a log of its own. Once on a store that does not exist yet, and once on one with incidents.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
LOG = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train_{number}.py", line {number}, in step
[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number}.00 MiB. GPU 0 has a total capacity of 79.10 GiB
"""


def write_log(folder: Path, number: int) -> Path:
    """Write a log that has a diagnosis of its own."""
    path = folder / f"job-{number}" / "rank-3.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LOG.format(rank=3, number=number))
    return path.parent


def command(logs: Path) -> None:
    """Run `signalbox diagnose` in this process."""
    from bot.cli.main import main  # noqa: PLC0415 - after the environment is set

    sys.argv = ["signalbox", "diagnose", "--logs", str(logs), "--json", "--workers", "1"]
    main()


def forked(run: Callable[[], None], out: Path) -> int:
    """Run something in a child whose standard output is a file. Returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        number = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(number, 1)
        errors = os.open(out.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        run()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    finally:
        sys.stdout.flush()
        os._exit(status)


def printed(outs: Sequence[Path]) -> set[str]:
    """Return the ids of the reports that were printed whole."""
    found = set()
    for out in outs:
        try:
            found.add(str(json.loads(out.read_bytes())["id"]))
        except (OSError, ValueError, KeyError):
            continue
    return found


def kept(state: Path) -> list[str]:
    """Return the ids of the stored reports."""
    with closing(sqlite3.connect(state / "signalbox.db")) as store:
        return [row[0] for row in store.execute("SELECT report_id FROM incident")]


def sound(state: Path) -> bool:
    """Whether SQLite finds the store whole."""
    with closing(sqlite3.connect(state / "signalbox.db")) as store:
        return bool(store.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def at_once(folder: Path, count: int, *, fresh: bool) -> tuple[int, int, int, int, float]:
    """Return how many were printed, kept at once, kept beside the store, and neither; and the seconds that it took."""
    state = folder / "state"
    os.environ["SIGNALBOX_STATE"] = str(state)
    if not fresh:
        for number in range(3):
            out = folder / f"before-{number}.json"
            os.waitpid(forked(lambda number=number: command(write_log(folder, 9000 + number)), out), 0)  # type: ignore[misc]
    began = time.monotonic()
    outs = [folder / f"{number}.json" for number in range(count)]
    logs = [write_log(folder, number) for number in range(count)]
    children = [forked(lambda log=log: command(log), out) for log, out in zip(logs, outs, strict=True)]  # type: ignore[misc]
    for child in children:
        os.waitpid(child, 0)
    took = time.monotonic() - began
    told = printed(outs)
    at_first = told & set(kept(state))
    last = folder / "last.json"
    os.waitpid(forked(lambda: command(write_log(folder, 9999)), last), 0)
    in_the_end = told & set(kept(state))
    return len(told), len(at_first), len(in_the_end) - len(at_first), len(told - in_the_end), took


def main() -> int:
    """Return 1 if anything that was printed was lost."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--at-once", type=int, nargs="+", default=[20, 100])
    given = options.parse_args()
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="signalbox-writers-") as cache:
        os.environ["SIGNALBOX_CACHE"] = cache
        knowledge()  # and what it imports, once for all
        import bot.cli.diagnose  # noqa: PLC0415
        import bot.diagnosis.diagnose  # noqa: PLC0415
        import bot.render.report_json  # noqa: PLC0415
        import bot.store.incidents  # noqa: F401, PLC0415

        bad = 0
        for count in given.at_once:
            for fresh in (True, False):
                with tempfile.TemporaryDirectory(prefix="signalbox-writers-") as folder:
                    told, first, beside, lost, took = at_once(Path(folder), count, fresh=fresh)
                    whole = sound(Path(folder) / "state")
                bad += lost + (told != count) + (not whole)
                print(
                    f"{count} diagnoses at once on {'a fresh' if fresh else 'an old'} store, {took:.0f} s: printed {told}, kept {first}, "
                    f"kept beside the store and taken in later {beside}, printed and not kept {lost}; store {'sound' if whole else 'CORRUPT'}",
                    flush=True,
                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
