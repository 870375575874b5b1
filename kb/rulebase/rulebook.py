"""Loads rule files into a checked rulebook. Bad rules are skipped and their faults reported; the others still load.

This module reads YAML. A start from a cached rulebook needs only kb.rulebase.codec.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from kb.errors import Fault, RuleError, UnreadableInput
from kb.rulebase.build import build, generic_row
from kb.rulebase.checks import Words, check_generic, check_history, check_rule
from kb.rulebase.codec import decode, digest, encode, read_lock
from kb.rulebase.condition_parts import walk
from kb.rulebase.conditions import ConditionParser, any_of
from kb.rulebase.overlay import Overlay, excepted, expired, number_fault, numbers, read, same_id
from kb.rulebase.rule import ActionWord, Condition, FaultClass, Rule, Rulebook, SiteFiles
from kb.rulebase.schema.rule_file import RuleFile
from kb.rulebase.schema.validation import check
from kb.rulebase.schema.vocabulary_files import ActionsFile, FaultsFile
from kb.rulebase.sound import text_digest
from kb.rulebase.yaml_nodes import Node, nearest, parse
from kb.values import dataclass

__all__ = ["Loaded", "Positions", "decode", "encode", "load"]

_FAMILY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}\Z")


@dataclass(frozen=True, slots=True)
class Positions:
    """The places of rule parts: rule id → dotted path of keys ("match.retry.regex") → line and column."""

    places: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    def fault(self, rule: Rule, path: str, message: str, hint: str = "") -> Fault:
        """Return a fault at a part of a rule, or at the innermost enclosing part with a known place."""
        known = self.places.get(rule.id, {})
        while path and path not in known:
            path = path.rpartition(".")[0]
        line, column = known.get(path, (1, 1))
        return Fault(rule.file or rule.id, line, column, message, hint)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rulebook of all valid rules, the faults of the others, and the places of all parts."""

    rulebook: Rulebook
    faults: tuple[Fault, ...] = ()
    positions: Positions = field(default_factory=Positions)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A rule file being loaded. `id` and `family` come from its path. `sound`: its regexes were checked before."""

    path: str
    id: str
    family: str
    node: Node | None
    model: RuleFile | None
    faults: tuple[Fault, ...]
    sound: bool


def load(
    files: Mapping[str, str],
    site: SiteFiles | None = None,
    today: str | None = None,
    *,
    others: Collection[str] = (),
    sound: Collection[str] = (),
) -> Loaded:
    """Load rule files: path relative to the rules folder → text. Paths that are not rule files are ignored.

    `site`: the overlay to apply. `today`: ISO date on which exceptions must still be valid; None: all are. `others`:
    ids of further rules that the files may name. `sound`: digests of texts (`kb.rulebase.sound.text_digest`) whose
    regexes were checked before and are not checked again; the site's own rules always are.

    Raises:
        RuleError: faults.yaml or actions.yaml is missing or has faults.
    """
    base = _vocabularies(files)
    drafts, stray = _drafts(files, "", sound)
    own, more = _drafts(site.rules(), f"{site.root}/rules/") if site is not None else ([], [])
    own, double = _new_only(own, {draft.id for draft in drafts})
    twice = {**_twice(drafts), **_twice(own)}
    drafts += own
    words = Words(base.faults, base.actions, frozenset({*others, *(draft.id for draft in drafts)}))
    overlay = read(site, words.rules) if site is not None else Overlay()
    faults = [*stray, *more, *double, *(fault for draft in drafts for fault in draft.faults), *overlay.faults]
    faults += [fault for group in twice.values() for fault in group]
    rules, places = [], {}
    for draft in drafts:
        rule, wrong = _laid_over(draft, words, base, overlay, today)
        faults += wrong
        if rule is not None and draft.id not in twice:
            rules.append(rule)
            places[rule.id] = dict(_places(draft.node))
    versions, wrong = _versions(files.get("lock.json", "{}"), {rule.id for rule in rules})
    faults += wrong
    rulebook = replace(base, rules=tuple(sorted(rules, key=lambda rule: rule.id)), versions=versions)
    if site is not None:
        rulebook = replace(rulebook, version=f"{base.version}+site")
    rulebook = replace(rulebook, digest=digest(rulebook))
    return Loaded(rulebook, tuple(sorted(set(faults))), Positions(places))


def _drafts(files: Mapping[str, str], root: str, sound: Collection[str] = ()) -> tuple[list[_Draft], list[Fault]]:
    """Parse the rule files among the files, and return a fault for each misplaced one."""
    found = [
        _draft(path, text, root, sound) for path, text in sorted(files.items()) if path.split("/")[-1] == "rule.yaml"
    ]
    return found, [_stray(root + path) for path in sorted(files) if _looks_like_a_rule(path)]


def _new_only(own: Sequence[_Draft], base: Collection[str]) -> tuple[list[_Draft], list[Fault]]:
    """Return a site's own rules, except those whose id is already in the base."""
    nodes = {draft.id: draft.node for draft in own}
    faults = list(same_id({draft.id: draft.path for draft in own}, base, nodes))
    return [draft for draft in own if draft.id not in base], faults


