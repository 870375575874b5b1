"""Proposes a rule for resolved incidents, with patterns that match them and no others; or gives the reasons why there is none.

The first case is the one that a rule is asked for; the others were closed with the same fault and sharpen it where they look alike. A
close-out may be wrong: if nothing distinguishes the incidents from those of other faults, no rule is proposed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kb.learning.candidates import ENOUGH_HARM, SHOWN, Chosen, candidate_of, is_wording, line_before
from kb.learning.cases import Candidate, Case, Refusal
from kb.learning.discriminating_patterns import (
    TRIED,
    MinedPattern,
    discriminate,
    in_order,
    plain_bug,
    ranked,
    together,
)
from kb.learning.events import ENDING, CaseEvent, events_of
from kb.learning.existing_rules import explained, is_consequence_of
from kb.learning.negative_corpus import Background
from kb.learning.structural_conditions import shared_observations
from kb.rulebase.rule import Rule, Rulebook

MOST_PATTERNS = 4
CODE_BUG = "code_bug"
_NAMED = 6  # incidents named in a refusal


def mine(cases: Sequence[Case], background: Background, rulebook: Rulebook) -> Candidate | Refusal:
    """The rule that the cases support, or why there is none. `rulebook`: the existing rules, for their words and ids.

    `background` holds other incidents and good runs; incidents of the cases' own fault in it are ignored.
    """
    refusal = _unfit(cases, rulebook)
    if refusal is not None:
        return refusal
    first = cases[0]
    fault = first.fault or ""
    alike = [case for case in cases if case.fault == fault and not case.empty]
    by_id = {case.id: case for case in alike}
    names = frozenset().union(*(case.names for case in alike))
    besides = frozenset({fault, *rulebook.faults[fault].explains})
    events = [
        _weighed(event, fault, rulebook)
        for event in events_of(alike)
        if len(event.support) >= min(2, len(alike)) and not _ends_anything(event)
    ]
    best = ranked(events, by_id, background)[:TRIED]
    if fault == CODE_BUG or _only_plain_bugs(best, by_id):
        return Refusal(
            "plain_bug",
            (
                "It is an error of the run's own code. Its words are specific to that code and identify no fault of other jobs.",
            ),
        )
    tried: list[MinedPattern] = []
    known: list[Rule] = []  # rules for other faults that look for a line of a single incident
    for score, event in best:
        if plain_bug(event, by_id):
            continue
        if len(by_id) == 1 and not event.decisive and (rule := _explained(event, rulebook, besides)):
            known.append(rule)
            continue
        found = discriminate(event, score, by_id, besides, background, names=names)
        tried += [found] if found is not None else []
        whole = [
            mined_pattern
            for mined_pattern in tried
            if not mined_pattern.counter and mined_pattern.support == frozenset(by_id) and _is_cause(mined_pattern)
        ]
        if len(whole) >= (MOST_PATTERNS if len(by_id) > 1 else 1):
            break  # the best come first
    chosen = (
        _chosen(tried, by_id, first.id, background)
        or _stood(alike, background, besides, first.id, slow=rulebook.faults[fault].domain == "training")
        or _chosen(tried, by_id, first.id, background, harmless=True)
    )
    if chosen is None:
        return _explained_by(known[0]) if known else _no_support(tried, background, alike)
    if first.id not in chosen.support and not first.empty:  # what others share is not the failure that was asked about
        return _without(chosen.support, cases, background, rulebook)
    other = next(
        (rule for item in chosen.found if not _framed(item) and (rule := _explained(item.event, rulebook, besides))),
        None,
    )
    if other is not None and len(chosen.support) == 1:
        return _explained_by(other)
    candidate = candidate_of(chosen, cases, by_id, background, rulebook, besides=besides, names=names, other=other)
    before, said = line_before(chosen, events, background, names)
    return replace(candidate, before=before, said_before=said)


def _explained(event: CaseEvent, rulebook: Rulebook, besides: Collection[str]) -> Rule | None:
    return explained([line.message for lines in event.lines.values() for line in lines], rulebook, besides)


def _explained_by(rule: Rule) -> Refusal:
    told = f"Rule {rule.id}, which names {rule.fault}, looks for the same line"
    return Refusal("explained", (f"{told}: either the close-out is wrong, or that rule is too broad.",))


def _framed(found: MinedPattern) -> bool:
    """Whether a pattern asks for the function that raised it, and so for less than a rule for its words."""
    return "frame" in (found.values.get("exception") or {})


def _without(
    other: Collection[int], cases: Sequence[Case], background: Background, rulebook: Rulebook
) -> Candidate | Refusal:
    """The rule that the cases support apart from those of another failure, which was closed as the same fault and is named."""
    found = mine([case for case in cases if case.id not in other], background, rulebook)
    if isinstance(found, Refusal):
        return found
    return replace(found, asked=tuple(case.id for case in cases))


def _ends_anything(event: CaseEvent) -> bool:
    """Whether an event is how any program ends that fails, such as `Aborted (core dumped)`: it tells no fault from another."""
    return all(ENDING.search(line.message) for lines in event.lines.values() for line in lines)


def _weighed(event: CaseEvent, fault: str, rulebook: Rulebook) -> CaseEvent:
    """The event, as a consequence of the fault if the rules know it as one."""
    if event.after or (event.harm < ENOUGH_HARM and not event.raised) or event.decisive:
        return event
    line = next(iter(event.lines.values()))[0].message
    return replace(event, after=True) if is_consequence_of(fault, line, rulebook) else event


def _unfit(cases: Sequence[Case], rulebook: Rulebook) -> Refusal | None:
    """Why nothing can be learned from these cases at all."""
    if not cases:
        return Refusal("gone", ("No incident was given.",))
    first = cases[0]
    if first.fault is None:
        close = f"close it with a fault first, in Slack or with `signalbox incidents close {first.id} --cause FAULT`"
        return Refusal("unnamed", (f"Incident {first.id} has no confirmed fault: {close}.",))
    if first.fault not in rulebook.faults:
        return Refusal(
            "unnamed",
            (
                f"The rules have no fault class {first.fault[:60]!r}: close incident {first.id} again with another fault.",
            ),
        )
    if first.empty:
        return Refusal(
            "gone", (f"The logs of incident {first.id} no longer exist, so there is nothing to learn from.",)
        )
    agreed = [case for case in cases if case.fault == first.fault and not case.against and not case.empty]
    if first.against and not agreed:
        others = ", ".join(first.against)
        return Refusal(
            "disputed",
            (f"People disagree about incident {first.id}: {first.fault}, and {others}. Agree on one fault first.",),
        )
    return None


def _only_plain_bugs(best: Sequence[tuple[float, CaseEvent]], cases: Mapping[int, Case]) -> bool:
    """Whether the most telling event is a plain error of the run's own code."""
    telling = [event for _, event in best if (event.harm >= ENOUGH_HARM or event.raised) and not event.after]
    everywhere = [event for event in telling if event.decisive or (event.raised and len(event.support) == len(cases))]
    if any(
        not plain_bug(event, cases) for event in everywhere
    ):  # such as a component's own exception around a KeyError
        return False
    return bool(telling) and plain_bug(telling[0], cases) and not any(not item.raised and item.told for item in telling)


