"""Merges findings of one failure: the same exception on other ranks, and exceptions that add nothing of their own.

A generic rule classifies each exception by its own traceback, and may put the same message in a different class than a
specific rule did, or than it did itself on another rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kb.diagnosis.causal_order import STOPS
from kb.diagnosis.conditions import by_time
from kb.diagnosis.findings import Finding, reduced
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile

AGREED = 2 / 3  # share of the exceptions with one message that must be in a class
NEAR = 4096  # bytes of a log within which an exception without a message stands beside the line that explains it
_RAISED = lazy_compile(r"\b([A-Z]\w{0,60}(?:Error|Exception)): (\S[^\n]{10,300})")
_NUMBER = lazy_compile(r"\d+")
_LONG = 160  # characters of a message that are compared


def one_finding_each(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; generic ones without exceptions that are another finding's, which then has them."""
    homes = _homes(findings)
    kept, moved = [], dict[int, list[Signal]]()
    for at, finding in enumerate(findings):
        own = []
        for signal in finding.signals:
            home = homes.get(_words(signal), at) if _is_generic(finding, signal) else at
            if home != at:
                moved.setdefault(home, []).append(signal)
            elif not (_is_generic(finding, signal) and _is_nameless(signal, findings)):
                own.append(signal)
        kept.append((at, finding if len(own) == len(finding.signals) else reduced(finding, tuple(own))))
    return [_with(finding, moved.get(at, ())) for at, finding in kept if finding is not None]


def _homes(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the finding that each message belongs to: that of a specific rule, else the generic one that has it most often.

    None where generic ones are at odds about it: that nobody knows its class must show.
    """
    seen = Counter((words, at) for at, finding in enumerate(findings) for words in _messages(finding))
    every = Counter[str]()
    for (words, _), count in seen.items():
        every[words] += count
    homes: dict[str, int] = {}
    for words, at in sorted(seen, key=lambda item: (findings[item[1]].rule.fallback, -seen[item], item[1])):
        if not findings[at].rule.fallback or AGREED * every[words] <= seen[words, at]:
            homes.setdefault(words, at)
    return homes


def _messages(finding: Finding) -> Iterator[str]:
    if not finding.is_symptom and finding.role != "context":
        yield from filter(None, map(_words, finding.signals))


def _words(signal: Signal) -> str:
    """Return the class and the beginning of the message of an exception, without numbers; empty if a line shows none."""
    found = _RAISED.search(signal.line)
    return "" if found is None else _NUMBER.sub("#", f"{found[1]}: {found[2]}")[:_LONG].strip()


def _is_generic(finding: Finding, signal: Signal) -> bool:
    """Whether it is an exception of which only a generic rule says something; the type of an interrupt says all of it."""
    said = finding.fault.id in STOPS or finding.is_symptom
    return finding.rule.fallback and not said and signal.kind == "exception"


def _is_nameless(signal: Signal, findings: Sequence[Finding]) -> bool:
    """Whether an exception has no message, and a specific rule explains a line beside it."""
    if signal.captures.get("message", "-").strip():
        return False
    low, high = signal.span[0] - NEAR, signal.span[1] + NEAR
    return any(
        other.stream == signal.stream and low <= other.offset < high
        for finding in findings
        if not finding.rule.fallback and not finding.is_symptom and finding.role != "context"
        for other in finding.signals
    )


def _with(finding: Finding, signals: Sequence[Signal]) -> Finding:
    """Return a finding with the signals that moved to it."""
    if not signals:
        return finding
    ranks = {signal.resource.rank for signal in signals if signal.resource.rank is not None}
    every = tuple(by_time((*finding.signals, *signals)))
    return replace(finding, signals=every, count=finding.count + len(signals), ranks=finding.ranks | ranks)
