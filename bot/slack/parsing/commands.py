"""Parses what people type after a command or mention. The functions are pure; all input is untrusted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.config.schema import seconds
from kb.errors import UnreadableInput
from kb.facts.scheduler_state import outcome_of

LONGEST = 256  # characters in a job's name
SHIFT = 12 * 3600.0  # seconds
USAGE = "/diagnose JOB [last 2h] [state FAILED] [private] [deep]"
HELP = ("help", "-h", "--help", "?")
_LINKED = re.compile(r"<(?:https?://|mailto:)[^|>]*\|([^>]*)>")  # Slack turns `train.py` into a link
_BARE_LINK = re.compile(r"<(https?://[^|>]*)>")
_QUOTES = "`'\"“”\u2018\u2019«»"
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_LAST = re.compile(r"(?:^|\s)last\s+([0-9][0-9.]*\s?[a-zA-Z]{1,8})$", re.IGNORECASE)
_STATE = re.compile(
    r"(?:^|\s)(?:--|\u2014|\u2013)?state[ =:]{1,3}(\S{1,40})$", re.IGNORECASE
)  # Slack may make one dash of two
_UNITS = {"min": "m", "mins": "m", "minutes": "m", "minute": "m", "hours": "h", "hour": "h", "hrs": "h", "hr": "h",
          "days": "d", "day": "d", "sec": "s", "secs": "s", "seconds": "s", "second": "s"}  # fmt: skip
_LONGEST_SPAN = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class DiagnoseCommand:
    """A parsed diagnosis request. `job` is empty if none was named; `last`: seconds; `state`: the job's, as a scheduler words it."""

    job: str
    last: float | None = None
    private: bool = False
    deep: bool = False
    state: str | None = None


@dataclass(frozen=True, slots=True)
class UsageError:
    """The input cannot be parsed; `problem` says why."""

    problem: str


def read_diagnose(text: str) -> DiagnoseCommand | UsageError:
    """Parse `<job> [last 2h] [state FAILED] [private] [deep]`. The words after the job may come in any order."""
    rest = plain(text)
    last: float | None = None
    state: str | None = None
    flags = {"private": False, "deep": False}
    while True:
        span, given = _LAST.search(rest), _STATE.search(rest)
        head, _, word = rest.rpartition(" ")
        if span is not None:
            found = _span(span[1])
            if found is None:
                return UsageError(f"“last {span[1]}” is not a time span. Write 30m, 2h or 1d.")
            last, rest = found, rest[: span.start()].rstrip()
        elif given is not None and (outcome_of(given[1]) is not None or " " not in rest[: given.start()].strip()):
            if outcome_of(given[1]) is None:
                return UsageError(
                    f"“{given[1]}” is no state of a job. Write FAILED, COMPLETED, RUNNING, CANCELLED or TIMEOUT."
                )
            state, rest = given[1].upper(), rest[: given.start()].rstrip()
        elif word.lower() in flags:
            flags[word.lower()], rest = True, head.rstrip()
        else:
            break
    job = unquoted(rest)
    if len(job) > LONGEST:
        return UsageError(f"A job name has at most {LONGEST} characters. This one has {len(job)}.")
    if not job.isprintable():
        return UsageError("A job name has no line breaks or control characters.")
    return DiagnoseCommand(job, last, flags["private"], flags["deep"], state)


def asks_for_help(text: str) -> bool:
    """Whether the text asks how to use a command. A job with that name is meant by quotes: `"help"`."""
    return plain(text).lower() in HELP


def read_shift(text: str) -> float:
    """Parse `[12h] [here]` and return the length of a shift in seconds, twelve hours by default.

    Raises:
        UnreadableInput: the text is not a time span.
    """
    told = plain(text).lower().removesuffix("here").removeprefix("since ").strip()
    found = _span(told) if told else SHIFT
    if found is None:
        raise UnreadableInput(f"“{told[:40]}” is not a time span. Write 8h, 12h or 3d.")
    return found


def plain(text: str) -> str:
    """Return typed text without the markup that Slack adds."""
    text = _LINKED.sub(lambda hit: hit[1], text[:4000])
    text = _BARE_LINK.sub(lambda hit: hit[1], text)
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return " ".join(text.split())


def unquoted(text: str) -> str:
    """Return a name without surrounding quotes."""
    text = text.strip()
    while len(text) >= 2 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text[1:-1].strip()
    return text


def after_mention(text: str) -> str:
    """Return the text without the mention of the bot, which can be anywhere."""
    return " ".join(re.sub(r"<@[UW][A-Z0-9]{2,40}(?:\|[^>]*)?>", " ", text[:4000], count=1).split())


def _span(text: str) -> float | None:
    found = re.fullmatch(r"([0-9.]+)\s?([a-zA-Z]+)", text)
    if found is None:
        return None
    try:
        value = seconds(f"{found[1]}{_UNITS.get(found[2].lower(), found[2].lower())}")
    except ValueError:
        return None
    return value if isinstance(value, float) and 0 < value <= _LONGEST_SPAN else None
