"""Finds events that distinguish some incidents from all others, and a pattern for each; or conditions, if single lines are not enough."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from kb.anomalies.core.severity_words import skeleton
from kb.learning.cases import Case
from kb.learning.clauses import freed
from kb.learning.edge_checks import EdgeFaults, faults_of
from kb.learning.events import PLAIN, CaseEvent, innermost, raised
from kb.learning.messages import fields_behind
from kb.learning.negative_corpus import Background, NegativeText, line_at, lowered
from kb.learning.regex_generalisation import Regex, regexes, usable, with_fields
from kb.learning.rewordings import SHARE, EventWords, edge_of
from kb.learning.tokenizer import Piece, Token, WordWeights, aligned, gap
from kb.parsers.logs.prefixes import peel
from kb.regex.pattern import compiled
from kb.rulebase import levels
from kb.rulebase.patterns import check

TRIED = 32  # number of events examined
FIRST = 2.5  # score of an event that came first in all cases: more than anything that merely stands near it
TOLD_WORDS = 3  # of an exception that says what is wrong
EDGES = 3  # incidents by whose event a pattern is tested
MOST_TRIES = 6  # patterns that match no other text and are compared by their edge
MOST_LINES = 200  # number of others in which a distinguishing word is looked for
SELF_EVIDENT = 3.6  # weight of an exception's words that need no class name beside them: versions rename classes
BETWEEN = 120  # characters between an exception's class and the words of its message
WIDE = 3  # number of sources in which a line of all ranks occurs
# of errors of Python code itself those that count as such only without a message of their own
BARE = frozenset({"AssertionError", "NotImplementedError", "ValueError", "Exception"})
_ANY_TYPE = frozenset(
    {"Exception", "RuntimeError", "ValueError", "OSError", "IOError", "Error", "SystemError", "SystemExit"}
)
_BARE_ERRNO = re.compile(r"\[Errno \d{1,4}\] [A-Za-z][A-Za-z /'-]{2,60}(?:: ?['\"/].*)?")
_FUNCTION = re.compile(r"File \"[^\"\n]{1,400}\", line \d{1,9}, in ([A-Za-z_]\w{2,60})")
_WORD = re.compile(r"[A-Za-z]{5,}")
ALL_OF_THEM = r"\b(\d{1,9}) of \1\b"  # a share that says that nothing is missing
SOME = r"(?:[1-9][\d.]{0,18}|0\.\d{1,18})"  # a number that is not zero
MOST_HITS = 200  # lines of good runs in which a count is looked at
_LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")


@dataclass(frozen=True, slots=True)
class MinedPattern:
    """A pattern that some cases support. `values`: its values in rule.yaml; `search`: a regex that finds its lines in a text.

    `counter`: texts of other faults in which it matches, by index, with the first line of each source; `when`: a condition over the
    names "line" and "beside" if the pattern alone does not discriminate, with `beside` the second pattern. `numbers`: it keeps
    numbers of the lines. `logged`: the values that find an exception where a program logs it as an error, without a traceback.
    `said`: what its line says, with holes for captured values; empty if its regex is no part of a message; `reach`: the pieces of which it tells.
    """

    event: CaseEvent
    values: Mapping[str, Any]
    search: str
    words: tuple[str, ...]
    support: frozenset[int]
    counter: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    score: float = 0.0
    when: Any = None
    beside: MinedPattern | None = None
    numbers: bool = False
    logged: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    reach: tuple[Piece, ...] = ()


def plain_bug(event: CaseEvent, cases: Mapping[int, Case]) -> bool:
    """Whether an event is an error of the run's own code: a plain Python type that no library raised."""
    if not event.raised:
        return False
    for number, lines in event.lines.items():
        said = raised(lines[0].message)
        file = innermost(cases[number], lines[0])
        own = said is not None and (said[0] in PLAIN or (said[0] in BARE and len(skeleton(said[1])) < TOLD_WORDS))
        if not own or (file is not None and any(text in file for text in _LIBRARY)):
            return False
    return True


def ranked(
    events: Sequence[CaseEvent], cases: Collection[int], background: Background
) -> list[tuple[float, CaseEvent]]:
    """The candidate events, the best first: many of the cases have them, few others do, and their words indicate harm."""
    found = []
    for event in events:
        share = len(event.support) / max(1, len(cases))
        have = [other for other in background.others if other.fault is not None and other.words.issuperset(event.key)]
        spread = len(have) / max(1, len(background.others))
        score = (
            1.5 * share
            + FIRST * len(event.decisive) / max(1, len(cases))
            + event.harm
            + 0.6 * event.told
            + 0.3 * event.raised
            - 0.7 * event.after
            - 2.0 * min(1.0, 8 * spread)
        )
        found.append((score, event))
    found.sort(key=lambda item: (-item[0], item[1].key))
    return found


