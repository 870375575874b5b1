"""What happened in an incident, line by line: kept lines become events, grouped if they differ only in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kb.anomalies.core.severity_words import harm, is_bad, is_consequence, skeleton
from kb.anomalies.runs.baseline_diff import ALIKE, SPARSE
from kb.learning.cases import Case
from kb.learning.messages import is_foreign, message_in, without_prefix
from kb.learning.tokenizer import LEADING
from kb.parsers.logs.prefixes import peel
from kb.regex.pattern import compiled
from kb.rulebase import levels
from kb.templates.masking import LineKind, fold, shape_of

MOST_LINES = 20_000  # of a case
LONGEST = 600  # characters of a line
MOST_NEAR = 200  # number of events that one word leads to
_RAISED = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Timeout|Expired|Failure|Warning)"
    r"|(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z]\w{2,60})(?:: (?P<message>.{1,500})|:?\s*$)"
)
# how any program ends that fails, whatever the cause
ENDING = re.compile(
    r"(?i)^\W*(?:(?:[\w.-]{1,40}: ){0,3}tasks? [\d,-]{1,40}: )?(?:aborted|segmentation fault|bus error|illegal instruction|killed|exited with exit code \d{1,3})?"
    r"\W*(?:\(?core dumped\)?)?\W*$"
    r"|check failure stack trace|\bstack trace:?\W*$|^terminate called|^(?:fatal )?python error: aborted|^fatal python error|^\W*dumping core"
)
# lines that only say that an error follows: its words are on the next line, or in the details of a gRPC status
_ANNOUNCES = re.compile(
    r"thread '[^'\n]{1,60}' (?:\(\d{1,9}\) )?panicked at [^\s:]{1,200}:\d{1,6}(?::\d{1,6})?:\s*$"
    r"|^terminate called after throwing an instance of"
    r"|\bRPC that terminated with:\s*$|\bPy4JJavaError: An error occurred while calling \S{1,80}\s*$"
)
# lines that only say that the program stops, for the reason that it gave before
CLOSING = re.compile(
    r"(?i)\b(?:shut(?:ting)? ?down|leaving|exit(?:s|ing|ed)?|giving up|bailing out|stopping|stepping down|terminating|quitting|bye|going down|(?:cannot|can't) (?:continue|go on|proceed)|dying)\b"
)
_EXITS = re.compile(
    r"(?i)\bexit(?:ed|ing|s)? (?:with )?(?:exit )?(?:code|status)\b|\bexit code:? ?[1-9]|\bcore dumped\b|\b(?:ChildFailedError|FAILED)\b"
    r"|\bMPI_ABORT\b|\bterminated by signal\b|\b(?:received|got) signal \d|\bjob .{0,60}\b(?:failed|cancelled)\b|\bstopped\W*$"
)
# a line that names somebody else beside its speaker
OTHER_PARTY = re.compile(
    r"(?i)\b(?:neighbou?rs?|peers?|partners?|counterparts?|the other (?:rank|side|end)|both (?:ranks|sides|ends))\b"
)
MOST_BEHIND = 400  # lines behind the deciding one in which the end of the program is looked for
_CLOSING_WORDS = 6
_CLOSED_WITHIN = 6  # lines
_FEWEST_SHARED = 4  # words of two events that differ in one more
_VERB = re.compile(
    r"(?:ed|ing)$|^(?:is|are|was|were|has|had|not|no|never|twice|again)$"
)  # what happened to a thing, and whether
_MOST_BACK = 3  # lines of a program, each of which says less than the one before
_FEW_WORDS = 3  # of a line that tells less than an error right before it
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|File \\?\"[^\"\n]{1,400}\", line \d")
# errors of Python code itself, whose words name nothing but the code
PLAIN = frozenset(
    """
    NameError UnboundLocalError AttributeError TypeError KeyError IndexError ZeroDivisionError RecursionError
    SyntaxError IndentationError StopIteration
    """.split()  # noqa: SIM905 - a list would take a page
)
_DETAILS = re.compile(r"^\s*details = \"(.{3,500})\"\s*$")
_ANY_ERROR = frozenset({"RuntimeError", "Exception", "OSError", "IOError", "SystemError", "Error"})
_FAILING = frozenset({"error", "critical", "fatal"})
_ANNOUNCED_WITHIN = 3  # lines
_ANNOUNCED_HARM = 0.6
_VOICE = re.compile(r"\[(?:rank|default)(\d{1,6})\]|^ {0,6}(\d{1,6}): ")
_FRAME = re.compile(r"File \"([^\"\n]{1,400})\", line \d+")


@dataclass(frozen=True, slots=True)
class CaseLine:
    """A kept line: its source and place there, its full text, and the message after its prefixes.

    `voice`: which rank wrote it; `level`: the level that its prefix states.
    """

    source: str
    number: int
    whole: str
    message: str
    voice: str = ""
    level: str | None = None


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """Lines that say the same, by case. `key`: their words; `raised`: if they end an exception, its type and message.

    `harm` 0 to 1; `after`: they report consequences of another's failure; `told`: a comparison or a person pointed at one of them;
    `decisive`: the cases in which it came first.
    """

    key: tuple[str, ...]
    lines: Mapping[int, tuple[CaseLine, ...]]
    raised: bool = False
    harm: float = 0.0
    after: bool = False
    told: bool = False
    decisive: frozenset[int] = frozenset()

    @property
    def support(self) -> frozenset[int]:
        """The cases that have it."""
        return frozenset(self.lines)


@dataclass(slots=True)
class _EventBuilder:
    lines: dict[int, list[CaseLine]] = field(default_factory=dict)
    raised: bool = False
    harm: float = 0.0
    after: bool = False
    told: bool = False
    decisive: set[int] = field(default_factory=set)


def events_of(cases: Iterable[Case]) -> tuple[CaseEvent, ...]:
    """The events of some cases, without those of a case's good run and parts of tracebacks."""
    found: dict[tuple[str, ...], _EventBuilder] = {}
    for case in cases:
        pointed = {_key_of(line, case) for line in case.told}
        kept = list(_read(case))
        overcome = compiled(levels.RECOVERED).find(case.decisive) is not None
        first = _reason(kept, _key_of(case.decisive, case)) if case.decisive and not overcome else None
        for read in kept:
            line, key = read.line, read.key
            foreign = _ANNOUNCED_HARM if _is_foreign(line) else 0
            event = found.setdefault(key, _EventBuilder())
            event.lines.setdefault(case.id, []).append(line)
            event.raised = read.raised
            announced = _ANNOUNCED_HARM if read.by is not None else 0
            event.harm = max(event.harm, harm(line.message, line.level), announced, foreign)
            event.after = (
                event.after or read.announces or is_consequence(line.message) or ENDING.search(line.message) is not None
            )
            event.told = event.told or key in pointed or (read.by is not None and read.by in pointed)
            if first in (key, read.by or key) and not read.announces and not ENDING.search(line.message):
                event.decisive.add(case.id)
    return tuple(_joined(found))