def _laid_over(
    draft: _Draft, words: Words, base: Rulebook, overlay: Overlay, today: str | None
) -> tuple[Rule | None, list[Fault]]:
    """Return a rule with the site's changes."""
    own = _params(draft.node)
    given, faults = numbers(overlay, draft.id, own)
    rule, wrong = _finish(draft, words, base, {**own, **given}, today)
    if rule is None and given:
        better, _ = _finish(draft, words, base, own, today)
        if better is not None:
            rule, wrong = better, [number_fault(overlay, draft.id, wrong)]
    if rule is not None:
        rule, more = excepted(rule, overlay, today)
        wrong += more
    return rule, [*faults, *wrong]


# -- vocabularies --------------------------------------------------------------------------------------------------------


def _vocabularies(files: Mapping[str, str]) -> Rulebook:
    """Return a rulebook without rules."""
    faults: list[Fault] = []
    version = files.get("VERSION", "0").strip()
    if _VERSION.match(version) is None:
        faults.append(Fault("VERSION", 1, 1, "a version is a word of at most 40 letters, digits and . + -"))
    fault_node, fault_file = _base_file(files, "faults.yaml", FaultsFile, faults)
    action_node, action_file = _base_file(files, "actions.yaml", ActionsFile, faults)
    if fault_node is None or action_node is None or fault_file is None or action_file is None:
        raise RuleError(faults)
    faults += _repeated(fault_node, "faults")
    faults += _repeated(action_node, "actions")
    faults += _unknown_words(fault_node, action_file)
    direct = {row.id: tuple(row.explains) for row in fault_file.faults}
    faults += _circles(fault_node, direct)
    actions = {row.id: ActionWord(row.id, row.title, row.grade, row.scope) for row in action_file.actions}
    for _, row in _base_rows(fault_node, "faults"):
        faults += check_generic(row, Words(direct, actions, ()))
    if faults:
        raise RuleError(faults)
    classes = {
        row.id: FaultClass(
            row.id,
            row.domain,
            row.title,
            row.symptom,
            row.outlives,
            _closure(row.id, direct),
            row.advice,
            row.because or "",
            row.owner or "",
            row.lies_in or "",
            row.shared,
            row.generic and generic_row(row.id, symptom=row.symptom, model=row.generic, actions=actions),
        )
        for row in fault_file.faults
    }
    return Rulebook(version, "", (), classes, actions, dict(action_file.owners))


def _versions(text: str, ids: set[str]) -> tuple[dict[str, int], list[Fault]]:
    """Return the versions of these rules. If the lock is unreadable, return none, since no report depends on them."""
    try:
        locked = read_lock(text)
    except UnreadableInput as error:
        return {}, [Fault("lock.json", 1, 1, str(error)[:300], "restore it from the repository")]
    return {name: item.version for name, item in sorted(locked.items()) if name in ids}, []


def _base_file(files: Mapping[str, str], name: str, model: Any, faults: list[Fault]) -> tuple[Node | None, Any]:
    if name not in files:
        faults.append(Fault(name, 1, 1, "the file is missing"))
        return None, None
    node, wrong = parse(files[name], name)
    faults += wrong
    if node is None:
        if not wrong:
            faults.append(Fault(name, 1, 1, "the file is empty"))
        return None, None
    checked, wrong = check(model, node)
    faults += wrong
    return node, checked


def _base_rows(node: Node, key: str) -> Iterator[tuple[str, Node]]:
    rows = node.get(key)
    for row in rows.parts() if rows is not None else ():
        name = row.get("id")
        if name is not None and name.text() is not None:
            yield str(name.value), row


def _repeated(node: Node, key: str) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for name, row in _base_rows(node, key):
        if name in first:
            yield row.fault(f"id {name!r} is defined twice", f"first in line {first[name]}")
        first.setdefault(name, row.line)


def _unknown_words(node: Node, actions: ActionsFile) -> Iterator[Fault]:
    known = {name for name, _ in _base_rows(node, "faults")}
    for _, row in _base_rows(node, "faults"):
        explains, domain, advice = row.get("explains"), row.get("domain"), row.get("advice")
        for part in explains.parts() if explains is not None else ():
            if part.value not in known:
                yield part.fault(f"no fault {part.value!r}", nearest(str(part.value), known))
        if domain is not None and domain.value not in actions.owners:
            yield domain.fault(f"actions.yaml names no owner for domain {domain.value!r}")
        if advice is not None and advice.value not in actions.advice:
            yield advice.fault(f"actions.yaml has no advice {advice.value!r}")


