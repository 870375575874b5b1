"""The lines at the end of the logs that most likely say why a run failed, for failures that no rule knows.

Every line gets a worth from its form alone: how much trouble its words report, whether it is the last line of a traceback,
what its writer's level is, whether it quotes a value or a code, and how close to the end it is. Nothing here knows a fault.
The weights are rounded from a logistic regression over one half of the real failures that bench/hidden_rules.py reads; the
other half was only scored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from kb.anomalies.core.severity_words import harm_of_words, is_aside, is_consequence, is_mild, is_raised, skeleton
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.log.stream_facts import StreamFacts
from kb.parsers.logs.error_lines import error_level, is_calm, message_of
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines
from kb.values import dataclass

LINES = 400  # at the end of a log, of which the most telling are chosen
LINES_OF_MANY = 60  # likewise, where there are more logs than `FEW_LOGS`
FEW_LOGS = 8
MOST_LOGS = 64
NEAR = 20  # lines to the end of a log, fewer of which are near it
LATE = 2 / 3  # of the bytes of a log, from which on a line can be near its end
FEW = 1 / 3  # share of the ranks that may print a line of one rank's own failure
MANY = 3  # ranks, from which a line that one of them printed alone stands out
_CUT = 2048  # bytes of a line
_KNOWN_FORM = 120  # characters by which lines that differ only in numbers are the same

SURE = 0.3  # worth from which a line is shown though nothing shows that the run failed
LEAST = -1.5  # worth from which a line of a failed run is shown whose words report no trouble
BESIDE = -1.0  # worth from which a line is shown beside others

_BASE = -1.7
_WORDS = {"grave": 2.5, "bad": 1.7}
_RAISED = 1.7
_LEVEL = 0.4  # warnings, too: many libraries write their errors as such
_CALM = -0.3
_QUOTES = 0.5
_DIGITS = 0.25
_CODE = 0.25
_ANNOUNCED = 0.4
_ANNOUNCES = -1.3
_SHORT = -0.8
_SOURCE = -0.3
_MILD = -0.3
_CONSEQUENCE = -0.3
_SURVIVED = -0.4
_PER_LINE = -0.3  # and logarithm of the lines up to the end
_OF_ALL = -1.0
_OF_ONE = 0.5

_NUMBER = lazy_compile(r"\d+")
_FRAME = lazy_compile(
    r"^\W{0,3}\s*File \"|^\s*[\^~]+\s*$|Traceback \(most recent|^\W*$|^(?:During handling|The above exception)|^\s*at |^frame #"
    r"|^\s*\S+\(\S*\+0x|^#\d+ "
    # registers, stack and modules of a kernel's dump, which say of the line above them where it was
    r"|\bPID: \d{1,9} Comm: |\bHardware name: |\bCall Trace:|\bModules linked in:|\bR(?:[A-DS][XIP]|IP|FLAGS|\d\d): (?:\d{4}:)?(?:\w{1,80}\+0x)?[0-9a-f]{4}"
    r"|\bCR\d: [0-9a-f]{8}|-\[ (?:end trace|cut here)|\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
)
_FILE = 'File "'
_PROGRAM = lazy_compile(
    r"[;{}]\s*$|^\s*(?:#\w|//|def |class |return |raise |self\.|import |from \S+ import|with |for |if )|^\s*\w[\w.]* = |^\s*[\w.]+\(.*[,(]\s*$"
)
_WARNING = lazy_compile(r"(?i)\bwarn(?:ing)?\b")
_QUOTED_VALUE = lazy_compile(r"['\"`]\S")
_STATUS = lazy_compile(
    r"(?i)\b(?:err(?:or|no)?|code|status|rc|ret(?:code)?)\b[\s:=#]*\(?-?\d|(?-i:\b[a-z]+Error[A-Z]\w+)"
)
_FEWEST_WORDS = 3


@dataclass(frozen=True, slots=True)
class TellingLine:
    """A line, its stream, offset and rank, how much it is worth, and why it may matter."""

    stream: int
    offset: int
    line: str
    rank: int | None
    worth: float
    why: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A line at the end of a log that is neither a frame nor blank."""

    stream: int
    offset: int
    line: str
    message: str
    rank: int | None
    announced: bool
    to_end: int
    late: bool


