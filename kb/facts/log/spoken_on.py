"""Exceptions that a program caught and logged, as the usual lines of the process that follow show.

An exception that nobody catches begins where its process or thread began, and nothing usual follows it. One that a function logs begins in
that function, and its process continues to print lines of forms that it printed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import lru_cache

from kb.anomalies.core.severity_words import is_consequence, is_raised, skeleton
from kb.facts.log.chained_exceptions import structure_start, wrapped_in
from kb.facts.log.line_writers import writer_of
from kb.model import Resource, Structure
from kb.parsers.logs.error_lines import error_level, message_of
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, kept_lines

ALIKE = 2  # excused exceptions of one place that show that its handler lives with them
SPOKEN = 3  # usual lines that show that a process went on
SPOKEN_UNKNOWN = 12  # likewise, where lines do not say which process wrote them
AGAIN, AGAIN_KINDS = 3, 2  # lines of a form, and forms, below an exception that show that its process works on
OFTEN = 3  # lines of a form before an exception, at least, of the steps or the pulse of a process …
MOST_OFTEN = 0.5  # … and their share of those of the form that it printed most often
SPOKEN_BY_MAIN = 8  # likewise, where a traceback begins in a main function, as it may also if nobody caught it
RECORD = 400  # bytes above a traceback within which the record that it belongs to ends
_FEWEST_WORDS = 2
_FEWEST_NUMBERS = 3  # of a row
_FEWEST_OTHERS = 2  # processes of a log of several
_ENTRY = lazy_compile(
    r"[^\n]{1,300}:\d{1,6} in (?:<module>|_bootstrap\w*|_?run\w*|_wrap\w*|_worker_loop|wrapper|\w*main\w*|_try\w*)(?:\n|$)"
)
_MAIN = lazy_compile(r"[^\n]{1,300}:\d{1,6} in \w*main\w*(?:\n|$)")
_GIVES_UP = lazy_compile(r"(?i)giv(?:ing|e|en) up|gave up|fatal|abort|exit|last attempt")
_DIGITS = lazy_compile(r"\d")
_NUMBER = lazy_compile(r"[-+]?\d[\d.:,]*(?:[eE][-+]?\d+)?")
_BLANKS = lazy_compile(r"\s+")
_LETTERS = lazy_compile(r"[^\W\d_]{3}")
_Words = tuple[str, ...]
_Line = tuple[int, Resource, _Words]  # offset, writer, words; none of a line that reports trouble


def caught_and_logged(
    summary: StreamSummary,
    exceptions: Sequence[Structure],
    in_frames: Callable[[int], bool],
    steps_after: Callable[[int], int],
    *,
    succeeded: bool = False,
) -> list[Structure]:
    """Return the exceptions after which their process continued with its usual lines.

    A single usual line is enough if the run made another step, if its scheduler says that it `succeeded`, if the process
    later raised an exception of its own, or if it is the line that the process printed most often. In a run that succeeded, a
    line that other processes print, too, is usual.
    """
    found = [item for item in exceptions if _may_be_caught(item) and not _ended_by(item, exceptions)]
    if not found:
        return []
    # lines that are not of a traceback; those of a message are no usual ones, unless usual lines look like a message
    kept = [(at, line) for at, line in kept_lines(summary) if line.strip() and not in_frames(at)]
    first = min(item.offset for item in found)
    later = [_usual(summary, at, line) for at, line in kept if at > first]
    usual = {words for _, _, words in later if words}
    if not usual:
        return []
    # of the lines before, those whose words are not those of a later one only count for how often they were printed
    before = (_usual(summary, at, line, usual) for at, line in kept if at <= first)
    lines = [*before, *later]
    ends = [item for item in exceptions if item not in found and not int(item.fields.get("chain") or 0)]
    return [
        item
        for item in found
        if _went_on(item, lines, ends, summary, ran=succeeded or bool(steps_after(item.offset)), succeeded=succeeded)
    ]


def caught_as_before(
    summary: StreamSummary,
    exceptions: Sequence[Structure],
    excused: Sequence[Structure],
    in_traceback: Callable[[int], bool],
) -> list[Structure]:
    """Return the exceptions that the handler of several excused ones caught, too: the same class from the same frames.

    It was no more harmful than these if some of them came later, if another exception, which nobody caught, ended the program, or
    if its process then printed lines that report no trouble, to the end.
    """
    sites: dict[tuple[object, str], list[int]] = {}
    for item in excused:
        if item.fields.get("frames"):
            sites.setdefault(_site(item), []).append(item.offset)
    known = {item.offset for item in excused}
    left = [item for item in exceptions if item.offset not in known]
    alike = [item for item in left if _may_be_caught(item) and len(sites.get(_site(item), ())) >= ALIKE]
    ended = bool(alike) and any(_nobody_caught(item) for item in left)
    if not alike or ended:
        return alike
    last = max(item.end for item in alike)
    kept = [(at, line) for at, line in kept_lines(summary) if at >= last and line.strip() and not in_traceback(at)]
    writers = {summary.ref.resource if summary.ref.resource.rank is not None else item.resource for item in alike}
    goes_on = len(writers) == 1 and _ends_quietly(summary, kept, writers.pop())
    return [item for item in alike if goes_on or sum(at > item.offset for at in sites[_site(item)]) >= ALIKE]


def _ends_quietly(summary: StreamSummary, kept: Sequence[tuple[int, str]], writer: Resource) -> bool:
    """Whether a writer's last lines, or all last lines if it is not known, report no trouble, behind what its handler says at once."""
    own = [line for at, line in kept if not _is_known(writer) or _is_same(_said(summary, at, line)[1], writer)]
    trouble = [_reports_trouble(_DIGITS.sub("0", line[:1024])) for line in own]
    said = [line for line, bad in zip(own, trouble, strict=True) if bad]
    quiet = len(own) - len(said)
    return quiet >= SPOKEN and not any(trouble[len(said) :]) and not any(map(_GIVES_UP.search, said))


