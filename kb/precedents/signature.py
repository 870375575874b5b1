"""A compact signature of what a failure looked like, and how similar two signatures are.

A signature is made of the report alone: the words of the lines that decided or stood out, without what varies from run to run, each
with its weight in telling one failure from another. So the same failure gives the same signature, whatever the machine, the rank,
the step and the path.
"""

from __future__ import annotations

import builtins
import math
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
NEAR = 0.25  # similarity from which an incident is worth a look; chosen on one half of 688 failures (bench/README.md)
FEWEST = 0.6  # weight that two signatures must share: a word or two in common, or what peers reported, means nothing
DECISIVE = 0.8  # of the weight of the heaviest event: those that say what failed
OWN_WORDS = 0.6  # weight from which an event says more than what peers report of it
RARE = 4.0  # nats of information that two events must share, about one rare word
LEAST_LIBRARY = 100  # entries; the words of fewer say little of how common a word is
COMMON_SHARE = 0.1
# words of more than 5 % of 250 real failures (2026-11-24), whatever the failure was; and Python's own exceptions
_COMMON_WORDS = (
    "and at by cc cuda device directory distributed errno errno2 error exceptions failed file for from gpu has in is local"
    " loss memory nccl no not of on or out pid process rank such the this timed to torch with"
)
_EXCEPTIONS = (name for name, value in vars(builtins).items() if isinstance(value, type) and name.endswith("Error"))
_COMMON = frozenset(_COMMON_WORDS.split()) | frozenset(map(str.lower, _EXCEPTIONS))
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
    r"(?i)\b(?P<of>S?Xid|signal|sig|WTERMSIG|WEXITSTATUS|exit ?code|exit status|errno|os error|error code|status|code)\b[ :=(]{0,3}"
    r"(?:\(?PCI:[0-9A-Fa-f:.]{4,20}\): ?)?(?P<code>-?\d{1,4})(?![\d.:])|\b(?P<http>[45]\d\d) (?:Client|Server) Error\b"
)
_SAME_CODE = {"os error": "errno"}  # as Rust prints it


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
    for event, share in _events(report):
        if event is not None and event.weight * share > best.get(event.words, 0.0):
            best[event.words] = round(event.weight * share, 3)
    kept = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:MOST_EVENTS]
    stages = [diagnosis.stage for diagnosis in report.diagnoses[:1] if diagnosis.stage] + [
        stage.what for stage in report.indicators.stages
    ]
    return Signature(
        tuple(SignatureEvent(*item) for item in kept), next(iter(stages), report.progress.stage), report.verdict
    )


def _events(report: Report) -> Iterator[tuple[SignatureEvent | None, float]]:
    """The events that describe a failure, each with its share. Consequences of a cause have a smaller one."""
    for place, entry in enumerate(report.diagnoses[:4]):
        share = 1.0 if place == 0 else 0.4
        yield from ((event, share) for item in entry.evidence for event in _of_finding(item, entry))
    for rank, sign in enumerate(report.indicators.events):
        text = sign.evidence.text if sign.evidence is not None and sign.evidence.text else sign.what
        yield from ((_event(line), max(0.4, 1.0 - 0.1 * rank)) for line in text.splitlines()[-3:])


def _of_finding(item: EvidenceItem, of: Diagnosis) -> Iterator[SignatureEvent | None]:
    """The lines of one finding; figures and stacks are represented by their rule, as no two are worded alike."""
    if item.kind == "line":
        yield from map(_event, item.text.splitlines()[-3:])
    else:
        words = words_of(f"{item.kind} {of.rule.replace('-', ' ')} {of.fault.replace('_', ' ')}")
        yield SignatureEvent(words, 1.0) if words else None


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
    for match in _CODE.finditer(text):
        of = (match["of"] or "http").lower()
        found.append(f"{_SAME_CODE.get(of, of)}{match['code'] or match['http']}")
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
        mine, decisive = self._telling(pattern), _decisive_events(pattern)
        found = [
            match
            for entry in self.entries
            if entry.incident not in but and (match := self._like(pattern, mine, decisive, entry)) is not None
        ]
        found.sort(key=lambda item: (-item.similarity, -item.known.at, -item.known.incident))
        best: dict[tuple[str | None, str], SimilarIncident] = {}
        for match in found:
            best.setdefault((match.known.fault, match.known.closed_as), match)
        return list(best.values())[:most]

    def _telling(self, pattern: Signature) -> frozenset[str]:
        """For each event the rarest of its words that occur: an entry that has none of them shares no relevant event."""
        return frozenset(
            word
            for event in pattern.events
            for word in sorted(
                {word for word in event.words if word in self._spread}, key=lambda word: (self._spread[word], word)
            )[:4]
        )

    def _like(
        self, pattern: Signature, telling: frozenset[str], decisive: Sequence[Words], entry: KnownIncident
    ) -> SimilarIncident | None:
        theirs = entry.pattern
        if not any(word in telling for event in theirs.events for word in event.words):
            return None
        value, shared, common = similarity(pattern, theirs)
        value = value if common >= FEWEST else 0.0
        closest, event = self._closest(decisive, theirs)
        if closest > value:  # the same failure in other surroundings: another framework, other ranks' lines
            value, shared = closest, (event, *(words for words in shared if words != event))
        return SimilarIncident(entry, round(value, 3), shared) if value >= NEAR else None

    def _closest(self, decisive: Sequence[Words], other: Signature) -> tuple[float, Words]:
        """How much of the information of the words of two decisive events is in both, 0 to 1; and the first one's words."""
        pairs = ((mine, theirs) for mine in decisive for theirs in _decisive_events(other))
        found = ((self._shared_information(frozenset(mine), frozenset(theirs)), mine) for mine, theirs in pairs)
        return max(found, default=(0.0, ()))

    def _shared_information(self, mine: frozenset[str], theirs: frozenset[str]) -> float:
        if any(word[-1].isdigit() for word in mine ^ theirs):  # another Xid, another signal
            return 0.0
        shared = sum(self._information(word) for word in mine & theirs)
        either = sum(self._information(word) for word in mine | theirs)
        telling = sum(self._information(word) for word in (mine & theirs) - _COMMON)
        return shared / either * min(1.0, telling / RARE) if either else 0.0

    def _information(self, word: str) -> float:
        """The information in a word, in nats: of the share of the entries that have it. A code counts twice."""
        entries = max(len(self.entries), LEAST_LIBRARY)
        spread = max(self._spread.get(word, 0), COMMON_SHARE * entries if word in _COMMON else 1.0)
        return (2.0 if word[-1].isdigit() else 1.0) * math.log((entries + 1.0) / (spread + 0.5))


def _decisive_events(signature: Signature) -> list[Words]:
    """Return the events of a signature that say what failed; none if it only has what peers reported."""
    least = max(OWN_WORDS, DECISIVE * max((event.weight for event in signature.events), default=0.0))
    return [event.words for event in signature.events if event.weight >= least]


def similarity(signature: Signature, other: Signature) -> tuple[float, tuple[Words, ...], float]:
    """How similar two signatures are, 0 to 1; the events that both have, the heaviest first; and the weight of those.

    The similarity is a weighted overlap: what both have divided by what either has. Events in different words may still match, and the closest
    pairs are matched first.
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
    if 2 * len(mine & theirs) < min(len(mine), len(theirs)) or mine & theirs <= _COMMON:
        return 0.0
    value = fuzz.token_sort_ratio(" ".join(record), " ".join(other), score_cutoff=CLOSE)
    return value / 100.0
