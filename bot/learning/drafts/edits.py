"""Apply a person's edits to a drafted rule's files, and report errors by form field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bot.learning.drafts.rule_folder import captured_names
from bot.learning.drafts.store import DraftEdits
from kb.errors import Fault, RuleError
from kb.rulebase.rule import FaultClass
from kb.rulebase.rulebook import load

VOCABULARY = ("VERSION", "faults.yaml", "actions.yaml")
BY_HAND = "silent/by-hand.log"  # test lines added by a person
_KEY = re.compile(r"([a-z_]+):")
_OF_A_LINE = frozenset({"regex", "not_line", "confirm", "level", "recovered"})
_FIELDS: Mapping[str, str] = {
    "title": "title",
    "fault": "other_fault",
    "match": "patterns",
    "when": "patterns",
    "remediation": "remediation",
    "owner": "owner",
}


def edited(
    files: Mapping[str, bytes], edits: DraftEdits, faults: Mapping[str, FaultClass] | None = None
) -> dict[str, bytes]:
    """Return the files of a rule with a person's edits, by path below the rules folder.

    `faults`: the fault classes by id. A rule for another class also gets the role that fits it.

    Raises:
        ValueError: the files contain no rule.yaml that is a mapping.
    """
    path = rule_path(files)
    rule: dict[str, Any] = dict(yaml.safe_load(files[path]))
    rule["title"] = edits.title or rule.get("title")
    if edits.fault is not None:
        rule["fault"] = edits.fault
        if faults is not None and edits.fault in faults:
            rule["role"] = "symptom" if faults[edits.fault].symptom else "root_cause"
    if edits.owner:
        rule["owner"] = edits.owner
    else:
        rule.pop("owner", None)
    if edits.remediation:
        rule["remediation"] = _steps(rule.get("remediation"), edits.remediation)
    if edits.regexes is not None and edits.regexes != regexes_of(rule):
        before = regexes_of(rule) or ()
        _look_for(rule, edits.regexes)
        lost = captured_names("\n".join(before)) - captured_names("\n".join(edits.regexes))
        rule = {key: value if key == "match" else _without_holes(value, lost) for key, value in rule.items()}
    changed = {**files, path: written(rule)}
    by_hand = f"{path.rpartition('/')[0]}/{BY_HAND}"
    changed.pop(by_hand, None)
    if edits.silent:
        changed[by_hand] = ("\n".join(edits.silent) + "\n").encode()
    return changed


def rule_path(files: Mapping[str, bytes]) -> str:
    """Return the path of its rule.yaml.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = [path for path in files if path.endswith("/rule.yaml")]
    if len(found) != 1:
        raise ValueError(f"a draft must have one rule.yaml, this one has {len(found)}")
    return found[0]


def regexes_of(rule: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the rule's line regexes, or None if it also matches anything else."""
    match = rule.get("match")
    if not isinstance(match, dict) or not match:
        return None
    if not all(
        isinstance(item, dict) and {"regex"} <= set(item) <= _OF_A_LINE and isinstance(item["regex"], str)
        for item in match.values()
    ):
        return None
    return tuple(item["regex"] for item in match.values())


def looks_for(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a rule looks for as lines for a reader: each pattern with its regex, and the condition if there is one."""
    match = rule.get("match")
    if not isinstance(match, dict):
        return ()
    found = [
        line
        for at, item in enumerate(match.values())
        for line in _pattern(item, "or " if at and "when" not in rule else "")
    ]
    more = {name: rule[name] for name in ("when", "not_when") if name in rule}
    return (*found, *(yaml.safe_dump(more, sort_keys=False, width=100).strip().split("\n") if more else ()))


def _pattern(values: Any, before: str) -> list[str]:
    """Return a pattern as lines: what it is, and what it must match or must not."""
    test = values.get("exception") if isinstance(values, dict) else None
    if isinstance(test, dict) and set(test) <= {"type", "message", "frame"}:
        parts = [
            ("whose class is", test.get("type")),
            ("whose message matches", test.get("message")),
            ("raised", _function(test.get("frame"))),
        ]
        told = ", ".join(f"{words}  {regex}" for words, regex in parts if regex is not None)
        return [f"{before}a Python exception {told}".rstrip()]
    if not isinstance(values, dict) or "regex" not in values or not set(values) <= _OF_A_LINE:
        return [before.strip(), *yaml.safe_dump(values, sort_keys=False, width=100).strip().split("\n")]
    level = " at error level" if values.get("level") == "error" else ""
    calm = [
        *(["it states a level below error"] if values.get("level") == "error_if_stated" else []),
        *(["it says that the program recovered"] if values.get("recovered") is False else []),
    ]
    unless = f", unless {' or '.join(calm)}" if calm else ""
    found = [f"{before}a line{level} that matches  {values['regex']}{unless}"]
    found += [f"  and matches  {values['confirm']}"] if "confirm" in values else []
    return found + ([f"  and does not match  {values['not_line']}"] if "not_line" in values else [])


def _function(frame: str | None) -> str | None:
    """The test of a frame without its anchors, which tell a reader nothing."""
    return None if frame is None else frame.removeprefix(r"\b").removesuffix("$")


def written(rule: Mapping[str, Any]) -> bytes:
    """Return a rule as YAML. It is written by a YAML library, so that its texts stay text whatever they contain."""
    return yaml.safe_dump(dict(rule), sort_keys=False, allow_unicode=True, width=110, default_flow_style=False).encode()


def wrong(files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """Return the loader's errors by form field. `folder`: the rules folder, for its vocabulary."""
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
    """Return the form field that corresponds to a position in the file."""
    for line in reversed(text.split("\n")[: fault.line]):
        hit = _KEY.match(line)
        if hit is not None:
            return _FIELDS.get(hit[1], "title")
    return "title"


def _without_holes(value: Any, lost: frozenset[str]) -> Any:
    """Return the texts of a rule without the holes, and the clauses around them, that no pattern fills any longer."""
    if isinstance(value, dict):
        return {key: _without_holes(item, lost) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_holes(item, lost) for item in value]
    if not isinstance(value, str) or not lost:
        return value
    hole = rf"\{{(?:{'|'.join(sorted(lost))})(?:\|([^{{}}]*))?\}}"
    return re.sub(hole, lambda found: found[1] or "…", re.sub(rf"\[[?,][^\[\]]*?{hole}[^\[\]]*\]", "", value))


def _steps(before: Any, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the steps with new texts. Each step keeps its other values; a new step gets the action of the first."""
    known = [item for item in before if isinstance(item, dict)] if isinstance(before, list) else []
    first = known[0].get("action", "inspect") if known else "inspect"
    return [
        {**(known[number] if number < len(known) else {"action": first}), "text": text}
        for number, text in enumerate(texts)
    ]


def _look_for(rule: dict[str, Any], regexes: tuple[str, ...]) -> None:
    """Return the patterns under their previous names. If their number changed, a match of any of them suffices."""
    names = list(rule.get("match", {}))
    if len(names) != len(regexes):
        names = ["line", *(f"line_{number}" for number in range(2, len(regexes) + 1))]
        rule.pop("when", None)
    before = rule.get("match", {})
    rule["match"] = {name: {**before.get(name, {}), "regex": regex} for name, regex in zip(names, regexes, strict=True)}
