"""The texts of a drafted rule: what people wrote, as what they wrote, and what the logs of the incidents show; nothing beyond.

A line may have another cause the next time. So a cause is told with how many people wrote it, the first step checks whether it is
that cause, and each further step says how often it was taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bot.learning.drafts.anonymise import Anonymiser, english
from kb.learning.cases import Candidate
from kb.learning.events import OTHER_PARTY
from kb.learning.rewordings import component_of
from kb.learning.rule_texts import imperative, sentences, steps_of
from kb.learning.tokenizer import PLAIN
from kb.rulebase.rule import FaultClass, Rulebook

MOST_STEPS = 5
LONGEST = 600  # characters of texts by people
SAME = 0.66  # share of the words of the shorter of two steps that are the same
SAME_PAIR = 0.5  # likewise if two words are
SAME_CAUSE = 0.5  # likewise of two causes, which people put in more different words
SAID = 1  # words of a cause that a line repeats, so that it may say a part of it
_WORD = re.compile(r"[A-Za-z0-9-]{2,}")
MOST_CHECKED = 200  # characters of a cause that the first step repeats
# what ends the cause comes before what keeps it from coming back
_STOPS = re.compile(r"(?i)^(?:stop|kill|cancel|pause|suspend|abort|disable|freeze|quarantine)\b")
_TAKES_AWAY = re.compile(r"(?i)^(?:end|release|delete|remove|purge|wipe|kill|evict)\b")
# what starts the job again, when all else is done
_LAST = frozenset({"resubmit", "restart_from_checkpoint", "restart_in_place"})
# right whatever the cause was
_ANYWAY = _LAST | {"exclude_node_job", "exclude_node_cluster", "wait"}
# words of a cause → what one looks at first, and where: it is the cause if its words are found there
_PLACES: Sequence[tuple[str, str, str]] = (
    (r"uplinks?|downlinks?|leaf|leaves|spines?|switch|switches|links?|cables?|optics?|optical|connectors?|transceivers?|fabric|network|congest\w*|bandwidth|firewall|routes?|routers?|routing", "check_link",
     "the ports and links on the way: counters, cables and optics, and what else used them at that time"),
    (r"gpus?|accelerators?|fans?|trays?|dimms?|nics?|psu|power|voltage|burn-in|firmware|bmc|hardware|boards?|temperatures?|hot|overheat\w*|cooling|ecc|drives?|nvme|ssds?", "run_check",
     "the hardware of the node: its kernel log, sensors and firmware, and a burn-in test"),
    (r"pods?|spot|reclaim\w*|preempt\w*|schedule\w*|scheduling|reserve\w*|reservations?|partitions?|placement|autoscal\w*|evict\w*|claims?|requested|maintenance|drain\w*|(?:un)?cordon\w*|pool", "look_at_logs",
     "the scheduler's events of that time, and what else ran on the nodes"),
    (r"images?|registry|containers?|signed|signature|digests?|tags?|bundles?|ci|published?", "look_at_logs", "when {thing} was built, signed and published, from what and for what"),
    (r"certificates?|credentials?|permissions?|passwords?|secrets?|keys?|roles?|grants?|login|accounts?|rights", "look_at_logs",
     "the credential that the program used: since when, until when and for what it is valid"),
    (r"huge pages?|shm|ram|swap|leftover|memory of the node|host memory|other process\w*", "check_memory",
     "the memory of the node: what is in use, by which process, and what earlier jobs left"),
    (r"buckets?|lifecycle|quotas?|inodes?|mounts?|file ?systems?|disks?|storage|nfs|lustre|volumes?|object store|small files|scratch|space|stripes?|tiers?", "check_storage",
     "the storage: its own log and rules of that time, and its usage by folder"),
    (r"licen[cs]es?|seats?|sessions?|consumer groups?", "look_at_logs",
     "who else holds or uses {thing}, in the list of the service that gives it out"),
    (r"daemons?|services?|servers?|brokers?|prox(?:y|ies)|agents?|leaders?|controllers?|quorum|gateways?", "look_at_logs",
     "the log, the settings and the uptime of the service that wrote the line, or that it talked to"),
    (r"shards?|datasets?|tokeni[sz]\w*|re-tokeni[sz]\w*|vocabular\w*|corpus|samples?|manifests?|journals?|segments?|index(?:es)?|files?|folders?|checkpoints?|snapshots?|overwr\w*|cop(?:y|ied)|retention|sync\w*|records?", "check_data",
     "who wrote, moved or deleted the data behind {thing}, and when"),
    (r"config\w*|settings?|flags?|options?|parameters?|limits?|time-?outs?|defaults?|allows?|per process|templates?|prompts?|seeds?|batch(?:es)?|variable-length|hyperparameters?", "look_at_logs",
     "the settings of the run, next to those of the last good run"),
    (r"code|caches?|commit|branch|stale|versions?|upgrad\w*|updates?|updated|updating|drivers?|packages?|librar(?:y|ies)|releases?|deploy\w*|rebuilt|architectures?", "look_at_logs",
     "the versions of code and packages that the run loaded, on each node, next to those of the last good run"),
)  # fmt: skip
_NUMBERS = ("One", "Two", "Three", "Four", "Several")
_BY_DOMAIN = {"network": 0, "hardware": 1}
_ELSEWHERE = ("look_at_logs", "the lines before this one in the same log, next to those of a good run")
LEAST_PLACE = 2  # score of a place: a word of the cause, or two of the remedy and the line
# what held in one incident only: its time, and how much it was. It stays in what people wrote, and instructs nobody
_CIRCUMSTANCE = re.compile(
    r"(?i),? \b(?:(?:over|in|during|on|since|for|at|within) (?:(?:a|an|the|one|that|last|this|\d+) )?(?:(?:next|last|same) )?"
    r"(?:days?|weekends?|evenings?|mornings?|afternoons?|nights?|weeks?|hours?|minutes?|midnight|noon|mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?)"
    r"|of the (?:day|week|month) before|(?:yesterday|tonight|overnight|last night)|by (?:one|two|three|\d+)|after \d+ (?:days?|hours?|minutes?)"
    r"|(?:to|from|of) \d+(?:\.\d+)?(?: ?(?:[KMGT]i?B|k|ms|s|h|min|minutes?|hours?|days?|%|per cent))?(?! [a-z]{3,} of\b))(?=[\s,.;]|$)"
)


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
    """What people said of `many` incidents, without anything that must not leave the site: causes, and the steps that they took."""

    causes: tuple[Told, ...] = ()
    steps: tuple[Told, ...] = ()
    many: int = 1

    @property
    def noted(self) -> int:
        """In how many incidents they named a cause, as far as known: a cause told among the steps may be of an incident with a note."""
        return min(self.many, len(frozenset[int]().union(*(cause.known for cause in self.causes))))


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
    causes = _merged([[Told("", _begun(text)[:LONGEST])] for text in (*notes, *more) if text])
    told = _merged([[Told(step.action, step.text[:LONGEST]) for step in own] for own, _ in each])
    return Statements(tuple(causes), tuple(_in_order(told)[:MOST_STEPS]), len(candidate.support))


def in_general(text: str) -> str:
    """A sentence without the time and the amounts of the one incident that it tells of; as it is if no word is left."""
    bare = " ".join(_CIRCUMSTANCE.sub("", text).split())
    return bare if re.search(r"[A-Za-z]{3}", bare) else text


def circumstances(people: Statements) -> str:
    """A question about what people wrote of one incident and the rule leaves out; empty if there is none."""
    found = [
        hit[0].strip(" ,") for item in (*people.causes, *people.steps) for hit in _CIRCUMSTANCE.finditer(item.text)
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
    for index, own in enumerate(sorted(each, key=lambda texts: -sum(len(item.text) for item in texts))):
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
    least = SAME if one.action else SAME_CAUSE
    least = SAME_PAIR if one.action and len(left & right) > 1 and one.action == other.action else least
    return bool(left and right) and len(left & right) >= least * min(len(left), len(right))


def _stem(word: str) -> str:
    low = word.lower()
    return next((low.removesuffix(end) for end in ("ed", "ing", "es", "s") if low.endswith(end) and len(low) > 5), low)


def cause_of(candidate: Candidate, people: Statements) -> str:
    """The cause as what people wrote, and whether the line says any of it."""
    if not people.causes:
        return f"Not known yet: the close-outs name the class {candidate.fault} and no cause."
    said = _words(" ".join(event.message for event in candidate.events.values()))
    alone = candidate.events and all(len(_words(cause.text) & said) < SAID for cause in people.causes)
    general = replace(people, causes=tuple(replace(cause, text=in_general(cause.text)) for cause in people.causes))
    return f"{_wrote(general)}{' The line itself does not say so.' if alone else ''}"


def _wrote(people: Statements) -> str:
    """The causes with the number of incidents in which people named each."""
    texts = [cause.text for cause in people.causes]
    if people.many == 1:
        return f"The person who resolved the one incident wrote: {' '.join(texts)}"
    if len(texts) > 1:
        each = " ".join(_wrote_of(cause) for cause in people.causes)
        return f"People named a cause in {people.noted} of {people.many} incidents. {each}"
    fullest = ", here in the fullest words" if people.causes[0].partly else ""
    return f"People named this cause in {people.noted} of {people.many} incidents{fullest}: {texts[0]}"


def _wrote_of(cause: Told) -> str:
    who = _NUMBERS[min(len(cause.known), len(_NUMBERS)) - 1]
    return f"{who} wrote{', here in the fullest words' if cause.partly else ''}: {cause.text}"


def told(people: Statements) -> str:
    """The cause, and apart from it what was done: a reviewer must not take one for the other."""
    done = " ".join(f"{step.text.rstrip('.')}{_often(step, people)}." for step in people.steps)
    cause = _wrote(people) if people.causes else ""
    return " ".join(part for part in (cause, f"What was done: {done}" if done else "") if part)


def _often(step: Told, people: Statements) -> str:
    return f" ({_count(step, people)})" if people.many > 1 else ""


def _count(step: Told, people: Statements) -> str:
    if people.many == 1:
        return "in the one incident seen"
    many = len(step.partly)
    part = f", partly in {many} {'others' if many > 1 else 'other'}" if many else ""
    return f"in {len(step.of)} of {people.many} incidents{part}"


def steps(candidate: Candidate, people: Statements, book: Rulebook) -> list[dict[str, str]]:
    """The remedy: whether it is this cause at all, then what people did against it; without either, what one usually does first."""
    check = _check(candidate, people, book.faults[candidate.fault], book)
    if not people.steps:
        return [*check, *_usual(candidate, book)]
    return [*check, *_advised(people, sure=not check)]


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
        elif not sure and step.action not in _ANYWAY:
            text = f"If so, {small}"
        asked = " Ask the owner first." if _TAKES_AWAY.search(step.text) else ""
        before.append(step)
        yield {"action": step.action, "text": f"{text} (done {_count(step, people)}).{asked}"}


def _check(candidate: Candidate, people: Statements, fault: FaultClass, book: Rulebook) -> list[dict[str, str]]:
    """Whether the cause that people named holds here, since the steps behind it help against no other: where that shows, and what."""
    if not people.causes:
        return []
    messages = [event.message for event in candidate.events.values()][:1]
    action, place = _place(
        [cause.text for cause in people.causes], [step.text for step in people.steps] + messages, fault
    )
    action = action if action in book.actions else "look_at_logs"
    place = place.replace("{thing}", _thing(messages))
    cause = " Or: ".join(in_general(cause.text) for cause in people.causes)
    cause = cause if len(cause) <= MOST_CHECKED else f"{cause[:MOST_CHECKED].rpartition(' ')[0]} ..."
    sides = (
        " The line names a second party: find out which of the two is at fault."
        if OTHER_PARTY.search(" ".join(messages))
        else ""
    )
    return [{"action": action, "text": f"Check {place}. It is the known cause if you find this: {cause}{sides}"}]


def _thing(messages: Sequence[str]) -> str:
    """What a line is about, in its own words."""
    begin = component_of(messages[0]) if messages else ""
    words = [word for word in begin.split() if word.isalpha()]
    return f"the {' '.join(words)} of this line" if len(words) > 1 else "what this line names"


def _place(causes: Iterable[str], others: Iterable[str], fault: FaultClass) -> tuple[str, str]:
    """What to look at first and where, by the words of the causes, then by those of the remedy and of the line."""
    cause, other = " ".join(causes).lower(), " ".join(others).lower()
    found = [
        (set(re.findall(rf"\b(?:{words})\b", cause)), set(re.findall(rf"\b(?:{words})\b", other)))
        for words, _, _ in _PLACES
    ]
    scores = [2 * len(own) + len(more - own) for own, more in found]
    best = scores.index(max(scores)) if max(scores) >= LEAST_PLACE else _BY_DOMAIN.get(fault.domain)
    return _ELSEWHERE if best is None else _PLACES[best][1:]


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
