"""Turns what was chosen from resolved incidents into a candidate: patterns, lines, texts, and notes for the reviewer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kb.learning.cases import Candidate, Case
from kb.learning.discriminating_patterns import MinedPattern, told_of
from kb.learning.events import OTHER_PARTY, CaseEvent, ends_after, events_of, raised
from kb.learning.negative_corpus import Background, line_at, near_misses
from kb.learning.rewordings import SHARE, EventWords
from kb.learning.rule_ids import RulePlace, place_rule
from kb.learning.rule_texts import LONGEST_TITLE, sentence_of
from kb.learning.structural_conditions import SharedObservation
from kb.learning.tokenizer import LEADING, PLAIN, aligned
from kb.regex.pattern import compiled
from kb.rulebase.rule import Rule, Rulebook

ENOUGH_HARM = 0.35  # of a line that is more than a beginning; a single incident needs one
MOST_ALONE = 2  # incidents from which on a line before the deciding one is no accident
CLOSE = 2  # lines
FAILED: Final = frozenset(
    {"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "TIMEOUT", "DEADLINE", "ERROR", "CRASHLOOPBACKOFF"}
)
DAY = 86_400.0  # seconds
SHOWN = 3  # incidents that a reason names
LEAST_SHARED = 2  # telling words of two lines that are called alike
LIKE = 0.5  # share of the telling words that two wordings of one event have in common
# words by which a line says that something is wrong, beside those by which harm is weighed
_FAULTY = re.compile(
    r"(?i)\b(?:quarantin\w*|below|above|refus\w*|abort\w*|exceed\w*|fenced|overdue|without|differs?|otherwise|overlaps?|rewound|detached"
    r"|exhausted|fragmented|(?:given|gave|gives|giving) up|used up|full|silent|turned away|not|no|never|only|less than|more than|too \w+|un\w+ed|mis\w+)\b"
)
_NUMBERED = re.compile(r"\b(rank|worker|client|slot|index|task|member|process) (\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the rule looks for: patterns by lines, or by what was observed."""

    found: tuple[MinedPattern, ...] = ()
    stood: tuple[SharedObservation, ...] = ()

    @property
    def support(self) -> frozenset[int]:
        """The cases that any of it finds."""
        lines = frozenset[int]().union(*(item.support for item in self.found))
        return lines.union(*(shared_observation.support for shared_observation in self.stood))


def unlike_remark(numbers: Sequence[int]) -> tuple[str, ...]:
    """What to say about incidents that were closed with the same fault but that the rule does not match."""
    if not numbers:
        return ()
    return (
        f"The rule does not match {named(numbers)}, closed with the same class and with a similar line. Is this the same failure, worded differently?",
    )


def is_wording(one: CaseEvent, other: CaseEvent) -> bool:
    """Whether two events are the same event in different words. If not, they are different failures, even if they were closed with the same fault."""
    left, right = _telling(one), _telling(other)
    return bool(left and right) and len(left & right) >= LIKE * min(len(left), len(right))


def _telling(event: CaseEvent) -> frozenset[str]:
    return frozenset(word for word in event.key if word not in LEADING and word not in PLAIN)


def speaks_alike(case: Case, chosen: Chosen) -> bool:
    """Whether a line of an incident that says what is wrong has most telling words of what the rule looks for.

    Stricter than `is_wording`: of a short line one word is half, and a likeness that is stated stays in the rule.
    """
    own = [event for event in events_of([case]) if event.harm >= ENOUGH_HARM or event.raised or event.decisive]
    return any(_shares_telling(event, item.event) for event in own for item in chosen.found)


def _shares_telling(event: CaseEvent, decisive: CaseEvent) -> bool:
    left, right = _telling(event), _telling(decisive)
    return len(left & right) >= max(LEAST_SHARED, LIKE * len(right))


