"""What the arguments of `signalbox diagnose` refer to: a job of the connected systems, a bundle, or logs.

A name that exists as a path is read as a path. If it could also be a job's name, one line on stderr says what was read and
how to get the other.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Literal

from bot.cli.console import complain, refuse
from bot.cli.diagnose_options import DiagnoseOptions
from bot.cli.missing_paths import is_missing, missing

STDIN = "-"
MOST_LOOKED_AT = 20_000  # entries of a folder tree to check for a log
MOST_JOBS = 50  # subfolders looked into
MOST_DIGITS = 4  # a number of so many digits may be a job; a shorter one is that of a process or an attempt

Kind = Literal["bundle", "bundles", "logs", "empty"]


def resolve_targets(options: DiagnoseOptions) -> DiagnoseOptions:
    """Resolve paths given without an option: to `bundle`, or to `logs` with its targets."""
    targets = options.targets
    if options.job:
        if options.logs or options.bundle is not None or options.each is not None:
            refuse("--job cannot be combined with --bundle, --logs or --each")
        return options
    if options.bundle is not None or options.each is not None:
        return options
    if STDIN in targets and len(targets) > 1:
        refuse("- is standard input, and must be the only argument; for a file of that name, use ./-")
    if options.logs or not targets:
        if targets and targets != (STDIN,) and all(is_missing(target) for target in targets):
            refuse(missing(targets[0]))
        return options
    if targets == (STDIN,):
        return replace(options, logs=True)
    found = [target for target in targets if os.path.exists(target)]  # noqa: PTH110 - never raises
    if not found:
        return options
    return _one_path(options, found[0]) if len(targets) == 1 else _several(options, found)


def source_of(options: DiagnoseOptions) -> str | None:
    """What names logs that are no bundle: the path that was given, or the folder that holds all of several; None for anything else."""
    if not options.logs or not options.targets:
        return None
    if options.targets == (STDIN,):
        return "standard input"
    return os.path.commonpath([Path(target).resolve() for target in options.targets])


def _several(options: DiagnoseOptions, found: list[str]) -> DiagnoseOptions:
    """Several arguments: all must be log files or folders."""
    for target in options.targets:
        if target not in found:
            refuse(missing(target))
        if os.path.isdir(target) and _kind(Path(target)) in ("bundle", "bundles"):  # noqa: PTH112 - never raises
            refuse(f"{target}: this is a bundle; diagnose it alone, or a folder of bundles with --each")
    return replace(options, logs=True)


def _one_path(options: DiagnoseOptions, target: str) -> DiagnoseOptions:
    path, may_be_job = Path(target), "/" not in target and _configured(options)
    if may_be_job and _only_for_jobs(options):
        complain(f"{target}: read as the job; for the path of that name: --logs {_word(target)}")
        return options
    kind = _kind(path) if path.is_dir() else "logs"
    if kind == "empty":
        if may_be_job:
            complain(f"{target}: read as the job; the folder of that name has no logs and no parts of a bundle")
            return options
        refuse(f"{target}: it has no logs and no parts of a bundle; give a log file, a folder of logs, or a bundle")
    if kind == "bundles":
        refuse(f"{target}: its subfolders are bundles; give one of them, or diagnose all with --each {_word(target)}")
    if may_be_job:
        what = "bundle" if kind == "bundle" else "log" if not path.is_dir() else "folder of logs"
        complain(f"{target}: read as the {what} of that name; for the job: signalbox diagnose --job {_word(target)}")
    if kind == "bundle":
        return replace(options, targets=(), bundle=path)
    if path.is_dir() and (count := _like_jobs(path)):
        complain(
            f"{target}: its {count} subfolders are read as the logs of one job; if each is a job: --each {_word(target)}"
        )
    return replace(options, logs=True)


def _only_for_jobs(options: DiagnoseOptions) -> bool:
    """Whether an option was given that only applies to jobs."""
    given = (options.config, options.cluster, options.namespace, options.window, options.deadline, options.save)
    return any(value is not None for value in given)


def _configured(options: DiagnoseOptions) -> bool:
    from bot.runtime.paths import config_path

    return options.config is not None or config_path() is not None


def _kind(folder: Path) -> Kind:
    """What kind of folder this is, by the names in it.

    Raises:
        UnreadableInput: it cannot be listed.
    """
    from connectors.base.bundle_layout import ATTEMPTS, DESCRIPTIONS, FILES, FOLDERS
    from kb.errors import UnreadableInput

    try:
        with os.scandir(folder) as listed:
            entries = {entry.name: entry.is_dir() for entry in listed}
    except OSError as error:
        raise UnreadableInput(f"{folder}: cannot be read: {error.strerror or error}") from error
    if any(entries.get(name) is True for name in ("logs", *FOLDERS, ATTEMPTS)):
        return "bundle"
    if any(entries.get(name) is False for name in (*FILES, *DESCRIPTIONS)):
        return "bundle"
    inner = [folder / name for name, is_folder in entries.items() if is_folder and not name.startswith(".")]
    if inner and all(entries.values()) and all(_is_bundle(sub) for sub in inner):
        return "bundles"
    return "logs" if _holds_a_log(folder) else "empty"


def _is_bundle(folder: Path) -> bool:
    from kb.errors import UnreadableInput

    try:
        return _kind(folder) == "bundle"
    except UnreadableInput:
        return False


def _like_jobs(folder: Path) -> int:
    """Return the number of subfolders if there is nothing else, each has logs, and none is named after a part of a job; else 0."""
    from connectors.base.filenames import ATTEMPT, NO_LOG, name_hints
    from kb.model import Resource, StreamRef

    def of_a_part(name: str) -> bool:
        told = name_hints(StreamRef(name, Resource()), f"{name}/x.log")
        known = told.resource.rank is not None or told.resource.node is not None or told.kind != "job"
        return known or bool(ATTEMPT.search(f"{name}/")) or (name.isdecimal() and len(name) < MOST_DIGITS)

    with os.scandir(folder) as listed:
        entries = [entry for entry in listed if not entry.name.startswith(".")]
    if len(entries) < 2 or not all(entry.is_dir() for entry in entries):
        return 0
    for entry in entries[:MOST_JOBS]:
        try:
            inner = [file for file in Path(entry.path).iterdir() if file.is_file() and not file.name.startswith(".")]
        except OSError:
            return 0
        if of_a_part(entry.name) or not any(not NO_LOG.search(file.name) for file in inner):
            return 0
    return len(entries)


def _holds_a_log(folder: Path) -> bool:
    """Whether any file in the tree could be a log, by its name; true for a tree too large to check."""
    from connectors.base.filenames import NO_LOG

    count, seen = 0, set()
    for where, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        if any(not name.startswith(".") and not NO_LOG.search(name) for name in files):
            return True
        count += len(folders) + len(files)
        if count > MOST_LOOKED_AT:
            return True
    return False


def _word(target: str) -> str:
    return shlex.quote(target)
