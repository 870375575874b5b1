"""Scaffold a new rule's folder: a rule.yaml that loads, with marked placeholders, and its test logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.runtime.redaction import redact_bytes
from connectors.base.untrusted import read
from kb.errors import Fault, UnreadableInput
from kb.parsers.logs.prefixes import peel
from kb.regex.pattern import compiled
from kb.rulebase.lint import MATCH_TESTS, SILENT_TESTS, TITLE, UNWRITTEN
from kb.rulebase.rule import Rule
from kb.rulebase.rulebook import load

LARGEST = 1 << 20  # bytes of a log: a test is a few lines, not a run
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_KERNEL = ("dmesg", "kern")  # names that mark a log as a kernel log
_VOCABULARY = ("VERSION", "faults.yaml", "actions.yaml")


@dataclass(frozen=True, slots=True)
class NewRule:
    """What is known of the new rule: words of the vocabularies, and the regex of its line if known."""

    id: str
    family: str
    fault: str
    role: str
    title: str
    action: str
    regex: str | None = None

    @property
    def path(self) -> str:
        """Return the path of its file below the rules folder."""
        return f"{self.family}/{self.id}/rule.yaml"


@dataclass(frozen=True, slots=True)
class ScaffoldedRule:
    """The files of a rule by path below its folder, and what its author still has to add."""

    files: Mapping[str, bytes]
    missing: tuple[str, ...]


def refusals(wish: NewRule, files: Mapping[str, str]) -> list[str]:
    """Return why this rule cannot be created: invalid names or words, or an id that exists. `files`: those of the rules folder.

    Raises:
        RuleError: the vocabulary of the folder is invalid.
    """
    wrong = [
        f"{what} {name[:60]!r} is not lower-case letters and digits in words joined by '-', at most 60 characters"
        for what, name in (("id", wish.id), ("family", wish.family))
        if not _ID.match(name) or len(name) > 60
    ]
    if wrong:
        return wrong
    taken = [path for path in files if path.split("/")[-2:] == [wish.id, "rule.yaml"]]
    if taken:
        return [f"there is a rule {wish.id} already: {taken[0]}"]
    if len(wish.title) > TITLE:
        return [f"the title has {len(wish.title)} characters, more than {TITLE}"]
    return [_fault_text(fault) for fault in _loaded(wish, files)[1]]


def _fault_text(fault: Fault) -> str:
    return f"{fault.message}{f' ({fault.hint})' if fault.hint else ''}"


def _loaded(wish: NewRule, files: Mapping[str, str]) -> tuple[Rule | None, list[Fault]]:
    """Return the rule as the loader reads it, and its faults: only the loader knows the vocabulary."""
    base = {name: files[name] for name in _VOCABULARY if name in files}
    loaded = load({**base, wish.path: rule_text(wish)})
    rule = next(iter(loaded.rulebook.rules), None)
    faults = [fault for fault in loaded.faults if fault.file == wish.path]
    if rule is not None and (rule.title, rule.patterns[0].regex) != (_flat(wish.title), _regex(wish)):
        faults.append(Fault(wish.path, 1, 1, "title or regex do not come back from YAML as they were given"))
    return rule, faults


def rule_text(wish: NewRule) -> str:
    """Return the text of the rule file. Unknown values are marked as unknown. It is a draft, which no diagnosis uses."""
    title = _flat(wish.title)
    return f"""format: 1
id: {wish.id}
title: {_quoted(title)}
fault: {_word(wish.fault)}
role: {_word(wish.role)}
status: draft
severity: medium
summary: {_quoted(f"{title}[? (rank {{rank}})] on {{node}}.")}
cause: {UNWRITTEN}
impact: {UNWRITTEN}
match:
  line:
    regex: {_quoted(_regex(wish))}
remediation:
  - action: {_word(wish.action)}
    text: Look at the lines quoted and at what stands before them.
"""


def _flat(text: str) -> str:
    return " ".join(text.split())


def _regex(wish: NewRule) -> str:
    """Return the given regex, or one that matches nothing, because a rule must have a pattern."""
    return wish.regex if wish.regex is not None else f"no pattern yet for rule {wish.id}"


def _word(text: str) -> str:
    """Return a word of a vocabulary unchanged, and anything else quoted, for the loader to refuse."""
    return text if text.isascii() and text.replace("_", "").isalpha() else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def made(wish: NewRule, log: Path | None, *, own: bool = False) -> ScaffoldedRule:
    """Return the folder's files. `own`: for a site's overlay, whose rules need no public reference.

    Raises:
        UnreadableInput: the log cannot be read, or is too large for a test.
    """
    files = {"rule.yaml": rule_text(wish).encode()}
    parts = f"why it happens, what it does to the run, what to do{'' if own else ', a reference'}"
    missing = [f"rule.yaml: {parts}; then `status: experimental`, since a draft matches nothing"]
    if wish.regex is None:
        missing.append("rule.yaml: a pattern; the one in it finds nothing")
    if log is None:
        return ScaffoldedRule(files, (*missing, *_tests_missing(0, 0)))
    lines = redact_bytes(_read(log)).splitlines(keepends=True)
    name = "dmesg-1.log" if log.name.startswith(_KERNEL) else "1.log"
    files[f"match/{name}"] = b"".join(lines)
    others = [line for line in lines if not _found(wish, line)]
    if len(others) == len(lines) and wish.regex is not None:
        missing.append("match: the pattern finds no line of the log")
    elif others and wish.regex is not None:
        files[f"silent/{name}"] = b"".join(others)
    return ScaffoldedRule(files, (*missing, *_tests_missing(1, int(f"silent/{name}" in files))))


def _tests_missing(match: int, silent: int) -> list[str]:
    wanted = (("match", MATCH_TESTS - match), ("silent", SILENT_TESTS - silent))
    found = [f"{folder}: {count} more log{'s' if count > 1 else ''}" for folder, count in wanted if count > 0]
    return [*found, "match, silent: lines written again, with no real host, user or path"] if match else found


def _read(log: Path) -> bytes:
    try:
        data = read(log, LARGEST + 1)
    except OSError as error:
        raise UnreadableInput(f"{log}: cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise UnreadableInput(f"{log}: larger than 1 MiB; cut it to the lines that matter")
    if not data.strip():
        raise UnreadableInput(f"{log}: there is no text in it")
    return data


def _found(wish: NewRule, line: bytes) -> bool:
    """Whether the pattern matches a line as in a scan, where `^` matches after the prefixes."""
    find = compiled(_regex(wish).encode()).find
    return find(line) is not None or find(line[peel(line[:1024]).end :]) is not None


def write(folder: Path, new: ScaffoldedRule) -> None:
    """Write the folder with match/ and silent/ in it.

    Raises:
        UnreadableInput: the folder exists already, or cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        for name in ("match", "silent"):
            (folder / name).mkdir()
        for path, data in new.files.items():
            (folder / path).write_bytes(data)
    except FileExistsError as error:
        raise UnreadableInput(f"{folder}: is there already; nothing is overwritten") from error
    except OSError as error:
        raise UnreadableInput(f"{folder}: cannot be written: {error.strerror}") from error
