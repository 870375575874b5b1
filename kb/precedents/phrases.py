"""What is remembered, as parts of sentences: the same on a terminal, in chat and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kb.report import Alike, Memory, Outcomes

EXACT = 0.999  # similarity from which two look the same
_ADVICE: Mapping[str, str] = {
    "requeue": "requeueing",
    "requeue_without": "leaving the node out",
    "restart_in_place": "restarting in place",
    "resubmit": "submitting anew",
}


def likeness(one: Alike) -> str:
    """A likeness: `looks like incident 42 (87% alike), closed as: …; what helped: …`."""
    how = "looks the same as" if one.similarity >= EXACT else "looks like"
    helped = f"; what helped: {one.helped}" if one.helped else ""
    alike = "" if one.similarity >= EXACT else f" ({one.similarity:.0%} alike)"
    return f"{how} incident {one.incident}{alike}, closed as: {one.closed_as}{helped}"


def advice_outcome(one: Outcomes) -> str:
    """How advice fared: `restarting in place helped 7 of 9 times for this fault here`."""
    more = f" ({one.open} more not known)" if one.open else ""
    times = "time" if one.tried == 1 else "times"
    return f"{_ADVICE.get(one.advice, one.advice)} helped {one.helped} of {one.tried} {times} for this fault here{more}"


def sentences(memory: Memory) -> Iterator[str]:
    """All of it, a sentence each, the nearest likeness first."""
    yield from (_sentence(f"it {likeness(one)}") for one in memory.alike)
    for one in memory.recalled:
        numbers = ", ".join(str(number) for number in one.incidents)
        named = (
            f" (incident{'' if len(one.incidents) == 1 else 's'} {numbers})" if numbers and one.kind != "node" else ""
        )
        yield _sentence(f"{one.text}{named}") if one.kind not in ("node", "barred") else f"{one.text}."
    yield from (_sentence(advice_outcome(one)) for one in memory.outcomes)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
