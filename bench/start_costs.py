"""What a start costs, in units that no other load on the machine changes: imported modules and compiled expressions.

    python bench/start_costs.py            # compare with start_costs.json
    python bench/start_costs.py --write    # record

A diagnosis of a small log runs once to fill the cache, then twice for each log, and what it imported up to the printed answer is counted.
Of the two, the cheaper one counts: a start next to one that has just compiled a module of ours reads the rules again, to be sure.
`tests/bench/test_start_costs.py` fails where a count is over 5 % above the recorded one, or where one of the modules of NEVER is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # `python bench/start_costs.py`, from anywhere

from bench.scan_costs import Costs, grown  # noqa: E402 - from the folder above

RECORDED = Path(__file__).with_suffix(".json")
LOGS = {
    "one line": "2026-11-03 04:10:00,000 [INFO] starting\n",
    "failure": """2026-11-03 04:10:00,000 [INFO] starting
[rank0]: Traceback (most recent call last):
[rank0]:   File "/workspace/pretrain.py", line 311, in train_step
[rank0]:     torch.autograd.backward(output, grad_tensors=grad)
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 0 has a total capacity of 79.11 GiB
""",
}
NEVER = (
    "alembic", "httpx", "jinja2", "matplotlib", "multiprocessing", "numpy", "psutil", "pydantic", "rapidfuzz", "rich",
    "slack_bolt", "slack_sdk", "sqlalchemy", "sqlmodel", "typer", "yaml",
    "bot.store.database", "connectors.bundles.parts", "kb.metrics.panel", "kb.regex.hazards", "kb.rulebase.patterns",
    "kb.rulebase.rulebook", "kb.scanning.first_stage", "kb.scanning.plan_builder", "kb.templates",
)  # fmt: skip
_COUNTED = """
import atexit, json, os, re, sys
import re._compiler as compiler
compiled, compile_ = [], compiler.compile
compiler.compile = lambda *given: (compiled.append(given), compile_(*given))[1]
def note():
    with open(os.environ["COUNTS"], "w") as file:
        json.dump([sorted(sys.modules), len(compiled)], file)
atexit.register(note)
sys.argv[0] = "signalbox"
from bot.cli.main import main
main()
"""


def imported(log: str, work: Path, starts: int = 2) -> tuple[list[str], int]:
    """Return the modules that a start from the cache imports to diagnose a log, and how many expressions it compiles."""
    counts = work / "counts.json"
    (work / "rank-0.log").write_text(log, "utf-8")
    env = os.environ | {"SIGNALBOX_CACHE": str(work / "cache"), "COUNTS": str(counts), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _COUNTED, "diagnose", "--logs", "rank-0.log", "--no-store"]
    found: list[tuple[list[str], int]] = []
    for _ in range(starts):  # in `work`: a random path in the answer can look like a secret, and its masks are compiled
        subprocess.run(command, env=env, cwd=work, check=True, capture_output=True)
        found.append(tuple(json.loads(counts.read_text("utf-8"))))
    return min(found, key=lambda start: (start[1], len(start[0])))


def costs(cache: Path | None = None) -> tuple[Costs, list[str]]:
    """Return the costs of a start for each log, and which modules of NEVER were imported. The standard library is not counted.

    `cache`: a folder with the compiled rule base, which is copied; without it, a start compiles that first.
    """
    found: Costs = {}
    banned: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="start-costs-") as folder:
        work = Path(folder)
        if cache is None:
            imported(LOGS["one line"], work, starts=1)
        else:
            shutil.copytree(cache, work / "cache")
        for name, log in LOGS.items():
            modules, compiled = imported(log, work)
            own = [item for item in modules if item.partition(".")[0] not in {*sys.stdlib_module_names, "__mp_main__"}]
            banned.update(item for item in modules if any(item == no or item.startswith(f"{no}.") for no in NEVER))
            found |= {f"{name}: modules": len(own), f"{name}: expressions compiled": compiled}
    return found, sorted(banned)


def recorded() -> Mapping[str, int]:
    """Return the recorded costs."""
    found: Costs = json.loads(RECORDED.read_text("utf-8"))
    return found


def main() -> int:
    """Print the costs beside the recorded ones; exit 1 where one grew or a module is imported that must not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the costs")
    args = parser.parse_args()
    now, banned = costs()
    if args.write:
        RECORDED.write_text(json.dumps(now, indent=1) + "\n", "utf-8")
    before = recorded()
    for name, value in now.items():
        print(f"{name:44} {value:12,d} {before.get(name, 0):12,d}")
    print("\n".join(f"must not be imported: {name}" for name in banned))
    return bool(grown(now, before) or banned)


if __name__ == "__main__":
    sys.exit(main())