def discriminate(
    event: CaseEvent,
    score: float,
    cases: Mapping[int, Case],
    besides: Collection[str],
    background: Background,
    *,
    names: Collection[str],
) -> MinedPattern | None:
    """The most general pattern of an event that matches no incident of another fault; the least bad if each does."""
    best: MinedPattern | None = None
    clean: list[tuple[EdgeFaults, MinedPattern]] = []
    bare = _is_bare_errno(event)
    texts = [text for case in cases.values() for text in case.texts.values()]
    texts += [text for other in background.others if other.healthy for text in other.sections]
    for general in _patterns(event, score, names, background.weights, texts):
        pattern = _framed(general, cases) if bare else general
        found = _counted(
            replace(pattern, counter=background.spoken(pattern.search, pattern.words, besides)), background
        )
        if not found.counter:
            clean.append((_edge_faults(found), found))
            if not clean[-1][0] or len(clean) >= MOST_TRIES:
                break
        if best is None or len(found.counter) < len(best.counter):
            best = found
    if clean:  # of equals the most general one
        return min(clean, key=lambda item: (item[0].alarms, item[1].numbers, item[0].missed))[1]
    return None if best is None else _conditioned(best, cases, background)


def told_of(event: CaseEvent) -> dict[int, EventWords]:
    """What an event says in each incident."""
    found = {}
    for number, lines in event.lines.items():
        said = raised(lines[0].message) if event.raised else None
        name = lines[0].message.partition(":")[0].strip()
        found[number] = EventWords(lines[0].message) if said is None else EventWords(said[1], name)
    return found


def _is_bare_errno(event: CaseEvent) -> bool:
    """Whether an exception says only what the system says of an error number, which any program may print."""
    return event.raised and all(
        (said := raised(line.message)) is not None and _BARE_ERRNO.fullmatch(said[1]) is not None
        for own in event.lines.values()
        for line in own
    )


def _framed(found: MinedPattern, cases: Mapping[int, Case]) -> MinedPattern:
    """The pattern of an exception, only from the innermost function that the tracebacks of all its cases share."""
    frame = _own_frame(found, [cases[number] for number in sorted(found.support)], ())
    if frame is None or "exception" not in found.values:
        return found
    return replace(found, values={"exception": {**found.values["exception"], "frame": rf"\bin {frame}$"}}, logged={})


def _edge_faults(found: MinedPattern) -> EdgeFaults:
    """How a pattern does at the edges of its event in a few incidents."""
    told = dict.fromkeys(told_of(found.event).values())
    edges = [edge_of(words, numbers=not found.numbers) for words in list(told)[:EDGES]]
    return faults_of([item for item in (found.values, found.logged) if item], edges)


def _patterns(
    event: CaseEvent, score: float, names: Collection[str], weights: WordWeights, texts: Sequence[str] = ()
) -> Iterator[MinedPattern]:
    """Patterns for an event, the most general first, then those that keep its numbers. `texts`: of its cases, and of good runs."""
    said = {number: [raised(item.message) for item in lines] for number, lines in event.lines.items()}
    types = sorted({item[0] for own in said.values() for item in own if item is not None}) if event.raised else []
    messages = [
        line.message if item is None else item[1]
        for number, lines in event.lines.items()
        for line, item in zip(lines[:4], said[number][:4], strict=True)
        if not event.raised or item is not None
    ]
    pieces = freed(aligned(messages, names), texts)
    records = [(line.whole, line.message) for lines in event.lines.values() for line in lines[:4]]
    wholes = [whole for whole, _ in records]
    fields = () if event.raised else tuple(name for name in fields_behind(records) if name not in names)
    own = types and not set(types) & (_ANY_TYPE | PLAIN) and all(weights.of(item) >= 1 for item in types)
    for numbers in (False, True):
        if numbers and not any(
            piece.fixed and piece.token is not None and piece.token.kind == "number" for piece in pieces
        ):
            return
        for regex in regexes(pieces, weights, numbers=numbers, firm=len(event.lines) > 1):
            found = replace(_found(event, score, types, with_fields(regex, fields, wholes)), numbers=numbers)
            if len(found.support) == len(event.support):
                yield found
    if own:
        yield _typed(event, score, types)


