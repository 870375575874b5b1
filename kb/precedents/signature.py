"""A compact signature of what a failure looked like, and how similar two signatures are.

A signature is made of the report alone: the words of the lines that decided or stood out, without what varies from run to run, each
with its weight in telling one failure from another. So the same failure gives the same signature, whatever the machine, the rank,
the step and the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from kb.anomalies.core.severity_words import harm, is_body, is_consequence
from kb.model import NOT_FAILED
from kb.report import Diagnosis, EvidenceItem, Report
from kb.templates.masking import LOOKED_AT, fold, shape_of

MOST_EVENTS = 24
MOST_WORDS = 40  # of one event
NEAR = 0.6  # similarity from which an incident is worth a look
FEWEST = 0.6  # weight that two signatures must share: a word or two in common, or what peers reported, means nothing
CLOSE = 85.0  # rapidfuzz's ratio from which two events are the same
SPARSE = 3  # words; fewer must be equal
MOST_ALIKE = 3

Words = tuple[str, ...]
_TOKEN = re.compile(r"[^\s,;=\"'`()\[\]{}<>|]{1,400}")
_WORD = re.compile(r"[A-Za-z]{2,}")
_ID = re.compile(
    r"(?i)\b0x[0-9a-f]+|(?<![a-z0-9])(?=[a-z]*\d)(?=\d*[a-z])[0-9a-f]{6,}(?![a-z0-9])|(?:[a-z]+\d+){2}[a-z]+|\d[a-z]+\d[a-z]*\d"
)
_CODE = re.compile(
    r"(?i)\b(?P<of>S?Xid|signal|sig|WTERMSIG|WEXITSTATUS|exit ?code|exit status|errno|error code|status|code)\b[ :=(]{0,3}"
    r"(?:\(?PCI:[0-9A-Fa-f:.]{4,20}\): ?)?(?P<code>-?\d{1,4})(?![\d.:])"
)


@dataclass(frozen=True, slots=True)
class SignatureEvent:
    """A line by its words, in order. `weight` above 0, 1 for one that says what failed in words of its own."""

    words: Words
    weight: float


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure by its events, each once, the heaviest first; with its stage and verdict."""

    events: tuple[SignatureEvent, ...] = ()
    stage: str | None = None
    verdict: str = ""

    @property
    def weight(self) -> float:
        """Of all events together."""
        return sum(event.weight for event in self.events)


@dataclass(frozen=True, slots=True)
class KnownIncident:
    """An entry of the library: an incident whose cause people named. `at`: when, seconds since the epoch."""

    incident: int
    pattern: Signature
    fault: str | None
    closed_as: str
    helped: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SimilarIncident:
    """How similar an entry is: 0 to 1, and the events in common, the heaviest first."""

    known: KnownIncident
    similarity: float
    shared: tuple[Words, ...]


def signature_of(report: Report) -> Signature:
    """The signature of a report; without events if nothing failed or no line says anything."""
    if report.verdict in NOT_FAILED:
        return Signature(verdict=report.verdict)
    best: dict[Words, float] = {}
    for text, share in _lines(report):
        event = _event(text)
        if event is not None and event.weight * share > best.get(event.words, 0.0):
            best[event.words] = round(event.weight * share, 3)
    kept = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:MOST_EVENTS]
    stages = [diagnosis.stage for diagnosis in report.diagnoses[:1] if diagnosis.stage] + [
        stage.what for stage in report.indicators.stages
    ]
    return Signature(
        tuple(SignatureEvent(*item) for item in kept), next(iter(stages), report.progress.stage), report.verdict
    )


def _lines(report: Report) -> Iterator[tuple[str, float]]:
    """The texts that describe a failure, each with its weight. Consequences of a cause weigh less."""
    for place, entry in enumerate(report.diagnoses[:4]):
        share = 1.0 if place == 0 else 0.4
        yield from ((text, share) for item in entry.evidence for text in _texts(item, entry))
    for rank, sign in enumerate(report.indicators.events):
        text = sign.evidence.text if sign.evidence is not None and sign.evidence.text else sign.what
        yield from ((line, max(0.4, 1.0 - 0.1 * rank)) for line in text.splitlines()[-3:])


def _texts(item: EvidenceItem, of: Diagnosis) -> Iterator[str]:
    """The lines of one finding; figures and stacks are represented by their rule, as no two are worded alike."""
    if item.kind == "line":
        yield from item.text.splitlines()[-3:]
    else:
        yield f"{item.kind} {of.rule.replace('-', ' ')} {of.fault.replace('_', ' ')}"


