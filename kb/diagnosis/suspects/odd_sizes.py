"""The only rank that logged a different size, if a message exceeded its receiver's buffer by the same factor.

The receiver only notices it. Of three or more ranks that log the same line, the one whose number differs ran the odd size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kb.diagnosis.bad_events import BadEvents, TailLine
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.ranking import with_scores
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.parsers.logs.error_lines import message_of
from kb.regex.lazy import lazy_compile
from kb.report import Suspect
from kb.values import dataclass

_SIZES = lazy_compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,15}) vs\.? (\d{1,15})\b")
_NUMBER = lazy_compile(r"\d{1,15}")
_LABEL = lazy_compile(r"[\[(<][A-Za-z_.:-]{0,24}(\d{1,6})[\])>]")  # `[p1]`, `[trainer:2]`
_RANKS = 3  # that log a line, from which on one can be the odd one
MOST_LINES = 4096  # of all ranks that are compared


@dataclass(frozen=True, slots=True)
class OddSize:
    """The rank with the odd size, its line, both sizes as logged, and the bytes that came and that were expected."""

    rank: int
    line: TailLine
    own: int
    usual: int
    came: int
    expected: int


def odd_size(ranked: Ranked, facts: Facts, places: Places) -> OddSize | None:
    """Return the one rank whose last line of a kind states another size than the others', by the factor of the message."""
    lines = (signal.line for finding in ranked.findings for signal in finding.signals if signal.kind == "line")
    sizes = next((told for line in lines if (told := _SIZES.search(line)) is not None), None)
    if sizes is None:
        return None
    came, expected = int(sizes[1]), int(sizes[2])
    found = [
        OddSize(rank, said[rank], own, usual, came, expected)
        for said in _same_lines(facts, places).values()
        for rank, own, usual in _odd_numbers(said)
        if own * expected == usual * came or usual * expected == own * came
    ]
    return found[0] if len({item.rank for item in found}) == 1 and came != expected else None


def with_odd_size(found: OddSize | None, places: Places) -> tuple[Suspect, ...]:
    """Return the suspect for an odd size; none without one."""
    if found is None:
        return ()
    why = (
        f"alone logged {found.own} where the others logged {found.usual}; "
        f"{found.came} bytes came where {found.expected} were expected"
    )
    return with_scores([Suspect("rank", places.node_of(found.rank), found.rank, why=why)])


def _same_lines(facts: Facts, places: Places) -> Mapping[str, Mapping[int, TailLine]]:
    """Return the last line of each rank by its text without numbers, of texts that all ranks have.

    A line gives its rank itself, or its label does, if the labels of all such lines number the ranks from 0.
    """
    bad, found, left = BadEvents(facts, places), dict[str, dict[int, TailLine]](), MOST_LINES
    for index, stream in enumerate(facts.streams):
        for item in bad.tail(index) if stream.summary.ref.kind == "job" and left > 0 else ():
            left -= 1
            said = message_of(item.line)
            rank, label = places.place(index, item.resource).rank, _LABEL.match(said)
            rank = int(label[1]) if rank is None and label is not None else rank
            if rank is not None:
                found.setdefault(_NUMBER.sub("#", said), {})[rank] = item
    return {form: said for form, said in found.items() if _RANKS <= len(said) == places.world == max(said) + 1}


def _odd_numbers(said: Mapping[int, TailLine]) -> Iterator[tuple[int, int, int]]:
    """Yield each rank that alone has another number at one place of its line, with that number and the others'."""
    numbers = {rank: [int(number) for number in _NUMBER.findall(message_of(item.line))] for rank, item in said.items()}
    for column in zip(*numbers.values(), strict=True):
        usual = [value for value in set(column) if column.count(value) == len(column) - 1]
        if usual:
            at = next(place for place, value in enumerate(column) if value != usual[0])
            yield list(numbers)[at], column[at], usual[0]