def _found(event: CaseEvent, score: float, types: Sequence[str], regex: Regex) -> MinedPattern:
    if not types:
        values: dict[str, Any] = {"regex": regex.text}
        if not _has(event, levels.LOWER):
            values["level"] = "error_if_stated"
        if _has(event, levels.RECOVERED):
            values["not_line"] = levels.recoveries_beside(line.whole for own in event.lines.values() for line in own)
        else:
            values["recovered"] = False
        search = regex.text
    else:
        named = not set(types) & {"Exception", "Error"}
        telling = named and regex.weight < SELF_EVIDENT
        values = {"exception": {**({"type": "|".join(types)} if telling else {}), "message": regex.text}}
        classes = "|".join(types) if telling else r"[A-Z]\w{2,60}" if named else "Exception|Error"
        search = f"(?:{classes}): .{{0,{BETWEEN}}}{regex.text}"
    support = frozenset(
        number for number, lines in event.lines.items() if any(compiled(search).find(line.message) for line in lines)
    )
    told = regex.text if regex.weight >= SELF_EVIDENT else search
    logged = _logged(event, told) if types and usable(told) else {}
    return MinedPattern(
        event, values, search, regex.words, support, score=score, logged=logged, said=regex.said, reach=regex.reach
    )


def _logged(event: CaseEvent, regex: str) -> dict[str, Any]:
    """The values that find an exception where a program logs it as an error."""
    over: dict[str, Any] = {} if _has(event, levels.RECOVERED) else {"recovered": False}
    return {"regex": regex, "level": "error", **over}


def _has(event: CaseEvent, regex: str) -> bool:
    """Whether a regex matches any of an event's lines: what its own lines say cannot tell others apart."""
    return any(compiled(regex).find(line.whole) for own in event.lines.values() for line in own)


def _counted(found: MinedPattern, background: Background) -> MinedPattern:
    """The pattern without the counts that only good runs have: all of them, or none of them.

    Nothing but a good run shows that a count is health: "8 of 8 members silent" and "0 of 16 actors left" are the worst of failures.
    """
    against = [background.others[index] for index in found.counter]
    if not against or "regex" not in found.values or not all(item.healthy for item in against):
        return found
    lines = list(islice(_hits(found.search, against), MOST_HITS))
    if _lacks_some(found.event) and all(_is_whole(line) for line, _ in lines):
        return replace(found, values={**found.values, "not_line": ALL_OF_THEM}, counter={})
    none = [name for name in lines[0][1] if all(values[name] == "0" for _, values in lines)]
    regex = found.search
    for name in none:
        regex = regex.replace(f"(?P<{name}>{gap(Token('number', '0'))})", f"(?P<{name}>{SOME})", 1)
    search = compiled(regex).find
    kept = all(any(search(line.message) for line in own) for own in found.event.lines.values())
    if regex == found.search or not kept or any(search(line) for line, _ in lines):
        return found
    return replace(found, values={**found.values, "regex": regex}, search=regex, counter={})


def _hits(regex: str, texts: Sequence[NegativeText]) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The lines of some texts that a regex matches, each with what it captures there."""
    for item in texts:
        for text in item.sections:
            for hit in compiled(regex).finditer(text):
                yield line_at(text, hit.start()), hit.groupdict()


def _is_whole(line: str) -> bool:
    """Whether each share that a line names is the whole."""
    shares = SHARE.findall(line)
    return bool(shares) and all(part == whole for part, whole in shares)


def _lacks_some(event: CaseEvent) -> bool:
    """Whether each share that an event names is less than the whole, so that the whole is no failure."""
    shares = [hit for own in event.lines.values() for line in own for hit in SHARE.finditer(line.message)]
    return bool(shares) and all(int(hit[1]) < int(hit[2]) for hit in shares)


def _typed(event: CaseEvent, score: float, types: Sequence[str]) -> MinedPattern:
    values = {"exception": {"type": "|".join(types)}}
    classes = "|".join(types)
    logged = _logged(event, rf"\b(?:{classes})\b")
    return MinedPattern(event, values, rf"\b(?:{classes})(?::|\s*$)", (), event.support, score=score, logged=logged)


# -- conditions ----------------------------------------------------------------------------------------------------------


def _conditioned(found: MinedPattern, cases: Mapping[int, Case], background: Background) -> MinedPattern:
    """The pattern with something that discriminates after all: a word of the others' lines, the stage, how many ranks say it."""
    own = [cases[number] for number in found.support]
    against = [background.others[index] for index in found.counter]
    stages = {case.stage for case in own}
    if (
        len(stages) == 1
        and None not in stages
        and not any(item.stage in stages or item.stage is None for item in against)
    ):
        return replace(found, values={**found.values, "where": {"stages": [own[0].stage]}}, counter={})
    frame = _own_frame(found, own, against) if found.event.raised else None
    if frame is not None:
        test = {**found.values["exception"], "frame": rf"\bin {frame}$"}
        return replace(found, values={"exception": test}, counter={})
    word = _others_word(found, background)
    if word is not None:
        return replace(found, values={**found.values, "not_line": "|".join([*_own(found), word])}, counter={})
    mine = [_heard(found.search, tuple(case.texts.values())) for case in own]
    theirs = [len(lines) for lines in found.counter.values()]
    if max(mine) == 1 and min(theirs) >= WIDE and all(len(case.texts) >= WIDE for case in own):
        return replace(found, when={"ranks": "line", "at_most": 1}, counter={})
    if min(mine) >= WIDE and max(theirs) == 1 and all(len(item.sections) >= WIDE for item in against):
        return replace(found, when={"ranks": "line", "at_least": 2}, counter={})
    return found


