"""Lines after the last step of a log that show that the training loop is over, and what the program does then.

Only the lines that the summary keeps of the end of a log are searched, so this costs nothing while a log is scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from kb.facts.run_ends import end_lines, is_of_tracker
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.recoveries import quoted
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StageMark, StreamSummary, tail_lines

_CUT = 400  # characters of a line that are searched
# What a program prints once behind its loop: a summary of the whole run, the loop's own farewell, its last model.
_OVER = lazy_compile(
    r"(?i)(?:^|[]:|>-] )\W{0,8}(?:end|done) (?:of|with) (?:the )?(?:pre-?|fine-?)?(?:training|tuning)\b(?! (?:epoch|step|iter|batch|stage|phase|round))"
    r"|(?:^|[]:|>-] )\W{0,8}(?:(?:run|training|benchmark|final|performance|timing|overall|throughput) )?(?:summary|statistics|stats|results?)"
    r" (?:over|of|for|after|across) (?:all |the )?(?:last )?\d{1,9} (?:iteration|step|epoch|batch|update)(?:e?s)?\b"
    r"|(?:^|[]:|>-] )\W{0,8}(?:training|run|end[- ]of[- ](?:run|training)|final training) (?:summary|report)\W{0,8}$"
    r"|\b(?:pre-?|fine-?)?(?:training|tuning)(?: loop| run)? (?:is |has )?(?:now )?(?:over|complete[d]?|finished|done|ended)\W{0,4}(?:$|[.!;,:] )"
    r"|\bsav(?:e|ing) (?:the )?final (?:model|weights|checkpoint)s?\b(?! (?:every|at|if|when))"
)
# The loop of a test or an evaluation that follows, and the header that its result has.
_EVALUATES = lazy_compile(
    r"(?i)(?:^|[]:|>-] )\W{0,8}(?:start(?:ing)?|begin(?:ning)?|run(?:ning)?) (?:the )?(?:final |last )?(?:evaluation|validation|test(?:ing)?)\b"
    r"|\*{3,} ?running (?:evaluation|prediction|test\w*)"
)
_EVALUATED = lazy_compile(
    r"(?i)\*{3,} ?(?:eval|evaluate|test|predict|validation)\w{0,8} metrics|['\"](?:eval|test|predict)_runtime['\"] ?:"
)
# The last words of a tracking client, which end the program's own part.
_TRACKER_ENDS = lazy_compile(
    r"wandb(?:\x1b\[[\d;]{0,8}m)?: .{0,24}?(?:Run (?:history|summary):|Synced \d|Find logs at:|Waiting for W&B process to finish)"
)
# What only the exit of an interpreter or the destructors of a process print; after a failure, too.
_EXITS = lazy_compile(
    r"Exception ignored in (?:atexit callback|: ?<module 'threading')|process group has NOT been destroyed before (?:we destruct|it is being destructed)"
    r"|destroy_process_group\(\) was not called"
)
_COLOUR = lazy_compile(r"\x1b\[[\d;]{0,12}m")
_NOT_YET = lazy_compile(
    r"(?i)\b(?:if|when|until|once|unless|will|would|can|should|not|never|epoch|failed|failure|error|abort)\b"
)
# Every line that shows that a loop is over has one of these words; this test is much faster.
_WORDS = (
    *("train", "tuning", "summary", "statistics", "stats", "result", "saving", "save", "complet", "finish", "ended"),
    *("done", "succe", "wandb", "early", "reached", "total", "trials", "训练", "学習", "훈련", "обучение"),
)


def closing_marks(summary: StreamSummary, last: int, ends: Sequence[int]) -> list[StageMark]:
    """Return marks of what follows the training loop. `last`: the offset of the last step; `ends`: ends reported after it.

    "teardown" where the loop, or an evaluation behind it, is over; "evaluating" where an evaluation begins. Empty if
    nothing shows that the loop is over.
    """
    low = summary.tail.lower()
    if not ends and not any(word in low for word in _WORDS):
        return []
    lines = [(at, text_of(line)) for at, line in tail_lines(summary) if at > last]
    over = [at for at, line in lines if _is_over(line)]
    told = (end.offset for end in end_lines(lines) if end.how == "completed" and not is_of_tracker(end.line))
    first = min(chain(over, told, ends), default=None)
    if first is None:
        return []
    return [StageMark(first, "teardown"), *_later_marks((at, line) for at, line in lines if at > first)]


def exits(summary: StreamSummary, last: int) -> bool:
    """Whether a line after an offset, at the end of a log, is one that a process prints as it exits."""
    lines = (line[:_CUT] for at, line in tail_lines(summary) if at > last)
    return any(_EXITS.search(line) and not quoted(line.encode()) for line in lines)


def text_of(line: str) -> str:
    """Return a line without its time and other prefixes."""
    raw = line.encode("utf-8", "replace")
    return raw[peel(raw).end :].decode("utf-8", "replace").strip()


def _is_over(line: str) -> bool:
    text = _COLOUR.sub("", line[:_CUT])
    found = _OVER.search(text)
    return found is not None and not _NOT_YET.search(text) and not quoted(text.encode())


def _later_marks(lines: Iterable[tuple[int, str]]) -> Iterator[StageMark]:
    for at, line in lines:
        text = line[:_CUT]
        if _EVALUATES.search(text):
            yield StageMark(at, "evaluating")
        elif _EVALUATED.search(text) or _TRACKER_ENDS.search(text):
            yield StageMark(at, "teardown")
