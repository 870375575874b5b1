"""The slow tier: fuzz, kills, writers, floods, rights, live scenes and upgrades, one after another.

    make soak [MINUTES=60] [PARTS=fuzz,kills,writers,floods,rights,live,upgrades]

Counts shrink with the minutes: 60 are meant for 10,000 fuzzed inputs, 100 kills, 20 and 100 writers, 500 slow connections, all live scenes
(if LAB has torch; see bench/live.py) and every version of the tables. A part that takes longer than planned is not cut, except the fuzzing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def commands(minutes: float, lab: str) -> dict[str, list[str]]:
    """Return the command of each part."""
    share = min(1.0, minutes / 60)

    def scaled(most: int, least: int) -> str:
        return str(max(least, round(most * share)))

    python, soak = sys.executable, str(HERE)
    found = {
        "fuzz": [python, f"{soak}/fuzz.py", "--count", scaled(10_000, 200), "--minutes", f"{minutes / 2:g}"],
        "kills": [python, f"{soak}/kills.py", "--count", scaled(100, 5)],
        "writers": [python, f"{soak}/writers.py", "--at-once", *(["20", "100"] if share > 0.5 else [scaled(20, 5)])],
        "floods": [python, f"{soak}/floods.py", "--minutes", f"{max(0.5, 3 * share):g}", "--fuzz", scaled(3000, 200)],
        "rights": [python, str(ROOT / "bench" / "rights.py"), *([] if share > 0.2 else ["--door", "incidents"])],
        "upgrades": [python, f"{soak}/upgrades.py", *([] if share > 0.2 else ["--only", "5"])],
    }
    if Path(lab).exists():
        scenes = [] if share > 0.5 else ["--only", "lock,compile"]
        found["live"] = [python, str(ROOT / "bench" / "live.py"), "--python", lab, *scenes]
    return found


def main() -> int:
    """Return 1 if a part failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--parts", default="", help="with commas; all by default")
    options.add_argument("--lab", default="/tmp/lab/bin/python", help="a Python with torch, for the live scenes")
    given = options.parse_args()
    known = commands(given.minutes, given.lab)
    wanted = [part for part in given.parts.split(",") if part] or list(known)
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print(f"no such part, or not possible here: {', '.join(unknown)}; parts: {', '.join(known)}")
        return 2
    failed = []
    for part in wanted:
        print(f"== {part}: {' '.join(known[part][1:])}", flush=True)
        began = time.monotonic()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        status = subprocess.run(known[part], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        print(f"== {part}: {'FAILED' if status else 'ok'} after {time.monotonic() - began:.0f} s", flush=True)
        failed += [part] if status else []
    if "live" not in known:
        print(f"live scenes were left out: {given.lab} does not exist (make lab)")
    print(f"failed: {', '.join(failed)}" if failed else "all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
