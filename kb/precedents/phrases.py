"""Remembered facts as parts of sentences: the same on a terminal, in chat and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kb.report import Alike, Memory, Outcomes

EXACT = 0.999  # similarity from which two count as identical
_ADVICE: Mapping[str, str] = {
    "requeue": "requeueing",
    "requeue_without": "leaving the node out",
    "restart_in_place": "restarting in place",
    "resubmit": "resubmitting",
}


def likeness(item: Alike) -> str:
    """A similar incident: `looks like incident 42 (87% alike), closed as: …; what helped: …`."""
    how = "looks the same as" if item.similarity >= EXACT else "looks like"
    helped = f"; what helped: {item.helped}" if item.helped else ""
    alike = "" if item.similarity >= EXACT else f" ({item.similarity:.0%} alike)"
    return f"{how} incident {item.incident}{alike}, closed as: {item.closed_as}{helped}"


def advice_outcome(outcomes: Outcomes) -> str:
    """How advice worked out: `restarting in place helped 7 of 9 times for this fault here`."""
    more = f" ({outcomes.open} more with unknown outcome)" if outcomes.open else ""
    times = "time" if outcomes.tried == 1 else "times"
    return f"{_ADVICE.get(outcomes.advice, outcomes.advice)} helped {outcomes.helped} of {outcomes.tried} {times} for this fault here{more}"


def sentences(memory: Memory) -> Iterator[str]:
    """All of it, one sentence each, the most similar incident first."""
    yield from (_sentence(f"it {likeness(alike)}") for alike in memory.alike)
    for recalled in memory.recalled:
        numbers = ", ".join(str(number) for number in recalled.incidents)
        named = (
            f" (incident{'' if len(recalled.incidents) == 1 else 's'} {numbers})"
            if numbers and recalled.kind != "node"
            else ""
        )
        yield _sentence(f"{recalled.text}{named}") if recalled.kind not in ("node", "barred") else f"{recalled.text}."
    yield from (_sentence(advice_outcome(outcome)) for outcome in memory.outcomes)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
