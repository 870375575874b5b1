"""Learns from the first lines of a stream how each of them names its rank, where no known form does.

Launchers, shells and log shippers put a prefix of their own before the lines of several processes. Whatever its form, one number of it
behaves as ranks do (kb.templates.rank_numbers). Structured lines (logfmt, the data of syslog lines) carry it under a key, whatever the key is called.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest

from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.timestamps import STAMP
from kb.templates.masking import fold, rank_in
from kb.templates.named_ranks import rank_by
from kb.templates.rank_numbers import (
    COVERED,
    FEWEST_RANKS,
    KINDS,
    KINDS_IN_TURN,
    LETTERS,
    PRESENT,
    PlaceNumbers,
    agrees,
    is_rank,
)
from kb.templates.structured_lines import message_of

HEAD = 64 * 1024  # bytes of a stream that are examined
MOST_LINES = 1000
FEWEST_LINES = 24
PREFIX = 120  # bytes of a line in which its rank is looked for
MOST_NUMBERS = 6  # in a prefix
MOST_PAIRS = 12  # of a structured line
FEWEST_OWN = 12  # lines of a log of one rank
ENOUGH = 0.95  # share of the lines that name their rank in a known form, from which on no other is needed
RARE = 0.02  # of a field's lines have a prefix of their own, which is then one of its forms
KEYED = 0.3  # share of the lines that have the key: launchers and tracebacks add lines without it
KEY_HEAD = 800  # bytes of a line in which a key is looked for: JSON objects may end with it

_STAMP = re.compile(STAMP + rb"|(?<![\d:.])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![\d:])")
_CONTINUED = re.compile(rb"(?:\t| {2,})[^\s\d\[(<|]")
_BLANKS = re.compile(rb"[ \t]+")  # columns are padded
_NUMBER = re.compile(
    rb"(?<![\w.])\d{1,5}(?![\w.])|(?<=[A-Za-z_])\d{1,5}(?!\w|\.[^a-z])|(?<=[A-Za-z\d]-)\d{1,5}(?![\w-]|\.\d)|(?<=[A-Za-z]\.)\d{1,5}(?![\w.-])"
)
_BEHIND = re.compile(rb"[^\w\s][^\w\s\[({<\"'/]{0,2}[ \t]?|[ \t]{1,8}[^\w\s]{1,2}[ \t]{1,8}|[ \t]{1,8}")
_NAME_BEHIND = re.compile(rb"[\w.-]{1,64}[ \t]{0,2}(?:::|[:|>\]])[ \t]")
_WORD = re.compile(rb"[\w.-]+")
_PADDING = re.compile(rb"(?<![\w.-])[ \t]{1,6}$|(?<=[\w.-][ \t])[ \t]{1,6}$")  # numbers may be aligned to the right
_NAMED = re.compile(rb"[\w.-]*[A-Za-z][\w.-]*")
_PAIR = re.compile(  # logfmt or JSON; the number may be behind a word: `"pod": "lm-worker-3"`
    rb"(?<![\w.-])(?P<key>[A-Za-z][A-Za-z_]{0,23})(?P<equals>=\"?|\": ?\"?)(?P<name>[^\"\s\\{}:,=]{0,60}(?<![A-Za-z])(?=[A-Za-z])|)(?P<word>(?:[A-Za-z]{1,24}[@/._-]?)?)"
    rb"(?P<number>\d{1,5})(?!\w|-|\.\d)"
)
_SUFFIX = re.compile(
    rb"(?P<before>[(\[<{](?P<word>[A-Za-z][A-Za-z_]{0,23})[ :=#_-]?)(?P<number>\d{1,5})(?P<behind>[)\]>}])[ \t\r]{0,4}$"
)
_OPENED = re.compile(rb"[(\[<{][A-Za-z][\w.]{0,23}[ :=#_-]?\Z")  # a bracket, before a number
_KEY = re.compile(rb"\"[A-Za-z_.]{1,40}\": ?")
_NOT_GLOBAL = re.compile(
    rb"(?i)(?:local|node|gpu|device|cuda|thread)(?:[_-]?(?:rank|id|index))?"
)  # counted again on each node

ACTOR = re.compile(  # of Ray, by its process id
    rb"(?:\x1b\[[\d;]{1,8}m)?\([A-Za-z_][\w.:]{0,60} pid=(?P<rank>\d{1,10})(?:, ip=[\w.:]{1,45})?\)(?:\x1b\[0m)? ?"
)
Form = tuple[bytes, bytes]  # what stands before the number, with `w` for each word, and behind it


def rank_prefix_of(head: bytes) -> re.Pattern[bytes] | None:
    """The form of a prefix whose group `rank` is the rank, for folded lines; None if the first bytes of a stream show none.

    The expression has a group `key` if it is to be searched for in the line rather than to be matched at its start.
    """
    lines = _first_lines(head)
    if len(lines) < FEWEST_LINES:
        return None
    named = [rank_in(line) for line in lines]
    if _is_of_actors(lines, named):
        return ACTOR
    silent = named.count(None)
    share = 1 - silent / len(lines)
    others = len(lines) if share > ENOUGH else max(FEWEST_LINES, silent)
    key = _key_of(lines, named) if share <= ENOUGH else None
    if key is not None and sum(line.startswith(b'{"') for line in lines) > KEYED * len(lines):
        return key  # of objects
    found: dict[Form, PlaceNumbers] = defaultdict(PlaceNumbers)
    fields: dict[Form, PlaceNumbers] = defaultdict(PlaceNumbers)
    ways: dict[Form, Counter[bytes]] = defaultdict(Counter)
    for index, line in enumerate(map(message_of, lines)):
        for form, value, words, rest, opened in _numbers(line):
            found[form].add(index, value, rest, words)
            if opened and index not in fields[opened, form[1]].lines:
                fields[opened, form[1]].add(index, value, rest, words)
                ways[opened, form[1]][form[0]] += 1
    fitting = [
        form
        for form, numbers in found.items()
        if is_rank(numbers, others) and _is_global(numbers) and agrees(numbers, named)
    ]
    if share > ENOUGH:  # unless the prefix also names a host: it would make templates of each host's own
        fitting = [form for form in fitting if _names_host(found[form])]
    else:
        fitting = [form for form in fitting if any(named[line] is None for line in found[form].lines)]
    best = max(fitting, key=lambda form: (len(set(found[form].values)), -len(form[0]), form), default=None)
    learned = None if best is None else _compiled(best)
    if share <= ENOUGH and (best is None or best[0].endswith(b"w")):
        several = _field_of(fields, ways, lambda numbers: is_rank(numbers, others) and agrees(numbers, named))
        learned = several or learned
    if learned is not None and _holds_behind(learned, lines, named):
        return _with_name(learned, lines)
    return key or (_suffix_of(lines, named) if share <= ENOUGH else None)


def _field_of(
    fields: Mapping[Form, PlaceNumbers], ways: Mapping[Form, Counter[bytes]], fits: Callable[[PlaceNumbers], bool]
) -> re.Pattern[bytes] | None:
    """The word in brackets that names the rank behind several prefixes: those of a logger, and none before the lines of a traceback."""
    several: dict[Form, list[bytes]] = {}
    for field, numbers in fields.items():
        often = [before for before, lines in ways[field].items() if lines >= max(2, RARE * len(numbers.lines))]
        word = _WORD.search(field[0])
        if len(often) > 1 and not (word and _NOT_GLOBAL.fullmatch(word[0].strip(b"._-"))) and fits(numbers):
            several[field] = often
    best = max(several, key=lambda field: (len(fields[field].lines), field), default=None)
    if best is None:
        return None
    before = b"|".join(_before(way) for way in sorted(several[best], key=lambda way: (-len(way), way)))
    return re.compile(b"(?:" + before + b")" + _number_and(best[1]))


def shared_prefix_of(heads: Sequence[bytes]) -> re.Pattern[bytes] | None:
    """The form of a prefix, as `rank_prefix_of`, by the first bytes of several streams that hold some of a job's ranks each.

    None if the lines of all of them together show none, or the same rank is named in two streams: then each counts its own.
    """
    alike = [_first_lines(head) for head in heads]
    mixed = [line for lines in zip_longest(*alike) for line in lines if line]
    learned = rank_prefix_of(b"\n".join([*mixed, b""]))
    if learned is None:
        return None
    named = [ranks for lines in alike if (ranks := _ranks_by(learned, lines))]
    apart = sum(map(len, named)) == len(set().union(*named))
    return learned if apart and len(named) > 1 and all(len(ranks) > 1 for ranks in named) else None


def names_several_each(heads: Sequence[bytes]) -> bool:
    """Whether each of several streams names several of a job's ranks, which no other does: then they are logs of nodes."""
    alike = [_first_lines(head) for head in heads]
    if len(heads) < 2 or not all(alike):
        return False
    learned = shared_prefix_of(heads)
    if learned is None:
        return _are_apart([_known(lines) for lines in alike])
    return all(len(_ranks_by(learned, lines)) > 1 for lines in alike)


