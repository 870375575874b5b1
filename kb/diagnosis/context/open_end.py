"""What the end of the logs shows about a run whose outcome is not proven: in words, and as the last meaningful lines.

It doesn't claim an outcome. It says how far the run came, and what its logs end with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kb.facts.job_facts import Facts
from kb.facts.log.run_ends import COLOUR
from kb.facts.log.stages import text_of
from kb.facts.log.stream_facts import StreamFacts
from kb.facts.standstill import in_words
from kb.regex.lazy import lazy_compile
from kb.report import Progress
from kb.scanning.summary import tail_lines

FEW_LOGS = 2  # up to so many logs, several last lines of each are shown
LINES = 3
_CUT = 300  # characters of a line, where several are shown
_SHORTEST = 3  # letters and digits of a line that says something
_OLD = 60.0  # seconds; a younger last step says nothing
_NOTHING = lazy_compile(
    r"(?i)\b(?:trace|debug|info|notice|warn(?:ing)?|error|stdout|stderr|(?:default|rank|trainer|node)\d{0,6})\b|\((?:\w{1,60} )?pid=\d{1,9}\)"
)  # words that only say who writes
_SAVES = lazy_compile(
    r"(?i)\b(?:sav(?:ed|ing)|wrote|writ(?:ing|ten)|stor(?:ed|ing))\b.{0,80}(?:model|checkpoint|ckpt|weights|state|snapshot|epoch)"
)
_EPOCH = lazy_compile(r"(?i)(?:\bepochs?\W{0,4}|\[ ?valid(?:ation)? ?\| ?)(\d{1,7}) ?(?:/|of) ?(\d{1,7})\b(?!/)")
_NOT_SAVED = lazy_compile(r"(?i)\b(?:not|never|every|fail\w*|error|cannot|could|unable|if|when)\b")


def open_end(done: Progress, facts: Facts, *, troubled: bool = False) -> str:
    """Return how far the run came and what its logs end with, as part of a sentence; empty if they show neither.

    `troubled`: a line at the end of a log may report an error, though nothing shows that it ended the run.
    """
    streams = [stream for stream in facts.streams if stream.summary.ref.kind == "job"]
    step, total = done.last_iteration, done.total_iterations
    if any(stream.points and stream.stages.closing for stream in streams):
        return f"its training loop is over{_and_then(troubled)}"
    if epoch := _last_epoch(streams):  # says more than a bar, which may be that of a part of it
        return f"its logs end in the last epoch, {epoch} of {epoch}{_and_then(troubled)}"
    if step is not None and total and step >= total:
        return f"it reached its last step, {step} of {total}{_and_then(troubled)}"
    trained = [stream for stream in streams if stream.points] or streams
    if not troubled and trained and all(_ends_in_save(stream) for stream in trained):
        reached = f" after step {step}" if step is not None else ""
        return f"its logs end with a save{reached}, and show neither an error nor what came next"
    if step is not None:
        of = f" of {total}" if total else ""
        end = facts.evidence.job.end
        open_ended = f"is still running, or was stopped without a message{_age(done, facts)}"
        calm = f"{_broken(streams, step)} without an error, so it {open_ended if end is None else 'was stopped without a message'}"
        return f"its steps end at {step}{of}{_and_then(troubled) if troubled else calm}"
    return ""


def _and_then(troubled: bool) -> str:
    """Return what follows the end of the training, as part of a sentence."""
    if troubled:
        return ", but a line at the end of a log may report an error, and its own end is not logged"
    return ", and no error follows, but its own end is not logged"


def _broken(streams: Sequence[StreamFacts], step: int) -> str:
    """Return which number of the last step is not finite, as part of a sentence; empty if all are."""
    last = [point for stream in streams for point in stream.points[-1:] if point.step == step]
    for words, values in (
        ("a loss", [point.loss for point in last]),
        ("a gradient norm", [point.grad_norm for point in last]),
    ):
        bad = next((value for value in values if value is not None and not math.isfinite(value)), None)
        if bad is not None:
            return f", with {words} of {bad} but"
    return ""


def _last_epoch(streams: Sequence[StreamFacts]) -> str:
    """Return the number of the last epoch, if the last count of epochs at the end of a log is of it; else empty."""
    for stream in streams:
        lines = reversed([text for _, text in tail_lines(stream.summary)])
        found = next((found for text in lines if (found := _EPOCH.search(text[:_CUT]))), None)
        if found is not None and int(found[1]) == int(found[2]) > 0:
            return str(int(found[1]))
    return ""


def _ends_in_save(stream: StreamFacts) -> bool:
    """Whether the last line of a log that says something reports a save."""
    last = last_lines(stream, 1)
    text = COLOUR.sub("", last[-1][1]) if last else ""
    return _SAVES.search(text) is not None and _NOT_SAVED.search(text) is None


def _age(done: Progress, facts: Facts) -> str:
    """Return how old the last step was when the logs were collected; empty if that is unknown, or not long."""
    now, last = facts.evidence.job.collected_at, done.last_progress
    if now is None or last is None or now - last < _OLD:
        return ""
    return f" (its last step was {in_words(now - last)} old when the logs were collected)"


def last_lines(stream: StreamFacts, count: int) -> list[tuple[int, str]]:
    """Return the last few lines of a log that say something, with their offsets, in order; the last line if none does."""
    lines = [(at, line) for at, line in tail_lines(stream.summary) if line.strip()]
    last = len(lines) - 1
    telling = [
        item for place, item in enumerate(lines) if _says(item[1]) and (place == last or item[1] != lines[place + 1][1])
    ]  # the last of several alike
    return telling[-count:] or lines[-1:]


def _says(line: str) -> bool:
    """Whether a line has more than a time, a level and the name of its writer."""
    bare = _NOTHING.sub("", COLOUR.sub("", text_of(line[:_CUT])))
    return sum(character.isalnum() for character in bare) >= _SHORTEST


def shown_lines(stream: StreamFacts, logs: int) -> tuple[int, str] | None:
    """Return the end of a log as text and the offset of its first line. If there are few logs, the end has several lines."""
    found = last_lines(stream, LINES if logs <= FEW_LOGS else 1)
    if found and stream.points and stream.points[-1].offset >= found[-1][0]:
        found = found[-1:]  # those before it are steps, too
    if not found:
        return None
    return found[0][0], "\n".join(line[: 512 if len(found) == 1 else _CUT] for _, line in found)