def _chosen(
    tried: Sequence[MinedPattern],
    cases: Mapping[int, Case],
    first: int,
    background: Background,
    *,
    harmless: bool = False,
) -> Chosen | None:
    """The patterns of the rule: the best one of the first case, then those that find cases in which it does not occur.

    Other events that all cases share are not added: each alone would match runs in which the first did not occur.

    `harmless`: the best one need not indicate harm.
    """
    least = min(2, len(cases))
    clean = [
        mined_pattern for mined_pattern in tried if not mined_pattern.counter and _tells(mined_pattern, len(cases))
    ]
    able = sorted(
        (mined_pattern for mined_pattern in clean if len(mined_pattern.support) >= least),
        key=lambda mined_pattern: first not in mined_pattern.support,
    )
    causes = [
        mined_pattern
        for mined_pattern in able
        if _is_cause(mined_pattern)
        or (mined_pattern.event.told and not mined_pattern.event.after)
        or mined_pattern.event.decisive
    ]
    # of lines none of which says that something failed, the one that says most
    plain = sorted(able, key=lambda item: (item.event.after, -len(item.event.key))) if harmless else causes
    main = next(iter(plain), None) or _paired(tried, cases, background)
    if main is None:
        return None
    if main.when is not None:
        return Chosen((main,))
    kept = [main]
    covered = set(main.support)
    variants = [item for item in causes if item.event.decisive] if main.event.decisive else causes
    for mined_pattern in (item for item in variants if is_wording(item.event, main.event)):
        if mined_pattern.when is None and len(kept) < MOST_PATTERNS and mined_pattern.support - covered:
            kept.append(mined_pattern)
            covered |= mined_pattern.support
    return Chosen(tuple(kept))


