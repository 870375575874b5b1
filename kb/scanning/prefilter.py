"""Chooses a small set of words such that every line needed from a log store contains at least one of them.

A regex is split into the parts that each of its matches must contain: for each path through its choices, a few runs of
literal characters. A word within one of the runs finds all lines of that path. From all candidate words, some are
chosen greedily, so that all paths are covered and the words occur on as few lines of a healthy run as possible.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kb.model import Prefilter
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.regex.re_tree import REPEATS, parsed, sre
from kb.rulebase.patterns import literal_regex
from kb.rulebase.recurring_lines import RECURRING
from kb.rulebase.rule import Rulebook
from kb.scanning.plan import active
from kb.scanning.telling_words import TELLING_WORDS, may_be_found

MOST_WAYS = 260  # per regex; parts that would create more are skipped
LETTERS = 26
FEWEST = 3  # letters or digits of a word
LONGEST = 4  # parts of a word

# Parts of words on lines that a healthy run prints repeatedly.
COMMON = frozenset(
    """
    accuracy after all allocated and args async attempt avg backend backward batch begin block bytes cache call capacity check checkpoint chunk
    client close cluster code collective communicator complete completed compute config connect connected connection consumed context
    count cpu cuda current data dataloader dataset debug default device dir disk distributed done driver duration elapsed end
    endpoint entry epoch error errors eta evaluation event exit export fail failed failure failures fatal fetch file finished
    flush for forward found free from function general get global gpu grad gradient group handler hash health host http id import
    in index info init initializing input instance internal int interval invalid is iter iteration iterations job json key kill killed last layer learning length
    level line load loaded loader loading local lock log loss max memory message metrics micro min mode model module name nan
    kernel link nccl network new next no node norm not num number object of off on open over operation optimizer out output parallel param parameters part
    path peak peer pid pipeline pool port process processes progress queue range rank ranks rate read reading ready received
    recv reduce remote request requests reserved reset restart result results retry return root run running runtime sample samples
    save saved saving scale schedule scheduler segment segments send sent seq server session set shape shard signal size skip
    skipped sleep slot slow socket source speed split stage start started starting state status step steps stop stopped storage
    store stream success system target task tensor test text the this thread throughput time timed timeout timer times to token
    tokens torch total trace train trainer training transport type unexpected update usage use used user using valid validation
    value values version wait waiting warn warning was will with worker workers write writing zero
    """.split()  # noqa: SIM905 - as above
)
# Parts of words that are rare in a healthy run.
TELLING = frozenset(
    """
    abort aborted aborting assert assertionerror bug corrupt corrupted corruption crash crashed deadlock denied died disconnected
    diverged dump dumped ecc enomem enospc errno evicted exceeded exception exceptions exhausted exited exitcode expired faulty
    forbidden hang hung illegal inconsistent incorrect insufficient interrupted keyboardinterrupt killing lockup lost
    malformed mce mismatch mismatched oom oomkilled overflow panic permission preempted preemption refused rejected
    segfault segmentation sigabrt sigbus sigill sigkill sigsegv sigterm sxid stuck terminate terminated terminating
    traceback truncated unable uncorrectable unhandled unhealthy unreachable violation xid unrecognized unsupported
    """.split()  # noqa: SIM905 - as above
)
_PART = re.compile(r"[a-z0-9]+")
_PRINTED = frozenset(range(0x20, 0x7F))
_COMMON_COSTS = (
    20.0,
    4.0,
    2.0,
)  # of one, two, three and more parts that are all common; each word costs the store time
_COSTS = (3.0, 1.5, 1.2)  # likewise where one of them is not
_TELLING_COST = 1.0

Way = frozenset[str]  # lower-case runs of characters that every line matching in this way contains
_Items = Iterable[tuple[Any, Any]]


def prefilter(rulebook: Rulebook) -> Prefilter:
    """Return the words of everything searched for in lines: active rules' patterns, readers' triggers, stage marks."""
    ways: set[Way] = set()
    uncovered = left_out = 0
    for regex in sorted(set(wanted(rulebook))):
        found = set(ways_of(regex))
        left_out += not all(may_be_found(way) for way in found)
        findable = {way for way in found if words_of(way)}
        ways |= findable
        uncovered += len(findable) < len(found)
    return Prefilter(cover(ways), uncovered, rulebook.digest, TELLING_WORDS, left_out)


def wanted(rulebook: Rulebook) -> Iterator[str]:
    """Return the regexes of all lines that are searched for."""
    for rule in rulebook.rules:
        if active(rule):
            yield from (
                pattern.regex if pattern.regex is not None else literal_regex(pattern.literal or "")
                for pattern in rule.patterns
                if pattern.literal or pattern.regex
            )
    yield from (reader.trigger for reader in ALL_READERS)
    yield from (regex for _, regex in STAGES)


def ways_of(regex: str) -> tuple[Way, ...]:
    """Return the ways in which a line may match. No literal finds a way without runs."""
    states = _follow(parsed(regex.encode("utf-8")), [_State()])
    return tuple(dict.fromkeys(state.closed().runs for state in states))


@dataclass(frozen=True, slots=True)
class _State:
    """What a line has so far: finished runs, and one that may continue."""

    runs: Way = frozenset()
    open: str = ""

    def closed(self) -> _State:
        return _State(self.runs | {self.open}) if self.open else self

    def with_text(self, text: str) -> _State:
        return _State(self.runs, self.open + text)


def _follow(items: _Items, states: list[_State]) -> list[_State]:
    for op, argument in items:
        states = list(dict.fromkeys(_step(op, argument, states)))
    return states


def _step(op: Any, argument: Any, states: list[_State]) -> list[_State]:  # noqa: PLR0911 - one return a kind of node
    if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return states
    if op is sre.SUBPATTERN:
        return _follow(argument[3], states)
    if op is sre.LITERAL:
        return _texts(_fold({argument}), states)
    if op is sre.IN:
        return _texts(_letters(argument), states)
    if op is sre.BRANCH:
        return _choice([list(branch) for branch in argument[1]], states)
    if op in REPEATS:
        low, high, body = argument
        return _repeat(low, high, body, states)
    return [state.closed() for state in states]


def _texts(letters: Sequence[str], states: list[_State]) -> list[_State]:
    """A character from this set; if the set is empty, any character."""
    if not letters or len(letters) * len(states) > MOST_WAYS:
        return [state.closed() for state in states]
    return [state.with_text(letter) for state in states for letter in letters]


def _choice(branches: list[list[tuple[Any, Any]]], states: list[_State]) -> list[_State]:
    followed = [item for branch in branches for item in _follow(branch, states)]
    if len(followed) <= MOST_WAYS:
        return followed
    alone = [item.closed() for branch in branches for item in _follow(branch, [_State()])]
    closed = [state.closed() for state in states]
    if len(states) > 1 or not all(item.runs for item in alone):
        return closed
    return [_State(closed[0].runs | item.runs) for item in alone]


def _repeat(low: int, high: Any, body: _Items, states: list[_State]) -> list[_State]:
    body = list(body)
    if (low, high) == (0, 1):
        return _choice([[], body], states)
    if low == 0:
        return [state.closed() for state in states]
    once = _follow(body, states)
    return once if high == 1 else [state.closed() for state in once]


def _fold(members: Iterable[int]) -> tuple[str, ...]:
    """Return the characters regardless of case; none if one of them is not printed the same everywhere."""
    members = set(members)
    return tuple(sorted({chr(member).lower() for member in members})) if members <= _PRINTED else ()


def _letters(items: Sequence[tuple[Any, Any]]) -> tuple[str, ...]:
    """Return the members of a class if they are few: one letter in both cases, a handful, or any letter."""
    members: set[int] = set()
    for op, argument in items:
        if op is sre.LITERAL:
            members.add(argument)
        elif op is sre.RANGE:
            members.update(range(argument[0], argument[1] + 1))
        else:
            return ()
    folded = _fold(members)
    few = len(folded) <= 4 or (len(folded) == LETTERS and all(item.isalpha() for item in folded))
    return folded if few else ()


# -- words -------------------------------------------------------------------------------------------------------------


def cover(ways: Iterable[Way]) -> tuple[str, ...]:
    """Return sorted words, few of them common, such that each way has one within one of its runs."""
    of_words: dict[str, set[Way]] = {}
    for way in ways:
        for word in words_of(way):
            of_words.setdefault(word, set()).add(way)
    return tuple(sorted(_needed(_taken(of_words), of_words)))


def _taken(of_words: Mapping[str, set[Way]]) -> list[str]:
    """Greedily the word that covers most for its cost; a heap of old values, since values only fall."""
    costs = {word: cost(word) for word in of_words}
    left = set().union(*of_words.values())
    heap = [(-len(of) / costs[word], -len(word), word) for word, of in of_words.items()]
    heapq.heapify(heap)
    taken: list[str] = []
    while left:
        value, length, word = heapq.heappop(heap)
        now = -len(of_words[word] & left) / costs[word]
        if now == value:
            taken.append(word)
            left -= of_words[word]
        elif now < 0:
            heapq.heappush(heap, (now, length, word))
    return taken


def _needed(taken: list[str], of_words: Mapping[str, set[Way]]) -> list[str]:
    """Return the words without those that the others make redundant or that contain another word."""
    counts: dict[Way, int] = {}
    for word in taken:
        for way in of_words[word]:
            counts[way] = counts.get(way, 0) + 1
    kept = []
    for word in sorted(taken, key=lambda text: (-cost(text), text)):
        if all(counts[way] > 1 for way in of_words[word]):
            for way in of_words[word]:
                counts[way] -= 1
        else:
            kept.append(word)
    return [word for word in kept if not any(other != word and other in word for other in kept)]


def cost(word: str) -> float:
    """The cost of searching for a word: common words are on many lines of a healthy run, words of failures on few."""
    parts = _PART.findall(word)
    if any(part in TELLING for part in parts):
        return _TELLING_COST
    count = min(len(parts), len(_COSTS)) - 1
    common = all(part in COMMON for part in parts) or (len(parts) == 1 and any(word in text for text in COMMON))
    return (_COMMON_COSTS if common else _COSTS)[count]


def words_of(way: Way) -> frozenset[str]:
    """What may be looked for to find the lines of a way: none where each word would find the lines of every step."""
    return frozenset().union(*map(_words, way))


@lru_cache(maxsize=1 << 15)
def _words(run: str) -> frozenset[str]:
    """Whole parts of a run, up to a few, with the signs between them and behind them."""
    parts = list(_PART.finditer(run))
    found: set[str] = set()
    for first, begin in enumerate(parts):
        for last in range(first, min(first + LONGEST, len(parts))):
            start, end = begin.start(), parts[last].end()
            behind = parts[last + 1].start() if last + 1 < len(parts) else len(run)
            found |= {run[start:end], run[max(0, start - 1) : end].strip(), run[start:behind].strip()}
    return frozenset(word for word in found if _tells(word))


def _tells(word: str) -> bool:
    enough = len(word) > FEWEST and sum(map(str.isalnum, word)) >= FEWEST
    return enough and word not in RECURRING
