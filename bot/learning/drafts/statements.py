"""The texts of a drafted rule: what people wrote, as what they wrote, and what the logs of the incidents show; nothing beyond.

A line may have another cause the next time. So a cause is told with how many people wrote it, the first step checks whether it is
that cause, and each further step says how often it was taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.learning.drafts.anonymise import Anonymiser, english
from kb.learning.cases import Candidate
from kb.learning.rule_texts import imperative, sentences, steps_of
from kb.learning.tokenizer import PLAIN
from kb.rulebase.rule import FaultClass, Rulebook

MOST_STEPS = 5
LONGEST = 600  # characters of texts by people
SAME = 0.66  # share of the words of the shorter of two sentences that say the same
_WORD = re.compile(r"[A-Za-z0-9-]{2,}")
MOST_CHECKED = 200  # characters of a cause that the first step repeats
# domain of a class → what one looks at first
_LOOKS = {"hardware": "run_check", "network": "check_link"}


@dataclass(frozen=True, slots=True)
class Told:
    """A step that people took: an action of rules/actions.yaml, and advice in their words.

    `count`: in how many of the incidents, `partly`: in how many others they wrote a part of it. `other`: somebody else did this instead.
    """

    action: str
    text: str
    count: int = 1
    partly: int = 0
    other: bool = False


@dataclass(frozen=True, slots=True)
class Statements:
    """What people said, without anything that must not leave the site: about the cause, and the steps that they took.

    `noted`: in how many of the `many` incidents people wrote of the cause; `alike`: not all in the same words.
    """

    cause: str = ""
    steps: tuple[Told, ...] = ()
    noted: int = 0
    alike: bool = False
    many: int = 1


def statements(candidate: Candidate, book: Rulebook, cleaner: Anonymiser, keep: frozenset[str]) -> Statements:
    """What people said of the incidents of a candidate. Where nobody filled in what was done, a note may tell it."""
    notes = [said for item in candidate.notes if (said := cleaner.words(item, keep))]
    actions = [said for item in candidate.actions if (said := cleaner.words(item, keep))]
    if not actions:
        done = [[part for part in sentences(note) if imperative(part, english())] for note in notes]
        notes = [
            "; ".join(part for part in sentences(note) if part not in own)
            for note, own in zip(notes, done, strict=True)
        ]
        actions = ["; ".join(own) for own in done if own]
    each = [steps_of([action], book.actions, english()) for action in actions]
    more = [text for _, other in each for text in other]
    causes = _merged([[Told("", text)] for text in (*notes, *more) if text])
    cause = " ".join(f"{'Another wrote: ' if said.other else ''}{_begun(said.text)}" for said in causes)
    told = tuple(_merged([[Told(step.action, step.text[:LONGEST]) for step in own] for own, _ in each])[:MOST_STEPS])
    noted = max(sum(bool(note) for note in notes), min(1, len(cause)))
    alike = any(said.partly for said in causes)
    return Statements(cause[:LONGEST].strip(), told, noted, alike, len(candidate.support))


def _begun(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def _merged(each: Sequence[Sequence[Told]]) -> list[Told]:
    """The sentences of all incidents, those that say the same once and in the fullest words, with the number of their incidents.

    The incident that tells most leads, so that its steps stay in their order; what others did besides comes behind them.
    """
    found: list[Told] = []
    for index, own in enumerate(sorted(each, key=lambda texts: -sum(len(item.text) for item in texts))):
        known = len(found)  # two steps of one incident are two, however alike
        for item in own:
            at = next((place for place, other in enumerate(found[:known]) if _same(item.text, other.text)), None)
            if at is None:
                found.append(replace(item, other=index > 0))
            elif _words(item.text) == _words(found[at].text):
                found[at] = replace(found[at], count=found[at].count + 1)
            else:
                found[at] = replace(found[at], partly=found[at].partly + 1)
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in _WORD.findall(text) if word.lower() not in PLAIN)


def _same(one: str, other: str) -> bool:
    """Whether two sentences say the same: nearly all words of the shorter one stand in the longer one."""
    left, right = _words(one), _words(other)
    return bool(left and right) and len(left & right) >= SAME * min(len(left), len(right))


def _stem(word: str) -> str:
    low = word.lower()
    return next((low.removesuffix(end) for end in ("ed", "ing", "es", "s") if low.endswith(end) and len(low) > 5), low)


def cause_of(candidate: Candidate, people: Statements) -> str:
    """The cause as what people wrote."""
    if not people.cause:
        return f"Not known yet: the close-outs name the class {candidate.fault} and no cause."
    return f"{_wrote(people)} {people.cause} The line alone does not prove it."


def _wrote(people: Statements) -> str:
    if people.many == 1:
        return "The person who resolved the one incident wrote:"
    wrote = "named a cause, one in these words:" if people.alike else "wrote:"
    return f"In {people.noted} of {people.many} incidents the people who resolved it {wrote}"


def told(people: Statements) -> str:
    """The cause, and apart from it what was done: a reviewer must not take one for the other."""
    done = " ".join(f"{step.text.rstrip('.')}{_often(step, people)}." for step in people.steps)
    cause = f"{_wrote(people)} {people.cause}" if people.cause else ""
    return " ".join(part for part in (cause, f"What was done: {done}" if done else "") if part)


def _often(step: Told, people: Statements) -> str:
    return f" ({_count(step, people)})" if people.many > 1 else ""


def _count(step: Told, people: Statements) -> str:
    if people.many == 1:
        return "in the one incident seen"
    part = f", partly in {step.partly} {'others' if step.partly > 1 else 'other'}" if step.partly else ""
    return f"in {step.count} of {people.many} incidents{part}"


def steps(candidate: Candidate, people: Statements, book: Rulebook) -> list[dict[str, str]]:
    """The remedy: whether it is this cause at all, then what people did against it; without either, what one usually does first."""
    check = _check(people, book.faults[candidate.fault], book)
    if not people.steps:
        return [*check, *_usual(candidate, book)]
    return [*check, *({"action": step.action, "text": _advised(step, people, sure=not check)} for step in people.steps)]


def _advised(step: Told, people: Statements, *, sure: bool) -> str:
    """A step with how often people took it, as what to do in their case. `sure`: nobody named a cause on which it depends."""
    text, small = step.text.rstrip("."), f"{step.text[:1].lower()}{step.text[1:]}".rstrip(".")
    begin = f"Or {small}" if step.other else text if sure else f"If so, {small}"
    return f"{begin} (done {_count(step, people)})."


def _check(people: Statements, fault: FaultClass, book: Rulebook) -> list[dict[str, str]]:
    """Whether the cause that people named holds here, since the steps behind it help against no other."""
    if not people.cause:
        return []
    look = _LOOKS.get(fault.domain, "look_at_logs")
    action = look if look in book.actions else "look_at_logs"
    cause = (
        people.cause if len(people.cause) <= MOST_CHECKED else f"{people.cause[:MOST_CHECKED].rpartition(' ')[0]} ..."
    )
    return [
        {"action": action, "text": f"Check whether the cause is the same here, which the line does not tell: {cause}"}
    ]


def _usual(candidate: Candidate, book: Rulebook) -> list[dict[str, str]]:
    """The first step that most rules for the fault advise, for a rule whose incidents name none."""
    counts = Counter(
        rule.remediation[0].action for rule in book.rules if rule.fault == candidate.fault and rule.remediation
    )
    action = min(counts, key=lambda count: (-counts[count], count)) if counts else "look_at_logs"
    return [{"action": action, "text": f"{book.actions[action].title}."}]


def impact(candidate: Candidate, fault: FaultClass) -> str:
    """What the incidents show of the run's end; the class says nothing of it."""
    many = len(candidate.support)
    of = f"of {many} incidents" if many > 1 else "of 1 incident"
    stopped = f"In {candidate.ended} {of} the logs show that the program ended after this line."
    failed = f"The scheduler reports the job as failed in {candidate.failed} {of}."
    shown = [text for text, count in ((stopped, candidate.ended), (failed, candidate.failed)) if count]
    if not shown and fault.outlives:
        return "No incident shows that the run ended: it may go on, degraded."
    return " ".join(shown) or f"The logs {of} do not show how the run ended."