def _event(text: str) -> SignatureEvent | None:
    """A line as an event; None if it has no words of its own."""
    if not text.strip() or is_body(text):
        return None
    data = text.encode("utf-8", "replace")[:LOOKED_AT]
    shape = shape_of(fold(data))
    message = data[shape.start :].decode("utf-8", "replace")
    words = words_of(message)
    if not words:
        return None
    weight = 0.5 + 0.5 * harm(message, shape.template.level if shape.template is not None else None)
    if is_consequence(message):
        weight *= 0.25
    if len(words) < SPARSE:
        weight *= 0.4
    return SignatureEvent(words, weight)


def words_of(text: str) -> Words:
    """The words of a message that stay the same from run to run, in order and lower case.

    Names stay (the missing key, the file without its folders), and so do numbers that are codes: of an Xid, a signal, an exit. Other
    numbers, ids, addresses and folders are dropped.
    """
    found: list[str] = []
    for token in _TOKEN.findall(text):
        if "://" in token or _ID.search(token):
            continue
        found += [word.lower() for word in _WORD.findall(token.rstrip("/").rpartition("/")[2])]
    found += [f"{match['of'].lower()}{match['code']}" for match in _CODE.finditer(text)]
    return tuple(found[:MOST_WORDS])


class FaultLibrary:
    """Signatures to compare with. An event is looked up among those that share one of its rarer words."""

    def __init__(self, known: Iterable[KnownIncident]) -> None:
        self.entries: Sequence[KnownIncident] = tuple(
            sorted(known, key=lambda known_incident: (-known_incident.at, -known_incident.incident))
        )
        self._spread: dict[str, int] = {}
        for entry in self.entries:
            for word in {word for event in entry.pattern.events for word in event.words}:
                self._spread[word] = self._spread.get(word, 0) + 1

    def alike(
        self, pattern: Signature, *, but: frozenset[int] = frozenset(), most: int = MOST_ALIKE
    ) -> list[SimilarIncident]:
        """The entries most similar to a signature, the most similar first, only the best of each cause. `but`: left out."""
        if not pattern.events:
            return []
        mine = self._telling(pattern)
        found = [
            match
            for entry in self.entries
            if entry.incident not in but and (match := self._like(pattern, mine, entry)) is not None
        ]
        found.sort(key=lambda item: (-item.similarity, -item.known.at, -item.known.incident))
        best: dict[tuple[str | None, str], SimilarIncident] = {}
        for match in found:
            best.setdefault((match.known.fault, match.known.closed_as), match)
        return list(best.values())[:most]

    def _telling(self, pattern: Signature) -> frozenset[str]:
        """For each event its two rarest words: an entry that has none of them shares no relevant event."""
        return frozenset(
            word
            for event in pattern.events
            for word in sorted(set(event.words), key=lambda word: (self._spread.get(word, 0), word))[:4]
        )

    def _like(self, pattern: Signature, telling: frozenset[str], entry: KnownIncident) -> SimilarIncident | None:
        theirs = entry.pattern
        if not any(word in telling for event in theirs.events for word in event.words):
            return None
        value, shared, common = similarity(pattern, theirs)
        if value < NEAR or common < FEWEST:
            return None
        return SimilarIncident(entry, round(value, 3), shared)


def similarity(signature: Signature, other: Signature) -> tuple[float, tuple[Words, ...], float]:
    """How similar two signatures are, 0 to 1; the events that both have, the heaviest first; and the weight of those.

    Weighted overlap: what both have over what either has. Events in different words may still match: the closest pairs first.
    """
    if not signature.events or not other.events:
        return 0.0, (), 0.0
    free = {event.words: event.weight for event in other.events}
    pairs: list[tuple[float, Words, Words]] = []
    for event in signature.events:
        if event.words in free:
            pairs.append((1.0, event.words, event.words))
        else:
            pairs += [(value, event.words, words) for words in free if (value := _close(event.words, words))]
    mine: Mapping[Words, float] = {event.words: event.weight for event in signature.events}
    taken: set[Words] = set()
    shared: list[tuple[float, Words]] = []
    common = 0.0
    for value, left, right in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if left in taken or right not in free:
            continue
        taken.add(left)
        weight = min(mine[left], free.pop(right))
        common += value * weight
        shared.append((weight, left))
    rest = sum(free.values()) + sum(weight for words, weight in mine.items() if words not in taken)
    both = sum(weight for weight, _ in shared)
    shared.sort(key=lambda pair: (-pair[0], pair[1]))
    return common / (both + rest), tuple(words for _, words in shared), common


def _close(record: Words, other: Words) -> float:
    """How similar the words of two events are, 0 to 1; 0 for no match."""
    if len(record) <= SPARSE or len(other) <= SPARSE:
        return 0.0
    mine, theirs = frozenset(record), frozenset(other)
    if any(word[-1].isdigit() for word in mine ^ theirs):  # another Xid, another signal
        return 0.0
    if 2 * len(mine & theirs) < min(len(mine), len(theirs)):
        return 0.0
    value = fuzz.token_sort_ratio(" ".join(record), " ".join(other), score_cutoff=CLOSE)
    return value / 100.0