def _site(item: Structure) -> tuple[object, str]:
    return item.fields.get("type"), str(item.fields.get("frames") or "").partition(" [repeated ")[0]


def _nobody_caught(item: Structure) -> bool:
    """Whether a traceback begins where a program or a process does, and says more than that another one ended."""
    return _ENTRY.match(str(item.fields.get("frames") or "")) is not None and not is_consequence(item.line)


def _ended_by(item: Structure, exceptions: Sequence[Structure]) -> bool:
    """Whether an exception was raised from another one, as its direct cause, and nobody caught that one."""
    return any(map(_nobody_caught, wrapped_in(exceptions, item)[-1:]))


def _may_be_caught(item: Structure) -> bool:
    """Whether a traceback begins within a program, not where a process or a thread does."""
    frames = str(item.fields.get("frames") or "")
    entry = _ENTRY.match(frames) is not None and _MAIN.match(frames) is None
    return bool(frames) and not item.fields.get("lived_with") and not entry


def _said(summary: StreamSummary, at: int, line: str) -> _Line:
    """Return a line with its writer and its words."""
    own = summary.ref.resource
    words = skeleton(message_of(line[:1024]))
    if len(words) < _FEWEST_WORDS:
        words = _row(line[:1024])
    return at, own if own.rank is not None else writer_of(summary, line), words


def _row(line: str) -> _Words:
    """The form of a row of a table in place of its words, as trainers print their steps; nothing of other lines."""
    numbers, form = len(_NUMBER.findall(line)), _NUMBER.sub("0", line)
    return (_BLANKS.sub(" ", form).strip(),) if numbers >= _FEWEST_NUMBERS and not _LETTERS.search(form) else ()


def _usual(summary: StreamSummary, at: int, line: str, known: Container[_Words] | None = None) -> _Line:
    """Return a line with its writer and its words; without words if it reports trouble, which is not asked of others than `known` ones."""
    _, who, words = _said(summary, at, line)
    if known is not None and words not in known:
        return at, who, words
    return at, who, () if not words or _reports_trouble(_DIGITS.sub("0", line[:1024])) else words


@lru_cache(maxsize=2048)
def _reports_trouble(line: str) -> bool:
    """Whether a line reports trouble. Digits do not tell, so one answer holds for all lines that differ in nothing else."""
    raised = is_raised(message_of(line))
    return raised or is_consequence(line) or bool(error_level(line.encode("utf-8", "replace")))


