"""Builds the Rule value of a checked rule file: fills in defaults and site parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.model import Role
from kb.rulebase import levels, signal_texts
from kb.rulebase.rule import (
    ActionWord,
    Condition,
    Deprecation,
    DetectorTest,
    ExceptionTest,
    Learned,
    Pattern,
    PluginTest,
    Reference,
    RemediationStep,
    Rule,
    Rulebook,
    RuleException,
    SeriesTest,
    StructureTest,
    Table,
    TableRow,
    Where,
    row_keys,
)
from kb.rulebase.schema.pattern_file import PatternFile, SeriesFile
from kb.rulebase.schema.rule_file import LearnedFile, RowFile, RuleFile, StepFile
from kb.rulebase.schema.vocabulary_files import GenericFile

NEXT_GUESS = "second"  # the capture with the class that the classifier holds for the next likely one


def build(
    model: RuleFile,
    when: Condition,
    not_when: Sequence[Condition],
    base: Rulebook,
    *,
    file: str,
    family: str,
    params: Mapping[str, float],
) -> Rule:
    """Return the rule of a file without faults. `params`: its parameters, with the site's numbers if there are any."""
    table = _table(model, base)
    retired = model.deprecated
    return Rule(
        id=model.id,
        title=model.title,
        fault=model.fault,
        role=model.role,
        status=model.status,
        severity=model.severity,
        summary=_flat(model.summary),
        cause=_flat(model.cause),
        impact=_flat(model.impact),
        patterns=tuple(pattern(name, item, params) for name, item in model.match.items()),
        when=when,
        remediation=_steps(model.remediation, base.actions) or _steps_of_class(model.fault, base),
        fallback=model.fallback,
        owner=model.owner,
        live=model.live,
        not_when=tuple(
            RuleException(item.reason, condition, item.owner, item.expires)
            for item, condition in zip(model.not_when, not_when, strict=True)
        ),
        table=table,
        explains=tuple(model.explains),
        applies_to=model.applies_to,
        params=params,
        references=tuple(Reference(item.url, item.shows, item.id, item.checked) for item in model.references),
        known_problems=tuple(model.known_problems),
        deprecated=Deprecation(retired.date, retired.reason, retired.replaced_by) if retired else None,
        related=model.related,
        provenance=model.provenance,
        learned=_learned(model.learned),
        file=file,
        family=family,
        advice=model.advice,
        because=model.because,
        lies_in=model.lies_in or "",
        shared=model.shared,
    )


def _learned(given: LearnedFile | None) -> Learned | None:
    if given is None:
        return None
    return Learned(tuple(given.incidents), given.miner, given.support, given.asked, given.counter_examples, given.tried)


def _flat(text: str) -> str:
    """Drop the final newline of a folded text."""
    return text.strip()


def pattern(name: str, model: PatternFile, params: Mapping[str, float]) -> Pattern:
    """Return a pattern of the file. `$name` in a number refers to a parameter."""
    where = model.where
    signals, tellers = (model.signal or "").split("|"), model.said_by or signal_texts.USUAL
    return Pattern(
        name=name,
        literal=model.literal,
        regex=signal_texts.statements(signals, tellers) if model.signal else model.regex,
        ignore_case=model.ignore_case,
        confirm=levels.ERROR if model.level == "error" else model.confirm,
        not_line=levels.excluded(model.level, model.recovered, model.not_line),
        exception=ExceptionTest(**model.exception.model_dump()) if model.exception else None,
        structure=StructureTest(**model.structure.model_dump()) if model.structure else None,
        detect=DetectorTest(model.detect.name, _resolved(model.detect.params, params)) if model.detect else None,
        series=_series(model.series, params) if model.series else None,
        plugin=PluginTest(model.plugin.name, _resolved(model.plugin.params, params)) if model.plugin else None,
        where=Where(tuple(where.sources), tuple(where.stages), where.in_traceback, where.last_frame)
        if where
        else Where(),
    )


def _series(model: SeriesFile, params: Mapping[str, float]) -> SeriesTest:
    numbers = {
        name: value
        for name in ("above", "below", "points", "steps", "seconds", "after")
        if (value := getattr(model, name)) is not None
    }
    told = _resolved(numbers, params)
    return SeriesTest(
        model.metric, model.change, of=model.of, at_end=model.at_end, params=_resolved(model.params, params), **told
    )


def _resolved(given: Mapping[str, float | str], params: Mapping[str, float]) -> dict[str, float]:
    return {name: params[value[1:]] if isinstance(value, str) else float(value) for name, value in given.items()}


def _steps_of_class(fault: str, base: Rulebook) -> tuple[RemediationStep, ...]:
    generic = base.faults[fault].generic
    return generic.remediation if generic is not None else ()


def _steps(steps: Sequence[StepFile], actions: Mapping[str, ActionWord]) -> tuple[RemediationStep, ...]:
    found = []
    for step in steps:
        action = actions[step.action]
        text, grade, scope = _flat(step.text), step.grade or action.grade, step.scope or action.scope
        found.append(
            RemediationStep(step.action, text, grade, scope, step.command, step.verify, step.escalate, step.only)
        )
    return tuple(found)


def _table(model: RuleFile, base: Rulebook) -> Table | None:
    table = model.table
    if table is None:
        return None
    of_classes = _rows_of_classes(table.key, _steps(model.remediation, base.actions), base) if table.classes else {}
    own = {key: _row(key, row, base) for written, row in table.rows.items() for key in row_keys(written)}
    return Table(table.key, of_classes | own, _row("", table.default, base) if table.default else None)


def _rows_of_classes(key: str, steps: Sequence[RemediationStep], base: Rulebook) -> dict[str, TableRow]:
    """Return the generic row of each class that has one, with those of the rule's own steps that the class can have.

    They come first, but for steps of the class that comes next, which are of no use before those of the class itself.
    """
    rows = {}
    for name, fault in base.faults.items():
        if fault.generic is not None:
            own = [step for step in steps if key not in step.only or re.fullmatch(step.only[key], name)]
            first, last = ([step for step in own if (NEXT_GUESS in step.only) is later] for later in (False, True))
            rows[name] = replace(fault.generic, remediation=(*first, *fault.generic.remediation, *last))
    return rows


def generic_row(fault: str, *, symptom: bool, model: GenericFile, actions: Mapping[str, ActionWord]) -> TableRow:
    """Return the row of a table for a class of which nothing else is known."""
    steps = _steps(model.remediation, actions)
    role: Role | None = "symptom" if symptom else None
    return TableRow(fault, model.title, fault, role, remediation=steps, lies_in=model.lies_in or "")


def _row(key: str, row: RowFile, base: Rulebook) -> TableRow:
    steps = _steps(row.remediation, base.actions)
    return TableRow(
        key,
        row.title or "",
        row.fault,
        row.role,
        row.severity,
        row.summary,
        _flat(row.cause) if row.cause else None,
        _flat(row.impact) if row.impact else None,
        steps,
        row.ignore,
        row.advice,
        row.because,
        row.owner,
        row.reference,
        row.lies_in or "",
    )