def _reason(kept: Sequence[_ReadLine], first: tuple[str, ...]) -> tuple[str, ...]:
    """The words of the event that came first.

    If they only say that the program stops, or that something below it failed, those of the error before, and so on.
    """
    for _ in range(_MOST_BACK):
        before = _before(kept, first)
        if before == first:
            break
        first = before
    return first


def _before(kept: Sequence[_ReadLine], first: tuple[str, ...]) -> tuple[str, ...]:
    """The words of the error for which a program stops, if those of an event say no more than that it does; else these."""
    place = next((index for index, read in enumerate(kept) if read.key == first), None)
    if place is None:
        return first
    closes = len(first) <= _CLOSING_WORDS and CLOSING.search(kept[place].line.message) is not None
    back = _CLOSED_WITHIN if closes else 1 if _passes_on(kept[place]) or len(first) <= _FEW_WORDS else 0
    own = kept[place].line
    for read in reversed(kept[max(0, place - back) : place]):
        same = read.line.source == own.source and read.line.voice == own.voice
        if same and _is_error(read.line) and not is_consequence(read.line.message):
            return read.key
    return first


def _passes_on(read: _ReadLine) -> bool:
    """Whether a line ends an exception that says no more than that a call failed, such as one into native code."""
    said = raised(read.line.message) if read.raised else None
    return said is not None and said[0] in _ANY_ERROR and len(skeleton(said[1])) <= _CLOSING_WORDS


def _is_error(line: CaseLine) -> bool:
    """Whether a line reports an error that its program did not overcome."""
    failing = line.level in _FAILING or compiled(levels.ERROR).find(line.whole) is not None or _is_foreign(line)
    return failing and compiled(levels.RECOVERED).find(line.whole) is None