def _went_on(
    item: Structure,
    lines: Sequence[_Line],
    ends: Sequence[Structure],
    summary: StreamSummary,
    *,
    ran: bool,
    succeeded: bool,
) -> bool:
    start = structure_start(item)
    writer = summary.ref.resource if summary.ref.resource.rank is not None else item.resource
    if not _is_known(writer):  # the record above a traceback may name its writer, where the traceback itself does not
        writer = next((who for at, who, _ in reversed(lines) if start - RECORD <= at < start), writer)
    known = _is_known(writer)
    own = [line for line in lines if line[2] and (_is_same(line[1], writer) if known else not _is_known(line[1]))]
    before, after = {words for at, _, words in own if at < start}, [line for line in own if line[0] > item.offset]
    usual = sum(words in before for _, _, words in after)
    shared = {words for _, who, words in lines if words and not _is_same(who, writer)}
    again = Counter(words for at, _, words in after if at >= item.end)
    if known and _works_on(again, before):
        return True
    if _MAIN.match(str(item.fields.get("frames"))):
        alike = [words for _, _, words in after if words in shared]
        return known and len(alike) >= SPOKEN_BY_MAIN and len(set(alike)) > 1
    if known:
        later = [
            end
            for end in ends
            if end.offset > item.end and (_is_same(end.resource, writer) or end.resource.rank is None)
        ]
        # behind all that may be of its message, or a line that is none of it since it was printed before, or by others
        below = next((at for at, _, words in after if at >= item.end or words in before or words in shared), None)
        between = below is not None and any(below < end.offset for end in later)
        usual += succeeded and any(words in shared for _, _, words in after)
        return between or usual >= (1 if ran else SPOKEN) or _goes_on_counting(own, start, after, before | shared)
    # of lines that name no writer, those right below an exception may all be of its message
    after = [line for line in after if line[0] >= item.end]
    usual = sum(words in before for _, _, words in after)
    if (
        _all_raised_later(item, ends)
        and after
        and after[0][0] < min(end.offset for end in ends if end.offset > item.end)
    ):
        return True
    others = {_key(who) for at, who, _ in lines if at < start and _is_known(who)}
    if len(others) < _FEWEST_OTHERS:
        return usual >= (SPOKEN if ran else SPOKEN_UNKNOWN)
    spoken = Counter(_key(who) for at, who, words in lines if at >= item.end and words)
    return all(spoken[other] >= (1 if ran else SPOKEN) for other in others)


def _works_on(again: Counter[_Words], before: Container[_Words]) -> bool:
    """Whether a process printed several kinds of lines again and again, as one that ends does not; one of its usual kinds is enough."""
    often = [words for words, count in again.items() if count >= AGAIN]
    return len(often) >= AGAIN_KINDS or any(words in before for words in often)


def _goes_on_counting(own: Sequence[_Line], start: int, after: Sequence[_Line], usual: Container[_Words]) -> bool:
    """Whether a process printed a line of its steps or its pulse again: the one that it had printed most often, or a usual one twice.

    A process that ends prints each of its closing lines once.
    """
    often = Counter(words for at, _, words in own if at < start)
    again = Counter(words for _, _, words in after if words in usual)
    most = max(often.values(), default=0)
    return any(often[words] >= max(OFTEN, most * MOST_OFTEN) for words in again) or max(again.values(), default=0) > 1


def _all_raised_later(item: Structure, ends: Sequence[Structure]) -> bool:
    """Whether every rank raised an exception of its own after one, so that whoever wrote it was alive."""
    ranks = {end.resource.rank for end in ends if end.offset > item.end} - {None}
    return len(ranks) >= _FEWEST_OTHERS and ranks == set(range(len(ranks)))


def _is_known(who: Resource) -> bool:
    return who.rank is not None or who.local_rank is not None


def _is_same(left: Resource, right: Resource) -> bool:
    """Whether two lines of one log are of the same process, as far as they name it."""
    if left.rank is not None and right.rank is not None:
        return left.rank == right.rank
    return left.local_rank is not None and left.local_rank == right.local_rank


def _key(who: Resource) -> tuple[int | None, int | None]:
    return (who.rank, None) if who.rank is not None else (None, who.local_rank)