def candidate_of(
    chosen: Chosen,
    cases: Sequence[Case],
    by_id: Mapping[int, Case],
    background: Background,
    rulebook: Rulebook,
    *,
    besides: Collection[str],
    names: Collection[str],
    other: Rule | None,
) -> Candidate:
    """The candidate of what was chosen.

    Args:
        chosen: what the rule looks for.
        cases: the incident in question first, then those closed as the same fault.
        by_id: those of the cases that have something to learn from.
        background: other incidents and good runs.
        rulebook: the existing rules.
        besides: faults of which incidents do not count against the rule.
        names: names of hosts and people, which appear in no text.
        other: an existing rule for another fault that looks for the same line.
    """
    fault = cases[0].fault or ""
    match, when = _match(chosen)
    words = [word for item in chosen.found for word in item.words] or [
        value for shared_observation in chosen.stood for value in shared_observation.fields.values()
    ]
    sentence = _sentence(chosen, names)
    place = place_rule(fault, words, rulebook, sentence)
    counter = {index for item in chosen.found for index in item.counter}
    tried = [item for item in background.others if item.fault is not None and item.fault not in besides]
    support = tuple(number for number in by_id if number in chosen.support)
    own = [by_id[number] for number in support]
    lines = {number: _lines(chosen, by_id[number]) for number in support}
    return Candidate(
        id=place.id,
        family=place.family,
        fault=fault,
        title=place.title,
        role="symptom" if rulebook.faults[fault].symptom else "root_cause",
        match=match,
        when=when,
        support=support,
        asked=tuple(case.id for case in cases),
        counter=tuple(sorted(background.others[index].id for index in counter)),
        tried=len(tried),
        alone=len(support) == 1,
        lines=lines,
        near=near_misses([(item.search, item.words) for item in chosen.found], background, besides),
        notes=tuple(case.note for case in own),
        actions=tuple(case.action for case in own),
        remarks=tuple(_remarks(chosen, cases, support, place, other)),
        questions=(*_doubts(chosen), *_questions(own)),
        events=_events(chosen),
        numbers=any(item.numbers for item in chosen.found),
        said=chosen.found[0].said if chosen.found else "",
        ended=sum(ends_after(case.texts, lines[case.id]) for case in own),
        failed=sum((case.state or "").upper() in FAILED for case in own),
        spread=spread_of(own),
    )


def line_before(
    chosen: Chosen, events: Sequence[CaseEvent], background: Background, names: Collection[str]
) -> tuple[str, str]:
    """The line directly before the deciding one in all incidents and in no good run, and what these lines have in common; empty if there is none.

    Not every failure says so in words: a reviewer sees which of the two is the first.
    """
    main = chosen.found[0].event if chosen.found else None
    if main is None or len(main.support) < MOST_ALONE:
        return "", ""
    for event in events:
        faulty = event.harm >= ENOUGH_HARM or event.raised or _FAULTY.search(event.lines[min(event.lines)][0].message)
        near = event is not main and event.support >= main.support and not event.after and faulty
        if near and all(_stands_before(event, main, number) for number in main.support):
            known = any(other.healthy and other.words.issuperset(event.key) for other in background.others)
            if not known:
                messages = [line.message for own in event.lines.values() for line in own]
                return event.lines[min(main.support)][0].message, sentence_of(aligned(messages, names))
    return "", ""


def _stands_before(event: CaseEvent, main: CaseEvent, number: int) -> bool:
    own = [(line.source, line.number) for line in main.lines[number]]
    return any(
        source == line.source and 0 < place - line.number <= CLOSE
        for line in event.lines[number]
        for source, place in own
    )


def _sentence(chosen: Chosen, names: Collection[str]) -> str:
    """What the main event says, without what varies; empty if no line tells."""
    if not chosen.found:
        return ""
    event = chosen.found[0].event
    lines = [line.message for own in event.lines.values() for line in own[:2]]
    told = [raised(line) for line in lines] if event.raised else []
    asked = "type" in (chosen.found[0].values.get("exception") or {})  # other classes with these words match, too
    types = {item[0] for item in told if item is not None and (asked or not item[1])}
    messages = [item[1] for item in told if item is not None and item[1]] if event.raised else lines
    reach = chosen.found[0].reach or aligned(messages, names)
    said = sentence_of(reach, types.pop() if len(types) == 1 else "")
    frame = str((chosen.found[0].values.get("exception") or {}).get("frame", ""))
    function = frame.removeprefix(r"\bin ").removesuffix("$")
    return f"{said} in {function}" if function and len(said) + len(function) < LONGEST_TITLE else said


def _events(chosen: Chosen) -> dict[int, EventWords]:
    """What the deciding event says in each incident, to test the rule by it; nothing for structures and conditions."""
    if any(item.when is not None or "where" in item.values for item in chosen.found):
        return {}
    told: dict[int, EventWords] = {}
    for item in reversed(chosen.found):  # the main event counts most
        told |= told_of(item.event)
    return told


def _doubts(chosen: Chosen) -> Iterable[str]:
    """Whether the event is the failure at all, if its words do not say so and nothing shows that it came first."""
    event = chosen.found[0].event if chosen.found else None
    plain = event is not None and not any(
        _FAULTY.search(line.message) for own in event.lines.values() for line in own[:1]
    )
    if event is not None and plain and not (event.decisive or event.raised or event.told or event.harm >= ENOUGH_HARM):
        yield "Is this line the failure? These incidents share it and others lack it; nothing else shows that it came first."
    if event is not None:
        yield from _beyond(event)
    if event is not None and event.raised:
        yield "Does the program catch this exception and go on? The rule also matches a traceback that the program only logs; such a match ranks lower if iterations follow."