def _tells(found: MinedPattern, cases: int) -> bool:
    """Whether an event is sufficient: a single incident has many lines that no other has."""
    event = found.event
    return event.told or event.raised or event.harm >= ENOUGH_HARM or 2 < cases == len(event.support)


def _is_cause(found: MinedPattern) -> bool:
    """Whether a line indicates harm, and not the consequence of another's failure."""
    return (found.event.harm >= ENOUGH_HARM or found.event.raised) and not found.event.after


def _paired(tried: Sequence[MinedPattern], cases: Mapping[int, Case], background: Background) -> MinedPattern | None:
    """Two patterns that discriminate together although neither does alone."""
    able = [
        mined_pattern
        for mined_pattern in tried
        if mined_pattern.when is None and len(mined_pattern.support) == len(cases) and _is_cause(mined_pattern)
    ][:12]
    for index, item in enumerate(able):
        for two in able[index + 1 :]:
            found = (
                together(item, two) or in_order(item, two, background, cases) or in_order(two, item, background, cases)
            )
            if found is not None:
                return found
    return None


def _stood(
    cases: Sequence[Case], background: Background, besides: Collection[str], first: int, *, slow: bool
) -> Chosen | None:
    """A condition on stacks, recorders or series, if the incidents have any that others lack.

    `slow`: a change in a series may be the fault. For other faults it is what any failure brings about.
    """
    able = [
        shared_observation
        for shared_observation in shared_observations(cases, background, besides)
        if not shared_observation.counter and (slow or shared_observation.values.get("series") is None)
    ]
    able.sort(key=lambda item: (first not in item.support, -len(item.support)))
    kept = able[:1]
    for shared_observation in able[1:]:
        covered = frozenset().union(*(two.support for two in kept))
        if shared_observation.support - covered and len(kept) < MOST_PATTERNS:
            kept.append(shared_observation)
    return Chosen(stood=tuple(kept)) if kept else None


def _no_support(tried: Sequence[MinedPattern], background: Background, alike: Sequence[Case]) -> Refusal:
    """The refusal for lines that also occur in incidents of other faults: the close-out may be wrong, or the telling lines were not kept."""
    first, *others = alike
    named = ", ".join(str(item.id) for item in alike[:_NAMED]) + (" and others" if len(alike) > _NAMED else "")
    if others:
        told = f"Nothing in the stored lines of incidents {named}, all closed as {first.fault}, distinguishes them together from those of"
        alone = f"`signalbox rules propose {first.id} --alone` learns from incident {first.id} only."
        reasons = [f"{told} other faults: they may be different failures, or a close-out may be wrong.", alone]
    else:
        told = f"Nothing in the stored lines of incident {named} distinguishes it from those of other faults"
        reasons = [f"{told}; the close-out may be wrong."]
    for mined_pattern in tried[:2]:
        against = [background.others[index] for index in list(mined_pattern.counter)[:SHOWN]]
        where = ", ".join(
            "a good run" if other.healthy else f"incident {other.id} ({other.fault})" for other in against
        )
        if where:
            reasons.append(
                f"Its line with the words {' '.join(mined_pattern.words)[:80]!r} also occurs in {len(mined_pattern.counter)} others: {where}."
            )
    return Refusal("no_support", tuple(reasons))
