"""Rule files in, a checked rulebook out. A bad rule is left out and its faults are told; it never takes the base down.

A start from a cached rulebook needs only kb.rulecodec; this module reads YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kb.conditions import ConditionParser, any_of, walk
from kb.errors import Fault, RuleError, UnreadableInput
from kb.rule import (
    ActionWord,
    Condition,
    Deprecation,
    DetectorTest,
    Exception_,
    ExceptionTest,
    FaultClass,
    Pattern,
    Reference,
    Row,
    Rule,
    Rulebook,
    Step,
    StructureTest,
    Table,
    Where,
)
from kb.rulechecks import Words, check_history, check_rule
from kb.rulecodec import decode, digest, encode, read_lock
from kb.ruleschema import ActionsFile, FaultsFile, PatternFile, RowFile, RuleFile, StepFile, check
from kb.yamltree import Node, nearest, parse

__all__ = ["Loaded", "Positions", "decode", "encode", "load"]

_FAMILY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}\Z")


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the parts of rules stand: rule id → dotted path of keys ("match.retry.regex") → line and column."""

    places: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    def fault(self, rule: Rule, path: str, message: str, hint: str = "") -> Fault:
        """A fault at a part of a rule, or at the nearest part around it that is known."""
        known = self.places.get(rule.id, {})
        while path and path not in known:
            path = path.rpartition(".")[0]
        line, column = known.get(path, (1, 1))
        return Fault(rule.file or rule.id, line, column, message, hint)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rulebook of all good rules, the faults of the others, and where everything stands."""

    rulebook: Rulebook
    faults: tuple[Fault, ...] = ()
    positions: Positions = field(default_factory=Positions)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A rule file on its way: `id` and `family` from its path."""

    path: str
    id: str
    family: str
    node: Node | None
    model: RuleFile | None
    faults: tuple[Fault, ...]


def load(files: Mapping[str, str]) -> Loaded:
    """Load rule files: path relative to the rules folder → text. Paths that are no rule files are passed over.

    Raises:
        RuleError: faults.yaml or actions.yaml is missing or has faults.
    """
    base = _vocabularies(files)
    drafts = [_draft(path, text) for path, text in sorted(files.items()) if path.split("/")[-1] == "rule.yaml"]
    stray = [_stray(path) for path in sorted(files) if _looks_like_a_rule(path)]
    words = Words(base.faults, base.actions, frozenset(draft.id for draft in drafts))
    rules: list[Rule] = []
    faults = [*stray, *(fault for draft in drafts for fault in draft.faults)]
    places = {}
    twice = _twice(drafts)
    faults += [fault for group in twice.values() for fault in group]
    for draft in drafts:
        rule, wrong = _finish(draft, words, base)
        faults += wrong
        if rule is not None and draft.id not in twice:
            rules.append(rule)
            places[rule.id] = dict(_places(draft.node))
    versions, wrong = _versions(files.get("lock.json", "{}"), {rule.id for rule in rules})
    faults += wrong
    rulebook = replace(base, rules=tuple(sorted(rules, key=lambda rule: rule.id)), versions=versions)
    rulebook = replace(rulebook, digest=digest(rulebook))
    return Loaded(rulebook, tuple(sorted(set(faults))), Positions(places))


# -- vocabularies --------------------------------------------------------------------------------------------------------


def _vocabularies(files: Mapping[str, str]) -> Rulebook:
    """A rulebook without rules."""
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
    if faults:
        raise RuleError(faults)
    classes = {
        row.id: FaultClass(
            row.id, row.domain, row.title, row.symptom, row.outlives, _closure(row.id, direct), row.advice
        )
        for row in fault_file.faults
    }
    actions = {row.id: ActionWord(row.id, row.title, row.grade, row.scope) for row in action_file.actions}
    return Rulebook(version, "", (), classes, actions, dict(action_file.owners))