def _is_foreign(line: CaseLine) -> bool:
    """Whether a line is the exception of a runtime other than Python's, which states no level."""
    data = line.whole.encode("utf-8", "replace")
    return is_foreign(message_in(data[peel(data).end :].decode("utf-8", "replace").strip()))


def _joined(found: Mapping[tuple[str, ...], _EventBuilder]) -> Iterable[CaseEvent]:
    """Merge events whose words are nearly the same, and which all or none of them are said at a level below error.

    A program says in health nearly what it says of a failure, as in "page evicted" and "page evicted twice".
    """
    mild = {key: _is_mild(item) for key, item in found.items()}
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    holding: dict[str, list[tuple[str, ...]]] = {}
    for key in sorted(found, key=lambda event_builder: (-len(found[event_builder].lines), event_builder)):
        near = [
            item for item in _alike(key, holding) if found[item].raised == found[key].raised and mild[item] == mild[key]
        ]
        near = near or [item for item in _swapped(key, holding) if mild[item] == mild[key]]
        if near:
            groups[near[0]].append(key)
            continue
        groups[key] = [key]
        for word in set(key):
            holding.setdefault(word, []).append(key)
    for first, keys in groups.items():
        lines: dict[int, tuple[CaseLine, ...]] = {}
        for key in keys:
            for case, own in found[key].lines.items():
                lines[case] = (*lines.get(case, ()), *own)
        each = [found[key] for key in keys]
        yield CaseEvent(
            first,
            lines,
            all(item.raised for item in each),
            max(item.harm for item in each),
            all(item.after for item in each),
            any(item.told for item in each),
            frozenset().union(*(item.decisive for item in each)),
        )


def _is_mild(event: _EventBuilder) -> bool:
    """Whether each of an event's lines states a level below error."""
    below = compiled(levels.LOWER)
    return all(below.find(line.whole) for lines in event.lines.values() for line in lines)


