"""Finds what a typed question is about: a job ("why did llm-7b fail?", "llm-7b last 2h"), or a command ("what failed today?")."""

from __future__ import annotations

import re
from itertools import pairwise

from bot.slack.parsing.commands import UsageError, plain, read_diagnose
from bot.slack.parsing.job_names import jobs_named

_EDGES = "?!.,:;()\"'`“”"
_LIKE_A_NAME = re.compile(r"(?=.*[0-9_]|.*\w-\w)[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}\Z")

_OF = r"(?:(?:the|my|our|job|run|training)\s+)*(?P<job>[A-Za-z0-9][A-Za-z0-9_.+-]{0,127})"
_FRAMES = (
    re.compile(rf"\b(?:why|when|how)\s+(?:did|does|do|has|is|was)\s+{_OF}\s+(?:just\s+)?[a-z]", re.IGNORECASE),
    re.compile(
        rf"\bwhat(?:['\u2019]?s|\s+is|\s+was)?\s+(?:happened|happening|wrong|went\s+wrong)\s+(?:to|with)\s+{_OF}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:is|has|did)\s+{_OF}\s+(?:fail|crash|die|hang|stop|stuck|slow|dead|down|broke)[a-z]*\b", re.IGNORECASE
    ),
    re.compile(rf"\b(?:diagnose|look\s+(?:at|into)|check)\s+{_OF}", re.IGNORECASE),
)
_NO_JOBS = frozenset(
    {"a", "all", "an", "any", "anybody", "anyone", "anything", "everybody", "everyone", "everything", "he", "i", "it",
     "job", "jobs", "my", "nobody", "nothing", "one", "our", "run", "runs", "she", "slurm", "somebody", "someone",
     "something", "that", "the", "these", "they", "this", "those", "training", "we", "what", "you"}
)  # fmt: skip

_FAILED = r"(?:fail|crash|hang|hung|broke|died|went\s+wrong|incidents?\b)"
_COMMANDS = (
    (re.compile(rf"\b(?:what|which|any|anything|how\s+many)\b.{{0,40}}\b{_FAILED}", re.IGNORECASE), "handover"),
    (re.compile(r"\bwho(?:['\u2019]?s|\s+is)?\s+on[ -]?call\b", re.IGNORECASE), "oncall"),
    (
        re.compile(r"\b(?:what|which)\s+nodes?\b.{0,40}\b(?:excluded|barred|drained|left\s+out)\b", re.IGNORECASE),
        "nodes",
    ),
)
_SPANS = (
    (re.compile(r"\b(?:last|past)\s+(\d{1,3}\s?(?:h|hours?|d|days?))\b", re.IGNORECASE), ""),
    (re.compile(r"\b(?:today|tonight|last\s+night|overnight)\b", re.IGNORECASE), "24h"),
    (re.compile(r"\byesterday\b", re.IGNORECASE), "2d"),
    (re.compile(r"\bweek\b", re.IGNORECASE), "7d"),
)


def command_in(text: str) -> str:
    """Return the command of `/signalbox` that answers a question about no job; empty if none does."""
    words = plain(text)
    verb = next((verb for asks, verb in _COMMANDS if asks.search(words)), "")
    if verb != "handover":
        return verb
    spans = ((hit, told) for form, told in _SPANS if (hit := form.search(words)) is not None)
    span = next((told or hit[1] for hit, told in spans), "")
    return f"{verb} {span}".strip()


def looks_like_a_job(text: str) -> bool:
    """Whether a message can only be the name or the id of a job, or a request with options; a plain word, such as a greeting, may be none."""
    words = plain(text).split()
    return len(words) != 1 or _LIKE_A_NAME.match(words[0].strip(_EDGES)) is not None


def request_in(text: str) -> str:
    """Return what to diagnose, as one types it after /diagnose; empty if the text names no job.

    Of a sentence, a job counts that is labelled or quoted, that stands where a question names it ("why did demo fail?"), or that is
    the only word like a name.
    """
    asked = read_diagnose(text)
    if isinstance(asked, UsageError) or " " not in asked.job:
        return text.strip()
    named = jobs_named({"text": text})
    if named:
        return named[0]
    if (framed := _framed(plain(text))) is not None:
        return framed
    words = [word.strip(_EDGES) for word in plain(text).split()]
    names = {word for word in words if _LIKE_A_NAME.match(word)}
    called = {word for before, word in pairwise(words) if before.lower() in ("job", "run") and word in names}
    found = called or names
    return found.pop() if len(found) == 1 else ""


def _framed(text: str) -> str | None:
    """Return the job where a question names it; None if no question does."""
    for frame in _FRAMES:
        hit = frame.search(text)
        name = hit["job"].strip(_EDGES) if hit is not None else ""
        if name and name.lower() not in _NO_JOBS:
            return name
    return None