def _versions(text: str, ids: set[str]) -> tuple[dict[str, int], list[Fault]]:
    """The versions of these rules. A lock that cannot be read leaves them out; no answer hangs on it."""
    try:
        locked = read_lock(text)
    except UnreadableInput as error:
        return {}, [Fault("lock.json", 1, 1, str(error)[:300], "take it back from the repository")]
    return {name: one.version for name, one in sorted(locked.items()) if name in ids}, []


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
            yield row.fault(f"id {name!r} stands here a second time", f"first in line {first[name]}")
        first.setdefault(name, row.line)


def _unknown_words(node: Node, actions: ActionsFile) -> Iterator[Fault]:
    known = {name for name, _ in _base_rows(node, "faults")}
    for _, row in _base_rows(node, "faults"):
        explains, domain, advice = row.get("explains"), row.get("domain"), row.get("advice")
        for one in explains.parts() if explains is not None else ():
            if one.value not in known:
                yield one.fault(f"no fault {one.value!r}", nearest(str(one.value), known))
        if domain is not None and domain.value not in actions.owners:
            yield domain.fault(f"actions.yaml names no owner for domain {domain.value!r}")
        if advice is not None and advice.value not in actions.advice:
            yield advice.fault(f"actions.yaml has no advice {advice.value!r}")


