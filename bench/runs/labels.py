"""Keeps the labels of a set apart from its cases until it is scored.

    python bench/runs/labels.py take DIR PLAN…     # collect DIR/*/case.yaml in DIR/labels.yaml, and remove them
    python bench/runs/labels.py join DIR OUT       # a copy of DIR in OUT, with case.yaml in each case: `signalbox evaluate OUT`

Advice that a plan does not state is what bot/authoring/accepted_advice.yaml accepts for the class.
"""

from __future__ import annotations

import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def take(folder: Path, plans: list[Path]) -> None:
    """Move the labels out of the cases."""
    told: list[dict[str, Any]] = [entry for path in plans for entry in yaml.safe_load(path.read_text("utf-8"))]
    own = {entry["id"] for entry in told if "advice" in entry}
    table = yaml.safe_load((ROOT / "bot/authoring/accepted_advice.yaml").read_text("utf-8"))["classes"]
    target = folder / "labels.yaml"
    cases = yaml.safe_load(target.read_text("utf-8"))["cases"] if target.exists() else {}
    for path in sorted(folder.glob("*/case.yaml")):
        case = yaml.safe_load(path.read_text("utf-8"))
        if case["id"] not in own:
            case["advice"] = table[case["label"]]
        cases[case["id"]] = case
        path.unlink()
        known = path.with_name("job.yaml")
        if known.exists():  # the name of a case tells too much
            job = yaml.safe_load(known.read_text("utf-8")) | {"id": str(90000 + zlib.crc32(case["id"].encode()) % 9999)}
            known.write_text(yaml.safe_dump(job, sort_keys=False, width=120), "utf-8")
    kept = {name: case for name, case in sorted(cases.items()) if (folder / name).is_dir()}
    target.write_text(yaml.safe_dump({"cases": kept}, sort_keys=False, allow_unicode=True, width=120), "utf-8")
    print(f"{target}: {len(kept)} labels")


def join(folder: Path, out: Path) -> None:
    """Copy the cases with their labels."""
    cases = yaml.safe_load((folder / "labels.yaml").read_text("utf-8"))["cases"]
    for name, case in cases.items():
        shutil.copytree(folder / name, out / name)
        (out / name / "case.yaml").write_text(
            yaml.safe_dump(case, sort_keys=False, allow_unicode=True, width=120), "utf-8"
        )
    print(f"{out}: {len(cases)} cases")


if __name__ == "__main__":
    what, first, *rest = sys.argv[1:]
    if what == "take":
        take(Path(first), [Path(each) for each in rest])
    else:
        join(Path(first), Path(rest[0]))