def _closure(name: str, direct: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return all faults that a fault can cause, by name. It includes itself only if it is part of a cycle."""
    found: set[str] = set()
    todo = list(direct.get(name, ()))
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(direct.get(one, ()))
    return tuple(sorted(found))


def _circles(node: Node, direct: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    for name, row in _base_rows(node, "faults"):
        if name in _closure(name, direct):
            through = [item for item in direct[name] if item == name or name in _closure(item, direct)]
            yield row.fault(f"{name!r} explains itself through {', '.join(through)}", "explains must not be circular")


# -- rules ---------------------------------------------------------------------------------------------------------------


def _looks_like_a_rule(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[-1] != "rule.yaml" and parts[-1].lower().endswith((".yaml", ".yml"))


def _stray(path: str) -> Fault:
    return Fault(path, 1, 1, "this file is not read", "name a rule's file rule.yaml")


def _draft(path: str, text: str, root: str, sound: Collection[str]) -> _Draft:
    parts = path.split("/")
    path = root + path
    family, name = (parts[0], parts[1]) if len(parts) == 3 else ("", parts[-2] if len(parts) > 1 else "")
    faults: list[Fault] = []
    if not (family and _FAMILY.match(family)):
        faults.append(
            Fault(path, 1, 1, "a rule belongs in <family>/<id>/rule.yaml, both in lower-case words joined by '-'")
        )
    node, wrong = parse(text, path)
    faults += wrong
    model = None
    if node is not None:
        model, wrong = check(RuleFile, node)
        faults += wrong
    elif not wrong:
        faults.append(Fault(path, 1, 1, "the file is empty"))
    return _Draft(path, name, family, node, model, tuple(faults), bool(sound) and text_digest(text) in sound)


def _twice(drafts: Sequence[_Draft]) -> dict[str, list[Fault]]:
    """Return the ids that several rules share, each with a fault at every such rule. None of these rules is used."""
    groups: dict[str, list[_Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.id, []).append(draft)
    found = {}
    for name, group in groups.items():
        if len(group) > 1:
            found[name] = [_second(name, item, [other for other in group if other is not item]) for item in group]
    return found


def _second(name: str, draft: _Draft, others: Sequence[_Draft]) -> Fault:
    node = draft.node.get("id") if draft.node is not None else None
    where = ", ".join(other.path for other in others[:5])
    message = f"id {name!r} is also used by {where}"
    return node.fault(message) if node is not None else Fault(draft.path, 1, 1, message)


def _finish(
    draft: _Draft, words: Words, base: Rulebook, params: Mapping[str, float], today: str | None
) -> tuple[Rule | None, list[Fault]]:
    """Return the rule (None if it has any fault) and its faults beyond its shape."""
    node = draft.node
    if node is None:
        return None, []
    faults = list(check_rule(node, words, sound=draft.sound))
    name = node.get("id")
    if name is not None and name.text() is not None and name.value != draft.id:
        faults.append(name.fault(f"id is {str(name.value)[:60]!r}, but the folder is named {draft.id[:60]!r}"))
    when, not_when, wrong = _conditions(node, words, params)
    faults += wrong
    if faults or draft.faults or draft.model is None or when is None:
        return None, faults
    rule = build(draft.model, when, not_when, base, file=draft.path, family=draft.family, params=params)
    return _in_force(rule, node, today)


def _in_force(rule: Rule, node: Node, today: str | None) -> tuple[Rule, list[Fault]]:
    """Return a rule without its own expired exceptions."""
    late = [today is not None and item.expires is not None and item.expires < today for item in rule.not_when]
    if not any(late):
        return rule, []
    kept = tuple(item for item, gone in zip(rule.not_when, late, strict=True) if not gone)
    places = node.get("not_when")
    faults = [
        expired(place, item.expires or "", rule.id)
        for place, item, gone in zip(places.parts() if places else (), rule.not_when, late, strict=True)
        if gone
    ]
    return replace(rule, not_when=kept), faults


def _conditions(
    node: Node, words: Words, params: Mapping[str, float]
) -> tuple[Condition | None, tuple[Condition, ...], list[Fault]]:
    match, when, not_when = node.get("match"), node.get("when"), node.get("not_when")
    names = tuple(match.keys) if match is not None else ()
    parser = ConditionParser(names, params)
    condition = parser.parse(when) if when is not None else any_of(names)
    exceptions = [item.get("if") for item in (not_when.parts() if not_when is not None else ())]
    read_ = [(exception, parser.parse(exception)) for exception in exceptions if exception is not None]
    faults = list(parser.faults)
    for place, found in [(when, condition), *read_]:
        for part in walk(found) if place is not None and found is not None else ():
            faults += check_history(place or node, part, words)
    return condition, tuple(found for _, found in read_ if found is not None), faults


def _params(node: Node | None) -> dict[str, float]:
    params = node.get("params") if node is not None else None
    return {
        name: float(item.value)
        for name, item in (params.items() if params is not None else ())
        if isinstance(item.value, int | float) and not isinstance(item.value, bool)
    }


def _places(node: Node | None, path: str = "") -> Iterator[tuple[str, tuple[int, int]]]:
    if node is None:
        return
    if path:
        yield path, (node.line, node.column)
    dot = f"{path}." if path else ""
    for key, child in node.items():
        yield from _places(child, f"{dot}{key}")
    for index, child in enumerate(node.parts()):
        yield from _places(child, f"{dot}{index}")
