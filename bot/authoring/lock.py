"""`rules/lock.json`: each rule's id, the hash of its meaning, and its version, which rises by one when the hash changes.

A locked id stays: reports and incidents name it, so it must never change its meaning. A rule that
is no longer needed is deprecated, not removed.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kb.errors import Fault, UnreadableInput
from kb.rulebase.codec import Locked, meaning, read_lock
from kb.rulebase.rule import Rulebook
from kb.rulebase.sound import NAME as SOUND
from kb.rulebase.sound import sound_list

NAME = "lock.json"


@dataclass(frozen=True, slots=True)
class LockUpdate:
    """An update of the lock: its new `entries`, and the ids that are new, changed and gone."""

    entries: Mapping[str, Locked]
    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the lock file's text: one rule per line, so that diffs are easy to read."""
        rows = [
            f'  {json.dumps(name)}: {{"version": {item.version}, "sha256": "{item.sha256}"}}'
            for name, item in sorted(self.entries.items())
        ]
        return "{\n" + ",\n".join(rows) + "\n}\n" if rows else "{}\n"

    def differences(self) -> list[str]:
        """Return the differences, one per line."""
        return [
            *(f"{name}: new" for name in self.new),
            *(f"{name}: changed, now version {self.entries[name].version}" for name in self.changed),
            *(f"{name}: removed; a rule that was locked stays, with status deprecated" for name in self.gone),
        ]


def step(rulebook: Rulebook, locked: Mapping[str, Locked]) -> LockUpdate:
    """Return the update that the lock needs for these rules."""
    entries = dict(locked)
    new, changed = [], []
    for rule in rulebook.rules:
        digest, old = meaning(rule), locked.get(rule.id)
        if old is None:
            new.append(rule.id)
            entries[rule.id] = Locked(digest, 1)
        elif old.sha256 != digest:
            changed.append(rule.id)
            entries[rule.id] = Locked(digest, old.version + 1)
    gone = sorted(set(locked) - {rule.id for rule in rulebook.rules})
    return LockUpdate(entries, tuple(new), tuple(changed), tuple(gone))


def locked_in(files: Mapping[str, str], unread: tuple[Fault, ...] = ()) -> dict[str, Locked]:
    """Return the lock among the files of a rules folder (`bot.rulebase.loader.read_files`); empty if there is none.

    Raises:
        UnreadableInput: the lock cannot be read; writing a new one would lose every version.
    """
    for fault in unread:
        if fault.file == NAME:
            raise UnreadableInput(str(fault))
    return read_lock(files[NAME]) if NAME in files else {}


def write(folder: Path, text: str) -> None:
    """Write the lock file atomically."""
    _replace(folder / NAME, text)


def write_sound(folder: Path, files: Mapping[str, str]) -> None:
    """Write the list of these rules, whose regexes were checked (`kb.rulebase.sound`), if it is another."""
    text = sound_list(text for path, text in files.items() if path.endswith("/rule.yaml"))
    if files.get(SOUND) != text:
        _replace(folder / SOUND, text)


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".lock-", delete=False) as handle:
        new = Path(handle.name)
    try:
        new.write_text(text, "utf-8")
        new.chmod(0o644)
        new.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
