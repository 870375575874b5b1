"""What a text must contain for a rule to match at all. It is cheap to search for, so most texts need not be judged.

A rule fires only through its patterns, and each kind of pattern through something that the text contains: a line's own regex, words
of an exception, the trigger of a reader. A text without any of it gives no finding of the rule, and a rule without a finding changes
no answer, because every rule is judged by itself (`kb.diagnosis.findings.evaluate_rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kb.parsers.logs import (
    condor_jobs,
    crashes,
    failed_ranks,
    launchers,
    native_errors,
    process_starts,
    slurm_jobs,
    stacks,
)
from kb.parsers.logs.exceptions.readers import READERS as EXCEPTION_READERS
from kb.parsers.logs.progress.formats import FORMATS
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.reader import Reader
from kb.rulebase.patterns import literal_regex, scan_form
from kb.rulebase.rule import Pattern, Rule
from kb.scanning.matcher import ScanPattern
from kb.scanning.prefilter import ways_of

SHORTEST = 3  # characters of a word that is searched for by itself
# kinds of structures that are made of dumps, metrics and platforms' records, never of the text of a log
ELSEWHERE = frozenset({"hang", "stack_outlier", "collective_culprit", "peer_outlier", "slow_phase", "off_plan"})

Group = frozenset[ScanPattern]  # at least one of which a text contains


@dataclass(frozen=True, slots=True)
class Needle:
    """A text may make some rule fire if it has one needle of each group; without groups any text may."""

    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Sieve:
    """All needles of some rules. `patterns`: what the engine searches for; hits are indices into it.

    `lines`: the indices that are a rule's own line patterns: the scanner has to check what the engine hits there.
    """

    patterns: tuple[ScanPattern, ...]
    wanted: tuple[tuple[frozenset[int], ...], ...]
    lines: frozenset[int]

    def lets(self, hits: Collection[int]) -> bool:
        """Whether a text with these hits has to be judged."""
        return any(all(not group.isdisjoint(hits) for group in groups) for groups in self.wanted)


def sieve(rules: Iterable[Rule]) -> Sieve:
    """The sieve of some rules, whatever their status."""
    rules = list(rules)
    needles = list(dict.fromkeys(item for rule in rules for pattern in rule.patterns for item in needles_of(pattern)))
    patterns = tuple(
        dict.fromkeys(item for needle in needles for group in needle.groups for item in sorted(group, key=repr))
    )
    place = {item: at for at, item in enumerate(patterns)}
    lines = {_line(pattern) for rule in rules for pattern in rule.patterns if pattern.literal or pattern.regex}
    return Sieve(
        patterns,
        tuple(tuple(frozenset(place[item] for item in group) for group in needle.groups) for needle in needles),
        frozenset(place[line] for line in lines),
    )


def needles_of(pattern: Pattern) -> Iterator[Needle]:
    """What a text must contain for a pattern to be seen in it; nothing if text alone cannot show it."""
    if pattern.literal or pattern.regex:
        yield Needle((frozenset({_line(pattern)}),))
    elif pattern.exception is not None:
        told = (pattern.exception.type, pattern.exception.message)
        groups = [group for regex in told if regex is not None and (group := _words(regex)) is not None]
        yield Needle(tuple(groups) or (_EXCEPTIONS,))
    elif pattern.structure is not None:
        kinds = pattern.structure.kinds
        if "progress" in kinds:
            yield Needle((_STEPS,))
        elif ELSEWHERE.isdisjoint(kinds):
            yield Needle((frozenset().union(*map(_triggers, kinds)),))
    elif pattern.detect is not None and pattern.detect.name == "collective_behind":
        yield Needle((_triggers("watchdog_status"),))
    elif pattern.detect is not None and pattern.detect.name == "collectives_differ":
        yield Needle((_triggers("watchdog"),))
    elif pattern.detect is not None and pattern.detect.name == "loss_turned_nan":
        yield Needle((frozenset({ScanPattern("nan", True)}),))
    elif pattern.detect is not None or pattern.series is not None:
        yield Needle((_STEPS,))
    else:
        yield Needle()  # what a user programmed may see anything


def _line(pattern: Pattern) -> ScanPattern:
    regex = pattern.regex if pattern.regex is not None else literal_regex(pattern.literal or "")
    return ScanPattern(scan_form(regex).expression, pattern.ignore_case)


def _words(regex: str) -> Group | None:
    """A word for each way in which the regex may match; None if some way has none.

    Whitespace separates words: newlines of a message are kept as spaces.
    """
    found = set()
    for way in ways_of(regex):
        words = [word for run in way for word in run.split() if len(word) >= SHORTEST and word.isascii()]
        if not words:
            return None
        found.add(ScanPattern(scan_form(literal_regex(max(words, key=len))).expression, ignore_case=True))
    return frozenset(found) or None


def _triggers(kind: str) -> Group:
    """What finds the lines of which structures of a kind are made."""
    names = _READERS.get(kind, (kind,))
    found = frozenset(_trigger(reader) for reader in ALL_READERS if reader.name in names)
    return found or frozenset(_trigger(reader) for reader in ALL_READERS)


def _trigger(reader: Reader) -> ScanPattern:
    return ScanPattern(scan_form(reader.trigger).expression, reader.ignore_case)


# kinds whose readers have other names than their own
_READERS: Mapping[str, tuple[str, ...]] = {
    "elastic_failure": ("elastic_block",),
    "launcher_exit": tuple(
        item.name for item in (*failed_ranks.READERS, *launchers.READERS) if item.name not in ("slurm_end", "signal")
    ),
    "process_start": tuple(item.name for item in process_starts.READERS),
    "native_crash": tuple(item.name for item in (*crashes.READERS, *native_errors.READERS)),
    "stack_dump": tuple(item.name for item in stacks.READERS),
    "xid": ("xid", "off_bus"),
    "platform_event": tuple(item.name for item in (*slurm_jobs.READERS, *condor_jobs.READERS)),
}
_EXCEPTIONS: Group = frozenset(_trigger(exception_reader) for exception_reader in EXCEPTION_READERS)
_STEPS: Group = frozenset(ScanPattern(scan_form(item.detector).expression) for item in FORMATS)
