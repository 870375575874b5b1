"""Measures the speed of masking against an earlier version, in one run, and whether masking changes diagnoses.

    python bench/redaction.py [--old REVISION] [--logs DIR ...]       # MB/s of both, and their ratio python
    bench/redaction.py --diagnoses                             # first diagnoses of ../shared/benchmark with masked logs

Both versions mask the same blocks in turns, in processor time, best of five. The earlier version is taken from git.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.diagnosis.diagnose import diagnose_paths
from bot.rulebase.loader import knowledge
from bot.runtime.redaction import redact_bytes

ROOT = Path(__file__).resolve().parent.parent
BENCHMARK = ROOT.parent / "shared" / "benchmark"
OLD = "5c5e07fa"  # the last version with one module of patterns
BLOCK = 4 << 20
LEAST = 32 << 20  # bytes to mask in a turn
TEXT = (".log", ".out", ".err", ".txt")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=OLD)
    parser.add_argument("--logs", type=Path, nargs="*", default=[BENCHMARK, ROOT / "tests" / "bundles"])
    parser.add_argument("--diagnoses", action="store_true")
    options = parser.parse_args()
    return diagnoses() if options.diagnoses else speed(options.old, options.logs)


def speed(revision: str, folders: list[Path]) -> int:
    """Print MB/s of both versions."""
    old = _old(revision)
    blocks = list(_blocks(folders))
    if not blocks:
        print("skipped: no logs", file=sys.stderr)
        return 0
    size = sum(len(block) for block in blocks)
    best = {"old": float("inf"), "new": float("inf")}
    for _ in range(5):
        for name, mask in (("old", old), ("new", redact_bytes)):
            best[name] = min(best[name], _seconds(mask, blocks))
    for name, seconds in best.items():
        print(f"{name}: {size / seconds / 1e6:7.1f} MB/s over {size / 1e6:.0f} MB")
    print(f"ratio new/old: {best['old'] / best['new']:.2f}")
    return 0


def diagnoses() -> int:
    """Diagnose every case as it is and masked; print the first diagnoses that differ."""
    if not BENCHMARK.is_dir():
        print(f"skipped: there is no benchmark at {BENCHMARK}", file=sys.stderr)
        return 0
    known = knowledge(None)
    cases = sorted(path.parent for path in (BENCHMARK / "cases").glob("*/logs"))
    cases += sorted(path for path in (BENCHMARK / "clean").iterdir() if path.suffix in TEXT)
    changed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(cases):
            masked = Path(scratch) / str(number) / case.name
            _copy_masked(case, masked)
            answers = [_answer(diagnose_paths(known, [path]).report) for path in (case, masked)]
            if answers[0] != answers[1]:
                changed += 1
                print(f"{case.name}: {answers[0]} became {answers[1]}")
    print(f"{changed} of {len(cases)} first diagnoses change under masking")
    return 1 if changed else 0


def _answer(report: object) -> tuple[str, ...]:
    found = report.diagnoses  # type: ignore[attr-defined]
    return (report.verdict, *(diagnosis.fault for diagnosis in found[:1]))  # type: ignore[attr-defined]


def _copy_masked(source: Path, target: Path) -> None:
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file():
            into = target / path.relative_to(source) if source.is_dir() else target
            into.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in TEXT or path.suffix in (".json", ".yaml"):
                into.write_bytes(redact_bytes(path.read_bytes()))
            else:
                shutil.copy(path, into)


def _old(revision: str) -> Callable[[bytes], bytes]:
    text = subprocess.run(
        ["git", "-C", str(ROOT), "show", f"{revision}:bot/runtime/redaction.py"], check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redaction_before.py"
        path.write_bytes(text)
        spec = importlib.util.spec_from_file_location("redaction_before", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module.redact_bytes  # type: ignore[no-any-return]


def _blocks(folders: list[Path]) -> Iterator[bytes]:
    paths = (path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in TEXT and path.is_file())
    logs = b"".join(path.read_bytes() for path in paths)
    whole = logs * -(-LEAST // len(logs)) if logs else b""
    yield from (whole[place : place + BLOCK] for place in range(0, len(whole), BLOCK))


def _seconds(mask: Callable[[bytes], bytes], blocks: list[bytes]) -> float:
    begun = time.process_time()
    for block in blocks:
        mask(block)
    return time.process_time() - begun


if __name__ == "__main__":
    raise SystemExit(main())
