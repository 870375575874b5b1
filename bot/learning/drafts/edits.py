"""What a person changed of a drafted rule goes into its files, and what is wrong with it is told by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bot.learning.drafts.store import DraftEdits
from kb.errors import Fault, RuleError
from kb.rulebase.rulebook import load

VOCABULARY = ("VERSION", "faults.yaml", "actions.yaml")
BY_HAND = "silent/by-hand.log"  # lines that a person added
_KEY = re.compile(r"([a-z_]+):")
_FIELDS: Mapping[str, str] = {
    "title": "title",
    "fault": "other_fault",
    "match": "patterns",
    "when": "patterns",
    "remediation": "remediation",
    "owner": "owner",
}


def edited(files: Mapping[str, bytes], edits: DraftEdits) -> dict[str, bytes]:
    """The files of a rule, by path below the folder of the rules, with what a person made of it.

    Raises:
        ValueError: there is no rule.yaml among them that is a mapping.
    """
    path = rule_path(files)
    rule: dict[str, Any] = dict(yaml.safe_load(files[path]))
    rule["title"] = edits.title or rule.get("title")
    if edits.fault is not None:
        rule["fault"] = edits.fault
    if edits.owner:
        rule["owner"] = edits.owner
    else:
        rule.pop("owner", None)
    if edits.remediation:
        rule["remediation"] = _steps(rule.get("remediation"), edits.remediation)
    if edits.regexes is not None and edits.regexes != regexes_of(rule):
        _look_for(rule, edits.regexes)
    changed = {**files, path: written(rule)}
    by_hand = f"{path.rpartition('/')[0]}/{BY_HAND}"
    changed.pop(by_hand, None)
    if edits.silent:
        changed[by_hand] = ("\n".join(edits.silent) + "\n").encode()
    return changed


def rule_path(files: Mapping[str, bytes]) -> str:
    """Where its rule.yaml stands.

    Raises:
        ValueError: nowhere, or in two places.
    """
    found = [path for path in files if path.endswith("/rule.yaml")]
    if len(found) != 1:
        raise ValueError(f"a draft must have one rule.yaml, this one has {len(found)}")
    return found[0]


def regexes_of(rule: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What it looks for, where that is nothing but regular expressions of lines; None where it is more."""
    match = rule.get("match")
    if not isinstance(match, dict) or not match:
        return None
    if not all(
        isinstance(item, dict) and set(item) == {"regex"} and isinstance(item["regex"], str) for item in match.values()
    ):
        return None
    return tuple(item["regex"] for item in match.values())


def written(rule: Mapping[str, Any]) -> bytes:
    """A rule as a file. Whatever its texts hold stays text: a YAML library writes it."""
    return yaml.safe_dump(dict(rule), sort_keys=False, allow_unicode=True, width=110, default_flow_style=False).encode()


def wrong(files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """What the loader of rules says against it, by field of the form. `folder`: of the rules, for their words."""
    path = rule_path(files)
    text = files[path].decode()
    words = {name: (folder / name).read_text("utf-8") for name in VOCABULARY if (folder / name).is_file()}
    try:
        faults = [fault for fault in load({**words, path: text}).faults if fault.file == path]
    except RuleError as error:
        faults = list(error.faults)
    found: dict[str, str] = {}
    for fault in faults:
        field = _field(text, fault)
        found.setdefault(field, f"{fault.message}{f' ({fault.hint})' if fault.hint else ''}"[:300])
    return found


def _field(text: str, fault: Fault) -> str:
    """The field that a place in the file came from."""
    for line in reversed(text.split("\n")[: fault.line]):
        hit = _KEY.match(line)
        if hit is not None:
            return _FIELDS.get(hit[1], "title")
    return "title"


def _steps(before: Any, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """The steps with other words; each keeps what it had besides, a new one has the first one's action."""
    known = [item for item in before if isinstance(item, dict)] if isinstance(before, list) else []
    first = known[0].get("action", "inspect") if known else "inspect"
    return [
        {**(known[number] if number < len(known) else {"action": first}), "text": text}
        for number, text in enumerate(texts)
    ]


def _look_for(rule: dict[str, Any], regexes: tuple[str, ...]) -> None:
    """The patterns by the names that they had; with another number of them any one suffices."""
    names = list(rule.get("match", {}))
    if len(names) != len(regexes):
        names = ["line", *(f"line_{number}" for number in range(2, len(regexes) + 1))]
        rule.pop("when", None)
    rule["match"] = {name: {"regex": regex} for name, regex in zip(names, regexes, strict=True)}