def _beyond(event: CaseEvent) -> Iterable[str]:
    """Other reasons that the numbers and names of the lines suggest."""
    lines = [own[0].message for own in event.lines.values()]
    if all(OTHER_PARTY.search(line) for line in lines):
        yield "Which of the two is at fault: the one that wrote the line, or the other one that it names?"
    pairs = [(SHARE.search(line), _NUMBERED.search(line)) for line in lines]
    over = [(share[2], one) for share, one in pairs if share and one and int(one[2]) >= int(share[2])]
    if len(over) == len(lines) > 1:
        told = ", ".join(f"{one[1]} {one[2]} of {whole}" for whole, one in over[:SHOWN])
        yield f"In all incidents the number of the {over[0][1][1]} is beyond the limit ({told}): is the limit too small for the job?"


def _questions(cases: Sequence[Case]) -> Iterable[str]:
    """What no close-out says, and what it says without a line that shows it."""
    noted = sum(bool(case.note) for case in cases)
    if not noted:
        yield "What caused it? The close-outs name the class only."
    if not any(case.action for case in cases):
        yield "What should a person do? No close-out says what was done."
    if len(cases) == 1:
        yield "Does it occur in other jobs? One incident does not show what varies. Propose the rule again when a second incident is closed with the same class."


def _match(chosen: Chosen) -> tuple[dict[str, Mapping[str, Any]], Any]:
    """The patterns by name, and the condition over them unless it is any of them."""
    if chosen.stood:
        return {
            ("seen" if index == 0 else f"seen_{index + 1}"): item.values for index, item in enumerate(chosen.stood)
        }, None
    main = chosen.found[0]
    if main.beside is not None:
        return {"line": main.values, "beside": main.beside.values}, main.when
    found = {("line" if index == 0 else f"line_{index + 1}"): item.values for index, item in enumerate(chosen.found)}
    if main.logged and main.when is None:
        found["logged"] = main.logged
    return found, main.when


def _lines(chosen: Chosen, case: Case) -> dict[str, tuple[str, ...]]:
    """The deciding lines of a case, by source, a few of each pattern."""
    searches = [item.search for found in chosen.found for item in (found, found.beside) if item is not None]
    told = {}
    for source, text in case.texts.items():
        hits = [
            line_at(text, hit.start())
            for search in searches
            for hit, _ in zip(compiled(search).finditer(text), range(2), strict=False)
        ]
        if hits:
            told[source] = tuple(dict.fromkeys(hits))
    return told


def _remarks(
    chosen: Chosen, cases: Sequence[Case], support: Sequence[int], place: RulePlace, other: Rule | None
) -> Iterable[str]:
    if len(support) == 1:
        yield f"Provisional: only incident {support[0]} supports this."
    unlike = [case for case in cases if case.id not in support and not case.empty]
    yield from unlike_remark([case.id for case in unlike if speaks_alike(case, chosen)])
    gone = [case.id for case in cases if case.empty]
    if gone:
        yield f"The logs of {named(gone)} no longer exist."
    for case in cases:
        if case.against:
            yield f"People disagree about incident {case.id}: others said {', '.join(case.against)}."
    if chosen.found and chosen.found[0].when is not None:
        yield "No single line distinguishes these incidents from others; the condition does."
    if other is not None:
        yield f"Rule {other.id} looks for the same line and names {other.fault}."
    if place.taken:
        yield f"There is already a rule with nearly the same name: {place.taken}."


def named(numbers: Sequence[int]) -> str:
    """The incidents in words, the first few by their numbers."""
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"{'incidents' if len(numbers) > 1 else 'incident'} {', '.join(map(str, numbers[:SHOWN]))}{more}"


def spread_of(cases: Sequence[Case]) -> str:
    """How many jobs and days the incidents cover. A job that was requeued three times is one observation. Empty if unknown."""
    jobs = {case.job for case in cases if case.job}
    families = {case.family for case in cases if case.family}
    days = {int(case.when // DAY) for case in cases if case.when is not None}
    if not jobs or not days:
        return ""
    told = [
        _many(len(jobs), "job"),
        *([f"{_many(len(families), 'job name')}"] if families else []),
        _many(len(days), "day"),
    ]
    return ", ".join(told)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