def _closure(name: str, direct: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """All that a fault may bring about, itself apart unless it is on a circle; in order of name."""
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
            through = [one for one in direct[name] if one == name or name in _closure(one, direct)]
            yield row.fault(f"{name!r} explains itself through {', '.join(through)}", "explains must have no circles")


# -- rules ---------------------------------------------------------------------------------------------------------------


def _looks_like_a_rule(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[-1] != "rule.yaml" and parts[-1].lower().endswith((".yaml", ".yml"))


def _stray(path: str) -> Fault:
    return Fault(path, 1, 1, "this file is not read", "a rule's file is named rule.yaml")


def _draft(path: str, text: str) -> _Draft:
    parts = path.split("/")
    family, name = (parts[0], parts[1]) if len(parts) == 3 else ("", parts[-2] if len(parts) > 1 else "")
    faults: list[Fault] = []
    if not (family and _FAMILY.match(family)):
        faults.append(
            Fault(path, 1, 1, "a rule lies in <family>/<id>/rule.yaml, both in lower-case words joined by '-'")
        )
    node, wrong = parse(text, path)
    faults += wrong
    model = None
    if node is not None:
        model, wrong = check(RuleFile, node)
        faults += wrong
    elif not wrong:
        faults.append(Fault(path, 1, 1, "the file is empty"))
    return _Draft(path, name, family, node, model, tuple(faults))


def _twice(drafts: Sequence[_Draft]) -> dict[str, list[Fault]]:
    """The ids of more than one rule, each with a fault at every one of them. None of these rules is used."""
    groups: dict[str, list[_Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.id, []).append(draft)
    found = {}
    for name, group in groups.items():
        if len(group) > 1:
            found[name] = [_second(name, one, [other for other in group if other is not one]) for one in group]
    return found


def _second(name: str, draft: _Draft, others: Sequence[_Draft]) -> Fault:
    node = draft.node.get("id") if draft.node is not None else None
    where = ", ".join(other.path for other in others[:5])
    message = f"id {name!r} is also used by {where}"
    return node.fault(message) if node is not None else Fault(draft.path, 1, 1, message)


def _finish(draft: _Draft, words: Words, base: Rulebook) -> tuple[Rule | None, list[Fault]]:
    """The rule, or None where anything is wrong with it, and the faults that reading its shape did not show."""
    node = draft.node
    if node is None:
        return None, []
    faults = list(check_rule(node, words))
    name = node.get("id")
    if name is not None and name.text() is not None and name.value != draft.id:
        faults.append(name.fault(f"id is {str(name.value)[:60]!r}, but the folder is named {draft.id[:60]!r}"))
    when, not_when, wrong = _conditions(node, words)
    faults += wrong
    if faults or draft.faults or draft.model is None or when is None:
        return None, faults
    return _build(draft, draft.model, when, not_when, base), []


def _conditions(node: Node, words: Words) -> tuple[Condition | None, tuple[Condition, ...], list[Fault]]:
    match, when, not_when = node.get("match"), node.get("when"), node.get("not_when")
    names = tuple(match.keys) if match is not None else ()
    parser = ConditionParser(names, _params(node))
    condition = parser.parse(when) if when is not None else any_of(names)
    exceptions = [one.get("if") for one in (not_when.parts() if not_when is not None else ())]
    read = [(one, parser.parse(one)) for one in exceptions if one is not None]
    faults = list(parser.faults)
    for place, found in [(when, condition), *read]:
        for part in walk(found) if place is not None and found is not None else ():
            faults += check_history(place or node, part, words)
    return condition, tuple(found for _, found in read if found is not None), faults


def _params(node: Node) -> dict[str, float]:
    params = node.get("params")
    return {
        name: float(one.value)
        for name, one in (params.items() if params is not None else ())
        if isinstance(one.value, int | float) and not isinstance(one.value, bool)
    }


def _build(draft: _Draft, model: RuleFile, when: Condition, not_when: Sequence[Condition], base: Rulebook) -> Rule:
    table = _table(model, base)
    domain = base.faults[model.fault].domain
    # a row may name a fault of another domain: then the engine asks `owners` for the fault it found
    owner = model.owner or (base.owners[domain] if table is None else None)
    retired = model.deprecated
    return Rule(
        id=draft.id,
        title=model.title,
        fault=model.fault,
        role=model.role,
        status=model.status,
        severity=model.severity,
        summary=_flat(model.summary),
        cause=_flat(model.cause),
        impact=_flat(model.impact),
        patterns=tuple(_pattern(name, one, model.params) for name, one in model.match.items()),
        when=when,
        remediation=_steps(model.remediation, base),
        fallback=model.fallback,
        owner=owner,
        live=model.live,
        not_when=tuple(
            Exception_(one.reason, condition, one.owner, one.expires)
            for one, condition in zip(model.not_when, not_when, strict=True)
        ),
        table=table,
        explains=tuple(model.explains),
        applies_to=model.applies_to,
        params=model.params,
        references=tuple(Reference(one.url, one.shows) for one in model.references),
        known_problems=tuple(model.known_problems),
        deprecated=Deprecation(retired.date, retired.reason, retired.replaced_by) if retired else None,
        related=model.related,
        provenance=model.provenance,
        file=draft.path,
        family=draft.family,
    )


def _flat(text: str) -> str:
    """Without the newline that a folded text ends with."""
    return text.strip()


def _pattern(name: str, model: PatternFile, params: Mapping[str, float]) -> Pattern:
    where = model.where
    return Pattern(
        name=name,
        literal=model.literal,
        regex=model.regex,
        ignore_case=model.ignore_case,
        confirm=model.confirm,
        not_line=model.not_line,
        exception=ExceptionTest(**model.exception.model_dump()) if model.exception else None,
        structure=StructureTest(**model.structure.model_dump()) if model.structure else None,
        detect=DetectorTest(model.detect.name, _resolved(model.detect.params, params)) if model.detect else None,
        where=Where(tuple(where.sources), tuple(where.stages), where.in_traceback, where.last_frame)
        if where
        else Where(),
    )


def _resolved(given: Mapping[str, float | str], params: Mapping[str, float]) -> dict[str, float]:
    return {name: params[value[1:]] if isinstance(value, str) else float(value) for name, value in given.items()}


def _steps(steps: Sequence[StepFile], base: Rulebook) -> tuple[Step, ...]:
    found = []
    for one in steps:
        action = base.actions[one.action]
        text, grade, scope = _flat(one.text), one.grade or action.grade, one.scope or action.scope
        found.append(Step(one.action, text, grade, scope, one.command, one.verify, one.escalate))
    return tuple(found)


def _table(model: RuleFile, base: Rulebook) -> Table | None:
    table = model.table
    if table is None:
        return None
    rows = {key: _row(key, row, base) for key, row in table.rows.items()}
    return Table(table.key, rows, _row("", table.default, base) if table.default else None)


def _row(key: str, row: RowFile, base: Rulebook) -> Row:
    steps = _steps(row.remediation, base)
    return Row(key, row.title or "", row.fault, row.role, row.severity, row.summary, steps, row.ignore)


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
