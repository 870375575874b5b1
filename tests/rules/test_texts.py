"""The texts of every rule: whole sentences in all cases, and advice with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, product

from bot.rulebase.loader import knowledge
from kb.diagnosis.suspects.commands import WHAT_TO_PUT_IN
from kb.rulebase.checks import unknown_conditions
from kb.rulebase.circumstances import CIRCUMSTANCES
from kb.rulebase.rule import Rule, TableRow
from kb.rulebase.texts import HOLE, conditions, fill, in_every_case, requirements_of

BOOK = knowledge().rulebook
PLACES = ("rank", "node", "gpu")
_GAP = re.compile(
    r"[{}]|\[\?|  | [.,;:)](?:\s|$)|\(\s*\)|\s\?(?:\s|$)|[,;:]\.|^[a-z]"
    r"|\b(?:on|of|at|in|from|to|by|with|for|than|(?<!a )(?<!A )rank|number|step|link|status)\s*(?:[.;:)]|, |$)"
)
_UNKNOWN = re.compile(r"(?i)\bunknown\b|\bnot named\b")


def parts(rule: Rule) -> Iterator[Rule | TableRow]:
    """A rule and the rows of its table."""
    yield rule
    if rule.table:
        yield from rule.table.rows.values()
        if rule.table.default:
            yield rule.table.default


def sentences(rule: Rule) -> Iterator[str]:
    """The texts of a rule in which holes are filled."""
    for part in parts(rule):
        yield from filter(
            None, [part.summary, *(text for step in part.remediation for text in (step.text, step.verify))]
        )


def circumstances(text: str) -> Iterator[dict[str, str]]:
    """Every state of a run that the conditions of a text tell apart: each value that they name, and that it is unknown."""
    values: dict[str, set[str]] = {}
    for condition in conditions(text):
        for name, _, given in requirements_of(condition):
            values.setdefault(name, {""}).update(given or CIRCUMSTANCES.get(name) or ("word",))
    for chosen in product(*(sorted(given) for given in values.values())):
        yield {name: value for name, value in zip(values, chosen, strict=True) if value}


def known_parts(text: str, always: str | None) -> Iterator[dict[str, str]]:
    """Every part of the words that a text names, from none of them to all; the key of a table is always known."""
    names = sorted({hole[1] for hole in HOLE.finditer(text)} - {always, "title"})
    sure = {name: "48" for name in (always, "title") if name}
    for size in range(len(names) + 1):
        for chosen in combinations(names, size):
            yield sure | {name: "7" if name == "rank" else "word" for name in chosen}


def test_no_text_has_a_hole_whatever_is_known() -> None:
    """No braces, double spaces or dangling prepositions, and no `unknown` in the place of a word."""
    broken = []
    for rule in BOOK.rules:
        for text in sentences(rule):
            *some, everything = known_parts(text, rule.table.key if rule.table else None)
            whole = fill(text, everything)
            for words in some:
                filled = fill(text, words)
                if len(_GAP.findall(filled)) > len(_GAP.findall(whole)) or len(_UNKNOWN.findall(filled)) > len(
                    _UNKNOWN.findall(whole)
                ):
                    broken.append(f"{rule.id}: {filled}")
            assert not re.search(r"[{}]|\[\?", whole), rule.id
    assert not broken, "\n".join(broken)


def test_a_condition_leaves_no_gap_and_no_sentence_without_its_beginning() -> None:
    """Whatever holds in a run, its texts are whole sentences, or a step is left out with all of its text."""
    broken = []
    for rule in BOOK.rules:
        for part in parts(rule):
            texts = [part.summary, part.cause, part.impact, part.because, *(step.text for step in part.remediation)]
            for text in filter(None, texts):
                for words in circumstances(text):
                    filled = fill(text, words).strip()
                    if filled and (re.search(r"[\[\]]|  | [.,;:)](?:\s|$)|[,;:]\.|\.\.|^[;,.]", filled)):
                        broken.append(f"{rule.id} {words}: {filled}")
    assert not broken, "\n".join(broken)


def test_no_impact_assumes_other_processes_or_a_checkpoint() -> None:
    """Where nothing is known of the run. What waits in a collective does have peers."""
    assumed = re.compile(r"\b(?:its|the) peers\b|\bother ranks\b|\bthe last (?:complete )?checkpoint\b")
    families = {"nccl", "hang", "rendezvous"}
    found = []
    for rule in BOOK.rules:
        for part in parts(rule) if rule.family not in families else ():
            steps = [step.text for step in part.remediation if not step.only]
            found += [rule.id for text in (part.impact, part.because) if text and assumed.search(fill(text, {}))]
            found += [rule.id for text in steps if re.search(r"from the last \w*\s?checkpoint", fill(text, {}))]
    assert not found


def test_the_reasons_of_classes_name_known_circumstances() -> None:
    """A misspelt condition would never hold."""
    assert not [message for fault in BOOK.faults.values() for message in unknown_conditions(fault.because, ())]


def test_commands_name_a_placeholder_for_what_is_unknown() -> None:
    """A command can be typed in once its <placeholders> are replaced: no hole is left in it."""
    commands = [
        (rule.id, step.command)
        for rule in BOOK.rules
        for part in parts(rule)
        for step in part.remediation
        if step.command
    ]
    assert commands
    assert not [
        (name, command) for name, command in commands if re.search(r"\{\w+\}|unknown|  |the node", fill(command, {}))
    ]


def test_every_class_has_advice_with_a_reason() -> None:
    """The reason is a separate sentence, shown below the advice."""
    for fault in BOOK.faults.values():
        assert in_every_case(fault.because)[:1].isupper(), fault.id
        assert not fault.because.endswith("."), fault.id


def test_a_plain_requeue_is_only_for_what_the_platform_ended() -> None:
    """No class of the program, and no symptom, is answered with one; rules that know better give a reason."""
    assert {fault.id for fault in BOOK.faults.values() if fault.advice == "requeue"} == {"preempted", "time_limit"}
    assert not [fault.id for fault in BOOK.faults.values() if fault.advice == "restart_in_place"]
    begun_again = ("requeue", "restart_in_place", "requeue_without")
    for fault in BOOK.faults.values():
        if fault.domain == "software" or fault.symptom:
            assert fault.advice not in begun_again, fault.id


def test_rules_of_the_program_never_advise_a_restart() -> None:
    """Nor do their rows, whatever fault those name."""
    for rule in BOOK.rules:
        for part in parts(rule):
            fault = BOOK.faults[part.fault or rule.fault]
            if part.advice and (fault.domain == "software" or fault.symptom):
                assert part.advice in ("fix_first", "resubmit", "wait", "none"), rule.id


def test_every_placeholder_of_a_command_has_words_for_what_to_put_in():
    """A person who copies a command is told; placeholders have one form, `<word>`."""
    commands = [
        step.command
        for rule in BOOK.rules
        for part in parts(rule)
        for step in part.remediation
        if step.command is not None
    ]
    left = {place for command in commands for place in re.findall(r"<[a-z][a-z. ]*>", command)}

    assert left - set(WHAT_TO_PUT_IN) == set()
    assert not [
        command
        for command in commands
        if re.search(r"(?:^|[ |/])(?:FILE|SHARD|PATH|PID|PREFIX|DIR|CHECKPOINT\w*)\b", command)
    ]


_CHANGES = re.compile(
    r"(?i)\b(?:download (?:it|them|or)|rebuild|convert (?:or|the|it)|exclude the|copy (?:it|what)|lower (?:the|workers)|set [A-Z_]{4,}|end what|skip damaged)\b"
)


def test_a_step_that_is_read_only_changes_nothing() -> None:
    """Such a step is labelled as one that anybody may take at any time."""
    looks = {action.id for action in BOOK.actions.values() if action.grade == "look"}
    steps = (step for rule in BOOK.rules for part in parts(rule) for step in part.remediation)

    assert not [step.text for step in steps if step.action in looks and _CHANGES.search(step.text)]
