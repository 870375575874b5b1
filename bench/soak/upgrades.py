"""Stores and configurations of every version of the tables that was ever merged, opened by this one; and the way back, refused.

    python bench/soak/upgrades.py [--store DIR]

For each version of the tables in the history of this repository, the last commit that had it is checked out into a temporary folder. Its
own program diagnoses and closes an incident, and prints its example configuration. This version must then list the same incidents, store
another, find the store sound, and read the configuration. Then the old program meets the new store: it must refuse it with one line,
and change nothing. Needs the history (no shallow clone), and the dependencies of today.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from writers import write_log

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

PLACES = ("bot/store/database.py", "bot/database.py", "bot/store.py")  # where the version was written, newest first
_VERSION = re.compile(r"^SCHEMA_VERSION = (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Landed:
    """A version of the tables, and the last and the first commit that had it: some commits were not whole."""

    version: int
    commits: tuple[str, ...]


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def landed() -> list[Landed]:
    """Return all versions of the tables, oldest first."""
    found: dict[int, str] = {}
    first: dict[int, str] = {}
    for commit in git("log", "--reverse", "--format=%H", "--", *PLACES, "bot/store", "bot/_migrations").split():
        version = _version_at(commit)
        if version is None:
            continue
        known = set(found)
        found[version] = commit
        first.setdefault(version, commit)
        if version not in known and known:
            last = max(known)
            found[last] = git("rev-parse", f"{commit}^").strip()  # all commits until then had the version before
    return [Landed(version, (commit, first[version])) for version, commit in sorted(found.items())]


def _version_at(commit: str) -> int | None:
    for place in PLACES:
        shown = subprocess.run(
            ["git", "-C", str(ROOT), "show", f"{commit}:{place}"], capture_output=True, text=True, check=False
        )
        match = _VERSION.search(shown.stdout)
        if match is not None:
            return int(match[1])
    return None


def program(tree: Path, words: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command line of a checkout."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("SIGNALBOX_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-m", "bot.cli.main" if (tree / "bot/cli/main.py").exists() else "bot.cli", *words],
        cwd=tree,
        env={**own, **env, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def dump(file: Path) -> str:
    """Return a digest of all that a store contains."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as store:
        return hashlib.sha256("\n".join(store.iterdump()).encode("utf-8", "surrogateescape")).hexdigest()


def listed(tree: Path, env: Mapping[str, str]) -> list[str]:
    """Return the incidents that a checkout lists: their summaries."""
    done = program(tree, ["incidents", "list", "--json"], env)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]
    items = rows[0] if rows and isinstance(rows[0], list) else rows
    return [str(item.get("summary")) for item in items]


def filled(commit: str, tree: Path, folder: Path, env: Mapping[str, str]) -> str:
    """Check a commit out, and let its program store two incidents. Return why that failed, if it did."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    for number in (1, 2):
        done = program(tree, ["diagnose", "--logs", str(write_log(folder / "logs", number)), "--json"], env)
        if done.returncode:
            return f"{commit[:8]} cannot diagnose: {done.stderr.strip()[-300:]}"
    return ""


def check(old: Landed, newest: int, folder: Path) -> list[str]:
    """Return what is wrong with the way from an old version to this, and back."""
    tree = folder / "tree"
    env = {"SIGNALBOX_STATE": str(folder / "state"), "SIGNALBOX_CACHE": str(folder / "cache")}
    broken = ""
    for commit in old.commits:
        broken = filled(commit, tree, folder, env)
        if not broken:
            break
    if broken:
        return [broken]
    file = folder / "state" / "signalbox.db"
    wrong = _forth(tree, file, folder, env)
    return wrong + (_back(tree, file, folder, env) if old.version < newest else [])


def _forth(tree: Path, file: Path, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return what is wrong with how this version opens the store and reads the configuration of the old program."""
    wrong: list[str] = []
    with closing(sqlite3.connect(file)) as store:
        before = [row[0] for row in store.execute("SELECT summary FROM incident ORDER BY id")]
    closing_words = program(tree, ["incidents", "close", "1", "--cause", "gpu_oom", "--action", "smaller batch"], env)
    example = program(tree, ["config", "example"], env)

    def fresh(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return program(ROOT, words, env)

    shown = fresh(["incidents", "show", "1"])
    if shown.returncode:
        wrong.append(f"incidents show: {shown.stderr.strip()[-300:]}")
    if closing_words.returncode == 0 and "smaller batch" not in shown.stdout:
        wrong.append("the close-out of the old program is not shown")
    now = listed(ROOT, env)
    if sorted(now) != sorted(before):
        wrong.append(f"incidents before {before}, now {now}")
    again = fresh(["diagnose", "--logs", str(write_log(folder / "logs", 3)), "--json"])
    if again.returncode or again.stderr.strip():
        wrong.append(f"diagnose: {again.returncode} {again.stderr.strip()[-300:]}")
    with closing(sqlite3.connect(file)) as store:
        count = store.execute("SELECT count(*) FROM incident").fetchone()[0]
        if count != 3 or store.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            wrong.append(f"{count} incidents after the upgrade, 3 expected; or the store is corrupt")
    if example.returncode == 0 and example.stdout.startswith("#"):
        wrong += _configured(example.stdout, folder)
    return wrong


def _configured(text: str, folder: Path) -> list[str]:
    """Return the faults that this version finds in a configuration."""
    from bot.config.file import ConfigError, load  # noqa: PLC0415

    try:
        load(text, folder / "signalbox.yaml")
    except ConfigError as error:
        return [f"its example configuration: {error}"]
    return []


def _back(tree: Path, file: Path, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return what is wrong with how the old program refuses the store of this version."""
    wrong = []
    untouched = dump(file)
    for words in (["incidents", "list"], ["diagnose", "--logs", str(write_log(folder / "logs", 4)), "--json"]):
        done = program(tree, words, env)
        said = done.stderr.strip()
        if "Traceback" in said or "version" not in said or len(said.splitlines()) > 2:
            wrong.append(f"back, {words[0]}: status {done.returncode}, said {said[-300:]!r}")
        if words[0] == "incidents" and not done.returncode:
            wrong.append("back: the old program lists incidents of a store that it does not know")
    if dump(file) != untouched:
        wrong.append("back: the old program changed the store")
    return wrong


def main() -> int:
    """Return 1 if something is wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=int, nargs="*", help="versions of the tables")
    given = options.parse_args()
    versions = landed()
    bad = 0
    for old in versions:
        if given.only and old.version not in given.only:
            continue
        folder = Path(tempfile.mkdtemp(prefix="signalbox-upgrade-"))
        try:
            wrong = check(old, versions[-1].version, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bad += bool(wrong)
        print(
            f"tables of version {old.version} ({old.commits[0][:8]}): {'; '.join(wrong) or 'opens, upgrades, and the way back is refused'}",
            flush=True,
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
