"""The texts of a drafted rule: what people wrote, as what they wrote, and what the logs of the incidents show; nothing beyond.

A line may have another cause the next time. So a cause is told with how many people wrote it, the first step checks whether it is
that cause, and each further step says how often it was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from bot.learning.drafts.anonymise import SOMEBODY, Anonymiser, english
from kb.learning.cases import Candidate
from kb.learning.events import OTHER_PARTY
from kb.learning.rule_texts import imperative, sentences, steps_of
from kb.learning.tokenizer import PLAIN
from kb.rulebase.rule import FaultClass, Rulebook

MOST_STEPS = 5
LONGEST = 600  # characters of texts by people
SAME = 0.66  # share of the words of the shorter of two steps that are the same
SAME_PAIR = 0.5  # likewise if two words are
SAME_CAUSE = 0.5  # likewise of two causes, which people put in more different words
MASKED = 0.3  # share of the words of a text that are unknown, from which on it tells a reader nothing
FOREIGN = 0.2  # likewise of its letters, those of other alphabets
_WORD = re.compile(r"[A-Za-z0-9-]{2,}")
MOST_CHECKED = 200  # characters of a cause that the first step repeats
# what ends the cause comes before what keeps it from coming back
_STOPS = re.compile(r"(?i)^(?:stop|kill|cancel|pause|suspend|abort|disable|freeze|quarantine)\b")
_TAKES_AWAY = re.compile(r"(?i)^(?:end|release|delete|remove|purge|wipe|kill|evict)\b")
# what starts the job again, when all else is done
_LAST = frozenset({"resubmit", "restart_from_checkpoint", "restart_in_place"})
# right whatever the cause was
_ANYWAY = _LAST | {"exclude_node_job", "exclude_node_cluster", "wait"}
# what goes on only with this cause
_AWAITS = re.compile(r"(?i)^wait (?:for|until|till) (?:the|a|an|its|all|both|our|their)\b")
_NUMBERS = ("One", "Two", "Three", "Four", "Several")
# what held in one incident only: its time, and how much it was. It stays in what people wrote, and instructs nobody
_CIRCUMSTANCE = re.compile(
    r"(?i),? \b(?:(?:over|in|during|on|since|for|at|within) (?:(?:a|an|the|one|that|last|this|\d+) )?(?:(?:next|last|same) )?"
    r"(?:days?|weekends?|evenings?|mornings?|afternoons?|nights?|weeks?|hours?|minutes?|midnight|noon|mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?)"
    r"|of the (?:day|week|month) before|(?:yesterday|tonight|overnight|last night)|by (?:one|two|three|\d+)|after \d+ (?:days?|hours?|minutes?)"
    r"|(?:from \d+(?:\.\d+)?\S{0,4} )?(?:to|from|of) \d+(?:\.\d+)?(?: ?(?:[KMGT]i?B|k|ms|s|h|min|minutes?|hours?|days?|%|per cent)| [a-z]{3,20}s(?=[,.;]|$| and\b| then\b))?(?! [a-z]{3,} of\b))(?=[\s,.;]|$)"
)


# done again is the same measure
_AGAIN = re.compile(r"^re-?(?=(?:deploy|load|build|built|cop(?:y|ied)|export|mount|install|generat)\w*$)")
# words of a measure that people use for one another
_SENSES = {
    **dict.fromkeys(("shorten", "shortened", "shorter"), "short"),
    **dict.fromkeys(("lengthen", "lengthened", "longer"), "long"),
    **dict.fromkeys(("lower", "lowered", "reduce", "reduced", "decrease", "decreased", "smaller", "fewer"), "less"),
    **dict.fromkeys(("raise", "raised", "increase", "increased", "higher", "larger", "bigger", "more"), "more"),
    **dict.fromkeys(("code", "commit", "revision"), "code"),
}
_SETS = re.compile(r"Set [A-Z][A-Z0-9_]+ to \S")  # a variable without its value is no advice


@dataclass(frozen=True, slots=True)
class Told:
    """What people wrote: a cause, or a step with its action of rules/actions.yaml as advice in their words.

    `of`: the incidents in which they wrote it, by their order; `partly`: others in which they wrote a part of it.
    """

    action: str
    text: str
    of: frozenset[int] = frozenset({0})
    partly: frozenset[int] = frozenset()

    @property
    def known(self) -> frozenset[int]:
        """The incidents in which any of it was written."""
        return self.of | self.partly


@dataclass(frozen=True, slots=True)
class Statements:
    """What people said of `many` incidents, without anything that must not leave the site: causes, and the steps that they took.

    `unread`: the numbers of incidents of which they wrote in words that are unknown here, as in another language.
    """

    causes: tuple[Told, ...] = ()
    steps: tuple[Told, ...] = ()
    many: int = 1
    unread: tuple[int, ...] = ()

    @property
    def noted(self) -> int:
        """In how many incidents they named a cause."""
        return len(frozenset[int]().union(*(cause.known for cause in self.causes)))


def statements(candidate: Candidate, book: Rulebook, cleaner: Anonymiser, keep: frozenset[str]) -> Statements:
    """What people said about the incidents of a candidate. If nobody filled in what was done, it may be in a note."""
    unread = tuple(
        number
        for number, *said in zip(candidate.support, candidate.notes, candidate.actions, strict=False)
        if any(_unreadable(text, cleaner.words(text, keep)) for text in said)
    )
    notes, actions = (
        ["" if _unreadable(text, said := cleaner.words(text, keep)) else said for text in texts]
        for texts in (candidate.notes, candidate.actions)
    )
    if not any(actions):
        done = [[part for part in sentences(note) if imperative(part, english())] for note in notes]
        notes = [
            "; ".join(part for part in sentences(note) if part not in own)
            for note, own in zip(notes, done, strict=True)
        ]
        actions = ["; ".join(own) for own in done]
    each = [steps_of([action], book.actions, english()) for action in actions]
    others = [other for _, other in each]
    told = [[text for text in (note, *other) if text] for note, other in zip_longest(notes, others, fillvalue="")]
    causes = _merged([[Told("", _begun(text)[:LONGEST]) for text in own] for own in told])
    steps = _merged([[Told(step.action, step.text[:LONGEST]) for step in own] for own, _ in each])
    return Statements(tuple(causes), tuple(_in_order(steps)[:MOST_STEPS]), len(candidate.support), unread)


def _unreadable(text: str, said: str) -> bool:
    """Whether so little of a text is left without its unknown words that a reader learns nothing from it."""
    letters = [char for char in text if char.isalpha()]
    foreign = sum(not char.isascii() for char in letters)
    words = [word for word in re.findall(r"\(name\)|[A-Za-z]{2,}", said) if word not in PLAIN]
    masked = sum(word == SOMEBODY for word in words)
    return bool(letters) and (foreign > FOREIGN * len(letters) or masked > MASKED * max(1, len(words)))


def in_general(text: str) -> str:
    """A sentence without the times and amounts of its one incident; unchanged if no word would be left."""
    if _SETS.match(text):
        return text
    bare = " ".join(_CIRCUMSTANCE.sub("", text).split())
    return bare if re.search(r"[A-Za-z]{3}", bare) else text


def circumstances(people: Statements) -> str:
    """A question about what people wrote about one incident but the rule omits; empty if there is nothing."""
    found = [
        hit[0].strip(" ,")
        for item in (*people.causes, *people.steps)
        if not _SETS.match(item.text)
        for hit in _CIRCUMSTANCE.finditer(item.text)
    ]
    if not found:
        return ""
    said = ", ".join(f"'{item}'" for item in dict.fromkeys(found))
    return f"People also wrote {said}. The rule leaves that out, since the lines do not bear it out: does it hold for each occurrence?"


def _begun(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def _merged(each: Sequence[Sequence[Told]]) -> list[Told]:
    """The sentences of all incidents, those that say the same once and in the fullest words, with their incidents.

    The incident that tells most leads, so that its steps stay in their order; what others did besides comes behind them.
    """
    found: list[Told] = []
    for index, own in sorted(enumerate(each), key=lambda pair: -sum(len(item.text) for item in pair[1])):
        known = len(found)  # two steps of one incident are two, however alike
        for item in own:
            at = next((place for place, other in enumerate(found[:known]) if _same(item, other)), None)
            if at is None:
                found.append(replace(item, of=frozenset({index})))
            elif _words(item.text) == _words(found[at].text):
                found[at] = replace(found[at], of=found[at].of | {index})
            else:
                fuller = (
                    item.text
                    if item.action in _LAST and len(_words(item.text)) > len(_words(found[at].text))
                    else found[at].text
                )
                found[at] = replace(found[at], text=fuller, partly=found[at].partly | {index})
    return found


def _in_order(steps: Sequence[Told]) -> list[Told]:
    """The steps as one takes them: what stops the cause, what else helps against it, each with what others did instead, then the job."""
    found: list[Told] = []
    for step in sorted(steps, key=_turn):
        alike = [at for at, other in enumerate(found) if _turn(other) == _turn(step) == 1 and _shared(step, other)]
        instead = bool(alike) and not any(step.known & found[at].known for at in alike)
        found.insert(alike[-1] + 1 if instead else len(found), step)
    return found


def _turn(step: Told) -> int:
    return 2 if step.action in _LAST else 0 if _STOPS.search(step.text) else 1


def _shared(one: Told, other: Told) -> bool:
    return bool(_words(one.text) & _words(other.text))


def _words(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in _WORD.findall(text) if word.lower() not in PLAIN)


def _same(one: Told, other: Told) -> bool:
    """Whether two sentences say the same: most words of the shorter one stand in the longer one."""
    left, right = _words(one.text), _words(other.text)
    if one.action in _LAST and one.action == other.action and min(len(left), len(right)) <= 1:
        return True  # "resume", and from where
    if one.action == other.action == "wait":
        return True  # for the same to end, however it is called
    least = SAME if one.action else SAME_CAUSE
    least = SAME_PAIR if one.action and len(left & right) > 1 and one.action == other.action else least
    return bool(left and right) and len(left & right) >= least * min(len(left), len(right))


def _stem(word: str) -> str:
    low = _AGAIN.sub("", word.lower())
    if low in _SENSES:
        return _SENSES[low]
    return next((low.removesuffix(end) for end in ("ed", "ing", "es", "s") if low.endswith(end) and len(low) > 5), low)


def cause_of(candidate: Candidate, people: Statements) -> str:
    """The cause as what people wrote."""
    if not people.causes:
        named = f"the close-outs name the class {candidate.fault} and no cause"
        return f"Not told here: {_elsewhere(people)}." if people.unread else f"Not known yet: {named}."
    return _wrote(replace(people, causes=tuple(replace(item, text=in_general(item.text)) for item in people.causes)))


def _elsewhere(people: Statements) -> str:
    """Where a person reads what could not be taken over."""
    many = "s" if len(people.unread) > 1 else ""
    return f"what people wrote of incident{many} {', '.join(map(str, sorted(people.unread)))} is not in plain English words"


def unread_question(people: Statements) -> str:
    """What a reviewer has to add from close-outs that could not be used, or only in part; empty if all could be used."""
    if not people.unread:
        masked = any(SOMEBODY in item.text for item in (*people.causes, *people.steps))
        return f"What stands for {SOMEBODY} in what people wrote? Put it back where it names nobody." if masked else ""
    told = _elsewhere(people)
    return f"What do the close-outs say? {told[:1].upper()}{told[1:]}, so the rule leaves it out: add its cause and remedy."


def _wrote(people: Statements) -> str:
    """The causes with the number of incidents in which people named each."""
    people = replace(people, causes=_by_incidents(people.causes))
    texts = [cause.text for cause in people.causes]
    if people.many == 1:
        return f"The person who resolved the one incident wrote: {' '.join(texts)}"
    if len(texts) > 1:
        each = " ".join(_wrote_of(cause) for cause in people.causes)
        return f"People named a cause in {people.noted} of {people.many} incidents. {each}"
    fullest = ", here in the fullest words" if people.causes[0].partly else ""
    return f"People named this cause in {people.noted} of {people.many} incidents{fullest}: {texts[0]}"


def _by_incidents(causes: Sequence[Told]) -> tuple[Told, ...]:
    """The causes, those of the same incidents as one: its sentences are one account, not as many as it has."""
    found: list[Told] = []
    for cause in causes:
        at = next(
            (place for place, other in enumerate(found) if (other.of, other.partly) == (cause.of, cause.partly)), None
        )
        if at is None:
            found.append(cause)
        else:
            found[at] = replace(found[at], text=f"{found[at].text} {cause.text}")
    return tuple(found)


def _wrote_of(cause: Told) -> str:
    who = _NUMBERS[min(len(cause.known), len(_NUMBERS)) - 1]
    return f"{who} wrote{', here in the fullest words' if cause.partly else ''}: {cause.text}"


def told(people: Statements) -> str:
    """The cause, and apart from it what was done: a reviewer must not take one for the other."""
    done = " ".join(f"{step.text.rstrip('.')}{_often(step, people)}." for step in people.steps)
    cause = _wrote(people) if people.causes else ""
    unread = f"{_begun(_elsewhere(people))}" if people.unread else ""
    return " ".join(part for part in (cause, f"What was done: {done}" if done else "", unread) if part)


def _often(step: Told, people: Statements) -> str:
    return f" ({_count(step, people)})" if people.many > 1 else ""


def _count(step: Told, people: Statements) -> str:
    if people.many == 1:
        return "in the one incident seen"
    many = len(step.partly)
    part = f", partly in {many} {'others' if many > 1 else 'other'}" if many else ""
    return f"in {len(step.of)} of {people.many} incidents{part}"


def steps(candidate: Candidate, people: Statements) -> list[dict[str, str]]:
    """The remedy: first whether this is the cause at all, then what people did about it, and nothing that nobody did."""
    check = _check(candidate, people)
    if people.steps or check:
        return [*check, *_advised(people, sure=not check)]
    numbers = ", ".join(map(str, sorted(people.unread)))
    where = f"the close-outs of {numbers}" if people.unread else "the log around this line"
    return [{"action": "look_at_logs", "text": f"Read {where}. No step is known here that helped."}]


def _advised(people: Statements, *, sure: bool) -> Iterator[dict[str, str]]:
    """The steps with how often people took each. `sure`: nobody named a cause on which they depend."""
    before: list[Told] = []
    for step in people.steps:
        text = in_general(step.text).rstrip(".")
        small = f"{text[:1].lower()}{text[1:]}"
        beside = [other for other in before if (other.action in _LAST) == (step.action in _LAST)]
        instead = bool(beside) and not any(step.known & other.known for other in beside)
        if instead:
            text = f"Or {small}"
        elif step.action in _LAST and before:
            text = f"Then {small}"
        elif not sure and (step.action not in _ANYWAY or _AWAITS.search(step.text)):
            text = f"If so, {small}"
        asked = " Ask the owner first." if _TAKES_AWAY.search(step.text) else ""
        before.append(step)
        yield {"action": step.action, "text": f"{text} (done {_count(step, people)}).{asked}"}


def _check(candidate: Candidate, people: Statements) -> list[dict[str, str]]:
    """Whether the cause that people named holds here, since the steps behind it help against no other."""
    if not people.causes:
        return []
    causes = _by_incidents([replace(item, text=in_general(item.text)) for item in people.causes])
    cause = " Or: ".join(item.text for item in causes)
    cause = cause if len(cause) <= MOST_CHECKED else f"{cause[:MOST_CHECKED].rpartition(' ')[0]} ..."
    messages = [event.message for event in candidate.events.values()][:1]
    sides = (
        " The line names a second party: find out which of the two is at fault."
        if OTHER_PARTY.search(" ".join(messages))
        else ""
    )
    which = "which known cause holds" if len(causes) > 1 else "whether the known cause holds"
    return [{"action": "collect_evidence", "text": f"Find out {which} here: {cause}{sides}"}]


def impact(candidate: Candidate, fault: FaultClass) -> str:
    """What the incidents show about the end of the run, which the class does not say."""
    many = len(candidate.support)
    of = f"of {many} incidents" if many > 1 else "of 1 incident"
    stopped = f"In {candidate.ended} {of} the logs show that the run ended after this line."
    failed = f"The scheduler reports the job as failed in {candidate.failed} {of}."
    shown = [text for text, count in ((stopped, candidate.ended), (failed, candidate.failed)) if count]
    if not shown and fault.outlives:
        return "No incident shows that the run ended: it may go on, degraded."
    return " ".join(shown) or f"The logs {of} do not show how the run ended."