def _known(lines: Sequence[bytes]) -> set[int]:
    """The ranks that most lines name in a known form."""
    named = [rank for line in lines if (rank := rank_in(line)) is not None]
    return set(named) if len(named) >= COVERED * len(lines) else set()


def _are_apart(named: Sequence[set[int]]) -> bool:
    """Whether each of several streams names several ranks, which no other does, and all of them those from 0 on."""
    every = set().union(*named)
    apart = sum(map(len, named)) == len(every) and all(len(ranks) > 1 for ranks in named)
    return apart and len(every) >= max(FEWEST_RANKS, PRESENT * (max(every) + 1))


def _ranks_by(form: re.Pattern[bytes], lines: Sequence[bytes]) -> set[int]:
    """The ranks that lines name in a form."""
    return {rank for line in lines if (rank := rank_by(form, line)) is not None}


def _first_lines(head: bytes) -> list[bytes]:
    """The first lines of a stream, without those that continue the one before."""
    lines = [line for line in head[:HEAD].split(b"\n")[:-1] if line.strip() and not _CONTINUED.match(line)]
    return lines[:MOST_LINES]


def _is_of_actors(lines: Sequence[bytes], named: Sequence[int | None]) -> bool:
    """Whether most lines are of several actors of Ray, which are told apart by their process ids as they name no rank."""
    pids = Counter(match["rank"] for line in lines if (match := ACTOR.match(line)) is not None)
    told = sum(rank is not None for rank in named)
    return len(pids) >= FEWEST_RANKS and pids.total() >= COVERED * len(lines) and told <= (1 - COVERED) * len(lines)