def telling_lines(facts: Facts, led: Collection[int] = (), *, sure: bool = False) -> list[TellingLine]:
    """Return the lines that most likely say why a run failed, the likeliest first, one of each form.

    `led`: the streams of the lines that lead, which are read first; `sure`: whether nothing else shows that the run failed,
    so that a line must say so by itself.
    """
    streams = [index for index, stream in enumerate(facts.streams) if stream.summary.ref.group == "logs"]
    streams.sort(
        key=lambda index: (index not in led, facts.streams[index].summary.ref.resource.rank is not None, index)
    )
    most = LINES if len(streams) <= FEW_LOGS else LINES_OF_MANY
    found = [item for index in streams[:MOST_LOGS] for item in _candidates(facts, index, most)]
    ranks = {item.rank for item in found} - {None}
    if sure:  # no other line can be worth enough
        found = [item for item in found if harm_of_words(item.message) in _WORDS or is_raised(item.message)]
        found = [item for item in found if not facts.streams[item.stream].steps_after(item.offset)]
    by_form: dict[str, list[_Candidate]] = {}
    for item in found:
        by_form.setdefault(form_of(item.line), []).append(item)
    told = []
    for alike in by_form.values():
        worth = max(_worth(item, facts.streams[item.stream]) for item in alike) + _of_ranks(alike, len(ranks))
        first = alike[0]  # of a number that is off, where it began
        if worth >= (SURE if sure else LEAST) or (not sure and harm_of_words(first.message) in _WORDS):
            told.append(TellingLine(first.stream, first.offset, first.line, first.rank, worth, _why(first)))
    return sorted(told, key=lambda item: -item.worth)


def form_of(line: str) -> str:
    """Return what lines that differ only in their numbers have in common."""
    return _NUMBER.sub("#", line.strip())[:_KNOWN_FORM]


def _candidates(facts: Facts, index: int, most: int) -> Iterator[_Candidate]:
    stream = facts.streams[index]
    lines = [(at, line[:_CUT]) for at, line in tail_lines(stream.summary) if line.strip()][-most:]
    frames = [(structure_start(item), item.offset) for item in stream.exceptions]
    own, after_file, above = stream.summary.ref.resource.rank, False, ""
    for place, (at, line) in enumerate(lines):
        said = message_of(line)
        if _FRAME.search(said) or _FRAME.search(line):
            after_file = _FILE in line
            above = above if not any(map(str.isalnum, said)) else said  # a ruler does not end an announcement
            continue
        source, after_file = after_file and line[:1] in " [", False
        if source or stream.lived_with(at) or (said[:4] == "    " and any(low < at < high for low, high in frames)):
            continue
        raw = line.encode("utf-8", "replace")
        who = own if own is not None else speaker(raw, peel(raw)).rank
        to_end = len(lines) - 1 - place
        late = to_end < NEAR and at >= LATE * stream.summary.size
        yield _Candidate(index, at, line, said, who, above.rstrip().endswith(":"), to_end, late)
        above = said


def _worth(item: _Candidate, stream: StreamFacts) -> float:
    said, raw = item.message, item.line.encode("utf-8", "replace")
    warned = _WARNING.search(item.line[:160]) is not None
    worth = _BASE + _WORDS.get(harm_of_words(said), 0.0) + _PER_LINE * math.log1p(item.to_end)
    for holds, weight in (
        (is_raised(said), _RAISED),
        (warned or error_level(raw) is not None, _LEVEL),
        (not warned and is_calm(raw), _CALM),
        (_QUOTED_VALUE.search(said) is not None, _QUOTES),
        (_NUMBER.search(said) is not None, _DIGITS),
        (_STATUS.search(said) is not None, _CODE),
        (item.announced, _ANNOUNCED),
        (said.rstrip().endswith(":"), _ANNOUNCES),
        (len(skeleton(said)) < _FEWEST_WORDS, _SHORT),
        (_PROGRAM.search(said) is not None, _SOURCE),
        (is_mild(said) or is_aside(said), _MILD),
        (is_consequence(item.line), _CONSEQUENCE),
        (bool(stream.steps_after(item.offset)), _SURVIVED),
    ):
        worth += weight if holds else 0.0
    return worth


def _of_ranks(alike: Sequence[_Candidate], ranks: int) -> float:
    """Return what it is worth that only one rank, or many of them, printed lines of one form."""
    own = {item.rank for item in alike} - {None}
    if ranks < MANY or not own:
        return 0.0
    return _OF_ONE if len(own) == 1 else _OF_ALL if len(own) > FEW * ranks else 0.0


def _why(item: _Candidate) -> str:
    if is_raised(item.message):
        return "an exception"
    if harm_of_words(item.message) in _WORDS and not is_calm(item.line.encode("utf-8", "replace")):
        return "its words report trouble"
    return "the line above announces it" if item.announced else "near the end of its log" if item.late else ""
