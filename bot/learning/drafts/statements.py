"""The texts of a drafted rule: what people wrote, as what they wrote, and what the logs of the incidents show; nothing beyond.

A line may have another cause the next time. So a cause is told with how many people wrote it, the first step checks whether it is
that cause, and each further step says how often it was taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bot.learning.drafts.anonymise import Anonymiser, english
from kb.learning.cases import Candidate
from kb.learning.rule_texts import imperative, sentences, steps_of
from kb.rulebase.rule import FaultClass, Rulebook

MOST_STEPS = 5
LONGEST = 600  # characters of texts by people
MOST_CHECKED = 200  # characters of a cause that the first step repeats
# domain of a class → what one looks at first
_LOOKS = {"hardware": "run_check", "network": "check_link"}


@dataclass(frozen=True, slots=True)
class Statements:
    """What people said, without anything that must not leave the site: about the cause, and the steps that they took.

    `noted`, `acted`: in how many of the `many` incidents people wrote of the cause, and of what they did.
    """

    cause: str = ""
    steps: tuple[dict[str, str], ...] = ()
    noted: int = 0
    acted: int = 0
    many: int = 1


def statements(candidate: Candidate, book: Rulebook, cleaner: Anonymiser, keep: frozenset[str]) -> Statements:
    """What people said of the incidents of a candidate. Where nobody filled in what was done, a note may tell it."""
    notes = [said for item in candidate.notes if (said := cleaner.words(item, keep))]
    actions = [cleaner.words(item, keep) for item in candidate.actions]
    acted = candidate.acted
    if not any(actions):
        done = [part for note in notes for part in sentences(note) if imperative(part, english())]
        notes = ["; ".join(part for part in sentences(note) if part not in done) for note in notes]
        actions, acted = done, candidate.noted if done else 0
    steps, more = steps_of(actions, book.actions, english())
    causes = dict.fromkeys(text for text in (*notes, *more) if text)
    cause = " ".join(f"{said[:1].upper()}{said[1:]}{'' if said[-1] in '.!?' else '.'}" for said in causes)
    told = tuple({"action": step.action, "text": step.text[:LONGEST]} for step in steps[:MOST_STEPS])
    noted = max(candidate.noted, 1) if cause else 0
    return Statements(cause[:LONGEST].strip(), told, noted, acted, len(candidate.support))


def cause_of(candidate: Candidate, people: Statements) -> str:
    """The cause as what people wrote."""
    if not people.cause:
        return f"Not known yet: the close-outs name the class {candidate.fault} and no cause."
    return f"{_wrote(people)} {people.cause} The line alone does not prove it."


def _wrote(people: Statements) -> str:
    if people.many == 1:
        return "The person who resolved the one incident wrote:"
    return f"In {people.noted} of {people.many} incidents the people who resolved it wrote:"


def told(people: Statements) -> str:
    """The cause, and apart from it what was done: a reviewer must not take one for the other."""
    done = " ".join(step["text"] for step in people.steps)
    often = "" if people.many == 1 else f" in {people.acted} of {people.many} incidents"
    cause = f"{_wrote(people)} {people.cause}" if people.cause else ""
    return " ".join(part for part in (cause, f"What was done{often}: {done}" if done else "") if part)


def steps(candidate: Candidate, people: Statements, book: Rulebook) -> list[dict[str, str]]:
    """The remedy: whether it is this cause at all, then what people did against it; without either, what one usually does first."""
    if not people.steps:
        return [*_check(people, book.faults[candidate.fault], book), *_usual(candidate, book)]
    often = f"in {people.acted} of {people.many} incidents" if people.many > 1 else "in the one incident seen"
    own = [{**step, "text": f"{step['text'].rstrip('.')}. People did this {often}."} for step in people.steps[:1]]
    taken = [*own, *people.steps[1:]]
    check = _check(people, book.faults[candidate.fault], book)
    return [*check, *({**step, "text": _if_so(step["text"])} if check else step for step in taken)]


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


def _if_so(text: str) -> str:
    return f"If so: {text}"


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
    if fault.outlives:
        return f"The run may go on, but degraded. {stopped if candidate.ended else 'No incident shows that it ended.'}"
    shown = [text for text, count in ((stopped, candidate.ended), (failed, candidate.failed)) if count]
    return " ".join(shown) or f"The logs of the {many} incidents do not show how the run ended."
