"""The end of a job that each of its processes shows by the same closing line: `done`, `learner finished`, `exit code 0`.

One process may say "done" of anything. That all processes of a job say it, once, as the last that they print, is the end of
the whole program. The figures of its steps must be even up to it: a job that got slow, or one rank of which waited for data,
closes in the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from kb.facts.log.common_end import OVER, OVER_WITHOUT_SPACES
from kb.facts.log.run_ends import COLOUR, EndLine, has_word
from kb.model import ProgressPoint
from kb.parsers.logs.error_lines import message_of
from kb.regex.lazy import lazy_compile

FEWEST = 2  # processes
_CUT = 400  # characters of a line that are searched
_LEAST_POINTS = 8  # step lines on which a pace can be judged
_SLOWER = 1.6  # times its pace at the start from which a job got slower
_UNEVEN = 5.0  # times its peers' from which one rank's seconds stand out, where they are this share of a step
_SHARE = 0.2
_LEAP = 2.0  # times the rate before from which a learning rate was set again, after it changed this little some times
_GLIDE = 1.3
_SMOOTH = 3
_LAST_RATES = 2

_WHO = r"(?:train(?:ing|er)?|run|job|work(?:er)?|learner|actor|rank|process|proc|task|main|script|program|everything|fit(?:ting)?|loop|experiment)"
_OVER = rf"(?:{OVER}|over|{OVER_WITHOUT_SPACES})"
_CLOSING = lazy_compile(
    rf"(?i)(?:(?:the|this|all|my|our|event|ev|msg|message|status|state) ?[=:]? ?){{0,2}}(?:[a-z]?\d{{1,6}} )?(?:{_WHO}[ _-]?(?:\d{{1,6}} ?)?(?:: )?){{0,2}}"
    rf"(?:(?:is|has|was) )?(?:all )?{_OVER}(?: (?:after|in|at) [\d.]{{1,12}} ?(?:s|sec|seconds|min|minutes|h|hours|steps|iterations|updates)?)?[\s.!]{{0,4}}"
)
_EXITED = lazy_compile(r"(?i)(?<![A-Za-z])exit(?:ed|s)?\b.{0,60}\b(?:code|status|rc)\W{1,4}0\b(?!\.)")
# what else a program's parts call done: then the words before say which
_OF_A_PART = lazy_compile(
    r"(?i)sav|ckpt|checkpoint|snapshot|eval|valid|test|step|epoch|load|upload|download|init|warm|compil|setup|cache|sync|barrier|shard|batch|phase|stage\b"
)
_SEGMENT = lazy_compile(r"[\]|>)}]|: |- |\b(?:DEBUG|INFO|NOTICE|info|debug|notice)\b")
_EVENT = lazy_compile(r'"(?:ev|event|status|state)" ?: ?"(?P<said>[^"]{1,80})"')
_DIGITS = lazy_compile(r"\d+")
_WORDS = ("finish", "complet", "done", "over", "ended", "exit", "fertig", "beendet", "abgeschl", "termin", "finaliz")
_WORDS_ELSEWHERE = ("conclu", "完", "结束", "結束", "終了", "заверш", "оконч")


def common_closing(logs: Sequence[Sequence[tuple[int, str]]], processes: int) -> list[tuple[int, EndLine]]:
    """Return the closing line of each process, with the index of its log; empty unless all processes close alike.

    `logs`: offset and text of the last lines of each log, in order. `processes`: how many the job is known to have.
    """
    found: list[tuple[str, int, EndLine]] = []
    for index, lines in enumerate(logs):
        said = [(at, line) for at, line in lines if line.strip()]
        closing = list(_last_run(said))
        forms = {form for form, _ in closing}
        before = said[: len(said) - len(closing)] if closing else ()
        if any(_form(line) in forms for _, line in before):
            return []  # said of each epoch, or of each save
        found += [(form, index, end) for form, end in closing]
    counted = Counter(form for form, _, _ in found)
    most, count = max(counted.items(), key=lambda item: item[1], default=("", 0))
    if count < max(FEWEST, processes):
        return []
    return [(index, end) for form, index, end in found if form == most]


def _last_run(said: Sequence[tuple[int, str]]) -> Iterator[tuple[str, EndLine]]:
    """Yield the lines with which a log ends that are all closing ones, the last first."""
    for at, line in reversed(said):
        form = _form(line)
        if form is None:
            return
        yield form, EndLine("completed", at, line)


def _form(line: str) -> str | None:
    """Return the closing words of a line, without its writer and numbers; None if it does not close a process."""
    text = COLOUR.sub("", line[:_CUT])
    if not has_word(text, _WORDS) and not has_word(text, _WORDS_ELSEWHERE):
        return None
    if _EXITED.search(text.replace('"', " ")) is not None:
        return "exit 0"
    said = message_of(text)
    if said.startswith("{") and (event := _EVENT.search(said)):
        said = event["said"]
    cuts = [0, *(cut.end() for cut in _SEGMENT.finditer(said)), said.rfind(" ev") + 1]
    for start in sorted(cuts):
        if _CLOSING.fullmatch(said, start + (len(said[start:]) - len(said[start:].lstrip()))):
            return None if _OF_A_PART.search(said[:start]) else _DIGITS.sub("#", said[start:].strip().lower())
    return None


def even_to_the_end(series: Iterable[Sequence[ProgressPoint]]) -> bool:
    """Whether the steps of a job keep their pace, no rank's own seconds stand out, and no learning rate is set again.

    `series`: the step lines of each log. Where too few can be read, nothing shows that they are even.
    """
    every = [list(points) for points in series]
    if sum(map(len, every)) < _LEAST_POINTS:
        return False
    by_rank: dict[tuple[int, int | None], list[ProgressPoint]] = {}
    for index, points in enumerate(every):
        for point in points:
            by_rank.setdefault((index, point.rank), []).append(point)
    return all(_keeps_pace(points) and not _rate_leaps(points) for points in by_rank.values()) and not _stands_out(
        list(by_rank.values())
    )


def _keeps_pace(points: Sequence[ProgressPoint]) -> bool:
    paces = [
        (later.time - earlier.time) / (later.step - earlier.step)
        for earlier, later in pairwise(points)
        if earlier.time is not None and later.time is not None and earlier.step is not None
        if later.step is not None and later.step > earlier.step and later.time > earlier.time
    ]
    if len(paces) < _LEAST_POINTS:
        return True
    third = len(paces) // 3
    return median(paces[-third:]) < _SLOWER * median(paces[1 : 1 + third])


def _rate_leaps(points: Sequence[ProgressPoint]) -> bool:
    """Whether a learning rate that moved smoothly makes one leap; its last values, near zero, may."""
    rates = [point.learning_rate for point in points if point.learning_rate]
    changes = [later / earlier for earlier, later in pairwise(rates)][:-_LAST_RATES]
    smooth = 0
    for change in changes:
        if smooth >= _SMOOTH and not 1 / _LEAP < change < _LEAP:
            return True
        smooth = smooth + 1 if 1 / _GLIDE < change < _GLIDE and change != 1 else 0
    return False


def _stands_out(ranks: Sequence[Sequence[ProgressPoint]]) -> bool:
    """Whether one rank waits for data, or works, much longer than another, for a good part of its steps."""
    for field in ("data", "compute"):
        typical = []
        for points in ranks:
            values = [value for point in points if (value := getattr(point, field)) is not None]
            if len(values) >= _LEAST_POINTS:
                typical.append(median(values))
        seconds = [point.seconds for points in ranks for point in points if point.seconds]
        step = median(seconds) if seconds else 0.0
        if len(typical) >= FEWEST and max(typical) > _UNEVEN * min(typical) and max(typical) > _SHARE * step > 0:
            return True
    return False
