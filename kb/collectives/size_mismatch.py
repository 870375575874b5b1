"""Decides which side of a disagreement in sizes is wrong, from the messages of ranks that received more than they had room for.

gloo and NCCL abort a rank that gets a longer message than its own operation takes, and print both lengths. Such a rank
is on the side of the smaller size, and often has no dump; counting it may make one of two equal sides the larger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kb.collectives.result import CollectiveVerdict, Communicator, Culprit, Mismatch, title

_SAID = re.compile(
    r"op\.preamble\.length <= op\.nbytes\. (\d{1,15}) vs (\d{1,15})"
    r"|[Mm]essage truncated : received (\d{1,15}) bytes instead of (\d{1,15})"
)
_NEAR = 0.02  # share by which the two ratios may differ: messages are parts of the whole, rounded
_SCORE = 0.85


@dataclass(frozen=True, slots=True)
class Overrun:
    """A rank that received more bytes than its operation takes."""

    rank: int
    got: int
    room: int


def overrun_in(rank: int, text: str) -> Overrun | None:
    """Return the lengths in a rank's message; None if it does not report that the rank received too much."""
    found = _SAID.search(text)
    if found is None:
        return None
    got, room = (int(group) for group in found.groups() if group is not None)
    return Overrun(rank, got, room) if got > room > 0 else None


def settle_sizes(verdict: CollectiveVerdict, told: Iterable[Overrun]) -> CollectiveVerdict:
    """Return the verdict, with two equal sides decided by the received lengths, if possible."""
    told = tuple({overrun.rank: overrun for overrun in told}.values())
    for place, comm in enumerate(verdict.communicators if told else ()):
        found = comm.mismatch and _settled(comm.mismatch, told)
        if found is not None:
            communicators = list(verdict.communicators)
            communicators[place] = replace(comm, mismatch=found)
            culprits = tuple(_culprits(verdict.culprits, comm, found))
            return replace(verdict, communicators=tuple(communicators), culprits=culprits)
    return verdict


def _settled(mismatch: Mismatch, told: Sequence[Overrun]) -> Mismatch | None:
    if not mismatch.tied or mismatch.what != "size" or len(mismatch.odd) != 2 or 0 in mismatch.elements:
        return None
    small, large = sorted((0, 1), key=lambda side: mismatch.elements[side])
    ratio = mismatch.elements[large] / mismatch.elements[small]
    backers = [each for each in told if abs(each.got / each.room / ratio - 1.0) < _NEAR]
    if any(each.rank in mismatch.odd[large][1] for each in backers):
        return None
    more = sorted({each.rank for each in backers} - {*mismatch.odd[small][1]})
    if not more:
        return None
    first = next(each for each in backers if each.rank == more[0])
    because = f"rank {first.rank} received {first.got} bytes where its own operation expects {first.room}, which confirms the smaller size"
    return replace(
        mismatch,
        expected=mismatch.odd[small][0],
        odd=(mismatch.odd[large],),
        tied=False,
        elements=(mismatch.elements[large],),
        because=because,
    )


def _culprits(before: Iterable[Culprit], comm: Communicator, found: Mismatch) -> Iterable[Culprit]:
    """Yield the culprits without the side that is now known to be right."""
    ranks = found.odd[0][1]
    sides = {rank for _, side in comm.mismatch.odd for rank in side} if comm.mismatch else set()
    for culprit in before:
        if culprit.rank in ranks and culprit.kind == "disagrees":
            reason = f"{title(comm.pg, comm.name)} number {found.seq}: {found.odd[0][0]}, others {found.expected} ({found.what} differs)"
            yield replace(culprit, score=_SCORE, reasons=(reason, found.because))
        elif culprit.rank not in sides or culprit.kind != "disagrees":
            yield culprit
