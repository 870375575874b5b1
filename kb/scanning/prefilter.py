"""Which lines a log store need send: a small set of words such that every line that anybody looks for has one of them.

A regex is taken apart into what each of its matches must hold: for each way through its choices a few runs of literal
characters. A word that lies within one of the runs finds all lines of that way. From all words that could do, some are
taken greedily, so that all ways are covered and the words stand on as few lines of a healthy run as can be.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

# The parser of `re`, as in kb.rulebase.patterns: no public library gives its tree.
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

from kb.model import Prefilter
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.rulebase.codec import digest
from kb.rulebase.patterns import literal_regex
from kb.rulebase.rule import Rulebook
from kb.scanning.plan import active
from kb.scanning.telling_words import TELLING_WORDS, may_be_found

MOST_WAYS = 260  # of one regex; where there would be more, what makes them is passed over
LETTERS = 26
FEWEST = 3  # letters or digits of a word
LONGEST = 4  # parts of a word

# Parts of words that stand on the lines that a healthy run prints again and again.
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
# Parts of words that a healthy run has few of.
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
# Lines of which a run prints one with each step, or many a second: words on them find nothing.
RECURRING = """
 iteration 12/ 500 | consumed samples: 24 | elapsed time per iteration (ms): 5.1
 | throughput per gpu (tflop/s/gpu): 41.0 | learning rate: 2.9e-04 | global batch size: 2048 | lm loss: 1.9e+00
 | loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations: 0 | number of nan iterations: 0
 | params norm: 1.2 | load_balancing_loss: 1.0 |
iteration: 10 / 200 | consumed_tokens: 1m | time_per_iteration_ms: 90 | tokens_per_sec: 1k | global_batch_size: 8
{'loss': 2.1, 'grad_norm': 0.3, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_tokens': 10.0, 'mean_token_accuracy':
 0.5}
{"step": 3, "loss": 1.2, "learning_rate": 1e-4, "gpu_memory_usage": 1, "gradient_norm": 1, "global_step": 3}
[2026-11-20 03:04:05,100] [info] [logging.py:96:log_dist] [rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9,
 0.95)]
[info] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, runningavgsamplespersec=5, memallocated=1gb,
 maxmemallocated
steps: 10 loss: 2.5 iter time (s): 0.5 samples/sec: 16.0
training epoch 0, iteration 10/99 | lr: 1e-4 | global_batch_size: 8 | global_step: 10 | reduced_train_loss: 2.1
 | timing
epoch 0:  10%|#         | 10/100 [00:10<01:40, 1.00it/s, v_num=0, loss=2.31, train_loss_step=2.3, val_loss=2.0]
epoch: [0][10/100] time 0.5 ( 0.5) data 0.1 ( 0.1) loss 2.1e+00 (2.2e+00) acc@1 10.00 (9.00) eta: 0:01:40 max mem:
 1024
step:10 - global_seqlen/mean:1 - actor/entropy:0.1 - critic/score/mean:0.1 - timing_s/gen:1.0 - perf/throughput:10
[batch=10/100]: train: time/batch: 9 train: loss/train/total: 2.1 train: memory/peak_allocated_mem: 1.0
 throughput/tokens
step: 10 loss: 2.1 grad_norm: 0.5 memory: 10.0gib(12%) tps: 1,000 tflops: 40.1 mfu: 40.1%
step 10/100 train_loss:2.1 train_time:100ms step_avg:10.0ms val loss 2.0 dt: 100ms tok/sec: 1000 reducing to
forward: 1.0 ms, backward: 1.0 ms, wait: 1.0 ms, queue 3 of 32, errors 0, late 0, time across ranks (ms): all-reduce
allocated: 10.0 mb, max allocated: 10.0 mb, reserved: 10.0 mb, segments, cpu virtual memory: used = 10.0 gb,
 percent = 5%
read 10 samples from /data/corpus/part-00001.bin in 1.0 ms, cache hit rate 0.9, dataloader workers 8
"""
_PART = re.compile(r"[a-z0-9]+")
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_PRINTED = frozenset(range(0x20, 0x7F))
_COMMON_COSTS = (
    20.0,
    4.0,
    2.0,
)  # of one, two, three and more parts that are all common; each word costs the store time
_COSTS = (3.0, 1.5, 1.2)  # likewise where one of them is not
_TELLING_COST = 1.0

Way = frozenset[str]  # runs of characters in lower case, all of which a line has that matches in this way
_Items = Iterable[tuple[Any, Any]]


def prefilter(rulebook: Rulebook) -> Prefilter:
    """The words of all that is looked for in lines: patterns of active rules, triggers of the readers, marks of stages."""
    ways: set[Way] = set()
    uncovered = left_out = 0
    for regex in sorted(set(wanted(rulebook))):
        found = set(ways_of(regex))
        left_out += not all(may_be_found(way) for way in found)
        findable = {way for way in found if words_of(way)}
        ways |= findable
        uncovered += len(findable) < len(found)
    return Prefilter(cover(ways), uncovered, digest(rulebook), TELLING_WORDS, left_out)


def wanted(rulebook: Rulebook) -> Iterator[str]:
    """The regexes of all lines that are looked for."""
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
    """The ways in which a line may match; a way without runs is one that no literal finds."""
    states = _follow(sre_parse.parse(regex.encode("utf-8")), [_State()])
    return tuple(dict.fromkeys(state.closed().runs for state in states))


@dataclass(frozen=True, slots=True)
class _State:
    """What a line has so far: finished runs, and one that may go on."""

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
    if op in _REPEATS:
        low, high, body = argument
        return _repeat(low, high, body, states)
    return [state.closed() for state in states]


def _texts(letters: Sequence[str], states: list[_State]) -> list[_State]:
    """A character that is one of these; none: it may be any."""
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
    """Characters without regard to case; none where one of them is not printed the same everywhere."""
    members = set(members)
    return tuple(sorted({chr(member).lower() for member in members})) if members <= _PRINTED else ()


def _letters(items: Sequence[tuple[Any, Any]]) -> tuple[str, ...]:
    """The members of a class where they are few: one letter in both cases, a handful, or any letter."""
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
    """Words, in order, such that each way has one within one of its runs; few of them common."""
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
    """Without the words that the others make needless, and without those that another lies within."""
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
    """How much a word is to be shunned: what is common stands on many lines of a healthy run, what tells of harm on few."""
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