def _alike(key: tuple[str, ...], holding: Mapping[str, list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """The keys that share nearly all words with one, the nearest first."""
    words = frozenset(key)
    if len(words) <= SPARSE:
        return []
    # a near key shares all but a few of the words, so at least one of the rarest few
    rare = sorted(words, key=lambda word: (len(holding.get(word, ())), word))
    few = rare[: int(len(words) * (1 - ALIKE)) + 2]
    shares = {
        item: len(words & set(item)) / len(words | set(item))
        for word in few
        for item in holding.get(word, ())[:MOST_NEAR]
    }
    return sorted((item for item, share in shares.items() if share > ALIKE), key=lambda item: (-shares[item], item))


def _swapped(key: tuple[str, ...], holding: Mapping[str, list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """The keys that differ from one in a single word that names a thing, as in "pool flash gives" and "pool bulk gives"."""
    if len(key) <= _FEWEST_SHARED:
        return []
    rare = sorted(set(key), key=lambda word: (len(holding.get(word, ())), word))[:3]
    near = dict.fromkeys(item for word in rare for item in holding.get(word, ())[:MOST_NEAR] if len(item) == len(key))
    return [item for item in near if _names_another(key, item)]


def _names_another(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    differ = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    return len(differ) == 1 and not any(is_bad(word) or _VERB.search(word) or word in LEADING for word in differ[0])


@dataclass(frozen=True, slots=True)
class _ReadLine:
    """A line as it is read. `announces`: it only says that an error follows; `by`: the words of the line that announced this one."""

    key: tuple[str, ...]
    line: CaseLine
    raised: bool = False
    announces: bool = False
    by: tuple[str, ...] | None = None


def _read(case: Case) -> Iterable[_ReadLine]:
    left = MOST_LINES
    for source, text in case.texts.items():
        traced = False
        python = _TRACEBACK.search(text) is not None
        by: tuple[str, ...] | None = None  # the words of a line that announced an error
        within = 0
        for number, whole in enumerate(text.rstrip("\n").split("\n")[:left]):
            left -= 1
            read = _line(whole[:LONGEST])
            if read is None:
                continue
            kind, message, words, whole_words, level = read
            if whole_words in case.usual:
                continue
            level = level or ("error" if compiled(levels.ERROR).find(whole[:LONGEST]) is not None else None)
            line = CaseLine(source, number, whole[:LONGEST], message, voice_of(whole), level)
            body = kind in (LineKind.HEAD, LineKind.FRAME) or (traced and kind is LineKind.INDENTED)
            traced = body
            if not body and within and (told := _announced(message, within)):
                key = tuple(word for word in _words(told) if word not in case.names)
                if key:
                    yield _ReadLine(key, replace(line, message=told), by=by)
                within = 0
                continue
            within = max(0, within - 1)
            key = tuple(word for word in words if word not in case.names)
            if body or not key:
                continue
            announces = _ANNOUNCES.search(whole) is not None
            if announces:
                by, within = key, _ANNOUNCED_WITHIN
            yield _ReadLine(key, line, not announces and _is_exception(message, python=python), announces)


def _is_exception(message: str, *, python: bool) -> bool:
    """Whether a line ends an exception of Python. Where no traceback is, other languages and loggers write a bare class, too."""
    said = raised(message)
    return said is not None and (python or said[0] in PLAIN or "." in message.partition(":")[0])


def _announced(message: str, within: int) -> str:
    """What an announced error says, if a line is the one that says it: the next one, or the details below the status of a call."""
    details = _DETAILS.match(message)
    if details is not None:
        return details[1]
    next_one = within == _ANNOUNCED_WITHIN and not message.startswith("status = ")
    return without_prefix(message.removeprefix(": ")) if next_one and " " in message else ""


@lru_cache(1 << 16)
def _line(whole: str) -> tuple[LineKind, str, tuple[str, ...], tuple[str, ...], str | None] | None:
    """A line's kind, message, words of the message and of all, and level; None for one without text, and for iteration lines."""
    data = whole.encode("utf-8", "replace")
    shape = shape_of(fold(data))
    if shape.template is None or shape.step is not None:
        return None
    record = data.find(b'{"', 0, shape.start)  # of a JSON object, the fields beside the message count
    written = data[shape.start if record < 0 else record :].decode("utf-8", "replace").strip()
    message = message_in(written)
    if raised(message) is None or is_foreign(message):
        message = without_prefix(message)
    whole_words = skeleton(shape.template.text)
    words = whole_words if message == written else _words(message)
    return shape.kind, message, words if len(words) > 1 or raised(message) else (), whole_words, shape.template.level


def _words(message: str) -> tuple[str, ...]:
    """The words of a message whose prefix was removed."""
    shape = shape_of(fold(message.encode("utf-8", "replace")))
    return () if shape.template is None else skeleton(shape.template.text)


def _key_of(line: str, case: Case) -> tuple[str, ...]:
    read = _line(line[:LONGEST])
    return () if read is None else tuple(word for word in read[2] if word not in case.names)


def voice_of(whole: str) -> str:
    """The rank that wrote it, according to its prefix; empty if it has none."""
    hit = _VOICE.search(whole[:200])
    return "" if hit is None else hit[1] or hit[2]


def raised(message: str) -> tuple[str, str] | None:
    """Type (without its module) and message, if a line is the last one of an exception."""
    hit = _RAISED.match(message)
    if hit is None or hit["type"].endswith("Warning"):
        return None
    return hit["type"].rpartition(".")[2], (hit["message"] or "").strip()


def innermost(case: Case, line: CaseLine) -> str | None:
    """The file of the last frame that the same rank printed in the source of an exception's line; None if none is kept."""
    found = None
    for whole in case.texts.get(line.source, "").split("\n"):
        frame = _FRAME.search(whole)
        if frame is not None and (not line.voice or voice_of(whole) == line.voice):
            found = frame[1]
    return found


def ends_after(texts: Mapping[str, str], lines: Mapping[str, Sequence[str]]) -> bool:
    """Whether a source with one of the lines later says that the program or the job ends, or ends with an exception."""
    for source, own in lines.items():
        whole = texts.get(source, "").split("\n")
        at = max((whole.index(line) for line in own if line in whole), default=None)
        if at is None:
            continue
        if any(_is_end(line) for line in whole[at + 1 : at + 1 + MOST_BEHIND] if line.strip()):
            return True
    return False


def _is_end(line: str) -> bool:
    data = line.encode("utf-8", "replace")
    message = data[peel(data).end :].decode("utf-8", "replace").strip()
    return any(char.isalpha() for char in message) and any(
        regex.search(message) is not None for regex in (ENDING, CLOSING, _EXITS)
    )