def _own(found: MinedPattern) -> list[str]:
    """What its lines must not match already."""
    return [found.values["not_line"]] if "not_line" in found.values else []


def _heard(search: str, texts: Sequence[str]) -> int:
    return sum(compiled(search).find(text) is not None for text in texts)


def _own_frame(found: MinedPattern, own: Sequence[Case], against: Sequence[NegativeText]) -> str | None:
    """The innermost function that tracebacks of all the cases have, and no text of the others."""
    each = []
    for case in own:
        sources = {line.source for line in found.event.lines[case.id]}
        each.append([hit for source in sorted(sources) for hit in _FUNCTION.findall(case.texts.get(source, ""))])
    shared = set(each[0]).intersection(*each[1:]) if each else set()
    able = [
        item
        for item in reversed(each[0] if each else [])
        if item in shared and not any(lowered(item) in two.words for two in against)
    ]
    return next((item for item in able if len(item) > 5 and not item.startswith("__") and not check(item)), None)


def _others_word(found: MinedPattern, background: Background) -> str | None:
    """A word on all the lines of others that the pattern finds, and on none of the cases' own."""
    lines = [line for each in found.counter.values() for line in each]
    if len(found.counter) < 2 or len(lines) > MOST_LINES:
        return None
    own = {word for each in found.event.lines.values() for line in each for word in _WORD.findall(line.whole)}
    shared = frozenset.intersection(*(frozenset(_WORD.findall(line)) for line in lines)) - own
    known = [
        word for word in shared if background.weights.counts.get(lowered(word), 0) > 2
    ]  # not the name of a machine
    return max(known, key=lambda item: (len(item), item), default=None)


def together(first: MinedPattern, second: MinedPattern) -> MinedPattern | None:
    """Two patterns that occur together only in these cases: both, or one after the other."""
    support = first.support & second.support
    if len(support) < len(first.support):
        return None
    shared = {index: lines for index, lines in first.counter.items() if index in second.counter}
    if not shared:
        return replace(first, when={"all": ["line", "beside"]}, beside=second, counter={}, support=support)
    return None


def in_order(
    first: MinedPattern, second: MinedPattern, background: Background, cases: Mapping[int, Case]
) -> MinedPattern | None:
    """Two patterns whose order discriminates: first, then second, in one source of every case, and the other way round elsewhere."""
    support = first.support & second.support
    if len(support) < len(first.support) or len(support) < 2:
        return None
    if not all(_is_before(first, second, tuple(cases[number].texts.values())) for number in support):
        return None
    shared = [background.others[index] for index in first.counter if index in second.counter]
    if not shared or not all(_is_before(second, first, item.sections) for item in shared):
        return None
    return replace(first, when={"sequence": ["line", "beside"]}, beside=second, counter={}, support=support)


def _is_before(first: MinedPattern, second: MinedPattern, texts: Sequence[str]) -> bool:
    """Whether in some text the first comes before the second by their clocks, and in none after it."""
    found = False
    for text in texts:
        left, right = _time(first, text), _time(second, text)
        if left is not None and right is not None:
            if left >= right:
                return False
            found = True
    return found


def _time(found: MinedPattern, text: str) -> float | None:
    """When a pattern is first seen in a text; kept lines are in no order, so only their own times count."""
    hits = (line_at(text, hit.start()) for hit in compiled(found.search).finditer(text))
    times = [time for line in hits if (time := peel(line.encode("utf-8", "replace")).time) is not None]
    return min(times, default=None)