def own_prefix_of(head: bytes, rank: int) -> re.Pattern[bytes] | None:
    """The form of a prefix before the lines of a single rank, as `rank_prefix_of`; None if none names it, or all that do are known."""
    lines = _own_lines(head)
    enough = max(FEWEST_OWN, COVERED * len(lines))
    fitting = [
        form
        for form, kinds in _own_forms(lines, rank).items()
        if kinds.total() >= enough and len(kinds) >= KINDS_IN_TURN
    ]
    best = min(fitting, key=lambda form: (len(form[0]), form), default=None)
    return None if best is None else _with_name(_compiled(best), lines)


def shared_own_prefix_of(heads: Sequence[tuple[bytes, int]]) -> re.Pattern[bytes] | None:
    """The form of a prefix with which each of several logs of one rank names its own, as `own_prefix_of`.

    A number that is each log's own rank is no chance, so fewer kinds of lines are needed than in one log.
    """
    found: dict[Form, Counter[bytes]] = defaultdict(Counter)
    ranks: dict[Form, set[int]] = defaultdict(set)
    every = [(_sample(_own_lines(head), MOST_LINES // max(len(heads), 1)), rank) for head, rank in heads]
    for lines, rank in every:
        for form, kinds in _own_forms(lines, rank).items():
            if kinds.total() >= COVERED * len(lines):
                found[form] += kinds
                ranks[form].add(rank)
    half = max(2, len({rank for _, rank in every}) / 2)
    fitting = [
        form
        for form, kinds in found.items()
        if len(ranks[form]) >= half and kinds.total() >= FEWEST_OWN and len(kinds) >= KINDS
    ]
    best = min(fitting, key=lambda form: (len(form[0]), form), default=None)
    return None if best is None else _with_name(_compiled(best), [line for lines, _ in every for line in lines])


def _own_lines(head: bytes) -> list[bytes]:
    return [line for line in head[:HEAD].split(b"\n")[:-1] if line.strip()][:MOST_LINES]


def _sample(lines: list[bytes], most: int) -> list[bytes]:
    """As many of the lines at most, in order, by a hash of their places: every second or third line could be of one kind."""
    places = range(len(lines)) if len(lines) <= most else sorted(sorted(range(len(lines)), key=_mixed)[:most])
    return [lines[place] for place in places]


def _mixed(number: int) -> int:
    mixed = (number + 1) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF


def _own_forms(lines: Sequence[bytes], rank: int) -> Mapping[Form, Counter[bytes]]:
    """By the form of a prefix that names the rank the kinds of lines behind it, with their number."""
    found: dict[Form, Counter[bytes]] = defaultdict(Counter)
    own = re.compile(rb"(?<!\d)0{0,4}%d(?!\d)" % rank)
    for line in lines:
        if not own.search(line, 0, PREFIX):
            continue
        known = -1
        for form, _, _, rest, _ in _numbers(line, rank):
            known = peel(line).end if known < 0 else known
            if len(line) - len(rest) > known and not rest.startswith(b":"):
                found[form][b" ".join(LETTERS.findall(rest)[:6])] += 1
    return found


def _key_of(lines: Sequence[bytes], named: Sequence[int | None]) -> re.Pattern[bytes] | None:
    """The key under which structured lines carry their rank, alone or after a word that is the same in all (`worker-3`)."""
    found: dict[tuple[bytes, ...], PlaceNumbers] = defaultdict(PlaceNumbers)
    for index, line in enumerate(lines):
        for match in islice(_PAIR.finditer(line, 0, KEY_HEAD), MOST_PAIRS):
            rest = _KEY.sub(b" ", line[: match.start()] + line[match.end() :])
            form = match["key"], match["equals"], match["word"]
            found[form].add(index, int(match["number"]), rest)
    fitting = [
        key
        for key, numbers in found.items()
        if not _NOT_GLOBAL.fullmatch(key[0]) and is_rank(numbers, len(lines), KEYED) and agrees(numbers, named)
    ]
    best = max(fitting, key=lambda key: (len(set(found[key].values)), key), default=None)
    if best is None:
        return None
    name, equals, word = map(re.escape, best)
    before = rb"(?:[^\"\s\\{}:,=]{0,60}(?<![A-Za-z]))?" if best[2] else b""
    return re.compile(rb"(?<![\w.-])(?P<key>%s)%s%s%s(?P<rank>0{1,5})(?!\w|-|\.0)" % (name, equals, before, word))


def _suffix_of(lines: Sequence[bytes], named: Sequence[int | None]) -> re.Pattern[bytes] | None:
    """The word in brackets at the end of the lines behind which their rank stands: `(task 3)`."""
    found: dict[tuple[bytes, bytes], PlaceNumbers] = defaultdict(PlaceNumbers)
    for index, line in enumerate(lines):
        match = _SUFFIX.search(line)
        if match is not None and not _NOT_GLOBAL.fullmatch(match["word"]):
            found[match["before"], match["behind"]].add(index, int(match["number"]), line[: match.start()])
    fitting = [form for form, numbers in found.items() if is_rank(numbers, len(lines)) and agrees(numbers, named)]
    if len(fitting) != 1:
        return None
    before, behind = map(re.escape, fitting[0])
    return re.compile(rb"(?P<key>%s)(?P<rank>0{1,5})%s[ \t\r]{0,4}(?:\n|\Z)" % (before, behind))


def _numbers(line: bytes, wanted: int | None = None) -> Iterator[tuple[Form, int, bytes, bytes, bytes]]:
    """The numbers of a prefix by their form, the words before them, the rest of the line, and the bracket with its word; no part of a time.

    `wanted`: the value that a number must have.
    """
    stamp = _STAMP.search(line, 0, PREFIX)
    taken = stamp.span() if stamp else (0, 0)
    numbers = (item for item in _NUMBER.finditer(line, 0, PREFIX) if not taken[0] <= item.start() < taken[1])
    for match in islice(numbers, MOST_NUMBERS):
        if line.find(b'{"', 0, match.start()) >= 0:  # within an object, whose keys are read by themselves
            return
        if wanted is not None and int(match[0]) != wanted:
            continue
        behind = _BEHIND.match(line, match.end())
        if behind is not None:
            before = line[: match.start()]
            words = b" ".join(_NAMED.findall(before[: taken[0]] + before[taken[1] :]))
            form = _WORD.sub(b"w", _PADDING.sub(b"", before)), behind[0]
            spaced = _BLANKS.sub(b" ", form[0]), _BLANKS.sub(b" ", form[1])
            opened = _OPENED.search(before)
            yield spaced, int(match[0]), words, line[behind.end() :], opened[0] if opened else b""


def _holds_behind(form: re.Pattern[bytes], lines: Sequence[bytes], named: Sequence[int | None]) -> bool:
    """Whether a form gives the same ranks where it stands behind a known prefix that names them."""
    both = []
    for line, rank in zip(lines, named, strict=True):
        rest = line[peel(line).end :] if rank is not None else b""
        if match := form.match(fold(rest)):
            both.append(int(rest[slice(*match.span("rank"))]) == rank)
    return sum(both) >= PRESENT * len(both)


def _is_global(numbers: PlaceNumbers) -> bool:
    """Whether the word before the numbers does not say that each node has its own."""
    words = numbers.beside[0].most_common(1)[0][0] if 0 in numbers.beside else b""
    return not _NOT_GLOBAL.fullmatch(words.rpartition(b" ")[2])


def _names_host(numbers: PlaceNumbers) -> bool:
    """Whether the words before a rank are the same in its lines and those of some other ranks, but not of all."""
    hosts = {words.most_common(1)[0][0] for words in numbers.beside.values()}
    return numbers.is_steady and 1 < len(hosts) < len(numbers.beside)


def _with_name(form: re.Pattern[bytes], lines: Sequence[bytes]) -> re.Pattern[bytes]:
    """The form with the name after the rank, as that of its host, if nearly all lines have one, and each rank always the same."""
    found: dict[int, Counter[bytes]] = defaultdict(Counter)
    for line in lines:
        match = form.match(fold(line := message_of(line)))
        if match is not None:
            name = _NAME_BEHIND.match(line, match.end())
            found[int(line[slice(*match.span("rank"))])][name[0] if name else b""] += 1
    several = sum((Counter(names) for names in found.values()), Counter[bytes]())
    steady = all(names.most_common(1)[0][1] >= PRESENT * names.total() for names in found.values())
    if not steady or several[b""] > (1 - PRESENT) * several.total():
        return form
    return re.compile(form.pattern + b"(?:" + _NAME_BEHIND.pattern + b")")


def _compiled(form: Form) -> re.Pattern[bytes]:
    return re.compile(_before(form[0]) + _number_and(form[1]))


def _before(before: bytes) -> bytes:
    """The expression of what stands before a number."""
    *parts, last = [_spaced(part) for part in before.split(b"w")]
    word, final = rb"[\w.-]{1,64}", rb"[\w.-]{0,63}[A-Za-z_.-]"  # digits next to the number are its own
    return word.join(parts) + (word if last else final) + last if parts else last


def _number_and(behind: bytes) -> bytes:
    """The expression of a rank and what stands behind it."""
    end = behind.rstrip(b" ")
    blank = b"[ \t]" if end and end != behind else b""  # no more: the lines of a traceback are indented
    return rb"[ \t]{0,6}(?P<rank>0{1,5})" + _spaced(end if blank else behind) + blank


def _spaced(text: bytes) -> bytes:
    return re.escape(text).replace(rb"\ ", rb"[ \t]{1,8}")
